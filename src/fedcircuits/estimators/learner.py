"""What all learners share: reading rows, holding some back, going through EM, showing progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema
from fedcircuits.errors import TableError
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.learning.batches import InMemory, ParquetRows, Source
from fedcircuits.learning.em import Schedule, maximise_likelihood
from fedcircuits.learning.table import Table

Training = Rows | ParquetRows
Weights = npt.ArrayLike | None
QUIET = 2.0  # seconds before progress is shown


class Learner(Model):
    """A model that is learned from one table. Subclasses say how, in ``_learn``."""

    random_state: int | None

    def fit(self, X: Training, y: object = None, sample_weight: Weights = None) -> Self:
        """Learn from a DataFrame, Table, array, or ``ParquetRows`` read piece by piece."""
        rng = np.random.default_rng(self.random_state)
        if isinstance(X, ParquetRows):
            self._learn(X, X.schema, rng)
            return self
        table = Table.of(X)
        weight = _weights(sample_weight, len(table))
        kept = np.isfinite(table.values).any(axis=1)  # a row without any value says nothing
        if not kept.any():
            raise TableError("every value of the table is missing: there is nothing to learn from")
        chosen = None if weight is None else weight[kept]
        self._learn(InMemory(table.values[kept], chosen), table.schema, rng)
        return self

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say how it learns")

    def _em(
        self,
        circuit: Circuit,
        start: Parameters,
        rows: Source,
        schedule: Schedule,
        rng: np.random.Generator,
        *,
        validation: Array | None = None,
        dtype: torch.dtype = torch.float64,
        rules: Rules | None = None,
    ) -> None:
        """Go through EM and keep what it found, with its history."""
        found = maximise_likelihood(
            circuit, start, rows, schedule=schedule, validation=validation, rules=rules,
            dtype=dtype, rng=rng, report=progress(type(self).__name__, schedule.epochs),
        )  # fmt: skip
        self.circuit_, self.parameters_ = circuit, found.parameters
        self.history_, self.converged_ = found.history, found.converged
        self.validation_history_ = found.validation


def in_memory(rows: Source, learner: str) -> InMemory:
    """The rows of a learner that has to see all of them at once."""
    if isinstance(rows, InMemory):
        return rows
    raise TableError(
        f"{learner} needs the whole table in memory: read it with Table.read, "
        "or learn from the file with MixtureOfProducts, EinsumNetwork or HiddenChowLiuTree"
    )


def hold_back(rows: Source, share: float, rng: np.random.Generator) -> tuple[Source, Array | None]:
    """Rows to learn from, and rows to stop by: a share of those in memory, or a drawn sample."""
    if not 0 <= share < 1:
        raise TableError(f"validation must be a share from 0 to below 1, got {share}")
    held = round(share * len(rows))
    if held < 1:
        return rows, None
    if not isinstance(rows, InMemory):
        return rows, rows.some(min(held, 20_000), rng)
    order = rng.permutation(len(rows))
    kept = np.sort(order[held:])
    weight = None if rows.weights is None else rows.weights[kept]
    return InMemory(rows.values[kept], weight), rows.values[order[:held]]


def _weights(given: Weights, rows: int) -> Array | None:
    if given is None:
        return None
    weight = np.asarray(given, dtype=np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise TableError(
            f"sample_weight must be {rows} finite numbers from 0, got an array of the shape "
            f"{weight.shape}"
        )
    return weight


def progress(name: str, epochs: int) -> Callable[[int, float], None]:
    """A line that tells how far learning is, on a terminal and if it takes a while."""
    begin = time.monotonic()

    def tell(epoch: int, likelihood: float) -> None:
        if sys.stderr.isatty() and time.monotonic() - begin > QUIET:
            last = "\n" if epoch >= epochs else ""
            text = f"\r{name}: epoch {epoch} of at most {epochs}, log-likelihood {likelihood:.4f}"
            print(text, end=last, file=sys.stderr, flush=True)

    return tell

"""The base class of learners: reading rows, holding some out, running EM, reporting progress."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from fedcircuits.arguments import (
    COLUMN,
    ROWS_HELD_BACK,
    SEED,
    Declared,
    Instance,
    Real,
    Whole,
    check_arguments,
)
from fedcircuits.circuits.evaluation.devices import device_of
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import TableError
from fedcircuits.estimators.model import Model, Rows
from fedcircuits.estimators.progress import Bar, current
from fedcircuits.estimators.targets import with_target
from fedcircuits.learning.batches import PIECE, InMemory, ParquetRows, Source, row_weights
from fedcircuits.learning.em import EMSchedule, Fitted, maximise_likelihood
from fedcircuits.tables.readers import suffix_of
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.series import refuse_series
from fedcircuits.tables.table import Table

Training = Rows | ParquetRows | str | os.PathLike[str]
Weights = npt.ArrayLike | None
BACKDROP = 100  # rows that represent a whole table when learning from a part of it
DEVICE = Instance(str, "the name of a device, such as 'cpu' or 'cuda:1'")
BY_BATCHES: Declared = {  # parameters of learners with minibatch EM
    "target": COLUMN,
    "epochs": Whole(1),
    "batch_size": Whole(1),
    "step": Real(above=0, most=1),
    "last_step": Real(above=0, most=1),
    "validation": ROWS_HELD_BACK,
    "tol": Real(least=0),
    "patience": Whole(1),
    "device": DEVICE,
    "random_state": SEED,
}


class Learner(Model):
    """Base class of models learned from one table.

    Subclasses declare the valid values of their parameters in ``allowed`` and implement ``_learn``.
    """

    allowed: ClassVar[Declared] = {}
    random_state: int | None
    target: str | None = None
    target_: str | None  # the column to predict: ``target``, or y of ``fit``

    def fit(self, X: Training, y: object = None, sample_weight: Weights = None) -> Self:
        """Learn from one table.

        Parameters
        ----------
        X : DataFrame, Table, array, ParquetRows, str or path
            The rows, or a file of them. Learners with minibatch EM stream parquet files; others
            read them at once.
        y : array-like of shape (rows,) or None, default=None
            The column to predict, if X does not have it. It becomes an ordinary column of the
            model, named by ``target``, the name of the Series, or "target". At most 20 distinct
            whole numbers are classes.
        sample_weight : array-like of shape (rows,) or None, default=None
            Weights of the rows, for tables in memory.
        """
        with Bar(type(self).__name__):
            check_arguments(self)
            rng = np.random.default_rng(self.random_state)
            self.target_ = self.target
            if y is not None:
                X, self.target_ = with_target(X, y, self.target)
            self._learn(*source_of(X, sample_weight, type(self).__name__), rng)
        return self

    def fit_part(self, part: Table, whole: Table) -> Self:
        """Learn from some rows of a table, smoothed by the whole with the weight of one row.

        Values absent from the part are then unlikely but possible, and no leaf degenerates.
        """
        rng = np.random.default_rng(self.random_state)
        others = whole.rows(rng.choice(len(whole), min(len(whole), BACKDROP), replace=False))
        rows = Table(part.schema, np.concatenate([part.values, others.values]))
        share = np.full(len(others), 1 / len(others))
        return self.fit(rows, sample_weight=np.append(np.ones(len(part)), share))

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define how it learns")

    def _em(
        self,
        circuit: Circuit,
        start: Parameters,
        rows: Source,
        schedule: EMSchedule,
        rng: np.random.Generator,
        *,
        validation: InMemory | None = None,
        dtype: torch.dtype = torch.float64,
        rules: Rules | None = None,
        scale: float | None = None,
    ) -> None:
        """Run EM and keep the parameters and history."""
        report = progress(type(self).__name__, schedule.epochs)
        fitted = maximise_likelihood(
            circuit, start, rows, schedule=schedule, validation=validation, rules=rules,
            scale=scale, dtype=dtype, rng=rng, report=report, device=device_of(self.device),
        )  # fmt: skip
        self._keep_fitted(circuit, fitted)

    def _keep_fitted(self, circuit: Circuit, fitted: Fitted) -> None:
        self.circuit_, self.parameters_ = circuit, fitted.parameters
        self.history_, self.converged_ = fitted.history, fitted.converged
        self.validation_history_ = fitted.validation


def source_of(
    X: Training, sample_weight: Weights, learner: str, schema: Schema | None = None
) -> tuple[Source, Schema]:
    """The rows to learn from and their schema, inferred unless it is given."""
    given = _opened(X, schema)
    if isinstance(given, ParquetRows):
        _refuse_weights(sample_weight, given)
        return given, given.schema
    if given.series:
        refuse_series(given.series, learner)
    return _rows_of(given, sample_weight), given.schema


def _opened(given: Training, schema: Schema | None) -> Table | ParquetRows:
    if isinstance(given, ParquetRows):
        return given
    if not isinstance(given, str | os.PathLike):
        return Table.of(given, schema=schema)
    if suffix_of(given) == ".parquet":
        return ParquetRows(given, schema)
    return Table.read(given, schema=schema)


def _rows_of(table: Table, sample_weight: Weights) -> InMemory:
    """The rows with at least one value and positive weight."""
    weight = None if sample_weight is None else row_weights(sample_weight, len(table))
    kept = np.isfinite(table.values).any(axis=1)
    if not kept.any():
        raise TableError("all values of the table are missing: there is nothing to learn from")
    if weight is not None:
        kept &= weight > 0
        if not kept.any():
            raise TableError("sample_weight is zero for every row with a value: give some weight")
    return InMemory(table.values[kept], None if weight is None else weight[kept])


def _refuse_weights(given: Weights, rows: ParquetRows) -> None:
    if given is not None:
        raise TableError(
            f"sample_weight works for tables in memory only: read {rows.path} with Table.read to "
            "weight rows"
        )


def in_memory(rows: Source, learner: str) -> InMemory:
    """All rows in memory, for learners that cannot stream; those of a file are read."""
    if isinstance(rows, InMemory):
        return rows
    try:
        return InMemory(np.concatenate([x for x, _ in rows.batches(PIECE, None)]))
    except MemoryError:
        raise TableError(
            f"{learner} needs the whole table in memory, but {len(rows):,} rows do not fit: use "
            "MixtureOfProducts, EinsumNetwork or HiddenChowLiuTree"
        ) from None


def hold_back(
    rows: Source, share: float, rng: np.random.Generator
) -> tuple[Source, InMemory | None]:
    """Training rows and validation rows: a share of the rows in memory, or a random sample."""
    held = round(share * len(rows))
    if held < 1:
        return rows, None
    if not isinstance(rows, InMemory):
        return rows, InMemory(rows.some(min(held, 20_000), rng))
    order = rng.permutation(len(rows))
    return rows.rows(np.sort(order[held:])), rows.rows(order[:held])


def progress(name: str, epochs: int) -> Callable[[int, float], None]:
    """A callback for EM that reports every epoch to the bar of the current fit, if any."""
    bar = current()

    def tell(epoch: int, likelihood: float) -> None:
        if bar is not None:
            text = f"epoch {epoch} of at most {epochs}, log-likelihood {likelihood:.4f}"
            bar.tell(epoch, epochs, text)

    return tell

"""Trees over the variables: Chow–Liu, and hidden Chow–Liu with a state beside every variable."""

from __future__ import annotations

import numpy as np
import torch

from fedcircuits.circuits.schema import Schema
from fedcircuits.circuits.structures import LeafFamily, by_kind, latent_tree
from fedcircuits.errors import StructureError
from fedcircuits.estimators.learner import Learner, hold_back, in_memory
from fedcircuits.learning.batches import Source
from fedcircuits.learning.em import Schedule
from fedcircuits.learning.independence import OneHot, pair_tables
from fedcircuits.learning.starts import MOST_ROWS, clusters, start_from
from fedcircuits.learning.trees import chow_liu_circuit, learn_tree


class ChowLiuTree(Learner):
    """The best tree-shaped Bayesian network over categories and booleans; deterministic, so that
    its most probable explanations are exact.

    >>> from fedcircuits import Table
    >>> table = Table.of({"rain": [True, True, False], "wet": [True, True, False]})
    >>> ChowLiuTree().fit(table).explain(table).exact
    True
    """

    def __init__(
        self, *, smoothing: float = 0.1, target: str | None = None, random_state: int | None = None
    ) -> None:
        self.smoothing = smoothing
        self.target = target
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        for variable in schema:
            if not variable.size:
                raise StructureError(
                    f"ChowLiuTree needs categories or booleans, but {variable.name!r} is a "
                    f"{variable.kind}: use HiddenChowLiuTree, which takes every kind"
                )
        known = in_memory(rows, "ChowLiuTree")
        hot = OneHot.of(known.values, schema.variables)
        weight = None if known.weights is None else known.weights.astype(np.float32)
        tables = pair_tables(hot.matrix, weight)
        self.circuit_, self.parameters_ = chow_liu_circuit(
            schema, tables, hot.starts, self.smoothing
        )


class HiddenChowLiuTree(Learner):
    """A hidden state of ``units`` values beside every variable, states joined by the Chow–Liu tree.

    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = HiddenChowLiuTree(units=4, epochs=3, random_state=0).fit(rows)
    >>> model.score_samples(rows).shape
    (200,)
    """

    def __init__(
        self,
        units: int = 32,
        *,
        target: str | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        step: float = 0.3,
        last_step: float = 0.01,
        validation: float = 0.1,
        tol: float = 1e-4,
        patience: int = 5,
        leaf_family: LeafFamily = by_kind,
        random_state: int | None = None,
    ) -> None:
        self.units = units
        self.target = target
        self.epochs = epochs
        self.batch_size = batch_size
        self.step = step
        self.last_step = last_step
        self.validation = validation
        self.tol = tol
        self.patience = patience
        self.leaf_family = leaf_family
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        kept, held = hold_back(rows, self.validation, rng)
        x = kept.some(MOST_ROWS, rng)
        tree = learn_tree(x, schema)
        circuit = latent_tree(schema, tree, self.units, leaf_family=self.leaf_family)
        start = start_from(circuit, x, clusters(x, schema, self.units, rng), rng, aligned=0.8)
        plan = Schedule(
            self.epochs, self.batch_size, self.step, self.last_step, self.tol, self.patience
        )
        self._em(circuit, start, kept, plan, rng, validation=held, dtype=torch.float32)

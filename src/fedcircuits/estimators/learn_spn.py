"""LearnSPN: a tree of sums and products that follows the data, one or several of them."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.estimators.learner import Learner, hold_back, in_memory
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.learning.spn.learn_spn import SPNSettings, learn_spn
from fedcircuits.learning.spn.pruning import prune
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

CONTEXT = 5_000  # rows that stand for a whole table


class LearnSPN(Learner):
    """Rows are clustered and columns tested for independence in turn, down to ``min_rows`` (by
    default a twelfth of the rows, between 30 and 200).

    ``trees`` puts Chow–Liu trees where parts of discrete columns are not split further;
    ``ensemble`` mixes several circuits that began from other seeds. Sums of sums and products of
    products become one (the distribution stays the same); ``refine`` is a number of EM
    iterations over weights and leaves afterwards, stopped by rows held back.

    >>> rows = np.random.default_rng(0).normal(size=(300, 3))
    >>> LearnSPN(random_state=0).fit(rows).score_samples(rows).shape
    (300,)
    """

    def __init__(
        self,
        *,
        min_rows: int | None = None,
        clusters: int = 3,
        test: Literal["auto", "g", "rdc"] = "auto",
        threshold: float | None = None,
        trees: bool = True,
        smoothing: float = 0.5,
        ensemble: int = 1,
        refine: int = 0,
        validation: float = 0.1,
        target: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.min_rows = min_rows
        self.clusters = clusters
        self.test = test
        self.threshold = threshold
        self.trees = trees
        self.smoothing = smoothing
        self.ensemble = ensemble
        self.refine = refine
        self.validation = validation
        self.target = target
        self.random_state = random_state

    def fit_part(self, part: Table, whole: Table) -> Self:
        """Learn from some rows of a table; bins, least variances and what unseen categories are
        likely to be come from the whole of it."""
        self._context = _spread(whole.values)
        try:
            return self.fit(part)
        finally:
            del self._context

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        known = in_memory(rows, "LearnSPN")
        kept, held = hold_back(known, self.validation if self.refine else 0.0, rng)
        assert isinstance(kept, InMemory)
        settings = SPNSettings(
            self.min_rows, self.clusters, self.test, self.threshold, self.trees, self.smoothing
        )
        context = self.__dict__.get("_context")
        members = [
            learn_spn(kept.values, schema, settings, rng, kept.weights, context)
            for _ in range(self.ensemble)
        ]
        circuit, parameters = prune(*(members[0] if len(members) == 1 else mixed(schema, members)))
        if self.refine:
            plan = EMSchedule(epochs=self.refine, patience=2)
            found = maximise_likelihood(
                circuit, parameters, kept, schedule=plan, validation=held, rng=rng
            )
            parameters = found.parameters
            self.history_, self.validation_history_ = found.history, found.validation
        self.circuit_, self.parameters_ = circuit, parameters


def _spread(values: Array) -> Array:
    """About ``CONTEXT`` rows that stand for all: every so many, and those with the extremes."""
    step = max(1, len(values) // CONTEXT)
    if step == 1:
        return values
    low, high = np.nan_to_num(values, nan=np.inf), np.nan_to_num(values, nan=-np.inf)
    ends = np.concatenate([low.argmin(axis=0), high.argmax(axis=0)])
    return np.concatenate([values[::step], values[np.unique(ends)]])


def mixed(schema: Schema, members: list[tuple[Circuit, Parameters]]) -> tuple[Circuit, Parameters]:
    """One root over several circuits, all of the same weight."""
    leaves = tuple(Leaf(f"member {i}", CIRCUIT, schema.names) for i in range(len(members)))
    root = Sum("ensemble", tuple(leaf.name for leaf in leaves))
    inner = {leaf.name: member for leaf, member in zip(leaves, members, strict=True)}
    equal = np.full((1, len(members)), 1 / len(members))
    return inline(
        Circuit((*leaves, root), schema), Parameters({"ensemble": {WEIGHT: equal}}, inner)
    )

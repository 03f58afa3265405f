"""LearnSPN: a tree of sums and products that follows the data, one or several of them."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np

from fedcircuits.arguments import COLUMN, ROWS_HELD_BACK, SEED, Declared, Whole
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.graph.pruning import prune
from fedcircuits.estimators.learner import Learner, hold_back, in_memory
from fedcircuits.learning.batches import InMemory, Source
from fedcircuits.learning.em import EMSchedule
from fedcircuits.learning.spn.dependence import notes_of, notes_of_ties
from fedcircuits.learning.spn.learn_spn import SPNSettings, learn_spn
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

CONTEXT = 5_000  # rows that stand for a whole table


class LearnSPN(Learner):
    """A tree of sums and products that follows the data.

    Columns that depend on each other are kept together and independent ones split; where no split
    is found, rows are clustered, until parts are small. Sums of sums and products of products
    become one afterwards, which leaves the distribution as it is.

    Parameters
    ----------
    min_rows : int or None, default=None
        Parts with fewer rows are not split further. None: a twelfth of the rows, between 30 and
        200.
    clusters : int, default=3
        The number of clusters that rows are divided into.
    test : {"evidence", "g", "rdc"}, default="evidence"
        The test of independence: p-values, by which weaker dependence is found with more rows; or
        a fixed threshold on the G test of discrete columns, or on the randomised dependence
        coefficient, which call weak dependence none however many rows there are.
    threshold : float or None, default=None
        With "evidence" the level of significance (0.05), corrected for the number of pairs; else
        columns whose test gives more than this are dependent (5.0 for "g", 0.3 for "rdc").
    trees : bool, default=True
        Whether columns that depend on each other in a part that is not split further become
        Chow–Liu trees (discrete ones) and multivariate normals (reals), or stay side by side.
    smoothing : float, default=0.5
        The number of pseudo-rows in each table of a Chow–Liu tree.
    least_count : int, default=1
        Counts of categories, bins and clusters with fewer rows are not shown by the circuit, but
        pooled; ``refine`` does not go by it. ``FedPC`` sets it to that of the party.
    ensemble : int, default=1
        The number of circuits that are mixed, each from different random draws.
    refine : int, default=0
        The largest number of iterations of EM over weights and leaves afterwards.
    validation : float, default=0.1
        The share of held-out rows that EM stops by, if there is any.
    target : str or None, default=None
        The column that ``predict`` predicts by default. If it has classes and any column
        depends on it, rows are split by class first, so that all that depends on it helps.
    random_state : int or None, default=None
        The seed; the same seed gives the same model. None draws one.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(300, 3))
    >>> LearnSPN(random_state=0).fit(rows).score_samples(rows).shape
    (300,)
    """

    notes_: tuple[str, ...]  # columns found independent, by what evidence; reals with many ties

    allowed: ClassVar[Declared] = {
        **SPNSettings.allowed, "ensemble": Whole(1), "refine": Whole(0),
        "validation": ROWS_HELD_BACK, "target": COLUMN, "random_state": SEED,
    }  # fmt: skip

    def __init__(
        self,
        *,
        min_rows: int | None = None,
        clusters: int = 3,
        test: Literal["evidence", "g", "rdc"] = "evidence",
        threshold: float | None = None,
        trees: bool = True,
        smoothing: float = 0.5,
        least_count: int = 1,
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
        self.least_count = least_count
        self.ensemble = ensemble
        self.refine = refine
        self.validation = validation
        self.target = target
        self.random_state = random_state

    def fit_part(self, part: Table, whole: Table) -> Self:
        """Learn from some rows of a table. Bins, least variances and the probabilities of unseen
        categories come from all of its rows."""
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
            self.min_rows, self.clusters, self.test, self.threshold, self.trees, self.smoothing,
            self.least_count,
        )  # fmt: skip
        context = self.__dict__.get("_context")
        target = None if self.target_ is None else schema.index(self.target_)
        evidence: list[Array] = []
        members = [
            learn_spn(
                kept.values, schema, settings, rng, kept.weights, context, target, evidence.append
            )
            for _ in range(self.ensemble)
        ]
        circuit, parameters = prune(*(members[0] if len(members) == 1 else mixed(schema, members)))
        self.circuit_, self.parameters_ = circuit, parameters
        notes = notes_of(evidence[0], schema, target, settings.level) if evidence else ()
        self.notes_ = (*notes, *notes_of_ties(kept.values, schema))
        if self.refine:
            schedule = EMSchedule(epochs=self.refine, patience=2)
            self._em(circuit, parameters, kept, schedule, rng, validation=held)


def _spread(values: Array) -> Array:
    """About ``CONTEXT`` rows that stand for all: evenly spaced ones, and those with extremes."""
    step = max(1, len(values) // CONTEXT)
    if step == 1:
        return values
    low, high = np.nan_to_num(values, nan=np.inf), np.nan_to_num(values, nan=-np.inf)
    ends = np.concatenate([low.argmin(axis=0), high.argmax(axis=0)])
    return np.concatenate([values[::step], values[np.unique(ends)]])


def mixed(
    schema: Schema, members: list[tuple[Circuit, Parameters]], weights: Array | None = None
) -> tuple[Circuit, Parameters]:
    """One root over several circuits, all of the same weight if none are given."""
    leaves = tuple(Leaf(f"member {i}", CIRCUIT, schema.names) for i in range(len(members)))
    root = Sum("ensemble", tuple(leaf.name for leaf in leaves))
    inner = {leaf.name: member for leaf, member in zip(leaves, members, strict=True)}
    shares = np.full(len(members), 1 / len(members)) if weights is None else weights
    return inline(
        Circuit((*leaves, root), schema), Parameters({"ensemble": {WEIGHT: shares[None]}}, inner)
    )

"""Forests, mixtures and factors over the states of columns, weighted by held-back rows.

The weight of an edge is its gain on the rows that have both columns, minus the cost of its
parameters (BIC). Columns that too few rows join are in different trees: independent. The number of
components of a mixture and the shrinkage are chosen on held-back rows. A forest leaves out most
pairs of columns, so a second forest is learned that avoids the edges of the first, and mixtures of
factor analysers (factors.py) with one component, with clusters of rows or with the classes of the
target. Held-back rows then determine the weights of all of these (stacking), with independence
among them: rows with gaps as if they had none. Small tables are cross-validated over several folds.
The less sure the gain of the best of them is, the more weight independence has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.factors import (
    FEWEST_ORDERED,
    MOST_POINTS,
    FactorMixture,
    factor_mixture,
    points_of,
)
from fedcircuits.learning.chow_liu.forests import (
    Edges,
    Messages,
    Tables,
    forest_mixture,
    joint_logs,
    pooled_tables,
    started,
)
from fedcircuits.learning.chow_liu.states import Index, StateRows, gains
from fedcircuits.learning.chow_liu.trees import spanning_tree

COMPONENTS = (2, 4, 8, 16)  # tried one after the other
DRAWN = (1.0, 5.0)  # pseudo-rows that shrink components towards all rows
FACTORS = 1, 2, 4  # numbers that are tried
CLUSTERS = 1, 8  # of rows, each with its own factors
HELD = 5  # one row in five is held out
FEW = 10  # rows that have about as many columns as any: with fewer all columns are independent
FOLDS = (150, 5), (1_000, 3)  # folds for tables of fewer such rows; one fold otherwise
MOST_ROWS = 4_000  # used to choose
SURE = 0.5  # standard errors: where held-out rows gain less, columns are independent
LEAST_GAIN = 0.05  # nats per row that further components must gain
FORESTS = 2  # that differ
AVOIDED = 0.5  # factor on the weight of an edge that an earlier forest has
LEAST_WEIGHT = 0.03  # of a candidate that is kept
STACKED, STACKING = 5.0, 50  # preference for the best candidate; rounds


@dataclass(frozen=True, slots=True)
class LearnedForest:
    """What was learned: components, each with its forest, and their weights."""

    weights: Array  # (components,)
    components: list[tuple[Edges, Tables]]
    judged: tuple[Array, Array, Array]  # of held-out rows, if there are: nats over independence,
    # the share of columns that they have, and for how many rows each of them stands
    refused: bool = False  # whether edges were found, and held-out rows were likelier without

    @property
    def gain(self) -> float:
        """Over independence, in nats per row without gaps."""
        gained, seen, rows = self.judged
        return float(rows @ gained / max(float(rows @ seen), 1.0))


@dataclass(frozen=True, slots=True)
class _Way:
    """A candidate: which of several forests, with how many components."""

    forest: int
    number: int = 1
    pull: float = DRAWN[0]
    by_class: bool = False
    factors: int = 0  # behind all columns, instead of a forest


APART = _Way(FORESTS)  # the last forest has no edges


class _Learning:
    """Learns candidates from the same rows, with shared forests and pooled tables."""

    def __init__(self, rows: StateRows, classes: Index | None, rng: np.random.Generator) -> None:
        self.rows, self.classes, self.rng = rows, classes, rng
        self.forests = differing_forests(gains(rows), FORESTS)
        self.tables: dict[int, Tables] = {}

    def pooled(self, forest: int) -> Tables:
        if forest not in self.tables:
            self.tables[forest] = pooled_tables(self.rows, self.forests[forest])
        return self.tables[forest]

    def components(self, way: _Way) -> tuple[Array, list[tuple[Edges, Tables]]]:
        """Weights, and a forest with its tables for each."""
        edges = self.forests[way.forest]
        if way.factors:
            found = self._factors(way)
            lines = zip(*found.tables, strict=True)
            return found.weights, [(edges, [line[None] for line in own]) for own in lines]
        weights, tables = self._mixture(way)
        return weights, [(edges, own) for own in tables]

    def logs(self, way: _Way, judges: StateRows) -> Array:
        """Log-likelihoods of other rows (rows,)."""
        if way.factors:
            return np.asarray(logsumexp(self._factors(way).logs(judges), axis=0))
        return joint_logs(judges, self.forests[way.forest], *self._mixture(way))[1]

    def _mixture(self, way: _Way) -> tuple[Array, list[Tables]]:
        edges, pooled = self.forests[way.forest], self.pooled(way.forest)
        return forest_mixture(self.rows, edges, self._start(way), way.pull, pooled)

    def _factors(self, way: _Way) -> FactorMixture:
        return factor_mixture(self.rows, way.factors, self._start(way))

    def _start(self, way: _Way) -> Array:
        if not way.by_class or self.classes is None:
            return started(self.rows, way.number, self.rng, None)
        number = max(way.number, int(self.classes.max()) + 1)  # a fold may lack a class
        return started(self.rows, number, self.rng, self.classes)


def learn_forest(
    rows: StateRows, rng: np.random.Generator, classes: Index | None = None
) -> LearnedForest:
    """``classes``: of rows, −1 where unknown, from which components may start. The order of rows
    does not matter: one seed gives one model, whatever the order of tokens."""
    order = np.lexsort(rows.states.T)
    rows, classes = rows.rows(order), None if classes is None else classes[order]
    learning = _Learning(rows, classes, rng)
    ways, shares, refused = [APART], np.ones(1), False
    judged = np.zeros(1), np.ones(1), np.full(1, float(len(rows)))
    if _joined(rows) >= FEW:
        ways, shares, judged = _stacked(rows, classes, rng)
        refused = not judged[0].any() and any(p >= 0 for _, p in learning.forests[0])
    found: list[tuple[Edges, Tables]] = []
    weights: list[float] = []
    for way, share in zip(ways, shares, strict=True):
        own, components = learning.components(way)
        weights += (share * own).tolist()
        found += components
    return LearnedForest(np.array(weights), found, judged, refused)


def _joined(rows: StateRows) -> int:
    """How many rows have about as many columns as any."""
    seen = (rows.states >= 0).sum(axis=1)
    return int((seen > seen.max(initial=0) / 2).sum())


def differing_forests(worth: Array, number: int) -> list[Edges]:
    """The best forest, and others that avoid edges of those before; the last has no edges."""
    forests: list[Edges] = []
    left = worth.copy()
    for _ in range(number):
        forests.append(spanning_tree(left, 0.0))
        for column, parent in forests[-1]:
            if parent >= 0:
                left[column, parent] *= AVOIDED
                left[parent, column] *= AVOIDED
    return [*forests, [(c, -1) for c in range(len(worth))]]


def _stacked(
    rows: StateRows, classes: Index | None, rng: np.random.Generator
) -> tuple[list[_Way], Array, tuple[Array, Array, Array]]:
    """Candidates, their weights, and the gain of held-back rows over independence."""
    drawn = rng.permutation(len(rows))[:MOST_ROWS]
    folds = next((folds for most, folds in FOLDS if _joined(rows) < most), 1)
    ways: list[_Way] = []
    logs: list[Array] = []
    seen = []
    for fold in range(folds):
        held = np.arange(len(drawn)) % HELD == fold
        judges, rest = rows.rows(drawn[held]), drawn[~held]
        own = None if classes is None else classes[rest]
        learning = _Learning(rows.rows(rest), own, rng)
        if fold == 1:
            worth = stacked_weights(logs[0] - logs[0][ways.index(APART)]) > LEAST_WEIGHT / 3
            left = [i for i, way in enumerate(ways) if worth[i] or way == APART]
            ways, logs = [ways[i] for i in left], [logs[0][left]]
        ways = ways or _ways(learning, judges)
        logs.append(np.stack([learning.logs(way, judges) for way in ways]))
        seen.append((judges.states >= 0).mean(axis=1))
    every, share = np.concatenate(logs, axis=1), np.concatenate(seen)
    apart = ways.index(APART)
    gained = every - every[apart]
    doubt = _doubt(gained[gained.mean(axis=1).argmax()])
    if doubt == 1:
        return [ways[apart]], np.ones(1), (np.zeros(len(share)), share, np.ones(len(share)))
    weights = stacked_weights(gained / max(float(share.max()), 1e-9))  # as if rows had no gaps
    weights = (1 - doubt) * weights + doubt * (np.arange(len(ways)) == apart)
    kept = np.flatnonzero(weights > LEAST_WEIGHT)
    shares = weights[kept] / weights[kept].sum()
    score = np.asarray(logsumexp(every[kept] + np.log(shares)[:, None], axis=0))
    judged = score - every[apart], share, np.ones(len(share))
    return [ways[i] for i in kept], shares, judged


def _doubt(gained: Array) -> float:
    """The weight of independence, by how many standard errors rows gain over it: the best of many
    candidates gains some by chance."""
    error = float(gained.std()) / max(float(np.sqrt(len(gained))), 1.0)
    sure = float(gained.mean()) / max(error, 1e-12)
    return 1 / (1 + sure**2) if sure > SURE else 1.0


def _ways(learning: _Learning, judges: StateRows) -> list[_Way]:
    """All candidates."""
    best = _chosen(learning, judges)
    ways = [*(_Way(i) for i in range(FORESTS)), APART]
    if best.number > 1:
        ways += [replace(best, forest=i) for i in range(FORESTS)]
    ordered = sum(learning.rows.ordered)
    if ordered < FEWEST_ORDERED:
        return ways
    classes = 0 if learning.classes is None else int(learning.classes.max()) + 1
    starts = [(number, False) for number in CLUSTERS if number == 1 or number > 2 * classes]
    if classes > 1:
        starts.append((classes, True))
    return ways + [
        replace(APART, number=number, by_class=by_class, factors=factors)
        for number, by_class in starts
        for factors in FACTORS
        if factors < ordered and number * points_of(factors) <= MOST_POINTS
    ]


def stacked_weights(logs: Array) -> Array:
    """Weights of models that maximise the likelihood of held-back rows, from log-likelihoods
    (models, rows); shrunk towards the best model, since few rows hardly distinguish models."""
    start = np.full(len(logs), 1.0)
    start[logs.mean(axis=1).argmax()] += STACKED
    weights = start / start.sum()
    for _ in range(STACKING):
        share = logs + np.log(weights)[:, None]
        share = np.exp(share - logsumexp(share, axis=0))
        weights = (share.sum(axis=1) + 0.1 * start) / (logs.shape[1] + 0.1 * start.sum())
    return np.asarray(weights)


def _chosen(learning: _Learning, judges: StateRows) -> _Way:
    """The number of components, the shrinkage, and whether components start from classes."""
    best, classes = _Way(0), learning.classes
    score = float(Messages(judges, learning.forests[0], learning.pooled(0)).log.mean())
    tried = [] if classes is None or classes.max() < 1 else [(int(classes.max()) + 1, True)]
    for number, by_class in (*tried, *((n, False) for n in COMPONENTS)):
        before = score
        for pull in DRAWN:
            way = _Way(0, number, pull, by_class)
            likelihood = float(learning.logs(way, judges).mean())
            if likelihood > score + LEAST_GAIN:
                best, score = way, likelihood
        if score == before and not by_class:
            break
    return best

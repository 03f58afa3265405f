"""A few normal factors behind all columns, from tables of pairs: dependence that a forest cannot
express.

A forest joins a column to one neighbour, and dependence fades over two or more edges. Where many
columns have one common cause, every pair of them is dependent. This is a mixture of factor
analysers over states: in every component (a class, or all rows) ordered columns, and those of two
states, are normal variables x = Λz + noise that are cut, with one, two or four factors z:

    shares         of states in the component, shrunk towards those of all rows
    correlations   of normal scores by these shares, over the rows that have both columns, corrected
                   for discretisation. Those of a component are shrunk towards the average within
                   components, and this towards 0, where such rows are few
    Λ              by EM for factor analysis on these correlations
    z              on a grid: given a point of it all columns are independent, P(state | z) = Φ of
                   the state's ends. The variance of z around a point is added to the noise

In a state of an unordered column z is normal around its mean there, which the mean scores of the
ordered columns tell: E[x | state] = Λ E[z | state]. P(state | z) follows by Bayes' rule. Of how
ordered columns depend a component learns only one number per column and factor, so few rows are
enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.forests import (
    Edges,
    MixedForests,
    Tables,
    class_gain,
    class_shares,
    component_weights,
)
from fedcircuits.learning.pairs.states import (
    Index,
    attenuated,
    correlation_of,
    grouped,
    normal_scores,
)
from fedcircuits.learning.pairs.tables import TablesOfPairs

FEWEST_RANKED = 3  # columns: fewer have no common cause to speak of
POINTS = {1: 21, 2: 9, 4: 5}  # of the grid per factor, by number of factors
REACH = {1: 2.8, 2: 2.6, 4: 2.2}  # deviations
LEAST_POINT = 2e-4  # of the prior
LOADING_ROUNDS = 50
LEAST_NOISE = 0.02  # of a column's variance
FEW_BOTH = 5.0  # rows: correlations of fewer are mostly chance
CORRELATION_PULL = 20.0  # pseudo-rows that shrink correlations of a component
LEAST_LEFT = 0.3  # variance of normal scores after discretisation, at least
LEAST_PULL = 10.0  # pseudo-rows that draw the means of columns in a state towards 0
RIDGE = 0.05  # precision by which these means are drawn towards 0
LEAST_WITHIN = 0.1  # variance of z within states
BALANCED = 3  # rounds in which states get their shares
MOST_SQUARE = 9.0  # of a normal score, on average, in rows held back


@dataclass(frozen=True)
class Scores:
    """Normal scores of the groups of states of a column, standardised, and what variance
    discretisation leaves."""

    values: Array
    left: float

    @classmethod
    def of(cls, shares: Array, groups: Index) -> Scores:
        whole = np.maximum(grouped(shares, groups), 1e-12)
        values = normal_scores(whole / whole.sum())
        left = float(values**2 @ whole)
        return cls(values / np.sqrt(max(left, 1e-9)), float(np.sqrt(np.clip(left, LEAST_LEFT, 1))))


class Correlations:
    """What tables say of ranked columns in every component; all numbers of factors share it."""

    def __init__(self, tables: TablesOfPairs, by_class: bool) -> None:
        self.tables, self.by_class = tables, by_class
        every = range(len(tables.columns))
        self.shares = [class_shares(tables, c, by_class) for c in every]
        own = [c for c in every if not (by_class and c == tables.known)]
        self.ranked = [c for c in own if tables.columns[c].ranked]
        self.others = [c for c in own if not tables.columns[c].ranked]
        self.weights = component_weights(tables, by_class)
        self._scores: dict[tuple[int, int, int], Scores] = {}
        if self.enough:
            self.matrices = self._matrices()
            self.means = {c: self._means(c) for c in self.others}

    @property
    def enough(self) -> bool:
        return len(self.ranked) >= FEWEST_RANKED

    def scores(self, component: int, column: int, groups: Index) -> Scores:
        """By how many groups there are: neighbours join in one way only."""
        key = component, column, int(groups.max())
        if key not in self._scores:
            self._scores[key] = Scores.of(self.shares[column][component], groups)
        return self._scores[key]

    def _matrices(self) -> Array:
        """Correlations (components, ranked, ranked), shrunk where rows are few."""
        size = len(self.ranked)
        found = np.zeros((len(self.weights), size, size))
        rows = np.zeros_like(found)
        for x, i in enumerate(self.ranked):
            for y, j in enumerate(self.ranked[:x]):
                counted = self.tables.pair(i, j, self.by_class)
                for q, table in enumerate(counted.rows):
                    a = self.scores(q, i, counted.groups[0])
                    b = self.scores(q, j, counted.groups[1])
                    found[q, x, y] = found[q, y, x] = _correlation(table, a, b)
                    rows[q, x, y] = rows[q, y, x] = table.sum()
        within = (found * rows).sum(axis=0) / (rows.sum(axis=0) + FEW_BOTH)
        drawn = (found * rows + CORRELATION_PULL * within) / (rows + CORRELATION_PULL)
        drawn[:, np.arange(size), np.arange(size)] = 1.0
        return np.asarray(drawn)

    def _means(self, column: int) -> list[Array]:
        """E[x | state] (states, ranked) in every component, and no more than rows say."""
        states = len(self.tables.columns[column].rows)
        sums = np.zeros((len(self.weights), len(self.ranked), states))
        rows, left = np.zeros_like(sums), np.ones(sums.shape[:2])
        for x, j in enumerate(self.ranked):
            counted = self.tables.pair(column, j, self.by_class)
            for q, table in enumerate(counted.rows):
                scores = self.scores(q, j, counted.groups[1])
                sums[q, x], rows[q, x] = table @ scores.values, table.sum(axis=1)
                left[q, x] = scores.left
        drawn = sums / (rows + _pull(sums, rows)) / left[..., None]
        return list(drawn.swapaxes(1, 2))


def _pull(sums: Array, rows: Array) -> float:
    """The rows by which means in states are drawn towards 0: the fewer, the more means differ
    beyond chance (DerSimonian and Laird 1986). ``sums``: of standardised scores in states that have
    so many rows, both (…, states)."""
    total = np.maximum(rows.sum(axis=-1), 1.0)
    beyond = (sums**2 / np.maximum(rows, 1.0)).sum() - np.maximum(
        (rows > 0).sum(axis=-1) - 1, 0
    ).sum()
    spread = float(beyond) / max(float((total - (rows**2).sum(axis=-1) / total).sum()), 1e-9)
    return max(LEAST_PULL, 1 / max(spread, 1e-9))


def _correlation(table: Array, a: Scores, b: Scores) -> float:
    total = float(table.sum())
    if total < 2:
        return 0.0
    p = table / total
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    x, y = a.values - a.values @ rows, b.values - b.values @ columns
    spread = max(float(np.sqrt((x**2 @ rows) * (y**2 @ columns))), 1e-3)
    return float(correlation_of(np.asarray(x @ p @ y / spread), a.left * b.left))


class FactorModel:
    """Factors behind all columns, in every component."""

    within = 0.0  # nats per row that it gains within groups of states

    def __init__(self, known: Correlations, factors: int) -> None:
        self.known, self.grid = known, _grid(factors)
        self.loadings = _loadings(known.matrices, factors)  # (components, ranked, factors)
        self.means = {c: [self._placed(q, m) for q, m in enumerate(every)]
                      for c, every in known.means.items()}  # fmt: skip

    def _placed(self, component: int, means: Array) -> Array:
        """E[z | state] (states, factors)."""
        loadings = self.loadings[component]
        precise = loadings / _noise(loadings)[:, None]
        inner = loadings.T @ precise + RIDGE * np.eye(loadings.shape[1])
        return np.asarray(means @ precise @ np.linalg.inv(inner))

    def mixed(self) -> MixedForests:
        prior, known, every = self.grid[1], self.known, range(len(self.known.tables.columns))
        at = {c: x for x, c in enumerate(known.ranked)}
        weights: list[Array] = []
        forests: list[tuple[Edges, Tables]] = []
        for q, weight in enumerate(known.weights):
            lines = []
            for c in every:
                share = known.shares[c][q]
                if c in at:
                    lines.append(self._cut(q, at[c]))
                elif c in self.means:
                    lines.append(self._states(c, q))
                else:
                    lines.append(np.repeat(share[None], len(prior), axis=0))
            weights.append(weight * prior)
            edges = [(c, -1) for c in every]
            forests += [(edges, [line[z][None] for line in lines]) for z in range(len(prior))]
        return MixedForests(np.concatenate(weights), forests)

    def _cut(self, component: int, at: int) -> Array:
        """P(state | z) (points, states) of a ranked column."""
        points, _, around = self.grid
        own = self.loadings[component, at]
        noise = 1 - float(own @ own) * (1 - around)
        return _cut(self.known.shares[self.known.ranked[at]][component], points @ own, noise)

    def _states(self, column: int, component: int) -> Array:
        """P(state | z) (points, states) of an unordered column."""
        points, prior, _ = self.grid
        share = np.maximum(self.known.shares[column][component], 1e-9)
        means = self.means[column][component]
        means = means - share @ means
        values, vectors = np.linalg.eigh(np.eye(points.shape[1]) - (means.T * share) @ means)
        within = (vectors * np.maximum(values, LEAST_WITHIN)) @ vectors.T
        apart = points[:, None] - means
        logs = np.log(share) - 0.5 * np.einsum(
            "psk,kl,psl->ps", apart, np.linalg.inv(within), apart
        )
        for _ in range(BALANCED):
            table = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            logs += np.log(share) - np.log(np.maximum(prior @ table, 1e-12))
        table = np.maximum(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)), 1e-9)
        return np.asarray(table / table.sum(axis=1, keepdims=True))

    # ------------------------------------------------------------------ rows held back

    def gain(self, held: TablesOfPairs) -> float:
        """Nats per row that rows held back gain over independent columns: as if scores were normal,
        and what unordered columns and factors say about each other."""
        known = self.known
        every = range(len(known.shares))
        gained = class_gain(held, known.shares, every, known.by_class)
        for q, weight in enumerate(known.weights):
            moments, expected = self._moments(held, q)
            values, vectors = np.linalg.eigh(expected)
            expected = (vectors * np.maximum(values, LEAST_NOISE)) @ vectors.T
            fit = np.trace(moments) - np.trace(np.linalg.solve(expected, moments))
            normal = 0.5 * (fit - float(np.linalg.slogdet(expected)[1]))
            gained += float(weight) * (normal + self._of_unordered(held, q))
        return gained

    def _moments(self, held: TablesOfPairs, component: int) -> tuple[Array, Array]:
        """Mean products of scores in rows held back, and what is expected (ranked, ranked)."""
        known, q = self.known, component
        size = len(known.ranked)
        moments, expected = np.eye(size), np.eye(size)
        around = self.grid[2]  # what points of the grid do not tell apart
        correlation = (1 - around) * self.loadings[q] @ self.loadings[q].T
        for x, i in enumerate(known.ranked):
            for y, j in enumerate(known.ranked[:x]):
                counted = held.pair(i, j, known.by_class)
                a = known.scores(q, i, counted.groups[0])
                b = known.scores(q, j, counted.groups[1])
                table = counted.rows[q]
                expected[x, y] = expected[y, x] = attenuated(correlation[x, y], a.left * b.left)
                if table.sum() > 0:
                    mean = float(a.values @ table @ b.values) / float(table.sum())
                    moments[x, y] = moments[y, x] = mean
            counted = held.single(i, known.by_class)
            rows, scores = counted.rows[q], known.scores(q, i, counted.groups[0])
            if rows.sum() > 0:
                square = float(scores.values**2 @ rows) / float(rows.sum())
                moments[x, x] = min(square, MOST_SQUARE)
        return moments, expected

    def _of_unordered(self, held: TablesOfPairs, component: int) -> float:
        """Nats that unordered columns and factors say about each other, by how well the ranked
        columns tell the factors, as far as pairs held back show it."""
        loadings, (_, prior, _) = self.loadings[component], self.grid
        inner = loadings.T @ (loadings / _noise(loadings)[:, None])
        number = loadings.shape[1]
        reliable = float(np.trace(inner @ np.linalg.inv(inner + np.eye(number)))) / number
        nats = 0.0
        for column in self.means:
            table = self._states(column, component)
            expected = float(prior @ (table * np.log(table / (prior @ table))).sum(axis=1))
            nats += expected * self._confirmed(held, component, column, table)
        return float(reliable * nats)

    def _confirmed(self, held: TablesOfPairs, component: int, column: int, table: Array) -> float:
        """What the pairs of an unordered column and ranked ones gain in rows held back, as a share
        of what they would if the model were right; ``table``: P(state | z)."""
        prior, gained, expected = self.grid[1], 0.0, 0.0
        for at, ranked in enumerate(self.known.ranked):
            counted = held.pair(column, ranked, self.known.by_class)
            rows, (first, second) = counted.rows[component], counted.groups
            if rows.sum() > 0:
                own = grouped(self._cut(component, at), second)
                joint = (prior[:, None] * grouped(table, first)).T @ own
                logs = np.log(joint / (joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)))
                gained += float((rows * logs).sum() / rows.sum())
                expected += float((joint * logs).sum())
        return float(np.clip(gained / max(expected, 1e-12), -1.0, 1.0))


def points_of(factors: int) -> int:
    """The number of points of a component with this many factors."""
    return len(_grid(factors)[1])


def _grid(factors: int) -> tuple[Array, Array, float]:
    """Points (points, factors), their weights, and the variance of a factor around a point."""
    line = np.linspace(-REACH[factors], REACH[factors], POINTS[factors])
    points = np.stack(np.meshgrid(*[line] * factors, indexing="ij"), axis=-1).reshape(-1, factors)
    prior = np.exp(-0.5 * np.square(points).sum(axis=1))
    kept = prior > LEAST_POINT * prior.sum()
    points, prior = points[kept], prior[kept] / prior[kept].sum()
    around = float(line[1] - line[0]) ** 2 / 12
    deviation = np.sqrt(prior @ np.square(points[:, 0]))
    return points / deviation * np.sqrt(1 - around), prior, around


def _noise(loadings: Array) -> Array:
    return np.asarray(np.maximum(1 - np.square(loadings).sum(axis=-1), LEAST_NOISE))


def _loadings(correlation: Array, number: int) -> Array:
    """Λ (components, columns, factors) by EM, from the principal axes of correlations
    (components, columns, columns)."""
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 1e-6)[:, None]
    # pairs of different rows need not fit together
    correlation = (vectors * values) @ vectors.swapaxes(1, 2)
    scale = np.sqrt(np.diagonal(correlation, axis1=1, axis2=2))
    correlation = correlation / (scale[:, :, None] * scale[:, None])
    loadings = vectors[..., -number:] * np.sqrt(np.maximum(values[..., -number:] - 1, 0.1))
    for _ in range(LOADING_ROUNDS):
        precise = loadings / _noise(loadings)[..., None]
        inner = np.linalg.inv(np.eye(number) + loadings.swapaxes(1, 2) @ precise)
        project = inner @ precise.swapaxes(1, 2)  # (…, factors, columns): E[z | x] = project · x
        cross = correlation @ project.swapaxes(1, 2)
        loadings = cross @ np.linalg.inv(inner + project @ cross)
    most = np.sqrt((1 - LEAST_NOISE) / np.maximum(np.square(loadings).sum(axis=2), 1e-12))
    return np.asarray(loadings * np.minimum(most, 1.0)[..., None])


def _cut(share: Array, mean: Array, variance: float) -> Array:
    """P(state | z) (points, states) of a column with this mean at the points."""
    noise = np.sqrt(max(variance, LEAST_NOISE))
    ends = ndtri(np.append(0.0, np.cumsum(share)).clip(0, 1))
    ends[-1] = np.inf
    table = np.maximum(np.diff(ndtr((ends - mean[:, None]) / noise), axis=1), 1e-9)
    return np.asarray(table / table.sum(axis=1, keepdims=True))

"""Forests over states of columns, and mixtures of them, from rows with missing values.

States are cells of columns: categories, or cells of numbers in rising order. A forest joins them.
Every component of a mixture has its own tables P(state | parent's state), shrunk towards those of
all rows; these in turn are shrunk, by the amount that maximises the likelihood of the counts,
towards a model of few parameters:

    two ordered columns   a normal copula: their correlation determines the joint distribution, so
                          that fine cells of few rows have smooth tables
    others                the frequencies of the states

Missing values are treated by EM, with messages along the forest. Which forests and mixtures are
learned is chosen in stacking.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri
from sklearn.cluster import KMeans

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.states import (
    RESIDUE,
    Index,
    StateRows,
    correlation_of,
    normal_scores,
    smoothed_shares,
)

PULLS = (10.0, 100.0, 1000.0)  # rows by which tables are drawn towards a normal copula
MIXED_PULLS = (0.5, 5.0, 50.0)  # and others towards the shares of states
POINTS = 8  # of a cell at which a copula is evaluated
ROUNDS = 6
GAP_ROUNDS = 5  # of EM over gaps for the tables of all rows
LEAST = 1e-300
Edges = Sequence[tuple[int, int]]  # (column, parent), parents first, −1 for a root
Tables = list[Array]  # by edge P(state | parent's state), (parent's states or 1, states)


# ---------------------------------------------------------------------- tables


def table_of(counts: Array, above: Array, below: Array, ordered: bool) -> Array:
    """P(state | parent's state) from (expected) counts of pairs and the shares of both columns'
    states; ``ordered``: whether both are."""
    few = copula(counts, above, below) if ordered else np.broadcast_to(below, counts.shape)
    pull = max(PULLS if ordered else MIXED_PULLS, key=lambda rows: _evidence(counts, rows * few))
    drawn = counts + RESIDUE * below + pull * few
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def _evidence(counts: Array, prior: Array) -> float:
    """Log-likelihood of counts, line by line, whose shares are drawn from a Dirichlet prior."""
    prior = np.maximum(prior, 1e-6)
    lines = gammaln(prior.sum(axis=1)) - gammaln((prior + counts).sum(axis=1))
    return float(lines.sum() + (gammaln(prior + counts) - gammaln(prior)).sum())


def copula(counts: Array, above: Array, child: Array) -> Array:
    """P(state | parent's state) of two normal variables with the correlation of these counts."""
    a, b, total = normal_scores(above), normal_scores(child), max(float(counts.sum()), 1e-9)
    p = counts / total
    cross = a @ p @ b - (a @ p.sum(axis=1)) * (b @ p.sum(axis=0))
    left = max(float(np.sqrt((a**2 @ above) * (b**2 @ child))), 1e-9)
    few = total / (total + 3)  # of few rows a correlation may be chance
    r = float(correlation_of(few * cross / left, min(left, 1.0)))
    starts = np.cumsum(above) - above
    steps = (np.arange(POINTS) + 0.5) / POINTS
    z = ndtri(np.clip(starts[:, None] + above[:, None] * steps, 1e-9, 1 - 1e-9))
    ends = ndtri(np.append(0.0, np.cumsum(child)).clip(0, 1))
    ends[-1] = np.inf
    below = ndtr((ends - r * z[:, :, None]) / np.sqrt(1 - r * r))
    table = np.maximum(np.diff(below, axis=2).mean(axis=1), 0.0)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def pooled_tables(rows: StateRows, edges: Edges) -> Tables:
    """The tables of all rows."""
    shares, both = rows.shares, [p >= 0 and rows.ordered[p] and rows.ordered[c] for c, p in edges]
    tables = [
        shares[c][None] if p < 0 else table_of(rows.pair(p, c), shares[p], shares[c], ordered)
        for (c, p), ordered in zip(edges, both, strict=True)
    ]
    for _ in range(0 if rows.complete else GAP_ROUNDS):
        counts = Messages(rows, edges, tables).counts(np.ones(len(rows)))
        tables = _maximised(rows, edges, counts, 0.0)
    return tables


def _maximised(rows: StateRows, edges: Edges, counts: Tables, drawn: float) -> Tables:
    """Tables from expected counts; ``drawn``: rows by which shares of states are drawn towards
    those of all rows, where the counts are of a component."""
    shares = {
        c: smoothed_shares(counted.sum(axis=0), rows.shares[c], rows.ordered[c], drawn)
        for (c, _), counted in zip(edges, counts, strict=True)
    }
    return [
        shares[c][None]
        if p < 0
        else table_of(counted, shares[p], shares[c], rows.ordered[p] and rows.ordered[c])
        for (c, p), counted in zip(edges, counts, strict=True)
    ]


class Messages:
    """One pass of messages from the leaves of a forest to its roots."""

    def __init__(self, rows: StateRows, edges: Edges, tables: Tables) -> None:
        self.rows, self.edges, self.tables = rows, edges, tables
        self.state: dict[int, Array] = {}  # what rows say below and at a column, (rows, states)
        self.message: dict[int, Array] = {}
        self.log = np.zeros(len(rows))  # likelihood
        below: dict[int, Array] = {}
        for (column, parent), table in zip(reversed(edges), reversed(tables), strict=True):
            evidence = rows.evidence(column)
            state = evidence * below.pop(column) if column in below else evidence
            message = np.maximum(state @ table.T, LEAST)  # (rows, parent's states)
            largest = message.max(axis=1, keepdims=True)
            self.log += np.log(largest[:, 0])
            self.state[column] = state / largest
            self.message[column] = message / largest
            if parent >= 0:
                sent = self.message[column]
                below[parent] = below[parent] * sent if parent in below else sent

    def counts(self, weight: Array) -> Tables:
        """Expected rows of every pair of states, by edge."""
        counts, posterior = [], {-1: weight[:, None]}
        for (column, parent), table in zip(self.edges, self.tables, strict=True):
            given = posterior[parent] / self.message[column]
            counts.append(table * (given.T @ self.state[column]))
            posterior[column] = self.state[column] * (given @ table)
        return counts


# ---------------------------------------------------------------------- mixtures


def forest_mixture(
    rows: StateRows, edges: Edges, share: Array, pull: float, pooled: Tables
) -> tuple[Array, list[Tables]]:
    """EM from initial responsibilities ``share`` (components, rows); weights and tables of each
    component. ``pooled``: the tables of all rows."""
    number = len(share)
    if number == 1:
        return np.ones(1), [pooled]
    components = [pooled] * number
    for _ in range(ROUNDS):
        weights = (share.sum(axis=1) + 1) / (len(rows) + number)
        counts = [
            _counts(rows, edges, tables, part)
            for tables, part in zip(components, share, strict=True)
        ]
        components = [_maximised(rows, edges, counted, pull) for counted in counts]
        share = joint_logs(rows, edges, weights, components)[0]
    return weights, components


def _counts(rows: StateRows, edges: Edges, tables: Tables, weight: Array) -> Tables:
    if not rows.complete:
        return Messages(rows, edges, tables).counts(weight)
    counts = []
    for (c, p), table in zip(edges, tables, strict=True):
        codes = rows.states[:, c] + (rows.states[:, p] * table.shape[1] if p >= 0 else 0)
        rows_of = np.bincount(codes, weight, table.size).astype(np.float64)
        counts.append(rows_of.reshape(table.shape))
    return counts


def joint_logs(
    rows: StateRows, edges: Edges, weights: Array, components: list[Tables]
) -> tuple[Array, Array]:
    """Posteriors of components (components, rows), and the likelihoods of rows."""
    logs = np.log(weights)[:, None] + np.stack([_logs(rows, edges, t) for t in components])
    total = np.asarray(logsumexp(logs, axis=0))
    return np.exp(logs - total), total


def _logs(rows: StateRows, edges: Edges, tables: Tables) -> Array:
    if not rows.complete:
        return Messages(rows, edges, tables).log
    total = np.zeros(len(rows))
    for (c, p), table in zip(edges, tables, strict=True):
        total += np.log(table)[rows.states[:, p] if p >= 0 else 0, rows.states[:, c]]
    return total


def started(rows: StateRows, number: int, rng: np.random.Generator, classes: Index | None) -> Array:
    """Shares of components (components, rows): by classes, or clusters of rows."""
    if number == 1:
        return np.ones((1, len(rows)))
    share = np.full((number, len(rows)), 1.0 / number)
    if classes is None:
        seed, x = int(rng.integers(2**31)), _features(rows)
        most = min(number, len(np.unique(x, axis=0)))
        label = KMeans(most, n_init=1, random_state=seed).fit_predict(x)
        classes = np.asarray(label, np.int64)
    known = np.flatnonzero(classes >= 0)
    share[:, known] *= 0.1
    share[classes[known], known] += 0.9
    return share


def _features(rows: StateRows) -> Array:
    features = []
    for c, ordered in enumerate(rows.ordered):
        if ordered:
            features.append(np.append(rows.scores(c), 0.0)[rows.states[:, c]][:, None])
        else:
            hot = rows.evidence(c) - rows.shares[c]
            features.append(np.where(rows.states[:, [c]] >= 0, hot, 0.0))
    return np.hstack(features)

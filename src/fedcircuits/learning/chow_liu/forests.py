"""Mixtures of Chow–Liu forests over states of columns, from rows that may have gaps.

States are cells of columns: categories, or cells of numbers in rising order. A forest joins them.
Every component of a mixture has its own tables P(state | parent's state), shrunk towards those of
all rows; these in turn are shrunk, by the amount that maximises the likelihood of the counts,
towards a model of few parameters:

    two ordered columns   a normal copula: their correlation determines the joint distribution, so
                          that fine cells of few rows have smooth tables
    others                the frequencies of the states

The weight of an edge is its gain on the rows that have both columns, minus the cost of its
parameters (BIC). Columns that too few rows join are in different trees: independent. Missing values
are treated by EM, with messages along the forest. The number of components and the shrinkage are
chosen on held-back rows. A forest leaves out most pairs of columns, so further forests are learned
that avoid the edges of those before, and factors behind all columns (factors.py). Held-back rows
then determine the weights of all of these (stacking), with independence among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri
from sklearn.cluster import KMeans

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.factors import FEWEST_ORDERED, factor_components
from fedcircuits.learning.chow_liu.states import (
    MOST_CORRELATED,
    RESIDUE,
    Index,
    StateRows,
    gains,
    normal_scores,
)
from fedcircuits.learning.chow_liu.trees import spanning_tree

COMPONENTS = (2, 4, 8, 16)  # tried one after the other
DRAWN = (1.0, 5.0)  # rows by which shares of components are drawn towards those of all rows
PULLS = (10.0, 100.0, 1000.0)  # rows by which tables are drawn towards a normal copula
MIXED_PULLS = (0.5, 5.0, 50.0)  # and others towards the shares of states
POINTS = 8  # of a cell at which a copula is evaluated
FACTORS = 1, 2  # that are tried
ROUNDS = 6
GAP_ROUNDS = 5  # of EM over gaps for the tables of all rows
HELD = 0.2  # of the rows, to choose by
FEW = 100  # rows, of which none are held back
MOST_ROWS = 20_000  # that a choice looks at
LEAST_GAIN = 0.05  # nats per row: more components gain at least as much
FORESTS = 4  # that differ
AVOIDED = 0.5  # of an edge's worth, for every forest before that has it
LEAST_WEIGHT = 0.03  # of a way to learn that is kept
STACKED, STACKING = 5.0, 50  # how much the best one is preferred; rounds
LEAST = 1e-300
Edges = Sequence[tuple[int, int]]  # (column, parent), parents first, −1 for a root
Tables = list[Array]  # by edge P(state | parent's state), (parent's states or 1, states)


@dataclass(frozen=True, slots=True)
class LearnedForest:
    """What was learned: components, each with its forest, and their weights."""

    weights: Array  # (components,)
    components: list[tuple[Edges, Tables]]
    judged: tuple[Array, Array, Array]  # of rows held back, if there are: nats over independence,
    # the share of columns that they have, and for how many rows each of them stands
    refused: bool = False  # whether edges were found, and rows held back were likelier without

    @property
    def gain(self) -> float:
        """Over independence, in nats a row without gaps."""
        gained, seen, rows = self.judged
        return float(rows @ gained / max(float(rows @ seen), 1.0))


@dataclass(frozen=True, slots=True)
class _Mixing:
    """One way to learn a mixture: over which of several forests, with how many components."""

    forest: int
    number: int = 1
    pull: float = DRAWN[0]
    by_class: bool = False
    factors: int = 0  # behind all columns, instead of a forest

    def edges(self, forests: Sequence[Edges]) -> Edges:
        return forests[self.forest]

    def learned(
        self,
        rows: StateRows,
        edges: Edges,
        rng: np.random.Generator,
        classes: Index | None,
        pooled: Tables,
    ) -> tuple[Array, list[Tables]]:
        found = factor_components(rows, self.factors) if self.factors else None
        if found is not None:
            return found
        return _mixture(rows, edges, self.number, self.pull, self.by_class, rng, classes, pooled)


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
    inner = float(a**2 @ above) * float(b**2 @ child)
    few = total / (total + 3)  # of few rows a correlation may be chance
    r = float(np.clip(few * cross / max(inner, 1e-9), -MOST_CORRELATED, MOST_CORRELATED))
    starts = np.cumsum(above) - above
    steps = (np.arange(POINTS) + 0.5) / POINTS
    z = ndtri(np.clip(starts[:, None] + above[:, None] * steps, 1e-9, 1 - 1e-9))
    ends = ndtri(np.append(0.0, np.cumsum(child)).clip(0, 1))
    ends[-1] = np.inf
    below = ndtr((ends - r * z[:, :, None]) / np.sqrt(1 - r * r))
    table = np.maximum(np.diff(below, axis=2).mean(axis=1), 0.0)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _tables(rows: StateRows, edges: Edges) -> Tables:
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
        c: _smoothed(counted.sum(axis=0), rows.shares[c], rows.ordered[c], drawn)
        for (c, _), counted in zip(edges, counts, strict=True)
    }
    return [
        shares[c][None]
        if p < 0
        else table_of(counted, shares[p], shares[c], rows.ordered[p] and rows.ordered[c])
        for (c, p), counted in zip(edges, counts, strict=True)
    ]


def _smoothed(counts: Array, share: Array, ordered: bool, drawn: float) -> Array:
    """Shares of states; those of ordered ones lean on their neighbours if they are few."""
    if ordered and drawn:
        for _ in range(2):
            padded = np.pad(counts, 1, mode="edge")
            counts = 0.25 * padded[:-2] + 0.5 * counts + 0.25 * padded[2:]
    smoothed = counts + (drawn or RESIDUE) * share
    return np.asarray(smoothed / smoothed.sum())


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


def learn_forest(
    rows: StateRows, rng: np.random.Generator, classes: Index | None = None
) -> LearnedForest:
    """``classes``: of rows, −1 where unknown, by which components may begin. The order of rows does
    not count: one seed gives one model, whatever order tokens have."""
    order = np.lexsort(rows.states.T)
    rows, classes = rows.rows(order), None if classes is None else classes[order]
    known = rng.permutation(len(rows))[:MOST_ROWS]
    held = round(HELD * len(known)) if len(known) >= FEW else 0
    worth = gains(rows)
    ways, shares, refused = [_Mixing(0)], np.ones(1), False
    gain = sum(worth[c, p] for c, p in spanning_tree(worth, 0.0) if p >= 0)
    judged = np.full(1, gain), np.ones(1), np.full(1, float(len(rows)))
    if held:
        part, judges = rows.rows(known[held:]), rows.rows(known[:held])
        own = None if classes is None else classes[known[held:]]
        ways, shares, gained = _stacked(part, judges, rng, own)
        judged = gained, (judges.states >= 0).mean(axis=1), np.ones(held)
        refused = not gained.any() and bool((gains(part) > 0).any())
    forests = differing_forests(worth, FORESTS if rows.complete else 2)
    found: list[tuple[Edges, Tables]] = []
    weights: list[float] = []
    pooled = {way.forest: _tables(rows, way.edges(forests)) for way in ways}
    for way, share in zip(ways, shares, strict=True):
        edges = way.edges(forests)
        own_weights, tables = way.learned(rows, edges, rng, classes, pooled[way.forest])
        weights += (share * own_weights).tolist()
        found += [(edges, own) for own in tables]
    return LearnedForest(np.array(weights), found, judged, refused)


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
    part: StateRows, judges: StateRows, rng: np.random.Generator, classes: Index | None
) -> tuple[list[_Mixing], Array, Array]:
    """Ways to learn, their weights, and what rows held back gain over independence."""
    forests = differing_forests(gains(part), FORESTS if part.complete else 2)
    pooled = [_tables(part, edges) for edges in forests]
    best = _chosen(part, judges, forests[0], rng, classes, pooled[0])
    ways = [_Mixing(i) for i in range(len(forests))]
    if best.number > 1:
        ways += [replace(best, forest=i) for i in range(len(forests) - 1)]
    scores, apart = [], len(forests) - 1
    ways += [_Mixing(apart, factors=n) for n in FACTORS if sum(part.ordered) >= FEWEST_ORDERED]
    for way in ways:
        edges = way.edges(forests)
        learned = way.learned(part, edges, rng, classes, pooled[way.forest])
        scores.append(_joint(judges, edges, *learned)[1])
    logs = np.stack(scores)
    if not logs.mean(axis=1).max() > logs[apart].mean():
        return [ways[apart]], np.ones(1), np.zeros(len(judges))
    weights = stacked_weights(logs)
    kept = np.flatnonzero(weights > LEAST_WEIGHT)
    shares = weights[kept] / weights[kept].sum()
    score = logsumexp(logs[kept] + np.log(shares)[:, None], axis=0)
    return [ways[i] for i in kept], shares, np.asarray(score - logs[apart])


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


def _chosen(
    part: StateRows,
    judges: StateRows,
    edges: Edges,
    rng: np.random.Generator,
    classes: Index | None,
    pooled: Tables,
) -> _Mixing:
    """How many components, how far they are drawn and whether they begin with classes."""
    best = _Mixing(0)
    score = float(Messages(judges, edges, pooled).log.mean())
    tried = [] if classes is None or classes.max() < 1 else [(int(classes.max()) + 1, True)]
    for number, by_class in (*tried, *((n, False) for n in COMPONENTS)):
        before = score
        for pull in DRAWN:
            learned = _mixture(part, edges, number, pull, by_class, rng, classes, pooled)
            likelihood = float(_joint(judges, edges, *learned)[1].mean())
            if likelihood > score + LEAST_GAIN:
                best, score = _Mixing(0, number, pull, by_class), likelihood
        if score == before and not by_class:
            break
    return best


def _mixture(
    rows: StateRows,
    edges: Edges,
    number: int,
    pull: float,
    by_class: bool,
    rng: np.random.Generator,
    classes: Index | None,
    pooled: Tables,
) -> tuple[Array, list[Tables]]:
    """EM for this many components; weights and tables of each."""
    if number == 1:
        return np.ones(1), [pooled]
    share = _start(rows, number, rng, classes if by_class else None)
    components = [pooled] * number
    for _ in range(ROUNDS):
        weights = (share.sum(axis=1) + 1) / (len(rows) + number)
        counts = [
            _counts(rows, edges, tables, part)
            for tables, part in zip(components, share, strict=True)
        ]
        components = [_maximised(rows, edges, counted, pull) for counted in counts]
        share = _joint(rows, edges, weights, components)[0]
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


def _joint(
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


def _start(rows: StateRows, number: int, rng: np.random.Generator, classes: Index | None) -> Array:
    """Shares of components (components, rows): by classes, or clusters of rows."""
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

"""States of columns: normal scores, correlations and smoothed shares.

States are cells of columns: categories, or cells of numbers in rising order. Ordered states are
those of a normal variable that is cut at the quantiles of their shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, ndtr, ndtri, xlogy

from fedcircuits.circuits.graph.family import Array

Index = npt.NDArray[np.int64]
RESIDUE = 0.1  # rows by which tables are drawn towards the shares of the states
MOST_CORRELATED = 0.9995
PULLS = (20.0, 80.0, 320.0, 1280.0, 5120.0)  # rows by which shares in a class are drawn
PRIOR = 0.5  # rows as in all rows, for a class's mean and variance
ROUNDS = 12  # of EM for these
TRACE = 0.005
LEAST = 1e-12
INVERTED = 12  # rounds of Newton's method
MANY = 24  # states of a column of numbers


def normal_scores(shares: Array) -> Array:
    """The mean of a standard normal variable between each state's quantiles, (states,)."""
    ends = ndtri(np.clip(np.append(0.0, np.cumsum(shares)), 1e-12, 1 - 1e-12))
    density = np.exp(-0.5 * ends**2) / np.sqrt(2 * np.pi)
    return np.asarray((density[:-1] - density[1:]) / shares)


def attenuated(correlation: Array, left: Array | float) -> Array:
    """The correlation of the normal scores in states of two normal variables with this correlation;
    ``left``: the variance that scores have, the geometric mean of both. About left · r + (1 − left)
    · r⁷, which is exact for weak correlations and for 1."""
    return left * correlation + (1 - left) * correlation**7


def correlation_of(scores: Array, left: Array | float) -> Array:
    """The correlation of two normal variables whose normal scores in states have this one."""
    r = np.clip(np.asarray(scores, np.float64), -1.0, 1.0)
    wanted = r
    for _ in range(INVERTED):
        r = r - (attenuated(r, left) - wanted) / (left + 7 * (1 - left) * r**6)
    return np.clip(r, -MOST_CORRELATED, MOST_CORRELATED)


def class_shares_of(rows: Array, groups: Index, share: Array, ordered: bool) -> Array:
    """Shares of states in classes (classes, states) from their rows in groups of states (classes,
    groups), drawn towards few parameters by as many rows as make them likeliest. Ordered states are
    those of a normal variable that has a mean and a variance in the class and ``share`` in all
    rows; others are drawn towards ``share``."""
    few = _shifted(rows, groups, share) if ordered else np.repeat(share[None], len(rows), axis=0)
    whole, lines = grouped(few, groups), []
    for counts, prior in zip(rows, whole, strict=True):
        pull = max(PULLS, key=lambda pull: evidence(counts[None], pull * prior[None]))
        drawn = counts + pull * prior
        lines.append(drawn / drawn.sum() / np.maximum(prior, LEAST))
    drawn = np.stack(lines)[:, groups] * few
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def _shifted(rows: Array, groups: Index, share: Array) -> Array:
    """By EM, which puts the rows of a group into its states."""
    score, ends = normal_scores(share), ndtri(np.clip(np.cumsum(share)[:-1], 0, 1))
    within = _variance_within(share, score)
    own, number = np.repeat(share[None], len(rows), axis=0), rows.sum(axis=1) + PRIOR
    for _ in range(ROUNDS):
        part = own / np.maximum(grouped(own, groups), LEAST)[:, groups]
        held = rows[:, groups] * part
        mean = held @ score / number
        square = np.square(score - mean[:, None]) + within
        variance = ((held * square).sum(axis=1) + PRIOR) / number
        cut = ndtr((ends - mean[:, None]) / np.sqrt(variance)[:, None])
        own = np.diff(np.pad(cut, ((0, 0), (1, 1)), constant_values=(0.0, 1.0)), axis=1)
        own = (1 - TRACE) * own + TRACE * share
    return np.asarray(own)


def _variance_within(share: Array, score: Array) -> Array:
    """Of a standard normal variable within each state."""
    ends = ndtri(np.clip(np.append(0.0, np.cumsum(share)), 1e-12, 1 - 1e-12))
    slope = ends * np.exp(-0.5 * ends**2) / np.sqrt(2 * np.pi)
    return np.asarray(np.clip(1 + (slope[:-1] - slope[1:]) / share - score**2, 0.0, 1.0))


def grouped(values: Array, groups: Index) -> Array:
    """Sums of values of states (…, states) over groups, (…, groups)."""
    hot = np.asarray(groups[:, None] == np.arange(int(groups.max()) + 1), np.float64)
    return np.asarray(values @ hot)


def evidence(counts: Array, prior: Array) -> float:
    """Log-likelihood of counts, line by line, whose shares are drawn from a Dirichlet prior."""
    prior = np.maximum(prior, 1e-6)
    lines = gammaln(prior.sum(axis=1)) - gammaln((prior + counts).sum(axis=1))
    return float(lines.sum() + (gammaln(prior + counts) - gammaln(prior)).sum())


def information_left(table: Array) -> float:
    """Nats that an edge between two columns gains per row, less the cost of its parameters (BIC);
    negative where it is not worth it. ``table``: counts of their states."""
    total = table.sum()
    if total < 2:
        return -1.0
    g = xlogy(table, table).sum() + xlogy(total, total)
    for axis in (0, 1):
        sums = table.sum(axis=axis)
        g -= xlogy(sums, sums).sum()
    used = (table.sum(axis=1) > 0).sum() - 1, (table.sum(axis=0) > 0).sum() - 1
    return float((g - 0.5 * np.log(total) * used[0] * used[1]) / total)


def normal_information_left(table: Array) -> float:
    """The same of a normal copula, which has one parameter; ``table``: of ordered states."""
    total = float(table.sum())
    if total < 4:
        return -1.0
    p = table / total
    rows, columns = np.maximum(p.sum(axis=1), 1e-9), np.maximum(p.sum(axis=0), 1e-9)
    a, b = normal_scores(rows / rows.sum()), normal_scores(columns / columns.sum())
    spread = max(float(np.sqrt((a**2 @ rows) * (b**2 @ columns))), 1e-9)
    left = min(_left(rows) * _left(columns), 1.0)
    r = float(correlation_of(a @ p @ b / spread, left))
    return float(-0.5 * np.log1p(-(r**2)) - 0.5 * np.log(total) / total / max(left, 1e-3) ** 2)


def _left(shares: Array) -> float:
    """The deviation of the normal scores of states."""
    return float(np.sqrt(normal_scores(shares) ** 2 @ shares))

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
PULLS = (5.0, 20.0, 80.0, 320.0, 1280.0)  # rows by which shares in a class are drawn
PRIOR = 2.0  # rows as in all rows, for a class's mean and variance
TRACE = 0.01
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


def class_shares_of(counts: Array, share: Array, ordered: bool) -> Array:
    """Shares of states in a class from its rows, drawn towards few parameters by as many rows as
    make them likeliest. Ordered states are those of a normal variable that has a mean and a
    variance in the class and ``share`` in all rows; others are drawn towards ``share``."""
    few = _shifted(counts, share) if ordered else share
    pull = max(PULLS, key=lambda rows: evidence(counts[None], rows * few[None]))
    drawn = counts + pull * few
    return np.asarray(drawn / drawn.sum())


def _shifted(counts: Array, share: Array) -> Array:
    total, score = float(counts.sum()), normal_scores(share)
    number = total + PRIOR
    mean = float(counts @ score) / number
    within = 1 - min(float(score**2 @ share), 1.0)
    variance = (float(counts @ np.square(score - mean)) + PRIOR) / number + within
    ends = ndtri(np.clip(np.append(0.0, np.cumsum(share)), 0, 1))
    ends[-1] = np.inf
    own = np.diff(ndtr((ends - mean) / np.sqrt(variance)))
    return np.asarray((1 - TRACE) * own / own.sum() + TRACE * share)


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

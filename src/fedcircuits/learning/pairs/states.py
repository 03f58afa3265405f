"""States of columns: normal scores, correlations and smoothed shares.

States are cells of columns: categories, or cells of numbers in rising order. Ordered states are
those of a normal variable that is cut at the quantiles of their shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, xlogy

from fedcircuits.circuits.graph.family import Array

Index = npt.NDArray[np.int64]
RESIDUE = 0.1  # rows by which tables are drawn towards the shares of the states
MOST_CORRELATED = 0.995
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


def smoothed_shares(counts: Array, share: Array, ordered: bool, drawn: float) -> Array:
    """Shares of states; those of ordered ones lean on their neighbours, as near as these are where
    there are many states. ``drawn``: rows by which they are drawn towards ``share``."""
    if ordered and drawn:
        side = 0.25 * min(len(counts) / MANY, 1.0) ** 2
        for _ in range(2):
            padded = np.concatenate([counts[:1], counts, counts[-1:]])
            counts = side * (padded[:-2] + padded[2:]) + (1 - 2 * side) * counts
    smoothed = counts + (drawn or RESIDUE) * share
    return np.asarray(smoothed / smoothed.sum())


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
    spread = np.sqrt((a**2 @ rows) * (b**2 @ columns))
    r = float(np.clip(a @ p @ b / max(float(spread), 1e-9), -MOST_CORRELATED, MOST_CORRELATED))
    return float(-0.5 * np.log1p(-(r**2)) - 0.5 * np.log(total) / total)

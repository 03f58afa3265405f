"""States of columns with missing values: cells, which may be ordered, and the gain of joining a
pair of columns in a tree (forests.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, xlogy

from fedcircuits.circuits.graph.family import Array

Index = npt.NDArray[np.int64]
RESIDUE = 0.1  # rows by which tables are drawn towards the shares of the states
MOST_CORRELATED = 0.995
INVERTED = 12  # rounds of Newton's method
FEW_BOTH = 5.0  # rows: correlations of fewer are mostly chance
MANY = 24  # states of a column of numbers
COARSE = 6  # states of a column, at most, by which an edge is judged


@dataclass(frozen=True, eq=False)
class StateRows:
    """States of rows (rows, columns), −1 where unknown. A subset of rows keeps the shares of all
    rows: cells are cut at quantiles of all rows, so their shares are known beforehand."""

    states: Index
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    _hot: dict[int, Array] = field(default_factory=dict, repr=False)
    _whole: list[Array] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.states)

    def rows(self, which: Index) -> StateRows:
        return StateRows(self.states[which], self.sizes, self.ordered, _whole=self.shares)

    @cached_property
    def complete(self) -> bool:
        return bool((self.states >= 0).all())

    @cached_property
    def shares(self) -> list[Array]:
        """Frequencies of the states of every column, each (states,), none of them zero."""
        if self._whole is not None:
            return self._whole
        shares = []
        for column, size in zip(self.states.T, self.sizes, strict=True):
            rows = np.bincount(column[column >= 0], minlength=size) + RESIDUE / size
            shares.append(rows / rows.sum())
        return shares

    @cached_property
    def indicators(self) -> npt.NDArray[np.float32]:
        """1 for the states of a row, (rows, states of all columns)."""
        starts = np.cumsum([0, *self.sizes])
        found = np.zeros((len(self), starts[-1]), np.float32)
        row, column = np.nonzero(self.states >= 0)
        found[row, starts[column] + self.states[row, column]] = 1.0
        return found

    def evidence(self, column: int) -> Array:
        """The evidence of a row, (rows, states): 1 for its state, or for all if missing."""
        if column not in self._hot:
            states = self.states[:, column]
            hot = np.asarray(states[:, None] == np.arange(self.sizes[column]), np.float64)
            hot[states < 0] = 1.0
            self._hot[column] = hot
        return self._hot[column]

    def pair(self, parent: int, column: int) -> Array:
        """Rows that have both, by states (parent's states, states)."""
        a, b = self.states[:, parent], self.states[:, column]
        both, shape = (a >= 0) & (b >= 0), (self.sizes[parent], self.sizes[column])
        counts = np.bincount(a[both] * shape[1] + b[both], minlength=shape[0] * shape[1])
        return counts.reshape(shape).astype(np.float64)

    def scores(self, column: int) -> Array:
        """Normal scores of the states of an ordered column, (states,)."""
        return normal_scores(self.shares[column])


def normal_scores(shares: Array) -> Array:
    """The mean of a standard normal variable between each state's quantiles, (states,)."""
    ends = ndtri(np.clip(np.append(0.0, np.cumsum(shares)), 1e-12, 1 - 1e-12))
    density = np.exp(-0.5 * ends**2) / np.sqrt(2 * np.pi)
    return np.asarray((density[:-1] - density[1:]) / shares)


def correlation_of(scores: Array, left: Array | float) -> Array:
    """The correlation of two normal variables whose normal scores in states have this correlation;
    ``left``: the variance that scores have, the geometric mean of both. Scores of variables with
    correlation r have about left · r + (1 − left) · r⁷, which is exact for weak ones and for 1."""
    r = np.clip(np.asarray(scores, np.float64), -1.0, 1.0)
    wanted = r
    for _ in range(INVERTED):
        r = r - (left * r + (1 - left) * r**7 - wanted) / (left + 7 * (1 - left) * r**6)
    return np.clip(r, -MOST_CORRELATED, MOST_CORRELATED)


def smoothed_shares(counts: Array, share: Array, ordered: bool, drawn: float) -> Array:
    """Shares of states; those of ordered ones lean on their neighbours, as near as these are where
    there are many states."""
    if ordered and drawn:
        side = 0.25 * min(len(counts) / MANY, 1.0) ** 2
        for _ in range(2):
            padded = np.concatenate([counts[:1], counts, counts[-1:]])
            counts = side * (padded[:-2] + padded[2:]) + (1 - 2 * side) * counts
    smoothed = counts + (drawn or RESIDUE) * share
    return np.asarray(smoothed / smoothed.sum())


# ---------------------------------------------------------------------- edges


def gains(rows: StateRows) -> Array:
    """Nats of likelihood that an edge between two columns gains, less its cost, per row that has
    both; negative where it is not worth it, (columns, columns)."""
    codes = [_coarse(rows, c) for c in range(len(rows.sizes))]
    hot = np.hstack([np.asarray(code[:, None] == np.arange(code.max(initial=0) + 1), np.float32)
                     for code in codes])  # fmt: skip
    starts = np.cumsum([0, *(code.max(initial=0) + 1 for code in codes)])
    tables = (hot.T @ hot).astype(np.float64)
    gains = np.full((len(codes), len(codes)), -1.0)
    for i in range(len(codes)):
        for j in range(i):
            table = tables[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
            gains[i, j] = gains[j, i] = _worth(table)
    ordered = np.flatnonzero(rows.ordered)
    if len(ordered) > 1:
        correlated = _correlated(rows, ordered)
        at = np.ix_(ordered, ordered)
        gains[at] = np.maximum(gains[at], correlated)
    np.fill_diagonal(gains, -1.0)
    return gains


def _coarse(rows: StateRows, column: int) -> Index:
    """States merged to a few: neighbours of numbers, rare ones of others."""
    states, share = rows.states[:, column], rows.shares[column]
    if rows.sizes[column] <= COARSE:
        return states
    if rows.ordered[column]:
        group = np.minimum((np.cumsum(share) - share / 2) * COARSE, COARSE - 1).astype(np.int64)
    else:
        rank = np.argsort(np.argsort(-share, kind="stable"), kind="stable")
        group = rank if rows.sizes[column] <= 2 * COARSE else np.minimum(rank, 2 * COARSE - 1)
    return np.where(
        states >= 0, np.unique(group, return_inverse=True)[1].reshape(-1)[states], states
    )


def _worth(table: Array) -> float:
    total = table.sum()
    if total < 2:
        return -1.0
    g = xlogy(table, table).sum() + xlogy(total, total)
    for axis in (0, 1):
        sums = table.sum(axis=axis)
        g -= xlogy(sums, sums).sum()
    used = (table.sum(axis=1) > 0).sum() - 1, (table.sum(axis=0) > 0).sum() - 1
    return float((g - 0.5 * np.log(total) * used[0] * used[1]) / total)


def _correlated(rows: StateRows, columns: Index) -> Array:
    """The same of a normal copula, which has one parameter."""
    correlation, both = _correlation(rows, columns)
    some = np.maximum(both, 1.0)
    gain = -0.5 * np.log1p(-(correlation**2)) - 0.5 * np.log(some) / some
    return np.where(both > 3, gain, -1.0)


def _correlation(rows: StateRows, columns: Index) -> tuple[Array, Array]:
    """Correlations of normal scores, and the rows that have both columns."""
    x = np.stack([np.append(rows.scores(c), 0.0)[rows.states[:, c]] for c in columns], axis=1)
    seen = np.asarray(rows.states[:, columns] >= 0, np.float64)
    both = seen.T @ seen
    some = np.maximum(both, 1.0)
    mean = (x.T @ seen) / some  # of the first where both are there
    square = ((x**2).T @ seen) / some - mean**2
    cross = (x.T @ x) / some - mean * mean.T
    correlation = cross / np.sqrt(np.maximum(square * square.T, 1e-12))
    return np.clip(correlation, -MOST_CORRELATED, MOST_CORRELATED), both

"""Bins of a column of numbers, chosen once for the whole table: what its histograms share.

A bin holds about the same weight everywhere; a value that is heavy on its own gets a bin of its
own. Cuts lie half-way between values that occur (for counts: between whole numbers), so a bin is
never narrower than the data can tell; the outer bins reach a little beyond the values. With
codes for all rows, the histogram of a part is one count of codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.independence import Index
from fedcircuits.learning.least_counts import pooled

BINS = 32
HEAVY = 0.2  # share of a value that makes a column lumpy


@dataclass(frozen=True, slots=True)
class Grid:
    edges: Array  # (bins + 1,)
    codes: Index  # (rows,): the bin of every row; −1 where the value is missing
    share: Array  # (bins,): smoothed frequency over the whole table

    @classmethod
    def of(
        cls, column: Array, weight: Array, count: bool, bins: int = BINS, least: int = 1
    ) -> Grid:
        seen = ~np.isnan(column)
        edges = _edges(column[seen], weight[seen], count, bins, least)
        codes = _codes(edges, column)
        rows = np.bincount(codes[seen], weight[seen], len(edges) - 1).astype(np.float64)
        counts = pooled(rows, least)
        even = np.diff(edges) / (edges[-1] - edges[0])
        return cls(edges, codes, (counts + 0.5 * even) / (counts.sum() + 0.5))

    def of_part(self, column: Array) -> Grid:
        """The same bins for different rows of the column."""
        return Grid(self.edges, _codes(self.edges, column), self.share)

    @property
    def lumpy(self) -> bool:
        """Whether single values are so heavy that no smooth family describes the column."""
        return bool(len(self.share) > 2 and self.share.max() > HEAVY)

    def counted(self, rows: Index, weight: Array) -> Array:
        """Weight in every bin (bins,), for rows and their weights."""
        codes = self.codes[rows]
        seen = codes >= 0
        return np.bincount(codes[seen], weight[seen], len(self.share)).astype(np.float64)


def _codes(edges: Array, column: Array) -> Index:
    codes = np.full(len(column), -1)
    seen = ~np.isnan(column)
    codes[seen] = np.searchsorted(edges[1:-1], column[seen], side="right")
    return codes


def _edges(x: Array, weight: Array, count: bool, bins: int, least: int = 1) -> Array:
    values, place = np.unique(x, return_inverse=True)
    if not len(values):
        return np.array([-0.5, 0.5, 1.5]) if count else np.array([0.0, 0.5, 1.0])
    held = np.bincount(place, weight).astype(np.float64)
    if least > 1:
        return _coarse_edges(values, held, count, bins, least)
    bin_of = np.floor((np.cumsum(held) - held / 2) / max(held.sum(), 1e-300) * bins)
    cut = np.flatnonzero(np.diff(bin_of)) if len(values) > bins else np.arange(len(values) - 1)
    middle = values[cut] / 2 + values[cut + 1] / 2
    if count:
        low, high = values[0] - 0.5, values[-1] + 0.5
        tail = [-0.5] if low > 0 else []
        return np.array([*tail, low, *(np.floor(middle) + 0.5), high, 2 * high + 9.5])
    if not len(middle):  # one value, or one bin
        reach = max(float(values[-1] - values[0]) / 4, 1e-3 * max(abs(float(values[0])), 1.0))
        return np.array([values[0] - reach, values[0] / 2 + values[-1] / 2, values[-1] + reach])
    middle = _around_heavy(values, held, middle)
    below = (middle[0] - values[0]) / (1 if cut[0] == 0 else 4)
    above = (values[-1] - middle[-1]) / (1 if cut[-1] == len(values) - 2 else 4)
    return np.array([values[0] - below, *middle, values[-1] + above])


def _coarse_edges(values: Array, held: Array, count: bool, bins: int, least: int) -> Array:
    """Edges that do not go by single rows: cuts with about ``least`` rows or more between them, at
    the mean of as many values; ends on a grid of eight to sixteen steps. A heavy value is no
    single row's: it has a narrow bin of its own, at the ends of the column too, whose width is a
    power of two."""
    total = float(held.sum())
    few = max(1, min(bins, int(total // least)))
    bin_of = np.floor((np.cumsum(held) - held / 2) / max(total, 1e-300) * few)
    around = (least + 1) // 2
    cut = np.flatnonzero(np.diff(bin_of))
    windows = (values[max(c + 1 - around, 0) : c + 1 + around] for c in cut)
    middle = np.unique([window.mean() for window in windows])
    reach = float(values[-1] - values[0]) or max(abs(float(values[0])), 1.0) * 2e-3
    step = 2.0 ** np.floor(np.log2(reach)) / 8
    if count:
        step = max(step, 1.0)
        low = max(np.floor(values[0] / step) * step, 0.0) - 0.5
        high = np.ceil(values[-1] / step) * step + 0.5
        inner = np.unique(np.floor(middle) + 0.5)
        tail = [-0.5] if low > 0 else []
        inner = inner[(inner > low) & (inner < high)]
        return np.array([*tail, low, *inner, high, 2 * high + 9.5])
    low, high = (np.floor(values[0] / step) - 1) * step, (np.ceil(values[-1] / step) + 1) * step
    if not len(middle):
        return np.array([low, low / 2 + high / 2, high])
    heavy = values[held > HEAVY * total]
    if not len(heavy):
        return np.array([low, *middle[(middle > low) & (middle < high)], high])
    close = 2.0 ** np.floor(np.log2(_close(values, held)))
    low = values[0] - close if values[0] in heavy else low
    high = values[-1] + close if values[-1] in heavy else high
    middle = _around(heavy, close, middle)
    return np.array([low, *middle[(middle > low) & (middle < high)], high])


def _around_heavy(values: Array, held: Array, middle: Array) -> Array:
    """Cuts close around values that are heavy on their own."""
    heavy = values[held > HEAVY * held.sum()]
    if not len(heavy):
        return middle
    cuts = _around(heavy, _close(values, held), middle)
    return np.asarray(cuts[(cuts > values[0]) & (cuts < values[-1])])


def _around(heavy: Array, close: float, middle: Array) -> Array:
    """Cuts on both sides of heavy values, in place of others so close to them."""
    far = np.abs(middle[:, None] - heavy).min(axis=1) > close
    return np.unique(np.concatenate([middle[far], heavy - close, heavy + close]))


def _close(values: Array, held: Array) -> float:
    """How close to a heavy value a cut lies: half the least distance of two values, but no less
    than half a thousandth of the column's deviation."""
    mean = float(np.average(values, weights=held))
    deviation = float(np.sqrt(np.average(np.square(values - mean), weights=held)))
    return max(float(np.diff(values).min()), 1e-3 * deviation) / 2

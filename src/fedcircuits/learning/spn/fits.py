"""Fits of single columns of numbers: families by maximum likelihood, and bins.

Families are fitted to many columns at once, from weighted rows. x and w are (rows, columns); w is 0
where a value is missing. With weights (rows, folds, columns) and x (rows, 1, columns) they are
fitted for every fold. ``Scale`` knows the whole table's columns: a part's variance is drawn
towards the table's as by ``PRIOR`` rows, so a part of few or equal values never becomes a spike.

Bins of a column are chosen once for the whole table: its histograms share them. A bin holds about
the same weight everywhere; a value that is heavy on its own gets a bin of its own. Cuts lie
half-way between values that occur (for counts: between whole numbers), so a bin is never narrower
than the data can tell; the outer bins reach a little beyond the values. With codes for all rows,
the histogram of a part is one count of codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.learning.independence import Index
from fedcircuits.learning.least_counts import ROUNDING, pooled
from fedcircuits.learning.stopping import Mask

PRIOR = 0.5
CONSTANT = 1e-6  # variance of a column that is constant in the whole table
NARROWEST = 1e-4  # variance in a part, relative to the table
ROUNDS = 12  # of EM for the Student t


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and variance of columns over the whole table, each (columns,)."""

    mean: Array
    variance: Array
    narrowest: Array  # the least variance in a part

    @classmethod
    def of(cls, x: Array, w: Array) -> Scale:
        mean, variance, size = _moments(x, w)
        varies = variance > 1e-12 * np.square(mean)
        variance = np.where(varies, variance, np.where(size > 0, CONSTANT, 1.0))
        return cls(mean, variance, np.where(varies, NARROWEST, 1.0) * variance)

    def part(self, columns: slice | Array | list[int]) -> Scale:
        return Scale(self.mean[columns], self.variance[columns], self.narrowest[columns])


def fitted(rule: str, x: Array, w: Array, scale: Scale) -> dict[str, Array]:
    """Parameters (columns,) of a family for every column."""
    if rule not in ("gaussian", "student_t"):
        return _at_once(_family(rule), x, w, scale)
    mean, variance, size = _moments(x, w)
    mean = np.where(size > 0, mean, scale.mean)
    variance = (size * variance + PRIOR * scale.variance) / (size + PRIOR)
    variance = np.maximum(variance, scale.narrowest)
    if rule == "gaussian":
        return {"mean": mean, "variance": variance}
    start = {"location": mean, "scale": np.sqrt(variance / 2), "degrees": np.full_like(mean, 4)}
    return _student(_family(rule), x, w, start, np.sqrt(scale.narrowest))


def _at_once(kind: Family, x: Array, w: Array, scale: Scale) -> dict[str, Array]:
    """A column without rows is taken to be the table's mean."""
    seen = w.sum(axis=0) > 0
    ones = {n: np.ones_like(scale.mean) for n in kind.domains}
    fit = _step(kind, x, w, ones)
    if seen.all():
        return fit
    empty = _step(kind, scale.mean[None], np.ones((1, len(scale.mean))), ones)
    return {n: np.where(seen, a, empty[n]) for n, a in fit.items()}


def _student(kind: Family, x: Array, w: Array, start: Arrays, narrowest: Array) -> dict[str, Array]:
    parameters = dict(start)
    for _ in range(ROUNDS):
        parameters = _step(kind, x, w, parameters)
        parameters["scale"] = np.maximum(parameters["scale"], narrowest)
    return parameters


def _step(kind: Family, x: Array, w: Array, p: Arrays) -> dict[str, Array]:
    statistics = kind.statistics(torch.from_numpy(x), _tensors(p)).numpy()  # (S, rows, …)
    return kind.maximise(w.sum(axis=0), np.einsum("sr...,r...->s...", statistics, w), p)


def log_density(rule: str, x: Array, p: Arrays) -> Array:
    """(rows, columns)."""
    return np.asarray(_family(rule).log_density(torch.from_numpy(x), _tensors(p)).numpy())


def _tensors(p: Arrays) -> dict[str, torch.Tensor]:
    return {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in p.items()}


def _family(rule: str) -> Family:
    kind = family(rule)
    assert isinstance(kind, Family)
    return kind


def _moments(x: Array, w: Array) -> tuple[Array, Array, Array]:
    size = w.sum(axis=0)
    some = np.maximum(size, 1e-300)
    mean = (w * x).sum(axis=0) / some
    return mean, (w * np.square(x - mean)).sum(axis=0) / some, size


BINS = 32
HEAVY = 0.2  # share of a value that makes a column lumpy


@dataclass(frozen=True, slots=True)
class Grid:
    edges: Array  # (bins + 1,)
    codes: Index  # (rows,): the bin of every row; −1 where its value is missing or beyond the ends
    share: Array  # (bins,): smoothed frequency over the whole table
    total: float  # weight of the whole table

    @classmethod
    def of(
        cls, column: Array, weight: Array, count: bool, bins: int = BINS, least: int = 1
    ) -> Grid:
        seen = ~np.isnan(column)
        edges = _edges(column[seen], weight[seen], count, bins, least)
        codes = _codes(edges, column)
        inside = codes >= 0
        rows = np.bincount(codes[inside], weight[inside], len(edges) - 1).astype(np.float64)
        counts = pooled(rows, least)
        even = np.diff(edges) / (edges[-1] - edges[0])
        total = float(counts.sum()) + 0.5
        return cls(edges, codes, (counts + 0.5 * even) / total, total)

    def of_part(self, column: Array) -> Grid:
        """The same bins for different rows of the column."""
        return Grid(self.edges, _codes(self.edges, column), self.share, self.total)

    def share_without(self, counts: Array) -> Array:
        """The same frequencies, had rows with these counts (…, bins) not been in the table."""
        if not counts.any():
            return np.broadcast_to(self.share, counts.shape)
        left = np.maximum(self.total * self.share - counts, 0.0)
        left += 0.5 * np.diff(self.edges) / (self.edges[-1] - self.edges[0])
        return np.asarray(left / left.sum(axis=-1, keepdims=True))

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
    seen = (column >= edges[0]) & (column <= edges[-1])
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
    the mean of as many values. The outer bins are as wide as a power of two. A common value is no
    single row's: it has a bin of its own, at the ends of the column too."""
    if count:
        return _count_edges(values, held, bins, least)
    total = float(held.sum())
    few = max(1, min(bins, int(total // least)))
    bin_of = np.floor((np.cumsum(held) - held / 2) / max(total, 1e-300) * few)
    around = (least + 1) // 2
    cut = np.flatnonzero(np.diff(bin_of))
    windows = (values[max(c + 1 - around, 0) : c + 1 + around] for c in cut)
    middle = np.unique([window.mean() for window in windows])
    reach = float(values[-1] - values[0]) or max(abs(float(values[0])), 1.0) * 2e-3
    step = 2.0 ** np.floor(np.log2(reach)) / 8
    if not len(middle):
        low, high = (np.floor(values[0] / step) - 1) * step, (np.ceil(values[-1] / step) + 1) * step
        return np.array([low, low / 2 + high / 2, high])
    low = middle[0] - _power_above(middle[0] - values[0])
    high = middle[-1] + _power_above(values[-1] - middle[-1])
    for at in np.flatnonzero(held >= max(total / bins, least)):
        value, close = values[at], _distance(values, held, int(at), least, total / bins)
        low = value - close if at == 0 else low
        high = value + close if at == len(values) - 1 else high
        others = middle[np.abs(middle - value) > close]
        middle = np.unique([*others, value - close, value + close])
    return np.array([low, *middle[(middle > low) & (middle < high)], high])


def _power_above(distance: float) -> float:
    return float(2.0 ** np.ceil(np.log2(distance)))


def _distance(values: Array, held: Array, at: int, least: int, common: float) -> float:
    """From a common value to the ends of its bin, a power of two: less than other values lie apart
    there, by the mean of several on either side, and not beyond half-way to common ones."""
    sides = values[max(at - least, 0) : at], values[at + 1 : at + 1 + least]
    near = [abs(float(side.mean() - values[at])) / least for side in sides if len(side)]
    others = np.delete(values, at)[np.delete(held, at) >= max(common, least)]
    half = [float(np.abs(others - values[at]).min()) / 2] if len(others) else []
    close = [_close(values, held)] if held[at] > HEAVY * held.sum() else []
    least_step = 4 * float(np.spacing(abs(values[at])))
    return float(2.0 ** np.floor(np.log2(max(min(*near, *half, *close, np.inf), least_step))))


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


def _count_edges(values: Array, held: Array, bins: int, least: int) -> Array:
    """The same of counts. A value is common if ``least`` rows or more have it. A cut lies half-way
    between the means of the nearest rows on both sides, ``least`` rows or a common value each;
    beside a common value it is next to it."""
    common = held >= least - ROUNDING
    after = _cuts(values, held, common, bins, least)
    places = (_cut(values, held, common, c, least) for c in after)
    middle = np.unique([np.floor(place) + 0.5 for place in places if place is not None])
    if not len(middle):
        middle = np.array([np.floor(np.average(values, weights=held)) + 0.5])
    low = max(np.ceil(-_end(-values[::-1], held[::-1], -middle[0], least)) - 0.5, -0.5)
    high = np.floor(_end(values, held, middle[-1], least)) + 0.5
    tail = [-0.5] if low > 0 else []
    inner = middle[(middle > low) & (middle < high)]
    return np.array([*tail, low, *inner, high, 2 * high + 9.5])


def _cuts(values: Array, held: Array, common: Mask, bins: int, least: int) -> Index:
    """After which values to cut: into parts of about equal weight and, where values are few, on
    both sides of every common value."""
    few = max(1, min(bins, int(held.sum() // least)))
    bin_of = np.floor((np.cumsum(held) - held / 2) / max(held.sum(), 1e-300) * few)
    wanted = np.diff(bin_of) > 0
    return np.flatnonzero(wanted | (common[1:] | common[:-1] if len(values) <= bins else False))


def _cut(values: Array, held: Array, common: Mask, after: int, least: int) -> float | None:
    """Where the cut after a value lies; None if there are too few rows to place it."""
    if common[after] and not common[after + 1]:
        return float(values[after]) + 0.5
    if common[after + 1] and not common[after]:
        return float(values[after + 1]) - 0.5
    below, above = slice(after, None, -1), slice(after + 1, None)
    low, high = (_nearest(values[s], held[s], least) for s in (below, above))
    return None if low is None or high is None else low / 2 + high / 2


def _nearest(values: Array, held: Array, least: int) -> float | None:
    """The mean of the first values that ``least`` rows have; None if fewer rows have any."""
    rows = np.cumsum(held[: 2 * least])
    last = int(np.searchsorted(rows, least - ROUNDING))
    if last == len(rows):
        return None
    return float(np.average(values[: last + 1], weights=held[: last + 1]))


def _end(values: Array, held: Array, cut: float, least: int) -> float:
    """Where the bin of the largest values ends: as far beyond a common value as it begins before
    it; else beyond all values, on a grid of two to four steps from the cut to the largest."""
    if (values > cut).sum() == 1 and held[-1] >= least - ROUNDING:
        return float(2 * values[-1] - cut)
    step = max(2.0 ** np.floor(np.log2(max(float(values[-1] - cut), 1.0))) / 2, 1.0)
    return float((np.floor(values[-1] / step) + 1) * step)

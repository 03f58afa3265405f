"""The distribution of every column from counts of rows in bins, which add up over parties.

Categories have a bin for each of their codes. The scale of numbers is unknown, so the first bins
are bounded by powers of two, on either side of 0. Their counts determine finer bins, which hold
about equally many rows each, and so on. A value that many rows share ends up in a narrow separate
bin. Bins depend only on sums, so all who know the sums have the same.

Fine bins of few rows would reveal the values of these rows. So a bin is divided into as many as
would hold ``2 · least`` rows each, and one of fewer rows keeps its width. Neighbours that differ
by no more than chance are merged. Far numbers thus stay in bins between powers of two.

    score    of a number: the normal quantile of the share of rows below the middle of its bin
    coarse   bins of few levels, for the mutual information of pairs of columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, xlogy

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.least_counts import RareValues
from fedcircuits.tables.schema import Schema

Codes = npt.NDArray[np.int64]
BINS = 128  # of a column of numbers
FINER = 3  # times that bins are made finer
POWERS = 2.0 ** np.arange(-40, 61)
FIRST = np.concatenate([-POWERS[::-1], POWERS])  # edges; values beyond count in the last bins
NARROW = 1e-9  # of the larger edge: bins are not made narrower
ALIKE = 4.0  # nats of all rows that merging two bins may lose
HEAVY = 0.2  # share of the rows that one value must have to stand apart


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Bins of every column, and how many rows are in each."""

    schema: Schema
    edges: tuple[Array, ...]  # (bins + 1,) of every column, rising
    counts: tuple[Array, ...] = ()  # (bins,)

    @classmethod
    def first(cls, schema: Schema) -> Sketch:
        """Without counts."""
        edges = [np.arange(v.levels + 1.0) - 0.5 if v.levels else FIRST for v in schema]
        return cls(schema, tuple(map(np.asarray, edges)))

    # ------------------------------------------------------------------ counting

    def bins(self, values: Array) -> Codes:
        """The bin of every value (rows, columns); −1 where it is missing."""
        bins = np.full(values.shape, -1)
        for i, edges in enumerate(self.edges):
            seen = ~np.isnan(values[:, i])
            bins[seen, i] = np.searchsorted(edges[1:-1], values[seen, i], side="right")
        return bins

    def counted(self, values: Array) -> Array:
        """Rows in every bin, of all columns end to end."""
        bins = self.bins(values)
        sizes = [len(edges) - 1 for edges in self.edges]
        parts = [np.bincount(b[b >= 0], minlength=n) for b, n in zip(bins.T, sizes, strict=True)]
        return np.concatenate(parts).astype(np.float64)

    def with_counts(self, total: Array) -> Sketch:
        ends = np.cumsum([len(edges) - 1 for edges in self.edges])[:-1]
        return replace(self, counts=tuple(np.split(np.maximum(np.rint(total), 0.0), ends)))

    def rare(self, least: int) -> tuple[RareValues, ...]:
        """Values that fewer rows have, of columns whose bins are values."""
        pairs = enumerate(zip(self.schema, self.counts, strict=True))
        pooled = (RareValues.of(i, c, least, not v.size) for i, (v, c) in pairs if v.levels)
        return tuple(one for of_column in pooled for one in of_column)

    def finer(self, least: int) -> Sketch:
        """Bins of about equally many rows, as far as is known. None of fewer than ``4 · least`` is
        divided. Without counts."""
        triples = zip(self.schema, self.edges, self.counts, strict=True)
        edges = (
            e if v.levels else _finer(e, c, 2 * least, v.kind == "count") for v, e, c in triples
        )
        return Sketch(self.schema, tuple(edges))

    # ------------------------------------------------------------------ what follows from counts

    def scores(self, column: int, values: Array) -> Array:
        """Normal scores of numbers; 0 where they are missing."""
        counts = self.counts[column]
        total = max(counts.sum(), 1.0)
        middle = (np.cumsum(counts) - counts / 2) / total
        level = ndtri(np.clip(middle, 0.5 / total, 1 - 0.5 / total))  # (bins,)
        scores_of_rows = np.zeros(len(values))
        seen = ~np.isnan(values)
        bins = np.searchsorted(self.edges[column][1:-1], values[seen], side="right")
        scores_of_rows[seen] = level[bins]
        return scores_of_rows

    def numbers(self, column: int, scores: Array) -> Array:
        """Numbers that have about these scores."""
        edges, counts = self.edges[column], self.counts[column]
        share = np.concatenate([[0.0], np.cumsum(counts)]) / max(counts.sum(), 1.0)
        numbers = np.interp(ndtr(scores), share, edges)
        if self.schema.variables[column].kind == "count":
            numbers = np.clip(np.rint(numbers), 0.0, self.schema.variables[column].most)
        return np.asarray(numbers)

    def lumpy(self, column: int) -> bool:
        """Whether a single number has a large share of the rows."""
        edges, counts = self.edges[column], self.counts[column]
        if not counts.any():
            return False
        spread = np.diff(np.interp([0.05, 0.95], np.cumsum(counts) / counts.sum(), edges[1:]))[0]
        at = int(counts.argmax())
        narrow = edges[at + 1] - edges[at] < 0.02 * max(spread, edges[-1] - edges[0]) or spread == 0
        return bool(narrow and counts[at] > HEAVY * counts.sum())

    def coarse(self, most: int) -> tuple[list[Codes], list[int]]:
        """The level of every bin of every column, and the numbers of levels, which are limited."""
        levels, sizes = [], []
        for variable, counts in zip(self.schema, self.counts, strict=True):
            named = any(isinstance(c, str) for c in variable.categories)
            order = np.argsort(-counts, kind="stable") if named else np.arange(len(counts))
            bins = _merged(counts, order, most)
            levels.append(bins)
            sizes.append(int(bins.max()) + 1)
        return levels, sizes

    def one_hot(self, values: Array, levels: Sequence[Codes], sizes: Sequence[int]) -> Array:
        """(rows, levels of all columns) of 0 and 1; a missing value has none."""
        bins, starts = self.bins(values), np.concatenate([[0], np.cumsum(sizes)])
        indicators = np.zeros((len(values), int(starts[-1])))
        for i, bins_of in enumerate(levels):
            rows = np.flatnonzero(bins[:, i] >= 0)
            indicators[rows, starts[i] + bins_of[bins[rows, i]]] = 1.0
        return indicators


def _finer(edges: Array, counts: Array, fewest: int, whole: bool) -> Array:
    """Bins that differ little are merged; then each is divided by the rows that it holds. None is
    narrower than numbers lie apart, where that is known."""
    used = np.flatnonzero(counts)
    if not len(used):
        return edges[:2]
    edges, counts = edges[used[0] : used[-1] + 2], counts[used[0] : used[-1] + 1]
    narrow = 0.5 if whole else _spacing(edges, counts)
    narrow = max(narrow, NARROW * max(abs(edges[0]), abs(edges[-1]), POWERS[0]))
    edges, counts = _merged_at(_apart(edges, narrow), edges, counts)
    edges, counts = _merged_at(joined(np.diff(edges), counts, ALIKE), edges, counts)
    narrowest = np.maximum(np.diff(edges) / narrow, 1.0)
    parts = np.clip(counts // max(fewest, counts.sum() / BINS), 1, narrowest).astype(int)
    ends = zip(edges[:-1], edges[1:], parts, strict=True)
    pieces = [np.linspace(low, high, n, endpoint=False) for low, high, n in ends]
    return np.unique(np.append(np.concatenate(pieces), edges[-1]))


def _spacing(edges: Array, counts: Array) -> float:
    """Half of the mean distance between numbers, in the half of the rows in the middle; 0 where a
    single number may have a large share of the rows."""
    if counts.max() > HEAVY * counts.sum():
        return 0.0
    share = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    low, high = np.interp([0.25, 0.75], share, edges)
    return float((high - low) / counts.sum())


def _apart(edges: Array, narrow: float) -> Codes:
    """Places of edges of which none is closer to the one before it; the ends stay."""
    kept = [0]
    for i in range(1, len(edges) - 1):
        if edges[i] - edges[kept[-1]] >= narrow and edges[-1] - edges[i] >= narrow:
            kept.append(i)
    return np.array([*kept, len(edges) - 1])


def _merged_at(ends: Codes, edges: Array, counts: Array) -> tuple[Array, Array]:
    return edges[ends], np.add.reduceat(counts, ends[:-1])


def joined(widths: Array, counts: Array, alike: float, most: float = np.inf) -> Codes:
    """Ends of bins, from 0 on, after neighbours were merged that lose fewer than ``alike`` nats of
    all rows by it, the most similar first. No bin of more than ``most`` rows is formed."""
    ends = np.arange(len(widths) + 1)
    while len(widths) > 1:
        both, wide = counts[1:] + counts[:-1], widths[1:] + widths[:-1]
        apart = xlogy(counts, np.maximum(counts, 1.0) / widths)
        loss = apart[1:] + apart[:-1] - xlogy(both, np.maximum(both, 1.0) / wide)
        loss = np.where(both <= most, loss, np.inf)
        padded = np.concatenate([[np.inf], loss, [np.inf]])
        least = (loss < alike) & (loss < padded[:-2]) & (loss <= padded[2:])
        if not least.any():
            break
        kept = np.append(True, ~least)
        first = np.flatnonzero(kept)
        ends = np.append(ends[first], ends[-1])
        widths, counts = np.add.reduceat(widths, first), np.add.reduceat(counts, first)
    return ends


def _merged(counts: Array, order: Codes, most: int) -> Codes:
    """Levels of bins: common ones alone, the others in equally filled groups, in this order."""
    if len(counts) <= most:
        return np.arange(len(counts))
    total = max(counts.sum(), 1.0)
    heavy = counts > total / most
    merged = np.zeros(len(counts), np.int64)
    merged[heavy] = np.arange(heavy.sum())
    rest = order[~heavy[order]]
    left, light = max(1, most - int(heavy.sum())), counts[order[~heavy[order]]]
    middle = np.cumsum(light) - light / 2
    merged[rest] = heavy.sum() + np.minimum(middle * left // max(light.sum(), 1.0), left - 1)
    return np.unique(merged, return_inverse=True)[1].reshape(-1)

"""Ranges of the levels of a column: what a few hundred rows can tell about 256 grey levels.

Ranges hold equally many values of all columns together and go over into each other: a level halfway
between the middles of two ranges belongs to both. A level that is common has a range of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array

RANGES = 16
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LevelRanges:
    """``times`` as many pseudo-rows of a unit look like its own ranges as look like the column;
    inside a range, levels are as common as in all columns together."""

    names: frozenset[str]  # of columns whose levels have an order
    times: float
    pooled: Mapping[int, Array]  # by number of levels: their shares in all columns together

    def member(self, levels: int) -> tuple[Array, Array]:
        """Shares of levels in ranges (ranges, levels), and shares of the levels of a range."""
        pooled = self.pooled[levels]
        first, behind = hats(pooled)
        member, at = np.zeros((int(first.max()) + 2, levels)), np.arange(levels)
        member[first, at] = 1 - behind
        member[first + 1, at] += behind
        return member, pooled * member / np.maximum(member @ pooled, 1e-300)[:, None]


def hats(pooled: npt.NDArray[np.floating]) -> tuple[Index, Array]:
    """The range before every level, and the share of the one behind."""
    bins, alone = _ranges(pooled)
    level = np.arange(len(pooled))
    mass = np.bincount(bins, pooled)
    middle = np.bincount(bins, pooled * level) / np.maximum(mass, 1e-300)
    last = len(mass) - 1
    after = level >= middle[bins]
    first = np.where(after, bins, bins - 1)
    second = first + 1
    joined = (first >= 0) & (second <= last)
    joined &= ~(alone[np.maximum(first, 0)] | alone[np.minimum(second, last)])
    first = np.where(joined, first, bins)
    width = middle[np.minimum(first + 1, last)] - middle[first]
    behind = np.where(joined, (level - middle[first]) / np.maximum(width, 1e-300), 0.0)
    return first, np.asarray(behind)


def _ranges(counts: npt.NDArray[np.floating]) -> tuple[Index, npt.NDArray[np.bool_]]:
    """The range of every level, in order, and which ranges are a level with more than its share."""
    heavy = counts > counts.sum() / RANGES
    rest = np.where(heavy, 0.0, counts)
    middle = np.cumsum(rest) - rest / 2
    part = np.minimum(middle * RANGES // max(rest.sum(), 1e-300), RANGES - 1)
    new = np.diff(part, prepend=part[0]) != 0
    new |= heavy | np.append(False, heavy[:-1])
    new[0] = False
    bins = np.cumsum(new)
    return bins, np.bincount(bins, heavy) > 0

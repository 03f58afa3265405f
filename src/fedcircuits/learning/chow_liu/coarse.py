"""The mutual information of all pairs of columns, whatever their kinds and numbers of levels.

For the tree only, columns are coarsened: a level with more than its share of the rows is kept, and
the others are merged into equally filled bins, numbers in their order and names by frequency.
Tables of pairs are then small. They are counted one block of columns at a time, so that memory does
not grow with the square of their number: ``memory`` bounds the bytes used besides the codes, which
take one or two bytes per value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from fedcircuits.circuits.graph.family import Array
from fedcircuits.tables.schema import Schema, Variable

Codes = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float32]
MEMORY = 256 << 20  # bytes
INDICATORS = 8_192  # over all columns: with the rows, what counting pairs costs
FEWEST, MOST = 3, 12  # levels of a coarse column
MISSING = -1


def levels_for(columns: int) -> int:
    """Levels of a coarse column, fewer where columns are many."""
    return int(np.clip(INDICATORS // columns, FEWEST, MOST))


def coarsened(values: Array, schema: Schema, most: int) -> tuple[Codes, list[int]]:
    """Codes (rows, columns) with limited numbers of levels, −1 where missing, and these numbers."""
    codes = np.full(values.shape, MISSING, np.int16)
    sizes = []
    for i, variable in enumerate(schema):
        seen = ~np.isnan(values[:, i])
        levels, size = _merged(values[seen, i], variable, most)
        codes[seen, i] = levels
        sizes.append(size)
    return codes, sizes


def _merged(x: Array, variable: Variable, most: int) -> tuple[Codes, int]:
    """Codes of seen values, and how many there are."""
    levels, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    if len(levels) <= most:
        return at.astype(np.int16), max(len(levels), 1)
    if any(isinstance(c, str) for c in variable.categories):
        order = np.argsort(-counts, kind="stable")
    else:
        order = np.arange(len(levels))
    heavy = counts > len(x) / most
    bins = np.zeros(len(levels), np.int64)
    bins[heavy] = np.arange(heavy.sum())
    rest = order[~heavy[order]]
    left = max(1, most - int(heavy.sum()))
    middle = np.cumsum(counts[rest]) - counts[rest] / 2
    bins[rest] = heavy.sum() + np.minimum(middle * left // counts[rest].sum(), left - 1)
    used, compact = np.unique(bins, return_inverse=True)
    return compact[at].astype(np.int16), len(used)


def information(
    codes: Codes, sizes: list[int], weight: Array | None = None, memory: int = MEMORY
) -> Array:
    """Nats for every pair of columns (columns, columns), over the rows that have both."""
    columns = len(sizes)
    information = np.zeros((columns, columns))
    blocks = list(_blocks(sizes, max(max(sizes), memory // (16 * max(1, len(codes))))))
    for i, first in enumerate(blocks):
        left, starts = _indicators(codes, sizes, first)
        weighted = left if weight is None else left * weight[:, None].astype(np.float32)
        for second in blocks[i:]:
            right, others = _indicators(codes, sizes, second)
            tables = np.asarray(weighted.T @ right, dtype=np.float64)
            part = _of_tables(tables, starts, others)
            information[first, second], information[second, first] = part, part.T
    return information


def _blocks(sizes: list[int], most: int) -> Iterator[slice]:
    """Runs of columns with at most ``most`` levels together, or one column."""
    begin = total = 0
    for i, size in enumerate(sizes):
        if i > begin and total + size > most:
            yield slice(begin, i)
            begin, total = i, 0
        total += size
    yield slice(begin, len(sizes))


def _indicators(
    codes: Codes, sizes: list[int], columns: slice
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """(rows, levels of these columns) of 0 and 1, and where each column begins."""
    starts = np.cumsum([0, *sizes[columns]])
    codes_here = codes[:, columns]
    indicators = np.zeros((len(codes), starts[-1]), np.float32)
    row, column = np.nonzero(codes_here >= 0)
    indicators[row, starts[column] + codes_here[row, column]] = 1
    return indicators, starts[:-1]


def _of_tables(tables: Array, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Array:
    """Mutual information of the pairs whose tables are blocks of one matrix."""

    def over(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, columns, axis=1))

    def down(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, rows, axis=0))

    left, right = over(tables), down(tables)  # a beside j; b beside i
    total = down(left)
    joint = down(over(xlogy(tables, tables)))
    down_sums, other = down(xlogy(left, left)), over(xlogy(right, right))
    g = joint - down_sums - other + xlogy(total, total)
    return np.asarray(np.maximum(g, 0.0) / np.maximum(total, 1e-12))

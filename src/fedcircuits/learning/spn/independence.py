"""Which columns depend on which: one matrix for all pairs, never a loop over them.

G-test    discrete columns. All pairwise tables are one product of indicator columns; a pair depends
          if G > 2 · threshold · degrees of freedom (threshold 5 is far beyond chance).
RDC       mixed columns (``rdc``): the largest canonical correlation of random features.

With s(n) = n log n and every row seen, G = 2 (Σ s(n_ab) − Σ s(n_a) − Σ s(n_b) + s(n)). A missing
value takes part in no pair. Weights count as repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from fedcircuits.circuits.graph.family import Array
from fedcircuits.tables.features import FeatureLayout, features_of
from fedcircuits.tables.schema import Variable

Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OneHot:
    """Discrete columns laid out as indicators, and where each column's block begins."""

    matrix: Floats  # (rows, Σ sizes)
    starts: Index  # (columns + 1,)

    @classmethod
    def of(cls, values: Array, variables: tuple[Variable, ...]) -> OneHot:
        layout = FeatureLayout.of(variables, lambda v: True)
        return cls((values[:, layout.columns] == layout.codes).astype(np.float32), layout.starts)

    def part(self, rows: Index, columns: Index) -> OneHot:
        at, starts = features_of(self.starts, columns)
        return OneHot(gathered(self.matrix, rows, at), starts)


def gathered(matrix: Floats, rows: Index, columns: Index) -> Floats:
    """``matrix[rows][:, columns]`` in the cheaper order."""
    if 2 * len(columns) < matrix.shape[1]:
        return np.asarray(matrix[rows[:, None], columns])
    found = matrix if len(rows) == len(matrix) else matrix.take(rows, axis=0)
    return found if len(columns) == matrix.shape[1] else found.take(columns, axis=1)


@dataclass(frozen=True, slots=True)
class BinaryPairs:
    """Counts of 0/1 columns without missing values: all pair tables follow from them."""

    both: Array  # (columns, columns): rows where both are 1
    ones: Array  # (columns,)
    total: float

    @classmethod
    def of(cls, x: Floats, weight: Floats) -> BinaryPairs:
        both = np.asarray((x * weight[:, None]).T @ x, dtype=np.float64)
        return cls(both, np.diagonal(both).copy(), float(weight.sum(dtype=np.float64)))

    def cells(self) -> Array:
        """(2, 2, columns, columns): counts of every pair of values."""
        left, right = self.ones[:, None] - self.both, self.ones[None, :] - self.both
        neither = np.maximum(self.total - self.both - left - right, 0.0)
        cells = np.stack([neither, np.maximum(right, 0.0), np.maximum(left, 0.0), self.both])
        return cells.reshape(2, 2, *self.both.shape)

    def tables(self) -> tuple[Array, Index]:
        """The same as ``pair_tables`` gives for one-hot columns, and their starts."""
        width = 2 * len(self.ones)
        return self.cells().transpose(2, 0, 3, 1).reshape(width, width), np.arange(0, width + 1, 2)

    def information(self) -> Array:
        """Mutual information of every pair, in nats."""
        own = xlogy(self.ones, self.ones) + xlogy(self.total - self.ones, self.total - self.ones)
        cells = self.cells().reshape(4, *self.both.shape)
        joint = xlogy(cells, cells).sum(axis=0)
        g = joint - own[:, None] - own[None, :] + xlogy(self.total, self.total)
        return np.asarray(np.maximum(g, 0.0) / max(self.total, 1e-12))

    def dependent(self, threshold: float) -> Flags:
        return np.asarray(2 * self.total * self.information() > 2 * threshold + 1e-3)

    def gain(self) -> Array:
        """Log-likelihood that a table of the pair wins, less its price (``_price``)."""
        return np.asarray(self.total * self.information() - _price(self.total, len(self.ones)))


@dataclass(frozen=True, slots=True)
class PairTables:
    """Pair tables of discrete columns, with the same questions."""

    counts: Array  # (indicators, indicators)
    starts: Index  # (columns + 1,)

    def tables(self) -> tuple[Array, Index]:
        return self.counts, self.starts

    def information(self) -> Array:
        return mutual_information(self.counts, self.starts)

    def dependent(self, threshold: float) -> Flags:
        return dependent_by_g(self.counts, self.starts, threshold)

    def gain(self) -> Array:
        g, degrees = g_statistics(self.counts, self.starts)
        price = _price(_blocks(self.counts, self.starts), len(g))
        return np.asarray(0.5 * g - np.maximum(degrees, 1.0) * price)


def _price(rows: Array | float, columns: int) -> Array:
    """Of a parameter: ½ log n, and log d as the pair is the best of so many (extended BIC)."""
    return np.asarray(0.5 * np.log(np.maximum(rows, 1.0)) + np.log(columns))


def pair_tables(indicators: Floats, weight: Floats | None = None) -> Array:
    """(indicators, indicators) of weighted counts: every pair's table is a block."""
    left = indicators if weight is None else indicators * weight[:, None]
    return np.asarray(left.T @ indicators, dtype=np.float64)


def _blocks(values: Array, starts: Index) -> Array:
    """Sums over the blocks of every pair of columns."""
    rows = np.add.reduceat(values, starts[:-1], axis=0)
    return np.asarray(np.add.reduceat(rows, starts[:-1], axis=1))


def g_statistics(tables: Array, starts: Index) -> tuple[Array, Array]:
    """G of every pair of columns, and its degrees of freedom; both (columns, columns).

    G = 2 n I, with I the mutual information of the pair's table.
    """
    left = np.add.reduceat(tables, starts[:-1], axis=1)  # (indicators, columns): a beside j
    total = _blocks(tables, starts)
    joint = _blocks(xlogy(tables, tables), starts)
    own = np.add.reduceat(xlogy(left, left), starts[:-1], axis=0)  # Σ s(n_a), of i beside j
    g = 2 * (joint - own - own.T + xlogy(total, total))
    levels = np.add.reduceat((left > 0).astype(float), starts[:-1], axis=0)  # of i, seen beside j
    degrees = np.maximum(levels - 1, 0) * np.maximum(levels.T - 1, 0)
    return np.maximum(g, 0.0), degrees


def mutual_information(tables: Array, starts: Index) -> Array:
    """Nats, for every pair of columns."""
    g, _ = g_statistics(tables, starts)
    return np.asarray(g / (2 * np.maximum(_blocks(tables, starts), 1e-12)))


def dependent_by_g(tables: Array, starts: Index, threshold: float) -> Flags:
    g, degrees = g_statistics(tables, starts)
    return np.asarray(g > 2 * threshold * degrees + 1e-3)


def groups(dependent: Flags) -> list[Index]:
    """Connected components of the graph of dependent pairs, by their first column."""
    joined, left = dependent | dependent.T, np.ones(len(dependent), dtype=bool)
    found = []
    while left.any():
        member = np.zeros(len(left), dtype=bool)
        member[left.argmax()] = True
        frontier = member
        while frontier.any():
            frontier = joined[frontier].any(axis=0) & ~member
            member = member | frontier
        found.append(np.flatnonzero(member))
        left &= ~member
    return found

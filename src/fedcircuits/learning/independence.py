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
from scipy.special import chdtrc, xlogy

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.features import FeatureLayout, features_of
from fedcircuits.tables.schema import Variable

Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OneHot:
    """Discrete columns laid out as indicators, and where each column's block begins."""

    matrix: Floats  # (rows, Σ sizes), row by row in memory: rows are gathered from it
    starts: Index  # (columns + 1,)

    @classmethod
    def of(cls, values: Array, variables: tuple[Variable, ...]) -> OneHot:
        layout = FeatureLayout.of(variables, lambda v: True)
        hot = values.take(layout.columns, axis=1) == layout.codes  # C order, which [:, …] has not
        return cls(hot.astype(np.float32), layout.starts)

    def part(self, rows: Index, columns: Index) -> OneHot:
        at, starts = features_of(self.starts, columns)
        return OneHot(gathered(self.matrix, rows, at), starts)


def gathered(matrix: Floats, rows: Index, columns: Index) -> Floats:
    """``matrix[rows][:, columns]`` in the cheaper order."""
    if 2 * len(columns) < matrix.shape[1]:
        return np.asarray(matrix[rows[:, None], columns])
    taken = matrix if len(rows) == len(matrix) else matrix.take(rows, axis=0, mode="clip")
    return taken if len(columns) == matrix.shape[1] else taken.take(columns, axis=1, mode="clip")


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
        entropies = xlogy(self.ones, self.ones) + xlogy(
            self.total - self.ones, self.total - self.ones
        )
        cells = self.cells().reshape(4, *self.both.shape)
        joint = xlogy(cells, cells).sum(axis=0)
        g = joint - entropies[:, None] - entropies[None, :] + xlogy(self.total, self.total)
        return np.asarray(np.maximum(g, 0.0) / max(self.total, 1e-12))

    def dependent(self, threshold: float) -> Flags:
        return np.asarray(2 * self.total * self.information() > 2 * threshold + 1e-3)

    def chance(self) -> Array:
        """The p-value of the G-test of every pair; 1 on the diagonal."""
        chances = np.asarray(chdtrc(1.0, 2 * self.total * self.information()))
        np.fill_diagonal(chances, 1.0)
        return chances

    def own_score(self) -> float:
        """Expected log-likelihood of equally many new rows, column by column."""
        entropies = xlogy(self.ones, self.ones) + xlogy(
            self.total - self.ones, self.total - self.ones
        )
        return float((entropies - xlogy(self.total, self.total) - 1).sum())

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

    def own_score(self) -> float:
        counts = np.diagonal(self.counts)
        total = np.add.reduceat(counts, self.starts[:-1])
        return float(xlogy(counts, counts).sum() - xlogy(total, total).sum() - (counts > 0).sum())

    def gain(self) -> Array:
        g, degrees = g_statistics(self.counts, self.starts)
        price = _price(_blocks(self.counts, self.starts), len(g))
        return np.asarray(0.5 * g - np.maximum(degrees, 1.0) * price)


def _price(rows: Array | float, columns: int) -> Array:
    """The cost of a parameter: ½ log n, plus log d since the pair is the best of d (extended
    BIC)."""
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
    entropies = np.add.reduceat(xlogy(left, left), starts[:-1], axis=0)  # Σ s(n_a), of i beside j
    g = 2 * (joint - entropies - entropies.T + xlogy(total, total))
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
    components = []
    while left.any():
        member = np.zeros(len(left), dtype=bool)
        member[left.argmax()] = True
        frontier = member
        while frontier.any():
            frontier = joined[frontier].any(axis=0) & ~member
            member = member | frontier
        components.append(np.flatnonzero(member))
        left &= ~member
    return components


# ---------------------------------------------------------------------- rdc
#
# The randomised dependence coefficient of every pair of mixed columns (Lopez-Paz et al. 2013).
#
# A column's ranks (its category's indicators) go through random sines; the dependence of two
# columns is the largest canonical correlation of their sines, between 0 and 1. All covariances
# come from one product; whitening and singular values are batched over columns and pairs.
#
# Directions in which a column's sines vary by less than ``TOLERANCE`` of the most are left out:
# they are noise. A missing value takes part in no pair; a constant column depends on nothing.
# Weights count as repetitions.


MOST_ROWS = 4000  # of a table that the test looks at
FEATURES = 20
SPREAD = 6.0
TOLERANCE = 0.05  # of the largest singular value of a column's sines


def rdc(
    values: Array,
    variables: tuple[Variable, ...],
    rng: np.random.Generator,
    weight: Array | None = None,
) -> Array:
    """Dependence of every pair, (columns, columns); 1 on the diagonal of what varies."""
    weight = np.ones(len(values)) if weight is None else weight
    if len(values) > MOST_ROWS:
        kept = np.sort(rng.choice(len(values), MOST_ROWS, replace=False))
        values, weight = values[kept], weight[kept]
    sines = random_sines(values, variables, rng, FEATURES, weight)  # (rows, columns, k)
    return canonical(sines, ~np.isnan(values), weight, corrected=True)


def random_sines(
    values: Array,
    variables: tuple[Variable, ...],
    rng: np.random.Generator,
    k: int,
    weight: Array,
) -> Array:
    """(rows, columns, k): centred random sine features of every column, 0 where it is missing."""
    sines = np.empty((*values.shape, k))
    for i, (column, variable) in enumerate(zip(values.T, variables, strict=True)):
        angles = _angles(column, variable, rng, k, weight)
        sines[:, i] = np.sin(angles)
    seen = ~np.isnan(values)
    w = np.where(seen, weight[:, None], 0.0)  # (rows, columns)
    mean = np.einsum("rc,rck->ck", w, sines) / np.maximum(w.sum(axis=0), 1e-300)[:, None]
    return np.where(seen[..., None], sines - mean, 0.0)


def _angles(
    column: Array, variable: Variable, rng: np.random.Generator, k: int, weight: Array
) -> Array:
    if variable.size > 2:
        table = rng.normal(size=(variable.size + 1, k)) * SPREAD / 2
        code = np.where(np.isnan(column), 0, column).astype(np.int64)
        return np.asarray(table[code] + table[-1])
    direction = rng.normal(size=(2, k)) * SPREAD / 2
    return np.asarray(np.multiply.outer(_ranks(column, weight), direction[0]) + direction[1])


def _ranks(column: Array, weight: Array) -> Array:
    """The share of rows at or below each value."""
    seen = ~np.isnan(column)
    order = np.argsort(column[seen], kind="stable")
    ordered, below = column[seen][order], np.cumsum(weight[seen][order])
    last = np.searchsorted(ordered, ordered, side="right") - 1
    rank = np.zeros(len(column))
    place = np.empty(len(order))
    place[order] = below[last] / max(below[-1], 1e-300) if len(order) else 0.0
    rank[seen] = place
    return rank


def canonical(sines: Array, seen: Flags, weight: Array, corrected: bool = False) -> Array:
    """The largest canonical correlation ρ of every pair of columns (columns, columns).

    Corrected for chance: (ρ² − λ) / (1 − λ), where λ is what p and q independent features reach
    on n rows, (√(p/n (1 − q/n)) + √(q/n (1 − p/n)))² (Wachter 1980).
    """
    rows, columns, k = sines.shape
    flat = (sines * np.sqrt(weight)[:, None, None]).reshape(rows, columns * k)
    covariance = (flat.T @ flat).reshape(columns, k, columns, k).transpose(0, 2, 1, 3)
    at = np.arange(columns)
    white = _whitening(covariance[at, at])  # (columns, k, k)
    i, j = np.triu_indices(columns, 1)
    cross = white[i].transpose(0, 2, 1) @ covariance[i, j] @ white[j]  # (pairs, k, k)
    largest = np.linalg.eigvalsh(cross @ cross.transpose(0, 2, 1))[:, -1] if len(i) else np.zeros(0)
    both = (seen * weight[:, None]).T @ seen  # (columns, columns): rows that see both
    diagonal = np.diagonal(both)
    shared = both[i, j]
    apart = np.where(
        shared > 0, diagonal[i] * diagonal[j] / np.square(np.where(shared > 0, shared, 1.0)), 0
    )
    square = np.clip(largest * apart, 0.0, 1.0)
    if corrected:
        width = white.any(axis=1).sum(axis=1)  # features left of every column
        square = _beyond_chance(square, width[i], width[j], both[i, j])
    correlations = np.diag(white.any(axis=(1, 2)).astype(float))
    correlations[i, j] = correlations[j, i] = np.sqrt(square)
    return correlations


def _beyond_chance(square: Array, p: Array, q: Array, rows: Array) -> Array:
    p, q = np.minimum(p / np.maximum(rows, 1.0), 1.0), np.minimum(q / np.maximum(rows, 1.0), 1.0)
    chance = np.minimum(np.square(np.sqrt(p * (1 - q)) + np.sqrt(q * (1 - p))), 1 - 1e-9)
    return np.asarray(np.maximum((square - chance) / (1 - chance), 0.0))


def _whitening(covariance: Array) -> Array:
    """W with Wᵀ C W = 1 on the directions that vary, 0 on the others, for every C (…, k, k)."""
    value, vector = np.linalg.eigh(covariance)
    floor = np.maximum(TOLERANCE**2 * value[..., -1:], 1e-9)
    scale = np.where(value > floor, 1 / np.sqrt(np.maximum(value, floor)), 0.0)
    return np.asarray(vector * scale[..., None, :])

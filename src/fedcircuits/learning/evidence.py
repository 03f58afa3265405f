"""Evidence that columns depend on each other: a p-value for every pair, of any kinds.

With more rows, weaker dependence is detected. All pairs come from one matrix product of features:
indicators of categories, and orthonormal polynomials of the ranks of numbers (the first detects
trends, the second differences in spread, the higher ones oscillations). The null distributions are
known, so nothing is sampled:

    number, number       n Σ r² over the correlations r of their polynomials: χ² of p · q degrees
    number, category     Σ over categories of n times the squared means: χ² of p · (levels − 1)
    category, category   Pearson's X² with the mean and variance that it has over all permutations
                         of rows (Haldane 1940), as a gamma: right for rare categories too

Numbers take polynomials up to each of ``ORDERS``; the p-value is the smallest, times their number.
Linear dependence is thus tested with the power of a single correlation, and others are detected too
(smooth tests of independence, Kallenberg and Ledwina 1999).

A missing value belongs to no pair. Weights count as repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, gammaincc

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.features import features_of
from fedcircuits.learning.independence import Flags, Floats, Index, gathered
from fedcircuits.tables.schema import Schema

LENIENT = 3.0  # times the level, of a pair with the target
ORDERS = (1, 2, 6)  # of the polynomials of ranks
DEGREE = ORDERS[-1]
MOST_ROWS = 100_000  # of a part that a test looks at
LEAST_SHARE = 0.1  # of a polynomial's variance that must be its own
ENOUGH = 8.0  # rows below which nothing is tested


@dataclass(frozen=True, slots=True)
class ScoredTable:
    """Features of a table's columns: polynomials of ranks, or indicators; 0 where missing."""

    matrix: Floats  # (rows, features)
    starts: Index  # (columns + 1,)
    numbers: Flags  # (columns,)

    @classmethod
    def of(cls, values: Array, schema: Schema) -> ScoredTable:
        blocks = [
            _indicators(column, v.size) if v.size else _polynomials(column)
            for column, v in zip(values.T, schema, strict=True)
        ]
        starts = np.cumsum([0, *(b.shape[1] for b in blocks)])
        return cls(np.hstack(blocks), starts, np.array([not v.size for v in schema]))

    def part(self, rows: Index, columns: Index) -> ScoredTable:
        at, starts = features_of(self.starts, columns)
        return ScoredTable(gathered(self.matrix, rows, at), starts, self.numbers[columns])


def _indicators(column: Array, size: int) -> Floats:
    return np.asarray(column[:, None] == np.arange(size), dtype=np.float32)


def _polynomials(column: Array) -> Floats:
    """A constant, which says where a value is seen, and Legendre polynomials of the ranks."""
    seen = ~np.isnan(column)
    polynomials = np.zeros((len(column), DEGREE + 1), dtype=np.float32)
    polynomials[seen] = np.polynomial.legendre.legvander(
        2 * _middle_ranks(column[seen]) - 1, DEGREE
    )
    return polynomials


def _middle_ranks(x: Array) -> Array:
    """Ranks in (0, 1); equal values have equal ranks."""
    values, place, count = np.unique(x, return_inverse=True, return_counts=True)
    below = np.cumsum(count) - count / 2
    return np.asarray((below / max(len(x), 1))[place]) if len(values) else np.zeros(0)


def p_values(part: ScoredTable, weight: Floats) -> Array:
    """(columns, columns): how likely chance makes as much of every pair; 1 on the diagonal."""
    chances = np.ones((len(part.numbers), len(part.numbers)))
    kept = slice(None, None, -(-len(part.matrix) // MOST_ROWS))
    x, w = part.matrix[kept], weight[kept]
    moments = np.asarray((x * w[:, None]).T @ x, dtype=np.float64)
    number, category = np.flatnonzero(part.numbers), np.flatnonzero(~part.numbers)
    where, starts = features_of(part.starts, category)
    if len(number):
        at = part.starts[number][:, None] + np.arange(DEGREE + 1)  # (numbers, polynomials)
        block = moments[at[:, :, None], at[:, None, :]]
        white = _orthonormal(block)  # (numbers, polynomials, DEGREE)
        cross = moments[at.reshape(-1)[:, None], at.reshape(-1)].reshape(*at.shape, *at.shape)
        chances[np.ix_(number, number)] = _between_numbers(cross, white)
        if len(category):
            beside = moments[at[:, :, None], where]  # (numbers, polynomials, indicators)
            some = _beside_categories(beside, white, starts)
            chances[np.ix_(number, category)] = some
            chances[np.ix_(category, number)] = some.T
    if len(category) > 1:
        tables = moments[where[:, None], where]
        chances[np.ix_(category, category)] = _between_categories(tables, starts)
    np.fill_diagonal(chances, 1.0)
    return chances


def dependent(p: Array, level: float, target: int | None = None) -> Flags:
    """Pairs that are no chance: of those found, chance makes at most a share of ``level``, and
    where no pair depends, it finds any with that probability (Benjamini and Hochberg 1995).

    Columns stay with a target if they are more likely to help than not: at ``LENIENT`` times the
    level, each on its own."""
    i, j = np.triu_indices(len(p), 1)
    ordered = np.sort(p[i, j])
    right = np.flatnonzero(ordered <= level * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    most = ordered[right[-1]] if len(right) else -1.0
    verdicts = np.asarray(p <= most)
    if target is not None:
        helps = p[target] <= LENIENT * level
        verdicts[target] |= helps
        verdicts[:, target] |= helps
    np.fill_diagonal(verdicts, False)
    return verdicts


# ---------------------------------------------------------------------- numbers


def _orthonormal(moments: Array) -> Array:
    """(numbers, polynomials, DEGREE): coefficients of polynomials that are centred, of variance 1
    and uncorrelated on the rows; 0 where there are too few values to separate them from lower
    ones."""
    basis: list[Array] = []
    rows = np.maximum(moments[:, 0, 0], 1e-300)
    bases = np.zeros((len(moments), DEGREE + 1, DEGREE))
    for k in range(DEGREE + 1):
        v = np.zeros((len(moments), DEGREE + 1))
        v[:, k] = 1.0
        for b in basis:
            v = v - np.einsum("ni,nij,nj->n", b, moments, v)[:, None] / rows[:, None] * b
        size = np.einsum("ni,nij,nj->n", v, moments, v) / rows
        enough = size > LEAST_SHARE * moments[:, k, k] / rows
        v = np.where(enough[:, None], v / np.sqrt(np.where(enough, size, 1.0))[:, None], 0.0)
        basis.append(v)
        if k:
            bases[:, :, k - 1] = v
    return bases


def _between_numbers(cross: Array, white: Array) -> Array:
    rows = cross[:, 0, :, 0]
    sums = np.einsum("iak,iajb,jbl->ijkl", white, cross, white, optimize=True)
    square = np.square(sums) / np.maximum(rows, 1e-300)[:, :, None, None]
    there = np.asarray(white.any(axis=1))  # (numbers, DEGREE)
    chances = []
    for order in ORDERS:
        width = there[:, :order].sum(axis=1)
        degrees = width[:, None] * width
        chances.append(_chance(square[:, :, :order, :order].sum(axis=(2, 3)), degrees, rows))
    return _smallest(chances)


def _beside_categories(beside: Array, white: Array, starts: Index) -> Array:
    """``beside``: (numbers, polynomials, indicators)."""
    count = beside[:, 0]  # rows of a category where the number is seen
    sums = np.einsum("nak,nai->nki", white, beside)
    rare = count < ENOUGH
    size, total, few, rest = (
        np.add.reduceat(a, starts[:-1], axis=-1)
        for a in (count, sums, count * rare, sums * rare[:, None])
    )
    ratio = np.where(rare[:, None], 0.0, np.square(sums) / np.maximum(count, 1.0)[:, None])
    between = np.add.reduceat(ratio, starts[:-1], axis=2)
    others = few >= ENOUGH  # rare categories are one
    between += np.where(others[:, None], np.square(rest) / np.maximum(few, 1.0)[:, None], 0.0)
    kept = np.where(others, size, size - few)  # rows
    total = np.where(others[:, None], total, total - rest)
    between -= np.square(total) / np.maximum(kept, 1.0)[:, None]
    levels = np.add.reduceat((~rare).astype(float), starts[:-1], axis=1) + others
    there = np.asarray(white.any(axis=1))
    chances = []
    for order in ORDERS:
        degrees = there[:, :order].sum(axis=1)[:, None] * np.maximum(levels - 1, 0)
        chances.append(_chance(between[:, :order].sum(axis=1), degrees, kept))
    return _smallest(chances)


def _chance(statistic: Array, degrees: Array, rows: Array) -> Array:
    tested = (degrees > 0) & (rows >= ENOUGH)
    return np.where(tested, chdtrc(np.maximum(degrees, 1), np.maximum(statistic, 0.0)), 1.0)


def _smallest(chances: list[Array]) -> Array:
    return np.asarray(np.minimum(np.min(chances, axis=0) * len(chances), 1.0))


# ---------------------------------------------------------------------- categories


def _between_categories(tables: Array, starts: Index) -> Array:
    """X² of every pair as a gamma with its mean and variance over all permutations."""
    left = np.add.reduceat(tables, starts[:-1], axis=1)  # (indicators, columns): a beside j
    column = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    product = left[:, column] * left[:, column].T
    share = np.divide(np.square(tables), product, out=np.zeros_like(tables), where=product > 0)
    blocks = np.add.reduceat(np.add.reduceat(share, starts[:-1], axis=0), starts[:-1], axis=1)
    n = np.add.reduceat(left, starts[:-1], axis=0)  # (columns, columns): rows that see both
    levels = np.add.reduceat((left > 0).astype(float), starts[:-1], axis=0)  # of i, beside j
    inverse = np.divide(1.0, left, out=np.zeros_like(left), where=left > 0)
    inverse = np.add.reduceat(inverse, starts[:-1], axis=0)
    tested = (n >= ENOUGH) & (levels > 1) & (levels.T > 1)
    n = np.maximum(n, ENOUGH)
    v = (levels - 1) * np.maximum(n - levels, 0) / (n - 1)
    w = (n * inverse - levels**2) / (n - 2)
    mean = (levels - 1) * (levels.T - 1) * n / (n - 1)
    variance = 2 * n / (n - 3) * (v - w) * (v - w).T + n**2 / (n - 1) * w * w.T
    square = np.maximum(n * (blocks - 1), 0.0)
    variance = np.maximum(variance, 1e-9)
    scale = variance / np.maximum(mean, 1e-9)
    p = gammaincc(np.maximum(mean, 1e-9) / scale, square / scale)
    return np.where(tested, p, 1.0)

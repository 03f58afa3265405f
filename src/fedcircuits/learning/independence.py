"""Which columns depend on which: one matrix for all pairs, never a loop over them.

G-test    discrete columns. All pairwise tables are one product of one-hot columns; a pair depends
          if G > 2 · threshold · degrees of freedom (threshold 5 is far beyond chance).
RDC       mixed columns. Ranks of every column through random sine features; the dependence of two
          columns is the largest canonical correlation of their features, for all pairs from one
          product and batched singular values; a pair depends if it exceeds the threshold.

A missing value takes part in no pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Variable

Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
MOST_ROWS = 4000  # of a table that the mixed test looks at


@dataclass(frozen=True, slots=True)
class OneHot:
    """Discrete columns laid out as indicators, and where each column's block begins."""

    matrix: Floats  # (rows, Σ sizes)
    starts: Index  # (columns + 1,)

    @classmethod
    def of(cls, values: Array, variables: tuple[Variable, ...]) -> OneHot:
        sizes = np.array([v.size for v in variables])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        column = np.repeat(np.arange(len(sizes)), sizes)
        code = np.arange(starts[-1]) - starts[:-1][column]
        return cls((values[:, column] == code).astype(np.float32), starts)

    def columns(self, chosen: Index) -> Index:
        """Positions of the indicators of some columns."""
        return np.concatenate([np.arange(self.starts[c], self.starts[c + 1]) for c in chosen])


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
    sizes = np.diff(starts)
    column = np.repeat(np.arange(len(sizes)), sizes)
    left = np.add.reduceat(tables, starts[:-1], axis=1)[:, column]  # count of a beside column j
    total = _blocks(tables, starts)[np.ix_(column, column)]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = tables * np.log(tables * total / (left * left.T))
    g = 2 * _blocks(np.nan_to_num(terms, posinf=0.0, neginf=0.0), starts)
    levels = _blocks((left > 0).astype(float), starts) / sizes[None, :]  # of i, seen beside j
    degrees = np.maximum(levels - 1, 0) * np.maximum(levels.T - 1, 0)
    return np.maximum(g, 0.0), degrees


def mutual_information(tables: Array, starts: Index) -> Array:
    """Nats, for every pair of columns."""
    g, _ = g_statistics(tables, starts)
    return np.asarray(g / (2 * np.maximum(_blocks(tables, starts), 1.0)))


def dependent_by_g(tables: Array, starts: Index, threshold: float) -> npt.NDArray[np.bool_]:
    g, degrees = g_statistics(tables, starts)
    return np.asarray(g > 2 * threshold * degrees + 1e-3)


# ---------------------------------------------------------------------- mixed columns


def rdc(
    values: Array, variables: tuple[Variable, ...], rng: np.random.Generator, features: int = 20
) -> Array:
    """Randomised dependence coefficient of every pair, (columns, columns)."""
    if len(values) > MOST_ROWS:
        values = values[rng.choice(len(values), MOST_ROWS, replace=False)]
    k = int(np.clip(len(values) // 10, 2, features))
    blocks = [_whitened(_sines(c, v, rng, k)) for c, v in zip(values.T, variables, strict=True)]
    joined = np.concatenate(blocks, axis=1)  # (rows, columns · k)
    cross = (joined.T @ joined).reshape(len(blocks), k, len(blocks), k).transpose(0, 2, 1, 3)
    found = np.linalg.svd(cross, compute_uv=False)[..., 0]
    return np.asarray(np.clip(found, 0.0, 1.0))


def _sines(column: Array, variable: Variable, rng: np.random.Generator, k: int) -> Array:
    """Random sine features (rows, k) of a column's ranks, or of a category's indicators."""
    seen = ~np.isnan(column)
    if variable.size > 2:
        base = (column[:, None] == np.arange(variable.size)).astype(float)
    else:
        values, place, counts = np.unique(column[seen], return_inverse=True, return_counts=True)
        rank = np.zeros(len(column))
        rank[seen] = (np.cumsum(counts) / max(seen.sum(), 1))[place] if len(values) else 0.0
        base = rank[:, None]
    base = np.hstack([base, np.ones((len(base), 1))])
    directions = rng.normal(size=(base.shape[1], k)) * 6.0 / base.shape[1]
    return np.where(seen[:, None], np.sin(base @ directions), np.nan)


def _whitened(block: Array) -> Array:
    """Centred columns with unit covariance (up to a ridge); missing rows are 0."""
    with np.errstate(invalid="ignore"):
        centred = np.nan_to_num(block - np.nanmean(block, axis=0)) if len(block) else block
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = s > 1e-3 * max(float(s[0]), 1e-12)
    found = np.zeros((len(block), block.shape[1]))
    found[:, : int(kept.sum())] = u[:, kept]
    return found


# ---------------------------------------------------------------------- groups


def groups(dependent: npt.NDArray[np.bool_]) -> list[Index]:
    """Connected components of the graph of dependent pairs."""
    count, label = connected_components(csr_array(dependent | dependent.T), directed=False)
    return [np.flatnonzero(label == i) for i in range(count)]

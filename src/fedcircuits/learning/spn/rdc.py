"""The randomised dependence coefficient of every pair of mixed columns (Lopez-Paz et al. 2013).

A column's ranks (its category's indicators) go through random sines; the dependence of two columns
is the largest canonical correlation of their sines, between 0 and 1. All covariances come from one
product; whitening and singular values are batched over columns and pairs.

Directions in which a column's sines vary by less than ``TOLERANCE`` of the most are left out: they
are noise. A missing value takes part in no pair; a constant column depends on nothing. Weights
count as repetitions.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.spn.independence import Flags
from fedcircuits.tables.schema import Variable

MOST_ROWS = 4000  # of a table that the test looks at
FEATURES = 20
SPREAD = 6.0
TOLERANCE = 0.05  # of the largest singular value of a column's sines


def rdc(
    values: Array,
    variables: tuple[Variable, ...],
    rng: np.random.Generator,
    weight: Array | None = None,
    features: int = FEATURES,
) -> Array:
    """Dependence of every pair, (columns, columns); 1 on the diagonal of what varies."""
    weight = np.ones(len(values)) if weight is None else weight
    if len(values) > MOST_ROWS:
        kept = np.sort(rng.choice(len(values), MOST_ROWS, replace=False))
        values, weight = values[kept], weight[kept]
    sines = random_sines(values, variables, rng, features, weight)  # (rows, columns, k)
    return canonical(sines, ~np.isnan(values), weight, corrected=True)


def random_sines(
    values: Array,
    variables: tuple[Variable, ...],
    rng: np.random.Generator,
    k: int,
    weight: Array,
) -> Array:
    """(rows, columns, k): centred random sine features of every column, 0 where it is missing."""
    found = np.empty((*values.shape, k))
    for i, (column, variable) in enumerate(zip(values.T, variables, strict=True)):
        angles = _angles(column, variable, rng, k, weight)
        found[:, i] = np.sin(angles)
    seen = ~np.isnan(values)
    w = np.where(seen, weight[:, None], 0.0)  # (rows, columns)
    mean = np.einsum("rc,rck->ck", w, found) / np.maximum(w.sum(axis=0), 1e-300)[:, None]
    return np.where(seen[..., None], found - mean, 0.0)


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
    own = np.diagonal(both)
    shared = both[i, j]
    apart = np.where(shared > 0, own[i] * own[j] / np.square(np.where(shared > 0, shared, 1.0)), 0)
    square = np.clip(largest * apart, 0.0, 1.0)
    if corrected:
        width = white.any(axis=1).sum(axis=1)  # features left of every column
        square = _beyond_chance(square, width[i], width[j], both[i, j])
    found = np.diag(white.any(axis=(1, 2)).astype(float))
    found[i, j] = found[j, i] = np.sqrt(square)
    return found


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

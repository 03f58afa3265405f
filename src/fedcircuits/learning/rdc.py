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

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Variable

MOST_ROWS = 4000  # of a table that the test looks at
FEATURES = 20
SPREAD = 6.0
TOLERANCE = 1e-2  # of the largest singular value of a column's sines


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
    return canonical(sines, ~np.isnan(values), weight)


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
    return np.multiply.outer(_ranks(column, weight), direction[0]) + direction[1]


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


def canonical(sines: Array, seen: np.typing.NDArray[np.bool_], weight: Array) -> Array:
    """The largest canonical correlation of every pair of columns (columns, columns)."""
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
    share = np.sqrt(own[i] * own[j]) / np.maximum(both[i, j], 1e-300)
    found = np.diag(white.any(axis=(1, 2)).astype(float))
    found[i, j] = found[j, i] = np.clip(np.sqrt(np.maximum(largest, 0.0)) * share, 0.0, 1.0)
    return found


def _whitening(covariance: Array) -> Array:
    """W with Wᵀ C W = 1 on the directions that vary, 0 on the others, for every C (…, k, k)."""
    value, vector = np.linalg.eigh(covariance)
    floor = np.maximum(TOLERANCE**2 * value[..., -1:], 1e-9)
    scale = np.where(value > floor, 1 / np.sqrt(np.maximum(value, floor)), 0.0)
    return np.asarray(vector * scale[..., None, :])

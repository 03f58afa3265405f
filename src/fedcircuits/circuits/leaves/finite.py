"""Distributions given as a table: values (n,) in ascending order, probability (..., n).

Shared by the families of finitely many values, and of counts. Smoothed frequencies, the fit of all
of them, are (sums + smoothing) / (Σ sums + n · smoothing): the posterior mean under ``smoothing``
pseudo-counts for every value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array, require


def check_probability(probability: Array) -> str | None:
    return require(
        np.isfinite(probability) & (probability >= 0), "probability must be finite and not negative"
    ) or require(
        np.abs(probability.sum(-1) - 1) < 1e-5, "probability must sum to 1 over its last axis"
    )


def frequencies(count: Array, sums: Array, smoothing: float, old: Array) -> Array:
    """(..., n) from sums (n, ...); ``old`` where nothing was counted. What is left of a sum when a
    part is subtracted again may be a rounding error below 0: it counts as 0."""
    smoothed = np.maximum(np.moveaxis(sums, 0, -1), 0.0) + smoothing
    total = smoothed.sum(-1)
    known = (count > 0) & (total > 0)
    return np.where(known[..., None], smoothed / np.where(known, total, 1.0)[..., None], old)


def moments(values: Array, probability: Array, lower: float, upper: float) -> Array:
    inside = probability * ((values > lower) & (values < upper))
    powers = values ** np.arange(3)[:, None]  # (3, n)
    return np.moveaxis(inside @ powers.T, -1, 0)


def whole_between(lower: float, upper: float) -> tuple[float, float]:
    """First and last whole number strictly between."""
    return float(np.floor(lower) + 1), float(np.ceil(upper) - 1)


def least_whole(
    reached: Callable[[Array], npt.NDArray[np.bool_]], low: Array, high: Array
) -> Array:
    """The smallest whole numbers from low to high that have reached it, by bisection."""
    while np.any(low < high):
        middle = np.floor((low + high) / 2)
        there = reached(middle)
        low, high = (
            np.where(there, low, np.minimum(middle + 1, high)),
            np.where(there, middle, high),
        )
    return low


def quantile(values: Array, probability: Array, u: Array) -> Array:
    cumulative = np.cumsum(probability, -1)
    cumulative = cumulative / cumulative[..., -1:]
    # at u = 0 the first value that can occur; 1e-15 forgives the rounding of the cumulative sum
    reached = cumulative >= np.maximum(np.asarray(u)[..., None] - 1e-15, 1e-300)
    return np.asarray(values[np.argmax(reached, -1)])


def sample(
    rng: np.random.Generator, values: Array, probability: Array, lower: float, upper: float
) -> Array:
    """One draw for every table inside (lower, upper); evenly among those where none can occur."""
    inside = (values > lower) & (values < upper)
    restricted = probability * inside
    empty = restricted.sum(-1, keepdims=True) <= 0
    restricted = np.where(empty, inside | ~inside.any(), restricted)
    restricted = restricted / restricted.sum(-1, keepdims=True)
    return quantile(values, restricted, 1.0 - rng.random(restricted.shape[:-1]))

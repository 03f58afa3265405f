"""A multivariate normal of which some columns are seen and others must fall in regions.

Rows are grouped by their pattern of missing values. For seen columns O and missing ones M,

    log f(x_O) = −½ |L⁻¹ (x_O − μ_O)|² − Σ log L_ii − |O|/2 log 2π,        L Lᵀ = Σ_OO
    x_M | x_O  ~ N(μ_M + Σ_MO Σ_OO⁻¹ (x_O − μ_O),  Σ_MM − Σ_MO Σ_OO⁻¹ Σ_OM)

Restricted to regions, x_M = mean + L e is drawn coordinate by coordinate: columns with a region
come first, and e_j is a standard normal on the intervals that put x_j in its region given
e_1 … e_j−1 (Geweke, Hajivassiliou and Keane). With one region this is exact. With several, a draw
is kept with the probability its later coordinates had, which makes it exact again; a row that kept
none of 1280 takes one of 4096 in proportion to that probability, which is nearly exact. Moments are
weighted means over 4096 points of a fixed low-discrepancy sequence (relative error about 1e-3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array, Region, Tensors
from fedcircuits.circuits.leaves.normal import LOG_ROOT_TWO_PI, interval_moments, interval_quantile
from fedcircuits.deferred import torch
from fedcircuits.errors import QueryError

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 4096
CANDIDATES = 64  # draws tried at once for every row
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Pattern:
    rows: npt.NDArray[np.intp]
    seen: list[int]
    missing: list[int]  # those with a region first


@dataclass(frozen=True, slots=True)
class Conditional:
    log_density: Tensor  # (units, rows) of the seen columns
    mean: Tensor  # (units, rows, missing)
    covariance: Tensor  # (units, missing, missing)


def patterns(missing: npt.NDArray[np.bool_], first: Sequence[int] = ()) -> Iterator[Pattern]:
    """Rows with the same columns missing, columns of ``first`` before the others."""
    which = _numbered(missing)
    for number in np.flatnonzero(np.bincount(which)):
        rows = np.flatnonzero(which == number)
        gaps = missing[rows[0]].tolist()
        columns = [i for i, gap in enumerate(gaps) if gap]
        columns.sort(key=lambda i: (i not in first, i))
        yield Pattern(rows, [i for i, gap in enumerate(gaps) if not gap], columns)


def _numbered(missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """(rows,): a number for every set of missing columns; the fewer columns, the less to sort."""
    packed = np.packbits(missing, axis=1)
    if packed.shape[1] == 1:
        return packed[:, 0].astype(np.intp)
    if packed.shape[1] <= 8:
        packed = np.pad(packed, ((0, 0), (0, 8 - packed.shape[1]))).view(">u8")
    return np.unique(packed, axis=0, return_inverse=True)[1].reshape(-1)


def seen_density(x: Tensor, seen: list[int], p: Tensors) -> Tensor:
    """(units, rows): log-density of the seen columns of rows x (rows, width) alone."""
    mean, covariance = p["mean"], p["covariance"]
    deviation = x[:, seen] - mean[:, None, seen]  # (units, rows, seen)
    if len(seen) == 1:
        variance = covariance[:, seen, seen]  # (units, 1)
        square = deviation[..., 0].square() / variance
        log_density: Tensor = -0.5 * (square + variance.log()) - LOG_ROOT_TWO_PI
        return log_density
    root: Tensor = torch.linalg.cholesky(covariance[:, seen][:, :, seen])
    white = torch.linalg.solve_triangular(root, deviation.mT, upper=False)
    log_volume = torch.diagonal(root, dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    log_density = -0.5 * white.square().sum(1) - log_volume - len(seen) * LOG_ROOT_TWO_PI
    return log_density


def condition(x: Tensor, pattern: Pattern, p: Tensors) -> Conditional:
    """The rows x (rows, width) of a pattern, seen by every unit."""
    seen, missing = pattern.seen, pattern.missing
    mean, covariance = p["mean"], p["covariance"]
    if not seen:
        means = mean[:, None, missing].expand(-1, len(x), -1)
        return Conditional(
            means.new_zeros(means.shape[:2]), means, covariance[:, missing][:, :, missing]
        )
    root = torch.linalg.cholesky(covariance[:, seen][:, :, seen])
    deviation = x[:, seen] - mean[:, None, seen]  # (units, rows, seen)
    white = torch.linalg.solve_triangular(root, deviation.mT, upper=False)
    cross = torch.linalg.solve_triangular(root, covariance[:, seen][:, :, missing], upper=False)
    log_volume = torch.diagonal(root, dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    return Conditional(
        -0.5 * white.square().sum(1) - log_volume - len(seen) * LOG_ROOT_TWO_PI,
        mean[:, None, missing] + white.mT @ cross,
        covariance[:, missing][:, :, missing] - cross.mT @ cross,
    )


def region_moments(mean: Array, root: Array, regions: Sequence[Region]) -> tuple[Array, Array]:
    """E[x] and E[x²] (rows, missing), the first len(regions) columns inside their regions."""
    inner = len(regions)
    first, second = _white_moments(mean[:, :inner], root[:inner, :inner], regions)
    lead = root[:, :inner]
    shift = first @ lead.T  # (rows, missing)
    spread = np.einsum("mi,rij,mj->rm", lead, second, lead) + np.square(root[:, inner:]).sum(-1)
    return mean + shift, np.square(mean) + 2 * mean * shift + spread


def region_draws(
    rng: np.random.Generator, mean: Array, root: Array, regions: Sequence[Region]
) -> Array:
    """One x (rows, missing) for every row, the first len(regions) columns inside their regions."""
    inner = len(regions)
    e = rng.standard_normal(mean.shape)
    if inner == 1:
        e[:, :1], _ = _sequential(rng.random((len(mean), 1)), mean[:, :1], root, regions)
    elif inner:
        e[:, :inner] = _rejection(rng, mean[:, :inner], root[:inner, :inner], regions)
    x = mean + e @ root.T
    for column, region in enumerate(regions):
        x[:, column] = _into(x[:, column], region)
    return np.asarray(x)


def _white_moments(mean: Array, root: Array, regions: Sequence[Region]) -> tuple[Array, Array]:
    """E[e] (rows, regions) and E[e eᵀ] (rows, regions, regions)."""
    if not regions:
        return np.zeros(mean.shape), np.zeros((*mean.shape, 0))
    if len(regions) == 1:
        parts = [
            interval_moments((a - mean[:, 0]) / root[0, 0], (b - mean[:, 0]) / root[0, 0])
            for a, b in regions[0]
        ]
        mass, first, second = np.sum(parts, axis=0)
        mass = np.maximum(mass, 1e-300)
        return (first / mass)[:, None], (second / mass)[:, None, None]
    from scipy.stats import qmc

    points = qmc.Sobol(len(regions), seed=0).random(POINTS)
    firsts, seconds = np.empty(mean.shape), np.empty((*mean.shape, len(regions)))
    for row, centre in enumerate(mean):
        e, weight = _sequential(points, np.broadcast_to(centre, points.shape), root, regions, True)
        share = weight / np.maximum(weight.sum(), 1e-300)
        firsts[row], seconds[row] = share @ e, (e * share[:, None]).T @ e
    return firsts, seconds


def _sequential(
    u: Array, mean: Array, root: Array, regions: Sequence[Region], whole: bool = False
) -> tuple[Array, Array]:
    """e (rows, regions) from shares u, and the product of its masses (without the first's,
    which is the same for all, unless ``whole``)."""
    e, weight = np.zeros(u.shape), np.ones(len(u))
    for j, region in enumerate(regions):
        centre = mean[:, j] + e[:, :j] @ root[j, :j]
        ends = [((a - centre) / root[j, j], (b - centre) / root[j, j]) for a, b in region]
        e[:, j], mass = _union_quantile(u[:, j], ends)
        if j or whole:
            weight = weight * mass
    return e, weight


def _union_quantile(u: Array, ends: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The point with the share u below it in a union of intervals, and the mass of the union."""
    masses = np.stack([interval_moments(a, b)[0] for a, b in ends], -1)
    total = masses.sum(-1)
    reach = u * total
    z, below = np.empty(u.shape), np.zeros(u.shape)
    for (a, b), mass in zip(ends, masses.T, strict=True):
        share = np.clip((reach - below) / np.where(mass > 0, mass, 1.0), 0.0, 1.0)
        share = np.where(total > 0, share, u)  # too little mass to see: the tail's own shape
        here = (reach >= below) & ((mass > 0) | (total <= 0))
        z = np.where(here, interval_quantile(share, a, b), z)
        below = below + mass
    return z, total


def _rejection(
    rng: np.random.Generator, mean: Array, root: Array, regions: Sequence[Region]
) -> Array:
    e, pending = np.empty(mean.shape), np.arange(len(mean))
    for _ in range(ATTEMPTS):
        if not len(pending):
            return e
        tried = np.repeat(mean[pending], CANDIDATES, axis=0)
        draws, weight = _sequential(rng.random(tried.shape), tried, root, regions)
        kept = (rng.random(len(tried)) < weight).reshape(len(pending), CANDIDATES)
        accepted, best = kept.any(1), kept.argmax(1)
        draws = draws.reshape(len(pending), CANDIDATES, -1)
        e[pending[accepted]] = draws[accepted, best[accepted]]
        pending = pending[~accepted]
    for row in pending:
        e[row] = _resampled(rng, np.tile(mean[row], (POINTS, 1)), root, regions)
    return e


def _resampled(
    rng: np.random.Generator, mean: Array, root: Array, regions: Sequence[Region]
) -> Array:
    draws, weight = _sequential(rng.random(mean.shape), mean, root, regions)
    if weight.sum() <= 0:
        raise QueryError(
            f"the regions of {len(regions)} columns of a multivariate_gaussian leaf have "
            "probability zero together: give wider regions"
        )
    return np.asarray(draws[rng.choice(len(draws), p=weight / weight.sum())])


def _into(x: Array, region: Region) -> Array:
    """Rounding may have carried a draw over the end of its interval: back to the nearest end."""
    clipped = np.stack([np.clip(x, a, b) for a, b in region])
    return np.asarray(np.take_along_axis(clipped, np.abs(clipped - x).argmin(0)[None], 0)[0])

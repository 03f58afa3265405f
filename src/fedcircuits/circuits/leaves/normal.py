"""The standard normal on an interval (a, b): moments, draws and log mass, right in far tails.

    mass      Φ(b) − Φ(a)
    E[z; in]  φ(a) − φ(b)
    E[z²; in] mass + a φ(a) − b φ(b)

Φ(b) − Φ(a) cancels where both are near 1, so an interval right of zero is replaced by its mirror
image. The log mass of a narrow interval is a Gauss–Legendre sum of the density in log space,
that of a wide one log Φ(b) + log(1 − Φ(a)/Φ(b)): neither cancels, and all gradients are finite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri_exp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.deferred import torch

if TYPE_CHECKING:
    from torch import Tensor

LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
FAR = 1e8  # stands for infinity where a gradient is taken
NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)


def interval_moments(a: Array, b: Array) -> Array:
    """(3, ...): mass, E[z; in], E[z²; in] of a < z < b."""
    mirror = a > 0
    low, high = np.where(mirror, -b, a), np.where(mirror, -a, b)
    mass = np.maximum(ndtr(high) - ndtr(low), 0.0)
    first = _density(a) - _density(b)
    second = mass + _z_density(a) - _z_density(b)
    return np.stack([mass, first, np.maximum(second, 0.0)])


def log_mass_of(a: Array, b: Array) -> Array:
    """log(Φ(b) − Φ(a)) for a < b."""
    mirror = a > 0
    low, high = log_ndtr(np.where(mirror, -b, a)), log_ndtr(np.where(mirror, -a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(high + np.log(-np.expm1(low - high)))


def interval_quantile(u: Array, a: Array, b: Array) -> Array:
    """The z in (a, b) that has the share u of its mass below it, however little that mass is."""
    mirror = a > 0
    low, high = np.where(mirror, -b, a), np.where(mirror, -a, b)
    share = np.clip(np.where(mirror, 1.0 - u, u), 1e-300, 1.0)
    with np.errstate(divide="ignore"):
        log_cdf = np.logaddexp(log_ndtr(low) + np.log1p(-share), log_ndtr(high) + np.log(share))
    z = np.clip(ndtri_exp(np.minimum(log_cdf, 0.0)), low, high)
    return np.asarray(np.where(mirror, -z, z))


def log_below(b: Tensor) -> Tensor:
    """log Φ(b), finite."""
    below: Tensor = torch.special.log_ndtr(b.clamp(-FAR, FAR))
    return below


def log_interval_mass(a: Tensor, b: Tensor) -> Tensor:
    """log(Φ(b) − Φ(a)) for a < b, finite ends or not."""
    a, b = a.clamp(-FAR, FAR), b.clamp(-FAR, FAR)
    mirror = a > 0
    a, b = torch.where(mirror, -b, a), torch.where(mirror, -a, b)
    width, centre = (b - a).clamp_min(1e-30), (a + b) / 2
    narrow = width * (1 + centre.abs()) < 1
    if not bool(narrow.any()):
        return _log_wide(a, b)
    # the branch not taken is given harmless values, so that its gradient is finite as well
    small = _log_narrow(torch.where(narrow, centre, 0.0), torch.where(narrow, width, 1.0))
    return torch.where(
        narrow, small, _log_wide(torch.where(narrow, -1.0, a), torch.where(narrow, 0.0, b))
    )


def _log_narrow(centre: Tensor, width: Tensor) -> Tensor:
    terms = [
        math.log(weight / 2) - (centre + node * width / 2).square() / 2
        for node, weight in zip(NODES, WEIGHTS, strict=True)
    ]
    return torch.logsumexp(torch.stack(terms), 0) + torch.log(width) - LOG_ROOT_TWO_PI


def _log_wide(a: Tensor, b: Tensor) -> Tensor:
    below: Tensor = torch.special.log_ndtr(a)
    above: Tensor = torch.special.log_ndtr(b)
    return above + torch.log1p(-torch.exp(below - above))


def _density(z: Array) -> Array:
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(np.exp(-0.5 * np.square(z) - LOG_ROOT_TWO_PI))


def _z_density(z: Array) -> Array:
    return np.where(np.isfinite(z), z, 0.0) * _density(z)

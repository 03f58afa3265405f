"""Gaussian mass leaf for 8-bit images: values k/255, k = 0 … 255, a Gaussian seen through bins.

    f(x) = Φ((x − mean + 1/255) / σ) − Φ((x − mean) / σ)          for 0 < x < 1
    f(0) = Φ((1/255 − mean) / σ)          everything below 1/255
    f(1) = 1 − Φ((1 − mean) / σ)          everything above 1

The inner formula on all 256 values sums to Φ((256/255 − mean)/σ) − Φ(−mean/σ), less than 1; here
the end bins take the tails, so the masses sum to exactly 1. It is a hidden Gaussian y with
x = ⌊255 y⌋/255 clipped to [0, 1]; masses, draws and quantiles are those of y. A value further than
a hundredth of a step from the grid, or outside [0, 1], is IMPOSSIBLE. Pixels often come in single
precision: an end of an interval that is k/255 rounded to it means k/255.

The fit is that of a Gaussian to bin midpoints x + 1/510, less the variance (1/255)²/12 that
rounding adds. It takes one pass and no starting values; where much mass lies in the end bins it is
a fit of the clipped moments, not of the likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array, Arrays, Domain, Family, Tensors
from fedcircuits.circuits.leaves import finite
from fedcircuits.circuits.leaves.gaussian import Gaussian, check_bounds, check_normal
from fedcircuits.circuits.leaves.normal import (
    FAR,
    interval_moments,
    interval_quantile,
    log_interval_mass,
)
from fedcircuits.deferred import torch

if TYPE_CHECKING:
    from torch import Tensor

TOP = 255
GRID = np.arange(TOP + 1) / TOP
SINGLE = GRID.astype(np.float32).astype(np.float64)
ROUNDING = 1 / (12 * TOP**2)


@dataclass(frozen=True, slots=True)
class GaussianMass(Family):
    """Normal mass on the 256 levels k/255 of an 8-bit image."""

    name: ClassVar[str] = "gaussian_mass"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"mean": "real", "variance": "positive"}
    minimum_variance: float = 1e-6
    maximum_variance: float = math.inf

    def __post_init__(self) -> None:
        check_bounds(self.name, self.minimum_variance, self.maximum_variance)

    def check(self, p: Arrays) -> str | None:
        return check_normal(p)

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        k = torch.round(x * TOP)
        outside = (k < 0) | (k > TOP) | ((x * TOP - k).abs() > 0.01)
        mean, deviation = p["mean"], torch.sqrt(p["variance"])
        a = torch.where(k <= 0, -FAR, (k / TOP - mean) / deviation)
        b = torch.where(k >= TOP, FAR, ((k + 1) / TOP - mean) / deviation)
        return torch.where(outside, IMPOSSIBLE, log_interval_mass(a, b))

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        middle = x + 0.5 / TOP
        return torch.stack([middle, middle.square()])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        centred = np.stack([sums[0], sums[1] - ROUNDING * count])
        rule = Gaussian(self.minimum_variance, self.maximum_variance)
        return rule.maximise(count, centred, p)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        inside = self._masses(p) * _inside(lower, upper)
        return finite.moments(GRID, inside, -np.inf, np.inf)

    def mass(self, p: Arrays, lower: float, upper: float) -> Array:
        first, last = _grid(lower, upper)
        if first > last:
            return np.zeros(np.shape(p["mean"]))
        return np.asarray(interval_moments(*_hidden(p, first, last))[0])

    def quantile(self, u: Array, p: Arrays) -> Array:
        y = p["mean"] + np.sqrt(p["variance"]) * ndtri(u)
        return np.asarray(np.clip(np.ceil(y * TOP) - 1, 0, TOP) / TOP)

    def mode(self, p: Arrays) -> Array:
        inner = np.clip(np.floor(p["mean"] * TOP), 0, TOP)
        candidates = np.stack([inner, np.zeros_like(inner), np.full_like(inner, TOP)]) / TOP
        tensors = {name: torch.as_tensor(value) for name, value in p.items()}
        best = self.log_density(torch.as_tensor(candidates), tensors).argmax(0).cpu().numpy()
        return np.asarray(np.take_along_axis(candidates, np.asarray(best)[None], 0)[0])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        first, last = _grid(lower, upper)
        z = interval_quantile(rng.random(np.shape(p["mean"])), *_hidden(p, first, last))
        y = p["mean"] + np.sqrt(p["variance"]) * z
        return np.clip(np.floor(y * TOP), first, last) / TOP

    def _masses(self, p: Arrays) -> Array:
        """(..., 256)"""
        mean, deviation = p["mean"][..., None], np.sqrt(p["variance"])[..., None]
        cuts = (np.concatenate([[-np.inf], GRID[1:], [np.inf]]) - mean) / deviation
        return np.asarray(interval_moments(cuts[..., :-1], cuts[..., 1:])[0])


def _inside(lower: float, upper: float) -> npt.NDArray[np.bool_]:
    """Which k (256,) have lower < k/255 < upper."""
    low, high = _snapped(lower, -np.inf), _snapped(upper, np.inf)
    return np.asarray((low < GRID) & (high > GRID))


def _snapped(end: float, outward: float) -> float:
    """An end that is a level in single precision as the level in double; one float outward, which
    says that the level belongs to the interval, stays outward."""
    for number, closed in ((end, False), (float(np.nextafter(end, -outward)), True)):
        at = np.flatnonzero(SINGLE == number)
        if len(at):
            return float(np.nextafter(GRID[at[0]], outward) if closed else GRID[at[0]])
    return end


def _grid(lower: float, upper: float) -> tuple[float, float]:
    """The first and the last of them."""
    inside = np.flatnonzero(_inside(lower, upper))
    return (float(inside[0]), float(inside[-1])) if len(inside) else (1.0, 0.0)


def _hidden(p: Arrays, first: float, last: float) -> tuple[Array, Array]:
    """The interval of the standardised hidden Gaussian that gives k = first … last."""
    a = first / TOP if first > 0 else -np.inf
    b = (last + 1) / TOP if last < TOP else np.inf
    deviation = np.sqrt(p["variance"])
    return (a - p["mean"]) / deviation, (b - p["mean"]) / deviation

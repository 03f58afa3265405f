"""Gaussian leaf: log f(x) = −(x − mean)² / (2 variance) − ½ log(2π variance).

As a linear form, natural = [mean/variance, −1/(2 variance)] on the statistics [x, x²].

Maximum likelihood: mean = Σwx / Σw, variance = Σwx² / Σw − mean², kept in
[minimum_variance, maximum_variance]. Sums reach ``maximise`` on standardised data (the evaluator
passes parameters and data through ``affine``), so the bounds are relative to unit scale and the
subtraction does not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtri

from fedcircuits.circuits.graph.family import (
    LARGEST_VALUE,
    Array,
    Arrays,
    Domain,
    LinearFamily,
    Tensors,
    require_scale,
    require_value,
)
from fedcircuits.circuits.leaves.normal import interval_moments, interval_quantile
from fedcircuits.deferred import torch
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Gaussian(LinearFamily):
    """Normal density of a real variable; variance kept within bounds relative to unit scale."""

    name: ClassVar[str] = "gaussian"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"mean": "real", "variance": "positive"}
    minimum_variance: float = 1e-6
    maximum_variance: float = math.inf

    def __post_init__(self) -> None:
        check_bounds(self.name, self.minimum_variance, self.maximum_variance)

    def width(self, variable: Variable) -> int:
        return 2

    def check(self, p: Arrays) -> str | None:
        return check_normal(p)

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        variance = p["variance"]
        return -0.5 * ((x - p["mean"]).square() / variance + torch.log(2 * math.pi * variance))

    def log_density_at(self, x: float, p: Arrays) -> Array:
        variance = p["variance"]
        return -0.5 * (np.square(x - p["mean"]) / variance + np.log(2 * math.pi * variance))

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return torch.stack([x, x.square()])

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        mean, variance = p["mean"], p["variance"]
        coefficients = torch.stack([mean / variance, -0.5 / variance])
        constant = -0.5 * (mean.square() / variance + torch.log(2 * math.pi * variance))
        return coefficients, constant

    def affine(self, p: Arrays, shift: Array, scale: Array) -> dict[str, Array]:
        return {
            "mean": (p["mean"] - shift) / scale,
            "variance": p["variance"] / np.square(scale),
        }

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        weight = np.where(count > 0, count, 1.0)
        mean = sums[0] / weight
        variance = np.clip(
            sums[1] / weight - np.square(mean), self.minimum_variance, self.maximum_variance
        )
        return {
            "mean": np.where(count > 0, mean, p["mean"]),
            "variance": np.where(count > 0, variance, p["variance"]),
        }

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """Mean and variance in two passes: x is not standardised here, its square could cancel."""
        if not len(x):
            return {"mean": np.zeros(()), "variance": np.ones(())}
        variance = np.clip(np.var(x), self.minimum_variance, self.maximum_variance)
        return {"mean": np.asarray(np.mean(x)), "variance": np.asarray(variance)}

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        mean, deviation = p["mean"], np.sqrt(p["variance"])
        mass, first, second = interval_moments(
            (lower - mean) / deviation, (upper - mean) / deviation
        )
        return np.stack(
            [
                mass,
                mean * mass + deviation * first,
                np.square(mean) * mass + 2 * mean * deviation * first + p["variance"] * second,
            ]
        )

    def quantile(self, u: Array, p: Arrays) -> Array:
        return np.asarray(p["mean"] + np.sqrt(p["variance"]) * ndtri(u))

    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["mean"])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        mean, deviation = p["mean"], np.sqrt(p["variance"])
        u = rng.random(np.shape(mean))
        z = interval_quantile(u, (lower - mean) / deviation, (upper - mean) / deviation)
        return np.clip(mean + deviation * z, lower, upper)


def check_bounds(name: str, minimum: float, maximum: float) -> None:
    if not 0 < minimum <= maximum:
        raise ParameterError(
            f"family {name!r}: expected 0 < minimum_variance <= maximum_variance, "
            f"got {minimum} and {maximum}"
        )


def check_normal(p: Arrays) -> str | None:
    mean, variance = p["mean"], p["variance"]
    return require_value(mean, "mean") or require_scale(variance, "variance", LARGEST_VALUE**2)

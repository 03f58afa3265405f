"""Gamma leaf: log f(x) = (shape − 1) log x − rate x + shape log rate − log Γ(shape), x > 0.

As a linear form, natural = [−rate, shape − 1, IMPOSSIBLE] on the statistics [x, log x, outside];
outside is 1 where x <= 0, and the other statistics are then 0.

The fit uses the rows inside. With s = log mean(x) − mean(log x) the shape solves
log shape − ψ(shape) = s, by Newton's method in 1/shape (Minka 2002), kept in [minimum_shape,
maximum_shape]; rate = shape / mean(x). Constant data have s = 0 and end at maximum_shape, a
relative deviation of maximum_shape^−½.

For shape < 1 the density has no maximum (it grows without bound towards 0); its mode is then taken
to be the 0.001 quantile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import (
    digamma,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    polygamma,
)

from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    Array,
    Arrays,
    Domain,
    LinearFamily,
    Tensors,
    require_scale,
)
from fedcircuits.deferred import torch
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class Gamma(LinearFamily):
    """Positive real values by shape and rate."""

    name: ClassVar[str] = "gamma"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"shape": "positive", "rate": "positive"}
    minimum_shape: float = 1e-2
    maximum_shape: float = 1e6

    def __post_init__(self) -> None:
        if not 0 < self.minimum_shape < self.maximum_shape < np.inf:
            raise ParameterError(
                f"family {self.name!r}: expected 0 < minimum_shape < maximum_shape, "
                f"got {self.minimum_shape} and {self.maximum_shape}"
            )

    def width(self, variable: Variable) -> int:
        return 3

    def check(self, p: Arrays) -> str | None:
        for name in ("shape", "rate"):
            if wrong := require_scale(p[name], name):
                return wrong
        return None

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        shape, rate = p["shape"], p["rate"]
        value, log, outside = self.statistics(x, p).unbind(0)
        constant = shape * torch.log(rate) - torch.lgamma(shape)
        return (shape - 1) * log - rate * value + constant + outside * IMPOSSIBLE

    def log_density_at(self, x: float, p: Arrays) -> Array:
        shape, rate = p["shape"], p["rate"]
        if x <= 0:
            return np.full(np.shape(rate), -np.inf)
        constant = shape * np.log(rate) - gammaln(shape)
        return np.asarray((shape - 1) * np.log(x) - rate * x + constant)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        outside = x <= 0
        log = torch.log(torch.where(outside, 1.0, x))
        return torch.stack([torch.where(outside, 0.0, x), log, outside.to(x.dtype)])

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        shape, rate = p["shape"], p["rate"]
        coefficients = torch.stack([-rate, shape - 1, IMPOSSIBLE * torch.ones_like(rate)])
        return coefficients, shape * torch.log(rate) - torch.lgamma(shape)

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        inside = count - sums[2]
        known = (inside > 0) & (sums[0] > 0)
        weight = np.where(known, inside, 1.0)
        mean = np.maximum(np.where(known, sums[0], 1.0) / weight, SMALLEST)
        gap = np.log(mean) - np.where(known, sums[1], 0.0) / weight
        shape = np.clip(_shape(gap), self.minimum_shape, self.maximum_shape)
        return {
            "shape": np.where(known, shape, p["shape"]),
            "rate": np.where(known, shape / mean, p["rate"]),
        }

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        shape, rate = p["shape"], p["rate"]
        a, b = rate * max(lower, 0.0), rate * max(upper, 0.0)
        mass, once, twice = (_between(a, b, shape + i) for i in range(3))
        mean = shape / rate
        return np.stack([mass, mean * once, mean * (shape + 1) / rate * twice])

    def quantile(self, u: Array, p: Arrays) -> Array:
        return np.asarray(np.maximum(gammaincinv(p["shape"], u) / p["rate"], SMALLEST))

    def mode(self, p: Arrays) -> Array:
        shape, rate = p["shape"], p["rate"]
        return np.where(shape > 1, (shape - 1) / rate, self.quantile(np.asarray(1e-3), p))

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        shape, rate = p["shape"], p["rate"]
        a, b, u = rate * max(lower, 0.0), rate * max(upper, 0.0), rng.random(np.shape(shape))
        low, high = gammainc(shape, a), gammainc(shape, b)
        above, beyond = gammaincc(shape, a), gammaincc(shape, b)
        tail = a > shape  # there the survival function is the precise one
        x = np.where(
            tail,
            gammainccinv(shape, np.clip(above + u * (beyond - above), 0.0, 1.0)),
            gammaincinv(shape, np.clip(low + u * (high - low), 0.0, 1.0)),
        )
        x = np.where(_between(a, b, shape) > 0, x, shape) / rate
        return np.asarray(np.clip(np.maximum(x, SMALLEST), lower, upper))


def _between(a: Array, b: Array, shape: Array) -> Array:
    above = gammaincc(shape, a) - gammaincc(shape, b)
    below = gammainc(shape, b) - gammainc(shape, a)
    return np.asarray(np.maximum(np.where(a > shape, above, below), 0.0))


def _shape(gap: Array) -> Array:
    """The k with log k − ψ(k) = gap."""
    gap = np.maximum(gap, 1e-12)
    k = (3 - gap + np.sqrt(np.square(gap - 3) + 24 * gap)) / (12 * gap)
    for _ in range(8):
        slope = np.square(k) * (1 / k - polygamma(1, k))
        k = 1 / (1 / k + (np.log(k) - digamma(k) - gap) / np.where(slope == 0, -1.0, slope))
    return k

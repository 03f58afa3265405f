"""Exponential leaf: log f(x) = log rate − rate x, x >= 0.

As a linear form, natural = [−rate, IMPOSSIBLE] on the statistics [x, outside]; outside is 1 where
x < 0, and the other statistic is then 0. The fit uses the rows inside: 1/rate = mean(x), at least
``minimum_mean``. Without memory, an interval starting at a is the one starting at 0, times
exp(−rate a), so tails are exact; E[xⁱ; x < b] = i!/rateⁱ · P(i + 1, rate b), the regularised
incomplete gamma function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import gammainc

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    POSITIVE,
    Array,
    Arrays,
    Domain,
    LinearFamily,
    Tensors,
    require_scale,
)
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Exponential(LinearFamily):
    """Real values from 0 up by their rate."""

    name: ClassVar[str] = "exponential"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"rate": "positive"}
    allowed: ClassVar[Declared] = {"minimum_mean": POSITIVE}
    minimum_mean: float = 1e-9

    def width(self, variable: Variable) -> int:
        return 2

    def check(self, p: Arrays) -> str | None:
        return require_scale(p["rate"], "rate")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        value, outside = self.statistics(x, p).unbind(0)
        return torch.log(p["rate"]) - p["rate"] * value + outside * IMPOSSIBLE

    def log_density_at(self, x: float, p: Arrays) -> Array:
        rate = p["rate"]
        return np.asarray(np.log(rate) - rate * x if x >= 0 else np.full(np.shape(rate), -np.inf))

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return torch.stack([x.clamp_min(0.0), (x < 0).to(x.dtype)])

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        rate = p["rate"]
        return torch.stack([-rate, IMPOSSIBLE * torch.ones_like(rate)]), torch.log(rate)

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        inside = count - sums[1]
        known = inside > 0
        mean = np.maximum(sums[0] / np.where(known, inside, 1.0), self.minimum_mean)
        return {"rate": np.where(known, 1 / mean, p["rate"])}

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        rate = p["rate"]
        start = max(lower, 0.0)
        if start == np.inf:
            return np.zeros((3, *np.shape(rate)))
        reach = rate * (max(upper, start) - start)
        mass, once, twice = (gammainc(i, reach) for i in (1, 2, 3))
        first, second = once / rate, 2 * twice / np.square(rate)  # of x − start
        parts = [mass, start * mass + first, start**2 * mass + 2 * start * first + second]
        return np.asarray(np.exp(-rate * start) * np.stack(parts))

    def quantile(self, u: Array, p: Arrays) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log1p(-np.asarray(u)) / p["rate"])

    def mode(self, p: Arrays) -> Array:
        return np.zeros_like(p["rate"])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        start = max(lower, 0.0)
        share = -np.expm1(-p["rate"] * (max(upper, start) - start))
        return np.clip(start + self.quantile(share * rng.random(np.shape(share)), p), lower, upper)

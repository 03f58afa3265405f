"""Poisson leaf: log f(x) = x log rate − rate − log x!.

As a linear form, natural = [log rate, −1, IMPOSSIBLE] on the statistics [x, log x!, outside];
outside is 1 where x is negative or not a whole number, and the other statistics are then 0.

    P(i ≤ X ≤ j) = Q(j + 1, rate) − Q(i, rate) = P(i, rate) − P(j + 1, rate)

with the regularised incomplete gamma functions; the second form is used above the rate, so tails
keep their relative precision. E[x; in] = rate · mass of the interval moved down by one. The fit is
rate = Σwx / Σw over the rows inside, at least ``minimum_rate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import gammainc, gammaincc

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    LARGEST_WHOLE,
    POSITIVE,
    Array,
    Arrays,
    Domain,
    LinearFamily,
    Tensors,
    require,
)
from fedcircuits.circuits.leaves import finite
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Poisson(LinearFamily):
    """Counts by their rate."""

    name: ClassVar[str] = "poisson"
    kinds: ClassVar[frozenset[str]] = frozenset({"count"})
    domains: ClassVar[Mapping[str, Domain]] = {"rate": "positive"}
    allowed: ClassVar[Declared] = {"minimum_rate": POSITIVE}
    minimum_rate: float = 1e-6

    def width(self, variable: Variable) -> int:
        return 3

    def check(self, p: Arrays) -> str | None:
        rate = p["rate"]
        right = (rate > 0) & (rate <= LARGEST_WHOLE)
        return require(right, f"rate must be positive and at most {LARGEST_WHOLE:.0g}")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        k, factorial, outside = self.statistics(x, p).unbind(0)
        return k * torch.log(p["rate"]) - p["rate"] - factorial + outside * IMPOSSIBLE

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        outside = (x < 0) | (x != torch.floor(x))
        k = torch.where(outside, 0.0, x)
        return torch.stack([k, torch.lgamma(k + 1), outside.to(x.dtype)])

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        rate = p["rate"]
        one = torch.ones_like(rate)
        return torch.stack([torch.log(rate), -one, IMPOSSIBLE * one]), -rate

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        inside = count - sums[2]
        known = inside > 0
        rate = np.maximum(sums[0] / np.where(known, inside, 1.0), self.minimum_rate)
        return {"rate": np.where(known, rate, p["rate"])}

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        rate, (first, last) = p["rate"], finite.whole_between(lower, upper)
        mass, once, twice = (_between(first - i, last - i, rate) for i in range(3))
        return np.stack([mass, rate * once, rate * once + np.square(rate) * twice])

    def quantile(self, u: Array, p: Arrays) -> Array:
        return _search(np.asarray(u), 0.0, np.inf, p["rate"])

    def mode(self, p: Arrays) -> Array:
        return np.floor(p["rate"])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        first, last = finite.whole_between(lower, upper)
        if first <= 0 and last == np.inf:
            return np.asarray(rng.poisson(p["rate"]), dtype=np.float64)
        return _search(1.0 - rng.random(np.shape(p["rate"])), max(first, 0.0), last, p["rate"])


def _between(first: float | Array, last: float | Array, rate: Array) -> Array:
    """P(first ≤ X ≤ last)."""
    i, j = np.maximum(first, 0.0), np.maximum(np.add(last, 1.0), 0.0)
    above = gammainc(i, rate) - gammainc(j, rate)
    below = gammaincc(j, rate) - gammaincc(i, rate)
    return np.asarray(np.maximum(np.where(i > rate, above, below), 0.0))


def _search(u: Array, first: float, last: float, rate: Array) -> Array:
    """The smallest k with P(first ≤ X ≤ k) ≥ u · P(first ≤ X ≤ last), by bisection.

    Where the interval holds no mass in floating point, its point nearest to the rate.
    """
    u, rate = np.broadcast_arrays(u, rate)
    centre = np.maximum(rate, first)
    bound = np.minimum(np.ceil(centre + 40 * np.sqrt(centre) + 100), last)
    total = _between(first, last, rate)
    start = np.full(rate.shape, first)
    least = finite.least_whole(lambda k: _between(first, k, rate) >= u * total, start, bound)
    return np.where(total > 0, least, np.clip(np.floor(rate), first, bound))

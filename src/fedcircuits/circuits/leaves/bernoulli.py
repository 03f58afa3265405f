"""Bernoulli leaf: log f(x) = x log(p / (1 − p)) + log(1 − p) for the codes x = 0 and 1.

p is the probability of code 1 and is read as lying in [1e-12, 1 − 1e-12], so no value is ever
impossible; use ``Categorical`` for exact zeros. The fit is (Σwx + a) / (Σw + 2a) with a =
``smoothing`` pseudo-counts for either value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    PSEUDO_COUNTS,
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

LEAST = 1e-12
CODES = np.array([0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Bernoulli(LinearFamily):
    """A boolean by the probability of code 1."""

    name: ClassVar[str] = "bernoulli"
    kinds: ClassVar[frozenset[str]] = frozenset({"boolean"})
    domains: ClassVar[Mapping[str, Domain]] = {"probability": "unit"}
    allowed: ClassVar[Declared] = {"smoothing": PSEUDO_COUNTS}
    smoothing: float = 1e-3

    def width(self, variable: Variable) -> int:
        return 1

    def check(self, p: Arrays) -> str | None:
        one = p["probability"]
        return require((one >= 0) & (one <= 1), "probability must be between 0 and 1")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        one, zero = _logs(p["probability"])
        return x * one + (1 - x) * zero

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return x[None]

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        one, zero = _logs(p["probability"])
        return (one - zero)[None], zero

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        total = count + 2 * self.smoothing
        one = (sums[0] + self.smoothing) / np.where(total > 0, total, 1.0)
        kept = np.clip(one, LEAST, 1 - LEAST)
        return {"probability": np.where(count > 0, kept, p["probability"])}

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        even = {"probability": np.array(0.5)}
        return self.maximise(np.array(float(len(x))), np.array([x.sum()]), even)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        return finite.moments(CODES, _table(p), lower, upper)

    def quantile(self, u: Array, p: Arrays) -> Array:
        return finite.quantile(CODES, _table(p), u)

    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["probability"] > 0.5, dtype=np.float64)

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        return finite.sample(rng, CODES, _table(p), lower, upper)


def _logs(probability: Tensor) -> tuple[Tensor, Tensor]:
    """log p and log(1 − p); 1 − 1e-12 may have become 1 in single precision."""
    return torch.log(probability.clamp_min(LEAST)), torch.log((1 - probability).clamp_min(LEAST))


def _table(p: Arrays) -> Array:
    one = np.clip(p["probability"], LEAST, 1 - LEAST)
    return np.stack([1 - one, one], -1)

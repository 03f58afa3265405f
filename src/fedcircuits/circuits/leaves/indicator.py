"""Indicator leaf: all mass on one code, f(x) = 1 where x = code and 0 elsewhere.

A leaf of C units with codes 0 … C − 1 exposes a variable of C values to the sums above it, which
learn everything: the leaf's own parameter never changes. Its one statistic counts how often its
code was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    Array,
    Arrays,
    Domain,
    Family,
    Tensors,
    require,
)
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Indicator(Family):
    """All mass on one code; nothing to learn."""

    name: ClassVar[str] = "indicator"
    kinds: ClassVar[frozenset[str]] = frozenset({"category", "boolean"})
    domains: ClassVar[Mapping[str, Domain]] = {"code": "fixed"}

    def check(self, p: Arrays) -> str | None:
        code = p["code"]
        right = np.isfinite(code) & (code >= 0) & (code == np.floor(code))
        return require(right, "code must be a whole number, 0 or more")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        hit = x == p["code"]
        return torch.where(hit, 0.0, IMPOSSIBLE).to(p["code"].dtype)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return (x == p["code"]).to(x.dtype)[None]

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        return {"code": np.asarray(p["code"])}

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """The commonest code, for a single unit; a leaf of C units has codes 0 … C − 1."""
        counts = np.bincount(x.astype(np.int64), minlength=1)
        return {"code": np.array(float(counts.argmax()))}

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        code = p["code"]
        inside = ((code > lower) & (code < upper)).astype(np.float64)
        return np.stack([inside, code * inside, np.square(code) * inside])

    def quantile(self, u: Array, p: Arrays) -> Array:
        return np.broadcast_to(p["code"], np.broadcast_shapes(np.shape(u), np.shape(p["code"])))

    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["code"])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        return np.asarray(p["code"])

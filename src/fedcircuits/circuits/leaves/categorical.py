"""Categorical leaf: f(x) = probability[x] for the codes or counts x = 0 … C − 1.

As a linear form, natural = log probability on the one-hot statistics, constant 0. A probability of
exactly 0 is allowed and makes its value IMPOSSIBLE. x must be a code of the variable: the linear
form does not recognise other numbers. The fit is that of smoothed frequencies
(``finite``): ``smoothing`` pseudo-counts for every value, 0 for plain frequencies. A count has as
many values as its variable declares (``Variable.most``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    PSEUDO_COUNTS,
    Array,
    Arrays,
    Domain,
    TabledFamily,
    Tensors,
    log_of,
)
from fedcircuits.circuits.leaves import finite
from fedcircuits.circuits.leaves.ranges import LevelRanges
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Categorical(TabledFamily):
    """A probability for every code; exact zeros allowed."""

    name: ClassVar[str] = "categorical"
    kinds: ClassVar[frozenset[str]] = frozenset({"category", "boolean", "count"})
    domains: ClassVar[Mapping[str, Domain]] = {"probability": "simplex"}
    allowed: ClassVar[Declared] = {"smoothing": PSEUDO_COUNTS}
    smoothing: float = 1e-3
    prior: Mapping[str, Array] | None = None  # by name: pseudo-counts of many levels instead
    ranges: LevelRanges | None = None  # more of them, for columns with a prior

    def shapes(self, variable: Variable) -> dict[str, tuple[int | None, ...]]:
        return {"probability": (variable.levels,)}

    def width(self, variable: Variable) -> int:
        return variable.levels

    def check(self, p: Arrays) -> str | None:
        return finite.check_probability(p["probability"])

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        logs = log_of(p["probability"])
        terms = (torch.where(x == code, logs[..., code], 0.0) for code in range(logs.shape[-1]))
        log_density = sum(terms, torch.zeros((), dtype=logs.dtype, device=logs.device))
        known = (x >= 0) & (x < logs.shape[-1]) & (x == torch.floor(x))
        return torch.where(known, log_density, IMPOSSIBLE)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return torch.stack([(x == code).to(x.dtype) for code in range(p["probability"].shape[-1])])

    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        logs = log_of(p["probability"])
        return logs.movedim(-1, 0), torch.zeros_like(logs[..., 0])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        old = p["probability"]
        return {"probability": finite.frequencies(count, sums, self.smoothing, old)}

    def pseudo_counts(self, name: str, levels: int) -> Array:
        pseudo = None if self.prior is None else self.prior.get(name)
        return np.full(levels, self.smoothing) if pseudo is None else pseudo

    def drawn_to(self, names: Sequence[str], sums: Array) -> Array | None:
        ranges, levels = self.ranges, sums.shape[1]
        if ranges is None or levels not in ranges.pooled or ranges.names.isdisjoint(names):
            return None
        into, inside = ranges.member(levels)
        drawn = np.zeros_like(sums)
        for i, name in enumerate(names):
            if name in ranges.names:
                rows = ranges.times * self.pseudo_counts(name, levels).sum()
                counts = np.maximum(sums[i], 0.0)  # (levels, units)
                shares = counts / np.maximum(counts.sum(axis=0), 1e-300)
                drawn[i] = rows * inside.T @ (into @ shares)
        return drawn

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        even = {"probability": np.full(variable.levels, 1 / variable.levels)}
        counts = np.bincount(x.astype(np.int64), minlength=variable.levels).astype(np.float64)
        return self.maximise(np.array(float(len(x))), counts, even)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        return finite.moments(_codes(p), p["probability"], lower, upper)

    def quantile(self, u: Array, p: Arrays) -> Array:
        return finite.quantile(_codes(p), p["probability"], u)

    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["probability"].argmax(-1), dtype=np.float64)

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        return finite.sample(rng, _codes(p), p["probability"], lower, upper)


def _codes(p: Arrays) -> Array:
    return np.arange(p["probability"].shape[-1], dtype=np.float64)

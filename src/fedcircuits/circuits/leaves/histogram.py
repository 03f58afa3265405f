"""Histogram leaves: a bin b = [edge_b, edge_b+1) holds probability_b, spread evenly over it.

    Histogram       real:  f(x) = probability_b / (edge_b+1 − edge_b); the last bin is closed
    CountHistogram  count: edges are halves, a bin of n integers gives each probability_b / n

Outside the edges, and in a bin of probability 0, f is 0: IMPOSSIBLE. There is no tail: choose edges
that hold all values that can come, or mix with a family that has tails. Edges may differ between
units, their number may not. The fit keeps the edges and takes smoothed frequencies (``finite``) of
the rows that fall inside them, with ``smoothing`` pseudo-counts for every bin. Learning starts with
``bins`` bins of one width that reach beyond the values seen; those of a count whose range is
declared (``Variable.most``) cover the whole of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Declared, Whole
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    PSEUDO_COUNTS,
    Array,
    Arrays,
    Domain,
    Family,
    Tensors,
    log_of,
    require,
    require_value,
)
from fedcircuits.circuits.leaves import finite
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Histogram(Family):
    """Piecewise constant density of a real variable."""

    name: ClassVar[str] = "histogram"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {"edges": "fixed", "probability": "simplex"}
    allowed: ClassVar[Declared] = {"smoothing": PSEUDO_COUNTS, "bins": Whole(3)}
    smoothing: float = 1e-3
    bins: int = 16

    def shapes(self, variable: Variable) -> dict[str, tuple[int | None, ...]]:
        return {"edges": (None,), "probability": (None,)}

    def check(self, p: Arrays) -> str | None:
        edges, bins = p["edges"], p["probability"].shape[-1]
        if edges.shape[-1] != bins + 1:
            return f"edges must be one more than bins: {bins + 1}, got {edges.shape[-1]}"
        wrong = require_value(edges, "edges") or require(
            np.diff(edges) > 0, "edges must be finite and ascending"
        )
        return wrong or finite.check_probability(p["probability"])

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        index, outside = _bin(x, p["edges"])
        heights = log_of(p["probability"]) - torch.log(p["edges"].diff(dim=-1))
        bins = heights.shape[-1]
        offset = torch.arange(heights[..., 0].numel()).reshape(heights.shape[:-1]) * bins
        inside = heights.reshape(-1)[(index + offset.to(index.device))]
        return torch.where(outside, IMPOSSIBLE, inside)

    def log_density_at(self, x: float, p: Arrays) -> Array | None:
        edges = p["edges"]
        index = (x >= edges[..., 1:-1]).sum(axis=-1, keepdims=True)
        with np.errstate(divide="ignore"):
            heights = np.log(p["probability"]) - np.log(np.diff(edges))
        inside = np.take_along_axis(heights, index, axis=-1)[..., 0]
        outside = (x < edges[..., 0]) | (x > edges[..., -1])
        return np.where(outside, -np.inf, inside)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        index, outside = _bin(x, p["edges"])
        bins = torch.where(outside, -1, index)
        return torch.stack([(bins == b).to(x.dtype) for b in range(p["probability"].shape[-1])])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        new = finite.frequencies(count, sums, self.smoothing, p["probability"])
        return {"edges": np.asarray(p["edges"]), "probability": new}

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """Bins of one width, the first and last of them beyond all values."""
        low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
        if not np.spacing(max(abs(low), abs(high))) * 1e3 < high - low:
            low, high = low - 0.5 * max(1.0, abs(low)), high + 0.5 * max(1.0, abs(high))
        step = (high - low) / (self.bins - 2)
        return self._counted(x, np.linspace(low - step, high + step, self.bins + 1))

    def _counted(self, x: Array, edges: Array) -> dict[str, Array]:
        even = {"edges": edges, "probability": np.full(len(edges) - 1, 1 / (len(edges) - 1))}
        counts = np.histogram(x, edges)[0].astype(np.float64)
        return self.maximise(np.array(float(len(x))), counts, even)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        low, high = p["edges"][..., :-1], p["edges"][..., 1:]
        a, b = np.clip(lower, low, high), np.clip(upper, low, high)
        mass = p["probability"] * np.maximum(b - a, 0.0) / (high - low)  # (..., bins)
        second = (np.square(a) + a * b + np.square(b)) / 3
        return np.stack([mass.sum(-1), (mass * (a + b) / 2).sum(-1), (mass * second).sum(-1)])

    def quantile(self, u: Array, p: Arrays) -> Array:
        index, share = _locate(p["probability"], u)
        low, high = _ends(p["edges"], index)
        return np.asarray(low + share * (high - low))

    def mode(self, p: Arrays) -> Array:
        index = np.argmax(p["probability"] / np.diff(p["edges"]), -1)
        return np.asarray(np.add(*_ends(p["edges"], index)) / 2)

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        """The histogram cut to (lower, upper) is again one."""
        edges = np.clip(p["edges"], lower, upper)
        kept = np.maximum(np.diff(edges), 0.0) / np.diff(p["edges"]) * p["probability"]
        total = kept.sum(-1, keepdims=True)
        part = np.where(total > 0, kept / np.where(total > 0, total, 1.0), 1 / kept.shape[-1])
        u = rng.random(total.shape[:-1])
        return np.clip(
            Histogram.quantile(self, u, {"edges": edges, "probability": part}), lower, upper
        )


@dataclass(frozen=True, slots=True)
class CountHistogram(Histogram):
    """Counts in bins of whole numbers, each number of a bin equally likely."""

    name: ClassVar[str] = "count_histogram"
    kinds: ClassVar[frozenset[str]] = frozenset({"count"})

    def check(self, p: Arrays) -> str | None:
        if wrong := Histogram.check(self, p):
            return wrong
        halves = (p["edges"] % 1 == 0.5) & (p["edges"] >= -0.5)
        return require(halves, "edges must be whole numbers plus a half, from -0.5 up")

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """Bins of as many whole numbers each as it takes to go beyond the largest value, or to
        cover the declared range: every value that can come has mass."""
        if variable.levels:
            edges = np.unique(np.round(np.linspace(0, variable.levels, self.bins + 1)))
            return self._counted(x, edges - 0.5)
        low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
        low = max(low - np.ceil((high - low) / (self.bins - 2)), 0.0)
        width = max(np.ceil((high - low + 2) / self.bins), 1.0)
        return self._counted(x, low - 0.5 + width * np.arange(self.bins + 1))

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        return torch.where(x == torch.floor(x), Histogram.log_density(self, x, p), IMPOSSIBLE)

    def log_density_at(self, x: float, p: Arrays) -> None:
        return None  # counts are regions

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        low, high = p["edges"][..., :-1], p["edges"][..., 1:]
        first = np.clip(np.floor(lower) + 1, low + 0.5, high + 0.5)
        last = np.clip(np.ceil(upper) - 1, low - 0.5, high - 0.5)
        size = np.maximum(last - first + 1, 0.0)
        mass, middle = p["probability"] * size / (high - low), (first + last) / 2
        second = np.square(middle) + (np.square(size) - 1) / 12
        return np.stack([mass.sum(-1), (mass * middle).sum(-1), (mass * second).sum(-1)])

    def quantile(self, u: Array, p: Arrays) -> Array:
        index, share = _locate(p["probability"], u)
        low, high = _ends(p["edges"], index)
        steps = np.ceil(share * (high - low) - 1e-9)  # forgives the rounding of u
        return np.clip(low - 0.5 + steps, low + 0.5, high - 0.5)

    def mode(self, p: Arrays) -> Array:
        index = np.argmax(p["probability"] / np.diff(p["edges"]), -1)
        return np.asarray(_ends(p["edges"], index)[0] + 0.5)

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        first, last = np.floor(lower) + 1, np.ceil(upper) - 1
        x = Histogram.sample(self, rng, p, first - 0.5, last + 0.5)
        low, high = p["edges"][..., 0] + 0.5, p["edges"][..., -1] - 0.5
        return np.clip(np.clip(np.round(x), low, high), first, last)


def _bin(x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The bin of every x, and where x is in none. Edge by edge, to need no (x, edges) table."""
    last = edges.shape[-1] - 2
    passed = [(x >= edge).long() for edge in edges[..., 1:-1].unbind(-1)]
    index = sum(passed, torch.zeros_like(x + edges[..., 0], dtype=torch.long)).clamp_max(last)
    return index, (x < edges[..., 0]) | (x > edges[..., -1])


def _locate(probability: Array, u: Array) -> tuple[Index, Array]:
    """The bin that the quantile u falls in, and the share of the bin below it."""
    cumulative = np.cumsum(probability, -1)
    cumulative = cumulative / cumulative[..., -1:]
    u = np.broadcast_to(u, np.broadcast_shapes(np.shape(u), probability.shape[:-1]))[..., None]
    index = np.argmax(cumulative >= np.maximum(u, 1e-300), -1)[..., None]
    shape = (*index.shape[:-1], probability.shape[-1])
    upper = np.take_along_axis(np.broadcast_to(cumulative, shape), index, -1)
    held = np.take_along_axis(np.broadcast_to(probability, shape), index, -1)
    share = 1 - (upper - u) / held
    return index[..., 0], np.clip(share[..., 0], 0.0, 1.0)


def _ends(edges: Array, index: Index) -> tuple[Array, Array]:
    edges = np.broadcast_to(edges, (*np.shape(index), edges.shape[-1]))
    at = np.asarray(index)[..., None]
    return (
        np.take_along_axis(edges, at, -1)[..., 0],
        np.take_along_axis(edges, at + 1, -1)[..., 0],
    )

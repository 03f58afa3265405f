"""Discretised logistic leaf: counts k = 0 … n, a logistic variable seen through bins of width 1.

    f(k) = σ((k + ½ − mean) / scale) − σ((k − ½ − mean) / scale)          for 0 < k < n
    f(0) = σ((½ − mean) / scale)          everything below ½
    f(n) = 1 − σ((n − ½ − mean) / scale)          everything above n − ½

with σ the logistic function, so that the masses sum to exactly 1. n is ``top``, a parameter that is
given and not learned: the largest value that the variable declares, or the largest seen. A number
outside 0 … n, or one that is not whole, is IMPOSSIBLE. With a and b the ends of a bin,

    log (σ(b) − σ(a)) = log σ(b) + log σ(−a) + log (1 − e^(a − b))

keeps its digits in both tails. The fit is that of the moments: variance = scale² π² / 3, less the
1/12 that rounding adds. It takes one pass and is close to the best likelihood, and a fit of the
clipped moments where much mass lies in the end bins: EM with it may lose a little likelihood.
Scales are at least ``minimum_scale``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, logit

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    POSITIVE,
    Array,
    Arrays,
    Domain,
    Family,
    Tensors,
    require,
    require_scale,
    require_value,
)
from fedcircuits.circuits.leaves import finite
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor

MOST = 65_535  # the largest top: masses are written out for moments


@dataclass(frozen=True, slots=True)
class DiscretisedLogistic(Family):
    """Logistic mass on the whole numbers from 0 to ``top``."""

    name: ClassVar[str] = "discretised_logistic"
    kinds: ClassVar[frozenset[str]] = frozenset({"count"})
    domains: ClassVar[Mapping[str, Domain]] = {"mean": "real", "scale": "positive", "top": "fixed"}
    allowed: ClassVar[Declared] = {"minimum_scale": POSITIVE}
    minimum_scale: float = 0.05

    def check(self, p: Arrays) -> str | None:
        top = p["top"]
        whole = (top >= 1) & (top <= MOST) & (top == np.floor(top))
        return (
            require_value(p["mean"], "mean")
            or require_scale(p["scale"], "scale")
            or require(whole, f"top must be whole numbers from 1 to {MOST}")
        )

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        mean, scale, top = p["mean"], p["scale"], p["top"]
        last, outside = x > top - 0.5, (x < 0) | (x > top + 0.5) | (x != torch.floor(x))
        a, b = (x - 0.5 - mean) / scale, (x + 0.5 - mean) / scale
        upper = torch.where(last, 0.0, torch.nn.functional.logsigmoid(b))
        lower = torch.where(x <= 0, 0.0, torch.nn.functional.logsigmoid(-a))
        inner = torch.where((x <= 0) | last, 0.0, torch.log(-torch.expm1(-1 / scale)))
        return torch.where(outside, IMPOSSIBLE, upper + lower + inner)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        return torch.stack([x, x.square()])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        known = count > 0
        n = np.where(known, count, 1.0)
        mean = sums[0] / n
        variance = np.maximum(sums[1] / n - np.square(mean) - 1 / 12, 0.0)
        scale = np.maximum(np.sqrt(3 * variance) / np.pi, self.minimum_scale)
        return {
            "mean": np.where(known, mean, p["mean"]),
            "scale": np.where(known, scale, p["scale"]),
            "top": np.asarray(p["top"]),
        }

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        top = max(1.0, float(x.max(initial=0.0))) if variable.most is None else variable.most
        even = {"mean": np.array(top / 2), "scale": np.array(top / 4), "top": np.array(float(top))}
        return self.maximise(np.array(float(len(x))), np.array([x.sum(), (x**2).sum()]), even)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        values = np.arange(float(np.max(p["top"])) + 1)
        arrays = {name: np.asarray(a)[..., None] for name, a in p.items()}
        return finite.moments(values, _between(arrays, values, values), lower, upper)

    def mass(self, p: Arrays, lower: float, upper: float) -> Array:
        first, last = np.maximum(np.floor(lower) + 1, 0.0), np.ceil(upper) - 1
        return np.where(first <= last, _between(p, first, last), 0.0)

    def quantile(self, u: Array, p: Arrays) -> Array:
        y = p["mean"] + p["scale"] * logit(u)
        return np.asarray(np.clip(np.ceil(y - 0.5 - 1e-9), 0.0, p["top"]))

    def mode(self, p: Arrays) -> Array:
        inner = np.clip(np.round(p["mean"]), 0.0, p["top"])
        candidates = np.stack([inner, np.zeros_like(inner), p["top"] + np.zeros_like(inner)])
        tensors = {name: torch.as_tensor(value) for name, value in p.items()}
        best = self.log_density(torch.as_tensor(candidates), tensors).argmax(0).cpu().numpy()
        return np.asarray(np.take_along_axis(candidates, np.asarray(best)[None], 0)[0])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        first = np.maximum(np.floor(lower) + 1, 0.0)
        last = np.minimum(np.ceil(upper) - 1, p["top"])
        a, b = _ends(p, first, last)
        drawn = p["mean"] + p["scale"] * _inverse(a, b, rng.random(np.shape(a)))
        return np.clip(np.round(drawn), first, last)


def _ends(p: Arrays, first: Array | float, last: Array | float) -> tuple[Array, Array]:
    """The interval of the standardised hidden variable that gives first … last."""
    a = np.where(np.less_equal(first, 0), -np.inf, (first - 0.5 - p["mean"]) / p["scale"])
    b = np.where(np.greater_equal(last, p["top"]), np.inf, (last + 0.5 - p["mean"]) / p["scale"])
    return a, b


def _between(p: Arrays, first: Array | float, last: Array | float) -> Array:
    """P(first ≤ k ≤ last), from the tail that is smaller; 0 beyond ``top``."""
    a, b = _ends(p, first, last)
    mass = np.where(a > 0, expit(-a) - expit(-b), expit(b) - expit(a))
    return np.where(np.greater(first, p["top"]), 0.0, np.maximum(mass, 0.0))


def _inverse(a: Array, b: Array, u: Array) -> Array:
    """The quantile u of the standard logistic distribution between a and b."""
    above = a > 0
    low, high = np.where(above, -b, a), np.where(above, -a, b)
    share = expit(low) + np.where(above, 1 - u, u) * (expit(high) - expit(low))
    inverse = logit(np.clip(share, 1e-300, 1 - 1e-16))
    return np.asarray(np.clip(np.where(above, -inverse, inverse), a, b))

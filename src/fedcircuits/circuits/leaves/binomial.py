"""Binomial leaf: counts x = 0 … n of successes in n = ``trials``, for instance 8-bit grey values.

    log f(x) = log n! − log x! − log (n − x)! + x log q + (n − x) log (1 − q)

q is ``probability``, read as lying in [1e-12, 1 − 1e-12]; a number outside 0 … n, or one that
is not whole, is IMPOSSIBLE. The binomial coefficient depends on n, so this is not a linear form: n
is a parameter of every leaf, given and not learned.

    P(X ≥ k) = I_q(k, n − k + 1)        the regularised incomplete beta function

is used above the mean and its complement below, so tails keep their relative precision. With B_m
the mass under m trials, E[x; i … j] = n q B_{n−1}(i − 1 … j − 1), and E[x (x − 1); i … j] =
n (n − 1) q² B_{n−2}(i − 2 … j − 2). The fit is q = (Σwx + a) / (n Σw + 2a) over the rows inside,
with a = ``smoothing`` pseudo-successes and as many failures. Learning starts with the larger of the
setting ``trials`` and the greatest value seen, so that what was seen can come again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import betainc, betaincc

from fedcircuits.arguments import Declared, Whole
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    LARGEST_WHOLE,
    PSEUDO_COUNTS,
    Array,
    Arrays,
    Domain,
    Family,
    Tensors,
    require,
)
from fedcircuits.circuits.leaves import finite
from fedcircuits.circuits.leaves.bernoulli import LEAST
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Binomial(Family):
    """Counts up to ``trials`` by the probability of one success."""

    name: ClassVar[str] = "binomial"
    kinds: ClassVar[frozenset[str]] = frozenset({"count"})
    domains: ClassVar[Mapping[str, Domain]] = {"probability": "unit", "trials": "fixed"}
    allowed: ClassVar[Declared] = {"trials": Whole(1), "smoothing": PSEUDO_COUNTS}
    trials: int = 255
    smoothing: float = 1e-3

    def check(self, p: Arrays) -> str | None:
        q, n = p["probability"], p["trials"]
        whole = (n >= 1) & (n <= LARGEST_WHOLE) & (n == np.floor(n))
        return require((q >= 0) & (q <= 1), "probability must be between 0 and 1") or require(
            whole, f"trials must be whole numbers from 1 to {LARGEST_WHOLE:.0g}"
        )

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        q, n = p["probability"], _shared(p["trials"])
        k, outside = _inside(x, n)
        success, failure = (torch.log(t.clamp_min(LEAST)) for t in (q, 1 - q))
        log_density = _log_choose(k, n) + k * success + (n - k) * failure
        return torch.where(outside, IMPOSSIBLE, log_density)

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        k, outside = _inside(x, _shared(p["trials"]))
        return torch.stack([k, outside.to(x.dtype)])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        rows = count - sums[1]
        known = rows > 0
        total = p["trials"] * np.where(known, rows, 1.0) + 2 * self.smoothing
        q = np.clip((sums[0] + self.smoothing) / total, LEAST, 1 - LEAST)
        return {
            "probability": np.where(known, q, p["probability"]),
            "trials": np.asarray(p["trials"]),
        }

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        trials = max(float(self.trials), float(x.max(initial=0.0)))
        even = {"probability": np.array(0.5), "trials": np.array(trials)}
        return self.maximise(np.array(float(len(x))), np.array([x.sum(), 0.0]), even)

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        q, n = _clipped(p)
        first, last = finite.whole_between(lower, upper)
        mass, once, twice = (_between(first - i, last - i, q, n - i) for i in range(3))
        mean = n * q * once
        return np.stack([mass, mean, mean + n * (n - 1) * np.square(q) * twice])

    def mass(self, p: Arrays, lower: float, upper: float) -> Array:
        return _between(*finite.whole_between(lower, upper), *_clipped(p))

    def quantile(self, u: Array, p: Arrays) -> Array:
        return _search(np.asarray(u), 0.0, np.inf, *_clipped(p))

    def mode(self, p: Arrays) -> Array:
        q, n = _clipped(p)
        return np.asarray(np.minimum(np.floor((n + 1) * q), n))

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        q, n = _clipped(p)
        first, last = finite.whole_between(lower, upper)
        if first <= 0 and np.all(last >= n):
            return np.asarray(rng.binomial(n.astype(np.int64), q), dtype=np.float64)
        return _search(1.0 - rng.random(q.shape), max(first, 0.0), last, q, n)


def _shared(n: Tensor) -> Tensor:
    """One number where all leaves have the same: coefficients are then computed once for all."""
    alike = not n.requires_grad and n.numel() > 1 and bool((n == n.reshape(-1)[0]).all())
    return n.reshape(-1)[0] if alike else n


def _inside(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """x with 0 for what cannot be, and where that is; the half leaves room for differences in n."""
    outside = (x < 0) | (x != torch.floor(x)) | (x > n + 0.5)
    return torch.where(outside, 0.0, x), outside


def _log_choose(k: Tensor, n: Tensor) -> Tensor:
    """In double precision: a difference of large logarithms."""
    wide, m = k.double(), n.double()
    log_choose = torch.lgamma(m + 1) - torch.lgamma(wide + 1) - torch.lgamma(m - wide + 1)
    return log_choose.to(k.dtype)


def _clipped(p: Arrays) -> tuple[Array, Array]:
    q, n = np.broadcast_arrays(np.clip(p["probability"], LEAST, 1 - LEAST), p["trials"])
    return np.asarray(q), np.asarray(n)


def _between(first: float | Array, last: float | Array, q: Array, n: Array) -> Array:
    """P(first ≤ X ≤ last)."""
    i, j = (np.clip(end, 0.0, np.maximum(n + 1, 0.0)) for end in (first, np.add(last, 1.0)))
    above = _tail(i, q, n) - _tail(j, q, n)
    below = _head(j, q, n) - _head(i, q, n)
    return np.asarray(np.maximum(np.where(i > n * q, above, below), 0.0))


def _tail(k: Array, q: Array, n: Array) -> Array:
    """P(X ≥ k), k from 0 to n + 1."""
    inner = betainc(np.maximum(k, 1.0), np.maximum(n - k + 1, 1.0), q)
    return np.where(k <= 0, 1.0, np.where(k > n, 0.0, inner))


def _head(k: Array, q: Array, n: Array) -> Array:
    """P(X < k)."""
    inner = betaincc(np.maximum(k, 1.0), np.maximum(n - k + 1, 1.0), q)
    return np.where(k <= 0, 0.0, np.where(k > n, 1.0, inner))


def _search(u: Array, first: float, last: float, q: Array, n: Array) -> Array:
    """The smallest k with P(first ≤ X ≤ k) ≥ u · P(first ≤ X ≤ last), by bisection.

    Where the interval holds no mass in floating point, its point nearest to the mean.
    """
    u, q, n = np.broadcast_arrays(u, q, n)
    low, high = np.minimum(first, n), np.minimum(last, n)
    total = _between(low, high, q, n)
    nearest = np.clip(np.floor(n * q), low, high)
    least = finite.least_whole(lambda k: _between(low, k, q, n) >= u * total, low, high)
    return np.where(total > 0, least, nearest)

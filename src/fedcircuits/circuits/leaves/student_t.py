"""Student t leaf: z = (x − location) / scale has density c (1 + z²/ν)^−(ν+1)/2, ν = degrees.

EM as a Gaussian of unknown precision: u = (ν + 1) / (ν + z²) is the expected precision of a row
under the present parameters. The statistics [u, u z, u z²] are taken about the present location
and scale, where they are well conditioned in any precision; then

    location += scale · Σuz / Σu        scale² *= Σuz² / Σu − (Σuz / Σu)²

(dividing by Σu, not by the number of rows, is the faster EM of Kent, Tyler and Vardi 1994; both
rest at the same point). scale stays at or above ``minimum_scale``, degrees as given;
the setting ``degrees`` is what learning starts with.

Partial moments of z between a and b, with C = (1 + z²/ν)^−½:

    E[z; in]  = c ν [C(a)^(ν−1) − C(b)^(ν−1)] / (ν − 1)
    E[z²; in] = (ν mass − [z (ν + z²) f(z)] from a to b) / (ν − 2)

Within 0.001 of ν = 2, where the second form is 0/0, it is interpolated over ν (relative error
below 1e-7 for ends of up to 1e3). The second moment of an unbounded interval is infinite for
ν <= 2; the first is infinite for ν <= 1, and undefined (NaN) if both ends are unbounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import exprel, gammaln, stdtr, stdtrit

from fedcircuits.arguments import Declared
from fedcircuits.circuits.graph.family import (
    POSITIVE,
    Array,
    Arrays,
    Domain,
    Family,
    Tensors,
    require_scale,
    require_value,
)
from fedcircuits.deferred import torch
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor

NEAR = 1e-3  # how near to 2 degrees the second moment is interpolated


@dataclass(frozen=True, slots=True)
class StudentT(Family):
    """A real variable with heavy tails; ``degrees`` are given, not learned."""

    name: ClassVar[str] = "student_t"
    kinds: ClassVar[frozenset[str]] = frozenset({"real"})
    domains: ClassVar[Mapping[str, Domain]] = {
        "location": "real",
        "scale": "positive",
        "degrees": "fixed",
    }
    allowed: ClassVar[Declared] = {"minimum_scale": POSITIVE, "degrees": POSITIVE}
    minimum_scale: float = 1e-6
    degrees: float = 4.0

    def check(self, p: Arrays) -> str | None:
        for name in ("scale", "degrees"):
            if wrong := require_scale(p[name], name):
                return wrong
        return require_value(p["location"], "location")

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        degrees = p["degrees"]
        wide = degrees.double()  # the difference of two large logarithms
        constant = torch.lgamma((wide + 1) / 2) - torch.lgamma(wide / 2)
        constant = constant - 0.5 * torch.log(math.pi * wide)
        z = (x - p["location"]) / p["scale"]
        tail = (degrees + 1) / 2 * torch.log1p(z.square() / degrees)
        return constant.to(degrees.dtype) - torch.log(p["scale"]) - tail

    def log_density_at(self, x: float, p: Arrays) -> Array:
        degrees, z = p["degrees"], (x - p["location"]) / p["scale"]
        constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2)
        constant = constant - 0.5 * np.log(math.pi * degrees) - np.log(p["scale"])
        return np.asarray(constant - (degrees + 1) / 2 * np.log1p(np.square(z) / degrees))

    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        degrees = p["degrees"]
        z = (x - p["location"]) / p["scale"]
        u = (degrees + 1) / (degrees + z.square())
        return torch.stack([u, u * z, u * z.square()])

    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        known = (count > 0) & (sums[0] > 0)
        precision = np.where(known, sums[0], 1.0)
        shift = sums[1] / precision
        spread = np.sqrt(np.maximum(sums[2] / precision - np.square(shift), 0.0))
        scale = np.maximum(p["scale"] * spread, self.minimum_scale)
        return {
            "location": np.where(known, p["location"] + p["scale"] * shift, p["location"]),
            "scale": np.where(known, scale, p["scale"]),
            "degrees": np.asarray(p["degrees"]),
        }

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """Median and median deviation, with the family's own ``degrees``."""
        location = np.median(x) if len(x) else np.zeros(())
        spread = 1.4826 * np.median(np.abs(x - location)) if len(x) else np.ones(())
        scale = spread if spread > 0 else np.std(x)  # most values equal, not all
        return {
            "location": np.asarray(location),
            "scale": np.maximum(scale, self.minimum_scale),
            "degrees": np.array(self.degrees),
        }

    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        location, scale, degrees = p["location"], p["scale"], p["degrees"]
        if not lower < upper:
            return np.zeros((3, *np.shape(location)))
        a, b = (lower - location) / scale, (upper - location) / scale
        mass, first, second = _mass(a, b, degrees), _first(a, b, degrees), _second(a, b, degrees)
        with np.errstate(invalid="ignore"):  # the undefined ones are NaN on purpose
            whole = np.square(location) * mass + 2 * location * scale * first
            whole = np.where(np.isinf(second), np.inf, whole + np.square(scale) * second)
        return np.stack([mass, location * mass + scale * first, whole])

    def quantile(self, u: Array, p: Arrays) -> Array:
        return np.asarray(p["location"] + p["scale"] * _quantile(np.asarray(u), p["degrees"]))

    def mode(self, p: Arrays) -> Array:
        return np.asarray(p["location"])

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        location, scale, degrees = p["location"], p["scale"], p["degrees"]
        a, b = (lower - location) / scale, (upper - location) / scale
        mirror = a > 0
        low = stdtr(degrees, np.where(mirror, -b, a))
        high = stdtr(degrees, np.where(mirror, -a, b))
        z = _quantile(low + (high - low) * rng.random(np.shape(location)), degrees)
        return np.clip(location + scale * np.where(mirror, -z, z), lower, upper)


def _mass(a: Array, b: Array, degrees: Array) -> Array:
    mirror = a > 0
    low, high = np.where(mirror, -b, a), np.where(mirror, -a, b)
    return np.asarray(np.maximum(stdtr(degrees, high) - stdtr(degrees, low), 0.0))


def _first(a: Array, b: Array, degrees: Array) -> Array:
    power = degrees - 1
    low, high = _log_cosine(a, degrees), _log_cosine(b, degrees)
    finite = np.isfinite(low) & np.isfinite(high)
    start, end = np.where(finite, low, 0.0), np.where(finite, high, 0.0)
    nearer, step = np.maximum(start, end), start - end
    between = np.exp(power * nearer) * step * exprel(-power * np.abs(step))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beyond = (np.exp(power * low) - np.exp(power * high)) / power
        both = np.isinf(low) & np.isinf(high)
        side = np.where(both, np.nan, np.where(np.isinf(high), np.inf, -np.inf))
        open_ = np.where(power > 0, beyond, side)
    return np.asarray(_constant(degrees) * degrees * np.where(finite, between, open_))


def _second(a: Array, b: Array, degrees: Array) -> Array:
    unbounded = np.isinf(a) | np.isinf(b)
    near = (np.abs(degrees - 2) < NEAR) & ~unbounded
    plain = _second_away(a, b, np.where(near | (degrees == 2), 3.0, degrees))
    centre = np.where(near, degrees, 2.0)
    between = sum(
        weight / 6 * _second_away(a, b, centre + k * 3 * NEAR)
        for k, weight in ((-2, -1), (-1, 4), (1, 4), (2, -1))
    )
    return np.where(unbounded & (degrees <= 2), np.inf, np.where(near, between, plain))


def _second_away(a: Array, b: Array, degrees: Array) -> Array:
    ends = _boundary(b, degrees) - _boundary(a, degrees)
    return np.asarray((degrees * _mass(a, b, degrees) - ends) / (degrees - 2))


def _boundary(z: Array, degrees: Array) -> Array:
    """z (ν + z²) f(z); 0 at infinity, where the caller knows better for ν <= 2."""
    finite = np.where(np.isfinite(z), z, 0.0)
    scaled = np.exp((degrees - 1) * _log_cosine(finite, degrees))
    return np.asarray(finite * degrees * _constant(degrees) * scaled)


def _log_cosine(z: Array, degrees: Array) -> Array:
    return np.asarray(-0.5 * np.log1p(np.square(z) / degrees))


def _constant(degrees: Array) -> Array:
    half = degrees / 2
    return np.asarray(np.exp(gammaln(half + 0.5) - gammaln(half)) / np.sqrt(np.pi * degrees))


def _quantile(u: Array, degrees: Array) -> Array:
    lower = np.minimum(u, 1 - u)
    z = np.where(lower > 0, stdtrit(degrees, np.maximum(lower, 1e-300)), -np.inf)
    return np.where(u > 0.5, -z, z)

"""One distribution of a family, with the tools for testing the laws.

A subject is atomic if single points have mass. Atoms are known from the variable (codes, whole
numbers) or, for a real variable, found by walking up the quantile function. Everything else is
continuous, and integrated by adaptive Gauss–Legendre quadrature between quantiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from fedcircuits.circuits.graph.family import Array, Family
from fedcircuits.tables.schema import Variable

LEVELS = np.concatenate(
    [10.0 ** np.arange(-12, -2), np.linspace(0.02, 0.98, 33), 1 - 10.0 ** np.arange(-3, -13, -1)]
)
# odd and even, lest a jump in the middle of a piece look the same to both
FINE, COARSE = np.polynomial.legendre.leggauss(21), np.polynomial.legendre.leggauss(10)


@dataclass(frozen=True)
class Subject:
    family: Family
    variable: Variable
    p: dict[str, Array]  # no leading axes
    rng: np.random.Generator
    atomic: bool = field(init=False)
    atoms: Array = field(init=False)  # empty where continuous
    gap: float = field(init=False)  # half the way between two atoms

    def __post_init__(self) -> None:
        atoms = self._atoms()
        object.__setattr__(self, "atoms", atoms)
        object.__setattr__(self, "atomic", len(atoms) > 0)
        steps = np.diff(atoms)
        object.__setattr__(self, "gap", float(steps.min()) / 2 if len(steps) else 0.5)

    def log_density(self, x: Array, p: dict[str, Array] | None = None) -> Array:
        tensors = self.tensors(p)
        return np.asarray(self.family.log_density(torch.as_tensor(x), tensors).numpy())

    def density(self, x: Array) -> Array:
        return np.exp(np.maximum(self.log_density(x), -700.0))

    def tensors(
        self, p: dict[str, Array] | None = None, dtype: torch.dtype = torch.float64
    ) -> dict[str, torch.Tensor]:
        return {k: torch.as_tensor(v).to(dtype) for k, v in (p or self.p).items()}

    def repeated(self, *lead: int) -> dict[str, Array]:
        return {k: np.broadcast_to(v, (*lead, *v.shape)).copy() for k, v in self.p.items()}

    def mass(self, lower: float, upper: float) -> float:
        return float(self.family.mass(self.p, lower, upper))

    def quantiles(self, levels: Array) -> Array:
        return np.asarray(self.family.quantile(levels, self.repeated(len(levels))))

    def draws(self, count: int, lower: float = -np.inf, upper: float = np.inf) -> Array:
        p = self.repeated(count)
        return np.asarray(self.family.sample(self.rng, p, lower, upper))

    def cuts(self, levels: Array) -> Array:
        """Distinct ascending points near these quantiles, none of them an atom."""
        points = np.unique(self.quantiles(levels))
        points = points[np.isfinite(points)]
        return points + self.gap if self.atomic else points

    def expectation(self, power: int, lower: float, upper: float) -> float:
        """E[x^power; lower < x < upper] from the density alone."""
        if self.atomic:
            inside = self.atoms[(self.atoms > lower) & (self.atoms < upper)]
            return float((inside**power * self.density(inside)).sum())
        inside = self.knots[(self.knots > lower) & (self.knots < upper)]
        knots = _decades(np.concatenate([[lower], inside, [upper]]))
        return integrate(lambda x: x**power * self.density(x), knots)

    @cached_property
    def knots(self) -> Array:
        """Quantiles to integrate between, and the ends of gaps with almost no mass."""
        low, high = LEVELS[:-1], LEVELS[1:]
        a, b = self.quantiles(low), self.quantiles(high)
        width = b - a
        for _ in range(45):  # follow the wider half: only a gap stays wide
            level = (low + high) / 2
            middle = self.quantiles(level)
            left = middle - a > b - middle
            low, high = np.where(left, low, level), np.where(left, level, high)
            a, b = np.where(left, a, middle), np.where(left, middle, b)
        gaps = b - a > 1e-3 * width
        return np.unique(np.concatenate([self.quantiles(LEVELS), a[gaps], b[gaps]]))

    def _atoms(self) -> Array:
        if self.variable.levels:
            return np.arange(self.variable.levels, dtype=np.float64)
        if self.variable.kind == "count":
            return np.arange(float(self.family.quantile(np.array(1 - 1e-13), self.p)) + 20)
        middle = float(self.family.quantile(np.array(0.5), self.p))
        around = np.nextafter(middle, [-np.inf, np.inf])
        return self._walk() if self.mass(*map(float, around)) > 1e-6 else np.empty(0)

    def _walk(self) -> Array:
        points = [float(self.family.quantile(np.array(1e-15), self.p))]
        while len(points) < 10_000:
            below = self.mass(-np.inf, float(np.nextafter(points[-1], np.inf)))
            level = np.array(min(below + 1e-13, 1.0))
            following = float(self.family.quantile(level, self.p))
            if below >= 1 - 1e-13 or following <= points[-1]:
                break
            points.append(following)
        return np.array(points)


def integrate(function: Callable[[Array], Array], knots: Array, depth: int = 40) -> float:
    """∫ over [knots[0], knots[-1]], halving pieces until two orders agree."""
    a, b, total = knots[:-1], knots[1:], 0.0
    for _ in range(depth):
        fine, coarse = _piecewise(function, a, b, FINE), _piecewise(function, a, b, COARSE)
        done = np.abs(fine - coarse) <= 1e-9 * np.abs(fine) + 1e-13 * np.abs(total)
        total += float(fine[done].sum())
        a, b = a[~done], b[~done]
        if not len(a):
            return total
        middle = (a + b) / 2
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
    return total + float(_piecewise(function, a, b, FINE).sum())


def _decades(knots: Array) -> Array:
    """Pieces that span many orders of magnitude, as near a pole at 0, split at every factor of
    10."""
    size = np.abs(knots[knots != 0])
    low, high = np.log10(size.min()), np.log10(size.max())
    powers = 10.0 ** np.arange(np.ceil(low), high)
    powers = np.concatenate([-powers, powers]) if high - low > 6 else np.empty(0)
    inside = powers[(powers > knots[0]) & (powers < knots[-1])]
    return np.unique(np.concatenate([knots, inside]))


def _piecewise(
    function: Callable[[Array], Array], a: Array, b: Array, rule: tuple[Array, Array]
) -> Array:
    nodes, weights = rule
    x = (a + b)[:, None] / 2 + (b - a)[:, None] / 2 * nodes
    return np.asarray((function(x.reshape(-1)).reshape(x.shape) @ weights) * (b - a) / 2)


def expect(condition: object, message: str) -> None:
    if not bool(np.all(np.asarray(condition))):
        raise AssertionError(message)


def expect_close(
    value: Array | float, right: Array | float, what: str, relative: float, absolute: float
) -> None:
    """AssertionError with the worst element and its error."""
    value, right = np.broadcast_arrays(value, right)
    with np.errstate(invalid="ignore"):
        off = np.where(value == right, 0.0, np.abs(value - right))
    over = off - (absolute + relative * np.abs(right))
    over = np.where(np.isnan(over), np.inf, over)
    if over.size and over.max() > 0:
        at = np.unravel_index(over.argmax(), over.shape)
        raise AssertionError(
            f"{what}: expected {right[at]:.10g}, got {value[at]:.10g} (off by {off[at]:.3g})"
        )

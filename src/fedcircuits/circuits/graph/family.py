"""The contract of a leaf family, and the table of all families by name.

A family is a rule, not a distribution: parameters are arguments. Their leading axes are any batch
of distributions, trailing axes belong to the family (``shapes``); values broadcast against the
leading axes. Densities and statistics are torch (they are evaluated and differentiated in bulk),
everything else is numpy in float64.

A region is a tuple of disjoint intervals (lower, upper). For discrete variables the ends are
halves: (2.5, 3.5) is the value 3. So one rule serves masses of continuous and discrete leaves.

log 0 is IMPOSSIBLE inside a circuit: finite, so that 0 times it stays 0 in a matrix product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.arguments import Declared, Real
from fedcircuits.deferred import torch
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.tables.schema import Variable

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[np.float64]
Arrays = Mapping[str, Array]
Tensors: TypeAlias = "Mapping[str, Tensor]"
Domain = Literal["real", "positive", "unit", "simplex", "covariance", "fixed"]
Region = tuple[tuple[float, float], ...]
EVERYWHERE: Region = ((-np.inf, np.inf),)
IMPOSSIBLE = -1e30
LARGEST_WHOLE = 2.0**51  # above it halves cannot be represented
LARGEST_VALUE = 1e150  # whose square is still finite
POSITIVE = Real(above=0)
PSEUDO_COUNTS = Real(least=0, what="a number of pseudo-counts")


class _Declared:
    """The settings of a family, which are checked when it is made."""

    name: ClassVar[str]
    allowed: ClassVar[Declared] = {}

    def __post_init__(self) -> None:
        for setting, allowed in self.allowed.items():
            name = f"family {self.name!r}: {setting}"
            allowed.check(name, getattr(self, setting), ParameterError)


class Family(_Declared, ABC):
    """A distribution of one variable."""

    kinds: ClassVar[frozenset[str]]
    domains: ClassVar[Mapping[str, Domain]]  # what values each parameter can take

    def shapes(self, variable: Variable) -> dict[str, tuple[int | None, ...]]:
        """Trailing shape of every parameter; None is a size the parameters choose."""
        return dict.fromkeys(self.domains, ())

    @abstractmethod
    def check(self, p: Arrays) -> str | None:
        """What is wrong with these values ("variance must be positive"), or None."""

    @abstractmethod
    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        """log f(x); x is finite. Outside the support it is at most IMPOSSIBLE."""

    @abstractmethod
    def statistics(self, x: Tensor, p: Tensors) -> Tensor:
        """Sufficient statistics (S, ...) of x, additive over rows when weighted."""

    @abstractmethod
    def maximise(self, count: Array, sums: Array, p: Arrays) -> dict[str, Array]:
        """Parameters from summed weights (...) and statistics (S, ...), never degenerate.

        ``p`` are the parameters the statistics were taken under. A count of zero keeps them.
        """

    @abstractmethod
    def moments(self, p: Arrays, lower: float, upper: float) -> Array:
        """(3, ...): mass, E[x; in], E[x²; in] of lower < x < upper."""

    @abstractmethod
    def quantile(self, u: Array, p: Arrays) -> Array:
        """The smallest x with cdf(x) >= u."""

    @abstractmethod
    def mode(self, p: Arrays) -> Array:
        """A point of highest density."""

    def start(self, x: Array, variable: Variable) -> dict[str, Array]:
        """A distribution for the seen values x (rows,): what learning begins with."""
        template = {n: np.ones([s or 1 for s in t]) for n, t in self.shapes(variable).items()}
        ones = {n: torch.as_tensor(a[None]) for n, a in template.items()}
        sums = self.statistics(torch.as_tensor(x), ones).sum(1).cpu().numpy()
        return self.maximise(np.asarray(float(len(x))), sums, template)

    def log_density_at(self, x: float, p: Arrays) -> Array | None:
        """log f(x) of one number in numpy, for single questions; None where that is not known."""
        return None

    def mass(self, p: Arrays, lower: float, upper: float) -> Array:
        return np.asarray(self.moments(p, lower, upper)[0])

    def cdf(self, x: float, p: Arrays) -> Array:
        """P(value <= x); for a count or category give x + 1/2."""
        return self.mass(p, -np.inf, x)

    def sample(
        self, rng: np.random.Generator, p: Arrays, lower: float = -np.inf, upper: float = np.inf
    ) -> Array:
        """One draw for every distribution, restricted to lower < x < upper."""
        below, within = self.mass(p, -np.inf, lower), self.mass(p, lower, upper)
        u = below + within * rng.random(np.shape(within))
        inside = np.clip(u, np.nextafter(below, 1.0), np.nextafter(below + within, 0.0))
        return np.clip(self.quantile(inside, p), lower, upper)


class LinearFamily(Family):
    """log f(x) = natural · statistics(x) + constant: evaluated as one matrix product for all."""

    @abstractmethod
    def natural(self, p: Tensors) -> tuple[Tensor, Tensor]:
        """Coefficients (S, ...) of the statistics, and the constant (...)."""

    @abstractmethod
    def width(self, variable: Variable) -> int:
        """S, the number of statistics of this variable."""

    def affine(self, p: Arrays, shift: Array, scale: Array) -> dict[str, Array] | None:
        """Parameters of (x − shift) / scale, or None where the family has no such rule."""
        return None

    def log_density(self, x: Tensor, p: Tensors) -> Tensor:
        coefficients, constant = self.natural(p)
        terms = coefficients.movedim(0, -1) * self.statistics(x, p).movedim(0, -1)
        return terms.sum(-1) + constant


class TabledFamily(LinearFamily):
    """A probability for every level 0 … C − 1, its one parameter: looked up where C is large."""

    @abstractmethod
    def pseudo_counts(self, name: str, levels: int) -> Array:
        """What the fit adds to the counts (levels,) of a variable."""

    def drawn_to(self, names: Sequence[str], sums: Array) -> Array | None:
        """What it adds besides to counts (variables, levels, units), by what these look like."""
        return None


class JointFamily(_Declared, ABC):
    """A distribution of several variables at once; one leaf at a time, NaN summed out."""

    kinds: ClassVar[frozenset[str]]
    domains: ClassVar[Mapping[str, Domain]] = {}  # those not named are fixed

    @abstractmethod
    def shapes(self, variables: tuple[Variable, ...]) -> dict[str, tuple[int | None, ...]]:
        """Trailing shape of every parameter, behind the axis of units."""

    @abstractmethod
    def check(self, p: Arrays) -> str | None:
        """What is wrong with these values, or None."""

    def affine(self, p: Arrays, shift: Array, scale: Array) -> dict[str, Array] | None:
        """Parameters of (x − shift) / scale, or None where the family has no such rule."""
        return None

    @abstractmethod
    def log_density(self, x: Tensor, p: Tensors, regions: Mapping[int, Region]) -> Tensor:
        """(units, rows) of x (rows, width); column i in ``regions`` means "falls in there"."""

    def log_mass(self, p: Arrays, regions: Mapping[int, Region], width: int) -> Array:
        """(units,): log P(every column of ``regions`` falls in there), of ``width`` columns."""
        nothing = torch.full((1, width), torch.nan, dtype=torch.float64)
        tensors = {n: torch.as_tensor(np.ascontiguousarray(a)) for n, a in p.items()}
        return np.asarray(self.log_density(nothing, tensors, regions)[:, 0].cpu().numpy())

    def log_density_at(
        self, known: Mapping[int, float], p: Arrays, regions: Mapping[int, Region]
    ) -> Array | None:
        """(units,) of one row in numpy, given exact values by column and the regions of others;
        None if that is not available."""
        return None

    @abstractmethod
    def log_maximum(self, x: Tensor, p: Tensors) -> Tensor:
        """(units, rows): the same with NaN maximised instead of summed out."""

    @abstractmethod
    def statistics(self, x: Tensor, weight: Tensor, p: Tensors) -> dict[str, Tensor]:
        """Additive sums for every unit; weight is (units, rows)."""

    @abstractmethod
    def maximise(self, sums: Arrays, p: Arrays) -> dict[str, Array]:
        """Parameters from summed statistics, never degenerate."""

    @abstractmethod
    def start(self, x: Array) -> dict[str, Array]:
        """A distribution (without the axis of units) for rows x (rows, width), NaN missing."""

    @abstractmethod
    def moments(self, x: Array, p: Arrays, regions: Mapping[int, Region]) -> tuple[Array, Array]:
        """E[x] and E[x²] (units, rows, width) given the seen columns and the regions."""

    @abstractmethod
    def complete(
        self,
        x: Array,
        unit: npt.NDArray[np.int64],
        p: Arrays,
        regions: Mapping[int, Region],
        rng: np.random.Generator | None,
    ) -> Array:
        """x (rows, width) with NaN drawn from unit (rows,), inside the regions of their columns;
        without rng the most probable values (and no regions)."""


AnyFamily = Family | JointFamily
FAMILIES: dict[str, AnyFamily] = {}
BUILT_IN = "fedcircuits.circuits.leaves"  # registers our own, when families are first asked about


def register(family: AnyFamily) -> None:
    """Make a family known under its name, for graphs read from files and for ``Leaf(family=…)``."""
    import_module(BUILT_IN)  # first, so that yours may take the name of one of ours
    FAMILIES[family.name] = family


def family(name: str) -> AnyFamily:
    if name not in FAMILIES:
        import_module(BUILT_IN)
    try:
        return FAMILIES[name]
    except KeyError:
        known = ", ".join(sorted(FAMILIES)) or "none registered"
        raise StructureError(f"unknown leaf family {name!r}: expected one of {known}") from None


def log_of(p: Tensor) -> Tensor:
    """log p with log 0 = IMPOSSIBLE, and a finite gradient there."""
    positive = p > 0
    return torch.where(positive, torch.log(torch.where(positive, p, 1.0)), IMPOSSIBLE)


def require(condition: npt.ArrayLike, message: str) -> str | None:
    """``message`` unless every element holds: the form of an answer of ``check``."""
    return None if bool(np.all(condition)) else message


def require_value(number: Array, name: str) -> str | None:
    """A place on the line of real numbers."""
    return require(
        np.abs(number) <= LARGEST_VALUE,
        f"{name} must be finite, at most {LARGEST_VALUE:g} in size: rescale the column",
    )


def require_scale(number: Array, name: str, largest: float = LARGEST_VALUE) -> str | None:
    """A width, a rate, a variance: positive, and neither it nor its inverse beyond all measure."""
    return require(
        (number >= 1 / largest) & (number <= largest),
        f"{name} must be positive and finite, from {1 / largest:g} to {largest:g}: rescale the "
        "column",
    )


def raise_if_wrong(name: str, problem: str | None) -> None:
    if problem is not None:
        raise ParameterError(f"parameters of {name!r}: {problem}")

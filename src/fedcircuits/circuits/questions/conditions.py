"""One variable against values: the atoms of which events and evidence are made.

A condition says that a variable is in a list of values, or below or above one. Values are given as
the user writes them and kept as numbers of the circuit. A value matches a category by
itself, by its text, by its truth (yes, no, true, false, … for booleans) or, where all categories
are numbers, by its size; only such categories can be compared by order.

A count is a whole number from 0: ``n = 2.5`` and ``n = -1`` never hold, ``n != 2.5`` always does.
Regions are open, so ``x >= 0.5`` of a real starts at the float before 0.5.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, SupportsFloat

import numpy as np

from fedcircuits.circuits.graph.family import LARGEST_WHOLE, Region
from fedcircuits.circuits.questions.amounts import amount, is_measured
from fedcircuits.circuits.questions.regions import after, before, intersect, of_codes, whole
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Variable, shown, spelled

Order = Literal["<", "<=", ">", ">="]
ORDERS: Final[dict[Order, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TRUTH = dict.fromkeys(("true", "yes", "y", "t", "on", "1", "1.0"), True) | dict.fromkeys(
    ("false", "no", "n", "f", "off", "0", "0.0"), False
)


@dataclass(frozen=True, slots=True)
class Condition:
    variable: Variable
    operator: Order | Literal["in"]
    numbers: tuple[float, ...]  # of the circuit; one for an order
    position: int = 0  # in the text

    @property
    def exact(self) -> bool:
        """Whether it names single values of a real variable, which have probability zero."""
        return self.operator == "in" and not self.variable.discrete

    def holds(self, value: float) -> bool:
        if self.operator == "in":
            return value in self.numbers
        return ORDERS[self.operator](value, self.numbers[0])

    def region(self) -> Region:
        """The values for which it holds; not for exact conditions."""
        if self.operator == "in":
            codes = of_codes(n for n in set(self.numbers) if n.is_integer())
            return intersect(codes, whole(self.variable))
        bound = self.numbers[0]
        if self.variable.discrete:
            below = self.operator in ("<", ">=")  # the end lies below a whole bound
            bound = math.ceil(bound) - 0.5 if below else math.floor(bound) + 0.5
        elif self.operator in ("<=", ">="):
            bound = after(bound) if self.operator == "<=" else before(bound)
        upward = self.operator in (">", ">=")
        half_line = (bound, math.inf) if upward else (-math.inf, bound)
        return intersect((half_line,), whole(self.variable))


def members(variable: Variable, values: Iterable[object], position: int = 0) -> Condition:
    """variable in {values}; one value is variable = value."""
    return Condition(variable, "in", tuple(number(variable, v) for v in values), position)


def compare(variable: Variable, order: Order, value: object, position: int = 0) -> Condition:
    bound = _bound(variable, value)
    if not variable.categories:
        return Condition(variable, order, (bound,), position)
    sizes = enumerate(_sizes(variable) or ())
    codes = tuple(float(code) for code, size in sizes if ORDERS[order](size, bound))
    return Condition(variable, "in", codes, position)


def between(
    variable: Variable, low: object, high: object, position: int = 0
) -> tuple[Condition, ...]:
    """low <= variable <= high, as conditions that must all hold."""
    lower, upper = _bound(variable, low), _bound(variable, high)
    if lower > upper:
        raise QueryError(
            f"{variable.name!r} between {shown(low)} and {shown(high)}: the lower end is above the "
            "upper end"
        )
    if lower == upper and variable.kind == "real":
        return (members(variable, [low], position),)
    return compare(variable, ">=", low, position), compare(variable, "<=", high, position)


def is_true(variable: Variable, position: int = 0) -> Condition:
    """A variable on its own: a boolean that holds."""
    truths = [_truth(c) for c in variable.categories]
    if variable.kind == "boolean" and set(truths) == {True, False}:
        return Condition(variable, "in", (float(truths.index(True)),), position)
    example = repr(variable.categories[-1]) if variable.categories else "1"
    raise QueryError(
        f"{variable.name!r} alone is no condition: expected a comparison such as "
        f"{variable.name} {'=' if variable.categories else '>'} {example}"
    )


def number(variable: Variable, value: object) -> float:
    """The circuit's number for a value as the user writes it."""
    if is_missing(value):
        raise QueryError(f"{variable.name!r} cannot be compared with a missing value")
    try:
        code = variable.encode(value)
    except QueryError:
        meant = _by_meaning(variable, value)
        if meant is None:
            raise
        return meant
    if math.isnan(code):
        raise QueryError(f"{variable.name!r}: expected a number, got {shown(value)}")
    if variable.kind == "count" and abs(code) > LARGEST_WHOLE:
        raise QueryError(
            f"{variable.name!r} is a count: {shown(value)} is too large to compare with"
        )
    return code


def is_missing(value: object) -> bool:
    """None, NaN of any type, and the missing values of pandas."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def interval_around(value: float) -> tuple[str, str]:
    """Half a unit of the last decimal to both sides: 40 gives 39.5 and 40.5."""
    written = Decimal(repr(value)).normalize()
    exponent = int(written.as_tuple().exponent)
    half = Decimal(5).scaleb((exponent if exponent > 15 else min(0, exponent)) - 1)
    return str(written - half), str(written + half)


def _bound(variable: Variable, value: object) -> float:
    if not variable.categories:
        return number(variable, value)
    if _sizes(variable) is None:
        raise QueryError(
            f"the values of {variable.name!r} have no order: expected =, != or in, "
            f"such as {variable.name} = {variable.categories[0]!r}"
        )
    return number(Variable(variable.name), value)


def _by_meaning(variable: Variable, value: object) -> float | None:
    if variable.kind == "boolean" and (truth := _truth(value)) is not None:
        truths = [_truth(c) for c in variable.categories]
        if set(truths) == {True, False}:
            return float(truths.index(truth))
    if isinstance(value, str) and is_measured(variable):
        return amount(variable, value)
    sizes, size = _sizes(variable), _size(value)
    return float(sizes.index(size)) if sizes and size in sizes else None


def _sizes(variable: Variable) -> list[float] | None:
    """The categories as numbers, or None unless all of them are numbers."""
    sizes = [size for c in variable.categories if (size := _size(c)) is not None]
    return sizes if len(sizes) == variable.size else None


def _size(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | SupportsFloat):
        return None
    try:
        size = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return size if math.isfinite(size) else None


def _truth(value: object) -> bool | None:
    return _TRUTH.get(spelled(value).lower())

"""Valid values of parameters, declared once and checked with uniform error messages.

A class declares its parameters by name and checks itself before it starts:

    class Sketch:
        allowed = {
            "clusters": Whole(1, or_=("auto",)),
            "validation": Real(least=0, below=1),
            "on_lost": Choice("stop", "continue"),
            "share_target": FLAG,
        }

    check_arguments(sketch, FederationError)
    # FederationError: clusters must be 'auto' or a whole number from 1, got -1

numpy numbers are accepted like Python numbers. True and False are not numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fedcircuits.errors import FedcircuitsError, ParameterError


class Allowed(ABC):
    """The valid values of one parameter. ``or_`` holds further valid values, or declarations
    such as ``Instance(…)``."""

    or_: tuple[object, ...] = ()

    @property
    @abstractmethod
    def expected(self) -> str:
        """The valid values as text, such as "a whole number from 1"."""

    @abstractmethod
    def fits(self, value: object) -> bool:
        """Whether the value is valid, apart from ``or_``."""

    def check(self, name: str, value: object, error: type[FedcircuitsError]) -> None:
        """Raise ``error`` unless the value is valid."""
        if _among(value, self.or_) or self.fits(value):
            return
        others = [o.expected if isinstance(o, Allowed) else repr(o) for o in self.or_]
        got = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
        got = got if len(got) <= 80 else f"{got[:80]}…"
        raise error(f"{name} must be {' or '.join([*others, self.expected])}, got {got}")


Declared: TypeAlias = Mapping[str, Allowed]


def check_arguments(thing: object, error: type[FedcircuitsError] = ParameterError) -> None:
    """Raise ``error`` unless an object's parameters are as its class declares in ``allowed``."""
    declared: Declared = type(thing).allowed  # type: ignore[attr-defined]
    for name, allowed in declared.items():
        allowed.check(name, getattr(thing, name), error)


@dataclass(frozen=True, slots=True)
class Whole(Allowed):
    """A whole number from ``least`` up to ``most``."""

    least: int = 0
    most: float = math.inf
    or_: tuple[object, ...] = field(default=(), kw_only=True)

    @property
    def expected(self) -> str:
        end = "" if self.most > 2**53 else f" to {self.most:g}"
        return f"a whole number from {self.least}{end}"

    def fits(self, value: object) -> bool:
        return _is(value, int | np.integer) and self.least <= value <= self.most  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Real(Allowed):
    """A finite number: from ``least`` or above ``above``, to ``most`` or below ``below``."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    what: str = "a number"
    or_: tuple[object, ...] = ()

    @property
    def expected(self) -> str:
        words = [self.what]
        if self.least is not None:
            words.append(f"from {self.least:g}")
        if self.above is not None:
            words.append(f"above {self.above:g}")
        if self.most is not None:
            words.append(f"to {self.most:g}" if self.above is None else f"and up to {self.most:g}")
        if self.below is not None:
            words.append(
                f"to below {self.below:g}" if self.above is None else f"and below {self.below:g}"
            )
        return " ".join(words)

    def fits(self, value: object) -> bool:
        if not _is(value, int | float | np.integer | np.floating):
            return False
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            return False
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )


class Choice(Allowed):
    """One of a few values: mostly strings, True, False or None."""

    def __init__(self, *values: object) -> None:
        self.values = values

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(repr, self.values))}"

    def fits(self, value: object) -> bool:
        return _among(value, self.values)


@dataclass(frozen=True, slots=True)
class Instance(Allowed):
    """An instance of one of some classes; ``what`` describes what is expected."""

    kinds: type | tuple[type, ...]
    what: str
    or_: tuple[object, ...] = field(default=(), kw_only=True)

    @property
    def expected(self) -> str:
        return self.what

    def fits(self, value: object) -> bool:
        return isinstance(value, self.kinds) and not isinstance(value, type)


FLAG = Choice(True, False)
SEED = Whole(0, 2**63 - 1, or_=(None,))
ROWS_HELD_BACK = Real(least=0, below=1, what="a share of rows")  # a ``validation`` argument
COLUMN = Instance(str, "the name of a column", or_=(None,))


def is_whole(value: object, least: int = 1) -> bool:
    """Whether it is a whole number from ``least`` on."""
    return Whole(least).fits(value)


def _is(value: object, kinds: object) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)  # type: ignore[arg-type]


def _among(value: object, known: tuple[object, ...]) -> bool:
    """Whether it equals one of a few plain values, as arrays and frames never do, or fits."""
    if isinstance(value, np.bool_):
        value = bool(value)
    return any(
        k.fits(value)
        if isinstance(k, Allowed)
        else value is k or (isinstance(value, str) and value == k)
        for k in known
    )

"""What the variables of a circuit mean: names, kinds, categories, units.

Inside a circuit every value is a number. A category or boolean is its code, the position in
``categories``; a count is itself; NaN says "sum this variable out".
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from reprlib import repr as shortened
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import QueryError, StructureError, TableError
from fedcircuits.tables.dates import Order, day_of, hour_of
from fedcircuits.tables.numerals import Point
from fedcircuits.tables.truths import truth_of

Kind = Literal["real", "count", "category", "boolean"]
Scalar = str | int | float | bool
KINDS: tuple[Kind, ...] = get_args(Kind)
DATE, TIME = "date", "date and time"  # units of reals that count days since 1970-01-01
HOURS = "h"  # the unit of reals that are times of day, or last so long
EPOCH = datetime(1970, 1, 1)
OTHER = "other"  # the category of all that few rows have, where a federation pools them


@dataclass(frozen=True, slots=True)
class ReadingHabits:
    """How a file writes decimal signs and dates, by what in it is unambiguous."""

    point: Point | None = None
    order: Order | None = None


NO_HABITS = ReadingHabits()


@dataclass(frozen=True, slots=True)
class Variable:
    """A column of the data: ``Variable("colour", "category", ("red", "blue"))``."""

    name: str
    kind: Kind = "real"
    categories: tuple[Scalar, ...] = ()
    unit: str | None = None
    most: int | None = None  # of a count: the largest that can come

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise StructureError(f"the name of a variable must be text, got {self.name!r}")
        if self.unit is not None and not isinstance(self.unit, str):
            raise StructureError(f"variable {self.name!r}: a unit is a text, got {self.unit!r}")
        object.__setattr__(self, "unit", self.unit or None)
        for text in (self.name, self.unit or "", *self.categories):
            if isinstance(text, str) and not is_text(text):
                raise StructureError(
                    f"variable {self.name!r}: the text {shown(text)} cannot be written, it holds "
                    "half of a pair of UTF-16; read the data in their own encoding"
                )
        if self.kind not in KINDS:
            raise StructureError(
                f"variable {self.name!r}: kind must be one of {', '.join(KINDS)}, got {self.kind!r}"
            )
        object.__setattr__(self, "categories", _plain(self.name, self.categories))
        if self.kind == "boolean" and not self.categories:
            object.__setattr__(self, "categories", (False, True))
        if self.kind in ("real", "count") and self.categories:
            raise StructureError(f"variable {self.name!r}: a {self.kind} has no categories")
        if self.kind == "category" and not self.categories:
            raise StructureError(f"variable {self.name!r}: a category needs its categories")
        if self.kind == "boolean" and len(self.categories) != 2:
            raise StructureError(
                f"variable {self.name!r}: a boolean has two values, got {shown(self.categories)}"
            )
        _refuse_twice(self.name, self.categories)
        _check_most(self)

    @property
    def size(self) -> int:
        """Number of codes; 0 for real and count."""
        return len(self.categories)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories as a reader sees them; True and False are yes and no."""
        if self.kind == "boolean" and all(isinstance(c, bool) for c in self.categories):
            return tuple("yes" if c else "no" for c in self.categories)
        return tuple(map(str, self.categories))

    @property
    def levels(self) -> int:
        """Number of possible values: codes, or counts up to ``most``; 0 if unknown."""
        return self.size if self.most is None else self.most + 1

    @property
    def discrete(self) -> bool:
        return self.kind != "real"

    @property
    def dated(self) -> bool:
        """Whether its numbers are days since 1970-01-01, and its values dates."""
        return self.kind == "real" and self.unit in (DATE, TIME)

    def encode(self, value: object) -> float:
        """The number that represents a user's value in the circuit."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return math.nan
        if not self.categories:
            return self._number(value)
        text = spelled(value)
        for code, category in enumerate(self.categories):
            if isinstance(value, str) == isinstance(category, str) and _equal(value, category):
                return float(code)
        for code, category in enumerate(self.categories):
            if text == str(category):
                return float(code)
        if self.categories == (False, True) and (truth := truth_of(text)) is not None:
            return float(truth)
        near = difflib.get_close_matches(text[:200], [str(c) for c in self.categories], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise QueryError(
            f"{self.name!r} has no category {shown(value)}: expected one of {self._listed()}{hint}"
            f"{self.pooling}"
        )

    @property
    def pooling(self) -> str:
        """For errors about an unknown category: it may have been pooled."""
        if OTHER not in self.categories:
            return ""
        return f"; a federation calls categories that few rows of a party have {OTHER!r}"

    def _number(self, value: object) -> float:
        if self.dated and not isinstance(value, int | float):
            return self._day(value)
        if self.unit == HOURS and isinstance(value, str) and (hour := hour_of(value)) is not None:
            return hour
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise QueryError(
                f"{self.name!r} is a {self.kind}: expected a number, got {shown(value)}"
            ) from None
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise QueryError(
                f"{self.name!r}: expected a finite number (up to 1.8e308), got {shown(value)}"
            )
        return number

    def _day(self, value: object) -> float:
        if (day := day_of(spelled(value))) is None:
            raise QueryError(
                f"{self.name!r} is a {self.unit}: expected one such as 1964-05-31, got "
                f"{shown(value)}"
            )
        return day

    def decode(self, code: float) -> Scalar | None:
        """The user's value of a number in the circuit; None for missing values."""
        if math.isnan(code):
            return None
        if self.categories:
            return self.categories[int(code)]
        if self.dated:
            return spelled_day(code, self.unit == TIME)
        return int(code) if self.kind == "count" else float(code)

    @property
    def kind_in_words(self) -> str:
        return str(self.unit) if self.dated else self.kind

    def described(self) -> str:
        """Kind and categories as a short text."""
        return f"a {self.kind_in_words}" + (f" of {self._listed()}" if self.categories else "")

    def _listed(self, most: int = 8) -> str:
        shown = ", ".join(repr(c) for c in self.categories[:most])
        return shown + (f", … ({self.size} in all)" if self.size > most else "")


def spelled_day(days: float, timed: bool = False) -> str:
    """Days since 1970-01-01 as an ISO 8601 date, or date and time."""
    try:
        moment = EPOCH + timedelta(days=days)
    except OverflowError:
        return f"{days:g} days after 1970-01-01"
    return moment.isoformat(timespec="minutes") if timed else f"{moment:%Y-%m-%d}"


def shown(value: object, most: int = 60) -> str:
    """Any value in an error message: short and printable."""
    try:
        text = repr(value)
    except Exception:  # an object of the user's, or a whole number of too many digits
        return f"a value of type {type(value).__name__}"
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text if is_text(text) else ascii(text)


def spelled(value: object) -> str:
    """The text of a value by which it may be meant; "" for values without one."""
    try:
        return str(value)
    except Exception:  # as above
        return ""


def is_text(text: str) -> bool:
    """Whether it can be encoded: no lone UTF-16 surrogate (U+D800 to U+DFFF)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _equal(value: object, category: Scalar) -> bool:
    try:
        same = value == category
        return not getattr(same, "shape", ()) and bool(same)
    except (TypeError, ValueError):  # arrays, and the missing values of pandas
        return False


def _check_most(variable: Variable) -> None:
    most = variable.most
    if most is None:
        return
    if variable.kind != "count" or isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise StructureError(
            f"variable {variable.name!r}: most is the largest value of a count, a whole number "
            f"from 1, got {shown(most)} for a {variable.kind}"
        )


def _plain(name: str, categories: Iterable[object]) -> tuple[Scalar, ...]:
    """Categories as plain Python values, whatever library they come from."""
    if isinstance(categories, str):
        raise StructureError(f"variable {name!r}: categories must be a tuple, got {categories!r}")
    plain = []
    for category in categories:
        single = hasattr(category, "item") and getattr(category, "size", 0) == 1
        value = category.item() if single else category  # type: ignore[attr-defined]
        if not isinstance(value, Scalar) or (isinstance(value, float) and not math.isfinite(value)):
            raise StructureError(
                f"variable {name!r}: categories must be texts or finite numbers, got {shown(value)}"
            )
        plain.append(value)
    return tuple(plain)


def _refuse_twice(name: str, categories: tuple[Scalar, ...]) -> None:
    """StructureError for categories such as 1, 1.0, True and '1', which cannot be distinguished."""
    seen: dict[tuple[str, Scalar], Scalar] = {}
    for category in categories:
        for key in (("value", category), ("text", str(category))):
            if key in seen:
                raise StructureError(
                    f"variable {name!r}: a category is named twice, as {shown(seen[key])} and "
                    f"{shown(category)}: categories must differ, also as numbers and as texts"
                )
            seen[key] = category


@dataclass(frozen=True, slots=True)
class Schema:
    """The variables of a circuit in their order, found by name: ``schema["colour"]``."""

    variables: tuple[Variable, ...]
    # of the files that a model was trained on: questions are written like them
    habits: tuple[ReadingHabits, ...] = field(default=(), repr=False, compare=False)
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {v.name: i for i, v in enumerate(self.variables)}
        if len(index) != len(self.variables):
            times = Counter(v.name for v in self.variables)
            twice = _listed(sorted(n for n, number in times.items() if number > 1))
            raise StructureError(f"variable names must differ, got twice: {twice}")
        object.__setattr__(self, "_index", index)

    @classmethod
    def real(cls, names: Iterable[str] | int) -> Schema:
        """Real variables by name, or ``x0``, ``x1``, … by number."""
        if isinstance(names, int):
            names = (f"x{i}" for i in range(names))
        return cls(tuple(Variable(n) for n in names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._index)

    def __len__(self) -> int:
        return len(self.variables)

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.variables)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> Variable:
        return self.variables[self.index(name)]

    def index(self, name: str) -> int:
        try:
            return self._index[name]
        except KeyError:
            near = difflib.get_close_matches(spelled(name)[:200], self._index, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {_listed(self._index)}"
            raise QueryError(f"unknown variable {shown(name)}: {hint}") from None

    def select(self, names: Iterable[str]) -> Schema:
        return Schema(tuple(self[n] for n in names))

    def check_values(self, values: npt.NDArray[np.float64]) -> None:
        """TableError for values (rows, variables) that do not fit."""
        low = np.array([-np.inf if v.kind == "real" else 0.0 for v in self])
        high = np.array([v.levels - 1.0 if v.levels else np.inf for v in self])
        whole = np.array([v.discrete for v in self], dtype=bool)
        wrong = (values < low) | (values > high) | np.isinf(values)
        wrong |= whole & (np.rint(values) != values) & ~np.isnan(values)
        if wrong.any():
            row, i = np.argwhere(wrong)[0]
            variable = self.variables[i]
            wanted = f"a finite {variable.kind}"
            wanted = f"a code below {variable.size}" if variable.size else wanted
            wanted += "" if variable.most is None else f" up to {variable.most}"
            raise TableError(
                f"variable {variable.name!r}: expected {wanted}, got {values[row, i]:g} in row "
                f"{row} (rows count from 0); Table.of takes values that are not codes yet"
            )

    def to_json(self) -> list[dict[str, object]]:
        return [_to_row(v) for v in self.variables]

    @classmethod
    def from_json(cls, rows: object) -> Schema:
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise StructureError("a schema must be a list of variables")
        return cls(tuple(_variable(r) for r in rows))


def _to_row(variable: Variable) -> dict[str, object]:
    row: dict[str, object] = {"name": variable.name, "kind": variable.kind}
    if variable.categories:
        row["categories"] = list(variable.categories)
    if variable.unit:
        row["unit"] = variable.unit
    if variable.most is not None:
        row["most"] = variable.most
    return row


def _variable(row: dict[str, object]) -> Variable:
    name, categories, unit = row.get("name"), row.get("categories", []), row.get("unit")
    if not isinstance(name, str) or not (unit is None or isinstance(unit, str)):
        raise StructureError(
            f"a variable must have a name and perhaps a unit, both text, got {shortened(row)}"
        )
    if not isinstance(categories, list):
        raise StructureError(f"variable {name!r}: categories must be a list")
    kind = row.get("kind", "real")
    if not isinstance(kind, str):
        raise StructureError(f"variable {name!r}: kind must be text, got {shortened(kind)}")
    return Variable(name, kind, tuple(categories), unit, row.get("most"))  # type: ignore[arg-type]


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:most])) + (" …" if len(names) > most else "")

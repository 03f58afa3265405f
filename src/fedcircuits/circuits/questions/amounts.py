"""Numbers and dates in questions, as files write them.

    30% · € 1.200,50 · 1'234 · 5 mg/l · 3/4/2024

A unit must be that of the column; it may be left out. ``1.200`` and ``1,200`` can be 1200 or 1.2,
and 3/4/2024 can be in March or April: they are read as in the files that the model was trained on
(``schema.habits``). A question is refused if the files differ in this, and if a point means 1200 in
the files but 1.2 in answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from fedcircuits.circuits.questions.regions import KEYWORDS
from fedcircuits.errors import QueryError
from fedcircuits.tables import numerals
from fedcircuits.tables.dates import day_of, hour_of
from fedcircuits.tables.schema import HOURS, ReadingHabits, Variable, shown

Habits = tuple[ReadingHabits, ...]
PROGRAM = re.compile(
    r"[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?"
)
_GROUPS = r"(?:[{signs}'’]\d+|[\u00a0\u2009\u202f ]\d{{3}}(?!\d))*"
_BODY = rf"[-+−]?(?:\d[\d_]*{_GROUPS}\.?|\.\d+)(?:e[-+]?\d+)?"
_MONEY = rf"(?:(?:US\$|R\$|[€$£¥₹₺]|(?:{numerals.CODES})\b|Fr\.)\s*)?"
_FIGURE = re.compile(_MONEY + _BODY.format(signs=".,"), re.I)
_LISTED = re.compile(_MONEY + _BODY.format(signs="."), re.I)  # a comma separates values
_SIGN = re.compile(r"\s*[%‰€$£¥₹₺]")
_UNIT = re.compile(r"[^\W\d_][\w/²³µμ°%^·*€$£-]*")
_COMPARED = re.compile(r"\s*[<>=!≤≥≠]")
_NAMED = re.compile(r"[\[(]([^\[\]()]+)[\])]\s*$")
_PIECE = re.compile(r"\s*[\w./:+-]+")
GOES_ON = re.compile(r"\w|[.-]\w")  # behind the end of a word: the word has not ended


def is_measured(variable: Variable) -> bool:
    """Whether its values are numbers, possibly with a unit."""
    return not variable.categories and not variable.dated


def amount_end(
    text: str, start: int, variable: Variable | None, listed: bool, leading: bool = False
) -> int | None:
    """Where a number with its unit ends; None if there is none. ``leading``: it opens a condition,
    as in 40,5 < bmi."""
    for pattern in (_LISTED,) if listed else (_FIGURE, _LISTED):
        if figure := pattern.match(text, start):
            end = _behind_unit(text, figure.end(), variable)
            comma = "," in figure[0] and not leading
            separates = comma and _COMPARED.match(text, end)  # age > 40,5 < bmi
            if not separates and not GOES_ON.match(text, end):
                return end
    return None


def _behind_unit(text: str, position: int, variable: Variable | None) -> int:
    if sign := _SIGN.match(text, position):
        return sign.end()
    unit = unit_of(variable) if variable is not None else ""
    if unit and (same := re.compile(rf"\s*{re.escape(unit)}(?!\w)", re.I).match(text, position)):
        return same.end()
    blank = len(text[position:]) - len(text[position:].lstrip()) if unit else 0
    other = _UNIT.match(text, position + blank)
    return other.end() if other and other[0].lower() not in KEYWORDS else position


def amount(variable: Variable, text: str, habits: Habits = ()) -> float:
    """The number that a text stands for."""
    if variable.unit == HOURS and (hour := hour_of(text)) is not None:
        return hour
    bare, unit = text.strip(), unit_of(variable)
    if unit and bare.casefold().endswith(unit.casefold()) and len(bare) > len(unit):
        bare = bare[: -len(unit)].rstrip()
    numeral = numerals.numeral(bare)
    point = float(bare) if PROGRAM.fullmatch(bare) else numerals.number_by(numeral.digits, ".")
    comma = numerals.number_by(numeral.digits, ",")
    values = [value for value in (point, comma) if not math.isnan(value)]
    if not values or numeral.bound or numeral.flag:
        raise QueryError(
            f"{variable.name!r} is a {variable.kind}: expected a number, got {shown(text)}"
        )
    _check_unit(variable, unit, numeral.unit, text)
    return values[0] if len(set(values)) == 1 else _decided(variable, text, point, comma, habits)


def unit_of(variable: Variable) -> str:
    """The unit of a variable, which may stand in its name: CRP (mg/l)."""
    named = _NAMED.search(variable.name)
    return variable.unit or (named[1].strip() if named else "")


def _check_unit(variable: Variable, unit: str, written: str, text: str) -> None:
    if not written or (unit and numerals.unit_key(written) == numerals.unit_key(unit)):
        return
    if unit:
        raise QueryError(
            f"{variable.name!r} is in {unit}: expected a number in {unit}, or without a unit, got "
            f"{shown(text)}"
        )
    raise QueryError(
        f"{variable.name!r} has no unit: expected a number without one, got {shown(text)}"
    )


def _decided(variable: Variable, text: str, point: float, comma: float, habits: Habits) -> float:
    """Which of two numbers is meant."""
    signs = {h.point for h in habits} - {None}
    if "," in text and len(signs) == 1:
        return comma if signs == {","} else point
    if "," not in text and "," not in signs:
        return point
    small, large = (f"{value:.15g}" for value in sorted((point, comma)))
    longer = f"{small}0" if "." in small else f"{small}.0"
    raise QueryError(
        f"{variable.name!r}: {shown(text)} can be {small} or {large}; write {large}, or {longer}"
    )


def date_end(text: str, start: int) -> int | None:
    """Where the longest date that stands there ends; None if there is none."""
    ends = list(_ends(text, start))
    return next((end for end in reversed(ends) if day_of(text[start:end]) is not None), None)


def _ends(text: str, start: int, most: int = 5) -> Iterator[int]:
    for _ in range(most):
        piece = _PIECE.match(text, start)
        if piece is None:
            return
        yield (start := piece.end())


def read_day(text: str, habits: Habits = ()) -> float | None:
    """Days since 1970-01-01 of a date; None if it is not one."""
    orders = {h.order for h in habits} - {None}
    days = {day_of(text, order) for order in orders or {None}}
    if len(days) > 1:
        raise QueryError(
            f"{shown(text)} has the day first in some files and the month first in others: write "
            "it as 1964-05-31"
        )
    return days.pop()

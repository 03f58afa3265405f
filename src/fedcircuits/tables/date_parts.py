"""Parts of dates beside the days themselves: the weekday and the month, as categories.

What depends on the season or on weekends is hidden from a model of days since 1970. A column of the
kind ``date+weekday+month`` stays a date and has two columns beside it, ``visit weekday`` and
``visit month``. Their unit names what they are taken from, so that a model reads them from the
dates of new rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcircuits.tables.columns import Floats
from fedcircuits.tables.schema import Variable

PARTS = {
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "month": ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
}
_TAKEN = re.compile(rf"({'|'.join(PARTS)}) of (.+)", re.DOTALL)


class DatePart(NamedTuple):
    """Which part, and of which column."""

    part: str
    column: str


def with_parts(
    days: Variable, values: Floats, parts: Sequence[str]
) -> list[tuple[Variable, Floats]]:
    """Parts of a column of days: variables, and their codes (rows,)."""
    return [
        (
            Variable(f"{days.name} {part}", "category", PARTS[part], f"{part} of {days.name}"),
            codes(values, part),
        )
        for part in parts
    ]


def codes(days: Floats, part: str) -> Floats:
    """Codes (rows,) of days since 1970-01-01, which was a Thursday."""
    whole = np.floor(days)
    if part == "weekday":
        return np.asarray(np.mod(whole + 3, 7))
    missing = np.isnan(whole)
    months = np.where(missing, 0, whole).astype("datetime64[D]").astype("datetime64[M]")
    return np.where(missing, np.nan, np.mod(months.astype(np.int64), 12).astype(np.float64))


def taken_from(variable: Variable) -> DatePart | None:
    """Of which column it is which part, if it is one.

    >>> taken_from(Variable("visit month", "category", PARTS["month"], "month of visit"))
    DatePart(part='month', column='visit')
    """
    found = _TAKEN.fullmatch(variable.unit or "")
    if found is None or variable.categories != PARTS[found[1]]:
        return None
    return DatePart(found[1], found[2])

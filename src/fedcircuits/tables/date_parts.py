"""Dates as numbers: weekday and month as categories, and columns of numbers that are dates.

A model of days since 1970 cannot see what depends on the season or on weekends. A column of the
kind ``date+weekday+month`` stays a date and gets two more columns, ``visit weekday`` and
``visit month``. Their unit names the column they are derived from, so that a model computes them
from the dates of new rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcircuits.tables.columns import Column, Floats
from fedcircuits.tables.schema import DATE, TIME, Variable

PARTS = {
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "month": ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
}
_TAKEN = re.compile(rf"({'|'.join(PARTS)}) of (.+)", re.DOTALL)


class DatePart(NamedTuple):
    """A part of a date, and the column it is derived from."""

    part: str
    column: str


def with_parts(
    days: Variable, values: Floats, parts: Sequence[str]
) -> list[tuple[Variable, Floats]]:
    """Variables and codes (rows,) derived from a column of days."""
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
    """The part of a date that a variable is, and of which column; None for other variables.

    >>> taken_from(Variable("visit month", "category", PARTS["month"], "month of visit"))
    DatePart(part='month', column='visit')
    """
    match = _TAKEN.fullmatch(variable.unit or "")
    if match is None or variable.categories != PARTS[match[1]]:
        return None
    return DatePart(match[1], match[2])


EXCEL = 25_569  # days from the first of Excel to 1970-01-01


def numbered_days(column: Column, numbers: Floats) -> tuple[Column, str] | None:
    """The column as dates, if its numbers are days as spreadsheets count them or seconds since
    1970, and a description of which."""
    known = numbers[~np.isnan(numbers)]
    for low, high, first, unit, how in (
        (3_654, 73_051, EXCEL, 1.0, "days as spreadsheets count them"),
        (3e8, 4e9, 0, 86_400.0, "seconds since 1970"),
        (3e11, 4e12, 0, 86_400_000.0, "milliseconds since 1970"),
    ):
        if len(known) and low <= known.min() and known.max() <= high:
            days = np.round((numbers / unit - first) * 86_400) / 86_400
            timed = bool(np.any(days[~np.isnan(days)] % 1))
            return Column(column.name, "real", days, unit=TIME if timed else DATE), f"dates, {how}"
    return None

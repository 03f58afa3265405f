"""Numbers that are dates: days as spreadsheets count them, seconds as computers do."""

from __future__ import annotations

import numpy as np

from fedcircuits.tables.columns import Column, Floats
from fedcircuits.tables.schema import DATE, TIME

EXCEL = 25_569  # days from the first of Excel to 1970-01-01


def numbered_days(column: Column, numbers: Floats) -> tuple[Column, str] | None:
    """Days as spreadsheets count them, and seconds as computers do."""
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

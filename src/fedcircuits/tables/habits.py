"""How a file writes decimal signs and dates, by what in it is unambiguous."""

from __future__ import annotations

from dataclasses import dataclass

from fedcircuits.tables.dates import Order
from fedcircuits.tables.numerals import Point


@dataclass(frozen=True, slots=True)
class ReadingHabits:
    point: Point | None = None
    order: Order | None = None


NO_HABITS = ReadingHabits()

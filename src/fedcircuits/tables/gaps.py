"""How missing values are written: words, and sentinel numbers.

``MISSING`` are missing in every column. ``UNKNOWN`` are missing among numbers, dates and booleans;
in a category they are an ordinary level. Numbers of nines (999, -99, 9999.99, and 88 and 77 beside
them) that are far from all others and occur several times are missing, and so are default dates
such as 1900-01-01 that no other date is near.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from fedcircuits.tables.columns import Column

MISSING = (
    "", "?", "??", "???", "NA", "N/A", "n.a.", "n. a.", "<NA>", "nan", "NaT", "null", "(null)",
    "[null]", "<null>", "\\N", "#N/A", "#NV", "#WERT!", "#VALUE!", "#DIV/0!", "#REF!", "#BEZUG!",
    "#NAME?", "#NUM!", "#ZAHL!", "#NULL!", "-", "--", "---", "–", "—", ".", "..", "...", "…",
    "missing", "not available", "no data", "not recorded", "not done", "k.A.", "k. A.",
    "keine Angabe", "keine Angaben", "n/d", "n.d.", "nd", "n.v.", "leer", "(leer)", "(blank)",
    "nicht erhoben", "nicht bestimmt", "fehlt", "non disponible", "sin datos",
)  # fmt: skip
UNKNOWN = frozenset((
    "unknown", "unbekannt", "unbek.", "unk", "inconnu", "desconocido", "none", "nil", "not known",
    "weiß nicht", "don't know", "dk", "entfällt", "n.n.", "*", "**", "***", "tbd", "pending",
    "folgt", "ausstehend", "x", "u",
))  # fmt: skip
CASES = (str, str.lower, str.upper, str.title, str.capitalize)
DASHES = ("-", "--", "---", "–", "—")
SIGNS = re.compile(r"\(?\+{1,4}\)?|\+/-|±|\(-\)")  # among these a dash is a finding
SENTINEL = re.compile(r"-9|-?(9{2,}|8{2,}|7{2,})(\.9+)?")
SURVEY = re.compile(r"-(9|8|7|99|98|97|88|77)")
LARGEST = 1e75  # what can be learned from
LEAST, REST = 3, 5  # rows of a sentinel, and different other numbers beside it
DEFAULTS = tuple(
    float(np.datetime64(day, "D").astype(np.int64))
    for day in ("1900-01-01", "1899-12-30", "1899-12-31", "1901-01-01", "1753-01-01", "1800-01-01")
)


def is_unknown(text: str) -> bool:
    return text.strip().casefold() in UNKNOWN


def without_sentinels(column: Column, never_negative: bool = False) -> tuple[Column, str]:
    """The column without sentinel numbers for missing values, and a description of them."""
    known = column.numbers[column.present]
    values, counts = np.unique(known, return_counts=True)
    if len(values) and max(-values[0], values[-1]) > LARGEST >= np.abs(values).min():
        far = np.abs(column.numbers) > LARGEST
        rest, words = without_sentinels(
            replace(column, numbers=np.where(far, np.nan, column.numbers)), never_negative
        )
        return rest, ", ".join(
            filter(None, (f"{far.sum():,} beyond ±1e75 taken as missing", words))
        )
    odd = np.array([SENTINEL.fullmatch(f"{v:.10g}") is not None for v in values], dtype=bool)
    rest = values[~odd]
    if not odd.any() or not len(rest):
        return column, ""
    span = rest[-1] - rest[0]
    apart = np.maximum(rest[0] - values, values - rest[-1])
    several = (counts >= LEAST) & (len(rest) >= REST)
    survey = np.array([SURVEY.fullmatch(f"{v:g}") is not None for v in values], dtype=bool)
    gone = odd & several & ((apart > 2 * span) | (survey & bool(rest[0] >= 0)))
    gone |= odd & (values < 0) & never_negative
    if not gone.any():
        return column, ""
    numbers = np.where(np.isin(column.numbers, values[gone]), np.nan, column.numbers)
    listed = " and ".join(f"{v:g}" for v in values[gone])
    return replace(column, numbers=numbers), f"{listed} taken as missing"


def without_defaults(column: Column) -> tuple[Column, str]:
    """The column without dates that programs enter by default, and a description of them."""
    known = column.numbers[column.present]
    for day in DEFAULTS:
        others = known[known != day]
        near = len(others) and np.abs(others - day).min() < 366
        if (known == day).sum() >= LEAST and len(others) and not near:
            text = str(np.datetime64(int(day), "D"))
            numbers = np.where(column.numbers == day, np.nan, column.numbers)
            return replace(column, numbers=numbers), f"{text} taken as missing"
    return column, ""

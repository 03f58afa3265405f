"""Text that spells something else: numbers, dates and truth values as people write them in files.

Each reader takes the distinct texts of a column and says what they are, or None if too few of them
are of its kind. Texts that are not are missing in the result; whoever asks tells the user how many.

    numbers   1234.5 · 1.234,5 · 1'234 · 1 234 · 12 % · € 3,50 · 3.2 mg/l · <5 · 1e-3
    dates     1964-05-31 · 31/05/1964 · 31.5.64 · 5/31/1964 14:20 · 31 May 1964 · 2024-03-01T08:00
    truths    yes/no, true/false, y/n, t/f, on/off, ja/nein, oui/non, sí/no, in any case

Whether a comma is the decimal point is decided for a column as a whole. ``1,234`` alone could be
either: it is a thousands separator unless another number of the column says otherwise, or the file
(``decimal=","``). Whether 3/4/2024 is in March or April likewise: days come first unless a number
above 12 stands in the second place, or the user says so (``dates="mdy"``).

``<5`` is read as 5, the bound: measured, but too small to be told. Where half of the texts are
bounds, they are classes. A column of codes with leading
zeros (postcodes, 01234) is no column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Decimal = Literal["auto", ".", ","]
DateOrder = Literal["auto", "dmy", "mdy", "ymd"]
ENOUGH = 0.9  # of the distinct texts must be of a kind for the column to be

# ---------------------------------------------------------------------- numbers

_SPACES = "\u00a0\u2009\u202f "
_SIGNS = re.compile(r"^(?P<bound>[<>≤≥~≈]=?)?\s*(?P<text>.*)$", re.DOTALL)
_MONEY = re.compile(r"^(?:[€$£¥]|CHF|EUR|USD|GBP)\s*|\s*(?:[€$£¥]|CHF|EUR|USD|GBP)$", re.I)
_UNIT = re.compile(
    r"^(?P<number>[-+−(]?[\d.,'’\s]*\d\)?)\s*(?P<unit>%|‰|[A-Za-zµμ°][\w/²³µμ°%.^·]*)$"
)
_PLAIN = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I)
_CODE = re.compile(r"0\d+")  # a number would lose its zeros
_GROUPS = {
    ".": re.compile(r"[-+]?\d{1,3}([,'’\u00a0\u2009\u202f ]\d{3})+(\.\d*)?"),
    ",": re.compile(r"[-+]?(\d{1,3}([.'’\u00a0\u2009\u202f ]\d{3})+|\d+)(,\d*)?|[-+]?,\d+"),
}


@dataclass(frozen=True, slots=True)
class SpelledNumbers:
    """``values`` (texts,), NaN for what is no number; ``how`` says in words what was read."""

    values: Floats
    how: str
    unit: str | None


def is_plain(texts: Sequence[str]) -> bool:
    """Whether all of them are numbers as programs write them."""
    return all(_PLAIN.fullmatch(text.strip()) for text in texts) and not has_codes(texts)


def has_codes(texts: Sequence[str]) -> bool:
    """Whether a zero stands before other digits: postcodes and such are no numbers."""
    return any(_CODE.fullmatch(text.strip()) for text in texts)


def numbers(
    texts: Sequence[str], decimal: Decimal = "auto", enough: float = ENOUGH
) -> SpelledNumbers | None:
    """The texts as numbers, if this share of them are."""
    if not texts or (enough and has_codes(texts)):
        return None
    stripped = [_stripped(text) for text in texts]
    point = _point([text for text, _, _ in stripped]) if decimal == "auto" else decimal
    values = np.array([_number(text, point) for text, _, _ in stripped])
    read = ~np.isnan(values)
    if read.sum() < max(1, enough * len(texts)):
        return None
    units = {unit for (_, unit, _), known in zip(stripped, read, strict=True) if known}
    if len(units - {""}) > 1 and units != {"", "%"}:
        return None  # 3 mg and 2 g must not be added
    unit = next(iter(units - {""}), None)
    bounds = sum(bool(bound) for (_, _, bound), known in zip(stripped, read, strict=True) if known)
    if enough and 2 * bounds >= read.sum():
        return None  # <=50K and >50K are classes
    how = [
        "with a decimal comma" if point == "," and any("," in text for text in texts) else "",
        f"in {unit}" if unit else "",
        "bounds such as <5 as the bound" if bounds else "",
    ]
    return SpelledNumbers(values, ", ".join(filter(None, how)), unit)


def _stripped(text: str) -> tuple[str, str, str]:
    """The number alone, its unit, and the sign of a bound before it."""
    signs = _SIGNS.match(text.strip())
    assert signs is not None
    bound, rest = signs["bound"] or "", signs["text"].strip(_SPACES)
    money = _MONEY.search(rest)
    unit = money[0].strip(_SPACES) if money else ""
    rest = _MONEY.sub("", rest) if money else rest
    if not unit and not _PLAIN.fullmatch(rest) and (found := _UNIT.match(rest)):
        rest, unit = found["number"].strip(_SPACES), found["unit"]
    if rest.startswith("(") and rest.endswith(")"):  # as accountants write what is owed
        rest = "-" + rest[1:-1]
    return rest.replace("−", "-"), unit, bound


def _point(texts: Sequence[str]) -> Literal[".", ","]:
    """The decimal sign of a column: the one that some number cannot do without."""
    commas = sum(_GROUPS[","].fullmatch(t) is not None and not _reads(t, ".") for t in texts)
    points = sum(_reads(t, ".") and not _GROUPS[","].fullmatch(t) for t in texts)
    return "," if commas > points else "."


def _reads(text: str, point: str) -> bool:
    plain = _PLAIN.fullmatch(text) is not None if point == "." else False
    return plain or _GROUPS[point].fullmatch(text) is not None


def _number(text: str, point: str) -> float:
    if not _reads(text, point):
        return np.nan
    kept = text if point == "." else text.replace(".", "").replace(",", ".")
    value = float(re.sub(rf"[,'’{_SPACES}]", "", kept))
    return value if np.isfinite(value) else np.nan


# ---------------------------------------------------------------------- dates

_ISO = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
)
_PARTS = re.compile(r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})([T ,]+\d{1,2}:\d{2}(:\d{2})?)?")
_WORDS = re.compile(r"\d{1,2}\.?[ -][A-Za-z]{3,9}\.?,?[ -]\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}")
THIS_CENTURY = 40  # years of two digits up to here are of 20…, above of 19…


@dataclass(frozen=True, slots=True)
class SpelledDates:
    """``days`` (texts,) since 1970-01-01, NaN for what is no date."""

    days: Floats
    how: str
    timed: bool  # whether a time of day is told


def dates(
    texts: Sequence[str], order: DateOrder = "auto", enough: float = ENOUGH
) -> SpelledDates | None:
    """The texts as dates, if this share of them are."""
    stripped = [text.strip() for text in texts]
    if sum(map(_is_date, stripped)) < max(1, enough * len(texts)):
        return None
    chosen = _order(stripped) if order == "auto" else order
    days = _days([_iso(t, chosen) if _is_date(t) else "" for t in stripped])
    if np.isfinite(days).sum() < max(1, enough * len(texts)):
        return None
    timed = bool(np.any(days[np.isfinite(days)] % 1))
    parts = any(_PARTS.fullmatch(t) and not _ISO.fullmatch(t) for t in stripped)
    words = {"dmy": "day first", "mdy": "month first", "ymd": "year first"}
    return SpelledDates(days, words[chosen] if parts else "", timed)


def _is_date(text: str) -> bool:
    return bool(_ISO.fullmatch(text) or _PARTS.fullmatch(text) or _WORDS.fullmatch(text))


def _order(texts: Sequence[str]) -> Literal["dmy", "mdy", "ymd"]:
    found = [m for t in texts if (m := _PARTS.fullmatch(t)) and not _ISO.fullmatch(t)]
    if any(len(m[1]) == 4 for m in found):
        return "ymd"
    first = any(int(m[1]) > 12 for m in found)
    second = any(int(m[3]) > 12 for m in found)
    return "mdy" if second and not first else "dmy"


def _iso(text: str, order: Literal["dmy", "mdy", "ymd"]) -> str:
    """The same date with the year first."""
    parts = _PARTS.fullmatch(text)
    if parts is None or _ISO.fullmatch(text):
        return text
    first, second, third = parts[1], parts[3], parts[4]
    year, month, day = {
        "dmy": (third, second, first), "mdy": (third, first, second), "ymd": (first, second, third),
    }["ymd" if len(first) == 4 else order]  # fmt: skip
    century = 0 if len(year) > 2 else 2000 if int(year) <= THIS_CENTURY else 1900
    clock = (parts[5] or "").strip(" T,")
    whole = f"{century + int(year):04d}-{int(month):02d}-{int(day):02d}"
    return f"{whole} {clock.zfill(5)}" if clock else whole


def _days(texts: Sequence[str]) -> Floats:
    """Days (texts,) since 1970-01-01, NaN for what is no date of the calendar."""
    worded = np.array([_WORDS.fullmatch(text) is not None for text in texts])
    days = np.full(len(texts), np.nan)
    for rows, form in ((worded, "mixed"), (~worded, "ISO8601")):
        if rows.any():
            found = pd.Series(texts, dtype=object)[rows]
            moments = pd.to_datetime(found, errors="coerce", utc=True, format=form)
            days[rows] = days_since_epoch(moments)
    return days


def days_since_epoch(moments: pd.Series) -> Floats:
    """Days (rows,) since 1970-01-01, to the second: as they are given back."""
    days = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return np.asarray(np.round(days.to_numpy(np.float64) * 86_400) / 86_400)


def day_of(text: str) -> float | None:
    """Days since 1970-01-01 of one date as a question names it, None if it is no date."""
    found = dates([text])
    return None if found is None else float(found.days[0])


# ---------------------------------------------------------------------- truths


TRUTHS = (
    ("no", "yes"), ("false", "true"), ("n", "y"), ("f", "t"), ("off", "on"), ("0", "1"),
    ("nein", "ja"), ("n", "j"), ("non", "oui"), ("no", "sí"), ("no", "si"), ("não", "sim"),
    ("nee", "ja"), ("nej", "ja"), ("negative", "positive"), ("absent", "present"),
)  # fmt: skip


def truth_of(text: str) -> bool | None:
    """What a word for yes or no means, None for other words."""
    word = text.strip().casefold()
    return next((word == pair[1] for pair in TRUTHS if word in pair), None)


def truths(texts: Sequence[str]) -> tuple[str, str] | None:
    """The words for no and yes, if the texts are both of such a pair, in any case and padding."""
    found = {text.strip().casefold() for text in texts}
    return next((pair for pair in TRUTHS[:5] + TRUTHS[6:] if found == set(pair)), None)

"""Dates and times as written in files, as days since 1970-01-01.

    1964-05-31 · 31/05/1964 · 31.5.64 · 5/31/1964 2:20 PM · 31 May 1964 · 31. Mai 1964 · 31MAY1964 ·
    Sun 31 May 1964 · 19640531 · 2024-03-01T08:00:00+02:00 · 05/1964 · Mai 1964 · 2024-W09

Whether 3/4/2024 is in March or April is decided for the column as a whole: a number above 12 shows
which place holds the day. Otherwise the rest of the file decides (``hint``), else the day comes
first. If some dates have the day first and others the month, no order is right: ``mixed_orders``.

A month without a day is read as its first day. Times with a zone are converted to UTC, others kept.
Two-digit years up to 30 are in the 2000s, others in the 1900s. 0000, 9999-12-31 or 31.02. are not
dates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Order = Literal["dmy", "mdy", "ymd"]
DateOrder = Literal["auto", "dmy", "mdy", "ymd"]
ENOUGH = 0.9  # of the distinct texts with a digit must be dates for the column to be
THIS_CENTURY = 30
EPOCH = date(1970, 1, 1).toordinal()
YEARS = range(1000, 2500)  # others stand for "never" and "always"

_CLOCK = (
    r"(?:[T ,]+(?P<hour>\d{1,2})[:.h](?P<minute>\d{2})(?:[:.](?P<second>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?\s*(?:Uhr|h)?\s*(?P<zone>Z|[A-Z]{3,4}|[+-]\d{2}:?(?:\d{2})?)?)?"
)
_DAY = r"(?:(?:[^\W\d]{2,10})[.,]?[ ,]+)?"  # Sunday,
_FORMS = {
    "iso": re.compile(
        rf"{_DAY}(?P<y>\d{{4}})([-/.])(?P<m>\d{{1,2}})\2(?P<d>\d{{1,2}}){_CLOCK}", re.I
    ),
    "parts": re.compile(
        rf"{_DAY}(?P<a>\d{{1,2}})([./-])(?P<b>\d{{1,2}})\2(?P<y>\d{{4}}|\d{{2}}){_CLOCK}", re.I
    ),
    "word": re.compile(
        rf"{_DAY}(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\.?[ -]?(?:de )?(?P<word>[^\W\d]{{3,10}})\.?,?"
        rf"[ -]?(?:de )?(?P<y>\d{{4}}|\d{{2}}){_CLOCK}", re.I,
    ),
    "american": re.compile(
        rf"{_DAY}(?P<word>[^\W\d]{{3,10}})\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y>\d{{4}})"
        rf"{_CLOCK}", re.I,
    ),
    "month": re.compile(r"(?P<y>\d{4})[-/](?P<m>\d{1,2})"),
    "of year": re.compile(r"(?P<m>\d{1,2})[./-](?P<y>\d{4})"),
    "worded month": re.compile(
        r"(?P<word>[^\W\d]{3,10})\.?[ -](?P<y>\d{4})|"
        r"(?P<abbreviated>[^\W\d]{3,4})\.?[-'’](?P<short>\d{2})", re.I,
    ),
    "quarter": re.compile(
        r"(?P<y>\d{4})[ /-]?Q(?P<quarter>[1-4])|Q(?P<of>[1-4])[ /-]?(?P<year>\d{4})", re.I
    ),
    "week": re.compile(r"(?P<y>\d{4})-?W(?P<week>\d{2})(?:-?(?P<day>[1-7]))?", re.I),
    "digits": re.compile(r"(?P<y>(?:19|20)\d{2})(?P<m>\d{2})(?P<d>\d{2})"),
    "digits, day first": re.compile(r"(?P<d>\d{2})(?P<m>\d{2})(?P<y>(?:19|20)\d{2})"),
}  # fmt: skip
MONTHLY = ("month", "of year", "worded month")
YEAR = ("y", "short", "year")  # groups of a year
_MONTHS: dict[str, int] = {
    word: number
    for number, words in enumerate(
        ("jan gen ene", "feb fév fev", "mar mär mrz", "apr avr abr", "mai may mag maj",
         "jun juin giu", "jul juil lug", "aug aoû aou ago", "sep set", "okt oct ott out", "nov",
         "dez dec déc dic"),
        start=1)
    for word in words.split()
}  # fmt: skip
_ZONES = {"z": 0, "utc": 0, "gmt": 0, "cet": 1, "mez": 1, "cest": 2, "mesz": 2, "bst": 1, "est": -5,
          "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpelledDates:
    """``days`` (texts,) since 1970-01-01, NaN for texts that are not dates."""

    days: Floats
    how: str
    timed: bool  # whether a time of day is told
    doubtful: Order | None = None  # the other order, where nothing in the column says which


@dataclass(frozen=True, slots=True)
class _Parsed:
    form: str
    match: re.Match[str]

    def place(self, name: str) -> int:
        return int(self.match[name])

    @property
    def year(self) -> str:
        groups = self.match.groupdict()
        return next(year for name in YEAR if (year := groups.get(name)))


def dates(
    texts: Sequence[str],
    order: DateOrder = "auto",
    enough: float = ENOUGH,
    hint: Order | None = None,
) -> SpelledDates | None:
    """The texts as dates, if at least this share of them are."""
    parsed = _of_digits([_parsed(text.strip()) for text in texts])
    digits = sum(any(c.isdigit() for c in text) for text in texts)
    if sum(p is not None for p in parsed) < max(1, enough * digits):
        return None
    if enough and not _dates_together([p for p in parsed if p is not None]):
        return None
    orders = orders_of(parsed)
    chosen: Order = (hint or "dmy") if order == "auto" else order
    if order == "auto" and orders:
        chosen = orders.most_common(1)[0][0]
    days = np.array([np.nan if p is None else _days(p, chosen) for p in parsed])
    if np.isfinite(days).sum() < max(1, enough * digits):
        return None
    parts = any(p is not None and p.form == "parts" for p in parsed)
    other: Order | None = "dmy" if chosen == "mdy" else "mdy"
    doubtful = other if parts and order == "auto" and not orders else None
    how = _words([p for p in parsed if p is not None], chosen if parts else None)
    return SpelledDates(days, how, bool(np.any(days[np.isfinite(days)] % 1)), doubtful)


def mixed_orders(texts: Sequence[str]) -> bool:
    """Whether some dates have the day first and others the month."""
    return len(orders_of([_parsed(text.strip()) for text in texts])) > 1


def is_date(text: str) -> bool:
    """Whether a single text would be read as a calendar date."""
    parsed = _parsed(text.strip())
    if parsed is None or parsed.form not in ("iso", "parts", "word", "american"):
        return False
    return any(np.isfinite(_days(parsed, order)) for order in ("dmy", "mdy"))


def orders_of(parsed: Sequence[_Parsed | None]) -> Counter[Order]:
    """How many dates show that the day comes first, and how many that the month does."""
    orders: Counter[Order] = Counter()
    for p in parsed:
        if p is not None and p.form == "parts":
            first, second = p.place("a"), p.place("b")
            if first > 12 >= second:
                orders["dmy"] += 1
            if second > 12 >= first:
                orders["mdy"] += 1
    return orders


def evidence(texts: Sequence[str]) -> Counter[Order]:
    """The same for texts."""
    return orders_of([_parsed(text.strip()) for text in texts])


def _parsed(text: str) -> _Parsed | None:
    if len(text) < 5 or len(text) > 60 or not any(c.isdigit() for c in text):
        return None
    for form, pattern in _FORMS.items():
        if match := pattern.fullmatch(text):
            return _Parsed(form, match)
    return None


def _of_digits(parsed: Sequence[_Parsed | None]) -> list[_Parsed | None]:
    """Dates of eight digits with the year first or last, whichever fits more of them."""
    if not any(p is not None and p.form.startswith("digits") for p in parsed):
        return list(parsed)
    forms = ("digits", "digits, day first")
    tried = [[_digits(p, form) for p in parsed] for form in forms]
    return max(tried, key=lambda some: sum(p is not None and p.form in forms for p in some))


def _digits(p: _Parsed | None, form: str) -> _Parsed | None:
    if p is None or not p.form.startswith("digits"):
        return p
    match = _FORMS[form].fullmatch(p.match[0])
    other = None if match is None else _Parsed(form, match)
    return other if other is not None and np.isfinite(_days(other, "dmy")) else None


def _dates_together(parsed: Sequence[_Parsed]) -> bool:
    """Digits alone, and fractions such as 05/1964, are dates only if all texts are."""
    forms = {p.form for p in parsed}
    bare = {"digits", "digits, day first"}
    return not forms & bare or forms <= bare


def _days(p: _Parsed, order: Order) -> float:
    try:
        day = _date(p, order)
    except (ValueError, KeyError):
        return np.nan
    if day.year not in YEARS:
        return np.nan
    return day.toordinal() - EPOCH + _clock(p)


def _date(p: _Parsed, order: Order) -> date:
    if p.form == "week":
        return date.fromisocalendar(p.place("y"), p.place("week"), int(p.match["day"] or 1))
    year = int(p.year)
    if len(p.year) == 2:
        year += 2000 if year <= THIS_CENTURY else 1900
    if p.form == "quarter":
        return date(year, 3 * int(p.match["quarter"] or p.match["of"]) - 2, 1)
    if p.form == "parts":
        places = (p.place("a"), p.place("b"))
        day, month = places[::-1] if order == "mdy" else places
        return date(year, month, day)
    groups = p.match.groupdict()
    word = groups.get("word") or groups.get("abbreviated")
    month = _MONTHS[_month(word)] if word else p.place("m")
    return date(year, month, int(groups.get("d") or 1))


def _month(word: str) -> str:
    folded = word.casefold()
    return next((folded[:n] for n in (4, 3) if folded[:n] in _MONTHS), folded)


def _clock(p: _Parsed) -> float:
    """The time of day as a fraction of a day, in UTC if a zone is given."""
    groups = p.match.groupdict()
    if not groups.get("hour"):
        return 0.0
    hour, minute, second = (int(groups[n] or 0) for n in ("hour", "minute", "second"))
    if hour > 24 or minute > 59 or second > 60:
        return np.nan
    if half := (groups["half"] or "").replace(".", "").casefold():
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour * 3600 + minute * 60 + second - 60 * _offset(groups["zone"] or "")) / 86_400


def _offset(zone: str) -> float:
    """Minutes ahead of UTC; None for unknown zones."""
    if not zone or zone[0] not in "+-":
        return 60 * _ZONES.get(zone.casefold(), 0)
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (60 * int(digits[:2]) + int(digits[2:]))


def _words(parsed: Sequence[_Parsed], order: Order | None) -> str:
    names = {"dmy": "day first", "mdy": "month first", "ymd": "year first"}
    zones = {p.match.groupdict().get("zone") for p in parsed} - {None}
    short = any(len(p.year) == 2 for p in parsed)
    slashed = any(p.form == "iso" and p.match[2] != "-" for p in parsed)
    how = [
        names[order] if order else "year first" if slashed else "",
        f"years of two digits from 19{THIS_CENTURY + 1} to 20{THIS_CENTURY}" if short else "",
        "months as their first day" if any(p.form in MONTHLY for p in parsed) else "",
        "quarters as their first day" if any(p.form == "quarter" for p in parsed) else "",
        "weeks as their Monday" if any(p.form == "week" for p in parsed) else "",
        "times in UTC" if zones else "",
    ]
    return ", ".join(filter(None, how))


def day_of(text: str, order: Order | None = None) -> float | None:
    """Days since 1970-01-01 of a date in a query; None if it is not a date. ``order``: where a
    number above 12 does not show it."""
    days = dates([text], hint=order)
    return None if days is None else float(days.days[0])


# ---------------------------------------------------------------------- times of day

_TIME = re.compile(r"(\d{1,2})[:h](\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*([ap]\.?m\.?|Uhr|h)?", re.I)
_LASTING = re.compile(
    r"(?:(\d+)\s*(?:d|days?|Tage?)\s*)?(?:(\d+)\s*(?:h|hrs?|hours?|Std\.?|Stunden?)\s*)?"
    r"(?:(\d+)\s*(?:m|min\.?|minutes?|Minuten?|')\s*)?(?:(\d+)\s*(?:s|sec\.?|Sek\.?)\s*)?", re.I,
)  # fmt: skip


HOURS = (24, 1, 1 / 60, 1 / 3600)  # of a day, an hour, a minute, a second


def hours(texts: Sequence[str]) -> tuple[Floats, str] | None:
    """Times of day as hours after midnight, durations as hours, and a description.

    >>> hours(["14:30", "2:15 pm"])
    (array([14.5 , 14.25]), 'times of day as hours after midnight')
    """
    times = np.array([_hour(text.strip()) for text in texts])
    if np.isfinite(times).sum() >= max(1, ENOUGH * len(texts)):
        return times, "times of day as hours after midnight"
    lasting = np.array([_lasting(text.strip()) for text in texts])
    several = any(len(re.findall(r"\d+", text)) > 1 for text in texts)  # 90 days has a unit
    if several and np.isfinite(lasting).sum() >= max(1, ENOUGH * len(texts)):
        return lasting, "durations as hours"
    return None


def hour_of(text: str) -> float | None:
    """Hours after midnight of a time of day in a query; None if it is not one."""
    hour = _hour(text.strip())
    return None if np.isnan(hour) else hour


def _hour(text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None or int(match[1]) > 24 or int(match[2]) > 59:
        return np.nan
    half = (match[4] or "").replace(".", "").casefold()
    hour = (
        int(match[1]) % 12 + (12 if half == "pm" else 0) if half in ("am", "pm") else int(match[1])
    )
    return hour + int(match[2]) / 60 + int(match[3] or 0) / 3600


_COUNTED = re.compile(r"(\d+) days?,? (\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?", re.I)


def _lasting(text: str) -> float:
    match = _COUNTED.fullmatch(text) or _LASTING.fullmatch(text)
    if match is None or not any(match.groups()):
        return np.nan
    return sum(int(n or 0) * each for n, each in zip(match.groups(), HOURS, strict=True))

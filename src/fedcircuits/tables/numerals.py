"""Numbers as written in files.

    1234.5 · 1.234,5 · 1'234 · 1 234 · 12 % · € 3,50 · 3.2 mg/l · <5 · ca. 40 · 53 H · 3.50- · 1e-3

``numbers`` parses the distinct texts of a column, or returns None if too few of those with a digit
are numbers. Texts that are not numbers are missing in the result; the caller reports them.

Whether a comma is the decimal sign is decided for the column as a whole, by the numbers that can be
read in only one way. ``1,234`` is ambiguous: it is read like the other numbers of the column, or of
the file (``hint``), else as thousands; ``doubtful`` then holds an example.

``<5`` is read as the bound 5: measured, but below the detection limit. If half of the texts are
bounds, they are classes. A column of codes with leading zeros (postcodes, 01234) is not numeric,
nor is one with two units: 3 mg and 2 g must not be added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Point = Literal[".", ","]
Decimal = Literal["auto", ".", ","]
MOST_UNITS = 5  # in one column; more are something else
ENOUGH = 0.9  # of the distinct texts with a digit must be numbers for the column to be

INVISIBLE = dict.fromkeys((0xAD, *range(0x200B, 0x2010), 0x2060, 0xFEFF))  # of no width
_SPACES = "\u00a0\u2009\u202f \t"
_QUOTED = re.compile(r"""^="?(.*?)"?$|^'(?=[-+\d])(.*?)'?$""", re.DOTALL)  # ="00123", '123
_BOUND = re.compile(r"^(?P<sign>[<>≤≥]=?|[~≈±]|(?:ca|circa|etwa|approx|about|env)\b\.?)\s*", re.I)
CODES = "EUR|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|CZK|HUF|TRY|INR|CNY|BRL|AUD|CAD"
_MONEY = re.compile(rf"^(?:US\$|R\$|[€$£¥₹₺]|{CODES}|Fr\.)\s*|\s*(?:[€$£¥₹₺]|{CODES})$", re.I)
_FLAG = re.compile(
    r"\s*(?:±|\+/-)\s*[\d.,]+\s*%?$|\s*[*!?↑↓]+$|\s+(?:H|L|HH|LL)$|\s*\((?:H|L|HH|LL|\*|!)\)$"
)
_UNIT = re.compile(
    r"^(?P<number>[-+−]?[\d.,'’\s]*\d\.?(?:e[-+]?\d+)?-?)\s*"
    r"(?P<unit>%|‰|[A-Za-zµμ°Ω€$£][\w/²³µμ°%.^·*€$£-]*(?: ?/ ?[\w²³µμ°€$£]+| Hg)?)$",
    re.I,
)
_PLAIN = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.I)
_WHOLE = re.compile(r"[-+]?\d{1,300}")
_CODE = re.compile(r"0\d+")  # a number would lose its zeros
_GROUP = rf"['’{_SPACES}]"
_READS: dict[str, re.Pattern[str]] = {
    ".": re.compile(rf"[-+]?([1-9]\d{{0,2}}((,|{_GROUP})\d{{2,3}})*(,|{_GROUP})\d{{3}})(\.\d*)?"),
    ",": re.compile(
        rf"[-+]?([1-9]\d{{0,2}}((\.|{_GROUP})\d{{3}})+|\d+)(,\d*)?(e[-+]?\d+)?|[-+]?,\d+", re.I
    ),
}
SCALES = {"k": 1e3, "tsd": 1e3, "tsd.": 1e3, "mio": 1e6, "mio.": 1e6, "m": 1e6, "mrd": 1e9,
          "mrd.": 1e9, "bn": 1e9, "b": 1e9}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpelledNumbers:
    """``values`` (texts,), NaN for texts that are not numbers; ``how`` describes what was read."""

    values: Floats
    how: str
    unit: str | None
    fractional: bool = False  # whether a decimal sign is written
    doubtful: str = ""  # what was made of a text that could be two numbers, where none decides


@dataclass(frozen=True, slots=True)
class Numeral:
    """The digits of a number, and what surrounds them."""

    digits: str
    unit: str = ""
    bound: bool = False
    flag: bool = False


def is_amount(text: str) -> bool:
    """Whether it is a number with a currency, which could also be a code such as EUR 12."""
    rest, found = _MONEY.subn("", text.strip(), count=1)
    return found > 0 and not np.isnan(_number(rest.strip(_SPACES), "."))


def is_plain(texts: Sequence[str]) -> bool:
    """Whether all texts are numbers as programs write them."""
    return all(_PLAIN.fullmatch(text.strip()) for text in texts) and not has_codes(texts)


def has_codes(texts: Sequence[str]) -> bool:
    """Whether digits have a leading zero, as in postcodes, which are not numbers."""
    return any(_CODE.fullmatch(text.strip()) for text in texts)


def visible(text: str) -> str:
    """The text stripped of surrounding spaces and of zero-width characters."""
    return (text if text.isascii() else text.translate(INVISIBLE)).strip()


def bare(text: str) -> str:
    """The text without the marks by which spreadsheets denote text: ="00123", '00123."""
    stripped = visible(text)
    match = _QUOTED.match(stripped) if stripped[:1] in ("=", "'") else None
    return stripped if match is None else (match[1] or match[2] or "")


def numbers(
    texts: Sequence[str],
    decimal: Decimal = "auto",
    enough: float = ENOUGH,
    hint: Point | None = None,
) -> SpelledNumbers | None:
    """The texts as numbers, if at least this share of them are."""
    plain = [bare(text) for text in texts]
    if not texts or (enough and has_codes(plain)):
        return None
    if all(map(_WHOLE.fullmatch, plain)):
        return SpelledNumbers(np.array([float(text) for text in plain]), "", None)
    numerals = [numeral(text) for text in plain]
    signs = [_sign(n.digits) for n in numerals]
    point, doubtful = _point(signs, hint) if decimal == "auto" else (decimal, False)
    values = np.array([_number(n.digits, point) for n in numerals])
    read = ~np.isnan(values)
    digits = sum(any(c.isdigit() for c in text) for text in plain)
    if read.sum() < max(1, enough * digits):
        return None
    known = [n for n, good in zip(numerals, read, strict=True) if good]
    scales = _scales(numerals, read)
    units = {} if scales is not None else units_of(n.unit for n in known)
    if len(units) > 1:
        return None
    bounds = sum(n.bound for n in known)
    if enough and 2 * bounds >= read.sum():
        return None  # <=50K and >50K are classes
    unit = next(iter(units), None)
    mixed = {",", "."} <= set(signs)
    comma = point == "," and any("," in n.digits for n in known)
    some = unit is not None and not all(n.unit for n in known)
    how = [
        "with decimal commas and points" if mixed else "with a decimal comma" if comma else "",
        f"in {unit}{', also where none is written' if some else ''}" if unit else "",
        "k, M and such multiplied" if scales is not None else "",
        "bounds such as <5 as the bound" if bounds else "",
        "flags such as H, * and ± 2 left out" if any(n.flag for n in known) else "",
    ]
    return SpelledNumbers(
        values if scales is None else values * scales,
        ", ".join(filter(None, how)),
        unit,
        any(point in n.digits for n in known),
        _doubt(plain, signs, values, point) if doubtful else "",
    )


def units_of(written: Iterable[str]) -> dict[str, int]:
    """The units of the numbers, in their most common spelling: mg/dl is mg/dL.

    >>> units_of(["mg/dl", "mg/dL", "mg/dl", ""])
    {'mg/dl': 3}
    """
    counts = Counter(unit for unit in written if unit)
    best: dict[str, list[str]] = {}
    for unit, _ in counts.most_common():
        best.setdefault(unit_key(unit), []).append(unit)
    return {same[0]: sum(counts[u] for u in same) for same in best.values()}


def written_units(texts: Sequence[str]) -> dict[str, int]:
    """The units of texts that are numbers."""
    numerals = (numeral(bare(text)) for text in texts)
    units = units_of([n.unit for n in numerals if not np.isnan(_number(n.digits, "."))])
    return units if len(units) <= MOST_UNITS else {}


def unit_key(unit: str) -> str:
    """A key that is equal for units that mean the same; only a leading m differs from M, as in mW
    and MW."""
    folded = unit.replace("μ", "µ").replace(" ", "").replace("€", "EUR").casefold()
    return unit[0] + folded[1:] if unit[:1] in ("m", "M") and len(unit) > 1 else folded


def evidence(texts: Sequence[str]) -> Counter[str]:
    """How many texts need a decimal comma, and how many a decimal point."""
    signs = Counter(_sign(numeral(bare(text)).digits) for text in texts)
    return Counter({sign: signs[sign] for sign in (",", ".") if signs[sign]})


def numeral(text: str) -> Numeral:
    if _PLAIN.fullmatch(text):
        return Numeral(text)
    sign = _BOUND.match(text)
    rest = (text[sign.end() :] if sign else text).strip(_SPACES)
    flag = _FLAG.search(rest)
    rest = rest[: flag.start()] if flag else rest
    minus = "-" if rest.startswith("(") and rest.endswith(")") else ""  # as accountants write
    rest = rest[1:-1] if minus else rest
    before = re.match(r"[-−]\s*(?=[€$£¥])", rest)  # -€3
    rest, minus = (rest[before.end() :], "-") if before else (rest, minus)
    money = _MONEY.search(rest)
    unit = money[0].strip(_SPACES) if money else ""
    rest = _MONEY.sub("", rest, count=1) if money else rest
    if not unit and not _PLAIN.fullmatch(rest) and (match := _UNIT.match(rest)):
        rest, unit = match["number"].strip(_SPACES), match["unit"]
    rest = rest.replace("−", "-").strip(_SPACES)
    if rest.endswith("-") and len(rest) > 1:  # as some ledgers do
        rest, minus = rest[:-1].rstrip(_SPACES), "-"
    return Numeral(minus + rest, unit, sign is not None, flag is not None)


def _sign(digits: str) -> str:
    """The decimal sign that a text needs: a point, a comma, "" for either, "?" if ambiguous."""
    point, comma = number_by(digits, "."), number_by(digits, ",")
    if np.isnan(point) or np.isnan(comma):
        return "," if not np.isnan(comma) else "." if not np.isnan(point) else ""
    return "" if point == comma else "?"


def _point(signs: Sequence[str], hint: Point | None) -> tuple[Point, bool]:
    """The decimal sign of a column, and whether it is a guess."""
    commas, points = signs.count(","), signs.count(".")
    if commas or points:
        return "," if commas > points else ".", False
    return hint or ".", "?" in signs


def _doubt(texts: Sequence[str], signs: Sequence[str], values: Floats, point: Point) -> str:
    at = signs.index("?")
    return f"{texts[at]} as {values[at]:.10g}, else decimal={',' if point == '.' else '.'!r}"


def _number(digits: str, point: Point) -> float:
    """The number by the decimal sign of the column, or by the other sign if only that fits."""
    value = number_by(digits, point)
    return number_by(digits, "," if point == "." else ".") if np.isnan(value) else value


def number_by(digits: str, point: str) -> float:
    plain = point == "." and _PLAIN.fullmatch(digits) is not None
    if not plain and _READS[point].fullmatch(digits) is None:
        return np.nan
    kept = digits if point == "." else digits.replace(".", "").replace(",", ".")
    value = float(re.sub(rf"[,'’{_SPACES}]", "", kept))
    return value if np.isfinite(value) else np.nan


def _scales(numerals: Sequence[Numeral], read: NDArray[np.bool_]) -> Floats | None:
    """Factors (texts,) of numbers such as 3k beside 1.2M or 900; None if there are none."""
    units = {n.unit.casefold() for n, good in zip(numerals, read, strict=True) if good}
    if len(units) < 2 or not all(unit in SCALES for unit in units - {""}):
        return None
    return np.array([SCALES.get(n.unit.casefold(), 1.0) for n in numerals])

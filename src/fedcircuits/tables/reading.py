"""What is made of each column of a user's data before its kind is inferred, and the word about it.

Files and frames hold dates, amounts with signs, codes, names and remarks as text. Taken for
categories they would teach a model nothing, and in a federation their names would be told to
others. So text is read by what it spells (spelling.py), and what cannot be learned from is left
out: identifiers, remarks, columns without a value. Nothing of this is silent: every column has a
``ColumnReading``, ``Table.describe`` shows them, and what was left out is a warning.

A column whose kind or categories the user states is taken as stated. Frames have types: there, text
of plain numbers (``"12"``) and of two words (``"yes"``) is what it is; in a csv all is text.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fedcircuits.tables import spelling
from fedcircuits.tables.columns import Column, Floats
from fedcircuits.tables.schema import DATE, OTHER, TIME

MOST_LEVELS = 1_000
FEW_LEVELS = 20
FEW_ROWS = 5  # of a level that is pooled where there are too many of them
LONG_TEXT = 30  # characters
CODE = re.compile(r"[A-Za-z]+[-. ]?\d[\w.-]*")
IDENTIFIER = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|mrn|ssn|key|identifier)", re.I)
SENTINEL = re.compile(r"-?9{2,}")


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """What became of one column: its kind, or "left out", and how it was read."""

    column: str
    became: str
    how: str = ""

    @property
    def left_out(self) -> bool:
        return self.became == LEFT_OUT


LEFT_OUT: Final = "left out"


def otherwise(kind: str) -> str:
    """What a user types who means something else."""
    return {
        LEFT_OUT: 'kinds={column: "category"}',
        "date": 'kinds={column: "category"}, dates="mdy", drop=[column]',
        "category": 'kinds={column: "real"}, drop=[column]',
    }.get(kind, 'kinds={column: "category"}, drop=[column]')


@dataclass(frozen=True, slots=True)
class ReadingRule:
    """How text is read: ``typed`` where the source has types, as frames have."""

    typed: bool = True
    decimal: spelling.Decimal = "auto"
    dates: spelling.DateOrder = "auto"


Read = tuple[Column | None, str]  # None: left out; and the word about it


def read_column(column: Column, rule: ReadingRule) -> Read:
    """The column as what it spells."""
    if not column.present.any() and column.form != "categorical":
        return None, "it has no values"
    if column.form == "text":
        return _read_text(column, rule)
    if column.form == "categorical":
        return _read_categories(column, [], ReadingRule())
    if column.form == "integer" and _is_identifier(column):
        return None, "an identifier: a different number in every row"
    return column, ""


def read_as(column: Column, kind: str, rule: ReadingRule) -> Read:
    """The text of a csv as a kind that is known: stated by the user, or that of a model."""
    if rule.typed or column.form != "text":
        return column, ""
    texts = [str(level) for level in column.levels]
    match kind:
        case "boolean" if (pair := spelling.truths(texts)) is not None:
            return _truths(column, texts, pair)
        case "date" if (found := spelling.dates(texts, rule.dates, enough=0)) is not None:
            return _dates(column, found)
        case "real" | "count" if (
            got := spelling.numbers(texts, rule.decimal, enough=0)
        ) is not None:
            numbers, how = _numbers(column, texts, got)
            numbers, gaps = _without_sentinels(numbers, never_negative=kind == "count")
            return numbers, ", ".join(filter(None, (how, gaps)))
        case "category":
            return _merged_spellings(column, texts), ""
    return column, ""


def _read_text(column: Column, rule: ReadingRule) -> Read:
    texts = [str(level) for level in column.levels]
    if not rule.typed and (pair := spelling.truths(texts)) is not None:
        return _truths(column, texts, pair)
    plain = rule.typed and spelling.is_plain(texts) and not _names_rows(column)
    if not plain and (read := _read_numbers(column, texts, rule)) is not None:
        return read
    if (found := spelling.dates(texts, rule.dates)) is not None:
        return _dates(column, found)
    return _read_categories(column, texts, rule)


def _read_numbers(column: Column, texts: list[str], rule: ReadingRule) -> Read | None:
    if any(CODE.fullmatch(text.strip()) for text in texts):
        return None  # V27 among 250.8: codes
    found = spelling.numbers(texts, rule.decimal)
    if found is None:
        return None
    numbers, how = _numbers(column, texts, found)
    if numbers.form == "integer" and _is_identifier(numbers):
        return None, "an identifier: a different number in every row"
    if not rule.typed:
        numbers, gaps = _without_sentinels(numbers)
        how = ", ".join(filter(None, (how, gaps)))
    return numbers, how


def _truths(column: Column, texts: list[str], pair: tuple[str, str]) -> tuple[Column, str]:
    codes = np.array([float(text.strip().casefold() == pair[1]) for text in texts])
    return Column(column.name, "boolean", _lookup(column, codes)), f"{pair[1]} and {pair[0]}"


def _dates(column: Column, found: spelling.SpelledDates) -> tuple[Column, str]:
    unit = TIME if found.timed else DATE
    days = Column(column.name, "real", _lookup(column, found.days), unit=unit)
    return days, _words(f"dates{f', {found.how}' if found.how else ''}", column, days)


def _numbers(
    column: Column, texts: list[str], found: spelling.SpelledNumbers
) -> tuple[Column, str]:
    values = _lookup(column, found.values)
    spelled = [t for t, v in zip(texts, found.values, strict=True) if not np.isnan(v)]
    whole = not np.any(values % 1 > 0) and not any("." in text or "," in text for text in spelled)
    numbers = Column(column.name, "integer" if whole else "real", values, unit=found.unit)
    return numbers, _words(found.how, column, numbers)


def _read_categories(column: Column, texts: list[str], rule: ReadingRule) -> Read:
    how = ""
    if not rule.typed:
        merged = _merged_spellings(column, texts)
        if len(merged.levels) < len(column.levels):
            how = f"{len(column.levels) - len(merged.levels)} other spellings merged"
        column = merged
    levels, rows = len(column.levels), int(column.present.sum())
    if _names_rows(column):
        length = np.mean([len(str(level)) for level in column.levels])
        what = "free text" if length > LONG_TEXT else "an identifier or a name"
        return None, f"{what}: {levels:,} different texts in {rows:,} values"
    if levels > MOST_LEVELS:
        column = _pooled(column)
        how = f"{levels - len(column.levels) + 1:,} rare levels of {levels:,} pooled as {OTHER!r}"
    return column, how


def _names_rows(column: Column) -> bool:
    """Whether it has too many levels to be a category."""
    levels = len(column.levels)
    return levels > FEW_LEVELS and levels > column.present.sum() / 2


# ---------------------------------------------------------------------- parts


def _lookup(column: Column, by_level: Floats) -> Floats:
    """Of every row what stands for its level, NaN where it is missing."""
    codes = np.nan_to_num(column.numbers, nan=-1.0).astype(np.intp)
    return np.append(by_level, np.nan)[codes]


def _words(how: str, before: Column, after: Column) -> str:
    odd = int(before.present.sum() - after.present.sum())
    lost = f"{odd:,} that are none taken as missing" if odd else ""
    return ", ".join(filter(None, (how, lost)))


def _is_identifier(column: Column) -> bool:
    known = column.numbers[column.present]
    return (
        IDENTIFIER.fullmatch(column.name.strip()) is not None
        and len(known) > FEW_LEVELS
        and len(np.unique(known)) == len(known)
    )


def _without_sentinels(column: Column, never_negative: bool = False) -> tuple[Column, str]:
    """Numbers of nines alone, far from all others and several times there, mean "missing"; so do
    negative ones among what is never negative."""
    known = column.numbers[column.present]
    values, counts = np.unique(known, return_counts=True)
    for end in (0, -1):
        rest = np.delete(values, end) if len(values) else values
        if not len(values) or not SENTINEL.fullmatch(f"{values[end]:g}"):
            continue
        several = counts[end] >= 3 and len(rest) >= 5
        far = several and abs(values[end] - rest[end]) > 2 * (rest[-1] - rest[0])
        if far or (never_negative and values[end] < 0):
            numbers = np.where(column.numbers == values[end], np.nan, column.numbers)
            return replace(column, numbers=numbers), f"{values[end]:g} taken as missing"
    return column, ""


def _merged_spellings(column: Column, texts: list[str]) -> Column:
    """Levels that differ in case and padding are one, spelled as most rows do."""
    rows = np.bincount(column.numbers[column.present].astype(np.intp), minlength=len(texts))
    keys = [" ".join(text.split()).casefold() for text in texts]
    best: dict[str, tuple[int, str]] = {}
    for key, text, count in zip(keys, texts, rows, strict=True):
        best[key] = max(best.get(key, (-1, "")), (int(count), text.strip()))
    order = {key: i for i, key in enumerate(best)}
    codes = np.array([float(order[key]) for key in keys])
    levels = tuple(text for _, text in best.values())
    return replace(column, numbers=_lookup(column, codes), levels=levels)


def _pooled(column: Column) -> Column:
    codes = column.numbers[column.present].astype(np.intp)
    rows = Counter(codes.tolist())
    common = [code for code, count in rows.most_common(MOST_LEVELS - 1) if count >= FEW_ROWS]
    kept = sorted(common)
    levels = (*(column.levels[code] for code in kept), OTHER)
    place = np.full(len(column.levels), float(len(kept)))
    place[kept] = np.arange(len(kept))
    return replace(column, numbers=_lookup(column, place), levels=levels)

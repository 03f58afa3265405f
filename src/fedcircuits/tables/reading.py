"""The interpretation of each column of a user's data before its kind is inferred, with a
description.

Files and frames hold dates, amounts with units, codes, names and remarks as text. As categories
they would teach a model nothing, and in a federation they would be revealed to others. So text is
parsed (numerals.py, dates.py, truths.py, gaps.py), and columns that cannot be learned from are left
out: identifiers (identifying.py), remarks, columns without a value. Nothing of this is silent:
every column has a ``ColumnReading`` shown by ``Table.describe``, and columns left out cause a
warning.

A column whose kind or categories the user states is read as stated. Frames have types: text of
plain numbers (``"12"``) or of two words (``"yes"``) stays text there; in a csv file everything is
text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from fedcircuits.tables import dates, gaps, identifying, numerals, truths
from fedcircuits.tables.columns import Column, Floats
from fedcircuits.tables.date_parts import numbered_days
from fedcircuits.tables.dates import DateOrder, Order
from fedcircuits.tables.inference import spelling_key
from fedcircuits.tables.schema import DATE, OTHER, TIME, shown

MOST_LEVELS = 1_000
FEW_LEVELS = identifying.FEW_LEVELS
FEW_ROWS = 5  # of a level that is pooled where there are too many of them
LONG_TEXT, SENTENCE = 30, 4  # characters, words
ODD_ROWS = 0.6  # that may be words among numbers of many values
CODE = re.compile(r"[A-Za-z]+[-. ]?\d[\w.-]*")
PAIR = re.compile(r"\d+([.,]\d+)?\s*[/|;,x×]\s*\d+([.,]\d+)?")
DATED = re.compile(
    r".*(dat(e|um)\b|date_|birth|born|dob|geburt|geboren|fecha).*|.*(date|datum)", re.I
)
STAMPED = re.compile(r".*(time|zeit|stamp|epoch|unix|date|datum).*|(.*_)?ts", re.I)
SEEN = 50  # columns, and texts of a column, that say how its file writes numbers and dates


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How one column was read: its kind, or "left out", and a description."""

    column: str
    became: str
    how: str = ""

    @property
    def left_out(self) -> bool:
        return self.became == LEFT_OUT


LEFT_OUT: Final = "left out"


def otherwise(kind: str) -> str:
    """How a user can override a reading."""
    return {
        LEFT_OUT: 'kinds={column: "category"}',
        "date": 'kinds={column: "category"}, dates="mdy", drop=[column]',
        "category": 'kinds={column: "real"}, drop=[column]',
    }.get(kind, 'kinds={column: "category"}, drop=[column]')


@dataclass(frozen=True, slots=True)
class ReadingRule:
    """How text is read. ``typed``: the source has types, as frames do; ``point`` and ``order`` are
    those of the rest of the file, for ambiguous numbers and dates."""

    typed: bool = True
    decimal: numerals.Decimal = "auto"
    dates: DateOrder = "auto"
    point: numerals.Point | None = None
    order: Order | None = None

    def of_file(self, columns: Iterable[Column]) -> ReadingRule:
        """The rule with the evidence of all columns of a file. A file delimited by semicolons is
        likely to use decimal commas."""
        points: Counter[str] = Counter()
        orders: Counter[Order] = Counter()
        for column in islice(columns, SEEN):
            if column.form == "text":
                some = [str(level) for level in column.levels[:SEEN]]
                points += Counter(dict.fromkeys(numerals.evidence(some), 1))
                orders += Counter(dict.fromkeys(dates.evidence(some), 1))
        point = self.point
        if points[","] != points["."]:
            point = "," if points[","] > points["."] else "."
        order = self.order if not orders else None
        order = orders.most_common(1)[0][0] if len(orders) == 1 else order
        return replace(self, point=point, order=order)


Read = tuple[Column | None, str]  # None: left out; and the word about it


def read_column(column: Column, rule: ReadingRule) -> Read:
    """The column interpreted by its values."""
    if not column.present.any() and column.form != "categorical":
        return None, "it has no values"
    if column.form == "text":
        return _read_text(column, rule)
    if column.form == "categorical":
        return _read_categories(column, [], ReadingRule())
    if column.form == "integer" and (why := identifying.why_number(column, rule.typed)):
        return None, why
    return column, ""


def read_as(column: Column, kind: str, rule: ReadingRule) -> Read:
    """The text of a csv column as a known kind: stated by the user, or that of a model."""
    if rule.typed or column.form != "text":
        return column, ""
    column, _ = _without_marks(column)
    texts = [str(level) for level in column.levels]
    match kind:
        case "boolean" if (read := _read_truths(column, texts)) is not None:
            return read
        case "date":
            return _read_days(column, texts, rule)
        case "real" | "count":
            return _read_stated_numbers(column, texts, rule, kind)
        case "category":
            return _merged_spellings(column, texts), ""
    return column, ""


def _read_stated_numbers(column: Column, texts: list[str], rule: ReadingRule, kind: str) -> Read:
    got = numerals.numbers(texts, rule.decimal, enough=0, hint=rule.point)
    if got is not None:
        numbers, how = _numbers(column, texts, got)
        numbers, odd = gaps.without_sentinels(numbers, never_negative=kind == "count")
        return numbers, _joined(how, odd)
    if kind == "real" and (hours := dates.hours(texts)) is not None:
        return _hours(column, *hours)
    return column, ""


def _read_days(column: Column, texts: list[str], rule: ReadingRule) -> Read:
    spelled = dates.dates(texts, rule.dates, enough=0, hint=rule.order)
    if spelled is not None and np.isfinite(spelled.days).any():
        return _dates(column, texts, spelled)
    numbers = numerals.numbers(texts)
    if numbers is None:
        return column, ""
    return numbered_days(column, _lookup(column, numbers.values)) or (column, "")


# ---------------------------------------------------------------------- text by what it spells


def _read_text(column: Column, rule: ReadingRule) -> Read:
    column, marks = _without_marks(column)
    texts = [str(level) for level in column.levels]
    if not rule.typed and (read := _read_truths(column, texts)) is not None:
        return read
    if why := identifying.why_text(texts):
        return None, why
    read = None if rule.typed else _read_digit_dates(column, texts)
    plain = rule.typed and numerals.is_plain(texts) and not _names_rows(column)
    if read is None and not plain and not identifying.is_postcode(column.name):
        read = _read_numbers(column, texts, rule)
    read = read or _read_dates(column, texts, rule)
    if read is None and not rule.typed and (hours := dates.hours(texts)) is not None:
        read = _hours(column, *hours)
    if read is None and (why := identifying.why_named(column, texts)):
        return None, why
    column_read, how = read or _read_categories(column, texts, rule)
    return column_read, _joined(how, marks)


def _read_truths(column: Column, texts: list[str]) -> Read | None:
    if truths.ticked(texts) and not column.present.all():
        ticks = Column(column.name, "boolean", column.present.astype(np.float64))
        return ticks, f"{texts[0].strip()} as true, blank as false"
    words = [text for text in texts if not gaps.is_unknown(text)]
    if (pair := truths.truths(words)) is None:
        return None
    read_words = [truths.truth_of(text) for text in texts]
    codes = np.array([np.nan if truth is None else float(truth) for truth in read_words])
    read = Column(column.name, "boolean", _lookup(column, codes))
    return read, _words(f"{pair[1]} and {pair[0]}", column, texts, read)


def _read_numbers(column: Column, texts: list[str], rule: ReadingRule) -> Read | None:
    if any(CODE.fullmatch(text.strip()) and not numerals.is_amount(text) for text in texts):
        return None  # V27 among 250.8: codes
    spelled = numerals.numbers(texts, rule.decimal, hint=rule.point)
    if spelled is None or not _mostly(column, texts, spelled.values):
        return None
    numbers, how = _numbers(column, texts, spelled)
    named = DATED.fullmatch(column.name) or STAMPED.fullmatch(column.name)
    if named and not rule.typed and (days := numbered_days(column, numbers.numbers)):
        return days
    whole = not np.any(numbers.numbers[numbers.present] % 1)
    if whole and (why := identifying.why_number(numbers, rule.typed)):
        return None, why
    if rule.typed:
        return numbers, how
    numbers, odd = gaps.without_sentinels(numbers)
    return numbers, _joined(how, odd)


def _mostly(column: Column, texts: list[str], values: Floats) -> bool:
    """Whether words among numbers, or dates, are few enough to be missing values."""
    read = int(np.isfinite(values).sum())
    if read >= numerals.ENOUGH * sum(not gaps.is_unknown(text) for text in texts):
        return True
    odd = column.present.sum() - np.isfinite(_lookup(column, values)).sum()
    return read > FEW_LEVELS and bool(odd <= ODD_ROWS * column.present.sum())


def _read_digit_dates(column: Column, texts: list[str]) -> Read | None:
    """Dates such as 19640531 and 31051964, which could be numbers."""
    digits = [text.strip() for text in texts if text.strip().isdigit()]
    if len(digits) < 3 or len(digits) < numerals.ENOUGH * len(texts):
        return None
    spelled = dates.dates(texts) if all(len(text) == 8 for text in digits) else None
    return None if spelled is None else _dates(column, texts, spelled)


def _read_dates(column: Column, texts: list[str], rule: ReadingRule) -> Read | None:
    if rule.dates == "auto" and dates.mixed_orders(texts):
        return (
            None,
            'dates with the day first and with the month first: correct them, or dates="dmy"',
        )
    spelled = dates.dates(texts, rule.dates, hint=rule.order)
    if spelled is not None and _mostly(column, texts, spelled.days):
        return _dates(column, texts, spelled)
    days = sum(map(dates.is_date, texts))
    if 2 * days >= len(texts) and (read := _half_counted(column, texts, rule)) is not None:
        return read
    if 10 * days > len(texts) or days > FEW_LEVELS:
        return (
            None,
            f"{days:,} dates among {len(texts) - days:,} other texts: kinds={{column: 'date'}}",
        )
    return None


def _half_counted(column: Column, texts: list[str], rule: ReadingRule) -> Read | None:
    """Dates that a spreadsheet has converted to numbers in some rows."""
    rest = [text for text in texts if not dates.is_date(text)]
    numbers = numerals.numbers(rest)
    if numbers is None or np.isnan(numbers.values).any():
        return None
    counted = numbered_days(column, numbers.values)
    spelled = dates.dates(texts, rule.dates, enough=0, hint=rule.order)
    if counted is None or spelled is None:
        return None
    by_text = dict(zip(rest, counted[0].numbers, strict=True))
    days = np.array([by_text.get(t, d) for t, d in zip(texts, spelled.days, strict=True)])
    read, how = _dates(column, texts, replace(spelled, days=days))
    return read, _joined(how, f"{len(rest):,} of them {counted[1].partition(', ')[2]}")


def _dates(column: Column, texts: list[str], spelled: dates.SpelledDates) -> tuple[Column, str]:
    days = Column(
        column.name, "real", _lookup(column, spelled.days), unit=TIME if spelled.timed else DATE
    )
    doubt = f"a guess, else dates={spelled.doubtful!r}" if spelled.doubtful else ""
    how = _words(_joined("dates", spelled.how, doubt), column, texts, days)
    days, odd = gaps.without_defaults(days)
    return days, _joined(how, odd)


def _hours(column: Column, values: Floats, how: str) -> tuple[Column, str]:
    return Column(column.name, "real", _lookup(column, values), unit="h"), how


def _numbers(
    column: Column, texts: list[str], spelled: numerals.SpelledNumbers
) -> tuple[Column, str]:
    values = _lookup(column, spelled.values)
    whole = not np.any(values % 1 > 0) and not spelled.fractional
    numbers = Column(column.name, "integer" if whole else "real", values, unit=spelled.unit)
    return numbers, _words(_joined(spelled.how, spelled.doubtful), column, texts, numbers)


def _read_categories(column: Column, texts: list[str], rule: ReadingRule) -> Read:
    how = ""
    if not rule.typed:
        before, column = len(column.levels), _merged_spellings(column, texts)
        if len(column.levels) < before:
            how = f"{before - len(column.levels)} other spellings merged"
    levels, rows = len(column.levels), int(column.present.sum())
    several = numerals.written_units([str(level) for level in column.levels])
    if levels > FEW_LEVELS and len(several) > 1 and sum(several.values()) > levels / 2:
        return None, f"{_kind_of_text(column)}: {levels:,} different texts in {rows:,} values"
    if _names_rows(column) or (levels > FEW_LEVELS and _are(PAIR, column.levels)):
        return None, f"{_kind_of_text(column)}: {levels:,} different texts in {rows:,} values"
    if levels > MOST_LEVELS:
        column = _pooled(column)
        how = f"{levels - len(column.levels) + 1:,} rare levels of {levels:,} pooled as {OTHER!r}"
    return column, how


def _kind_of_text(column: Column) -> str:
    texts = [str(level).strip() for level in column.levels]
    units = numerals.written_units(texts)
    if len(units) > 1:
        listed = ", ".join(f"{unit} {count:,}" for unit, count in list(units.items())[:4])
        return f"numbers in several units ({listed}), to be converted first"
    if _are(PAIR, texts):
        return "two numbers per cell, to be given as two columns"
    if _are(CODE, texts):
        return "codes or identifiers"
    long = np.mean([len(text) for text in texts]) > LONG_TEXT
    words = np.mean([len(text.split()) for text in texts]) >= SENTENCE
    return "free text" if long or words else "an identifier or a name"


def _are(pattern: re.Pattern[str], texts: Iterable[object]) -> bool:
    matches = [pattern.fullmatch(str(text).strip()) is not None for text in texts]
    return sum(matches) >= numerals.ENOUGH * len(matches)


def _names_rows(column: Column) -> bool:
    """Whether it has too many levels to be a category."""
    levels = len(column.levels)
    return levels > FEW_LEVELS and levels > column.present.sum() / 2


# ---------------------------------------------------------------------- parts


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))


def _lookup(column: Column, by_level: Floats) -> Floats:
    """Values (rows,) by level, NaN for missing values."""
    codes = np.nan_to_num(column.numbers, nan=-1.0).astype(np.intp)
    return np.append(by_level, np.nan)[codes]


def _words(how: str, before: Column, texts: list[str], after: Column) -> str:
    """A description, with the number and examples of values that could not be read."""
    odd = before.present & ~after.present
    if not odd.any():
        return how
    some = list(dict.fromkeys(texts[int(code)] for code in before.numbers[odd][:1000]))[:3]
    listed = ", ".join(shown(text, 20) for text in some)
    count = f"{int(odd.sum()):,} other {'values' if odd.sum() > 1 else 'value'}"
    return _joined(how, f"{count} taken as missing ({listed})")


def _without_marks(column: Column) -> tuple[Column, str]:
    """The levels without the marks by which spreadsheets denote text."""
    texts = [str(level).strip() for level in column.levels]
    levels = [numerals.bare(text) for text in texts]
    if levels == texts:
        return column, ""
    order = {text: float(i) for i, text in enumerate(dict.fromkeys(levels))}
    numbers = _lookup(column, np.array([order[text] for text in levels]))
    return replace(column, numbers=numbers, levels=tuple(order)), "signs of text left out"


def _merged_spellings(column: Column, texts: list[str]) -> Column:
    """Levels that differ in case and padding merged under the most common spelling."""
    rows = np.bincount(column.numbers[column.present].astype(np.intp), minlength=len(texts))
    keys = [spelling_key(text) for text in texts]
    best: dict[str, tuple[int, str]] = {}
    for key, text, count in zip(keys, texts, rows, strict=True):
        best[key] = max(best.get(key, (-1, "")), (int(count), numerals.visible(text)))
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

"""How a csv file is laid out: its delimiter, its header, and the lines around its rows.

Exports have titles and comments above the header, ``sep=;``, a line of units below it, totals and
remarks at the end, and headers with empty and repeated names. ``layout_of`` finds the header,
``headings`` gives every column a name, and ``without_extras`` removes lines that are not rows. Each
reports what it did. A line at the end counts as a total or a remark only if its first cell says so
in words that no other row has there: Max may be a person.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from fedcircuits.errors import TableError
from fedcircuits.tables.dates import is_date
from fedcircuits.tables.frames import MOST_COLUMNS
from fedcircuits.tables.numerals import visible
from fedcircuits.tables.packed import opened_text

DELIMITERS = (",", ";", "\t", "|", "~", "^")
LONGEST_LINE = 1 << 22  # characters
FIRST = 50  # lines that tell the layout
COMMENT = ("#", "%", "//", "--")
NUMBER = re.compile(r"[-+]?\d*[.,]?\d+(e[-+]?\d+)?", re.I)


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """``lines`` of text end with the header; ``header`` has its cells."""

    delimiter: str
    lines: int
    header: list[str]
    notes: tuple[str, ...] = ()
    quote: str = '"'


def layout_of(file: Path, encoding: str, delimiter: str | None, headed: bool = True) -> CsvLayout:
    """The layout, from the first lines of the file; ``headed``: whether it has a header line."""
    first = _first_lines(file, encoding)
    skipped = 0
    if said := re.fullmatch(r"\W?sep=(.)\s*", first[0], re.I):
        delimiter, skipped = delimiter or said[1], 1
    delimiter = delimiter or _delimiter(first[skipped:])
    quote = _quote(first[skipped:], delimiter)
    records = _records(first[skipped:], delimiter, quote)
    if not records:
        raise TableError(f"{file}: not a csv file (its first lines cannot be parted into cells)")
    if len(max((cells for _, cells in records), key=len)) > MOST_COLUMNS:
        raise TableError(f"{file}: expected at most {MOST_COLUMNS:,} columns, got more")
    at = _header(records) if headed else 0
    line, cells = records[at]
    above = f"{at} lines above the header left out: {records[0][1][0][:40]!r} …"
    notes: tuple[str, ...] = (above,) if at else ()
    if headed and _grouped([row for _, row in records[at:]]):
        line, below = records[at + 1]
        cells = _both_lines(cells, below)
        notes += (f"two lines of names put together, as in {_one_line(max(cells, key=len))!r}",)
    elif headed and _row_named([row for _, row in records[at:]]):
        cells = ["", *cells]
        notes += ("rows have a cell more than there are names: the first is taken for row names",)
    return CsvLayout(delimiter, skipped + (line if headed else 0), cells, notes, quote)


def _quote(lines: Sequence[str], delimiter: str) -> str:
    """The quote character: ' if all cells of the first lines are quoted with it."""
    cells = [cell for line in lines for cell in line.strip().split(delimiter) if cell]
    single = bool(cells) and all(len(c) > 1 and c[0] == c[-1] == "'" for c in cells)
    return "'" if single else '"'


def _first_lines(file: Path, encoding: str) -> list[str]:
    with opened_text(file, encoding) as lines:
        if "\0" in lines.read(4096):
            raise TableError(
                f"{file}: expected the text of a csv file, got binary data (for UTF-16 text, "
                'encoding="utf-16")'
            )
        lines.seek(0)
        first = list(islice(iter(lambda: lines.readline(LONGEST_LINE), ""), FIRST))
    if not any(line.strip() for line in first):
        raise TableError(f"{file}: the file is empty")
    return first


def _records(lines: Sequence[str], delimiter: str, quote: str = '"') -> list[tuple[int, list[str]]]:
    """Cells, and the number of the line on which they end."""
    rows = csv.reader(lines, delimiter=delimiter, quotechar=quote, skipinitialspace=True)
    try:
        return [(rows.line_num, [cell.strip() for cell in row]) for row in rows if row]
    except csv.Error:
        return []


def _delimiter(lines: Sequence[str]) -> str:
    """The delimiter that splits most of the first lines consistently, into most cells, below a line
    of names."""

    def scored(delimiter: str) -> tuple[bool, bool, float]:
        records = _records(lines, delimiter)
        if not records:
            return False, False, 0.0
        width, alike = _width(records)
        header = records[_header(records)][1]
        whole = not any(d in cell for d in DELIMITERS[1:] if d != delimiter for cell in header)
        named = len(header) == width and not any(map(NUMBER.fullmatch, header)) and whole
        return width > 1, named, alike / len(records) * math.log(width)

    best = max(DELIMITERS, key=scored)
    if scored(best)[0]:
        return best
    return " " if _spaced([line.split() for line in lines if line.strip()]) else ","


def _spaced(words: Sequence[Sequence[str]]) -> bool:
    """Whether spaces split all lines into as many words as the first, numbers below names."""
    width = len(words[0]) if words else 0
    if width < 2 or len(words) < 4 or any(len(line) != width for line in words):
        return False
    numbers = [[NUMBER.fullmatch(word) is not None for word in line] for line in words]
    return not any(numbers[0]) and any(map(all, zip(*numbers[1:], strict=True)))


def _width(records: Sequence[tuple[int, list[str]]]) -> tuple[int, int]:
    """The most common number of cells, and how many records have it."""
    widths = Counter(len(cells) for _, cells in records)
    return max(widths.items(), key=lambda entry: (entry[1], entry[0]))


def _header(records: Sequence[tuple[int, list[str]]]) -> int:
    """The first record as wide as most, after titles and comments."""
    width, _ = _width(records)
    filling = [sum(map(bool, cells)) for _, cells in records]
    for i, (_, cells) in enumerate(records):
        filled = filling[i]
        if cells[0].startswith(COMMENT) and len(cells) < width:
            continue
        fuller = max(filling[i + 1 : i + 9], default=0) > filled
        title = filled <= 1 and width > 2 and not (filled and not cells[0])
        stated = 2 * filled <= width and _states(cells)  # Created: 2024-05-01
        if fuller and (title or stated):
            continue
        if len(cells) >= width or 2 * filled > width or filled > 2:
            return i
    return 0


def _states(cells: Sequence[str]) -> bool:
    """Whether it describes the file: a name with a colon, and a value."""
    return cells[0].endswith(":") or (bool(cells[0]) and any(map(_is_value, cells[1:])))


def _row_named(records: Sequence[Sequence[str]]) -> bool:
    """Whether rows have a name before their cells, as written by R: 1, 2, 3 or distinct texts."""
    names, *rows = records
    if len(rows) < 3 or any(len(row) != len(names) + 1 for row in rows):
        return False
    first = [row[0] for row in rows]
    running = first == [str(i + 1) for i in range(len(first))]
    texts = len(set(first)) == len(first) and not any(map(_is_value, first)) and all(first)
    return running or (texts and any(row[-1] for row in rows))


def _grouped(records: Sequence[Sequence[str]]) -> bool:
    """Whether a line of groups, some repeated or blank, stands above a line of names."""
    if len(records) < 4 or len(records[0]) != len(records[1]):
        return False
    groups, names, rows = records[0], records[1], records[2:]
    some = set(filter(None, groups))
    apart = len(set(names)) > len(some) and (len(set(names)) == len(names) or not all(groups))
    if not apart or not all(names) or any(map(_is_value, names)) or any(map(_is_value, groups)):
        return False
    columns = zip(*(row for row in rows if len(row) == len(names)), strict=True)
    return any(any(filled := [*filter(None, c)]) and all(map(_is_value, filled)) for c in columns)


def _is_value(cell: str) -> bool:
    return NUMBER.fullmatch(cell) is not None or is_date(cell)


def _both_lines(groups: Sequence[str], names: Sequence[str]) -> list[str]:
    """Group and column name joined; a blank cell belongs to the group before it."""
    both, group = [], ""
    for cell, name in zip(groups, names, strict=True):
        group = cell or group
        both.append(name if name.startswith(group) else f"{group} {name}")
    return both


# ---------------------------------------------------------------------- names of columns


def headings(file: Path, cells: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """A distinct name for every column, and notes on what was changed."""
    if values := _values(cells):
        raise TableError(
            f"{file}: the first line has values such as {values[0]!r} for names (the file seems to "
            "have no header: pass names=[…], or put a line of names above the rows)"
        )
    names: dict[str, None] = {}
    unnamed, again = [], []
    cells = [*map(_one_line, cells)]
    taken = set(cells)
    for i, cell in enumerate(cells):
        name = cell.lstrip("#" if i == 0 else "").strip()
        if not name and i > 0:
            name = f"column {i + 1}"
            unnamed.append(name)
        if name in names:
            number = next(n for n in range(2, i + 3) if f"{name} ({n})" not in names.keys() | taken)
            again.append(f"{name} ({number})")
            name = again[-1]
        names[name] = None
    notes = [
        f"columns without a name became {_listed(unnamed)}" if unnamed else "",
        f"repeated column names became {_listed(again)}" if again else "",
    ]
    return list(names), tuple(filter(None, notes))


def _one_line(cell: str) -> str:
    return " ".join(visible(cell).split())


def _values(cells: Sequence[str]) -> list[str]:
    """Dates and numbers that are not names; an ascending scale, as of years or spectra, is one of
    names."""
    days = [cell for cell in cells if is_date(cell)]
    if len(days) == 1:
        return days
    numerals = [cell for cell in cells if NUMBER.fullmatch(cell)]
    numbers = [float(cell.replace(",", ".")) for cell in numerals]
    if len(numbers) > 2 and all(a < b for a, b in pairwise(numbers)):
        return []
    return numerals if len(numerals) == len(cells) > 1 or any(n % 1 for n in numbers) else []


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (" …" if len(names) > 6 else "")


UNIT = re.compile(r"[\[(]?[^\W\d]?[\w/%‰²³µμ°€$^·. -]{0,12}[\])]?")
BRACKETED = re.compile(r"\[[^\]]*\]|\([^)\d]*\)")
TOTALS = frozenset((
    "sum", "sums", "summe", "summen", "total", "totals", "gesamt", "gesamtsumme", "grand total",
    "somme", "suma", "totale", "mean", "average", "mittelwert", "durchschnitt", "moyenne", "σ", "∑",
    "anzahl", "count", "end of file", "ende", "sd", "std", "stdev", "std. dev.", "min", "max",
    "minimum", "maximum", "median", "standard deviation", "standardabweichung", "mw", "range",
))  # fmt: skip
SUBTOTALS = ("subtotal", "sub-total", "zwischensumme", "sous-total", "subtotale")
LAST = 12  # rows that may be sums and remarks


def without_extras(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows without a line of units, repeated headers and totals, and notes on what was left
    out."""
    gone: dict[int, str] = {}
    if _is_units(frame):
        some = ", ".join(repr(str(cell)) for cell in frame.iloc[0].dropna()[:3])
        gone[0] = f"the line of units ({some} …)"
    first = frame.iloc[:, 0]
    for i in (first == frame.columns[0]).to_numpy().nonzero()[0]:
        if (frame.iloc[i] == list(frame.columns)).sum() > len(frame.columns) / 2:
            gone[int(i)] = "headers among the rows"
    for word in SUBTOTALS:
        for i in (first.str.casefold() == word).to_numpy().nonzero()[0]:
            gone[int(i)] = "sums among the rows"
    gone |= _at_the_end(frame)
    if not gone:
        return frame, []
    counts = Counter(gone.values())
    notes = [f"{what} left out ({number:,} of the lines)" for what, number in counts.items()]
    return frame.drop(index=frame.index[list(gone)]).reset_index(drop=True), notes


def _at_the_end(frame: pd.DataFrame) -> dict[int, str]:
    gone: dict[int, str] = {}
    rows, width = frame.shape
    begin = max(3, rows - LAST)
    for i in reversed(range(begin, rows)):
        cells = frame.iloc[i, :2].dropna().astype(str)
        words = {name: text.strip().rstrip(":").casefold() for name, text in cells.items()}
        again = any((frame[name].iloc[:begin] == cells[name]).any() for name in words)
        if set(words.values()) & TOTALS and not again:
            gone[i] = "sums at the end"
        elif width > 2 and not again and _is_remark(frame.iloc[i]):
            gone[i] = "remarks at the end"
        elif i == rows - 1 and _adds_up(frame):
            gone[i] = "sums at the end"
        else:
            break
    return gone


def _is_remark(cells: pd.Series) -> bool:
    """Whether only the first cell is filled, with several words."""
    if cells.notna().sum() != 1 or not isinstance(cells.iloc[0], str):
        return False
    text = cells.iloc[0]
    words = len(text.split())
    return words > 2 or (words == 2 and (":" in text or not text[0].isalnum()))


def _adds_up(frame: pd.DataFrame) -> bool:
    """Whether the last row is an unnamed total below named rows."""
    first = frame.iloc[:, 0]
    if len(frame) < 5 or isinstance(first.iloc[-1], str) or first.iloc[:-1].isna().any():
        return False
    cells = frame.iloc[-1].dropna()
    if len(cells) < 2:
        return False
    numbers = frame[cells.index].apply(pd.to_numeric, errors="coerce").to_numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.nansum(numbers[:-1], axis=0)
    return bool(np.allclose(numbers[-1], sums, rtol=1e-6))


def _is_units(frame: pd.DataFrame) -> bool:
    """Whether the first row has units, or labels, above numbers."""
    if len(frame) < 4:
        return False
    units, below = frame.iloc[0], frame.iloc[1:6]
    if all(BRACKETED.fullmatch(str(cell).strip()) for cell in units.dropna()):
        return bool(units.notna().any())
    some, labels = 0, 0
    for cell, column in zip(units, below.items(), strict=True):
        if isinstance(cell, str) and NUMBER.fullmatch(cell.strip()):
            return False
        known = [str(c).strip() for c in column[1].dropna()]
        if known and all(NUMBER.fullmatch(c) for c in known) and isinstance(cell, str):
            labels += not UNIT.fullmatch(cell.strip())
            if any(map(str.isdigit, cell)) and not UNIT.fullmatch(cell.strip()):
                return False
            some += 1
    return (labels == 0 or some > 1) and some > 0 and 2 * some >= units.notna().sum()

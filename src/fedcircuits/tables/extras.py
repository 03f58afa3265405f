"""Lines of a csv file that are no rows: units below the header, sums, remarks, headers again.

``without_extras`` takes them out and says in words which. A line at the end is a sum or a remark
only if its first cell says so in words that no other row has there: Max may be a person.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd

from fedcircuits.tables.layout import NUMBER

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
    """The rows without a line of units, repeated headers and sums, and what was left out."""
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
    """One cell, the first, of several words."""
    if cells.notna().sum() != 1 or not isinstance(cells.iloc[0], str):
        return False
    text = cells.iloc[0]
    words = len(text.split())
    return words > 2 or (words == 2 and (":" in text or not text[0].isalnum()))


def _adds_up(frame: pd.DataFrame) -> bool:
    """Whether the last row has no name, where all others have one, and the sums of all others."""
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
    """Whether the first row has units, or labels, where the rows below have numbers."""
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

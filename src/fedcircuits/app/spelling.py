"""Values written as a column of a csv file writes its own: its words, decimals, unit and dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from fedcircuits.tables.schema import Variable

    Floats = npt.NDArray[np.float64]

LOOKED_AT = 200  # different texts
MOST_DECIMALS = 6
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%d/%m/%y",
         "%m/%d/%y", "%Y%m%d")  # fmt: skip
AROUND = re.compile(r"(\D*?)[+-]?\d[\d.,' ]*(?<=\d)(\D*)")  # what is before and behind a number


def spelled(variable: Variable, written: pd.Series, known: Floats, codes: Floats) -> list[object]:
    """Values as the column writes them: ``written`` are its texts, ``known`` their numbers."""
    if variable.size:
        words = written.astype(str).groupby(known).agg(lambda texts: texts.mode().iloc[0])
        return [words.get(code, variable.decode(code)) for code in codes]
    pairs = dict(zip(written.astype(str), known.tolist(), strict=True))
    texts = list(pairs)[:LOOKED_AT]
    values = [variable.decode(value) for value in codes]
    if variable.dated:
        form = _date_form(texts, [str(variable.decode(pairs[text])) for text in texts])
        return [date.fromisoformat(str(v)).strftime(form) if form else v for v in values]
    return _numbers(variable, texts, values)


def _date_form(texts: Sequence[str], days: Sequence[str]) -> str | None:
    """The form in which these are the texts of all days; None without one, or with hours."""
    if not days or any(len(day) != 10 for day in days):
        return None
    every = [date.fromisoformat(day) for day in days]
    fits = (f for f in DATES if all(d.strftime(f) == t for d, t in zip(every, texts, strict=True)))
    return next(fits, None)


def _numbers(variable: Variable, texts: Sequence[str], values: Sequence[object]) -> list[object]:
    from fedcircuits.tables.numerals import evidence

    signs = evidence(list(texts))
    point = "," if variable.kind == "real" and signs[","] > signs["."] else "."
    decimals = max((_decimals(text, point) for text in texts), default=MOST_DECIMALS + 1)
    before, behind = _unit(variable, texts)
    out: list[object] = []
    for value in values:
        text = str(value)
        if isinstance(value, float) and decimals <= MOST_DECIMALS:
            text = f"{value:.{decimals}f}"
        out.append(f"{before}{text.replace('.', point)}{behind}")
    return out


def _unit(variable: Variable, texts: Sequence[str]) -> tuple[str, str]:
    """What stands before and behind every number, if that is the column's unit."""
    every = {match.groups() if (match := AROUND.fullmatch(text)) else ("", "") for text in texts}
    before, behind = every.pop() if len(every) == 1 else ("", "")
    return (
        (before, behind)
        if variable.unit and variable.unit == f"{before}{behind}".strip()
        else ("", "")
    )


def _decimals(text: str, point: str) -> int:
    """Digits behind the point; very many of a number with an exponent."""
    if re.search(r"\d[eE][+-]?\d", text):
        return MOST_DECIMALS + 1
    found = re.search(rf"{re.escape(point)}(\d+)\D*$", text)
    return len(found[1]) if found else 0

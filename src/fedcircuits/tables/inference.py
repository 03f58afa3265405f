"""The kind of a column, and its values as numbers of the circuit.

Kinds that the user does not state are inferred:

    True and False                                  boolean
    integers or floats that are only 0 and 1        boolean with the categories (0, 1)
    integers from 0 to 1000                         count
    other integers, other floats                    real
    text                                            category, levels sorted
    a declared category (pandas, polars, arrow)     category, in the declared order

Integers that pandas stored as floats because some are missing count as integers. A constant column
is kept. Text has been interpreted before (reading.py), and columns that cannot be learned from are
gone. A category that the user declares may have 100,000 levels.
"""

from __future__ import annotations

import difflib
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NoReturn, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import StructureError, TableError
from fedcircuits.tables.columns import Column, Floats
from fedcircuits.tables.frames import listed
from fedcircuits.tables.numerals import visible
from fedcircuits.tables.schema import DATE, KINDS, OTHER, TIME, Kind, Scalar, Variable
from fedcircuits.tables.truths import truth_of

Unseen = Literal["pool", "error", "missing"]
StatedKind = Kind | Literal["date", "date+weekday", "date+month", "date+weekday+month"]
STATED: tuple[str, ...] = (*KINDS, *get_args(get_args(StatedKind)[-1]))

LARGEST_COUNT = 1_000
MOST_LEVELS_DECLARED = 100_000


def variable_of(
    column: Column,
    kind: StatedKind | None = None,
    categories: Sequence[Scalar] | None = None,
    unit: str | None = None,
) -> Variable:
    """The variable of a column, as stated by the user or inferred."""
    if kind is not None and kind.partition("+")[0] == DATE and kind in STATED:
        return Variable(column.name, "real", unit=column.unit or DATE)
    if kind is not None and kind not in KINDS:
        near = difflib.get_close_matches(str(kind), STATED, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TableError(f"kinds[{column.name!r}]: expected {listed(STATED)}, got {kind!r}{hint}")
    if categories is not None:
        kind, levels = kind or "category", tuple(categories)
    else:
        kind = kind or infer_kind(column)
        levels = () if kind in ("real", "count") else _levels(column, kind)
    try:
        measured_in = column.unit if kind in ("real", "count") else None
        return Variable(column.name, kind, levels, unit or measured_in)
    except StructureError as error:
        raise TableError(f"{error}; see kinds= and categories=") from None


def infer_kind(column: Column) -> Kind:
    if column.form == "categorical" and column.levels:
        return "category"
    if not column.present.any():
        raise TableError(
            f"column {column.name!r} has no values: expected at least one to infer its kind; give "
            f'it with kinds={{{column.name!r}: "real"}} or drop the column'
        )
    if column.form == "text":
        return "category"
    if column.unit in (DATE, TIME):
        return "real"
    if column.form == "boolean" or _only_zero_one(column):
        return "boolean"
    low, high = np.nanmin(column.numbers), np.nanmax(column.numbers)
    return "count" if column.form == "integer" and 0 <= low <= high <= LARGEST_COUNT else "real"


def encode(column: Column, variable: Variable, unseen: Unseen = "error") -> Floats:
    """The column (rows,) as numbers of the circuit."""
    if variable.kind == "real":
        return column.as_days() if variable.dated else column.as_numbers("numbers")
    if variable.kind == "count":
        return _counts(column)
    if variable.categories == (0, 1) and _only_zero_one(column):  # (False, True) equals (0, 1)
        return column.numbers
    codes, levels = column.coded()
    values = np.array([*_codes_of(levels, variable), np.nan])[codes]  # code -1 picks the NaN
    strange = np.flatnonzero(np.isnan(values) & (codes >= 0))
    if strange.size:
        _report_unseen(variable, [levels[c] for c in codes[strange]], int(strange[0]), unseen)
        if unseen == "pool" and OTHER in variable.categories:
            values[strange] = variable.categories.index(OTHER)
    return values


def _only_zero_one(column: Column) -> bool:
    if column.form in ("text", "categorical"):
        return False
    numbers = column.numbers
    return bool(np.all((numbers == 0) | (numbers == 1) | np.isnan(numbers)))


def _counts(column: Column) -> Floats:
    numbers = column.as_numbers("counts")
    wrong = np.flatnonzero((numbers < 0) | (numbers - np.floor(numbers) > 0))
    if wrong.size:
        raise TableError(
            f"column {column.name!r}: expected counts (0, 1, 2, …), got {numbers[wrong[0]]:g} in "
            f"row {wrong[0]} (rows count from 0; {wrong.size} in all); correct the values or use "
            f'kinds={{{column.name!r}: "real"}}'
        )
    return numbers


def _levels(column: Column, kind: Kind) -> tuple[Scalar, ...]:
    if column.form == "boolean" or (kind == "boolean" and not column.present.any()):
        return (False, True)
    if kind == "boolean" and _only_zero_one(column):
        return (0, 1)
    levels = column.levels if column.form == "categorical" else _sorted_levels(column)
    if not levels:
        raise TableError(
            f"column {column.name!r} has no values to take its categories from: name them with "
            f"categories={{{column.name!r}: [...]}} or drop the column"
        )
    if kind == "boolean" and len(levels) != 2:
        raise TableError(
            f"column {column.name!r}: a boolean has two values, got {len(levels)} "
            f"({listed(levels)}); name both with categories={{{column.name!r}: [no, yes]}} or use "
            f'kinds={{{column.name!r}: "category"}}'
        )
    return levels


def _sorted_levels(column: Column) -> tuple[Scalar, ...]:
    levels = column.levels if column.form == "text" else column.coded()[1]
    if len(levels) > MOST_LEVELS_DECLARED:
        raise TableError(
            f"column {column.name!r}: a category may have {MOST_LEVELS_DECLARED:,} levels, got "
            f"{len(levels):,}; use it as row_id={column.name!r}, group its values or drop it"
        )
    return tuple(sorted(levels, key=lambda v: v))


def _codes(variable: Variable) -> dict[tuple[bool, Scalar], int]:
    """Codes by value; texts and numbers are distinct, and each category also has its text."""
    known: dict[tuple[bool, Scalar], int] = {}
    for code, category in enumerate(variable.categories):
        known.setdefault((isinstance(category, str), category), code)
    for code, category in enumerate(variable.categories):
        known.setdefault((True, str(category)), code)
    return known


def spelling_key(text: str) -> str:
    """A key that is equal for texts that differ only in case, padding and Unicode form."""
    return " ".join(unicodedata.normalize("NFKC", visible(text)).split()).casefold()


def spellings(categories: Iterable[Scalar]) -> dict[str, Scalar]:
    """Texts by spelling key, if the key identifies one of them."""
    texts = [c for c in categories if isinstance(c, str)]
    times = Counter(map(spelling_key, texts))
    return {key: c for c in texts if times[key := spelling_key(c)] == 1}


def _codes_of(levels: Sequence[Scalar], variable: Variable) -> list[float]:
    """The codes of values, NaN for unknown ones, which may differ from a category in spelling."""
    known = _codes(variable)
    codes = [_code(known, level) for level in levels]
    if not np.isnan(codes).any():
        return codes
    keys = {key: float(known[True, c]) for key, c in spellings(variable.categories).items()}
    booleans = {(False, False), (False, True)} <= known.keys() and len(known) == 4
    for i in np.flatnonzero(np.isnan(codes)).tolist():
        level = levels[i]
        if isinstance(level, str) and (key := spelling_key(level)) in keys:
            codes[i] = keys[key]
        elif booleans and (truth := truth_of(str(level))) is not None:
            codes[i] = float(known[False, truth])
    return codes


def _code(known: dict[tuple[bool, Scalar], int], value: Scalar) -> float:
    texts = [str(value)]
    if isinstance(value, float) and value.is_integer():
        texts.append(str(int(value)))
    keys = [(isinstance(value, str), value), *((True, text) for text in texts)]
    return next((float(known[key]) for key in keys if key in known), np.nan)


def _report_unseen(variable: Variable, values: list[Scalar], row: int, unseen: Unseen) -> None:
    distinct = list(dict.fromkeys(values))
    pooled = unseen == "pool" and OTHER in variable.categories
    if unseen == "missing" or (unseen == "pool" and variable.kind == "category"):
        single = len(values) == 1
        what = "1 value of an unknown category" if single else (
            f"{len(values):,} values of unknown categories"
        )  # fmt: skip
        warnings.warn(
            f"column {variable.name!r}: {what} ({listed(distinct)}) {'is' if single else 'are'} "
            f"taken as {repr(OTHER) if pooled else 'missing'}",
            UserWarning,
            stacklevel=5,
        )
        return
    _refuse_unseen(variable, distinct, len(values), row)


def _refuse_unseen(variable: Variable, values: list[Scalar], count: int, row: int) -> NoReturn:
    near = difflib.get_close_matches(str(values[0]), map(str, variable.categories), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    more = f"; {count:,} such values in all" * (count > 1)
    raise TableError(
        f"column {variable.name!r}: unknown category {values[0]!r} in row {row} (rows count from "
        f"0{more}), expected {listed(variable.categories)}; {hint}correct "
        "the values, take them as missing by Table.of(X, schema=model.schema_, partial=True, "
        f'unseen="missing"), or learn again with such data{variable.pooling}'
    )


# ---------------------------------------------------------------------- decoding
#
# Back from the numbers of the circuit to the user's own values.


def values_of(variable: Variable, values: Floats) -> NDArray[np.generic]:
    """An array (rows,): missing reals are NaN, other missing values None."""
    if variable.kind == "real":
        return _moments(variable, values) if variable.dated else values.copy()
    missing = np.isnan(values)
    whole = np.where(missing, 0, values).astype(np.int64)
    decoded = _array(variable.categories)[whole] if variable.size else whole
    if not missing.any():
        return decoded
    with_none: NDArray[np.generic] = np.where(missing, np.array(None, dtype=object), decoded)
    return with_none


def _moments(variable: Variable, days: Floats) -> NDArray[np.generic]:
    """Dates (rows,) of days since 1970-01-01, to the second if times of day are known."""
    days = np.floor(days) if variable.unit == DATE else days
    seconds = np.round(np.nan_to_num(days) * 86_400).astype("datetime64[s]")
    return np.where(np.isnan(days), np.datetime64("NaT", "s"), seconds)


def series_of(variable: Variable, values: Floats) -> pd.Series:
    """A pandas series: integers for counts, Categorical for categories, nullable if needed."""
    if variable.kind == "real":
        return pd.Series(_moments(variable, values) if variable.dated else values)
    missing = np.isnan(values)
    whole = np.where(missing, -1, values).astype(np.int64)
    plain = variable.kind == "count" or variable.categories in ((0, 1), (False, True))
    if not plain:
        return pd.Series(pd.Categorical.from_codes(whole, list(variable.categories)))
    logical = variable.size and all(isinstance(c, bool) for c in variable.categories)
    numbers = whole.astype(bool) if logical else whole
    if not missing.any():
        return pd.Series(numbers)
    column = pd.Series(numbers, dtype="boolean" if logical else "Int64")
    column[missing] = pd.NA
    return column


def summary(variable: Variable, values: Floats) -> str:
    """Categories or range, unit and share of missing values, as a short text."""
    present = values[~np.isnan(values)]
    if variable.size:
        every = ", ".join(map(repr, variable.categories))
        text = every if len(every) <= 40 else f"{variable.size:,} categories"
    else:
        text = _range(variable, present) if present.size else "no values"
    text += f" {variable.unit}" if variable.unit and not variable.dated else ""
    missing = 1 - present.size / max(len(values), 1)
    if not missing:
        return text
    share = f"{missing:.1%}".replace("%", " %") if missing >= 0.001 else "under 0.1 %"
    return f"{text}, {share} missing"


def _range(variable: Variable, present: Floats) -> str:
    if variable.dated:
        return f"{variable.decode(present.min())} … {variable.decode(present.max())}"
    return f"{present.min():.4g} … {present.max():.4g}"


def _array(categories: tuple[Scalar, ...]) -> NDArray[np.generic]:
    array = np.array(categories)
    alike = len({type(c) for c in categories}) == 1
    return array if alike else np.array(categories, dtype=object)

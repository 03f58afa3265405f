"""One column of a user's data in a common form: numbers, or codes into levels.

Frames, arrow tables and arrays store the same column in many ways (numpy, nullable, arrow and
object dtypes). All of them become a ``Column`` of one of five forms:

    boolean      True, False              numbers are 0 and 1
    integer      whole numbers            also whole floats beside missing values (pandas)
    real         other numbers
    text         strings                  numbers are codes into ``levels``, in order of appearance
    categorical  a declared category      numbers are codes into ``levels``, in the declared order

Missing values are NaN in every form. Dates and times are reals: days since 1970-01-01. Infinite or
complex numbers, bytes, nested values, and numbers mixed with text are refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Literal, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables import dates, numerals
from fedcircuits.tables.schema import DATE, TIME, Scalar, shown

Form = Literal["boolean", "integer", "real", "text", "categorical"]
Floats = NDArray[np.float64]

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
_TIMES = ("datetime64", "datetime", "date")
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, pd.Series, pd.DataFrame)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    name: str
    form: Form
    numbers: Floats  # (rows,)
    levels: tuple[Scalar, ...] = ()
    unit: str | None = None  # that its values are written with; of dates, see schema.py

    @property
    def present(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.numbers)

    def coded(self) -> tuple[NDArray[np.intp], list[Scalar]]:
        """Codes (rows,), −1 for missing values, and the values they represent."""
        if self.form in ("text", "categorical"):
            return np.nan_to_num(self.numbers, nan=-1.0).astype(np.intp), list(self.levels)
        codes, values = pd.factorize(self.numbers)
        as_value = {"boolean": bool, "integer": int}.get(self.form, float)
        return codes, [as_value(v) for v in values]

    def as_numbers(self, wanted: str) -> Floats:
        """The values as numbers; text is parsed, and TableError is raised if it is not a number."""
        if self.form not in ("text", "categorical"):
            return self.numbers
        codes, levels = self.coded()
        parsed = _parsed(levels)
        values = np.append(parsed, np.nan)[codes]  # code -1 picks the NaN
        wrong = np.flatnonzero(np.isnan(values) & (codes >= 0))
        if wrong.size:
            first = shown(levels[codes[wrong[0]]])
            raise TableError(
                f"column {self.name!r}: expected {wanted}, got {first} in row "
                f"{wrong[0]} (rows count from 0; {wrong.size} in all); correct the values or use "
                f'kinds={{{self.name!r}: "category"}}'
            )
        return finite(self.name, values)

    def as_days(self) -> Floats:
        """The values as days since 1970-01-01; TableError for text that is not a date."""
        if self.form not in ("text", "categorical"):
            return self.numbers
        codes, levels = self.coded()
        spelled = dates.dates([str(level) for level in levels])
        days = np.full(len(levels), np.nan) if spelled is None else spelled.days
        values = np.append(days, np.nan)[codes]
        wrong = np.flatnonzero(np.isnan(values) & (codes >= 0))
        if wrong.size:
            raise TableError(
                f"column {self.name!r}: expected dates such as 1964-05-31, got "
                f"{levels[codes[wrong[0]]]!r} in row {wrong[0]} (rows count from 0; {wrong.size} "
                "in all)"
            )
        return values


def _parsed(levels: list[Scalar] | tuple[Scalar, ...]) -> Floats:
    numbers = pd.to_numeric(pd.Series(list(levels), dtype=object), errors="coerce")
    parsed = np.array(numbers, dtype=np.float64)
    odd = np.flatnonzero(np.isnan(parsed))
    if odd.size and (spelled := numerals.numbers([str(levels[i]) for i in odd])) is not None:
        parsed[odd] = spelled.values
    return parsed


def column_of(name: str, series: pd.Series) -> Column:
    """The column of a pandas series of any dtype."""
    dtype, types = series.dtype, pd.api.types
    if isinstance(dtype, pd.ArrowDtype):
        return column_of(name, series.array.__arrow_array__().to_pandas())
    if isinstance(dtype, pd.CategoricalDtype):
        return _categorical(name, series)
    if types.is_bool_dtype(dtype):
        return Column(name, "boolean", _floats(series))
    if types.is_complex_dtype(dtype):
        _refuse(name, "complex numbers", "give the real and imaginary parts as two columns")
    if types.is_integer_dtype(dtype) and not isinstance(dtype, pd.PeriodDtype):
        return Column(name, "integer", _floats(series))
    if types.is_float_dtype(dtype):
        return _real(name, _floats(series))
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return _dated(name, series)
    if types.is_object_dtype(dtype):
        return _object(name, series)
    if types.is_string_dtype(dtype):
        return _text(name, series)
    _refuse_type(name, types.infer_dtype(series, skipna=True), str(dtype))


def finite(name: str, numbers: Floats) -> Floats:
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        raise TableError(
            f"column {name!r}: expected finite numbers, got {infinite.size} infinite, the first in "
            f"row {infinite[0]} (rows count from 0); replace them by NaN or by a bound"
        )
    return numbers


def _floats(series: pd.Series) -> Floats:
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def _real(name: str, numbers: Floats) -> Column:
    present = finite(name, numbers)[~np.isnan(numbers)]
    whole = (
        present.size and present.size < numbers.size and np.array_equal(present, present.round())
    )
    return Column(name, "integer" if whole else "real", numbers)


def _text(name: str, series: pd.Series) -> Column:
    codes, levels = pd.factorize(series)
    numbers = np.where(codes < 0, np.nan, codes)
    return Column(name, "text", numbers, tuple(str(v) for v in levels))


def _categorical(name: str, series: pd.Series) -> Column:
    codes = series.cat.codes.to_numpy()
    levels = tuple(_scalar(v) for v in series.cat.categories)
    return Column(name, "categorical", np.where(codes < 0, np.nan, codes.astype(float)), levels)


def _scalar(value: object) -> Scalar:
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, Scalar) else str(plain)


def _object(name: str, series: pd.Series) -> Column:
    present = series[series.notna()]
    inferred = pd.api.types.infer_dtype(present, skipna=True)
    if inferred in ("string", "empty"):
        return _text(name, series)
    if inferred == "boolean":
        return Column(name, "boolean", _object_floats(name, series, present))
    if inferred in _NUMBERS:
        numbers = _object_floats(name, series, present)
        return Column(name, "integer", numbers) if inferred == "integer" else _real(name, numbers)
    if inferred in _TIMES:
        return _dated(name, series)
    if inferred == "categorical" or inferred.startswith("mixed") or inferred == "unknown-array":
        return _mixed(name, series, present)
    _refuse_type(name, inferred, inferred)


def _object_floats(name: str, series: pd.Series, present: pd.Series) -> Floats:
    numbers = np.full(len(series), np.nan)
    try:
        numbers[series.notna().to_numpy()] = present.astype(np.float64)
    except OverflowError:
        _refuse(name, "whole numbers too large for float64", "rescale them or use them as row_id=")
    return finite(name, numbers)


def _mixed(name: str, series: pd.Series, present: pd.Series) -> Column:
    values, rows = present.to_numpy(), np.flatnonzero(series.notna())
    first: dict[str, int] = {}
    for i, value in enumerate(values):
        first.setdefault(_word(value), i)
    if set(first) == {"number"}:
        return _real(name, _object_floats(name, series, present))
    if "nested value" in first:
        at = first["nested value"]
        _refuse(
            name,
            f"nested values ({shown(values[at], 40)} in row {rows[at]})",
            "give one column per part",
        )
    if len(first) == 1:
        at = next(iter(first.values()))
        _refuse(name, f"values of type {next(iter(first))}", "convert them to numbers or text")
    parts = (f"{word} ({shown(values[i], 40)} in row {rows[i]})" for word, i in first.items())
    raise TableError(
        f"column {name!r}: expected one type, got {' and '.join(parts)} (rows count from 0); "
        "correct the odd values, or convert all of them to text for a category"
    )


def _word(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, Real | Decimal):
        return "number"
    if isinstance(value, str):
        return "text"
    return "nested value" if isinstance(value, _NESTED) else type(value).__name__


def _dated(name: str, series: pd.Series) -> Column:
    """Days since 1970-01-01 of dates and times, or the length of durations in days."""
    if pd.api.types.is_timedelta64_dtype(series.dtype):
        return Column(name, "real", _floats(series / pd.Timedelta(days=1)), unit="days")
    try:
        days = _days(series)
    except (ValueError, TypeError, OverflowError):
        _refuse(name, "dates that cannot be read", "convert them to numbers or text")
    timed = bool(np.any(days[~np.isnan(days)] % 1))
    return Column(name, "real", days, unit=TIME if timed else DATE)


def _days(series: pd.Series) -> Floats:
    """Days (rows,) since 1970-01-01, rounded to the second. Years that mean "never" and "always"
    (0001, 9999) are missing."""
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        moments = series.dt.tz_convert(None) if series.dt.tz is not None else series
        seconds = moments.to_numpy().astype("datetime64[s]").astype(np.float64)
        days = np.where(moments.isna(), np.nan, seconds) / 86_400
    else:
        moments = pd.to_datetime(series, utc=True, errors="coerce")
        strange = moments.isna() & series.notna()
        if any(getattr(value, "year", 0) in dates.YEARS for value in series[strange]):
            raise ValueError("dates of the calendar that pandas does not read")
        if moments.isna().all() and series.notna().any():
            raise ValueError("no dates")
        return _days(moments)
    low, high = (date(year, 1, 1).toordinal() - dates.EPOCH for year in (1000, 2500))
    return np.where((days < low) | (days >= high), np.nan, np.round(days * 86_400) / 86_400)


def _refuse_type(name: str, what: str, dtype: str) -> NoReturn:
    if what in ("time", "period"):
        _refuse(name, f"times without a date ({dtype})", "convert it to a number, such as minutes")
    if what == "bytes":
        _refuse(name, "bytes", "decode them to text or numbers")
    if what == "complex":
        _refuse(name, "complex numbers", "give the real and imaginary parts as two columns")
    _refuse(name, f"values of type {dtype}", "convert them to numbers or text")


class UnlearnableColumnError(TableError):
    """A column whose values are not numbers, booleans or text."""


def _refuse(name: str, what: str, advice: str) -> NoReturn:
    raise UnlearnableColumnError(
        f"column {name!r}: expected numbers, booleans or text, got {what}; {advice}"
    )

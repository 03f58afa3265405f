"""From named columns to a schema and a numeric matrix: inferred, or matched to a given schema.

Inference interprets every column (reading.py) and determines its kind. Matching takes the columns
named by a schema, in any order, ignores others, and reads them in the codes of that schema.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables.columns import Column, Floats, UnlearnableColumnError, column_of
from fedcircuits.tables.date_parts import codes, taken_from, with_parts
from fedcircuits.tables.frames import Columns, listed, reading
from fedcircuits.tables.inference import StatedKind, Unseen, encode, series_of, variable_of
from fedcircuits.tables.reading import (
    LEFT_OUT,
    ColumnReading,
    ReadingRule,
    read_as,
    read_column,
)
from fedcircuits.tables.schema import (
    DATE,
    OTHER,
    ReadingHabits,
    Scalar,
    Schema,
    Variable,
    shown,
    spelled,
)

WHOLE = r"-?(0|[1-9]\d{0,17})"  # a whole number that is the same as text


def inferred(
    columns: Columns,
    kinds: Mapping[str, StatedKind],
    units: Mapping[str, str],
    categories: Mapping[str, Sequence[Scalar]],
    rule: ReadingRule,
) -> tuple[Schema, Floats, tuple[ColumnReading, ...], ReadingHabits]:
    """The schema of the columns, their values (rows, variables), how each was read, and how their
    text is written."""
    for option, named in (("kinds", kinds), ("units", units), ("categories", categories)):
        _refuse_unknown(option, named, columns)
    values, variables, readings = [], [], []
    if columns.pop("", None) is not None:
        readings.append(ColumnReading("", LEFT_OUT, 'no name; the row numbers? row_id=""'))
    columns_read: dict[str, Column] = {}
    strange: dict[str, str] = {}
    for name, series in columns.items():
        try:
            columns_read |= _columns({name: series})
        except UnlearnableColumnError as error:
            if len(columns) == 1 or name in {*kinds, *categories}:
                raise
            strange[name] = str(error).partition(", got ")[2]
    readings += [ColumnReading(name, LEFT_OUT, why) for name, why in strange.items()]
    rule = rule.of_file(columns_read.values()) if not rule.typed else rule
    for name, column in columns_read.items():
        with reading(name):
            stated = kinds.get(name) or ("category" if name in categories else "")
            plain, *parts = stated.split("+")
            column_read, how = read_as(column, plain, rule) if stated else read_column(column, rule)
            if column_read is not None:
                about = (kinds.get(name), categories.get(name), units.get(name))
                variables.append(variable_of(column_read, *about))
                pooling = OTHER in variables[-1].categories
                values.append(encode(column_read, variables[-1], "pool" if pooling else "error"))
        became = LEFT_OUT if column_read is None else variables[-1].kind_in_words
        readings.append(ColumnReading(name, became, how))
        for part, part_codes in with_parts(variables[-1], values[-1], parts) if parts else ():
            variables.append(part)
            values.append(part_codes)
            readings.append(ColumnReading(part.name, part.kind, str(part.unit)))
    if not variables:
        lines = "; ".join(f"{r.column!r}: {r.how}" for r in readings[:8])
        only = readings[0].column if len(readings) == 1 else ""
        parted = ", or by delimiter= what parts the cells" if re.search(r"\w\W\w", only) else ""
        raise TableError(
            f"no column is left to learn from ({lines}): say what they are by kinds={parted}"
        )
    _warn_of_left_out(readings)
    habits = ReadingHabits(
        rule.point if rule.decimal == "auto" else rule.decimal,
        rule.order if rule.dates == "auto" else rule.dates,
    )
    return Schema(tuple(variables)), np.column_stack(values), tuple(readings), habits


def _columns(columns: Columns) -> dict[str, Column]:
    made = {}
    for name, series in columns.items():
        with reading(name):
            made[name] = column_of(name, series)
    return made


def restated(
    schema: Schema,
    kinds: Mapping[str, StatedKind],
    units: Mapping[str, str],
    categories: Mapping[str, Sequence[Scalar]],
) -> tuple[dict[str, StatedKind], dict[str, str], dict[str, Sequence[Scalar]]]:
    """Kinds, units and categories of a schema, overridden by those that the user states."""
    others = [v for v in schema if v.name not in kinds and v.name not in categories]
    return (
        {v.name: v.kind for v in others} | dict(kinds),
        {v.name: v.unit for v in schema if v.unit} | dict(units),
        {v.name: v.categories for v in others if v.categories} | dict(categories),
    )


def leave_out(columns: Columns, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise TableError(f"drop: expected a list of columns, got {names!r}")
    _refuse_unknown("drop", names, columns)
    for name in dict.fromkeys(names):
        del columns[name]
    if not columns:
        raise TableError("drop: names every column, and none is left")


def _warn_of_left_out(readings: Sequence[ColumnReading]) -> None:
    """One warning about all columns left out, with how to keep them."""
    if left_out := [r for r in readings if r.left_out]:
        lines = "; ".join(f"{r.column!r}: {r.how}" for r in left_out[:12])
        more = f"; and {len(left_out) - 12} more" if len(left_out) > 12 else ""
        warnings.warn(
            f"left out: {lines}{more}. Keep one by its kind, such as "
            f'kinds={{{left_out[0].column!r}: "category"}}, or name it in drop= to say so',
            UserWarning,
            stacklevel=5,
        )


def matched(
    columns: Columns, schema: Schema, partial: bool, unseen: Unseen, rule: ReadingRule
) -> Floats:
    """Values (rows, variables) of the columns named by the schema, in its order and codes."""
    _add_parts(columns, schema, rule)
    absent = [name for name in schema.names if name not in columns]
    if absent and not partial:
        raise TableError(
            f"expected the columns {listed(schema.names)}; absent: {listed(absent)} (there are "
            f"{listed(columns)}); pass partial=True to take absent columns as missing values"
        )
    if len(absent) == len(schema):
        raise TableError(
            f"none of the columns {listed(columns)} is a variable of the model, which has "
            f"{listed(schema.names)}"
        )
    values = _matrix(columns, len(schema))
    columns_here = _columns({name: columns[name] for name in schema.names if name in columns})
    rule = rule.of_file(columns_here.values()) if not rule.typed else rule
    for i, variable in enumerate(schema):
        if variable.name in columns_here:
            with reading(variable.name):
                column = columns_here[variable.name]
                kind = "date" if variable.dated else variable.kind
                read, how = (column, "") if rule.typed else read_as(column, kind, rule)
                assert read is not None  # what a model knows is not left out
                values[:, i] = encode(read, variable, unseen)
            if read.present.sum() < column.present.sum():
                warnings.warn(f"column {variable.name!r}: {how}", UserWarning, stacklevel=4)
    return values


def _add_parts(columns: Columns, schema: Schema, rule: ReadingRule) -> None:
    """Add weekdays and months that a model has and the data contain only as dates."""
    for variable in schema:
        taken = None if variable.name in columns else taken_from(variable)
        if taken is None or taken.column not in columns:
            continue
        with reading(taken.column):
            column = column_of(taken.column, columns[taken.column])
            read, _ = read_as(column, DATE, rule)
            days = encode(read or column, Variable(taken.column, "real", unit=DATE))
        columns[variable.name] = series_of(variable, codes(days, taken.part))


def row_ids(columns: Columns, name: str) -> NDArray[np.generic]:
    """Remove the row ids (rows,), whole numbers or texts, from the columns and return them.

    1.0 is read as 1: tools store whole numbers as floats if some are missing. In a csv file, 17 is
    a number and 0017 a text.
    """
    if name not in columns:
        near = difflib.get_close_matches(spelled(name), columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {listed(columns)}"
        raise TableError(f"row_id: there is no column {shown(name)}{hint}")
    series = columns.pop(name).reset_index(drop=True)
    if not columns:
        raise TableError(f"expected columns beside the row ids {name!r}, got none")
    with reading(name):
        return _different(series, name)


def _different(series: pd.Series, name: str) -> NDArray[np.generic]:
    if (absent := series.isna()).any():
        raise TableError(
            f"row_id {name!r}: expected an id in every row, row {absent.idxmax()} has none (rows "
            f"count from 0; {absent.sum()} in all)"
        )
    if (again := series.duplicated()).any():
        row = int(again.idxmax())
        raise TableError(
            f"row_id {name!r}: expected different ids, row {row} has {series.tolist()[row]!r} "
            f"again (rows count from 0; {again.sum()} in all): keep one row of each id"
        )
    if pd.api.types.is_string_dtype(series.dtype) and _whole_texts(series):
        series = series.astype(np.int64)
    if pd.api.types.is_float_dtype(series.dtype) and _whole(series):
        series = series.astype(np.int64)
    whole = pd.api.types.is_integer_dtype(series.dtype)
    return np.asarray((series if whole else series.astype(str)).tolist())


def _whole_texts(series: pd.Series) -> bool:
    """Whether texts, or Python objects, are whole numbers."""
    if pd.api.types.infer_dtype(series, skipna=False) == "integer":
        return bool(max(map(abs, series)) < 2**63)
    matched = series.str.fullmatch(WHOLE)
    return bool(matched.notna().all() and matched.all())


def _whole(series: pd.Series) -> bool:
    return bool(((series % 1 == 0) & (series.abs() < 2**53)).all())


def positional(array: NDArray[np.generic], schema: Schema) -> Sequence[str] | None:
    """The names of the columns of a plain array that is read by a schema."""
    if array.dtype.names is not None or array.ndim != 2:
        return None
    if array.shape[1] != len(schema):
        raise TableError(
            f"expected {len(schema)} columns ({listed(schema.names)}), got an array with "
            f"{array.shape[1]}; pass names=[…] to say which they are"
        )
    return schema.names


def _matrix(columns: Columns, width: int) -> Floats:
    rows = len(next(iter(columns.values())))
    return np.full((rows, width), np.nan)


def _refuse_unknown(option: str, named: Iterable[str], columns: Columns) -> None:
    for name in named:
        if name not in columns:
            near = difflib.get_close_matches(str(name), columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {listed(columns)}"
            raise TableError(f"{option}: there is no column {name!r}; {hint}")

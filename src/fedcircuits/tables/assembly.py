"""From named columns to a schema and a matrix of numbers: inferred, or matched to a given schema.

Inference asks every column for its kind. Matching takes the columns that a schema names, in any
order, ignores the others, and reads them in that schema's codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables.columns import Floats, column_of
from fedcircuits.tables.inference import Unseen, encode, variable_of
from fedcircuits.tables.schema import Kind, Scalar, Schema
from fedcircuits.tables.sources import Columns


def inferred(
    columns: Columns,
    kinds: Mapping[str, Kind],
    units: Mapping[str, str],
    categories: Mapping[str, Sequence[Scalar]],
) -> tuple[Schema, Floats]:
    """The schema of the columns and their values (rows, variables)."""
    for option, named in (("kinds", kinds), ("units", units), ("categories", categories)):
        _refuse_unknown(option, named, columns)
    if "" in columns:
        raise TableError(
            f"column {list(columns).index('')} has no name (columns count from 0; often the row "
            'numbers a frame was saved with): name it, drop it, or use it as row_id=""'
        )
    values = _matrix(columns, len(columns))
    variables = []
    for i, (name, series) in enumerate(columns.items()):
        column = column_of(name, series)
        variable = variable_of(column, kinds.get(name), categories.get(name), units.get(name))
        values[:, i] = encode(column, variable)
        variables.append(variable)
    return Schema(tuple(variables)), values


def matched(columns: Columns, schema: Schema, partial: bool, unseen: Unseen) -> Floats:
    """The values (rows, variables) of the columns that the schema names, in its order and codes."""
    absent = [name for name in schema.names if name not in columns]
    if absent and not partial:
        raise TableError(
            f"expected the columns {_listed(schema.names)}; absent: {_listed(absent)} (there are "
            f"{_listed(columns)}); pass partial=True to take absent columns as missing values"
        )
    if len(absent) == len(schema):
        raise TableError(
            f"none of the columns {_listed(columns)} is a variable of the model, which has "
            f"{_listed(schema.names)}"
        )
    values = _matrix(columns, len(schema))
    for i, variable in enumerate(schema):
        if variable.name in columns:
            column = column_of(variable.name, columns[variable.name])
            values[:, i] = encode(column, variable, unseen)
    return values


def row_ids(columns: Columns, name: str) -> NDArray[np.generic]:
    """Takes the row ids (rows,), whole numbers or texts, out of the columns.

    1.0 is 1: whole numbers become floats where a tool has seen a gap among them.
    """
    if name not in columns:
        near = difflib.get_close_matches(name, columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {_listed(columns)}"
        raise TableError(f"row_id: there is no column {name!r}{hint}")
    series = columns.pop(name).reset_index(drop=True)
    if not columns:
        raise TableError(f"expected columns beside the row ids {name!r}, got none")
    if (absent := series.isna()).any():
        raise TableError(
            f"row_id {name!r}: expected an id in every row, row {absent.idxmax()} has none (rows "
            f"count from 0; {absent.sum()} in all)"
        )
    if (again := series.duplicated()).any():
        row = int(again.idxmax())
        raise TableError(
            f"row_id {name!r}: expected different ids, row {row} has {series.tolist()[row]!r} "
            f"again (rows count from 0; {again.sum()} in all)"
        )
    if pd.api.types.is_float_dtype(series.dtype) and _whole(series):
        series = series.astype(np.int64)
    whole = pd.api.types.is_integer_dtype(series.dtype)
    return np.asarray((series if whole else series.astype(str)).tolist())


def _whole(series: pd.Series) -> bool:
    return bool(((series % 1 == 0) & (series.abs() < 2**53)).all())


def picked(index: Sequence[int] | NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """A checked index or mask of a table's rows."""
    where = np.asarray(index)
    if where.size == 0 and where.dtype.kind != "b":
        return np.zeros(0, dtype=np.intp)
    if where.ndim != 1 or where.dtype.kind not in "biu":
        raise TableError(f"rows: expected row numbers or a mask, got {index!r}")
    if where.dtype.kind == "b" and len(where) != rows:
        raise TableError(f"rows: expected a mask of {rows} rows, got {len(where)}")
    if where.dtype.kind != "b" and not (-rows <= where.min() and where.max() < rows):
        raise TableError(f"rows: expected numbers below {rows}, got {where.min()} … {where.max()}")
    return where


def positional(array: NDArray[np.generic], schema: Schema) -> Sequence[str] | None:
    """The names of a plain array's columns when it is read for a schema: those of the schema."""
    if array.dtype.names is not None or array.ndim != 2:
        return None
    if array.shape[1] != len(schema):
        raise TableError(
            f"expected {len(schema)} columns ({_listed(schema.names)}), got an array with "
            f"{array.shape[1]}; pass names=[…] to say which they are"
        )
    return schema.names


def check_numbers(schema: Schema, values: Floats) -> None:
    """Refuses values (rows, variables) that no table of this schema can hold."""
    low = np.array([-np.inf if v.kind == "real" else 0.0 for v in schema])
    high = np.array([v.size - 1.0 if v.size else np.inf for v in schema])
    whole = np.array([v.discrete for v in schema], dtype=bool)
    wrong = (values < low) | (values > high) | np.isinf(values)
    wrong |= whole & (np.rint(values) != values) & ~np.isnan(values)
    if wrong.any():
        row, i = np.argwhere(wrong)[0]
        variable = schema.variables[i]
        wanted = f"a code below {variable.size}" if variable.size else f"a finite {variable.kind}"
        raise TableError(
            f"variable {variable.name!r}: expected {wanted}, got {values[row, i]:g} in row {row} "
            "(rows count from 0); Table.of takes values that are not codes yet"
        )


def _matrix(columns: Columns, width: int) -> Floats:
    rows = len(next(iter(columns.values())))
    return np.full((rows, width), np.nan)


def _refuse_unknown(option: str, named: Iterable[str], columns: Columns) -> None:
    for name in named:
        if name not in columns:
            near = difflib.get_close_matches(str(name), columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {_listed(columns)}"
            raise TableError(f"{option}: there is no column {name!r}; {hint}")


def _listed(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    shown = ", ".join(map(repr, names[:most]))
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")

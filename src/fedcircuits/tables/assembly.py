"""From named columns to a schema and a matrix of numbers: inferred, or matched to a given schema.

Inference reads every column as what it spells (reading.py) and asks it for its kind. Matching takes
the columns that a schema names, in any order, ignores the others, and reads them in that schema's
codes.
"""

from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import FedcircuitsError, TableError
from fedcircuits.tables.columns import Floats, column_of
from fedcircuits.tables.inference import StatedKind, Unseen, encode, variable_of
from fedcircuits.tables.reading import (
    LEFT_OUT,
    ColumnReading,
    ReadingRule,
    read_as,
    read_column,
)
from fedcircuits.tables.schema import Scalar, Schema, is_text, shown, spelled

if TYPE_CHECKING:
    import polars
    import pyarrow


# ---------------------------------------------------------------------- sources
#
# The columns of whatever a user holds: frames, arrow tables, arrays, dicts of columns.
#
# Every source becomes named pandas series of one length, in the source's own types and order. The
# names must differ; there must be a row and a column. polars and pyarrow are only touched when the
# object comes from them.


Columns = dict[str, pd.Series]
MOST_COLUMNS = 100_000
WHOLE = r"-?(0|[1-9]\d{0,17})"  # a whole number that is the same as text
_ACCEPTED = (
    "a Table, a pandas or polars DataFrame, a pyarrow Table, a numpy array or a dict of columns"
)


def columns_of(
    data: object, names: Sequence[str] | None = None, row_id: str | None = None
) -> Columns:
    """The columns by name; ``names`` is for arrays, ``row_id`` may also name a pandas index."""
    library = type(data).__module__.partition(".")[0]
    _refuse_many(data)
    if names is not None and not isinstance(data, np.ndarray):
        raise TableError(f"names= is for numpy arrays, got {_type(data)}, which has its own names")
    if isinstance(data, pd.DataFrame):
        return _checked(_from_pandas(data, row_id))
    if isinstance(data, np.ndarray):
        return _checked(_from_numpy(data, names))
    if isinstance(data, Mapping):
        return _checked(_from_mapping(data))
    if library == "polars" and hasattr(data, "collect_schema"):
        return _checked(_from_polars(cast("polars.DataFrame", data)))
    if library == "pyarrow" and hasattr(data, "column_names"):
        return _checked(_from_arrow(cast("pyarrow.Table", data)))
    raise TableError(f"expected {_ACCEPTED}, got {_type(data)}{_advice(data)}")


def _refuse_many(data: object) -> None:
    shape = getattr(data, "shape", ()) if not isinstance(data, Mapping) else (0, len(data))
    columns = shape[1] if isinstance(shape, tuple) and len(shape) == 2 else 0
    if isinstance(columns, int) and columns > MOST_COLUMNS:
        raise TableError(
            f"expected at most {MOST_COLUMNS:,} columns, got {columns:,}: choose some of them, or "
            "give what belongs together as a series (Table.from_series)"
        )


def _advice(data: object) -> str:
    if isinstance(data, pd.Series) or type(data).__name__ == "Series":
        return "; make a frame of it with .to_frame()"
    if hasattr(data, "toarray"):
        return "; convert it with .toarray()"
    if hasattr(data, "detach"):
        return "; convert it with .numpy()"
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return "; read a file with Table.read(path)"
    if isinstance(data, list | tuple) and any(type(part).__name__ == "Table" for part in data):
        return (
            "; give one table, or fedcircuits.Federation({'north': table, …}) for several parties"
        )
    if isinstance(data, list):
        return "; convert it with numpy.array or pandas.DataFrame"
    return ""


def _from_pandas(frame: pd.DataFrame, row_id: str | None) -> list[tuple[str, pd.Series]]:
    if isinstance(frame.columns, pd.MultiIndex):
        raise TableError("expected one level of column names, got several; join them into one text")
    pairs = [(_named(n), frame.iloc[:, i]) for i, n in enumerate(frame.columns)]
    if row_id is not None and row_id not in dict(pairs) and frame.index.name == row_id:
        pairs.append((row_id, frame.index.to_series()))
    return pairs


def _from_polars(frame: polars.DataFrame | polars.LazyFrame) -> list[tuple[str, pd.Series]]:
    import polars

    # The order of a polars Categorical is that of appearance: no order a user declared.
    text = frame.lazy().with_columns(polars.col(polars.Categorical).cast(polars.String))
    return _from_arrow(text.collect().to_arrow())


def _from_arrow(table: pyarrow.Table) -> list[tuple[str, pd.Series]]:
    import pyarrow.types as types

    pairs = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.startswith("__index_level_"):  # the index of a frame saved by pandas
            continue
        if types.is_decimal(column.type):
            column = column.cast("float64")
        if types.is_dictionary(column.type) and column.num_chunks > 1:
            column = column.unify_dictionaries()
        pairs.append((name, column.to_pandas()))
    return pairs


def _from_numpy(
    array: NDArray[np.generic], names: Sequence[str] | None
) -> list[tuple[str, pd.Series]]:
    if array.dtype.names is not None:
        return _from_structured(array.astype(array.dtype, copy=False), names)
    if array.ndim != 2:
        raise TableError(
            f"expected an array of two dimensions (rows, columns), got the shape {array.shape}; "
            "a single column is array.reshape(-1, 1)"
        )
    names = [f"x{i}" for i in range(array.shape[1])] if names is None else list(names)
    if len(names) != array.shape[1]:
        raise TableError(f"expected {array.shape[1]} names for the columns, got {len(names)}")
    return [(_named(n), pd.Series(array[:, i])) for i, n in enumerate(names)]


def _from_structured(
    array: NDArray[np.void], names: Sequence[str] | None
) -> list[tuple[str, pd.Series]]:
    fields = array.dtype.names or ()
    if names is not None:
        raise TableError(f"names= is for plain arrays, this one has its own: {', '.join(fields)}")
    for field in fields:
        if array[field].ndim != 1:
            shape = array[field].shape[1:]
            raise TableError(
                f"column {field!r}: expected one value per row, got the shape {shape}; give one "
                "column per part"
            )
    return [(field, pd.Series(array[field])) for field in fields]


def _from_mapping(data: Mapping[object, object]) -> list[tuple[str, pd.Series]]:
    pairs = [(_named(name), _series(_named(name), values)) for name, values in data.items()]
    lengths = {name: len(series) for name, series in pairs}
    if len(set(lengths.values())) > 1:
        some = ", ".join(f"{shown(name)} {length}" for name, length in list(lengths.items())[:8])
        raise TableError(f"expected columns of one length, got {some}")
    return pairs


def _series(name: str, values: object) -> pd.Series:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TableError(f"column {name!r}: expected a sequence of values, got {shown(values)}")
    shape = getattr(values, "shape", (0,))
    if len(shape) != 1:
        raise TableError(f"column {name!r}: expected one value per row, got the shape {shape}")
    with reading(name):
        if hasattr(values, "to_pandas"):  # a series of polars, an array of pyarrow
            return pd.Series(values.to_pandas()).reset_index(drop=True)
        plain = values if hasattr(values, "dtype") else list(values)
        return pd.Series(plain).reset_index(drop=True)


def _named(name: object) -> str:
    if not isinstance(name, Hashable) or isinstance(name, tuple):
        raise TableError(f"expected a text as column name, got {shown(name)}")
    if not is_text(text := spelled(name)):
        raise TableError(
            f"the column name {shown(text)} cannot be written, it holds half of a pair of UTF-16"
        )
    return text


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever goes wrong inside is wrong with a column; objects of others may raise anything."""
    try:
        yield
    except FedcircuitsError:
        raise
    except UnicodeEncodeError as error:
        found = f"text that cannot be written ({shown(error.object[error.start])} in one of them)"
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
            NotImplementedError) as error:  # fmt: skip
        found = f"values that cannot be read ({type(error).__name__})"
    else:
        return
    raise TableError(
        f"column {name!r}: expected numbers, booleans or text, got {found}; convert them first"
    )


def _checked(pairs: list[tuple[str, pd.Series]]) -> Columns:
    names = [name for name, _ in pairs]
    refuse_repeated(names)
    if not pairs:
        raise TableError("expected a table with columns, got none")
    if len(pairs[0][1]) == 0:
        raise TableError(f"expected a table with rows, got none (columns {_listed(names)})")
    return dict(pairs)


def refuse_repeated(names: Sequence[str], where: str = "") -> None:
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        listed = ", ".join(map(shown, twice[:8]))
        raise TableError(f"{where}column names must differ, got more than once: {listed}")


def _type(data: object) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}"


def inferred(
    columns: Columns,
    kinds: Mapping[str, StatedKind],
    units: Mapping[str, str],
    categories: Mapping[str, Sequence[Scalar]],
    rule: ReadingRule,
) -> tuple[Schema, Floats, tuple[ColumnReading, ...]]:
    """The schema of the columns, their values (rows, variables), and what became of each."""
    for option, named in (("kinds", kinds), ("units", units), ("categories", categories)):
        _refuse_unknown(option, named, columns)
    values, variables, readings = [], [], []
    if columns.pop("", None) is not None:
        readings.append(ColumnReading("", LEFT_OUT, 'no name; the row numbers? row_id=""'))
    for name, series in columns.items():
        with reading(name):
            column = column_of(name, series)
            stated = kinds.get(name) or ("category" if name in categories else "")
            found, how = read_as(column, stated, rule) if stated else read_column(column, rule)
            if found is not None:
                about = (kinds.get(name), categories.get(name), units.get(name))
                variables.append(variable_of(found, *about))
                values.append(encode(found, variables[-1]))
        became = LEFT_OUT if found is None else variables[-1].kind_in_words
        readings.append(ColumnReading(name, became, how))
    if not variables:
        lines = "; ".join(f"{r.column!r}: {r.how}" for r in readings[:8])
        raise TableError(f"no column is left to learn from ({lines}): say what they are by kinds=")
    _warn_of_left_out(readings)
    return Schema(tuple(variables)), np.column_stack(values), tuple(readings)


def leave_out(columns: Columns, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise TableError(f"drop: expected a list of columns, got {names!r}")
    _refuse_unknown("drop", names, columns)
    for name in dict.fromkeys(names):
        del columns[name]
    if not columns:
        raise TableError("drop: names every column, and none is left")


def _warn_of_left_out(readings: Sequence[ColumnReading]) -> None:
    """All of them in one warning, with how to keep them."""
    if left_out := [r for r in readings if r.left_out]:
        listed = "; ".join(f"{r.column!r}: {r.how}" for r in left_out[:12])
        more = f"; and {len(left_out) - 12} more" if len(left_out) > 12 else ""
        warnings.warn(
            f"left out: {listed}{more}. Keep one by its kind, such as "
            f'kinds={{{left_out[0].column!r}: "category"}}, or name it in drop= to say so',
            UserWarning,
            stacklevel=5,
        )


def matched(
    columns: Columns, schema: Schema, partial: bool, unseen: Unseen, rule: ReadingRule
) -> Floats:
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
            with reading(variable.name):
                column = column_of(variable.name, columns[variable.name])
                kind = "date" if variable.dated else variable.kind
                read, how = read_as(column, kind, rule)
                assert read is not None  # what a model knows is not left out
                values[:, i] = encode(read, variable, unseen)
            if read.present.sum() < column.present.sum():
                warnings.warn(f"column {variable.name!r}: {how}", UserWarning, stacklevel=4)
    return values


def row_ids(columns: Columns, name: str) -> NDArray[np.generic]:
    """Takes the row ids (rows,), whole numbers or texts, out of the columns.

    1.0 is 1: whole numbers become floats where a tool has seen a gap among them. In a csv 17 is the
    number, and 0017 a text.
    """
    if name not in columns:
        near = difflib.get_close_matches(spelled(name), columns, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {_listed(columns)}"
        raise TableError(f"row_id: there is no column {shown(name)}{hint}")
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
    if pd.api.types.is_string_dtype(series.dtype) and series.str.fullmatch(WHOLE).all():
        series = series.astype(np.int64)
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
    high = np.array([v.levels - 1.0 if v.levels else np.inf for v in schema])
    whole = np.array([v.discrete for v in schema], dtype=bool)
    wrong = (values < low) | (values > high) | np.isinf(values)
    wrong |= whole & (np.rint(values) != values) & ~np.isnan(values)
    if wrong.any():
        row, i = np.argwhere(wrong)[0]
        variable = schema.variables[i]
        wanted = f"a code below {variable.size}" if variable.size else f"a finite {variable.kind}"
        wanted += "" if variable.most is None else f" up to {variable.most}"
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
    listed = ", ".join(map(shown, names[:most]))
    return listed + (f", … ({len(names)} in all)" if len(names) > most else "")

"""Columns from frames, arrow tables, arrays and dicts.

Every source becomes named pandas series of equal length, in the types and order of the source.
Names must be distinct, and there must be a row and a column. polars and pyarrow are imported only
for their own objects. Frames of other libraries (duckdb, ibis, modin, dask …) are read as arrow
tables: through the arrow stream that most of them offer, or through narwhals if it is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedcircuits.errors import FedcircuitsError, TableError
from fedcircuits.tables.schema import is_text, shown, spelled

if TYPE_CHECKING:
    import narwhals as nw
    import polars
    import pyarrow

Columns = dict[str, pd.Series]
MOST_COLUMNS = 100_000
_ACCEPTED = (
    "a Table, a DataFrame of pandas, polars or another library that gives arrow tables, a pyarrow "
    "Table, a numpy array or a dict of columns"
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
    if not isinstance(data, type) and (table := _arrow_of(data)) is not None:
        return _checked(_from_arrow(table))
    raise TableError(f"expected {_ACCEPTED}, got {_type(data)}{_advice(data)}")


def _arrow_of(data: object) -> pyarrow.Table | None:
    """The arrow table of another library's frame, None for other objects."""
    if type(data).__name__ == "Series" or isinstance(data, str | list | tuple):
        return None
    if hasattr(data, "__arrow_c_stream__"):
        import pyarrow

        try:
            return pyarrow.table(data)
        except (pyarrow.ArrowException, TypeError, ValueError):
            return None
    frame = _narwhal(data)
    if frame is None:
        return None
    whole = frame.collect("pyarrow") if hasattr(frame, "collect") else frame
    return whole.to_arrow()


def is_foreign(data: object) -> bool:
    """Whether it is a frame of another library than pandas, in whose type answers are given."""
    library = type(data).__module__.partition(".")[0]
    if library in ("polars", "pyarrow"):
        return hasattr(data, "column_names") or hasattr(data, "collect_schema")
    plain = (pd.DataFrame, pd.Series, np.ndarray, Mapping, str, list, tuple, type, type(None))
    if isinstance(data, plain) or library in ("numpy", "fedcircuits", "torch", "scipy"):
        return False
    return _narwhal(data) is not None


def _narwhal(data: object) -> nw.DataFrame[Any] | nw.LazyFrame[Any] | None:
    """Another library's frame as a narwhals frame, if narwhals is installed."""
    try:
        import narwhals as nw
    except ImportError:
        return None
    frame = nw.from_native(data, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame | nw.LazyFrame) else None


def in_kind_of(frame: pd.DataFrame, data: object) -> object:
    """The frame in the type of ``data``: polars, pyarrow, numpy, a dict, anything narwhals can
    create (modin, duckdb, dask, ibis …), or pandas."""
    library = type(data).__module__.partition(".")[0]
    if isinstance(data, np.ndarray):
        return frame.to_numpy()
    if isinstance(data, Mapping):
        return {name: column.to_numpy() for name, column in frame.items()}
    if not is_foreign(data):
        return frame
    import pyarrow

    table = pyarrow.Table.from_pandas(_plainly(frame), preserve_index=False)
    if library == "pyarrow":
        return table
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    return _by_narwhals(table, data, frame)


def _plainly(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories that are not texts as plain values, since not every library reads dictionaries of
    other types."""
    odd = {
        name: frame[name].cat.categories.dtype
        for name, kind in frame.dtypes.items()
        if isinstance(kind, pd.CategoricalDtype) and not all(map(_is_str, kind.categories))
    }
    gaps = {name: "object" for name in odd if frame[name].isna().any()}
    return frame.astype(odd | gaps) if odd else frame


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _by_narwhals(table: pyarrow.Table, data: object, frame: pd.DataFrame) -> object:
    """A frame of the library of ``data``; a pandas frame if that library cannot create one."""
    import narwhals as nw
    import pyarrow.types as types

    given = _narwhal(data)
    for i, column in enumerate(table.columns):
        if types.is_dictionary(column.type):
            values = column.cast(column.type.value_type)
            table = table.set_column(i, table.column_names[i], values)
    try:
        if isinstance(given, nw.LazyFrame):
            return nw.from_native(table).lazy(given.implementation).to_native()
        if given is not None:
            return nw.from_arrow(table, backend=given.implementation).to_native()
    except (ValueError, TypeError, NotImplementedError, AttributeError):
        pass
    return frame


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
    import pyarrow
    import pyarrow.types as types

    pairs = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name.startswith("__index_level_"):  # the index of a frame saved by pandas
            continue
        if types.is_decimal(column.type):
            column = column.cast("float64")
        if types.is_dictionary(column.type) and column.num_chunks > 1:
            column = column.unify_dictionaries()
        if types.is_dictionary(column.type) and types.is_unsigned_integer(column.type.index_type):
            signed = pyarrow.dictionary(
                pyarrow.int64(), column.type.value_type, column.type.ordered
            )
            column = column.cast(signed)  # pandas reads no others before pyarrow 18
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
    """Attributes any error inside to a column; foreign objects may raise anything."""
    try:
        yield
    except FedcircuitsError:
        raise
    except UnicodeEncodeError as error:
        problem = f"text that cannot be written ({shown(error.object[error.start])} in one of them)"
    except OverflowError:
        problem = "whole numbers too large for float64"
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
            NotImplementedError) as error:  # fmt: skip
        problem = f"values that cannot be read ({type(error).__name__})"
    else:
        return
    raise TableError(
        f"column {name!r}: expected numbers, booleans or text, got {problem}; convert them first"
    )


def _checked(pairs: list[tuple[str, pd.Series]]) -> Columns:
    names = [name for name, _ in pairs]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise TableError(f"column names must differ, got more than once: {listed(twice)}")
    if not pairs:
        raise TableError("expected a table with columns, got none")
    if len(pairs[0][1]) == 0:
        raise TableError(f"expected a table with rows, got none (columns {listed(names)})")
    return dict(pairs)


def _type(data: object) -> str:
    return f"{type(data).__module__}.{type(data).__qualname__}"


def listed(values: Iterable[object], most: int = 8) -> str:
    """The first few of them, and how many there are."""
    values = list(values)
    first = ", ".join(map(shown, values[:most]))
    return first + (f", … ({len(values)} in all)" if len(values) > most else "")

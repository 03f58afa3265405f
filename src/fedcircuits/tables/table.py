"""The typed table: the input of every learner and query.

A ``Table`` holds a ``Schema`` and numeric values: categories and booleans as codes, counts and
reals as they are, and NaN for missing values. The schema converts codes back to the user's values.

``Table.of`` accepts frames, arrow tables, arrays and dicts of columns. It interprets text, leaves
out columns that cannot be learned from (reading.py; see ``describe``), and infers kinds by the
rules in inference.py; ``kinds``, ``categories`` and ``units`` override them per column. With the
``schema`` of a model, columns are matched by name in any order and read in the codes of the model.

    >>> table = Table.of({"age": [31, 47, None], "sex": ["f", "m", "f"]})
    >>> table
    Table: 3 rows × 2 variables
      age  count     31 … 47, 33.3 % missing
      sex  category  'f', 'm'
    >>> table.values[:, 1]
    array([0., 1., 0.])

A table may also hold series: arrays (rows, steps, channels) by name (``Table.from_series``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables import assembly, images, notebook, readers
from fedcircuits.tables import inference as decoding
from fedcircuits.tables import series as series_columns
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.dates import DateOrder
from fedcircuits.tables.frames import Columns, columns_of, in_kind_of
from fedcircuits.tables.gaps import MISSING
from fedcircuits.tables.inference import StatedKind, Unseen
from fedcircuits.tables.numerals import Decimal
from fedcircuits.tables.readers import TextFrame
from fedcircuits.tables.reading import (
    LEFT_OUT,
    ColumnReading,
    ReadingRule,
    otherwise,
)
from fedcircuits.tables.schema import NO_HABITS, ReadingHabits, Scalar, Schema
from fedcircuits.tables.series import NO_SERIES, Series

_MOST_SHOWN = 12


class TableOptions(TypedDict, total=False):
    """Options of ``Table.of`` and of the readers."""

    kinds: Mapping[str, StatedKind] | None
    units: Mapping[str, str] | None
    row_id: str | None
    categories: Mapping[str, Sequence[Scalar]] | None
    drop: Sequence[str]
    decimal: Decimal
    dates: DateOrder
    schema: Schema | None
    partial: bool
    unseen: Unseen


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """A table of typed columns: ``Table.of(frame)``, ``Table.read("my.csv")``."""

    schema: Schema
    values: Floats  # (rows, variables)
    row_ids: NDArray[np.generic] | None = None  # (rows,)
    series: Mapping[str, Series] = field(default_factory=dict)  # (rows, steps, channels) by name
    readings: tuple[ColumnReading, ...] = ()  # how each column was read
    habits: ReadingHabits = NO_HABITS  # how the text writes numbers and dates

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        shape = self.values.shape
        if len(shape) != 2 or shape[1] != len(self.schema):
            raise TableError(
                f"expected values of the shape (rows, {len(self.schema)}), got {shape}"
            )
        if self.row_ids is not None and self.row_ids.shape != shape[:1]:
            raise TableError(f"expected {shape[0]} row ids, got the shape {self.row_ids.shape}")
        self.schema.check_values(self.values)
        checked = series_columns.checked(self.series, shape[0], self.schema) if self.series else {}
        object.__setattr__(self, "series", checked)

    @classmethod
    def of(
        cls,
        data: object,
        *,
        names: Sequence[str] | None = None,
        kinds: Mapping[str, StatedKind] | None = None,
        units: Mapping[str, str] | None = None,
        row_id: str | None = None,
        categories: Mapping[str, Sequence[Scalar]] | None = None,
        drop: Sequence[str] = (),
        decimal: Decimal = "auto",
        dates: DateOrder = "auto",
        schema: Schema | None = None,
        partial: bool = False,
        unseen: Unseen = "pool",
    ) -> Table:
        """A table of a frame, an arrow table, an array, a dict of columns or another table.

        Parameters
        ----------
        data : DataFrame, pyarrow.Table, array, dict or Table
            The columns. Arrays of bytes are images, with pixels as counts up to 255.
        names : sequence of str, optional
            The columns of a plain array; by default those of the schema, or x0, x1, …
        kinds, units, categories : mapping of str, optional
            By column: its kind (real, count, category, boolean, date, "date+weekday+month"), its
            unit, and its categories in order, including those absent from the data.
        row_id : str, optional
            The column that identifies rows; it becomes ``row_ids`` instead of a variable.
        drop : sequence of str, default=()
            Columns to leave out.
        decimal, dates : str, default="auto"
            The decimal sign in text, "." or ",", and the order of dates, "dmy", "mdy" or "ymd".
        schema, partial : Schema, optional, and bool, default=False
            The schema of a model for reading the data, and whether its columns may be absent.
        unseen : {"pool", "missing", "error"}, default="pool"
            What becomes of a category unknown to the schema: with a warning, the pooled rare
            category, or a missing value if there is none; always a missing value; or an error.
        """
        stated = (kinds or {}, units or {}, categories or {})
        _check_options(schema, any(stated), unseen)
        if isinstance(data, np.ndarray) and data.dtype == np.uint8:
            data = images.in_rows(data)
            plain = schema is None and not (any(stated) or names or row_id)
            if plain and images.is_image(data):
                return cls(images.pixel_schema(data.shape[1]), data.astype(np.float64))
        if isinstance(data, Table):
            if schema == data.schema or (schema is None and not any(stated)):
                return data if row_id is None else data._with_row_ids(row_id)
            stated = assembly.restated(data.schema, *stated)
        columns, ids, series = _parts(data, names, row_id, schema)
        assembly.leave_out(columns, drop)
        ids = ids if row_id is None else assembly.row_ids(columns, row_id)
        rule = _rule(data, decimal, dates)
        if schema is not None:
            values = assembly.matched(columns, schema, partial, unseen, rule)
            return cls(schema, values, ids, series)
        inferred, values, readings, habits = assembly.inferred(columns, *stated, rule)
        readings = (*readings, *(ColumnReading(n, LEFT_OUT) for n in dict.fromkeys(drop)))
        return cls(inferred, values, ids, series, readings, habits)

    @classmethod
    def from_series(
        cls,
        series: Mapping[str, ArrayLike],
        columns: object = None,
        row_id: ArrayLike | str | None = None,
        kinds: Mapping[str, StatedKind] | None = None,
        categories: Mapping[str, Sequence[Scalar]] | None = None,
    ) -> Table:
        """A table of series (rows, steps, channels) by name, padded with NaN, and of columns.

        ``columns`` is anything that ``of`` accepts; ``row_id`` holds row ids, or names a column.

        >>> table = Table.from_series({"speed": np.ones((2, 12))}, {"event": [True, False]}, [7, 8])
        >>> table.series["speed"].shape, table.rows([1]).row_ids.tolist()
        ((2, 12, 1), [8])
        """
        rows = series_columns.rows_of(series)
        named = row_id if isinstance(row_id, str) else None
        if columns is None and named is not None:
            raise TableError(f"row_id={named!r} names a column, and there are none: give columns=")
        if columns is None:
            plain = cls(Schema(()), np.zeros((rows, 0)))
        else:
            plain = cls.of(columns, row_id=named, kinds=kinds, categories=categories)
        if row_id is not None and named is None:
            if np.ndim(row_id) != 1:
                raise TableError(f"row_id: expected an id a row, got the shape {np.shape(row_id)}")
            ids = assembly.row_ids({"row_id": pd.Series(row_id), "rows": pd.Series()}, "row_id")
            plain = replace(plain, row_ids=ids)
        checked = series_columns.checked(series, len(plain), plain.schema)
        return replace(plain, series=checked)

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        *,
        most_bytes: int = readers.MOST_BYTES,
        **options: Unpack[TableOptions],
    ) -> Table:
        """A table from a file ending in .csv, .csv.gz, .parquet (.pq) or .npz.

        Files that unpack to more than ``most_bytes`` (one gigabyte) are refused.
        """
        suffix = readers.suffix_of(path)
        if suffix == ".npz":
            return cls.of(readers.npz_arrays(path, most_bytes), **options)
        if suffix == ".parquet":
            return cls.read_parquet(path, most_bytes=most_bytes, **options)
        return cls.read_csv(path, most_bytes=most_bytes, **options)

    @classmethod
    def read_csv(
        cls,
        path: str | PathLike[str],
        *,
        delimiter: str | None = None,
        names: Sequence[str] | None = None,
        encoding: str | None = None,
        missing: Sequence[str] = MISSING,
        most_bytes: int = readers.MOST_BYTES,
        **options: Unpack[TableOptions],
    ) -> Table:
        """A table from a csv file, possibly gzipped; ``names`` are for files without a header.

        Delimiter and encoding are detected by default.
        """
        frame = readers.csv_frame(
            path,
            delimiter=delimiter,
            names=names,
            encoding=encoding,
            missing=missing,
            most_bytes=most_bytes,
        )
        return cls.of(frame, **options)

    @classmethod
    def read_parquet(
        cls,
        path: str | PathLike[str],
        *,
        most_bytes: int = readers.MOST_BYTES,
        **options: Unpack[TableOptions],
    ) -> Table:
        return cls.of(readers.parquet_table(path, most_bytes), **options)

    def describe(self) -> pd.DataFrame:
        """How each column was read, one per line, and how to override it.

        >>> table = Table.of({"born": ["31/05/1964", "01/02/1971"], "dose": ["0,8", "1,25"]})
        >>> table.describe()[["column", "kind", "how"]]
          column  kind                   how
        0   born  date      dates, day first
        1   dose  real  with a decimal comma
        """
        known = {r.column: r for r in self.readings}
        rows = [
            (v.name, v.kind_in_words, known[v.name].how if v.name in known else "",
             decoding.summary(v, self.values[:, i]))
            for i, v in enumerate(self.schema)
        ]  # fmt: skip
        rows += [(r.column, r.became, r.how, "") for r in self.readings if r.left_out]
        frame = pd.DataFrame(rows, columns=["column", "kind", "how", "values"])
        frame["say otherwise by"] = [otherwise(kind) for kind in frame["kind"]]
        return frame

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def names(self) -> tuple[str, ...]:
        return self.schema.names

    def column(self, name: str) -> NDArray[np.generic]:
        """The user's values (rows,): missing reals are NaN, other missing values None."""
        return decoding.values_of(self.schema[name], self.values[:, self.schema.index(name)])

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame of the user's values, indexed by row ids, without series."""
        frame = self._frame()
        if self.row_ids is not None:
            frame.index = pd.Index(self.row_ids, name="row_id")
        return frame

    def like(self, data: object) -> object:
        """The user's values in the type of ``data``: a polars or pandas frame, a pyarrow table, an
        array, or a dict of columns. Row ids and series are left out.

        >>> Table.of({"age": [31, 47]}).like({})
        {'age': array([31, 47])}
        """
        return in_kind_of(self._frame(), data)

    def select(self, names: Iterable[str]) -> Table:
        """The columns, and the series, of these names."""
        names = [names] if isinstance(names, str) else list(names)
        series = {name: self.series[name] for name in names if name in self.series}
        names = [name for name in names if name not in series]
        picked = [self.schema.index(name) for name in names]
        values = self.values[:, picked]
        return replace(self, schema=self.schema.select(names), values=values, series=series)

    def rows(self, index: NDArray[np.bool_] | NDArray[np.integer] | Sequence[int] | slice) -> Table:
        """The rows of an index, a slice or a mask."""
        where = index if isinstance(index, slice) else _picked(index, len(self))
        ids = None if self.row_ids is None else self.row_ids[where]
        series = {name: array[where] for name, array in self.series.items()}
        return Table(self.schema, self.values[where], ids, series, self.readings)

    def batches(self, size: int) -> Iterator[Table]:
        """The rows in order, at most ``size`` at a time."""
        if size < 1:
            raise TableError(f"batches: expected a size of at least 1, got {size}")
        return (self.rows(slice(i, i + size)) for i in range(0, len(self), size))

    def _repr_html_(self) -> str:
        heads = ["column", "kind", "values"]
        rows = [
            (v.name, v.kind_in_words, decoding.summary(v, self.values[:, i]))
            for i, v in enumerate(self.schema)
        ]
        rows += [(n, "series", series_columns.described(a)) for n, a in self.series.items()]
        return notebook.shown(repr(self).split("\n")[0], heads, rows)

    def __repr__(self) -> str:
        shown = self.schema.variables[:_MOST_SHOWN]
        wide = max((len(v.name) for v in shown), default=0)
        lines = [f"Table: {len(self):,} rows × {len(self.schema):,} variables"]
        for i, v in enumerate(shown):
            lines.append(
                f"  {v.name:<{wide}}  {v.kind:<8}  {decoding.summary(v, self.values[:, i])}"
            )
        if len(self.schema) > len(shown):
            lines.append(f"  … and {len(self.schema) - len(shown):,} more")
        for name, array in list(self.series.items())[:_MOST_SHOWN]:
            lines.append(f"  {name}  series    {series_columns.described(array)}")
        return "\n".join(lines)

    def _frame(self) -> pd.DataFrame:
        return pd.DataFrame(
            {v.name: decoding.series_of(v, self.values[:, i]) for i, v in enumerate(self.schema)}
        )

    def _with_row_ids(self, name: str) -> Table:
        columns = columns_of(self._frame())
        others = (n for n in (*self.names, *self.series) if n != name)
        return replace(self.select(others), row_ids=assembly.row_ids(columns, name))


def _picked(index: Sequence[int] | NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """A validated index or mask of rows."""
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


def _check_options(schema: Schema | None, stated: bool, unseen: str) -> None:
    if schema is not None and stated:
        raise TableError("kinds=, units= and categories= are for data without schema=")
    if unseen not in ("pool", "error", "missing"):
        raise TableError(f'unseen: expected "pool", "error" or "missing", got {unseen!r}')


def _rule(data: object, decimal: Decimal, dates: DateOrder) -> ReadingRule:
    """How text is read: that of csv files by the habits of the file."""
    if not isinstance(data, TextFrame):
        return ReadingRule(True, decimal, dates)
    return ReadingRule(False, decimal, dates, data.habits.point, data.habits.order)


def _parts(
    data: object, names: Sequence[str] | None, row_id: str | None, schema: Schema | None
) -> tuple[Columns, NDArray[np.generic] | None, Mapping[str, Series]]:
    """Columns, row ids and series of data in any form."""
    if isinstance(data, Table):
        return columns_of(data._frame(), names, row_id), data.row_ids, data.series
    if isinstance(data, np.ndarray) and names is None and schema is not None:
        names = assembly.positional(data, schema)
    return columns_of(data, names, row_id), None, NO_SERIES

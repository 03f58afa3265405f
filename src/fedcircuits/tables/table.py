"""The typed table: what every learner and every query takes.

A ``Table`` holds a ``Schema`` and the values in the numbers of the circuit: a category or boolean
is its code, a count and a real are themselves, NaN is missing. It remembers the user's own values
through the categories of the schema and gives them back.

``Table.of`` takes what the user has (frames, arrow tables, arrays, dicts of columns), reads text as
what it spells and leaves out what cannot be learned from (reading.py; ``describe`` tells), and
infers the kinds by the rules at the head of inference.py; ``kinds``, ``categories`` and ``units``
override them per column. With ``schema``, that of a learned model, the columns are matched by name
in any order and read in that model's codes, so that the same category always has the same number.

    >>> table = Table.of({"age": [31, 47, None], "sex": ["f", "m", "f"]})
    >>> table
    Table: 3 rows × 2 variables
      age  count     31 … 47, 33.3 % missing
      sex  category  'f', 'm'
    >>> table.values[:, 1]
    array([0., 1., 0.])

A table may also hold series, an array (rows, steps, channels) by name (``Table.from_series``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fedcircuits.errors import TableError
from fedcircuits.tables import assembly, images, notebook, readers
from fedcircuits.tables import inference as decoding
from fedcircuits.tables import series as series_columns
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.dates import DateOrder
from fedcircuits.tables.frames import columns_of, in_kind_of
from fedcircuits.tables.gaps import MISSING
from fedcircuits.tables.inference import StatedKind, Unseen
from fedcircuits.tables.numerals import Decimal
from fedcircuits.tables.readers import TextFrame
from fedcircuits.tables.reading import (
    NO_HABITS,
    ColumnReading,
    ReadingHabits,
    ReadingRule,
    otherwise,
)
from fedcircuits.tables.schema import Scalar, Schema
from fedcircuits.tables.series import NO_SERIES, Series

if TYPE_CHECKING:
    import polars
    import pyarrow

_MOST_SHOWN = 12


class TableOptions(TypedDict, total=False):
    """What ``Table.of`` and the readers may be told about the columns."""

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
    """``Table.of(frame)``, ``Table.read("my.csv")``: columns with kinds, values in codes."""

    schema: Schema
    values: Floats  # (rows, variables)
    row_ids: NDArray[np.generic] | None = None  # (rows,)
    series: Mapping[str, Series] = field(default_factory=dict)  # (rows, steps, channels) by name
    readings: tuple[ColumnReading, ...] = ()  # what was made of the user's columns
    habits: ReadingHabits = NO_HABITS  # how their text writes numbers and dates

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        shape = self.values.shape
        if len(shape) != 2 or shape[1] != len(self.schema):
            raise TableError(
                f"expected values of the shape (rows, {len(self.schema)}), got {shape}"
            )
        if self.row_ids is not None and self.row_ids.shape != shape[:1]:
            raise TableError(f"expected {shape[0]} row ids, got the shape {self.row_ids.shape}")
        assembly.check_numbers(self.schema, self.values)
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

        An array of bytes is images, its pixels counts up to 255 (``tables.images``). Arguments::

            names       the columns of a plain array (else the schema's, else x0, x1, …)
            kinds       real, count, category, boolean, date or "date+weekday+month" by column
            row_id      the column that tells rows apart; it becomes row_ids, not a variable
            categories  the categories of a column, in order, also those absent from these data
            drop        columns to leave out
            decimal     "." or ",": what parts whole numbers from fractions in text
            dates       "dmy", "mdy" or "ymd": the order of day, month and year in text
            schema      read the data for this model; partial allows columns to be absent
            unseen      a category the schema does not know: "pool", with the rare ones if those
                        were pooled and else as missing, or "missing", both with a warning; "error"
        """
        if schema is not None and (kinds or units or categories):
            raise TableError("kinds=, units= and categories= are for data without schema=")
        if unseen not in ("pool", "error", "missing"):
            raise TableError(f'unseen: expected "pool", "error" or "missing", got {unseen!r}')
        if isinstance(data, np.ndarray) and data.dtype == np.uint8:
            data = images.in_rows(data)
            declared = kinds or units or categories or names or row_id or schema is not None
            if not declared and images.is_image(data):
                return cls(images.pixel_schema(data.shape[1]), data.astype(np.float64))
        if isinstance(data, Table):
            if schema == data.schema or (schema is None and not (kinds or units or categories)):
                return data if row_id is None else data._with_row_ids(row_id)
            kinds, units, categories = data._declared(kinds or {}, units or {}, categories or {})
        elif isinstance(data, np.ndarray) and names is None and schema is not None:
            names = assembly.positional(data, schema)
        given_table = data if isinstance(data, Table) else None
        columns = columns_of(data if given_table is None else given_table._frame(), names, row_id)
        assembly.leave_out(columns, drop)
        ids = None if given_table is None else given_table.row_ids
        if row_id is not None:
            ids = assembly.row_ids(columns, row_id)
        habits = data.habits if isinstance(data, TextFrame) else NO_HABITS
        typed = not isinstance(data, TextFrame)
        rule = ReadingRule(typed, decimal, dates, habits.point, habits.order)
        if schema is None:
            stated = (kinds or {}, units or {}, categories or {})
            inferred, values, readings, habits = assembly.inferred(columns, *stated, rule)
            return cls(inferred, values, ids, _series(given_table), readings, habits)
        found_values = assembly.matched(columns, schema, partial, unseen, rule)
        return cls(schema, found_values, ids, _series(given_table))

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, **options: Unpack[TableOptions]) -> Table:
        return cls.of(frame, **options)

    @classmethod
    def from_polars(
        cls, frame: polars.DataFrame | polars.LazyFrame, **options: Unpack[TableOptions]
    ) -> Table:
        return cls.of(frame, **options)

    @classmethod
    def from_arrow(cls, table: pyarrow.Table, **options: Unpack[TableOptions]) -> Table:
        return cls.of(table, **options)

    @classmethod
    def from_numpy(
        cls,
        array: NDArray[np.generic],
        names: Sequence[str] | None = None,
        **options: Unpack[TableOptions],
    ) -> Table:
        return cls.of(array, names=names, **options)

    @classmethod
    def from_series(
        cls,
        series: Mapping[str, ArrayLike],
        columns: object = None,
        row_id: ArrayLike | str | None = None,
        kinds: Mapping[str, StatedKind] | None = None,
        categories: Mapping[str, Sequence[Scalar]] | None = None,
    ) -> Table:
        """Series (rows, steps, channels) by name, NaN where one is shorter, beside columns.

        ``columns`` is whatever ``of`` takes; ``row_id`` the ids of rows, or a column with them.

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
        """A table of a file ending in .csv, .csv.gz, .parquet (.pq) or .npz.

        What unpacks to more than ``most_bytes`` (a gigabyte) is refused.
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
        """A table of a csv file, also gzipped; ``names`` are for a file without a header line.

        Delimiter and encoding are found out unless they are given.
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
        """What was made of each column, one per line, and how to say otherwise.

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
        """The user's own values (rows,): NaN where a real is missing, None where another is."""
        return decoding.values_of(self.schema[name], self.values[:, self.schema.index(name)])

    def to_pandas(self) -> pd.DataFrame:
        """The user's own values: categories as Categorical, row ids as the index; no series."""
        frame = self._frame()
        if self.row_ids is not None:
            frame.index = pd.Index(self.row_ids, name="row_id")
        return frame

    def like(self, data: object) -> object:
        """The user's own values in the kind of ``data``: a polars or pandas frame, a pyarrow table,
        an array, a dict of columns. Row ids and series are left out.

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
        where = index if isinstance(index, slice) else assembly.picked(index, len(self))
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

    def _declared(
        self,
        kinds: Mapping[str, StatedKind],
        units: Mapping[str, str],
        categories: Mapping[str, Sequence[Scalar]],
    ) -> tuple[dict[str, StatedKind], dict[str, str], dict[str, Sequence[Scalar]]]:
        """What the schema says of the columns, where the user does not say otherwise."""
        undeclared = [v for v in self.schema if v.name not in kinds and v.name not in categories]
        return (
            {v.name: v.kind for v in undeclared} | dict(kinds),
            {v.name: v.unit for v in self.schema if v.unit} | dict(units),
            {v.name: v.categories for v in undeclared if v.categories} | dict(categories),
        )


def _series(table: Table | None) -> Mapping[str, Series]:
    return NO_SERIES if table is None else table.series

"""Tables whose rows stay in a file until they are needed.

A ``StoredTable`` knows its columns and its number of rows. Its values are read on access, and stay
in memory only while they are referenced. It is sent to another process or machine as the path of
its file, so a party there reads its own rows, and a caller that trains with many parts of a large
file never holds it in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fedcircuits.errors import ExtraMissingError, TableError
from fedcircuits.tables.columns import Floats
from fedcircuits.tables.packed import existing
from fedcircuits.tables.rare import pool_rare
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

if TYPE_CHECKING:
    import pyarrow.parquet

PIECE = 65_536  # rows that are converted at once
_HELD: WeakValueDictionary[object, NDArray[np.generic]] = WeakValueDictionary()


class StoredTable(Table):
    """Rows of a file, read on access.

    ``groups`` are row groups of a parquet file, each with the number of rows before it; row ids are
    then row numbers. Without groups it is a whole file, as read by ``Table.read``, with categories
    of fewer than ``least`` rows pooled.
    """

    __slots__ = ("groups", "least", "path", "row_id", "rows_there")
    path: str
    rows_there: int
    groups: tuple[tuple[int, int], ...]
    row_id: str | None
    least: int

    def __init__(
        self,
        path: str,
        schema: Schema,
        rows: int,
        groups: Iterable[tuple[int, int]] = (),
        row_id: str | None = None,
        least: int = 1,
    ) -> None:
        facts = {"path": path, "schema": schema, "rows_there": rows, "row_id": row_id}
        facts |= {"groups": tuple((int(g), int(n)) for g, n in groups), "least": least}
        for name, value in {**facts, "series": {}, "readings": ()}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_file(cls, path: str, row_id: str | None = None, least: int = 1) -> StoredTable:
        """A whole file, read once for its schema."""
        table, _ = pool_rare(Table.read(path, row_id=row_id), least)
        return cls(path, table.schema, len(table), (), row_id, least)

    @property
    def values(self) -> Floats:
        key = (self.path, self.groups, self.schema.names, self.least)
        values = _HELD.get(key)
        if values is None:
            values = _HELD[key] = self._read() if self.groups else self.loaded().values
        return values  # type: ignore[return-value]

    @property
    def row_ids(self) -> NDArray[np.generic] | None:
        if self.groups:
            counts = self._counts()
            parts = [n + np.arange(c) for (_, n), c in zip(self.groups, counts, strict=True)]
            return np.concatenate(parts)
        return None if self.row_id is None else self.loaded().row_ids

    def loaded(self) -> Table:
        """The same rows in memory."""
        if self.groups:
            return Table(self.schema, self._read(), self.row_ids)
        table, _ = pool_rare(Table.read(self.path, row_id=self.row_id), self.least)
        if len(table) != self.rows_there or any(
            v.name not in table.schema or table.schema[v.name] != v for v in self.schema
        ):
            raise TableError(f"{self.path}: the file has changed since it was described")
        return table.select(self.schema.names)

    def select(self, names: Iterable[str]) -> Table:
        """The same rows with these columns; only these are read from the file."""
        schema = self.schema.select([names] if isinstance(names, str) else names)
        about = (self.rows_there, self.groups, self.row_id, self.least)
        return StoredTable(self.path, schema, *about)

    def __len__(self) -> int:
        return self.rows_there

    def __repr__(self) -> str:
        return f"{len(self):,} rows × {len(self.schema)} variables, in {self.path}"

    def __reduce__(self) -> tuple[type[StoredTable], tuple[object, ...]]:
        about = (self.rows_there, self.groups, self.row_id, self.least)
        return StoredTable, (self.path, self.schema, *about)

    # ------------------------------------------------------------------ row groups

    def _read(self) -> Floats:
        values = np.empty((self.rows_there, len(self.schema)))
        at = 0
        for part in self._parts():
            if at + len(part) > len(values):
                break
            values[at : at + len(part)] = part
            at += len(part)
        if at != len(values):
            raise TableError(f"{self.path}: the file has changed since it was described")
        return values

    def _parts(self) -> Iterator[Floats]:
        import pyarrow as pa

        numbers = [group for group, _ in self.groups]
        names = list(self.schema.names)
        for batch in self._file().iter_batches(PIECE, row_groups=numbers, columns=names):
            part = pa.Table.from_batches([batch])
            yield Table.of(part, schema=self.schema, unseen="error").values

    def _counts(self) -> list[int]:
        about = self._file().metadata
        return [about.row_group(group).num_rows for group, _ in self.groups]

    def _file(self) -> pyarrow.parquet.ParquetFile:
        try:
            import pyarrow.lib
            import pyarrow.parquet
        except ImportError:
            raise ExtraMissingError("parquet files need pyarrow: pip install pyarrow") from None
        file = existing(self.path)
        try:
            return pyarrow.parquet.ParquetFile(file)
        except (pyarrow.lib.ArrowException, OSError, ValueError) as error:
            raise TableError(f"{file}: not a readable parquet file ({error})") from None

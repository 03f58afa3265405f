"""Rows for learning, batch by batch: from memory, or from a file that does not fit into it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import TableError
from fedcircuits.tables.packed import existing
from fedcircuits.tables.reading import MOST_LEVELS
from fedcircuits.tables.schema import Kind, Scalar, Schema
from fedcircuits.tables.table import Table

Batch = tuple[Array, Array | None]  # rows (batch, variables), their weights
PIECE = 65_536  # rows of a file that are in memory at once
FIRST = 2 * MOST_LEVELS + 100  # rows of a piece, enough to distinguish identifiers from categories


class Source(Protocol):
    @property
    def weight(self) -> float:
        """The total weight of all rows."""

    def __len__(self) -> int: ...

    def batches(self, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
        """All rows once; in random order with rng, as far as the source can."""

    def some(self, rows: int, rng: np.random.Generator) -> Array:
        """Up to this many rows, drawn at random by their weights, for a start."""


def _writeable(values: Array) -> Array:
    """Torch shares the memory of arrays, and warns about read-only ones."""
    return np.require(values, np.float64, ["C", "W"])


def row_weights(given: npt.ArrayLike | None, rows: int) -> Array:
    """The user's ``sample_weight``, checked; 1 for every row if none was given."""
    weight = np.ones(rows) if given is None else np.asarray(given, dtype=np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise TableError(
            f"sample_weight must be {rows} finite numbers from 0, got an array of the shape "
            f"{weight.shape}"
        )
    return weight


class InMemory:
    """The rows of a table, weighted or not."""

    def __init__(self, values: Array, weight: Array | None = None) -> None:
        self.values = _writeable(values)
        self.weights = None if weight is None else _writeable(weight)

    @property
    def weight(self) -> float:
        return float(len(self.values) if self.weights is None else self.weights.sum())

    def __len__(self) -> int:
        return len(self.values)

    def batches(self, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
        order = None if rng is None else rng.permutation(len(self.values))
        for a in range(0, len(self.values), size):
            at = slice(a, a + size) if order is None else order[a : a + size]
            yield self.values[at], None if self.weights is None else self.weights[at]

    def some(self, rows: int, rng: np.random.Generator) -> Array:
        if self.weights is not None:
            return self.values[_by_weight(self.weights, min(rows, len(self.values)), rng)]
        if len(self.values) <= rows:
            return self.values
        return np.asarray(self.values[rng.choice(len(self.values), rows, replace=False)])

    def rows(self, at: npt.NDArray[np.int64]) -> InMemory:
        return InMemory(self.values[at], None if self.weights is None else self.weights[at])

    def mean(self, values: Array) -> float:
        """The weighted mean of one number per row."""
        return float(np.average(values, weights=self.weights))


def _by_weight(weights: Array, rows: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Rows drawn by weight, one from each of equally heavy stretches of the table: equal weights
    give every row once."""
    edges = np.cumsum(weights)
    within = 0.5 if rows == len(weights) else rng.random(rows)
    points = (np.arange(rows) + within) / rows * edges[-1]
    points = np.minimum(points, np.nextafter(edges[-1], 0))
    return np.asarray(np.searchsorted(edges, points, side="right"))


class ParquetRows:
    """A parquet file read piece by piece: of its rows never more than 65,536 are in memory.

    Kinds and categories are those that ``Table.read`` finds in the whole file, which is read once
    for them unless ``schema`` is given; ``kinds``, ``categories`` and ``row_id`` are as in
    ``Table.of``. ``MixtureOfProducts``, ``EinsumNetwork`` and ``HiddenChowLiuTree`` learn from it
    as it is, other learners read it whole: ``model.fit(fc.ParquetRows("large.parquet"))``.
    """

    piece: ClassVar[int] = PIECE
    first: ClassVar[int] = FIRST

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema | None = None,
        *,
        kinds: Mapping[str, Kind] | None = None,
        categories: Mapping[str, Sequence[Scalar]] | None = None,
        row_id: str | None = None,
    ) -> None:
        self.path = os.fspath(path)
        file = existing(path)
        try:
            self.file = pq.ParquetFile(file)
        except Exception as error:
            raise TableError(f"cannot read {self.path} as parquet: {error}") from None
        if self.file.metadata.num_rows == 0:
            raise TableError(f"expected a table with rows: {self.path} has none")
        self.schema = schema or self._inferred(kinds or {}, categories or {}, row_id)

    @classmethod
    def of(cls, given: ParquetRows | str | os.PathLike[str]) -> ParquetRows:
        """From a path; ``ParquetRows`` unchanged."""
        return given if isinstance(given, ParquetRows) else cls(given)

    @property
    def weight(self) -> float:
        return float(len(self))

    def __len__(self) -> int:
        return int(self.file.metadata.num_rows)

    def batches(self, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
        """Row groups in random order, and rows within a piece of one, with rng."""
        for values in self._pieces(rng):
            order = np.arange(len(values)) if rng is None else rng.permutation(len(values))
            for a in range(0, len(values), size):
                yield values[order[a : a + size]], None

    def some(self, rows: int, rng: np.random.Generator) -> Array:
        share = rows / len(self)
        every = self._pieces(None)
        parts = [v if share >= 1 else v[rng.random(len(v)) < share] for v in every]
        drawn = np.concatenate(parts) if parts else np.empty((0, len(self.schema)))
        if not len(drawn):
            raise TableError(f"{self.path}: all values are missing, there is nothing to learn from")
        return drawn

    def _pieces(self, rng: np.random.Generator | None) -> Iterator[Array]:
        """The rows that have a value, in the codes of the schema."""
        groups = np.arange(self.file.num_row_groups)
        for group in groups if rng is None else rng.permutation(groups):
            for part in self._parts(int(group), list(self.schema.names)):
                values = Table.of(part, schema=self.schema).values
                kept = np.isfinite(values).any(axis=1)
                if kept.any():
                    yield values if kept.all() else values[kept]

    def _parts(self, group: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
        pieces = self.file.iter_batches(self.piece, row_groups=[group], columns=columns)
        return (pa.Table.from_batches([part]) for part in pieces)

    def _inferred(
        self,
        kinds: Mapping[str, Kind],
        categories: Mapping[str, Sequence[Scalar]],
        row_id: str | None,
    ) -> Schema:
        """From these rows, which determine the columns as all rows would."""
        known = {*kinds, *categories}
        parts = (p for g in range(self.file.num_row_groups) for p in self._parts(g))
        sample = pa.concat_tables(
            [part.take(_informative_rows(part, known, self.first)) for part in parts]
        )
        columns = [name for name in sample.column_names if name != row_id]
        return Table.of(sample.select(columns), kinds=kinds, categories=categories).schema


def _informative_rows(part: pa.Table, known: set[str], first: int) -> npt.NDArray[np.int64]:
    """Rows with the extremes, gaps, fractions and texts of every column, and the first few."""
    rows = [np.arange(min(len(part), first))]
    for name, column in zip(part.column_names, part.columns, strict=True):
        rows.append(np.flatnonzero(column.is_null().to_numpy())[:1])
        rows.append(np.flatnonzero(column.is_valid().to_numpy())[:1])
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            numbers = column.to_numpy().astype(np.float64)
            rows.append(_extremes(numbers))
            rows.append(np.flatnonzero(numbers % 1 > 0)[:1])
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            codes = column.combine_chunks().dictionary_encode().indices.to_numpy(False)
            new = np.sort(np.unique(codes, return_index=True)[1])
            rows.append(new if name in known else new[: MOST_LEVELS + 2])
    return np.unique(np.concatenate(rows)).astype(np.int64)


def _extremes(numbers: Array) -> npt.NDArray[np.int64]:
    if np.isnan(numbers).all():
        return np.zeros(0, dtype=np.int64)
    return np.array([np.nanargmin(numbers), np.nanargmax(numbers)])

"""Rows for learning, batch by batch: from memory, or from a file that does not fit into it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow.parquet as pq

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Schema
from fedcircuits.errors import TableError
from fedcircuits.learning.table import Table

Batch = tuple[Array, Array | None]  # rows (batch, variables), their weights


class Source(Protocol):
    @property
    def weight(self) -> float:
        """Of all rows together."""

    def __len__(self) -> int: ...

    def batches(self, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
        """All rows once; in random order with rng, as far as the source can."""

    def some(self, rows: int, rng: np.random.Generator) -> Array:
        """Up to this many rows, drawn at random, for a start."""


class InMemory:
    """The rows of a table, weighted or not."""

    def __init__(self, values: Array, weight: Array | None = None) -> None:
        self.values = np.ascontiguousarray(values, dtype=np.float64)
        self.weights = None if weight is None else np.asarray(weight, dtype=np.float64)

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
        if len(self.values) <= rows:
            return self.values
        return np.asarray(self.values[rng.choice(len(self.values), rows, replace=False)])


class ParquetRows:
    """A parquet file read by row groups: never more than one of them in memory.

    Kinds and categories come from ``schema``, or from the first row group; a category that only a
    later group has is an error that names it. ``MixtureOfProducts``, ``EinsumNetwork`` and
    ``HiddenChowLiuTree`` learn from it: ``model.fit(fc.ParquetRows("large.parquet"))``.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema | None = None) -> None:
        self.path = os.fspath(path)
        try:
            self.file = pq.ParquetFile(self.path)
        except Exception as error:
            raise TableError(f"cannot read {self.path} as parquet: {error}") from None
        if self.file.metadata.num_rows == 0:
            raise TableError(f"{self.path} has no rows")
        self.schema = schema or Table.from_arrow(self.file.read_row_group(0)).schema

    @property
    def weight(self) -> float:
        return float(len(self))

    def __len__(self) -> int:
        return int(self.file.metadata.num_rows)

    def batches(self, size: int, rng: np.random.Generator | None) -> Iterator[Batch]:
        groups = np.arange(self.file.num_row_groups)
        for group in groups if rng is None else rng.permutation(groups):
            values = self._group(int(group))
            order = np.arange(len(values)) if rng is None else rng.permutation(len(values))
            for a in range(0, len(values), size):
                yield values[order[a : a + size]], None

    def _group(self, number: int) -> Array:
        found = self.file.read_row_group(number, columns=list(self.schema.names))
        return Table.from_arrow(found, schema=self.schema).values

    def some(self, rows: int, rng: np.random.Generator) -> Array:
        share = min(1.0, rows / len(self))
        parts = []
        for group in range(self.file.num_row_groups):
            values = self._group(group)
            parts.append(values[rng.random(len(values)) < share])
        return np.concatenate(parts)

"""One party's columns as points, for k-means: numbers, and the indicators of categories.

Numbers are in the units of the data about their mean, or standardised; either way distances are
squared and add up over columns, and so over parties. Two different categories are 1 apart. A
missing value adds nothing to a distance and nothing to a centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.methods.vertical.gaussian_block import CHUNK, column_scales
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """How rows of a table become points; a feature is a number, or one category of several."""

    schema: Schema
    shift: Array  # (features,)
    scale: Array  # (features,)

    @classmethod
    def of(cls, table: Table, weight: Array, standardise: bool) -> Space:
        shift, scale = column_scales(_features(table.schema, table.values), weight)
        hot = np.array([size > 2 for size in _sizes(table.schema)])
        return cls(table.schema, shift, np.where(hot | (not standardise), 1.0, scale))

    @property
    def names(self) -> tuple[str, ...]:
        """Of features: the column of a number, or "column=category"."""
        return tuple(
            name
            for v in self.schema
            for name in ([f"{v.name}={c}" for c in v.categories] if v.size > 2 else [v.name])
        )

    def points(self, values: Array) -> Points:
        """Rows (rows, columns) as points."""
        z = ((_features(self.schema, values) - self.shift) / self.scale).T
        gaps = np.isnan(z)
        seen = (~gaps).astype(np.float64) if gaps.any() else None
        return Points(np.ascontiguousarray(np.nan_to_num(z)), seen)

    def outside(self, centres: Array) -> Array:
        """Centres in the units of the data; of categories their shares."""
        hot = np.array([size > 2 for size in _sizes(self.schema)])
        found = centres * self.scale + self.shift
        return np.where(hot, found * np.sqrt(2), found)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Rows as points; centres are (centres, features)."""

    x: Array  # (features, rows), 0 where missing
    seen: Array | None  # (features, rows), 1 or 0; None if nothing is missing

    def at(self, row: int | None) -> Array:
        """(features,) of a row; the middle of all rows for one that is not here."""
        return np.zeros(len(self.x)) if row is None else self.x[:, row].copy()

    def distances(self, centres: Array, rows: slice) -> Array:
        """(centres, rows), squared."""
        x = self.x[:, rows]
        out = np.empty((len(centres), x.shape[1]))
        for a in range(0, x.shape[1], CHUNK):
            for k, centre in enumerate(centres):
                d = x[:, a : a + CHUNK] - centre[:, None]
                if self.seen is not None:
                    d *= self.seen[:, rows][:, a : a + CHUNK]
                out[k, a : a + CHUNK] = np.einsum("ij,ij->j", d, d)
        return out

    def centres(self, weight: Array, before: Array) -> Array:
        """Means of rows weighed by (centres, rows); without any the centre stays."""
        sums = weight @ self.x.T
        if self.seen is None:
            count = np.repeat(weight.sum(axis=1)[:, None], len(self.x), axis=1)
        else:
            count = weight @ self.seen.T
        return np.where(count > 0, sums / np.where(count > 0, count, 1.0), before)


def _sizes(schema: Schema) -> list[int]:
    """Of every feature: the number of categories of its column."""
    return [v.size for v in schema for _ in range(v.size if v.size > 2 else 1)]


def _features(schema: Schema, values: Array) -> Array:
    """(rows, features); NaN is missing."""
    found: list[Array] = []
    for x, variable in zip(values.T, schema, strict=True):
        if variable.size > 2:
            codes = np.arange(variable.size)[:, None]
            found.extend(np.where(np.isnan(x), np.nan, x == codes) / np.sqrt(2))
        else:
            found.append(x)
    return np.stack(found, axis=1)

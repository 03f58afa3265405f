"""A party's columns as points: numbers in the units of the data about their mean, or standardised,
and indicators of categories, scaled so that two different categories are 1 apart.

Distances are squared and add up over columns, and so over parties. A missing value adds nothing to
a distance and nothing to a centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.methods.vertical.gaussian import CHUNK, column_scales
from fedcircuits.tables.features import FeatureLayout
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class PointSpace:
    """How rows of a table become points; a feature is a number, or one category of several."""

    schema: Schema
    shift: Array  # (features,)
    scale: Array  # (features,)

    @classmethod
    def of(cls, table: Table, weight: Array, standardise: bool) -> PointSpace:
        shift, scale = column_scales(_features(table.schema, table.values), weight)
        plain = _indicators(table.schema) | (not standardise)
        return cls(table.schema, shift, np.where(plain, 1.0, scale))

    @property
    def names(self) -> tuple[str, ...]:
        return feature_names(self.schema)

    def points(self, values: Array) -> PointSet:
        """Rows (rows, columns) as points."""
        z = ((_features(self.schema, values) - self.shift) / self.scale).T
        gaps = np.isnan(z)
        seen = (~gaps).astype(np.float64) if gaps.any() else None
        return PointSet(np.ascontiguousarray(np.nan_to_num(z)), seen)

    def in_user_units(self, centres: Array) -> Array:
        """Centres in the units of the data; for categories their shares."""
        values = centres * self.scale + self.shift
        return np.where(_indicators(self.schema), values * np.sqrt(2), values)


@dataclass(frozen=True, slots=True, eq=False)
class PointSet:
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
        """Means of rows weighted by (centres, rows); a centre without any stays."""
        sums = weight @ self.x.T
        if self.seen is None:
            count = np.repeat(weight.sum(axis=1)[:, None], len(self.x), axis=1)
        else:
            count = weight @ self.seen.T
        return np.where(count > 0, sums / np.where(count > 0, count, 1.0), before)


@dataclass(frozen=True, slots=True, eq=False)
class PartyCentres:
    """What a party has learned: the centres in its columns."""

    space: PointSpace
    centres: Array  # (clusters, features)

    @property
    def schema(self) -> Schema:
        return self.space.schema

    @property
    def components(self) -> int:
        return len(self.centres)

    def terms(self, values: Array) -> Array:
        """(clusters, rows): negative squared distances of rows (rows, columns)."""
        return -self.space.points(values).distances(self.centres, slice(0, len(values)))


def feature_names(schema: Schema) -> tuple[str, ...]:
    """Of the features of columns: that of a number, or "column=category"."""
    return FeatureLayout.of(schema).names(schema)


def _indicators(schema: Schema) -> npt.NDArray[np.bool_]:
    """(features,): whether a feature is one category of several."""
    return np.asarray(FeatureLayout.of(schema).codes >= 0)


def _features(schema: Schema, values: Array) -> Array:
    """(rows, features), indicators scaled so that two categories are 1 apart; NaN is missing."""
    features = FeatureLayout.of(schema).values(values)
    features[:, _indicators(schema)] /= np.sqrt(2)
    return features

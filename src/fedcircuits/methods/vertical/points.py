"""A party's columns as points, and k-means over the points of all parties.

Numbers are in the units of the data about their mean, or standardised; categories are indicators,
scaled so that two different categories have distance 1. Squared distances add up over columns, and
therefore over parties: the clusters are those of all columns together. A missing value adds nothing
to a distance and nothing to a centre. A centre is a row or the mean of rows, so each party knows
its own columns of it and nobody knows more.

k-means++ (Arthur and Vassilvitskii, 2007) draws rows as centres, each next one with a probability
proportional to its squared distance from the nearest centre so far. Lloyd's algorithm then moves
every centre to the mean of its rows. For K clusters and R rows:

    seed/rows      party → sum: squared distances of all rows from the row drawn last (R). Result:
                   rows that are equally far, from which the first party draws the next one
                   (rows.py)
    means/rows     party → sum: how much nearer a row is to the last centre than to each other one,
                   and the sum of distances from the last: (K − 1) × R + 1 numbers. Result: the
                   nearest centre of every row, and the sum of all distances
    means/agreed   leader → members: that sum, how many rows changed their cluster, and a centre
                   without rows or −1 (3 numbers)
    means/worst    only if a centre has lost all rows: distances from all centres (K × R); the
                   centre moves to the row that is farthest from all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow, compute, tell
from fedcircuits.federation.sums.collectives import FINITE, Span, expected
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.learning.features import FeatureLayout
from fedcircuits.learning.spn.clustering import draw_row
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical.gaussian import CHUNK, column_scales
from fedcircuits.methods.vertical.rows import (
    ALIKE,
    RowSums,
    Terms,
)
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

KEPT = 5  # rounds between two states that are kept for a run that fails
FROM_ROW = "per row, the squared distance to one row, in its columns"
NEARER = "per row, the squared distance to each centre relative to the last centre, in its columns"
FROM_CENTRES = "per row, the squared distance to every centre, in its columns"


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
    """Names of features: the column of a number, or "column=category"."""
    return FeatureLayout.of(schema).names(schema)


def _indicators(schema: Schema) -> npt.NDArray[np.bool_]:
    """(features,): whether a feature is one category of several."""
    return np.asarray(FeatureLayout.of(schema).codes >= 0)


def _features(schema: Schema, values: Array) -> Array:
    """(rows, features), indicators scaled so that two categories are 1 apart; NaN is missing."""
    features = FeatureLayout.of(schema).values(values)
    features[:, _indicators(schema)] /= np.sqrt(2)
    return features


# ---------------------------------------------------------------------- k-means


@dataclass(frozen=True, slots=True)
class KMeansPlan:
    """Settings that are the same at all members of a run."""

    clusters: int
    max_iter: int = 300
    tol: float = 0.0  # share of its value that the sum of distances must fall by to go on
    n_init: int = 1
    standardise: bool = False
    hubs: tuple[Neighbourhood, ...] = ()
    seed: int = 0
    rows: RowRule = "tokens"  # how they are matched


@dataclass(frozen=True, slots=True, eq=False)
class MeansProgress:
    """A member's state in a run, from which a failed run continues."""

    centres: Array  # (clusters, features) of the member
    labels: Labels  # (rows,) in the common order, that of the run's own key
    inertia: float
    run: int = 0
    round: int = 0
    best: LloydResult | None = None  # of the runs before
    plan: KMeansPlan | None = None

    def fitting(self, rows: int) -> MeansProgress:
        """The same for this many rows: clusters of different rows are unknown."""
        alike = len(self.labels) == rows
        return self if alike else replace(self, labels=np.full(rows, -1, np.int64))


def seeded(sums: RowSums, points: PointSet, name: str, rng: np.random.Generator) -> Flow[list[int]]:
    """Starting rows of the common order, also for EM; ``rng`` is the same at all members."""
    (child_rng,) = rng.spawn(1)  # of the first party
    seeds = yield from sums.drawn(f"seed/rows/{name}/0", None, 1, child_rng)
    draw = _NextSeed(sums.rows.weight, rng)
    for i in range(1, sums.components):
        value, at = np.zeros(sums.rows.total), sums.position(seeds[-1])
        if at is not None:
            every = slice(0, points.x.shape[1])
            value[sums.rows.at] = points.distances(points.at(at)[None], every)[0]
        seeds.append(
            (yield from sums.chosen(f"seed/rows/{name}/{i}", value, FROM_ROW, draw, child_rng))
        )
    return seeds


class _NextSeed:
    """Rows from which the next seed of k-means++ is drawn, all equally far from the nearest so far;
    the member that adds up remembers these distances."""

    def __init__(self, weight: Array, rng: np.random.Generator) -> None:
        self.weight, self.rng = weight, rng
        self.nearest = np.full(len(weight), np.inf)

    def __call__(self, total: Array) -> Labels:
        self.nearest = np.minimum(self.nearest, np.maximum(total, 0.0))
        chance = self.weight * self.nearest
        if chance.sum() == 0:
            return np.flatnonzero(self.weight > 0)
        far = np.rint(self.nearest / (self.nearest.max() * ALIKE))
        distances, which = np.unique(far, return_inverse=True)
        shares = np.zeros(len(distances))
        np.add.at(shares, which, chance)
        at = draw_row(shares, self.rng)
        return np.flatnonzero((which == at) & (self.weight > 0))


@dataclass(frozen=True, slots=True, eq=False)
class LloydResult:
    labels: Labels  # (rows,) in the common order
    centres: Array  # (clusters, features) of the member
    inertia: float
    rounds: int


def begun(sums: RowSums, points: PointSet, seeds: Sequence[int]) -> MeansProgress:
    """Centres at rows of the common order."""
    centres = np.stack([points.at(sums.position(row)) for row in seeds])
    return MeansProgress(centres, np.full(sums.rows.total, -1, np.int64), np.inf)


def lloyd(
    sums: RowSums, points: PointSet, start: MeansProgress, name: str, max_iter: int, tol: float
) -> Flow[LloydResult]:
    """Lloyd's algorithm until no row changes, the sum improves too little, or rounds end."""
    centres, labels, before = start.centres, start.labels, start.inertia
    number, total, weight = sums.components, sums.rows.total, sums.rows.weight
    inertias, which = Span(1, -FINITE, FINITE), Span(1, -1, number - 1, whole=True)
    check = expected((total + 1,), Span(total, 0, number - 1, whole=True), inertias)
    agreed = expected((3,), inertias, Span(1, 0, total, whole=True), which)
    then = partial(_nearest, weight)
    for t in range(start.round, max_iter):
        tag, terms = f"means/rows/{name}/{t}", _nearness(points, centres)
        result = yield from sums.compared(tag, terms, sums.everything, NEARER, then, check)
        new = result[:-1].astype(np.int64)
        sizes = np.bincount(new, minlength=number)
        lacks = total >= number and not sizes.all()
        value = [result[-1], (new != labels).sum(), sizes.argmin() if lacks else -1]
        inertia, changed, empty = yield from sums.collective.agree(
            f"means/agreed/{name}/{t}", np.array(value), "sum of distances", agreed
        )
        labels = new
        membership = (labels[sums.rows.at] == np.arange(number)[:, None]) * weight[sums.rows.at]
        centres = points.centres(membership, centres)
        if empty >= 0:
            even, terms = np.zeros(sums.components), _nearness(points, centres)
            row = yield from sums.worst(f"means/worst/{name}/{t}", terms, even, FROM_CENTRES)
            centres[int(empty)] = points.at(sums.position(row))
        elif changed == 0 or (np.isfinite(before) and before - inertia < tol * before):
            break
        before = float(inertia)
        yield from tell("means", t + 1, max_iter)
        if start.plan is not None and (t + 1) % KEPT == 0 and t + 1 < max_iter:
            at = replace(start, centres=centres, labels=labels, inertia=before, round=t + 1)
            yield from compute(f"round {t + 1} of run {start.run}", partial(replace, at))
    return LloydResult(labels, centres, float(inertia), t + 1)


def _nearest(weight: Array, total: Array) -> Array:
    """The nearest centre of every row, and the sum of distances."""
    differences = total[:-1].reshape(-1, len(weight))
    every = np.vstack([differences, np.zeros(len(weight))])
    inertia = -(total[-1] + weight @ every.max(axis=0))
    return np.append(every.argmax(axis=0).astype(np.float64), inertia)


def _nearness(points: PointSet, centres: Array) -> Terms:
    return lambda rows: -points.distances(centres, rows)

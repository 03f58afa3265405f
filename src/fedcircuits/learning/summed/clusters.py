"""k-means and clusters of rows from sums over parties, and rows drawn from what was summed.

The features of a row are the normal scores of its numbers (sketches.py) and an indicator for each
of its categories; a missing value is 0 in all of them. No row is used as a centre: the first
centres are drawn from the normal distribution with the mean and covariance of all rows, and Lloyd's
algorithm uses sums only. Rows with different values of ``classes`` are never in one cluster.

Rows drawn from the clusters, each column independently, stand for all rows at the start of EM: a
start from them equals one from rows with the same clusters (learning/starts.py).

``clustered_by_pairs`` is for the case that only counts of pairs of values are known: rows are drawn
from the Chow–Liu tree of these counts and clustered. No party's rows are read, so noisy counts keep
their guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.learning.chow_liu.trees import chow_liu_circuit
from fedcircuits.learning.features import FeatureLayout
from fedcircuits.learning.independence import Index, mutual_information
from fedcircuits.learning.least_counts import RareValues
from fedcircuits.learning.summed.sketches import Codes, Sketch
from fedcircuits.tables.schema import Schema

APART = 1e3  # what classes are multiplied by, so that clusters are within them
WIDE = 512  # features; of more no covariance is summed
ROUNDS = 10  # of Lloyd's rule
STILL = 1e-3  # how far centres move at least
DRAWN = 50  # rows for each cluster
FEWEST, MOST = 2_000, 20_000  # rows drawn in all
SMOOTHING = 1.0  # rows of every pair of values


@dataclass(frozen=True, slots=True, eq=False)
class ClusteredRows:
    """Rows drawn from clusters, and what else was summed."""

    values: Array  # (rows, columns)
    labels: Codes  # (rows,) clusters
    information: Array  # (columns, columns) nats that columns say about each other
    sketch: Sketch
    rows: int  # that were summed
    rare: tuple[RareValues, ...] = ()  # values that were replaced in all rows
    evidence: Array | None = None  # (columns, columns) p-values that they are independent


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """What EM begins with: a circuit, its parameters, and bounds of its leaves."""

    circuit: Circuit
    start: Parameters
    rules: Rules | None = None
    scale: float | None = None  # that all variables share, if they do


@dataclass(frozen=True, slots=True, eq=False)
class SummedFeatures:
    """Rows as k-means sees them."""

    sketch: Sketch
    layout: FeatureLayout
    weight: Array  # (features,)

    @classmethod
    def of(cls, sketch: Sketch, classes: int | None) -> SummedFeatures:
        layout = FeatureLayout.of(sketch.schema, lambda v: v.size > 0)
        weight = np.where(layout.columns == classes, APART, 1.0)
        return cls(sketch, layout, weight)

    def seen(self, values: Array) -> Array:
        """(rows, features), NaN where a value is missing."""
        scored = values.copy()
        for i, variable in enumerate(self.sketch.schema):
            if not variable.size:
                missing = np.isnan(values[:, i])
                scored[:, i] = np.where(missing, np.nan, self.sketch.scores(i, values[:, i]))
        return self.layout.values(scored)

    def __call__(self, values: Array) -> Array:
        return np.nan_to_num(self.seen(values)) * self.weight

    def moments(self, values: Array) -> Array:
        """Rows, sums of features, and of their products or squares, end to end."""
        x = self(values)
        second = x.T @ x if len(self.layout) <= WIDE else np.square(x).sum(axis=0)
        return np.concatenate([[float(len(x))], x.sum(axis=0), second.reshape(-1)])

    def weighted(self, moments: Array) -> Array:
        """Moments of features without weights, as those of the features with them."""
        d, w = len(self.layout), self.weight
        square = np.outer(w, w).reshape(-1) if d <= WIDE else np.square(w)
        return np.asarray(moments * np.concatenate([[1.0], w, square]))

    def drawn_centres(self, moments: Array, clusters: int, rng: np.random.Generator) -> Array:
        d = len(self.layout)
        total, first, second = max(moments[0], 1.0), moments[1 : 1 + d], moments[1 + d :]
        mean = first / total
        if d <= WIDE:
            covariance = second.reshape(d, d) / total - np.outer(mean, mean)
            values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
            spread = vectors * np.sqrt(np.maximum(values, 0.0))
            return np.asarray(mean + rng.normal(size=(clusters, d)) @ spread.T)
        deviation = np.sqrt(np.maximum(second / total - mean**2, 0.0))
        return np.asarray(mean + rng.normal(size=(clusters, d)) * deviation)


@dataclass(frozen=True, slots=True, eq=False)
class SummedCentres:
    features: SummedFeatures
    points: Array  # (clusters, features)

    @classmethod
    def drawn(
        cls,
        features: SummedFeatures,
        moments: Array,
        clusters: int,
        classes: int | None,
        rng: np.random.Generator,
    ) -> SummedCentres:
        """So many for each of the classes, if there are any."""
        if classes is None:
            return cls(features, features.drawn_centres(moments, clusters, rng))
        number = features.sketch.schema.variables[classes].size
        points = features.drawn_centres(moments, clusters * number, rng)
        class_columns = features.layout.columns == classes
        points[:, class_columns] = APART * np.repeat(np.eye(number), clusters, axis=0)
        return cls(features, points)

    def nearest(self, values: Array) -> Codes:
        return self._nearest(self.features(values))

    def _nearest(self, x: Array) -> Codes:
        distance = np.square(self.points).sum(axis=1) - 2 * x @ self.points.T
        return np.asarray(distance.argmin(axis=1))

    def sums(self, values: Array) -> Array:
        """Rows and sums of features of every cluster (clusters · (1 + features),)."""
        x = self.features(values)
        member = self._members(x)
        return np.hstack([member.sum(axis=1, keepdims=True), member @ x]).reshape(-1)

    def moved(self, sums: Array) -> tuple[SummedCentres, bool]:
        """Centres in the middle of their rows, and whether any has moved; those without rows stay
        where they are."""
        rows = sums[:, :1]
        points = np.where(rows > 0.5, sums[:, 1:] / np.maximum(rows, 1.0), self.points)
        moves = float(np.abs(points - self.points).max()) > STILL
        return SummedCentres(self.features, points), moves

    def spread(self, values: Array) -> Array:
        """Rows of every cluster, then for every feature the rows that have it, their sum and sum of
        squares (clusters · (1 + 3 · features),)."""
        member, x = self._members(self.features(values)), self.features.seen(values)
        known, x = (~np.isnan(x)).astype(np.float64), np.nan_to_num(x)
        parts = [member @ known, member @ x, member @ np.square(x)]
        return np.hstack([member.sum(axis=1, keepdims=True), *parts]).reshape(-1)

    def _members(self, x: Array) -> Array:
        label = self._nearest(x)
        return np.asarray(label == np.arange(len(self.points))[:, None], np.float64)


def drawn_rows(
    features: SummedFeatures, spread: Array, rng: np.random.Generator
) -> tuple[Array, Codes]:
    """Rows of the clusters by their sizes, with at least a few of each, every column on its own."""
    sketch, d = features.sketch, len(features.layout)
    rows, seen = np.maximum(spread[:, 0], 0.0), np.maximum(spread[:, 1 : 1 + d], 0.0)
    first, second = spread[:, 1 + d : 1 + 2 * d], spread[:, 1 + 2 * d :]
    share = rows / max(rows.sum(), 1.0)
    wanted = int(np.clip(DRAWN * len(rows), FEWEST, MOST))
    labels = np.repeat(np.arange(len(rows)), np.maximum(np.rint(wanted * share), 2).astype(int))
    values = np.empty((len(labels), len(sketch.schema)))
    mean = (first + first.sum(axis=0) / np.maximum(seen.sum(axis=0), 1.0)) / (seen + 1.0)
    square = (second + second.sum(axis=0) / np.maximum(seen.sum(axis=0), 1.0)) / (seen + 1.0)
    deviation = np.sqrt(np.maximum(square - mean**2, 1e-6))
    for i, variable in enumerate(sketch.schema):
        at = slice(features.layout.starts[i], features.layout.starts[i + 1])
        if not variable.size:
            scores = mean[labels, at] + deviation[labels, at] * rng.normal(size=(len(labels), 1))
            values[:, i] = sketch.numbers(i, scores[:, 0])
            continue
        chance = np.maximum(mean[:, at], 1e-9)
        edges = np.cumsum(chance / chance.sum(axis=1, keepdims=True), axis=1)[labels]
        above = rng.random((len(labels), 1)) > edges[:, :-1]
        values[:, i] = above.sum(axis=1)
    return values, labels


# ---------------------------------------------------------------------- from counts of pairs


def clustered_by_pairs(
    tables: Array,
    starts: Index,
    schema: Schema,
    clusters: int,
    classes: int | None,
    rng: np.random.Generator,
) -> ClusteredRows:
    """Clusters (of each class, if given) of rows drawn from the tree of these counts."""
    counts = np.diagonal(tables)
    sketch = Sketch.first(schema).with_counts(counts)
    values = _drawn(tables, starts, schema, clusters, rng)
    features = SummedFeatures.of(sketch, classes)
    centres = SummedCentres.drawn(features, features.moments(values), clusters, classes, rng)
    moves, t = True, 0
    while moves and t < ROUNDS:
        sums = centres.sums(values).reshape(len(centres.points), -1)
        centres, moves = centres.moved(sums)
        t += 1
    rows = int(np.median([c.sum() for c in sketch.counts]))
    information = mutual_information(tables, starts)
    return ClusteredRows(values, centres.nearest(values), information, sketch, rows)


def _drawn(
    tables: Array, starts: Index, schema: Schema, clusters: int, rng: np.random.Generator
) -> Array:
    circuit, parameters = chow_liu_circuit(schema, tables, starts, SMOOTHING)
    program = CircuitProgram(circuit)
    wanted = int(np.clip(DRAWN * clusters, FEWEST, MOST))
    nothing = torch.full((wanted, len(schema)), torch.nan, dtype=torch.float64)
    return program.complete(nothing, program.pack(parameters), rng)[0]

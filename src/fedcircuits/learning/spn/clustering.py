"""Clusters of rows: what a sum mixes.

Features of a row are its standardised numbers and the indicators of its categories; a missing
value lies at the mean. k-means by Lloyd's rule, then EM for a mixture of products (Gaussian for
numbers, a table for categories): clusters that a product of leaves describes well. With z the
features and the squares of numbers, a component's log density is linear in z, so that either step
of EM is one matrix product. Centres are learned on at most ``MOST_ROWS`` rows, all rows are
assigned. Weights count as repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.features import FeatureLayout, features_of
from fedcircuits.learning.independence import Flags, Floats, Index, gathered
from fedcircuits.tables.schema import Schema

SEED_ROUNDS = 4  # of k-means: it only has to begin EM well
ROUNDS = 30
MOST_ROWS = 10_000
NARROWEST = 0.05  # variance of a standardised number in a cluster
SETTLED = 3e-4  # of all rows: EM ends when no cluster changes its size by more
FARTHEST = 5.0  # deviations that a number may lie out

NUMBER, INDICATOR, SHARE = 0, 1, 2  # a standardised number, a 0/1 column, one of several categories


@dataclass(frozen=True, slots=True)
class Features:
    matrix: Floats  # (rows, features)
    kinds: Index  # (features,)
    starts: Index  # of every column's features
    binary: bool = False  # every column is 0/1, nothing is missing

    @classmethod
    def of(cls, values: Array, schema: Schema) -> Features:
        if all(v.size == 2 for v in schema) and not np.isnan(values).any():
            d = len(schema)
            return cls(values.astype(np.float32), np.full(d, INDICATOR), np.arange(d + 1), True)
        layout = FeatureLayout.of(schema)
        sizes = np.array([v.size for v in schema])[layout.columns]
        features = [
            _feature(column, int(size))
            for column, size in zip(layout.values(values).T, sizes, strict=True)
        ]
        kinds = np.select([sizes == 0, sizes <= 2], [NUMBER, INDICATOR], SHARE)
        return cls(np.stack(features, axis=1).astype(np.float32), kinds, layout.starts)

    def part(self, rows: Index, columns: Index) -> Features:
        if self.binary:
            kinds, starts = self.kinds[: len(columns)], self.starts[: len(columns) + 1]
            return Features(gathered(self.matrix, rows, columns), kinds, starts, True)
        at, starts = features_of(self.starts, columns)
        return Features(gathered(self.matrix, rows, at), self.kinds[at], starts)


def _feature(column: Array, size: int) -> Array:
    """Missing values filled, and numbers standardised."""
    seen = ~np.isnan(column)
    unknown = 1 / size if size > 2 else 0.0
    mean = column[seen].mean() if seen.any() else unknown
    filled = np.where(seen, column, mean)
    if size:
        return filled
    return np.clip((filled - mean) / (filled.std() or 1.0), -FARTHEST, FARTHEST)


@np.errstate(invalid="ignore")  # matrix products may raise it for lanes that they do not use
def split_rows(
    part: Features, clusters: int, rng: np.random.Generator, weight: Floats | None = None
) -> Index:
    """A label for every row; one label only where rows cannot be told apart."""
    x = part.matrix
    weight = np.ones(len(x), np.float32) if weight is None else weight
    sample: slice | Index = slice(None)
    if len(x) > MOST_ROWS:
        sample = rng.choice(len(x), MOST_ROWS, replace=False)
    label = k_means(x[sample], clusters, rng, weight[sample])
    if label.max() == 0:
        return np.zeros(len(x), dtype=np.int64)
    label = mixture(x, part.kinds, label, weight, sample)
    used = np.bincount(label) > 0
    return np.asarray((np.cumsum(used) - 1)[label])


def k_means(
    x: Floats, clusters: int, rng: np.random.Generator, weight: Floats, rounds: int = SEED_ROUNDS
) -> Index:
    centres = _seeds(x, clusters, rng, weight)
    label = np.full(len(x), -1)
    for _ in range(rounds):
        distance = np.square(centres).sum(axis=1)[:, None] - 2 * (centres @ x.T)  # (clusters, rows)
        new = distance.argmin(axis=0)
        if (new == label).all():
            break
        member = _membership(new, len(centres)) * weight
        size = member.sum(axis=1)
        centres = (member @ x)[size > 0] / size[size > 0, None]
        label = (np.cumsum(size > 0) - 1)[new]
    return np.asarray(label)


def _membership(label: Index, clusters: int) -> Floats:
    return np.asarray(label == np.arange(clusters)[:, None], np.float32)  # (clusters, rows)


def _seeds(x: Floats, clusters: int, rng: np.random.Generator, weight: Floats) -> Floats:
    """k-means++: each next seed far from the ones before."""
    chosen = [x[draw_row(weight, rng)]]
    square = np.einsum("ij,ij->i", x, x)
    nearest = np.full(len(x), np.inf)
    for _ in range(clusters - 1):
        last = chosen[-1]
        nearest = np.minimum(nearest, np.maximum(square - 2 * (x @ last) + last @ last, 0.0))
        if nearest.max() <= 1e-6 * max(float(square.max()), 1.0):
            break
        chosen.append(x[draw_row(nearest * weight, rng)])
    return np.stack(chosen)


def draw_row(weight: Array | Floats, rng: np.random.Generator) -> int:
    """A row with a chance in proportion to its weight."""
    total = np.cumsum(weight, dtype=np.float64)
    return min(int(np.searchsorted(total, rng.random() * total[-1], "right")), len(total) - 1)


def mixture(
    x: Floats,
    kinds: Index,
    label: Index,
    weight: Floats,
    sample: slice | Index = slice(None),
    rounds: int = ROUNDS,
) -> Index:
    """EM for a mixture of products, begun from the sample's labels; a label for all rows of x."""
    number = kinds == NUMBER
    z = np.hstack([x, np.square(x[:, number])]) if number.any() else x
    learned, w = z[sample], weight[sample]
    share = _membership(label, int(label.max()) + 1) * w  # (clusters, rows)
    size, before = share.sum(axis=1), np.zeros(len(share))
    for _ in range(rounds):
        if np.abs(size - before).max() < SETTLED * size.sum():
            break
        coefficients, bias = _components(share, size, learned, kinds, number)
        share = _responsibilities(coefficients @ learned.T + bias[:, None], w)
        size, before = share.sum(axis=1), size
    if len(learned) < len(z):
        share = coefficients @ z.T + bias[:, None]
    return np.asarray(share.argmax(axis=0))


def _responsibilities(logits: Floats, weight: Floats) -> Floats:
    share = np.exp(logits - logits.max(axis=0))
    return np.asarray(share * (weight / share.sum(axis=0)))


def _components(
    share: Floats, size: Floats, z: Floats, kinds: Index, number: Flags
) -> tuple[Floats, Floats]:
    """log density of every component as a linear form of z: coefficients and constants."""
    sums, d = share @ z, len(kinds)
    p = (sums[:, :d] + np.float32(0.5)) / (size + 1)[:, None]
    p = np.minimum(np.maximum(p, np.float32(1e-6)), np.float32(1 - 1e-6))
    log, complement = np.log(p), np.log1p(-p) * (kinds == INDICATOR)
    coefficients = log - complement
    bias = complement.sum(axis=1) + np.log((size + np.float32(1e-6)) / size.sum())
    if not number.any():
        return coefficients, bias
    mean = sums[:, :d][:, number] / (size + np.float32(1e-6))[:, None]
    variance = sums[:, d:] / (size + np.float32(1e-6))[:, None] - np.square(mean)
    variance = np.maximum(variance, np.float32(NARROWEST))
    coefficients[:, number] = mean / variance
    bias = bias - 0.5 * (np.square(mean) / variance + np.log(variance)).sum(axis=1)
    return np.hstack([coefficients, -0.5 / variance]), bias

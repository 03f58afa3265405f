"""Clusters of rows: what a sum mixes.

Features of a row are its standardised numbers and the indicators of its categories; a missing
value lies at the mean. Two-means by Lloyd's rule, then a few steps of EM for a mixture of products
where columns are discrete: clusters that a product of leaves describes well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Schema

Floats = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]
ROUNDS = 15


@dataclass(frozen=True, slots=True)
class Part:
    features: Floats  # (rows, features)
    binary: bool


@dataclass(frozen=True, slots=True)
class Features:
    matrix: Floats  # (rows, features)
    starts: Index  # of every column's features
    binary: bool  # every column is one 0/1 feature

    @classmethod
    def of(cls, values: Array, schema: Schema) -> Features:
        blocks = []
        for column, variable in zip(values.T, schema.variables, strict=True):
            if variable.size > 2:
                block = (column[:, None] == np.arange(variable.size)).astype(np.float32)
                blocks.append(block - block.mean(axis=0))
            elif variable.size:
                blocks.append(_filled(column)[:, None])
            else:
                filled = _filled(column)
                blocks.append(((filled - filled.mean()) / (filled.std() or 1.0))[:, None])
        starts = np.concatenate([[0], np.cumsum([b.shape[1] for b in blocks])])
        binary = all(v.size == 2 for v in schema)
        return cls(np.hstack(blocks).astype(np.float32), starts, binary)

    def part(self, rows: Index, columns: Index) -> Part:
        at = np.concatenate([np.arange(self.starts[c], self.starts[c + 1]) for c in columns])
        return Part(self.matrix[np.ix_(rows, at)], self.binary)


def _filled(column: Array) -> Array:
    seen = ~np.isnan(column)
    mean = column[seen].mean() if seen.any() else 0.0
    return np.where(seen, column, mean)


def split_rows(part: Part, clusters: int, rng: np.random.Generator) -> Index:
    """A label for every row; one label only where rows cannot be told apart."""
    label = two_means(part.features, clusters, rng)
    if part.binary and label.max() > 0:
        label = mixture(part.features, label)
    _, label = np.unique(label, return_inverse=True)
    return np.asarray(label)


def two_means(x: Floats, clusters: int, rng: np.random.Generator) -> Index:
    centres = _seeds(x, clusters, rng)
    label = np.full(len(x), -1)
    for _ in range(ROUNDS):
        distance = np.square(centres).sum(axis=1)[:, None] - 2 * (centres @ x.T)  # (clusters, rows)
        new = distance.argmin(axis=0)
        if (new == label).all():
            break
        label = new
        member = _membership(label, len(centres))
        size = member.sum(axis=1)
        centres = (member @ x)[size > 0] / size[size > 0, None]
        label = (np.cumsum(size > 0) - 1)[label]
    return np.asarray(label)


def _membership(label: Index, clusters: int) -> Floats:
    return np.asarray(label == np.arange(clusters)[:, None], np.float32)  # (clusters, rows)


def _seeds(x: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """k-means++: each next seed far from the ones before."""
    chosen = [x[rng.integers(len(x))]]
    square = np.einsum("ij,ij->i", x, x)
    nearest = np.full(len(x), np.inf)
    for _ in range(clusters - 1):
        last = chosen[-1]
        nearest = np.minimum(nearest, np.maximum(square - 2 * (x @ last) + last @ last, 0.0))
        if (total := nearest.sum()) <= 0:
            break
        chosen.append(x[np.searchsorted(np.cumsum(nearest), rng.random() * total)])
    return np.stack(chosen)


def mixture(x: Floats, label: Index, rounds: int = ROUNDS) -> Index:
    """EM for a mixture of Bernoulli products, begun from labels."""
    share = _membership(label, int(label.max()) + 1)  # (clusters, rows)
    for _ in range(rounds):
        size = share.sum(axis=1) + np.float32(1e-6)
        p = (share @ x + np.float32(0.5)) / (size + 1)[:, None]
        bias = np.log1p(-p).sum(axis=1) + np.log(size / size.sum())
        logits = (np.log(p) - np.log1p(-p)) @ x.T + bias[:, None]
        share = np.exp(logits - logits.max(axis=0))
        share /= share.sum(axis=0)
    return np.asarray(share.argmax(axis=0))

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
        distance = (centres**2).sum(axis=1) - 2 * (x @ centres.T)  # (rows, clusters)
        new = distance.argmin(axis=1)
        if (new == label).all():
            break
        label = new
        kept = [k for k in range(len(centres)) if (label == k).any()]
        centres = np.stack([x[label == k].mean(axis=0) for k in kept])
        label = np.searchsorted(kept, label)
    return np.asarray(label)


def _seeds(x: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """k-means++: each next seed far from the ones before."""
    chosen = [x[rng.integers(len(x))]]
    for _ in range(clusters - 1):
        distance = np.min([((x - c) ** 2).sum(axis=1) for c in chosen], axis=0).astype(np.float64)
        total = distance.sum()
        if total <= 0:
            break
        chosen.append(x[rng.choice(len(x), p=distance / total)])
    return np.stack(chosen)


def mixture(x: Floats, label: Index, rounds: int = ROUNDS) -> Index:
    """EM for a mixture of Bernoulli products, begun from labels."""
    share = np.eye(int(label.max()) + 1, dtype=np.float32)[label]  # (rows, clusters)
    for _ in range(rounds):
        size = share.sum(axis=0) + 1e-6
        p = (share.T @ x + 0.5) / (size + 1.0)[:, None]
        bias = np.log1p(-p).sum(axis=1) + np.log(size / size.sum())
        logits = x @ (np.log(p) - np.log1p(-p)).T + bias
        logits -= logits.max(axis=1, keepdims=True)
        share = np.exp(logits)
        share /= share.sum(axis=1, keepdims=True)
    return np.asarray(share.argmax(axis=1))

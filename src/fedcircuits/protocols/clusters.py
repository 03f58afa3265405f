"""A party's rows in clusters, for the products of a federated circuit.

Clusters are what parties have in common: given the combination of clusters a row is in, its parts
at different parties are independent. With a target the rows of every class are clustered apart, so
that whoever knows the class of a row keeps it apart from other classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedcircuits.circuits.family import Array
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.clustering import Features, split_rows
from fedcircuits.learning.independence import Floats
from fedcircuits.learning.table import Table

FEWEST_ROWS = 8  # of a cluster: a circuit is learned from them
MOST_CLUSTERS = 64


def clusters_of(
    table: Table,
    columns: Sequence[str],
    clusters: int | Literal["auto"],
    classes: Array | None,
    rng: np.random.Generator,
) -> Labels:
    """A cluster for every row (rows,), from 0; ``classes`` has codes, NaN where unknown."""
    if len(table) < 2 * FEWEST_ROWS or (clusters == 1 and classes is None):
        return np.zeros(len(table), np.int64)
    part = table.select(columns)
    features = Features.of(part.values, part.schema)
    wanted = _number(len(table)) if clusters == "auto" else clusters
    codes = np.zeros(len(table)) if classes is None else classes
    known, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    shares = np.sqrt(counts) / np.sqrt(counts).sum()
    label = np.full(len(table), -1, dtype=np.int64)
    for code, share in zip(known, shares, strict=True):
        rows = np.flatnonzero(codes == code)
        number = max(1, round(wanted * float(share)))
        found = split_rows(features.part(rows, np.arange(len(columns))), number, rng)
        label[rows] = found + label.max() + 1
    return _large_enough(features.matrix, label, codes)


def _number(rows: int) -> int:
    """A cluster for every 50 rows of a small table, fewer and fewer of a large one."""
    return int(np.clip(np.sqrt(rows) / 2.5, 2, MOST_CLUSTERS))


def _large_enough(x: Floats, label: Labels, codes: Array) -> Labels:
    """Rows of tiny clusters, and rows without one, go to the nearest centre of the others: of
    their own class, if it has any left."""
    sizes = np.bincount(label[label >= 0])
    kept = np.flatnonzero(sizes >= min(FEWEST_ROWS, int(sizes.max())))
    if len(kept) < len(sizes) or (label < 0).any():
        centres = np.stack([x[label == k].mean(axis=0) for k in kept])
        homeless = np.flatnonzero(~np.isin(label, kept))
        distance = np.square(centres).sum(axis=1) - 2 * (x[homeless] @ centres.T)
        own, classes = codes[homeless], np.array([codes[label == k][0] for k in kept])
        distance[np.isin(own, classes)[:, None] & (own[:, None] != classes)] = np.inf
        label[homeless] = kept[distance.argmin(axis=1)]
    return np.searchsorted(kept, label)

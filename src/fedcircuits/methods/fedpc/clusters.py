"""A party's rows in clusters, for the products of a federated circuit.

Clusters are what parties have in common: given the combination of clusters a row is in, its parts
at different parties are independent. So they should say as much of the others' columns as they can.
A party that knows the clusters of others for shared rows grows a tree that tells them apart by its
own columns, by the mutual information of the two: the tree's leaves are its clusters. Otherwise
clusters are those of a mixture over its own columns (learning/clustering.py).

With a target the rows of every class are clustered apart, so that whoever knows the class of a row
keeps it apart from other classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.independence import Floats
from fedcircuits.learning.spn.clustering import Features, split_rows
from fedcircuits.tables.table import Table

FEWEST_ROWS = 8  # of a cluster: a circuit is learned from them
MOST_CLUSTERS = 64
MOST_ROWS = 20_000  # that a tree is grown from
SMALLEST = 8  # parts of an average cluster that a leaf of a tree may be small to


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

    def found(rows: Labels, number: int) -> Labels:
        return split_rows(features.part(rows, np.arange(len(columns))), number, rng)

    return _by_class(features.matrix, clusters, classes, found)


def clusters_by_others(
    table: Table,
    columns: Sequence[str],
    others: Labels,
    clusters: int | Literal["auto"],
    classes: Array | None,
    rng: np.random.Generator,
) -> Labels:
    """The same by what others have said: ``others`` (rows, parties) has clusters, −1 for rows that
    are not shared."""
    shared = np.asarray((others >= 0).all(axis=1) & (others.shape[1] > 0))
    if len(table) < 2 * FEWEST_ROWS or shared.sum() < 2 * FEWEST_ROWS:
        return clusters_of(table, columns, clusters, classes, rng)
    part = table.select(columns)
    x = Features.of(part.values, part.schema).matrix

    def found(rows: Labels, number: int) -> Labels:
        known = rows[shared[rows]]
        if number < 2 or len(known) < 2 * FEWEST_ROWS:
            return np.zeros(len(rows), np.int64)
        known = known if len(known) <= MOST_ROWS else rng.choice(known, MOST_ROWS, replace=False)
        tree = DecisionTreeClassifier(
            criterion="entropy",
            max_leaf_nodes=number,
            min_samples_leaf=max(FEWEST_ROWS, len(known) // (SMALLEST * number)),
            random_state=int(rng.integers(2**31)),
        )
        leaf = tree.fit(x[known], others[known]).apply(x[rows])
        return np.unique(leaf, return_inverse=True)[1].reshape(-1)

    return _by_class(x, clusters, classes, found)


def _by_class(
    x: Floats,
    clusters: int | Literal["auto"],
    classes: Array | None,
    found: Callable[[Labels, int], Labels],
) -> Labels:
    """Every class in clusters of its own, more of them for more rows."""
    wanted = _number(len(x)) if clusters == "auto" else clusters
    codes = np.zeros(len(x)) if classes is None else classes
    known, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    shares = np.sqrt(counts) / np.sqrt(counts).sum()
    label = np.full(len(x), -1, dtype=np.int64)
    for code, share in zip(known, shares, strict=True):
        rows = np.flatnonzero(codes == code)
        label[rows] = found(rows, max(1, round(wanted * float(share)))) + label.max() + 1
    return _large_enough(x, label, codes)


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

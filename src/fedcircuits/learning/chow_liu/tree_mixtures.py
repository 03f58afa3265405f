"""Mixtures of Chow–Liu trees by EM (Meilă and Jordan 2000), for discrete columns.

E-step  responsibilities of components for rows.
M-step  every component's tree and tables are learned again from its weighted pair tables: one
        matrix product per component. ``smoothing`` pseudo-rows of the whole table are added, so
        that small components are shrunk towards all rows. An edge that gains less than it costs
        (extended BIC) is left out, so that trees may be forests.

Missing values are in no pair table and are summed out in the E-step: the M-step then counts the
observed pairs, which is not exact EM. Weights of rows count as repetitions, except in the k-means
clusters from which EM starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.circuit import Circuit, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.learning.chow_liu.trees import conditional, forest_nodes, spanning_tree
from fedcircuits.learning.independence import (
    BinaryPairs,
    Floats,
    Index,
    OneHot,
    PairTables,
    pair_tables,
)
from fedcircuits.learning.starts import clusters
from fedcircuits.learning.stopping import EarlyStopping
from fedcircuits.tables.schema import Schema

RESIDUE = 0.1  # pseudo-rows of a conditional table, beside those of the whole table
PATIENCE = 3  # rounds without a gain of ``tolerance`` on the validation rows


@dataclass(frozen=True, slots=True)
class LearnedTree:
    """Edges (variable, parent), parents first, and the tables they were learned from."""

    edges: list[tuple[int, int]]
    tables: Array  # (indicators, indicators)
    starts: Index

    def conditionals(self) -> list[Array]:
        """(parent's size, own size) for every edge."""
        return [conditional(self.tables, self.starts, *edge, RESIDUE) for edge in self.edges]


@dataclass(frozen=True, slots=True)
class TreeMixture:
    trees: tuple[LearnedTree, ...]
    weights: Array  # (components,)
    history: tuple[float, ...]  # mean log-likelihood of the rows in every round
    validation: tuple[float, ...]


class CodedRows:
    """Codes of discrete columns, ready for pair tables and for the likelihood of trees."""

    def __init__(self, values: Array, schema: Schema) -> None:
        self.values, self.schema = values, schema
        self.binary = all(v.size == 2 for v in schema) and not np.isnan(values).any()
        self.hot = None if self.binary else OneHot.of(values, schema.variables)
        self.codes = values.astype(np.float32) if self.binary else np.zeros((0, 0), np.float32)

    def pairs(self, weight: Floats) -> BinaryPairs | PairTables:
        if self.hot is None:
            return BinaryPairs.of(self.codes, weight)
        return PairTables(pair_tables(self.hot.matrix, weight), self.hot.starts)

    def log_values(self, tree: LearnedTree) -> Array:
        """log probability (rows,)."""
        logs = [np.log(table) for table in tree.conditionals()]
        return self._linear(tree.edges, logs) if self.binary else self._upward(tree.edges, logs)

    def _linear(self, edges: Sequence[tuple[int, int]], logs: list[Array]) -> Array:
        """log P(v | u) of 0/1 values is a + b u + c v + e u v: two products for all edges."""
        child, above = np.array(edges).T
        root = above < 0
        first = np.stack([t[0] for t in logs])  # (edges, 2), u = 0
        last = np.stack([t[-1] for t in logs])  # u = 1, for a root the same
        single = np.zeros(len(child))
        np.add.at(single, child, first[:, 1] - first[:, 0])
        np.add.at(single, above[~root], (last - first)[~root, 0])
        joint = np.zeros(len(child))
        joint[child] = last[:, 1] - last[:, 0] - first[:, 1] + first[:, 0]
        parent = np.arange(len(child))
        parent[child[~root]] = above[~root]
        both = self.codes * self.codes.take(parent, axis=1)
        logs_of_rows = self.codes @ single.astype(np.float32) + both @ joint.astype(np.float32)
        return np.asarray(logs_of_rows + first[:, 0].sum(), dtype=np.float64)

    def _upward(self, edges: Sequence[tuple[int, int]], logs: list[Array]) -> Array:
        """Messages from the leaves to the roots, scaled to a largest value of 1."""
        assert self.hot is not None
        below: dict[int, Array] = {}
        total = np.zeros(len(self.values))
        for (child, parent), log in zip(reversed(edges), reversed(logs), strict=True):
            block = self.hot.matrix[:, self.hot.starts[child] : self.hot.starts[child + 1]]
            seen = ~np.isnan(self.values[:, child])
            state = np.where(seen[:, None], block, 1.0) * below.pop(child, 1.0)
            message = state @ np.exp(log).T  # (rows, parent's size)
            largest = message.max(axis=1)
            total += np.log(largest)
            if parent >= 0:
                below[parent] = below.get(parent, 1.0) * (message / largest[:, None])
        return total


def learn_mixture(
    values: Array,
    schema: Schema,
    components: int,
    rng: np.random.Generator,
    *,
    smoothing: float,
    rounds: int,
    tolerance: float,
    weight: Array | None = None,
    validation: Array | None = None,
    report: Callable[[int, float], None] | None = None,
) -> TreeMixture:
    """EM from clusters of values (rows, columns); with validation rows, the best round on them."""
    rows = CodedRows(values, schema)
    held = None if validation is None else CodedRows(validation, schema)
    w = np.ones(len(values)) if weight is None else weight
    whole = rows.pairs(w.astype(np.float32))
    share = clusters(values, schema, components, rng).T * w  # (components, rows)
    history: list[float] = []
    judged: list[float] = []
    while True:
        trees = tuple(_tree(rows, whole, s, w.sum(), smoothing) for s in share)
        sizes = share.sum(axis=1) + 1
        logits = _joint(rows, trees, sizes / sizes.sum())
        each = logsumexp(logits, axis=0)
        history.append(float(each @ w / w.sum()))
        if held is not None:
            judged.append(float(logsumexp(_joint(held, trees, sizes / sizes.sum()), axis=0).mean()))
        if not judged or judged[-1] >= max(judged):
            best = trees, sizes / sizes.sum()
        if report is not None:
            report(len(history), history[-1])
        if len(history) >= rounds or _settled(history, judged, tolerance):
            return TreeMixture(*best, tuple(history), tuple(judged))
        share = np.exp(logits - each) * w


def _settled(history: list[float], judged: list[float], tolerance: float) -> bool:
    if judged:
        return EarlyStopping(PATIENCE, tolerance).ends(judged)
    return len(history) > 1 and history[-1] - history[-2] < tolerance


def _joint(rows: CodedRows, trees: tuple[LearnedTree, ...], weights: Array) -> Array:
    """(components, rows) of log weight + log probability."""
    return np.stack([rows.log_values(t) for t in trees]) + np.log(weights)[:, None]


def _tree(
    rows: CodedRows, whole: BinaryPairs | PairTables, share: Array, total: float, smoothing: float
) -> LearnedTree:
    pairs, part = rows.pairs(share.astype(np.float32)), smoothing / total
    tables: BinaryPairs | PairTables
    if isinstance(pairs, BinaryPairs) and isinstance(whole, BinaryPairs):
        both, ones = pairs.both + part * whole.both, pairs.ones + part * whole.ones
        tables = BinaryPairs(both, ones, pairs.total + part * whole.total)
    else:
        assert isinstance(pairs, PairTables) and isinstance(whole, PairTables)
        tables = PairTables(pairs.counts + part * whole.counts, pairs.starts)
    return LearnedTree(spanning_tree(tables.gain(), 0.0), *tables.tables())


def mixture_circuit(schema: Schema, members: Sequence[TreeMixture]) -> tuple[Circuit, Parameters]:
    """All components of all members under one root; members weigh the same."""
    nodes: list[Node] = []
    values: dict[str, Arrays] = {}
    components: list[str] = []
    for i, tree in enumerate(t for m in members for t in m.trees):
        name = f"tree {i}"
        more, learned, tops = forest_nodes(
            name, schema.variables, tree.edges, tree.tables, tree.starts, RESIDUE
        )
        nodes += more if len(tops) == 1 else [*more, Product(name, tuple(tops))]
        values |= learned
        components.append(tops[0] if len(tops) == 1 else name)
    weights = np.concatenate([m.weights for m in members]) / len(members)
    nodes.append(Sum("root", tuple(components)))
    values["root"] = {WEIGHT: weights[None]}
    return Circuit(tuple(nodes), schema), Parameters(values)

"""Starting points for EM: leaves from clusters of rows, weights that keep the clusters together.

start_from          Unit k of every leaf is learned from cluster k. An aligned sum lets unit k read
                    unit k of its children (in an outer product, the pair k, k) more than others:
                    the circuit starts as the mixture of products of the clusters.
start_from_regions  Every node clusters the rows by its own columns; a sum weights its children's
                    clusters by how often they co-occur with its own. For columns of one scale with
                    spatial structure, such as pixels. The idea is that of latent variable
                    distillation (Liu et al., 2023), with k-means as the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from sklearn.cluster import KMeans

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import (
    AnyFamily,
    Array,
    Arrays,
    Family,
    JointFamily,
    LinearFamily,
    TabledFamily,
    family,
)
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, random_weights
from fedcircuits.circuits.graph.structures import indicator_codes
from fedcircuits.learning.features import FeatureLayout
from fedcircuits.tables.schema import Schema, Variable

Labels = npt.NDArray[np.int64]
ROUNDING = 1e-14  # of a column's largest value: what varies by less is constant
MOST_ROWS = 20_000  # that a start looks at
MOST_CELLS = 2_000_000  # that k-means goes over, again and again
REGION_ROWS = 5_000  # that regions are clustered by
REGION_COLUMNS = 128  # of a region, evenly chosen
MANY = 32  # categories; more of them, if numbers, are clustered by their size


def start_from(
    circuit: Circuit,
    x: Array,
    assignment: Array,
    rng: np.random.Generator,
    aligned: float = 0.0,
) -> Parameters:
    """Leaf unit k learned from the rows weighted by column k of assignment (rows, units).

    ``aligned`` is the share of a sum's weight that keeps clusters together.
    """
    values: dict[str, Arrays] = {**random_weights(circuit, rng, 10.0), **indicator_codes(circuit)}
    if aligned:
        values.update(_aligned(circuit, values, assignment.mean(axis=0), aligned))
    shift, scale = np.transpose([_frame(c, v) for c, v in zip(x.T, circuit.schema, strict=True)])
    framed = (x - shift) / scale
    for leaf in circuit.leaves():
        if leaf.name in values:
            continue
        rule, columns = family(leaf.family), [circuit.schema.index(v) for v in leaf.scope]
        if _has_frame(rule, circuit.schema.variables[columns[0]], len(columns)):
            assert isinstance(rule, LinearFamily | JointFamily)
            learned = _start_leaf(leaf, rule, circuit.schema, framed, assignment)
            back = -shift[columns] / scale[columns], 1 / scale[columns]
            values[leaf.name] = rule.affine(learned, *back) or learned
        else:
            values[leaf.name] = _start_leaf(leaf, rule, circuit.schema, x, assignment)
    return Parameters(values)


def _has_frame(rule: AnyFamily, variable: Variable, width: int) -> bool:
    """Whether it learns on standardised columns: its bounds are then relative to their scale."""
    some, shift, scale = np.zeros((2, width)), np.zeros(width), np.ones(width)
    if isinstance(rule, JointFamily):
        return rule.affine(rule.start(some), shift, scale) is not None
    if isinstance(rule, TabledFamily) or not isinstance(rule, LinearFamily):
        return False
    return rule.affine(rule.start(some[:, 0], variable), shift, scale) is not None


def _frame(x: Array, variable: Variable) -> tuple[float, float]:
    """Mean and deviation of a real column; 0 and 1 of others, and of a constant."""
    seen = x[~np.isnan(x)] if variable.kind == "real" else x[:0]
    deviation = float(seen.std()) if len(seen) else 0.0
    if not deviation or deviation <= ROUNDING * float(np.abs(seen).max()):
        return 0.0, 1.0
    return float(seen.mean()), deviation


def _aligned(
    circuit: Circuit, values: dict[str, Arrays], sizes: Array, share: float
) -> dict[str, Arrays]:
    """Weights drawn towards unit k reading unit k; a sum of one unit reads clusters by size."""
    arrays: dict[str, Arrays] = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            kept = np.hstack([_kept(circuit, node.units, c, sizes) for c in node.children])
            kept /= kept.sum(axis=1, keepdims=True)
            arrays[node.name] = {WEIGHT: share * kept + (1 - share) * values[node.name][WEIGHT]}
    return arrays


def _kept(circuit: Circuit, units: int, child: str, sizes: Array) -> Array:
    """(units, child's units): which units of a child belong to the clusters of a sum's units."""
    node = circuit[child]
    inputs = circuit.units[child]
    if isinstance(node, Product) and node.outer:
        left, right = (np.arange(circuit.units[c]) for c in node.children)
        pairs = [(i, j) for i in left for j in right]
        cluster = np.array([i if i == j else -1 for i, j in pairs])
    else:
        cluster = np.arange(inputs)
    weight = np.where(cluster >= 0, sizes[cluster % len(sizes)], 0.0)
    if units == 1:
        return np.asarray(weight[None])
    members = cluster[None] == np.arange(units)[:, None]
    return np.where(members.any(axis=1, keepdims=True), members, weight[None])


def _start_leaf(leaf: Leaf, rule: AnyFamily, schema: Schema, x: Array, assignment: Array) -> Arrays:
    columns = [schema.index(v) for v in leaf.scope]
    weights = assignment[:, np.arange(leaf.units) % assignment.shape[1]]  # (rows, units)
    if isinstance(rule, JointFamily):
        return _start_joint(rule, x[:, columns], weights)
    per_variable = [_start_pair(rule, schema.variables[c], x[:, c], weights) for c in columns]
    return {n: np.stack([p[n] for p in per_variable], axis=1) for n in per_variable[0]}


def _start_joint(rule: JointFamily, x: Array, weights: Array) -> Arrays:
    whole, units = rule.start(x), weights.shape[1]
    before = {n: np.repeat(a[None], units, axis=0) for n, a in whole.items()}
    tensors = {n: torch.from_numpy(a) for n, a in before.items()}
    w = torch.from_numpy(np.ascontiguousarray(weights.T))
    sums = rule.statistics(torch.from_numpy(np.ascontiguousarray(x)), w, tensors)
    return rule.maximise({n: s.numpy() for n, s in sums.items()}, before)


def _start_pair(rule: Family, variable: Variable, x: Array, weights: Array) -> dict[str, Array]:
    """One variable's distributions (units, …)."""
    seen = ~np.isnan(x)
    if isinstance(rule, TabledFamily):
        return _start_table(rule, variable, x[seen], weights[seen])
    whole = rule.start(x[seen], variable)
    units = weights.shape[1]
    before = {n: np.broadcast_to(a, (units, *a.shape)) for n, a in whole.items()}
    tensors = {n: torch.from_numpy(np.array(a[:, None])) for n, a in before.items()}
    statistics = rule.statistics(torch.from_numpy(x[seen])[None], tensors).numpy()
    w = weights[seen].T  # (units, rows)
    if statistics.shape[1] == 1:  # (S, units or 1, rows)
        sums = statistics[:, 0] @ w.T
    else:
        sums = np.einsum("sur,ur->su", statistics, w)
    return rule.maximise(w.sum(axis=1), sums, before)


def _start_table(
    rule: TabledFamily, variable: Variable, x: Array, weights: Array
) -> dict[str, Array]:
    """Frequencies of every unit, with one row of the whole column behind them."""
    codes = torch.from_numpy(x.astype(np.int64))
    sums = torch.zeros(variable.levels, weights.shape[1], dtype=torch.float64)
    sums.index_add_(0, codes, torch.from_numpy(np.ascontiguousarray(weights)))
    whole = np.bincount(codes.numpy(), minlength=variable.levels) + 1 / variable.levels
    table = sums.numpy().T + whole / whole.sum()
    return {"probability": table / table.sum(axis=1, keepdims=True)}


def clusters(x: Array, schema: Schema, units: int, rng: np.random.Generator) -> Array:
    """Soft assignment (rows, units) by k-means on standardised columns and one-hot codes.

    Centres of wide tables come from a part of the rows.
    """
    features = _Standardised.of(x, schema)
    block = max(MOST_CELLS // len(features.layout), 100 * units)
    part = x if len(x) <= block else x[rng.choice(len(x), block, replace=False)]
    seen = features(part)
    distinct = len({row.tobytes() for row in seen})
    seed = int(rng.integers(2**31 - 1))
    kmeans = KMeans(min(units, distinct), n_init=1, random_state=seed).fit(seen)
    if len(part) == len(x):
        return softened(kmeans.labels_, units, rng)
    blocks = (x[a : a + block] for a in range(0, len(x), block))
    labels = np.concatenate([kmeans.predict(features(rows)) for rows in blocks])
    return softened(labels, units, rng)


def softened(labels: Labels, units: int, rng: np.random.Generator) -> Array:
    """(rows, units): most of a row belongs to its cluster, some of it anywhere."""
    soft = rng.dirichlet(np.ones(units), size=len(labels)) * 0.2
    soft[np.arange(len(labels)), labels] += 0.8
    return np.asarray(soft)


@dataclass(frozen=True, slots=True)
class _Standardised:
    """Columns as k-means sees them; categories that are many numbers, as grey levels, as such."""

    layout: FeatureLayout
    mean: Array  # (features,) 0 of indicators
    deviation: Array  # (features,) 1 of indicators

    @classmethod
    def of(cls, x: Array, schema: Schema) -> _Standardised:
        layout = FeatureLayout.of(schema, lambda v: not _is_numeric(v))
        seen = [c[~np.isnan(c)] for c in x.T]
        mean = np.array([c.mean() if len(c) else 0.0 for c in seen])[layout.columns]
        spread = np.array([(c.std() if len(c) else 0.0) or 1.0 for c in seen])[layout.columns]
        number = layout.codes < 0
        return cls(layout, np.where(number, mean, 0.0), np.where(number, spread, 1.0))

    def __call__(self, x: Array) -> Array:
        """What is missing is at the mean, or in no category."""
        return np.nan_to_num((self.layout.values(x) - self.mean) / self.deviation) + 0.0  # no −0


def _is_numeric(variable: Variable) -> bool:
    numbers = all(isinstance(c, int | float) for c in variable.categories)
    return not variable.size or (variable.size > MANY and numbers)


# ---------------------------------------------------------------------- regions


def start_from_regions(
    circuit: Circuit, x: Array, rng: np.random.Generator, rules: Rules | None = None
) -> Parameters:
    """Leaf units from clusters of their own columns, weights from clusters that occur together.

    Bounds of ``rules`` count in the units of the data.
    """
    part = x if len(x) <= REGION_ROWS else x[rng.choice(len(x), REGION_ROWS, replace=False)]
    labels = _labels(circuit, part, rng)
    values: dict[str, Arrays] = {**random_weights(circuit, rng, 10.0), **indicator_codes(circuit)}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            random = values[node.name][WEIGHT]
            counted = np.hstack([_together(circuit, node, c, labels) for c in node.children])
            total = counted.sum(axis=1, keepdims=True)
            mixed = np.where(total > 0, 0.8 * counted / np.maximum(total, 1) + 0.2 * random, random)
            values[node.name] = {WEIGHT: mixed}
        elif isinstance(node, Leaf) and node.name not in values:
            rule = (rules or {}).get(node.family, family(node.family))
            soft = softened(labels[node.name], node.units, rng)
            values[node.name] = _start_leaf(node, rule, circuit.schema, part, soft)
    return Parameters(values)


def _labels(circuit: Circuit, x: Array, rng: np.random.Generator) -> dict[str, Labels]:
    """The cluster of every row at every node, parents first: the children of an elementwise
    product share its clusters, which an indicator among them gives."""
    centred = np.nan_to_num(x - np.nan_to_num(np.nanmean(x, axis=0))).astype(np.float32)
    labels: dict[str, Labels] = {}
    for node in reversed(circuit.nodes):
        if isinstance(node, Product) and node.outer:
            continue
        columns = sorted(circuit.schema.index(v) for v in circuit.scopes[node.name])
        if node.name not in labels:
            units, most = circuit.units[node.name], max(1, len(columns) // REGION_COLUMNS)
            labels[node.name] = _nearest(centred[:, columns[::most]], units, rng)
        if isinstance(node, Product):
            marks = [circuit[c] for c in node.children]
            for mark in (m for m in marks if isinstance(m, Leaf) and m.family == "indicator"):
                code = x[:, circuit.schema.index(mark.scope[0])]
                labels[node.name] = np.nan_to_num(code).astype(np.int64)
            labels.update(dict.fromkeys(node.children, labels[node.name]))
    return labels


def _nearest(x: npt.NDArray[np.float32], units: int, rng: np.random.Generator) -> Labels:
    first = x[:: max(1, len(x) // 1000)]
    centres = min(units, len({row.tobytes() for row in first}))
    if centres == 1:
        return np.zeros(len(x), dtype=np.int64)
    seed = int(rng.integers(2**31 - 1))
    kmeans = KMeans(centres, n_init=1, max_iter=20, random_state=seed).fit(first)
    return np.asarray(kmeans.predict(x), dtype=np.int64)


def _together(circuit: Circuit, node: Sum, child: str, labels: Mapping[str, Labels]) -> Array:
    """(units, child's units): how often the clusters of a sum and of a child meet."""
    below = circuit[child]
    if isinstance(below, Product) and below.outer:
        left, right = below.children
        inner = labels[left] * circuit.units[right] + labels[right]
    else:
        inner = labels[child]
    shape = (node.units, circuit.units[child])
    pairs = labels[node.name] * shape[1] + inner
    counts = np.bincount(pairs, minlength=shape[0] * shape[1])
    return counts.reshape(shape).astype(np.float64)

"""Where EM begins: leaves from clusters of rows, weights that keep the clusters together.

Unit k of every leaf is learned from cluster k of the rows, or of what the rows have in the leaf's
own columns: regions of an image have their own shapes. An aligned sum lets unit k read unit k of its
children (of an outer product: the pair k, k) more than others: the circuit begins as the mixture of
products of the clusters, and EM goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.cluster import KMeans

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.family import AnyFamily, Array, Arrays, Family, JointFamily, family
from fedcircuits.circuits.nodes import Leaf, Product, Sum
from fedcircuits.circuits.parameters import WEIGHT, Parameters, random_weights
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.circuits.structures import indicator_codes

MOST_ROWS = 20_000  # that a start looks at
MOST_CELLS = 2_000_000  # that k-means goes over, again and again


def start_from(
    circuit: Circuit,
    x: Array,
    assignment: Array | None,
    rng: np.random.Generator,
    aligned: float = 0.0,
    rules: Rules | None = None,
) -> Parameters:
    """Leaf unit k learned from the rows weighted by column k of assignment (rows, units).

    Without assignment every leaf clusters the rows by its own columns. ``aligned`` is the share of
    a sum's weight that keeps clusters together. Bounds of ``rules`` count in the units of the data.
    """
    values: dict[str, Arrays] = {**random_weights(circuit, rng, 10.0), **indicator_codes(circuit)}
    if aligned and assignment is not None:
        values.update(_aligned(circuit, values, assignment.mean(axis=0), aligned))
    for leaf in circuit.leaves():
        if leaf.name not in values:
            rule = (rules or {}).get(leaf.family, family(leaf.family))
            own = circuit.schema.select(leaf.scope)
            columns = x[:, [circuit.schema.index(v) for v in leaf.scope]]
            given = clusters(columns, own, leaf.units, rng) if assignment is None else assignment
            values[leaf.name] = _start_leaf(leaf, rule, own, columns, given)
    return Parameters(values)


def _aligned(
    circuit: Circuit, values: dict[str, Arrays], sizes: Array, share: float
) -> dict[str, Arrays]:
    """Weights drawn towards unit k reading unit k; a sum of one unit reads clusters by size."""
    found: dict[str, Arrays] = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            kept = np.hstack([_kept(circuit, node.units, c, sizes) for c in node.children])
            kept /= kept.sum(axis=1, keepdims=True)
            found[node.name] = {WEIGHT: share * kept + (1 - share) * values[node.name][WEIGHT]}
    return found


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
    own = cluster[None] == np.arange(units)[:, None]
    return np.where(own.any(axis=1, keepdims=True), own, weight[None])


def _start_leaf(
    leaf: Leaf, rule: AnyFamily, schema: Schema, x: Array, assignment: Array
) -> Arrays:
    weights = assignment[:, np.arange(leaf.units) % assignment.shape[1]]  # (rows, units)
    if isinstance(rule, JointFamily):
        return _start_joint(rule, x, weights)
    pairs = zip(schema.variables, x.T, strict=True)
    per_variable = [_start_pair(rule, variable, column, weights) for variable, column in pairs]
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
    whole = rule.start(x[seen], variable)
    units = weights.shape[1]
    before = {n: np.broadcast_to(a, (units, *a.shape)) for n, a in whole.items()}
    tensors = {n: torch.from_numpy(np.array(a[:, None])) for n, a in before.items()}
    found = rule.statistics(torch.from_numpy(x[seen])[None], tensors).numpy()
    w = weights[seen].T  # (units, rows)
    if found.shape[1] == 1:  # (S, units or 1, rows)
        sums = found[:, 0] @ w.T
    else:
        sums = np.einsum("sur,ur->su", found, w)
    return rule.maximise(w.sum(axis=1), sums, before)


def clusters(x: Array, schema: Schema, units: int, rng: np.random.Generator) -> Array:
    """Soft assignment (rows, units) by k-means on standardised columns and one-hot codes.

    Centres of wide tables come from a part of the rows.
    """
    features = np.hstack([*_features(x, schema)])
    rows = max(MOST_CELLS // features.shape[1], 100 * units)
    part = features if len(x) <= rows else features[rng.choice(len(x), rows, replace=False)]
    distinct = len({row.tobytes() for row in part})
    seed = int(rng.integers(2**31 - 1))
    found = KMeans(min(units, distinct), n_init=1, random_state=seed).fit(part)
    labels = found.predict(features)
    soft = rng.dirichlet(np.ones(units), size=len(x)) * 0.2
    soft[np.arange(len(x)), labels] += 0.8
    return np.asarray(soft)


def _features(x: Array, schema: Schema) -> Iterator[Array]:
    for column, variable in zip(x.T, schema.variables, strict=True):
        if variable.size:
            yield (column[:, None] == np.arange(variable.size)).astype(float)
        else:
            seen = column[~np.isnan(column)]
            mean, deviation = (seen.mean(), seen.std() or 1.0) if len(seen) else (0.0, 1.0)
            yield np.nan_to_num((column - mean) / deviation)[:, None] + 0.0  # no −0

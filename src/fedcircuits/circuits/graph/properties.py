"""Determinism: whether at most one input of every sum is positive for any complete row.

A deterministic (selective) circuit answers the most probable explanation exactly. It is detected
from supports: inputs of a sum that have positive weight must lie apart in some discrete variable.
Supports are sets of codes, written as bits of an integer; a variable that is not restricted is
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Family, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline

Support = Mapping[str, int]  # variable → bits of the codes that are possible
FREE: Support = {}


def is_deterministic(circuit: Circuit, parameters: Parameters) -> bool:
    circuit, parameters = inline(circuit, parameters)
    if not circuit.is_density:
        return False
    supports: dict[str, list[Support]] = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            verdict = _sum(node, parameters, supports)
            if verdict is None:
                return False
            supports[node.name] = verdict
        else:
            supports[node.name] = _supports(node, circuit, parameters, supports)
    return True


def _supports(
    node: Node, circuit: Circuit, parameters: Parameters, below: Mapping[str, list[Support]]
) -> list[Support]:
    if isinstance(node, Leaf):
        return _leaf(node, circuit, parameters)
    children = [below[c] for c in node.children]
    if isinstance(node, Product) and node.outer:
        return [_joined((left, right)) for left in children[0] for right in children[1]]
    return [_joined(units) for units in zip(*children, strict=True)]


def _leaf(leaf: Leaf, circuit: Circuit, parameters: Parameters) -> list[Support]:
    rule, size = family(leaf.family), circuit.schema[leaf.scope[0]].size
    if not isinstance(rule, Family) or not size:
        return [FREE] * leaf.units
    arrays = parameters[leaf.name]
    possible = np.stack([rule.mass(arrays, c - 0.5, c + 0.5) > 0 for c in range(size)])
    if possible.all():
        return [FREE] * leaf.units
    return [
        {
            v: sum(1 << int(c) for c in np.flatnonzero(possible[:, k, i]))
            for i, v in enumerate(leaf.scope)
            if not possible[:, k, i].all()
        }
        for k in range(leaf.units)
    ]


def _joined(parts: Iterable[Support]) -> Support:
    restricted = [p for p in parts if p]
    if len(restricted) <= 1:
        return restricted[0] if restricted else FREE
    return {v: bits for part in restricted for v, bits in part.items()}


def _sum(
    node: Sum, parameters: Parameters, below: Mapping[str, list[Support]]
) -> list[Support] | None:
    """Supports of a sum's units, or None if two inputs of one overlap."""
    inputs = [unit for child in node.children for unit in below[child]]
    units = []
    for row in parameters[node.name][WEIGHT]:
        positive = [inputs[i] for i in np.flatnonzero(row > 0)]
        if not _apart(positive):
            return None
        units.append(_union(positive))
    return units


def _apart(supports: list[Support]) -> bool:
    if len(supports) <= 1:
        return True
    if any(not s for s in supports):
        return False
    common = set(supports[0]).intersection(*supports[1:])
    if any(_disjoint([s[v] for s in supports]) for v in common):
        return True
    pairs = combinations(supports, 2)
    return all(any(not a[v] & b[v] for v in a.keys() & b.keys()) for a, b in pairs)


def _disjoint(sets: Iterable[int]) -> bool:
    seen = 0
    for bits in sets:
        if seen & bits:
            return False
        seen |= bits
    return True


def _union(supports: list[Support]) -> Support:
    if not supports or any(not s for s in supports):
        return FREE
    common = set(supports[0]).intersection(*supports[1:])
    merged = {}
    for v in common:
        bits = 0
        for support in supports:
            bits |= support[v]
        merged[v] = bits
    return merged

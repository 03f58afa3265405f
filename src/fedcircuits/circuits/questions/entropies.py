"""The entropy of a circuit: exact where it is deterministic, within bounds elsewhere.

A circuit draws a row X by choosing an input Z at every sum it reaches, then values of the leaves.
With the probability r that a unit is reached, from the root down,

    H(X | Z) = Σ over leaf units of r · their entropy
    H(Z)     = Σ over sum units of r · H(weights)
    H(X | Z) ≤ H(X) ≤ H(X | Z) + H(Z)

A row of a deterministic circuit tells Z, so that the upper bound is the entropy. Of real columns it
is the differential entropy, which may be negative.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, digamma, entr

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, inline
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.questions.expected_logs import expected_log
from fedcircuits.tables.schema import Schema


def entropy_bounds(circuit: Circuit, parameters: Parameters) -> tuple[float, float]:
    """Between what the entropy lies, in nats; both are equal where the circuit is deterministic."""
    circuit, parameters = inline(circuit, parameters)
    reach = {n.name: np.zeros(circuit.units[n.name]) for n in circuit.nodes}
    reach[circuit.root.name][:] = 1.0
    of_leaves = of_sums = 0.0
    for node in reversed(circuit.nodes):
        share = reach[node.name]
        if isinstance(node, Leaf):
            of_leaves += float(share @ _leaf_entropy(node, parameters[node.name], circuit.schema))
        elif isinstance(node, Sum):
            weight = parameters[node.name][WEIGHT]
            of_sums += float(share @ entr(weight).sum(axis=1))
            sizes = [circuit.units[c] for c in node.children]
            for child, part in zip(
                node.children, np.split(share @ weight, np.cumsum(sizes)[:-1]), strict=True
            ):
                reach[child] += part
        elif isinstance(node, Product) and node.outer:
            pairs = share.reshape([circuit.units[c] for c in node.children])
            reach[node.children[0]] += pairs.sum(axis=1)
            reach[node.children[1]] += pairs.sum(axis=0)
        else:
            for child in node.children:
                reach[child] += share
    most = of_leaves + of_sums
    return (most if is_deterministic(circuit, parameters) else of_leaves), most


def _leaf_entropy(leaf: Leaf, arrays: Arrays, schema: Schema) -> Array:
    """(units,)"""
    rule = family(leaf.family)
    if not isinstance(rule, Family):
        width = len(leaf.scope)
        volume = np.linalg.slogdet(arrays["covariance"])[1]
        return np.asarray(0.5 * (width * np.log(2 * np.pi * np.e) + volume))
    total = np.zeros(leaf.units)
    for i, name in enumerate(leaf.scope):
        arrays_of_unit = {n: a[:, i] for n, a in arrays.items()}
        if rule.name == "student_t":
            total += _t_entropy(arrays_of_unit["degrees"]) + np.log(arrays_of_unit["scale"])
        else:
            _, logs = expected_log(rule, arrays_of_unit, rule, arrays_of_unit, schema[name])
            total -= np.diagonal(logs)
    return total


def _t_entropy(degrees: Array) -> Array:
    half = (degrees + 1) / 2
    spread = half * (digamma(half) - digamma(degrees / 2))
    return np.asarray(spread + 0.5 * np.log(degrees) + betaln(degrees / 2, 0.5))

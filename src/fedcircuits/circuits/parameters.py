"""What a circuit has learned: arrays by node name, apart from the graph.

A sum has ``weight`` (units, inputs), each row a distribution over all units of its children, laid
end to end. A leaf of a one-dimensional family has each parameter as (units, variables, …), of a
joint family as (units, …). A leaf of family "circuit" has a circuit and parameters of its own; it
may be unknown to whoever holds the graph. A party holds the parameters of its own nodes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcircuits.circuits.circuit import CIRCUIT, Circuit, reachable
from fedcircuits.circuits.family import Array, Arrays, Family, family, raise_if_wrong
from fedcircuits.circuits.nodes import Fuse, Leaf, Node, Product, Sum
from fedcircuits.errors import ParameterError

WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class Parameters(Mapping[str, Arrays]):
    values: Mapping[str, Arrays]
    circuits: Mapping[str, tuple[Circuit, Parameters]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Arrays:
        try:
            return self.values[name]
        except KeyError:
            raise ParameterError(f"node {name!r} has no parameters here") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def count(self) -> int:
        """How many numbers were learned."""
        own = sum(a.size for arrays in self.values.values() for a in arrays.values())
        return own + sum(inner.count() for _, inner in self.circuits.values())

    def check(self, circuit: Circuit) -> None:
        """Raise ParameterError unless every node of ``circuit`` has sound values."""
        for node in circuit.nodes:
            if isinstance(node, Sum):
                _check_sum(node, circuit.inputs(node), self[node.name])
            elif isinstance(node, Leaf) and node.family == CIRCUIT:
                _check_inner(node, self.circuits)
            elif isinstance(node, Leaf):
                _check_leaf(node, circuit, self[node.name])


def _check_sum(node: Sum, inputs: int, arrays: Arrays) -> None:
    weight = arrays.get(WEIGHT)
    if weight is None or weight.shape != (node.units, inputs):
        found = "none" if weight is None else str(weight.shape)
        raise ParameterError(
            f"sum {node.name!r}: expected weights of shape {(node.units, inputs)}, got {found}"
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ParameterError(f"sum {node.name!r}: weights must be finite and not negative")
    if np.abs(weight.sum(axis=1) - 1).max() > 1e-6:
        raise ParameterError(
            f"sum {node.name!r}: the weights of every unit must add up to 1, "
            f"got {weight.sum(axis=1).tolist()[:5]}"
        )


def _check_leaf(leaf: Leaf, circuit: Circuit, arrays: Arrays) -> None:
    rule = family(leaf.family)
    variables = tuple(circuit.schema[v] for v in leaf.scope)
    lead: tuple[int, ...]
    if isinstance(rule, Family):
        shapes, lead = rule.shapes(variables[0]), (leaf.units, len(variables))
    else:
        shapes, lead = rule.shapes(variables), (leaf.units,)
    if set(arrays) != set(shapes):
        raise ParameterError(
            f"leaf {leaf.name!r} ({leaf.family}): expected {sorted(shapes)}, got {sorted(arrays)}"
        )
    for name, trailing in shapes.items():
        if not _fits(arrays[name].shape, (*lead, *trailing)):
            raise ParameterError(
                f"leaf {leaf.name!r}: expected {name} of shape {(*lead, *trailing)}, "
                f"got {arrays[name].shape}"
            )
        if not np.isfinite(arrays[name]).all():
            raise ParameterError(f"leaf {leaf.name!r}: {name} must be finite")
    raise_if_wrong(leaf.name, rule.check(arrays))


def _fits(found: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(found) == len(expected) and all(
        e is None or f == e for f, e in zip(found, expected, strict=True)
    )


def _check_inner(leaf: Leaf, circuits: Mapping[str, tuple[Circuit, Parameters]]) -> None:
    if leaf.name not in circuits:
        raise ParameterError(f"leaf {leaf.name!r} is a circuit, but none is given for it")
    inner, parameters = circuits[leaf.name]
    if set(inner.schema.names) != set(leaf.scope):
        raise ParameterError(
            f"leaf {leaf.name!r}: its circuit is over {sorted(inner.schema.names)[:5]}, "
            f"expected {sorted(leaf.scope)[:5]}"
        )
    if inner.units[inner.root.name] != leaf.units:
        raise ParameterError(
            f"leaf {leaf.name!r} has {leaf.units} units, its circuit's root "
            f"{inner.units[inner.root.name]}"
        )
    parameters.check(inner)


# ---------------------------------------------------------------------- circuits as leaves


def inline(circuit: Circuit, parameters: Parameters) -> tuple[Circuit, Parameters]:
    """The same distribution with every circuit leaf replaced by its circuit's nodes.

    The root of leaf ``a``'s circuit takes the name ``a``, the nodes below it ``a/…``.
    """
    if not any(leaf.family == CIRCUIT for leaf in circuit.leaves()):
        return circuit, parameters
    nodes: list[Node] = []
    values: dict[str, Arrays] = dict(parameters.values)
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT:
            if node.name not in parameters.circuits:
                raise ParameterError(f"leaf {node.name!r} is a circuit, but none is given for it")
            inner, learned = inline(*parameters.circuits[node.name])
            names = {n.name: f"{node.name}/{n.name}" for n in inner.nodes}
            names[inner.root.name] = node.name
            nodes.extend(renamed(n, names) for n in inner.nodes)
            values.update({names[n]: arrays for n, arrays in learned.values.items()})
        else:
            nodes.append(node)
    whole = Circuit(reachable(nodes, circuit.root.name), circuit.schema)
    return whole, Parameters(values)


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The node under another name, reading its children under theirs."""
    name, children = names[node.name], tuple(names[c] for c in node.children)
    if isinstance(node, Leaf):
        return Leaf(name, node.family, node.scope, node.units)
    if isinstance(node, Product):
        return Product(name, children, node.outer)
    if isinstance(node, Sum):
        return Sum(name, children, node.units)
    return Fuse(name, children, node.operation, node.units)


def random_weights(circuit: Circuit, rng: np.random.Generator, alpha: float = 1.0) -> dict[str, Arrays]:
    """Dirichlet(alpha) weights for every sum: the start of EM, or a circuit for a test."""
    return {
        n.name: {WEIGHT: _dirichlet(rng, alpha, n.units, circuit.inputs(n))}
        for n in circuit.nodes
        if isinstance(n, Sum)
    }


def _dirichlet(rng: np.random.Generator, alpha: float, units: int, inputs: int) -> Array:
    draws = rng.gamma(alpha, size=(units, inputs)) + 1e-12
    return np.asarray(draws / draws.sum(axis=1, keepdims=True))

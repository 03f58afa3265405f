"""What a circuit has learned: arrays by node name, apart from the graph.

A sum has ``weight`` (units, inputs), each row a distribution over all units of its children, laid
end to end. A leaf of a one-dimensional family has each parameter as (units, variables, …), of a
joint family as (units, …). A leaf of family "circuit" has its own circuit and parameters; it
may be unknown to the holder of the graph. A party holds the parameters of its own nodes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedcircuits.circuits.graph.circuit import (
    CIRCUIT,
    PREDICTOR,
    Circuit,
    Fuse,
    Leaf,
    Node,
    Product,
    Sum,
    reachable,
)
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family, raise_if_wrong
from fedcircuits.errors import ParameterError

WEIGHT = "weight"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parameters:
    """``Parameters({"root": {"weight": np.array([[0.3, 0.7]])}, …})``: arrays of every node."""

    values: Mapping[str, Arrays]
    circuits: Mapping[str, tuple[Circuit, Parameters]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Arrays:
        try:
            return self.values[name]
        except KeyError:
            raise ParameterError(f"node {name!r} has no parameters here") from None

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __eq__(self, other: object) -> bool:
        """Whether both have the same numbers for the same nodes."""
        if not isinstance(other, Parameters):
            return NotImplemented
        same = self.values.keys() == other.values.keys()
        same = same and all(_same(arrays, other[n]) for n, arrays in self.values.items())
        return same and dict(self.circuits) == dict(other.circuits)

    def __repr__(self) -> str:
        inner = f", {len(self.circuits):,} circuits" if self.circuits else ""
        return f"<Parameters of {len(self.values):,} nodes{inner}, {self.count():,} numbers>"

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def count(self) -> int:
        """How many numbers were learned."""
        size = sum(a.size for arrays in self.values.values() for a in arrays.values())
        return size + sum(inner.count() for _, inner in self.circuits.values())

    def check(self, circuit: Circuit) -> None:
        """Raise ParameterError unless every node of ``circuit`` has sound values."""
        for node in circuit.nodes:
            if isinstance(node, Sum):
                _check_sum(node, circuit.inputs(node), self[node.name])
            elif isinstance(node, Leaf) and node.family == CIRCUIT:
                _check_inner(node, circuit, self.circuits)
            elif isinstance(node, Leaf) and node.family != PREDICTOR:
                _check_leaf(node, circuit, self[node.name])


def _same(arrays: Arrays, other: Arrays) -> bool:
    return arrays.keys() == other.keys() and all(
        np.array_equal(a, other[n]) for n, a in arrays.items()
    )


def _check_sum(node: Sum, inputs: int, arrays: Arrays) -> None:
    word = f"sum {node.name!r}"
    _check_names(word, arrays, {WEIGHT})
    weight = arrays[WEIGHT]
    _check_array(word, WEIGHT, weight, (node.units, inputs))
    if (weight < 0).any():
        raise ParameterError(f"{word}: weights must not be negative, got {weight.min()}")
    totals = weight.sum(axis=1)
    unit = int(np.abs(totals - 1).argmax())
    if abs(totals[unit] - 1) > 1e-6:
        raise ParameterError(
            f"{word}: the weights of every unit must add up to 1, those of unit {unit} add up to "
            f"{totals[unit]}"
        )


def _check_leaf(leaf: Leaf, circuit: Circuit, arrays: Arrays) -> None:
    rule = family(leaf.family)
    variables = tuple(circuit.schema[v] for v in leaf.scope)
    lead: tuple[int, ...]
    if isinstance(rule, Family):
        shapes, lead = rule.shapes(variables[0]), (leaf.units, len(variables))
    else:
        shapes, lead = rule.shapes(variables), (leaf.units,)
    word = f"leaf {leaf.name!r} ({leaf.family})"
    _check_names(word, arrays, set(shapes))
    for name, trailing in shapes.items():
        _check_array(word, name, arrays[name], (*lead, *trailing))
    raise_if_wrong(leaf.name, rule.check(arrays))
    size = variables[0].size
    if isinstance(rule, Family) and size and (rule.mass(arrays, -0.5, size - 0.5) < 0.5).any():
        raise ParameterError(f"{word}: its values must be codes below {size}, one is not")


def _check_names(word: str, arrays: Arrays, expected: set[str]) -> None:
    if set(arrays) != expected:
        raise ParameterError(
            f"{word}: expected the parameters {', '.join(sorted(expected))}, got "
            f"{', '.join(sorted(arrays)) or 'none'}"
        )


def _check_array(word: str, name: str, array: Array, shape: tuple[int | None, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64:
        dtype = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise ParameterError(
            f"{word}: {name} must be an array of float64, got {dtype}; "
            "convert it with numpy.asarray(…, dtype=numpy.float64)"
        )
    if not _fits(array.shape, shape):
        expected = str(shape).replace("None", "any")
        raise ParameterError(f"{word}: expected {name} of shape {expected}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ParameterError(f"{word}: {name} must be finite, got NaN or infinite values")


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        e is None or f == e for f, e in zip(shape, expected, strict=True)
    )


def _check_inner(
    leaf: Leaf, circuit: Circuit, circuits: Mapping[str, tuple[Circuit, Parameters]]
) -> None:
    if leaf.name not in circuits:
        raise ParameterError(f"leaf {leaf.name!r} is a circuit, but none is given for it")
    inner, parameters = circuits[leaf.name]
    _check_fit(leaf, circuit, inner)
    try:
        parameters.check(inner)
    except ParameterError as error:
        raise ParameterError(f"in the circuit of leaf {leaf.name!r}: {error}") from None


def _check_fit(leaf: Leaf, circuit: Circuit, inner: Circuit) -> None:
    """Whether a leaf's own circuit speaks of the same variables in the same codes."""
    if set(inner.schema.names) != set(leaf.scope):
        raise ParameterError(
            f"leaf {leaf.name!r}: its circuit is over {sorted(inner.schema.names)[:5]}, "
            f"expected {sorted(leaf.scope)[:5]}"
        )
    for held in inner.schema:
        meant = circuit.schema[held.name]
        if (held.kind, held.categories) != (meant.kind, meant.categories):
            raise ParameterError(
                f"leaf {leaf.name!r}: {held.name!r} is {held.described()} in its circuit, "
                f"expected {meant.described()}"
            )
    if inner.units[inner.root.name] != leaf.units:
        raise ParameterError(
            f"leaf {leaf.name!r} has {leaf.units} units, the root of its circuit has "
            f"{inner.units[inner.root.name]}"
        )


# ---------------------------------------------------------------------- circuits as leaves


def inline(circuit: Circuit, parameters: Parameters) -> tuple[Circuit, Parameters]:
    """The same distribution with every circuit leaf replaced by its circuit's nodes.

    The root of leaf ``a``'s circuit takes the name ``a``, the nodes below it ``a/…``.
    """
    if not any(leaf.family == CIRCUIT for leaf in circuit.leaves()):
        return circuit, parameters
    nodes: list[Node] = []
    values: dict[str, Arrays] = dict(parameters.values)
    taken = set(circuit.by_name)
    for node in circuit.nodes:
        if isinstance(node, Leaf) and node.family == CIRCUIT:
            if node.name not in parameters.circuits:
                raise ParameterError(f"leaf {node.name!r} is a circuit, but none is given for it")
            inner, learned = inline(*parameters.circuits[node.name])
            _check_fit(node, circuit, inner)
            names = _names_under(node.name, inner, taken)
            nodes.extend(renamed(n, names) for n in inner.nodes)
            values.update({names[n]: learned[n] for n in learned if n in names})
        else:
            nodes.append(node)
    whole = Circuit(reachable(nodes, circuit.root.name), circuit.schema)
    return whole, Parameters(values)


def _names_under(leaf: str, inner: Circuit, taken: set[str]) -> dict[str, str]:
    """Names that are still free; a name that is taken gets a prime."""
    names = {inner.root.name: leaf}
    for node in inner.nodes[:-1]:
        name = f"{leaf}/{node.name}"
        while name in taken:
            name += "′"
        taken.add(name)
        names[node.name] = name
    return names


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


def random_weights(
    circuit: Circuit, rng: np.random.Generator, alpha: float = 1.0
) -> dict[str, Arrays]:
    """Dirichlet(alpha) weights for every sum: the start of EM, or a circuit for a test."""
    return {
        n.name: {WEIGHT: _dirichlet(rng, alpha, n.units, circuit.inputs(n))}
        for n in circuit.nodes
        if isinstance(n, Sum)
    }


def _dirichlet(rng: np.random.Generator, alpha: float, units: int, inputs: int) -> Array:
    draws = rng.gamma(alpha, size=(units, inputs)) + 1e-12
    return np.asarray(draws / draws.sum(axis=1, keepdims=True))

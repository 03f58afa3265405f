"""Whether a circuit is a hidden tree with tables as leaves, and how its nodes lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum

Index = npt.NDArray[np.int64]
Listed = tuple[Index, Index]  # pointers, indices
TABLES = ("categorical", "bernoulli")


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Nodes by level, the deepest first and the root last; each has leaves and a sum above it."""

    units: int
    sums: tuple[str, ...]  # names, by node
    leaves: tuple[tuple[str, str, tuple[int, ...]], ...]  # name, family, variables
    variables_of: Listed  # variables of every node
    children: Listed  # nodes below every node
    parent: Index
    levels: tuple[tuple[int, int], ...]  # spans of nodes, the root's apart
    first: Index  # row of the table where each variable begins
    sizes: Index  # levels of each variable

    @classmethod
    def of(cls, circuit: Circuit) -> TreeShape | None:
        """None where the circuit is something else."""
        walked = _walk(circuit)
        if walked is None:
            return None
        below, leaves, depth = walked
        names = sorted(below, key=lambda n: -depth[n])
        number = {name: i for i, name in enumerate(names)}
        schema = circuit.schema
        scopes = {f.name: tuple(map(schema.index, f.scope)) for n in names for f in leaves[n]}
        variables = _listed([[v for f in leaves[n] for v in scopes[f.name]] for n in names])
        parent = np.full(len(names), -1)
        for name, kids in below.items():
            parent[[number[k] for k in kids]] = number[name]
        edges = [i for i, n in enumerate(names) if i == 0 or depth[n] != depth[names[i - 1]]]
        sizes = np.array([v.levels for v in schema])
        return cls(
            next(iter(leaves.values()))[0].units,
            tuple(names),
            tuple((f.name, f.family, scopes[f.name]) for n in names for f in leaves[n]),
            variables,
            _listed([[number[k] for k in below[n]] for n in names]),
            parent,
            tuple(pairwise(edges)),
            np.cumsum([0, *sizes[:-1]]),
            sizes,
        )


def _listed(lists: Sequence[Sequence[int]]) -> Listed:
    pointers = np.array([0, *accumulate(len(x) for x in lists)], np.int64)
    return pointers, np.array([i for x in lists for i in x], np.int64)


Found = tuple[dict[str, list[str]], dict[str, list[Leaf]], dict[str, int]]


def _walk(circuit: Circuit) -> Found | None:
    """For every sum, by name: the sums two steps below it, the leaves beside them, its depth."""
    below: dict[str, list[str]] = {}
    leaves: dict[str, list[Leaf]] = {}
    depth: dict[str, int] = {}
    waiting: list[tuple[Node, int]] = [(circuit.root, 0)]
    while waiting:
        node, level = waiting.pop()
        if not isinstance(node, Sum) or len(node.children) != 1 or node.name in below:
            return None
        parts = _parts(circuit, circuit[node.children[0]])
        leaf_parts = [p for p in parts if isinstance(p, Leaf)]
        sums = [p for p in parts if isinstance(p, Sum)]
        tables = all(leaf.family in TABLES for leaf in leaf_parts)
        if not leaf_parts or not tables or len(leaf_parts) + len(sums) != len(parts):
            return None
        below[node.name], leaves[node.name] = [s.name for s in sums], leaf_parts
        depth[node.name] = level
        waiting += [(s, level + 1) for s in sums]
    units = {leaf.units for leaf_parts in leaves.values() for leaf in leaf_parts}
    units |= {circuit.units[name] for name in below if depth[name]}
    return (below, leaves, depth) if len(units) == 1 and len(below) > 1 else None


def _parts(circuit: Circuit, node: Node) -> list[Node]:
    if not isinstance(node, Product) or node.outer:
        return [node]
    return [part for c in node.children for part in _parts(circuit, circuit[c])]

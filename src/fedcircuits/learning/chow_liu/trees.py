"""Chow–Liu trees: the tree over the variables that keeps the most mutual information.

Discrete columns use their pairwise tables; columns of other kinds or many levels are made coarse
first, for the tree only (coarse.py). The tree's parameters are smoothed frequencies:
P(v | parent) from the same tables, with ``smoothing`` pseudo-rows spread as v's own frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.graph.structures import chow_liu, indicator_codes, parents
from fedcircuits.learning.chow_liu.coarse import coarsened, information, levels_for
from fedcircuits.learning.independence import Index, mutual_information
from fedcircuits.learning.least_counts import pooled
from fedcircuits.tables.schema import Schema, Variable


def spanning_tree(gain: Array, least: float = -np.inf) -> list[tuple[int, int]]:
    """Prim's rule: (variable, parent) pairs of the best tree, parents first; a root's is −1.

    Edges that gain no more than ``least`` are left out: then it is the best forest.
    """
    nearest, best = np.zeros(len(gain), dtype=np.int64), np.full(len(gain), least)
    edges = []
    left = np.ones(len(gain), dtype=bool)
    total = gain.sum(axis=1)
    while left.any():
        new = int(np.where(left, best, -np.inf).argmax())
        if not best[new] > least:
            new = int(np.where(left, total, -np.inf).argmax())
        edges.append((new, int(nearest[new]) if best[new] > least else -1))
        left[new] = False
        closer = left & (gain[new] > best)
        nearest[closer], best[closer] = new, gain[new][closer]
    return edges


def best_tree(schema: Schema, information: Array) -> nx.Graph:
    """The maximum spanning tree of mutual information (columns, columns)."""
    tree = nx.Graph()
    tree.add_nodes_from(schema.names)
    edges = spanning_tree(information)[1:]
    tree.add_edges_from((schema.names[i], schema.names[j]) for i, j in edges)
    return tree


def learn_tree(values: Array, schema: Schema, channels: int = 1) -> nx.Graph:
    """The best tree of coarse columns; with channels, of groups of that many columns, named after
    the first of each, which share the information of all their pairs."""
    codes, sizes = coarsened(values, schema, levels_for(len(schema)))
    return tree_of_groups(schema, information(codes, sizes), channels)


def tree_of_groups(schema: Schema, information: Array, channels: int) -> nx.Graph:
    """The same of the information of all pairs of columns (columns, columns)."""
    groups = len(schema) // channels
    together = information.reshape(groups, channels, groups, channels).sum(axis=(1, 3))
    return best_tree(Schema(schema.variables[::channels]), together)


def chow_liu_circuit(
    schema: Schema, tables: Array, starts: Index, smoothing: float
) -> tuple[Circuit, Parameters]:
    """The tree and its conditional tables, from the pairwise tables of discrete columns."""
    tree = best_tree(schema, mutual_information(tables, starts))
    circuit = chow_liu(schema, tree)
    values: dict[str, Arrays] = dict(indicator_codes(circuit))
    for name, above in parents(tree).items():
        parent = -1 if above is None else schema.index(above)
        weight = conditional(tables, starts, schema.index(name), parent, smoothing)
        values[f"sum:{name}"] = {WEIGHT: weight}
    return circuit, Parameters(values)


def forest_nodes(
    name: str,
    variables: Sequence[Variable],
    edges: Sequence[tuple[int, int]],
    tables: Array,
    starts: Index,
    smoothing: float,
    least: int = 1,
) -> tuple[list[Node], dict[str, Arrays], list[str]]:
    """Trees as nodes of a larger circuit, called ``name/…``, and the names of their roots."""
    below: dict[int, list[str]] = {}
    nodes: list[Node] = []
    values: dict[str, Arrays] = {}
    for child, parent in reversed(edges):
        v = variables[child]
        leaf = Leaf(f"{name}/leaf:{v.name}", "indicator", (v.name,), v.size)
        nodes.append(leaf)
        values[leaf.name] = {"code": np.arange(float(v.size))[:, None]}
        if child in below:
            nodes.append(Product(f"{name}/product:{v.name}", (leaf.name, *below[child])))
        units = 1 if parent < 0 else variables[parent].size
        nodes.append(Sum(f"{name}/sum:{v.name}", (nodes[-1].name,), units))
        weight = conditional(tables, starts, child, parent, smoothing, least)
        values[nodes[-1].name] = {WEIGHT: weight}
        below.setdefault(parent, []).append(nodes[-1].name)
    return nodes, values, below[-1]


def conditional(
    tables: Array, starts: Index, child: int, parent: int, smoothing: float, least: int = 1
) -> Array:
    """P(own | parent), one row per value of the parent; one row for the root. ``least``: the
    smallest number of rows that a count may cover."""
    columns = slice(starts[child], starts[child + 1])
    if parent < 0:
        table = np.diag(tables[columns, columns])[None]
    else:
        table = tables[starts[parent] : starts[parent + 1], columns]
    base = pooled(table.sum(axis=0), least) + max(smoothing, 1e-9)
    table = pooled(table, least, base)
    counts = table + max(smoothing, 1e-9) * base / base.sum()
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))

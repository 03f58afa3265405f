"""Chow–Liu trees: the tree over the variables that keeps the most mutual information.

Discrete columns use their pairwise tables; with mixed columns, reals and counts are cut into
equally filled bins first, for the tree only. The tree's parameters are smoothed frequencies:
P(v | parent) from the same tables.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.family import Array, Arrays
from fedcircuits.circuits.parameters import WEIGHT, Parameters
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.circuits.structures import chow_liu, indicator_codes, parents
from fedcircuits.learning.independence import Index, OneHot, mutual_information, pair_tables

BINS = 8


def best_tree(schema: Schema, information: Array) -> nx.Graph:
    """The maximum spanning tree of mutual information (columns, columns)."""
    tree = nx.Graph()
    tree.add_nodes_from(schema.names)
    cost = 1.0 + information.max() - np.triu(information, 1)  # positive: 0 would be no edge
    found = minimum_spanning_tree(np.triu(cost, 1)).tocoo()
    pairs = zip(found.row, found.col, strict=True)
    tree.add_edges_from((schema.names[i], schema.names[j]) for i, j in pairs)
    return tree


def binned(values: Array, schema: Schema) -> tuple[Array, tuple[Variable, ...]]:
    """Reals and counts as codes of equally filled bins; NaN stays."""
    out, variables = values.copy(), []
    for i, variable in enumerate(schema.variables):
        if variable.size:
            variables.append(variable)
            continue
        seen = ~np.isnan(values[:, i])
        cuts = np.unique(np.quantile(values[seen, i], np.linspace(0, 1, BINS + 1)[1:-1]))
        out[seen, i] = np.searchsorted(cuts, values[seen, i], side="right")
        variables.append(Variable(variable.name, "category", tuple(range(len(cuts) + 1))))
    return out, tuple(variables)


def learn_tree(values: Array, schema: Schema, weight: Array | None = None) -> nx.Graph:
    codes, variables = binned(values, schema)
    hot = OneHot.of(codes, variables)
    weights = None if weight is None else weight.astype(np.float32)
    return best_tree(schema, mutual_information(pair_tables(hot.matrix, weights), hot.starts))


def chow_liu_circuit(
    schema: Schema, tables: Array, starts: Index, smoothing: float
) -> tuple[Circuit, Parameters]:
    """The tree and its conditional tables, from the pairwise tables of discrete columns."""
    tree = best_tree(schema, mutual_information(tables, starts))
    circuit = chow_liu(schema, tree)
    above = parents(tree)
    values: dict[str, Arrays] = dict(indicator_codes(circuit))
    for name in schema.names:
        own = slice(*_span(schema, starts, name))
        if (parent := above[name]) is not None:
            table = tables[slice(*_span(schema, starts, parent)), own]
        else:
            table = np.diag(tables[own, own])[None]
        base = table.sum(axis=0) + smoothing
        prior = smoothing * base / base.sum()
        counts = table + prior
        values[f"sum:{name}"] = {WEIGHT: counts / counts.sum(axis=1, keepdims=True)}
    return circuit, Parameters(values)


def _span(schema: Schema, starts: Index, name: str) -> tuple[int, int]:
    at = schema.index(name)
    return int(starts[at]), int(starts[at + 1])

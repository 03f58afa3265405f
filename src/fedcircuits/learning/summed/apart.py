"""Columns that depend on no other, by summed counts of pairs: they stay outside of all components.

A component that describes such columns together with the others has to fit them as well, mostly by
a normal distribution. Beside the components each of them has one leaf of its own, a histogram where
it is not normal. No component is then chosen for the sake of columns that say nothing about the
others, and where no column depends on any other, the circuit is their independent product.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import by_kind
from fedcircuits.learning.evidence import dependent
from fedcircuits.learning.starts import start_from
from fedcircuits.learning.summed.bins import binned_columns, histogram_start
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows

LEVEL = 0.05  # of significance that columns depend on each other
NORMAL = "multivariate_gaussian"  # whose least variance follows the columns


def columns_apart(rows: ClusteredRows, target: int | None = None) -> list[int]:
    """Numbers of the columns that depend on no other; the target is never among them."""
    if rows.evidence is None:
        return []
    alone = ~dependent(rows.evidence, LEVEL, target).any(axis=1)
    return [int(i) for i in np.flatnonzero(alone) if i != target]


def of_columns(rows: ClusteredRows, columns: list[int]) -> ClusteredRows:
    """The same rows with some of their columns."""
    sketch, names = rows.sketch, [rows.sketch.schema.names[i] for i in columns]
    part = replace(
        sketch,
        schema=sketch.schema.select(names),
        edges=tuple(sketch.edges[i] for i in columns),
        counts=tuple(sketch.counts[i] for i in columns),
    )
    both = np.ix_(columns, columns)
    evidence = None if rows.evidence is None else rows.evidence[both]
    values, information = rows.values[:, columns], rows.information[both]
    return replace(rows, values=values, information=information, sketch=part, evidence=evidence)


def beside(inner: Beginning | None, rows: ClusteredRows, alone: list[int]) -> Beginning:
    """A circuit of the other columns, if there are any, times one leaf of each of these."""
    part, every = of_columns(rows, alone), np.ones((len(rows.values), 1))
    schema, binned = part.sketch.schema, binned_columns(part.sketch, single=True)
    values = dict(inner.start.values) if inner else {}
    leaves = []
    for i, variable in enumerate(schema):
        usual = NORMAL if variable.kind == "real" else by_kind(variable)
        leaf = Leaf(f"alone:{variable.name}", binned.get(i, usual), (variable.name,))
        leaves.append(leaf)
        x = part.values[:, [i]]
        if i in binned:
            values[leaf.name] = histogram_start(part.sketch, i, x[:, 0], every)
        else:
            single = Circuit((leaf,), schema.select(leaf.scope))
            values |= start_from(single, x, every, np.random.default_rng(0)).values
    nodes: tuple[Node, ...] = (*(inner.circuit.nodes if inner else ()), *leaves)
    if len(nodes) > 1:
        tops = [inner.circuit.root.name] if inner else []
        nodes = (*nodes, Product("columns", (*tops, *(leaf.name for leaf in leaves))))
    rules = inner.rules if inner else None
    return Beginning(Circuit(nodes, rows.sketch.schema), Parameters(values), rules)

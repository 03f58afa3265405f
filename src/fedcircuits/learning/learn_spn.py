"""LearnSPN: a tree of sums and products from alternating splits of rows and columns.

A part of the table (rows × columns) becomes
    a leaf       if it has one column
    a product    if its columns fall into groups that do not depend on each other
    a sum        else, over clusters of its rows
    leaves       side by side, or a Chow–Liu tree, if it has too few rows or no clusters
Gens and Domingos 2013; mixed columns as Molina et al. 2018. No recursion: parts wait on a stack,
records are turned into nodes at the end, children before parents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.family import Array, Arrays
from fedcircuits.circuits.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import WEIGHT, Parameters, renamed
from fedcircuits.circuits.schema import Schema
from fedcircuits.learning.clustering import Features, split_rows
from fedcircuits.learning.independence import (
    Index,
    OneHot,
    dependent_by_g,
    groups,
    pair_tables,
    rdc,
)
from fedcircuits.learning.marginals import Marginals
from fedcircuits.learning.trees import chow_liu_circuit


@dataclass(frozen=True, slots=True)
class Settings:
    min_rows: int = 200  # parts with fewer rows are not split
    clusters: int = 2
    test: Literal["auto", "g", "rdc"] = "auto"
    threshold: float | None = None  # of the test; by default 5 (g) and 0.3 (rdc)
    trees: bool = True  # Chow–Liu trees instead of independent leaves, where columns are discrete
    smoothing: float = 0.1


@dataclass(slots=True)
class Record:
    """A node to be: what it is made of."""

    children: list[int] = field(default_factory=list)
    weights: Array | None = None  # of a sum
    part: tuple[Index, Index] | None = None  # rows and columns of a leaf, or a group of leaves


def learn_spn(
    values: Array,
    schema: Schema,
    settings: Settings,
    rng: np.random.Generator,
    weight: Array | None = None,
) -> tuple[Circuit, Parameters]:
    return _Growth(values, schema, settings, rng, weight).circuit()


class _Growth:
    def __init__(
        self,
        values: Array,
        schema: Schema,
        settings: Settings,
        rng: np.random.Generator,
        weight: Array | None,
    ) -> None:
        self.values, self.schema, self.settings, self.rng = values, schema, settings, rng
        self.weight = (
            np.ones(len(values), np.float32) if weight is None else weight.astype(np.float32)
        )
        self.discrete = all(v.size for v in schema)
        self.by_g = settings.test == "g" or (settings.test == "auto" and self.discrete)
        self.hot = OneHot.of(values, schema.variables) if self.discrete else None
        self.features = Features.of(values, schema)
        self.marginals = Marginals(values, schema, self.weight, settings.smoothing, rng)
        self.records: list[Record] = []

    # ------------------------------------------------------------------ growing

    def grow(self) -> None:
        every_row, every_column = np.arange(len(self.values)), np.arange(len(self.schema))
        self.records.append(Record())
        stack = [(0, every_row, every_column, False)]
        while stack:
            at, rows, columns, tested = stack.pop()
            for child, part in self._split(at, rows, columns, tested):
                stack.append((child, *part))

    def _split(
        self, at: int, rows: Index, columns: Index, tested: bool
    ) -> list[tuple[int, tuple[Index, Index, bool]]]:
        """Decide what record ``at`` is; the parts below it that are still to be decided."""
        record = self.records[at]
        if len(columns) == 1 or len(rows) < self.settings.min_rows:
            record.part = (rows, columns)
            return []
        found = [columns] if tested else self._groups(rows, columns)
        if len(found) > 1:
            return [(self._child(record), (rows, group, True)) for group in found]
        label = split_rows(self.features.part(rows, columns), self.settings.clusters, self.rng)
        parts = [rows[label == k] for k in range(int(label.max()) + 1)]
        if len(parts) == 1:
            record.part = (rows, columns)
            return []
        record.weights = np.array([self.weight[p].sum() for p in parts], dtype=np.float64)
        return [(self._child(record), (p, columns, False)) for p in parts]

    def _child(self, record: Record) -> int:
        self.records.append(Record())
        record.children.append(len(self.records) - 1)
        return len(self.records) - 1

    def _groups(self, rows: Index, columns: Index) -> list[Index]:
        variables = tuple(self.schema.variables[c] for c in columns)
        threshold = self.settings.threshold
        if self.by_g and self.hot is not None:
            tables, starts = self._tables(rows, columns)
            dependent = dependent_by_g(tables, starts, 5.0 if threshold is None else threshold)
        else:
            part = self.values[np.ix_(rows, columns)]
            dependent = rdc(part, variables, self.rng) > (0.3 if threshold is None else threshold)
        return [columns[g] for g in groups(dependent)]

    def _tables(self, rows: Index, columns: Index) -> tuple[Array, Index]:
        assert self.hot is not None
        indicators = self.hot.matrix[np.ix_(rows, self.hot.columns(columns))]
        sizes = np.diff(self.hot.starts)[columns]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return pair_tables(indicators, self.weight[rows]), starts

    # ------------------------------------------------------------------ nodes

    def circuit(self) -> tuple[Circuit, Parameters]:
        self.grow()
        nodes: list[Node] = []
        values: dict[str, Arrays] = {}
        for i in range(len(self.records) - 1, -1, -1):
            record, name = self.records[i], f"n{i}"
            children = tuple(f"n{c}" for c in record.children)
            if record.part is not None:
                self._leaves(name, *record.part, nodes, values)
            elif record.weights is not None:
                nodes.append(Sum(name, children))
                values[name] = {WEIGHT: (record.weights / record.weights.sum())[None]}
            else:
                nodes.append(Product(name, children))
        return Circuit(tuple(nodes), self.schema), Parameters(values)

    def _leaves(
        self, name: str, rows: Index, columns: Index, nodes: list[Node], values: dict[str, Arrays]
    ) -> None:
        if self.settings.trees and self.hot is not None and len(columns) > 1:
            self._tree(name, rows, columns, nodes, values)
            return
        found = self.marginals.of(rows, columns)
        for j, (family, members, arrays) in enumerate(found):
            leaf = name if len(found) == 1 else f"{name}.{j}"
            scope = tuple(self.schema.names[c] for c in members)
            nodes.append(Leaf(leaf, family, scope))
            values[leaf] = arrays
        if len(found) > 1:
            nodes.append(Product(name, tuple(f"{name}.{j}" for j in range(len(found)))))

    def _tree(
        self, name: str, rows: Index, columns: Index, nodes: list[Node], values: dict[str, Arrays]
    ) -> None:
        schema = self.schema.select([self.schema.names[c] for c in columns])
        circuit, parameters = chow_liu_circuit(
            schema, *self._tables(rows, columns), self.settings.smoothing
        )
        names = {n.name: f"{name}/{n.name}" for n in circuit.nodes}
        names[circuit.root.name] = name
        nodes.extend(renamed(n, names) for n in circuit.nodes)
        values.update({names[n]: arrays for n, arrays in parameters.values.items()})

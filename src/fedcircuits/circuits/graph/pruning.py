"""A smaller circuit of the same distribution.

product of products     one product (elementwise ones)
sum of sums             one sum, its weights multiplied out, where that makes no more numbers
child of weight 0       gone
one child, weight 1     the child itself, as for a product of one child
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Node, Product, Sum, reachable
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters


def prune(circuit: Circuit, parameters: Parameters) -> tuple[Circuit, Parameters]:
    """Nodes keep their names and leaves their values; what is left out is found by its name."""
    return _Pruning(circuit, parameters).result()


class _Pruning:
    def __init__(self, circuit: Circuit, parameters: Parameters) -> None:
        self.circuit, self.parameters = circuit, parameters
        self.parents = Counter(c for n in circuit.nodes for c in n.children)
        self.nodes: dict[str, Node] = {}
        self.weights: dict[str, Array] = {}
        self.stands_for: dict[str, str] = {}  # a node that is gone: the node in its place

    def result(self) -> tuple[Circuit, Parameters]:
        for node in self.circuit.nodes:
            if isinstance(node, Sum):
                self._sum(node)
            elif isinstance(node, Product):
                self._product(node)
            else:
                self.nodes[node.name] = node
        root = self._now(self.circuit.root.name)
        left = Circuit(reachable(self.nodes.values(), root), self.circuit.schema)
        return left, self._values(left)

    def _values(self, left: Circuit) -> Parameters:
        values: dict[str, Arrays] = {}
        for node in left.nodes:
            if node.name in self.weights:
                values[node.name] = {WEIGHT: self.weights[node.name]}
            elif node.name in self.parameters:
                values[node.name] = self.parameters[node.name]
        inner = {n: c for n, c in self.parameters.circuits.items() if n in left.by_name}
        return Parameters(values, inner)

    def _now(self, name: str) -> str:
        return self.stands_for.get(name, name)

    def _replace(self, name: str, by: str) -> None:
        self.stands_for[name] = by
        self.parents[by] += self.parents[name] - 1

    def _product(self, node: Product) -> None:
        children: list[str] = []
        for child in map(self._now, node.children):
            below = self.nodes[child]
            joined = isinstance(below, Product) and not below.outer and not node.outer
            children += below.children if joined else (child,)
        if len(children) == 1:
            self._replace(node.name, children[0])
        else:
            self.nodes[node.name] = Product(node.name, tuple(children), node.outer)

    def _sum(self, node: Sum) -> None:
        columns: dict[str, Array] = {}  # the weights (units, inputs) of every child
        whole, start = self.parameters[node.name][WEIGHT], 0
        for child in map(self._now, node.children):
            inputs = self.circuit.units[child]
            part = whole[:, start : start + inputs]
            start += inputs
            for name, weight in self._below(child, part):
                columns[name] = columns[name] + weight if name in columns else weight
        kept = {n: w for n, w in columns.items() if w.any()}
        weight = np.concatenate(list(kept.values()), axis=1)
        if weight.shape == (1, 1):
            self._replace(node.name, next(iter(kept)))
            return
        self.nodes[node.name] = Sum(node.name, tuple(kept), node.units)
        self.weights[node.name] = np.asarray(weight)

    def _below(self, child: str, part: Array) -> list[tuple[str, Array]]:
        """The child with its weights (units, inputs), or what it mixes."""
        below = self.nodes[child]
        if not isinstance(below, Sum) or self.parents[child] > 1:
            return [(child, part)]
        inner = self.weights[child]  # (inputs, their inputs)
        if part.shape[0] * inner.shape[1] > part.size + inner.size:
            return [(child, part)]
        sizes = [self.circuit.units[c] for c in below.children]
        blocks = np.split(part @ inner, np.cumsum(sizes)[:-1], axis=1)
        return list(zip(below.children, blocks, strict=True))

"""Chow–Liu trees inside a circuit, read off instead of evaluated where a row is complete.

A tree is built of sums over indicators: unit u of ``Sum(v)`` is P(v | parent = u), and below it a
product joins the indicators of v with the sums of v's children. A value of v leaves one unit of all
this, so that for a row without gaps the whole tree is

    log p(row) = Σ over its variables of log P(x_v | x_parent)

one number from a table for each variable, without an exponential or a logarithm. Rows with gaps are
summed over the units as all circuits are.

    fork    a product of indicators and of sums over forks, or indicators alone: unit c is possible
            where its variable has the code c, and then what the trees below it say
    limb    a sum over one fork
    top     a fork or limb that something else reads: each of its units is looked up as a whole
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Fork:
    leaf: str  # the indicators
    limbs: tuple[str, ...]  # sums below


@dataclass(frozen=True, slots=True)
class Forests:
    forks: Mapping[str, Fork]  # by name of the product or leaf
    limbs: Mapping[str, str]  # sum → its fork
    tops: tuple[str, ...]
    members: frozenset[str]  # nodes that complete rows can do without, or look up

    @classmethod
    def of(cls, circuit: Circuit) -> Forests:
        readers = Counter(c for n in circuit.nodes for c in n.children)
        forks: dict[str, Fork] = {}
        limbs: dict[str, str] = {}
        for node in circuit.nodes:
            if isinstance(node, Sum) and len(node.children) == 1:
                if node.children[0] in forks and readers[node.children[0]] == 1:
                    limbs[node.name] = node.children[0]
            elif fork := _fork(node, circuit, readers, limbs):
                forks[node.name] = fork
        used = {name for f in forks.values() for name in f.limbs} | set(limbs.values())
        used |= {fork.leaf for name, fork in forks.items() if name != fork.leaf}
        members = frozenset(forks.keys() | limbs.keys())
        tops = tuple(n.name for n in circuit.nodes if n.name in members - used)
        return cls(forks, limbs, tops, members)

    def branches(self, top: str) -> Iterator[tuple[str, str]]:
        """Every sum under a top, itself left out, and the leaf of the fork that it hangs on."""
        stack = [self.limbs.get(top, top)]
        while stack:
            fork = self.forks[stack.pop()]
            for limb in fork.limbs:
                yield limb, fork.leaf
                stack.append(self.limbs[limb])

    def leaf(self, name: str) -> str:
        """The indicators of a fork, or of a limb's."""
        return self.forks[self.limbs.get(name, name)].leaf


def _fork(
    node: Node, circuit: Circuit, readers: Counter[str], limbs: Mapping[str, str]
) -> Fork | None:
    if isinstance(node, Leaf):
        return Fork(node.name, ()) if _indicates(node) else None
    if not isinstance(node, Product) or node.outer:
        return None
    leaves = [c for c in node.children if _indicates(circuit[c])]
    rest = tuple(c for c in node.children if c not in leaves)
    known = len(leaves) == 1 and all(c in limbs for c in rest)
    alone = all(readers[c] == 1 for c in node.children)
    return Fork(leaves[0], rest) if known and alone else None


def _indicates(node: Node) -> bool:
    return isinstance(node, Leaf) and node.family == "indicator" and len(node.scope) == 1


# ---------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class Tables:
    """What complete rows look up: entry start + width · parent's code + own code."""

    branches: Ints  # (branches, 4): own and parent's place in columns, start, width
    logs: Array
    spans: Mapping[str, tuple[Ints, ...]]  # the branches of every unit of a top
    columns: Ints  # of the schema, that the trees are over
    levels: Ints  # of these

    def codes(self, x: Array) -> Codes | None:
        """(columns, rows) of complete rows x; None where a value is no code of its column."""
        part = x[:, self.columns]
        codes = part.astype(np.int32)
        known = (codes == part) & (codes >= 0) & (codes < self.levels)
        return np.ascontiguousarray(codes.T) if bool(known.all()) else None


class _Tabling:
    def __init__(
        self,
        forests: Forests,
        circuit: Circuit,
        weights: Mapping[str, Array],
        codes: Mapping[str, Array],
    ) -> None:
        self.forests, self.circuit, self.weights = forests, circuit, weights
        self.rows: list[tuple[int, int, int, int]] = []
        self.parts: list[Array] = []
        self.size = 0
        self.units = {leaf: np.argsort(columns.reshape(-1)) for leaf, columns in codes.items()}

    def column(self, leaf: str) -> int:
        node = self.circuit[leaf]
        assert isinstance(node, Leaf)
        return self.circuit.schema.index(node.scope[0])

    def add(self, leaf: str, above: str | None, table: Array) -> int:
        """P(leaf's variable | above's) (codes above or 1, codes); its number."""
        units = self.column(leaf)
        width = 0 if above is None else table.shape[1]
        self.rows.append((units, units if above is None else self.column(above), self.size, width))
        with np.errstate(divide="ignore"):
            self.parts.append(np.maximum(np.log(table), IMPOSSIBLE).reshape(-1))
        self.size += table.size
        return len(self.rows) - 1

    def top(self, name: str) -> tuple[Ints, ...]:
        leaf = self.forests.leaf(name)
        below = [
            self.add(leaf_of, above, self.weights[limb][self.units[above]][:, self.units[leaf_of]])
            for limb, above in self.forests.branches(name)
            for leaf_of in [self.forests.leaf(limb)]
        ]
        heads = self.weights.get(name, np.eye(len(self.units[leaf])))[:, self.units[leaf]]
        return tuple(np.array([self.add(leaf, None, head[None]), *below]) for head in heads)


def tables(
    forests: Forests, circuit: Circuit, weights: Mapping[str, Array], codes: Mapping[str, Array]
) -> Tables | None:
    """From the weights of sums and the codes of indicators; None unless every leaf has all codes
    of its variable."""
    for leaf, unit_codes in codes.items():
        node = circuit[leaf]
        assert isinstance(node, Leaf)
        whole = np.arange(circuit.schema[node.scope[0]].levels)
        if not np.array_equal(np.sort(unit_codes.reshape(-1)), whole):
            return None
    made = _Tabling(forests, circuit, weights, codes)
    spans = {name: made.top(name) for name in forests.tops}
    rows = np.array(made.rows, dtype=np.int64)
    columns, place = np.unique(rows[:, :2], return_inverse=True)
    rows[:, :2] = place.reshape(-1, 2)
    levels = np.array([circuit.schema.variables[c].levels for c in columns])
    return Tables(rows, np.concatenate(made.parts), spans, columns, levels)

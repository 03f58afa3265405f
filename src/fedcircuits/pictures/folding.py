"""A circuit folded by layers: a few dozen boxes for a graph of any size.

The level of a node is the longest path from it to a leaf. Nodes with the same level, kind,
family and units form a box; all edges between two boxes form a band. If there are too many
boxes, units are merged into ranges first, then families, then neighbouring levels into one row.
The root keeps a row of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Node, Product, Sum

MOST_ROWS, MOST_IN_A_ROW = 13, 4
Range = tuple[int, int]  # fewest and most


@dataclass(frozen=True, slots=True)
class Box:
    row: int  # 0 has the leaves
    kind: str  # sum, product, leaf or fuse
    words: str  # "outer product", "gaussian leaf"
    nodes: int
    units: Range
    variables: Range  # in the scope of one node


@dataclass(frozen=True, slots=True)
class Folded:
    boxes: tuple[Box, ...]
    bands: Mapping[tuple[int, int], int]  # (parent, child) as positions in boxes → edges
    levels: tuple[Range, ...]  # of every row


def levels(circuit: Circuit) -> dict[str, int]:
    """The longest path from every node to a leaf."""
    level: dict[str, int] = {}
    for node in circuit.nodes:
        level[node.name] = 1 + max((level[c] for c in node.children), default=-1)
    return level


def edges(circuit: Circuit) -> int:
    return sum(len(n.children) for n in circuit.nodes)


def kind_of(node: Node) -> str:
    return type(node).__name__.lower()


def words_of(node: Node) -> str:
    if isinstance(node, Leaf):
        return f"{node.family.replace('_', ' ')} leaf"
    if isinstance(node, Fuse):
        return f"{node.operation} fuse"
    return "outer product" if isinstance(node, Product) and node.outer else kind_of(node)


def fold(circuit: Circuit) -> Folded:
    level = levels(circuit)
    row = _rows(circuit, level)
    details: list[Callable[[Node], Hashable]] = [
        lambda n: (words_of(n), circuit.units[n.name]),
        words_of,
        kind_of,
    ]
    for detail in details:
        groups: dict[tuple[int, Hashable], list[Node]] = {}
        for node in circuit.nodes:
            groups.setdefault((row[node.name], detail(node)), []).append(node)
        if max(Counter(r for r, _ in groups).values()) <= MOST_IN_A_ROW:
            break
    boxes = tuple(_box(r, nodes, circuit) for (r, _), nodes in groups.items())
    home = {n.name: i for i, nodes in enumerate(groups.values()) for n in nodes}
    bands = Counter((home[n.name], home[c]) for n in circuit.nodes for c in n.children)
    spans: dict[int, list[int]] = {}
    for name, r in row.items():
        spans.setdefault(r, []).append(level[name])
    return Folded(boxes, bands, tuple(_range(spans[r]) for r in sorted(spans)))


def _rows(circuit: Circuit, level: Mapping[str, int]) -> dict[str, int]:
    """Rows from the bottom: the leaves, the levels between in steps, the root."""
    top = level[circuit.root.name]
    step = -(-max(top - 1, 1) // (MOST_ROWS - 2))
    row = {name: 0 if at == 0 else 1 + (at - 1) // step for name, at in level.items()}
    row[circuit.root.name] = 0 if top == 0 else 1 + -(-(top - 1) // step)
    return row


def _box(row: int, nodes: list[Node], circuit: Circuit) -> Box:
    alike = len({words_of(n) for n in nodes}) == 1
    return Box(
        row,
        kind_of(nodes[0]),
        words_of(nodes[0]) if alike else kind_of(nodes[0]),
        len(nodes),
        _range([circuit.units[n.name] for n in nodes]),
        _range([len(circuit.scopes[n.name]) for n in nodes]),
    )


def _range(numbers: list[int]) -> Range:
    return min(numbers), max(numbers)


def weights(circuit: Circuit) -> int:
    """The number of weights of its sums."""
    return sum(n.units * circuit.inputs(n) for n in circuit.nodes if isinstance(n, Sum))

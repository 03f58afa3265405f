"""A small circuit node by node: the root on the left, its leaves in one column on the right.

Columns are levels (the longest path to a leaf), so every edge points to the right. The leaves
are in depth-first order, so that the edges of a tree hardly cross. With parameters, the edges of
a sum are as wide as their weights; a child with few units gets one line per unit.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Node, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.pictures.drawing import (
    EDGE,
    FAINT,
    INK,
    TEXT,
    Drawing,
    label,
    rounded_box,
    sheet,
    shortened,
    text_width,
)
from fedcircuits.pictures.folding import kind_of, levels

MOST_NODES, MOST_LEAVES, MOST_LEVELS = 60, 36, 12
LINE, APART, COLUMN = 0.27, 0.38, 0.72  # inches: leaves, other nodes of a column, columns
RADIUS, FOOT = 0.11, 0.3
MOST_LINES = 8  # units of a child that get a line each
SIGN = {"sum": "⊕", "product": "⊗", "fuse": "⊙"}
Place = tuple[float, float]


def is_small(circuit: Circuit) -> bool:
    if len(circuit) > MOST_NODES or sum(1 for _ in circuit.leaves()) > MOST_LEAVES:
        return False
    return max(levels(circuit).values()) < MOST_LEVELS


def node_drawing(circuit: Circuit, parameters: Parameters | None) -> Drawing:
    places, height = _places(circuit)
    names = max(text_width(_scope(leaf)) + 0.16 for leaf in circuit.leaves())
    kinds = max(text_width(_family(leaf), TEXT - 1) for leaf in circuit.leaves())
    leaves_at = max(x for x, _ in places.values())
    width = leaves_at + names + 0.1 + kinds

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = sheet(figure, left, bottom, width, height)
        for node in circuit.nodes:
            _paint_edges(axes, node, circuit, places, parameters)
        for node in circuit.nodes:
            if isinstance(node, Leaf):
                _paint_leaf(axes, node, places[node.name], names)
            else:
                _paint_node(axes, node, circuit.units[node.name], places[node.name])

    return Drawing(width, height, paint)


# ---------------------------------------------------------------------- where nodes stand


def _places(circuit: Circuit) -> tuple[dict[str, Place], float]:
    """Centres of nodes and left ends of leaves, and the total height."""
    level = levels(circuit)
    top = level[circuit.root.name]
    rows = _heights(circuit, level)
    lowest, highest = min(rows.values()), max(rows.values())
    x = {name: RADIUS + 0.02 + COLUMN * (top - at) for name, at in level.items()}
    places = {name: (x[name], y - lowest + FOOT) for name, y in rows.items()}
    return places, highest - lowest + FOOT + 0.2


def _heights(circuit: Circuit, level: dict[str, int]) -> dict[str, float]:
    order = _walk(circuit)
    fullest = max(Counter(at for at in level.values() if at).values(), default=0)
    line = max(LINE, APART * fullest / len(order))
    height = {name: -line * i for i, name in enumerate(order)}
    for at in range(1, max(level.values()) + 1):
        column = [n for n in circuit.nodes if level[n.name] == at]
        wanted = {n.name: float(np.mean([height[c] for c in n.children])) for n in column}
        names = sorted(wanted, key=lambda n: -wanted[n])
        height.update(zip(names, _apart([wanted[n] for n in names]), strict=True))
    return height


def _walk(circuit: Circuit) -> list[str]:
    """The leaves in depth-first order."""
    order: dict[str, None] = {}
    seen: set[str] = set()
    stack = [circuit.root.name]
    while stack:
        node = circuit[stack.pop()]
        if node.name in seen:
            continue
        seen.add(node.name)
        if isinstance(node, Leaf):
            order[node.name] = None
        stack.extend(reversed(node.children))
    return list(order)


def _apart(wanted: list[float]) -> list[float]:
    """Descending heights moved as little as needed to be APART, and centred again."""
    placed: list[float] = []
    for y in wanted:
        placed.append(min(y, placed[-1] - APART) if placed else y)
    shift = float(np.mean(wanted)) - float(np.mean(placed))
    return [y + shift for y in placed]


# ---------------------------------------------------------------------- what they look like


def _paint_node(axes: Axes, node: Node, units: int, place: Place) -> None:
    kind = kind_of(node)
    x, y = place
    behind = {"boxstyle": "circle,pad=0.05", "facecolor": "white", "edgecolor": "none"}
    style = {"ha": "center", "zorder": 4}
    label(axes, x, y, SIGN[kind], EDGE[kind], 13, va="center_baseline", bbox=behind, **style)
    note = f"×{units}" if units > 1 else ""
    if isinstance(node, Fuse):
        note = f"{shortened(node.operation, 9)} {note}".strip()
    if note:
        label(axes, x, y - RADIUS, note, FAINT, 6.5, va="top", **style)


def _paint_leaf(axes: Axes, leaf: Leaf, place: Place, width: float) -> None:
    x, y = place
    rounded_box(axes, x, y - 0.1, width, 0.2, "leaf", 0.05, 0.8)
    style = {"va": "center_baseline", "zorder": 4}
    label(axes, x + 0.07, y, _scope(leaf), INK, TEXT, **style)
    label(axes, x + width + 0.08, y, _family(leaf), FAINT, TEXT - 1, **style)


def _scope(leaf: Leaf) -> str:
    more = f" + {len(leaf.scope) - 1} more" if len(leaf.scope) > 1 else ""
    return shortened(leaf.scope[0], 24) + more


def _family(leaf: Leaf) -> str:
    return leaf.family.replace("_", " ") + (f" ×{leaf.units}" if leaf.units > 1 else "")


def _paint_edges(
    axes: Axes,
    node: Node,
    circuit: Circuit,
    places: dict[str, Place],
    parameters: Parameters | None,
) -> None:
    for child, shares in zip(node.children, _shares(node, circuit, parameters), strict=True):
        (x0, y0), (x1, y1) = places[node.name], places[child]
        spread = 0.035 * (np.arange(len(shares)) - (len(shares) - 1) / 2)
        for share, aside in zip(shares, spread, strict=True):
            axes.plot(
                [x0, min(x0 + COLUMN, x1), x1],  # a long edge turns first, then runs level
                [y0 + aside, y1 + aside, y1 + aside],
                color=EDGE["sum"] if isinstance(node, Sum) else "#b8c2cc",
                linewidth=0.35 + 4.0 * share,
                alpha=0.8 if isinstance(node, Sum) else 1.0,
                solid_capstyle="round",
                zorder=1,
            )


def _shares(node: Node, circuit: Circuit, parameters: Parameters | None) -> list[Array]:
    """The weights of every child's units, averaged over the units of the node; one line without
    parameters."""
    if not isinstance(node, Sum) or parameters is None or node.name not in parameters:
        return [np.full(1, 0.2)] * len(node.children)
    weight = parameters[node.name][WEIGHT].mean(axis=0)  # (inputs,)
    ends = np.cumsum([circuit.units[c] for c in node.children])
    blocks = np.split(weight, ends[:-1])
    return [b if len(b) <= MOST_LINES else b.sum(keepdims=True) for b in blocks]

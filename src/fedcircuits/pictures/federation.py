"""Pictures of a federation: where the nodes of its circuit are held, and how many bytes were
sent.

A federated circuit is drawn from its root at the top to its leaves, which are grouped by party.
A leaf is a whole circuit held by its party; everything above is held by the coordinator. Edges
of the root are as wide as their weights.

With many leaves, single edges cannot be followed. Each party is then a panel with a square per
circuit, sorted and shaded by weight: the share of rows that it describes. One band leads from
the combinations, held by the coordinator, to each party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.placement import Placement
from fedcircuits.pictures.drawing import FAINT, INK, TEXT, Drawing, axes_at, label, sheet
from fedcircuits.pictures.folding import levels
from fedcircuits.pictures.panels import COLOURS, WIDE, panels_drawing

PHASES = ("#c9d6e3", "#8fb0d3", "#2563a8", "#1f3a5f", "#b45309", "#e0a458")
ROW, FOOT = 1.15, 0.75  # inches
MOST_LEAVES, MOST_NODES = 12, 40  # that are drawn one by one
Place = tuple[float, float]


def federated_drawing(
    circuit: Circuit, placement: Placement, parties: Sequence[str], weights: Array
) -> Drawing:
    """``weights`` (children,) are those of the root."""
    if sum(1 for _ in circuit.leaves()) > MOST_LEAVES or len(circuit) > MOST_NODES:
        return panels_drawing(circuit, placement, parties, weights)
    places = _places(circuit, placement, parties)
    colour = {party: COLOURS[i % len(COLOURS)] for i, party in enumerate(parties)}
    height = FOOT + max(y for _, y in places.values()) + 0.3

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = sheet(figure, left, bottom, WIDE, height)
        axes.set_ylim(-FOOT, height - FOOT)
        for node in circuit.nodes:
            width = weights / weights.max() if node == circuit.root else None
            _paint_edges(axes, node, places, placement, colour, width)
        for node in circuit.nodes:
            _paint_node(axes, node, places[node.name], colour.get(placement[node.name], INK))
        for party in parties:
            leaves = [n.name for n in circuit.leaves() if placement[n.name] == party]
            middle = float(np.mean([places[n][0] for n in leaves]))
            circuits = f"{len(leaves)} circuits" if len(leaves) > 1 else "1 circuit"
            style = {"ha": "center", "va": "center", "zorder": 4}
            label(axes, middle, -0.34, party, colour[party], TEXT + 2, weight="bold", **style)
            label(axes, middle, -0.56, circuits, FAINT, TEXT, **style)

    return Drawing(WIDE, height, paint)


def _places(circuit: Circuit, placement: Placement, parties: Sequence[str]) -> dict[str, Place]:
    """Leaves by party, every other level in the order of its children."""
    level = levels(circuit)
    order = {party: i for i, party in enumerate(parties)}
    leaves = sorted(circuit.leaves(), key=lambda n: order[placement[n.name]])
    gaps = [order[placement[n.name]] for n in leaves]  # one step more between two parties
    at = np.arange(len(leaves)) + 1.2 * np.array(gaps)
    span = WIDE - 0.4
    xs = 0.2 + span * (at - at[0]) / max(at[-1] - at[0], 1)
    places = {n.name: (float(x), 0.0) for n, x in zip(leaves, xs, strict=True)}
    for height in range(1, max(level.values()) + 1):
        row = [n for n in circuit.nodes if level[n.name] == height]
        below = {n.name: float(np.mean([places[c][0] for c in n.children])) for n in row}
        row.sort(key=lambda n: below[n.name])
        step = span / len(row)
        for i, node in enumerate(row):
            places[node.name] = (0.2 + step * (i + 0.5), ROW * height)
    return places


def _paint_edges(
    axes: Axes,
    node: Node,
    places: Mapping[str, Place],
    placement: Placement,
    colour: Mapping[str, str],
    widths: Array | None,
) -> None:
    (x, y), children = places[node.name], node.children
    for i, child in enumerate(children):
        wide = 0.7 if widths is None else 0.3 + 4 * float(widths[i])
        ends = [x, places[child][0]], [y, places[child][1]]
        tone = colour.get(placement[child], INK)
        axes.plot(*ends, color=tone, linewidth=wide, alpha=0.35, zorder=1)


def _paint_node(axes: Axes, node: Node, place: Place, colour: str) -> None:
    if isinstance(node, Leaf):
        axes.plot(*place, "s", color=colour, markersize=9, zorder=3)
    elif isinstance(node, Sum):
        axes.plot(*place, "o", color="white", markeredgecolor=colour, markersize=13, zorder=3)
        axes.plot(*place, "+", color=INK, markersize=7, zorder=4)
    else:
        axes.plot(*place, "o", color=colour, markersize=3.5, zorder=3)


# ---------------------------------------------------------------------- bytes


def bytes_drawing(ledgers: Mapping[str, Ledger]) -> Drawing:
    """One bar per run, divided into phases."""
    phases = list(dict.fromkeys(e.phase for ledger in ledgers.values() for e in ledger))
    height = 0.42 * len(ledgers) + 0.8

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = axes_at(figure, left + 1.2, bottom + 0.45, WIDE - 1.4, height - 0.8)
        for row, ledger in enumerate(ledgers.values()):
            start = 0.0
            for i, phase in enumerate(phases):
                size = sum(e.bytes for e in ledger if e.phase == phase) / 1000
                axes.barh(
                    row, size, left=start, color=PHASES[i % len(PHASES)], height=0.62,
                    label=phase if row == 0 else None,
                )  # fmt: skip
                start += size
            text = f" {start:,.1f} kB"
            axes.text(start, row, text, va="center", size=TEXT, color=INK)
        axes.set_yticks(range(len(ledgers)), list(ledgers), size=TEXT + 1, parse_math=False)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel("kB that crossed", size=TEXT, color=FAINT)
        axes.tick_params(labelsize=TEXT, length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.legend(
            ncols=len(phases), frameon=False, fontsize=TEXT, loc="lower left",
            bbox_to_anchor=(0, 1.0), borderaxespad=0.1,
        )  # fmt: skip

    return Drawing(WIDE, height, paint)

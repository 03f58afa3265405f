"""Pictures of a federation: where the nodes of its circuit are held, and how many bytes were sent.

A federated circuit is drawn from its root at the top to its leaves, which are grouped by party.
A leaf is a whole circuit held by its party; everything above is held by the coordinator. Edges
of the root are as wide as their weights.

With many leaves, single edges cannot be followed. Each party is then a panel with a square per
circuit, sorted and shaded by weight: the total weight of the children of the root that contain it.
One band leads from the sums and products, held by the coordinator, to each party. If there are many
parties, or many circuits of one, only the first are drawn and the others counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.messages import Ledger
from fedcircuits.federation.placement import Placement
from fedcircuits.pictures.drawing import (
    FAINT,
    INK,
    TEXT,
    Drawing,
    axes_at,
    label,
    rounded_box,
    sheet,
    shortened,
)
from fedcircuits.pictures.folding import levels
from fedcircuits.pictures.graph import graph_drawing

COLOURS = ("#2563a8", "#b45309", "#2f7d4a", "#7c3f9e", "#b3304a", "#0f766e", "#6b7785", "#a16207")
WIDE = 8.6  # inches of all
ACROSS, MOST_PANELS, MOST_SQUARES = 4, 16, 120
SQUARE, GAP, HEAD, TOP, BAND = 0.19, 0.25, 0.42, 0.5, 0.55  # inches
FAINTEST = 0.12


@dataclass(frozen=True, slots=True)
class PartyPanel:
    name: str
    shares: tuple[float, ...]  # of its circuits, falling
    columns: int
    colour: str


def panels_drawing(
    circuit: Circuit, placement: Placement, parties: Sequence[str], weights: Array
) -> Drawing:
    """``weights`` (children,) are those of the root."""
    every = _parties(circuit, placement, parties, weights)
    shown, hidden = every[:MOST_PANELS], every[MOST_PANELS:]
    across = min(ACROSS, len(shown))
    width = (WIDE - GAP * (across - 1)) / across
    per_row = int(width / SQUARE)
    rows = [shown[i : i + across] for i in range(0, len(shown), across)]
    heights = [HEAD + SQUARE * max(_lines(p, per_row) for p in row) + GAP for row in rows]
    foot = 0.25 if hidden else 0.0
    height = TOP + BAND + sum(heights) + foot

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = sheet(figure, left, bottom, WIDE, height)
        inner = len(circuit.nodes) - sum(1 for _ in circuit.leaves())
        _paint_top(axes, inner, height)
        top = height - TOP - BAND
        for row, tall in zip(rows, heights, strict=True):
            for i, party in enumerate(row):
                x = i * (width + GAP)
                if row is rows[0]:
                    _paint_band(axes, x + width / 2, top, height - TOP, party)
                _paint_party(axes, x, top, per_row, party)
            top -= tall
        if hidden:
            circuits = sum(len(p.shares) for p in hidden)
            note = f"and {len(hidden):,} more parties with {circuits:,} circuits"
            label(axes, 0, 0.08, note, FAINT, TEXT)

    return Drawing(WIDE, height, paint)


def _parties(
    circuit: Circuit, placement: Placement, parties: Sequence[str], weights: Array
) -> list[PartyPanel]:
    shares, columns = leaf_shares(circuit, weights), dict[str, set[str]]()
    scores: dict[str, list[float]] = {party: [] for party in parties}
    for leaf in circuit.leaves():
        party = placement[leaf.name]
        scores.setdefault(party, []).append(shares[leaf.name])
        columns.setdefault(party, set()).update(leaf.scope)
    return [
        PartyPanel(
            party,
            tuple(sorted(values, reverse=True)),
            len(columns.get(party, ())),
            COLOURS[i % len(COLOURS)],
        )
        for i, (party, values) in enumerate(scores.items())
    ]


def leaf_shares(circuit: Circuit, weights: Array) -> Mapping[str, float]:
    """The total weight of the children of the root that contain each leaf."""
    below: dict[str, frozenset[str]] = {}
    for node in circuit.nodes:
        mine = [below[c] for c in node.children]
        below[node.name] = frozenset().union(*mine) if mine else frozenset({node.name})
    shares = dict.fromkeys((leaf.name for leaf in circuit.leaves()), 0.0)
    for child, weight in zip(circuit.root.children, weights, strict=True):
        for name in below[child]:
            shares[name] += float(weight)
    return shares


def _lines(party: PartyPanel, per_row: int) -> int:
    number = min(len(party.shares), MOST_SQUARES)
    return math.ceil(number / per_row) + (len(party.shares) > MOST_SQUARES)


def _paint_top(axes: Axes, nodes: int, height: float) -> None:
    words = f"⊕  {nodes:,} sums and products, at the coordinator"
    wide = 3.6
    rounded_box(axes, (WIDE - wide) / 2, height - TOP + 0.06, wide, 0.36, "sum", 0.08, 1.1)
    style = {"ha": "center", "va": "center", "zorder": 4}
    label(axes, WIDE / 2, height - TOP + 0.24, words, INK, TEXT + 1, weight="bold", **style)


def _paint_band(axes: Axes, x: float, bottom: float, top: float, party: PartyPanel) -> None:
    middle, start = (top + bottom) / 2, WIDE / 2 + 0.25 * (x - WIDE / 2)
    ends = [(start, top + 0.06), (start, middle), (x, middle), (x, bottom)]
    path = Path(ends, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    wide = 1.5 + 2 * math.log1p(len(party.shares))
    axes.add_patch(
        PathPatch(path, facecolor="none", edgecolor=party.colour, linewidth=wide, alpha=0.35)
    )


def _paint_party(axes: Axes, left: float, top: float, per_row: int, party: PartyPanel) -> None:
    number = len(party.shares)
    name = shortened(party.name, 22)
    label(axes, left, top - 0.16, name, party.colour, TEXT + 2, weight="bold", zorder=4)
    wide = f"{party.columns:,} column{'' if party.columns == 1 else 's'}"
    circuits = f"{number:,} circuit{'' if number == 1 else 's'} of {wide}"
    label(axes, left, top - 0.34, circuits, FAINT, TEXT, zorder=4)
    most = max(party.shares, default=1.0) or 1.0
    for i, share in enumerate(party.shares[:MOST_SQUARES]):
        x = left + SQUARE * (i % per_row)
        y = top - HEAD - SQUARE * (i // per_row + 1)
        tone = FAINTEST + (1 - FAINTEST) * math.sqrt(share / most)
        colour = tuple(1 - tone * (1 - c) for c in to_rgb(party.colour))
        size = SQUARE * 0.82
        axes.add_patch(
            Rectangle((x, y), size, size, facecolor=colour, edgecolor=party.colour, linewidth=0.5)
        )
    if number > MOST_SQUARES:
        y = top - HEAD - SQUARE * (math.ceil(MOST_SQUARES / per_row) + 0.7)
        label(axes, left, y, f"and {number - MOST_SQUARES:,} more of little weight", FAINT, TEXT)


PHASES = ("#c9d6e3", "#8fb0d3", "#2563a8", "#1f3a5f", "#b45309", "#e0a458")
ROW, FOOT = 1.15, 0.75  # inches
MOST_LEAVES, MOST_NODES = 12, 40  # that are drawn one by one
Place = tuple[float, float]


def placed_drawing(
    circuit: Circuit, placement: Placement, parameters: Parameters | None
) -> Drawing:
    """The circuit by party; by layers if no party holds a part of its own."""
    parties = sorted({placement[leaf.name] for leaf in circuit.leaves()} - {COORDINATOR})
    if not parties or len(circuit) == 1:
        return graph_drawing(circuit, parameters)
    root, weights = circuit.root, np.ones(max(1, len(circuit.root.children)))
    if parameters is not None and WEIGHT in parameters.values.get(root.name, {}):
        weights = np.asarray(parameters[root.name][WEIGHT][0])
    return federated_drawing(circuit, placement, parties, weights)


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

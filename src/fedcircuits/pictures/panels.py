"""A federated circuit with many leaves: a panel per party, a square per circuit that it holds.

The square of a circuit is darker the larger the total weight of the children of the root that
contain it. Squares are sorted by weight. If there are many parties, or many circuits of one,
only the first are drawn and the others counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.placement import Placement
from fedcircuits.pictures.drawing import (
    FAINT,
    INK,
    TEXT,
    Drawing,
    label,
    rounded_box,
    sheet,
    shortened,
)

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
        _paint_top(axes, len(circuit.root.children), height)
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


def _paint_top(axes: Axes, combinations: int, height: float) -> None:
    words = f"⊕  {combinations:,} combinations, at the coordinator"
    wide = 3.4
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

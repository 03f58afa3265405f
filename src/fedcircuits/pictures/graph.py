"""The circuit as a graph that stays readable at any size.

A small circuit is drawn node by node (nodes.py), a large one folded by layers (folding.py): the
root on top, the leaves below, one box for all nodes of the same sort, and between boxes a band
whose width grows with the logarithm of its number of edges. Numbers above the graph give the size
of the circuit.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.pictures import nodes as node_picture
from fedcircuits.pictures.drawing import (
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
from fedcircuits.pictures.folding import Box, Folded, Range, edges, fold, weights

HEAD = 0.62  # inches for the numbers above
ROW, TALL = 0.74, 0.40  # distance of rows, height of a box
ASIDE, GAP = 0.85, 0.3  # for the levels' names; between boxes
DETOUR = 0.3  # room at both sides for bands that pass by a row
MOST_PASSING = 24
CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
Band = tuple[int, int]
Place = tuple[float, float, float]  # middle x, middle y, width


def unwrapped(
    circuit: Circuit, parameters: Parameters | None = None
) -> tuple[Circuit, Parameters | None]:
    """The circuit inside, as long as it is the only node of another one."""
    while parameters is not None and len(circuit) == 1 and circuit.root.name in parameters.circuits:
        circuit, parameters = parameters.circuits[circuit.root.name]
    return circuit, parameters


def graph_drawing(circuit: Circuit, parameters: Parameters | None = None) -> Drawing:
    circuit, parameters = unwrapped(circuit, parameters)
    if node_picture.is_small(circuit):
        body = node_picture.node_drawing(circuit, parameters)
    else:
        body = _folded_drawing(fold(circuit))
    width = max(body.width, sum(_span(n) for n in _totals(circuit, parameters)))

    def paint(figure: Figure, left: float, bottom: float) -> None:
        _paint_totals(figure, left, bottom + body.height, width, _totals(circuit, parameters))
        body.paint(figure, left + (width - body.width) / 2, bottom)

    return Drawing(width, body.height + HEAD, paint)


# ---------------------------------------------------------------------- numbers above

Total = tuple[str, str]


def _totals(circuit: Circuit, parameters: Parameters | None) -> list[Total]:
    learned = ("weights", weights(circuit))
    if parameters is not None:
        learned = ("parameters", parameters.count())
    numbers = [
        ("nodes", len(circuit)),
        ("edges", edges(circuit)),
        learned,
        ("variables", len(circuit.schema)),
    ]
    return [(f"{number:,}", name) for name, number in numbers]


def _span(total: Total) -> float:
    return max(text_width(total[0], 13), text_width(total[1], TEXT)) + 0.3


def _paint_totals(
    figure: Figure, left: float, bottom: float, width: float, totals: list[Total]
) -> None:
    axes = sheet(figure, left, bottom, width, HEAD)
    x = 0.0
    for number, name in totals:
        axes.text(x, 0.34, number, size=13, weight="bold", color=INK)
        axes.text(x, 0.17, name, size=TEXT, color=FAINT)
        x += _span((number, name))


# ---------------------------------------------------------------------- boxes and bands


def _folded_drawing(folded: Folded) -> Drawing:
    places, width = _places(folded)
    drawn = _drawn(folded)
    left_out = sum(1 for above, below in folded.bands if above != below) - len(drawn)
    foot = 0.2 if left_out else 0.0
    height = ROW * len(folded.levels) + foot

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = sheet(figure, left, bottom + foot, width, height - foot)
        _paint_bands(axes, folded, drawn, places, width)
        for box, place in zip(folded.boxes, places, strict=True):
            _paint_box(axes, box, place)
        for row, span in enumerate(folded.levels):
            name = f"level{'' if span[0] == span[1] else 's'} {_numbers(span)}"
            axes.text(0, ROW * (row + 0.5), name, size=7, color=FAINT, va="center")
        if left_out:
            note = f"{left_out:,} thinner bands that pass by rows left out"
            axes.text(0, -0.1, note, size=7, color=FAINT)

    return Drawing(width, height, paint)


def _places(folded: Folded) -> tuple[list[Place], float]:
    """Every row centred, and the total width."""
    widths = [max(map(text_width, _lines(b))) + 0.25 for b in folded.boxes]
    rows: dict[int, list[int]] = {}
    for i, box in enumerate(folded.boxes):
        rows.setdefault(box.row, []).append(i)
    spans = {r: sum(widths[i] for i in row) + GAP * (len(row) - 1) for r, row in rows.items()}
    widest = max(spans.values())
    places: list[Place] = [(0.0, 0.0, 0.0)] * len(folded.boxes)
    for r, row in rows.items():
        left = ASIDE + DETOUR + (widest - spans[r]) / 2
        for i in sorted(row, key=lambda i: (folded.boxes[i].kind, folded.boxes[i].words)):
            places[i] = (left + widths[i] / 2, ROW * (r + 0.5), widths[i])
            left += widths[i] + GAP
    return places, ASIDE + widest + 2 * DETOUR


def _lines(box: Box) -> tuple[str, str]:
    many = box.nodes != 1
    words = shortened(box.words, 30)
    if many:
        words = f"{words[:-4]}leaves" if words.endswith("leaf") else f"{words}s"
    units = f"{_numbers(box.units)} unit{'' if box.units == (1, 1) else 's'}"
    variables = f"{_numbers(box.variables)} variable{'' if box.variables == (1, 1) else 's'}"
    return f"{box.nodes:,} {words}", f"{units}, {variables}{' each' if many else ''}"


def _numbers(span: Range) -> str:
    return f"{span[0]:,}" if span[0] == span[1] else f"{span[0]:,}–{span[1]:,}"


def _paint_box(axes: Axes, box: Box, place: Place) -> None:
    x, y, width = place
    rounded_box(axes, x - width / 2, y - TALL / 2, width, TALL, box.kind, 0.08, 1.1)
    title, below = _lines(box)
    style = {"ha": "center", "va": "center", "zorder": 4}
    label(axes, x, y + 0.085, title, INK, TEXT, weight="bold", **style)
    label(axes, x, y - 0.085, below, FAINT, TEXT - 1, **style)


def _drawn(folded: Folded) -> dict[Band, int]:
    """All bands between neighbouring rows, and the widest of those that skip rows."""
    bands = {b: n for b, n in folded.bands.items() if b[0] != b[1]}
    passing = sorted((n, b) for b, n in bands.items() if _fall(folded, b) > 1)
    for _, band in passing[:-MOST_PASSING]:
        del bands[band]
    return bands


def _paint_bands(
    axes: Axes, folded: Folded, bands: dict[Band, int], places: list[Place], width: float
) -> None:
    most = math.log1p(max(bands.values(), default=1))
    for band, count in bands.items():
        style = {"linewidth": 0.8 + 6.0 * math.log1p(count) / most, "edgecolor": "#8fa3b8"}
        if _fall(folded, band) > 1:
            path, tone = _detour(folded, band, places, width), 0.25
        else:
            path, tone = _path(places[band[0]], places[band[1]]), 0.5
        axes.add_patch(PathPatch(path, facecolor="none", alpha=tone, **style))


def _fall(folded: Folded, band: Band) -> int:
    return folded.boxes[band[0]].row - folded.boxes[band[1]].row


def _path(above: Place, below: Place) -> Path:
    """Down to the next row, or along the row."""
    (x0, y0, w0), (x1, y1, w1) = above, below
    if y0 == y1:
        side = 1 if x1 > x0 else -1
        ends = (x0 + side * w0 / 2, y0), (x1 - side * w1 / 2, y1)
        return Path(ends, [Path.MOVETO, Path.LINETO])
    start, end = (x0, y0 - TALL / 2), (x1, y1 + TALL / 2)
    middle = (start[1] + end[1]) / 2
    return Path([start, (x0, middle), (x1, middle), end], CURVE)


def _detour(folded: Folded, band: Band, places: list[Place], width: float) -> Path:
    """Around the rows between, on a side where both boxes are outermost if there is one."""
    (x0, y0, w0), (x1, y1, w1) = (places[i] for i in band)
    free = [s for s in (-1, 1) if all(_outermost(folded, i, s, places) for i in band)]
    side = free[_fall(folded, band) % len(free)] if free else 1
    x = ASIDE + 0.05 if side < 0 else width - 0.05
    if free:
        return Path([(x0 + side * w0 / 2, y0), (x, y0), (x, y1), (x1 + side * w1 / 2, y1)], CURVE)
    start, end = (x0, y0 - TALL / 2), (x1, y1 + TALL / 2)
    return Path([start, (x, start[1]), (x, end[1]), end], CURVE)


def _outermost(folded: Folded, i: int, side: int, places: list[Place]) -> bool:
    row = folded.boxes[i].row
    others = (p[0] for p, box in zip(places, folded.boxes, strict=True) if box.row == row)
    return all(side * x <= side * places[i][0] for x in others)

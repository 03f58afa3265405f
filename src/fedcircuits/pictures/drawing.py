"""The base of all pictures: colours, sizes in inches, and drawings that can be placed side by
side.

A drawing knows its size in inches before it is painted, so texts keep their size, and a figure
is made to fit its drawings. Figures are created without pyplot, so there is no global state and
no display. Names come from the user and are drawn literally, never as formulas.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import imread
from matplotlib.patches import FancyBboxPatch

INK, FAINT, PALE = "#1f2933", "#6b7785", "#e4e8ec"
BEFORE, AFTER = "#9aa5b1", "#2563a8"
KNOWN = "#b45309"
FILL = {"sum": "#dbe8f5", "product": "#fdeedc", "leaf": "#e0f1e4", "fuse": "#efe4f5"}
EDGE = {"sum": "#2563a8", "product": "#b45309", "leaf": "#2f7d4a", "fuse": "#7c3f9e"}
MARGIN, GAP = 0.25, 0.45  # inches
TEXT = 8.0  # points
IMAGE_DPI = 200


@dataclass(frozen=True, slots=True)
class Drawing:
    width: float  # inches, without margins
    height: float
    paint: Callable[[Figure, float, float], None]  # figure, left and bottom in inches


class NotebookFigure(Figure):
    """A figure that notebooks show without pyplot and without a magic line."""

    def _repr_png_(self) -> bytes:
        return _png(self).getvalue()


def within(axes: Axes, figure: Figure) -> Figure:
    """The figure as an image in axes of another one, which is returned."""
    axes.imshow(imread(_png(figure, IMAGE_DPI)))
    axes.axis("off")
    parent = axes.figure
    return parent.figure if isinstance(parent, SubFigure) else parent


def _png(figure: Figure, dpi: float | None = None) -> io.BytesIO:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi or figure.dpi)
    buffer.seek(0)
    return buffer


def figure_of(drawing: Drawing, title: str = "") -> Figure:
    """A figure of the size of the drawing."""
    head = 0.42 if title else 0.0
    width, height = drawing.width + 2 * MARGIN, drawing.height + head + 2 * MARGIN
    figure = NotebookFigure(figsize=(width, height), dpi=110, facecolor="white")
    drawing.paint(figure, MARGIN, MARGIN)
    if title:
        at = (MARGIN / width, 1 - MARGIN / height)
        figure.text(*at, title, size=13, weight="bold", color=INK, va="top", parse_math=False)
    return figure


def beside(a: Drawing, b: Drawing) -> Drawing:
    """a to the left of b, aligned at the top; above it if a is low, to save space."""
    stacked = a.height < 0.6 * b.height and a.width < 1.3 * b.width
    width = max(a.width, b.width) if stacked else a.width + GAP + b.width
    height = a.height + GAP + b.height if stacked else max(a.height, b.height)

    def paint(figure: Figure, left: float, bottom: float) -> None:
        a.paint(figure, left, bottom + height - a.height)
        right = left if stacked else left + a.width + GAP
        b.paint(figure, right, bottom if stacked else bottom + height - b.height)

    return Drawing(width, height, paint)


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a position in inches."""
    whole_width, whole_height = figure.get_size_inches()
    return figure.add_axes(
        (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    )


def sheet(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Bare axes whose coordinates are inches from the lower left corner."""
    axes = axes_at(figure, left, bottom, width, height)
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    return axes


def label(
    axes: Axes, x: float, y: float, text: str, color: str = INK, size: float = TEXT, **style: Any
) -> None:
    """A literal text, never parsed as a formula."""
    axes.text(x, y, text, color=color, size=size, parse_math=False, **style)


def rounded_box(
    axes: Axes, left: float, bottom: float, width: float, height: float, kind: str, radius: float,
    line: float,
) -> None:  # fmt: skip
    """A box in the colours of a kind of node."""
    box = FancyBboxPatch(
        (left, bottom), width, height, boxstyle=f"round,pad=0,rounding_size={radius}",
        facecolor=FILL[kind], edgecolor=EDGE[kind], linewidth=line, zorder=3,
    )  # fmt: skip
    axes.add_patch(box)


def text_width(text: str, size: float = TEXT) -> float:
    """A conservative estimate of the width of a text in inches."""
    ems = sum(1.1 if unicodedata.east_asian_width(c) in "WF" else 0.64 for c in text)
    return ems * size / 72


def shortened(name: str, most: int) -> str:
    """A name on one line, cut in the middle, as names differ at their ends."""
    flat = " ".join(name.split())
    if len(flat) <= most:
        return flat
    front = most // 2
    return f"{flat[:front].rstrip()}…{flat[front + 1 - most :].lstrip()}"

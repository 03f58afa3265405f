"""Pictures of the quality of a model: calibration of probabilities, dependence of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedcircuits.circuits.graph.family import Array
from fedcircuits.pictures.drawing import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    TEXT,
    Drawing,
    axes_at,
    shortened,
    text_width,
)

SIDE, ROWS_HIGH = 3.2, 0.8  # inches of the square, and of the bars below it
CELL, MOST_NAMES = 0.3, 24


def calibration_drawing(bins: Sequence[tuple[int, float, float]]) -> Drawing:
    """``bins``: rows, mean confidence and accuracy of each."""
    rows, confidence, accuracy = (np.array(column) for column in zip(*bins, strict=True))

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = axes_at(figure, left + 0.5, bottom + ROWS_HIGH + 0.75, SIDE, SIDE)
        axes.plot([0, 1], [0, 1], color=BEFORE, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(confidence, accuracy, "o-", color=AFTER, linewidth=1.4, markersize=5)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("fraction correct", size=TEXT, color=INK)
        below = axes_at(figure, left + 0.5, bottom + 0.45, SIDE, ROWS_HIGH)
        below.bar(confidence, rows, width=0.05, color=BEFORE)
        below.set_xlim(0, 1)
        below.set_ylabel("rows", size=TEXT, color=INK)
        below.set_xlabel("probability of the predicted class", size=TEXT, color=INK)
        for part in (axes, below):
            part.tick_params(labelsize=TEXT - 1, colors=FAINT, length=2)
            part.spines[["top", "right"]].set_visible(False)

    return Drawing(SIDE + 0.6, SIDE + ROWS_HIGH + 0.85, paint)


def dependence_drawing(names: Sequence[str], first: Array, second: Array) -> Drawing:
    """A square of pairs of columns: below the diagonal the first side, above it the second.

    ``first`` and ``second`` (columns, columns) hold dependence from 0 to 1. Wide tables are cut.
    """
    shown = [shortened(n, 20) for n in names[:MOST_NAMES]]
    side, room = CELL * len(shown), max(text_width(n, TEXT) for n in shown) + 0.1
    n = len(shown)
    lower = np.tril(np.ones((n, n), bool), -1)
    cells = np.where(lower, first[:n, :n], second[:n, :n])
    np.fill_diagonal(cells, np.nan)
    darkest = max(0.1, float(np.nanmax(cells, initial=0.0)))

    def paint(figure: Figure, left: float, bottom: float) -> None:
        axes = axes_at(figure, left + room, bottom + room, side, side)
        axes.imshow(cells, cmap="Blues", vmin=0, vmax=darkest, interpolation="nearest")
        axes.set_yticks(range(n), shown, size=TEXT, color=INK, parse_math=False)
        axes.set_xticks(range(n), shown, size=TEXT, color=INK, parse_math=False, rotation=90)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return Drawing(side + room, side + room, paint)

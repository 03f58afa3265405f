"""Pictures of a fusion: losses, graph, alignment, and disagreement of owners."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import QueryError
from fedcircuits.pictures.drawing import AFTER, BEFORE, FAINT, INK, TEXT, NotebookFigure

MOST_MATRICES = 12
MOST_NAMES = 40
LONGEST_NAME = 16


def history(losses: pd.DataFrame) -> Figure:
    if losses.empty:
        raise QueryError("nothing was trained at the coordinator: there is no history to draw")
    figure, axes = _page(6.0, 3.4, "Loss of the fusion")
    for name, colour in zip(losses.columns, (BEFORE, AFTER), strict=False):
        axes.plot(np.arange(1, len(losses) + 1), losses[name], color=colour, label=name)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=TEXT)
    return figure


def graph(weights: pd.DataFrame) -> Figure:
    """Edges by weight, or learned probability."""
    size = float(np.clip(0.12 * len(weights), 3.5, 9.0))
    figure, axes = _page(size + 1, size, "Edges that owners were mixed over")
    shown = axes.imshow(
        weights.to_numpy(), cmap="Blues", vmin=0.0, vmax=max(1.0, weights.to_numpy().max())
    )
    if len(weights) <= MOST_NAMES:
        names = [_short(str(name)) for name in weights.index]
        axes.set_xticks(range(len(weights)), names, rotation=90, fontsize=TEXT)
        axes.set_yticks(range(len(weights)), names, fontsize=TEXT)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_parse_math(False)
    axes.set_xlabel("no map of who depends on whom", color=FAINT, fontsize=TEXT)
    figure.colorbar(shown, ax=axes, fraction=0.04)
    return figure


def alignment(matrices: Mapping[str, Array]) -> Figure:
    """The matrices of the first owners side by side."""
    chosen = list(matrices.items())[:MOST_MATRICES]
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = NotebookFigure(figsize=(2.1 * columns, 2.2 * rows + 0.5), dpi=110, facecolor="white")
    most = max(float(np.abs(m).max()) for _, m in chosen) or 1.0
    for i, (name, matrix) in enumerate(chosen):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.imshow(matrix, cmap="RdBu", vmin=-most, vmax=most)
        axes.set_title(_short(name), fontsize=TEXT, color=INK, parse_math=False)
        axes.set_xticks([])
        axes.set_yticks([])
    rest = len(matrices) - len(chosen)
    title = "Alignment of owners" + (f", {rest} more" if rest else "")
    figure.suptitle(title, fontsize=10, color=INK)
    return figure


def conflict(entropy: Array, classes: int) -> Figure:
    figure, axes = _page(6.0, 3.4, "How far owners disagree")
    axes.hist(entropy, bins=30, range=(0.0, float(np.log2(max(2, classes)))), color=AFTER)
    axes.set_xlabel("entropy of owners' predictions of a row, bits")
    axes.set_ylabel("rows")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _short(name: str) -> str:
    """Names shortened in the middle, as they differ at their ends."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


def _page(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    figure = NotebookFigure(
        figsize=(width, height), dpi=110, facecolor="white", layout="constrained"
    )
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    return figure, axes

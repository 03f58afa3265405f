"""Columns in cells, for the latent tree over the columns of all parties (latent.py).

Each category is a cell, and rare categories share one. Numbers are cut at their quantiles; a value
that many rows have is a cell of its own. No cell has fewer rows than the party's least count. A
party learns one distribution of a column from each cell of it. The cell says roughly where a value
is, and the leaf must be more precise: it is as wide as its cell plus a kernel that suits the number
of rows, so that neighbours overlap, with slightly heavy tails.

    count/cells   client → coordinator: tokens of rows in views, in rising order; for each column
                  the cell of every row, −1 if the value is missing or not sent; and one number, how
                  much its columns depend on each other (leaves.py).

**Views.** The cells of many columns together identify a person to anyone who knows these columns.
So each row appears in many views. A view has few columns of every party, and the row has a
different token in each: a keyed hash of its token, so that only the parties could link views. All
cells of a row that a party sends in a view are shared by at least ``least_count`` of its rows
(``shared_cells``), whatever the coordinator asks for. Any two columns are together in some views,
from which the coordinator learns how they depend on each other: to it, views are rows with missing
values (latent.py). With dependence="tree" there is one view of all columns, and the cells of a row
may be unique.

The coordinator learns how many rows have which cells of the columns of a view. That reveals coarse
ranks, which values are missing and, since the coordinator may query leaves, roughly where each cell
is. Anyone who knows the columns of two parties can find most rows by their cells, in every view,
and read those of the other parties. Other parties learn nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, send
from fedcircuits.federation.messages import Count, IntegerVector, require, require_shape
from fedcircuits.federation.sums.counting import Labels, compact
from fedcircuits.learning.least_counts import pooled
from fedcircuits.learning.spn.marginals import Marginals
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.tokens import (
    HiddenRows,
    TokenMessage,
    Tokens,
    rising_order,
    tokens,
)
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

FEWEST_ROWS = 8  # of a cell
ROWS_OF_CELL = 12  # that a cell of numbers has at least where there are many rows
MOST_CELLS = 24
KERNEL = 0.5  # deviations, at a row: a kernel is as wide as this many of them over rows^(1/5)
TAIL = 0.05  # of a leaf of numbers: a Student t of twice its width
DEGREES = 4.0
STEPPED = 0.5  # nats per row by which a histogram must beat smooth families
MOST_NATS = 1e3  # that a message may speak of
ALL_COLUMNS = (
    "for each sealed row token, the bin of every column that the row falls in; how much its "
    "columns depend on each other"
)  # what is revealed by one view of all columns
UNKNOWN = -1  # the cell of a missing value
MOST_VIEWS = 64
LearnedCell = tuple[Circuit, Parameters]
Nats = Annotated[float, msgspec.Meta(ge=-MOST_NATS, le=MOST_NATS)]


@dataclass(frozen=True, slots=True)
class CellTask:
    """One column that a client cuts into cells."""

    column: str
    most: Count  # cells of numbers
    models: bool  # whether it learns a leaf from every cell
    views: tuple[Count, ...] = (0,)  # in which its cells are sent


class RowCells(TokenMessage, frozen=True):
    """By column: the cells of a client's rows, in the order of tokens of their own."""

    tag: ClassVar[str] = "count/cells"
    reveals: ClassVar[str] = (
        "for sealed row tokens that differ between views, the bins of a few columns at a time; "
        "how much its columns depend on each other"
    )

    cells: dict[str, IntegerVector]
    alone: Nats  # a held-out row gains by a circuit of the columns it models over their cells

    def check(self, tasks: Sequence[CellTask], schema: Schema, sender: str) -> None:
        """MessageError unless it has a cell for each of its tokens in every column."""
        rows = len(self.tokens)
        expected = {task.column: task for task in tasks}
        require(bool(np.isfinite(self.alone)), sender, RowCells, "alone", "expected a number")
        fits = self.cells.keys() == expected.keys()
        require(fits, sender, RowCells, "cells", f"expected cells of {', '.join(expected)}")
        for name, cells in self.cells.items():
            require_shape(cells, (rows,), sender, RowCells, "cells")
            most = schema[name].size or expected[name].most
            fits = not rows or bool((cells.min() >= UNKNOWN) and cells.max() < most)
            require(fits, sender, RowCells, "cells", f"expected cells from −1 to {most - 1}")


def number_of_cells(rows: int) -> int:
    """Of numbers, by the rows of whoever holds the fewest."""
    return int(np.clip(rows // ROWS_OF_CELL, 2, MOST_CELLS))


def alone_name(party: str) -> str:
    """Of the leaf of all columns that a party models."""
    return f"{party}/alone"


def cell_name(party: str, column: str, cell: int) -> str:
    return f"{party}/{column}/cell {cell}"


# ---------------------------------------------------------------------- cells


def cells_of(table: Table, task: CellTask, least: int) -> Labels:
    """The cell of every row (rows,): codes of categories, or numbers of cells in rising order. A
    column without any value is one cell."""
    column = table.select([task.column]).values[:, 0]
    seen = ~np.isnan(column)
    if not seen.any():
        return np.zeros(len(column), np.int64)
    cells = np.full(len(column), UNKNOWN, np.int64)
    if table.schema[task.column].size:
        cells[seen] = _categories(column[seen].astype(np.int64), least)
    else:
        cells[seen] = _quantiles(column[seen], task.most, max(FEWEST_ROWS, least))
    return cells


def _categories(codes: Labels, least: int) -> Labels:
    """Rare categories share the cell of one of them, or of the commonest where they are few."""
    rows = np.bincount(codes)
    rare = np.flatnonzero((rows > 0) & (rows < least))
    if not len(rare):
        return codes
    pooled = rare[0] if rows[rare].sum() >= least else rows.argmax()
    return np.where(np.isin(codes, rare), pooled, codes)


def _quantiles(x: Array, most: int, fewest: int) -> Labels:
    """Cells of about equally many rows; equal values are never parted. Fewer cells are unions of
    the most that there are: runs with different numbers of them, joined, tell no more than one."""
    _, at, rows = np.unique(x, return_inverse=True, return_counts=True)
    fine = _gathered(rows, MOST_CELLS, fewest)
    coarse = _gathered(np.bincount(fine, rows).astype(np.int64), most, fewest)
    return coarse[fine][at.reshape(-1)]


def _gathered(rows: Labels, most: int, fewest: int) -> Labels:
    """The cell of each of some groups in rising order, of so many rows."""
    if most >= MOST_CELLS >= len(rows) and rows.min() >= fewest:
        return np.arange(len(rows))
    wanted, cell = max(fewest, rows.sum() / most), np.zeros(len(rows), np.int64)
    number, held = 0, 0
    for i, cells_of_row in enumerate(rows.tolist()):
        if held >= fewest and number + 1 < most and held + cells_of_row / 2 > wanted:
            number, held = number + 1, 0
        cell[i] = number
        held += cells_of_row
    if held < fewest and number:
        cell[cell == number] = number - 1
    return cell


# ---------------------------------------------------------------------- views


def send_cells(
    party: Party,
    hidden: HiddenRows,
    tasks: Sequence[CellTask],
    cells: Mapping[str, Labels],
    thinned: int,
    gain: float,
    dependence: str,
) -> Flow[None]:
    """With dependence="tree" cells of all columns are sent as they are."""
    together = dependence == "tree"
    least = 1 if together else party.least_count
    sent = RowCells(*seen_in_views(hidden, tasks, cells, thinned, least), gain)  # type: ignore[arg-type]
    yield from send(COORDINATOR, sent, reveals=ALL_COLUMNS if together else None)


def seen_in_views(
    hidden: HiddenRows,
    tasks: Sequence[CellTask],
    cells: Mapping[str, Labels],
    thinned: int,
    least: int,
) -> tuple[Tokens, dict[str, Labels]]:
    """Tokens of rows in all views, rising, and the cells that are sent of them. A view has one row
    in ``thinned``, drawn by its token; its cells are those of ``least`` of all rows or more."""
    tokens_of, cells_of_view = [], []
    for view in sorted({view for task in tasks for view in task.views}):
        names = [task.column for task in tasks if view in task.views]
        sealed = tokens(hidden.tokens, derived(hidden.key, f"view {view}"))
        kept = np.flatnonzero(sealed % np.uint64(thinned) == 0)
        sent = np.full((len(kept), len(tasks)), UNKNOWN, np.int64)
        at = [i for i, task in enumerate(tasks) if task.column in names]
        alike = shared_cells(np.stack([cells[name] for name in names], axis=1), least)
        sent[:, at] = alike[kept]
        tokens_of.append(sealed[kept])
        cells_of_view.append(sent)
    rising, order = rising_order(np.concatenate(tokens_of))
    every = np.concatenate(cells_of_view)[order]
    return rising, {task.column: compact(every[:, i]) for i, task in enumerate(tasks)}


def shared_cells(cells: Labels, least: int) -> Labels:
    """Cells (rows, columns), −1 in place of some: every row is like ``least`` rows or more. Column
    by column, rows that agree so far are grouped; cells of small groups are left out."""
    sent, waiting = np.full_like(cells, UNKNOWN), [(np.arange(len(cells)), 0)]
    while waiting:
        rows, column = waiting.pop()
        if column == cells.shape[1]:
            continue
        values, at, sizes = np.unique(cells[rows, column], return_inverse=True, return_counts=True)
        large = sizes >= least
        if large.any() and 0 < sizes[~large].sum() < least:
            large[np.where(large, sizes, len(rows) + 1).argmin()] = False
        for group in np.flatnonzero(large):
            same = rows[at == group]
            sent[same, column] = values[group]
            waiting.append((same, column + 1))
        if not large.all():
            waiting.append((rows[~large[at]], column + 1))
    return sent


# ---------------------------------------------------------------------- leaves


def learn_cells(
    party: Party, table: Table, tasks: Sequence[CellTask], cells: Mapping[str, Labels]
) -> Flow[dict[str, LearnedCell]]:
    """By name a leaf from every cell of the columns that this party models."""
    models = [task.column for task in tasks if task.models]
    if not models:
        return {}
    work = partial(_learned, party.name, table, models, cells, party.least_count)
    return (yield from compute("learning from cells of its columns", work))


def _learned(
    party: str, table: Table, models: Sequence[str], cells: Mapping[str, Labels], least: int
) -> dict[str, LearnedCell]:
    return {
        cell_name(party, column, cell): leaf
        for column in models
        for cell, leaf in cell_leaves(table, column, cells[column], least).items()
    }


def cell_leaves(table: Table, column: str, cells: Labels, least: int) -> dict[int, LearnedCell]:
    """A leaf from every cell of a column, by the number of the cell."""
    part, learned = table.select([column]), {}
    weight, rng = np.ones(len(part)), np.random.default_rng(0)
    marginals = Marginals(part.values, part.schema, weight, rng, least=least)
    number = not np.isnan(part.values).all() and part.schema.variables[0].kind == "real"
    stepped = number and _stepped(marginals, np.flatnonzero(~np.isnan(part.values[:, 0])))
    for cell in np.unique(cells[cells >= 0]).tolist():
        rows = np.flatnonzero(cells == cell)
        if stepped:
            learned[cell] = _histogram(part, marginals, rows)
        elif number:
            learned[cell] = _smooth(part, rows)
        else:
            nodes, values = marginals.nodes("cell", rows, np.array([0]))
            learned[cell] = Circuit(tuple(nodes), part.schema), Parameters(values)
    return learned


def _stepped(marginals: Marginals, rows: Labels) -> bool:
    """Whether few values are so common that a histogram says far more than any smooth family."""
    if marginals.lumpy:
        return True
    scores = dict(marginals.scores(rows, [0])[0])
    steps = scores.pop("histogram", -np.inf)
    return bool(steps > max(scores.values()) + STEPPED)


def _histogram(part: Table, marginals: Marginals, rows: Labels) -> LearnedCell:
    """The histogram of a cell in the bins of the whole column: mixed by their rows, those of all
    cells are the histogram of the column."""
    grid, names, every = marginals.grids[0], part.schema.names, int((~np.isnan(part.values)).sum())
    counts = pooled(grid.counted(rows, np.ones(len(rows))), marginals.least, grid.share)
    counts = counts + 0.5 * grid.share
    trace, scale = min(0.5 / (every + 1), 0.1), marginals.scale_of([0])
    nodes = Leaf("in", "histogram", names), Leaf("out", "student_t", names)
    values: dict[str, Arrays] = {
        "in": {"edges": grid.edges[None, None], "probability": (counts / counts.sum())[None, None]},
        "out": {
            "location": scale.mean[None],
            "scale": 2 * np.sqrt(scale.variance)[None],
            "degrees": np.array([[DEGREES]]),
        },
        "cell": {WEIGHT: np.array([[1 - trace, trace]])},
    }
    return Circuit((*nodes, Sum("cell", ("in", "out"))), part.schema), Parameters(values)


def _smooth(part: Table, rows: Labels) -> LearnedCell:
    """A normal distribution as wide as the cell and a kernel, with tails."""
    column, names = part.values[:, 0], part.schema.names
    x, every = column[rows], column[~np.isnan(column)]
    near = _around(np.sort(every), x)
    kernel = min(KERNEL * _spread(every) * len(every) ** -0.2, near / 4)
    variance = max(float(x.var()) + kernel**2, 1e-6 * float(every.var()), 1e-300)
    nodes = Leaf("in", "gaussian", names), Leaf("out", "student_t", names)
    mean, deviation = np.array([[x.mean()]]), np.array([[2 * np.sqrt(variance)]])
    values: dict[str, Arrays] = {
        "in": {"mean": mean, "variance": np.array([[variance]])},
        "out": {"location": mean, "scale": deviation, "degrees": np.array([[DEGREES]])},
        "cell": {WEIGHT: np.array([[1 - TAIL, TAIL]])},
    }
    return Circuit((*nodes, Sum("cell", ("in", "out"))), part.schema), Parameters(values)


def _around(every: Array, x: Array) -> float:
    """The width of the cell with as many rows on either side."""
    low, high = np.searchsorted(every, [x.min(), x.max()])
    ends = np.clip([low - len(x), high + len(x)], 0, len(every) - 1)
    return float(every[ends[1]] - every[ends[0]])


def _spread(every: Array) -> float:
    """A deviation that rows far out hardly move."""
    low, high = np.quantile(every, [0.25, 0.75])
    deviation = float(every.std())
    return min(deviation, float(high - low) / 1.34) or deviation

"""Columns in cells, for the latent tree over the columns of all parties (latent.py).

Each category is a cell, and rare categories share one. Numbers are cut at their quantiles; a value
that many rows have is a cell of its own. No cell has fewer rows than the party's least count. A
party learns one distribution of a column from each cell of it; mixed, they are its own distribution
of the column (learning/spn/windows.py).

    count/cells   client → coordinator: tokens of rows in views, in rising order; for each column
                  the cell of every row, −1 if the value is missing or not sent; for each column
                  of numbers that it models the rows of its finest cells; and one number, how much
                  its columns depend on each other (leaves.py).

Cells that are sent are unions of the finest, which have the leaves. What the coordinator learns
from few cells of rows it puts down to the finest by their rows alone (learning/chow_liu/finer.py):
a column is known as precisely as its rows allow, however little is told of each row.

**Views.** The cells of many columns together identify a person to anyone who knows these columns.
So each row appears in several views. A view has few columns of every party, and the row has a
different token in each: a keyed hash of its token, so that only the parties could link views by
tokens. All cells of a row that a party sends in a view are shared by at least ``least_count`` of
its rows there (``shared_cells``), whatever the coordinator asks for. Which columns are together is
designed so that cells hardly link views either (views.py). From all of them the coordinator learns
how columns depend on each other: to it, views are rows with missing values (latent.py). With
dependence="tree" there is one view of all columns, and the cells of a row may be unique.

The coordinator learns how many rows have which cells of the columns of a view. That reveals coarse
ranks, which values are missing and, since the coordinator may query leaves, roughly where each cell
is. Anyone who knows the columns of two parties can find most rows by their cells, in every view,
and read those of the other parties. Other parties learn nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Self

import msgspec
import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, send
from fedcircuits.federation.messages import Count, IntegerVector, require, require_shape
from fedcircuits.federation.sums.counting import Labels, compact
from fedcircuits.learning.spn.windows import LearnedCell, cell_leaves
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
MOST_NATS = 1e3  # that a message may speak of
ALL_COLUMNS = (
    "for each sealed row token, the bin of every column that the row falls in; how many rows each "
    "bin of a column has; how much its columns depend on each other"
)  # what is revealed by one view of all columns
UNKNOWN = -1  # the cell of a missing value
MOST_VIEWS = 169
Nats = Annotated[float, msgspec.Meta(ge=-MOST_NATS, le=MOST_NATS)]


@dataclass(frozen=True, slots=True)
class CellTask:
    """One column that a client cuts into cells."""

    column: str
    most: Count  # cells of numbers
    models: bool  # whether it learns a leaf from every cell
    views: tuple[Count, ...] = (0,)  # in which its cells are sent


@dataclass(frozen=True, slots=True)
class FinestCells:
    """Of a column of numbers: how many rows each of its finest cells has, and in which of the cells
    that are sent it lies."""

    rows: tuple[Count, ...]
    within: tuple[Count, ...]

    @classmethod
    def of(cls, finest: Labels, sent: Labels, least: int) -> Self:
        """Of the cells of rows. If fewer than ``least`` values are missing, the largest cell counts
        these rows too: all rows are known, and so is what lacks from them."""
        _, first = np.unique(finest[finest >= 0], return_index=True)
        rows, missing = np.bincount(finest[finest >= 0]), int((finest < 0).sum())
        rows[rows.argmax()] += missing if missing < least else 0
        return cls(tuple(rows.tolist()), tuple(sent[finest >= 0][first].tolist()))

    def fits(self, most: int) -> bool:
        """Whether they are cells with rows, in rising order, within so many cells or fewer."""
        same = 0 < len(self.rows) == len(self.within) <= MOST_CELLS and min(self.rows) > 0
        return same and list(self.within) == sorted(self.within) and self.within[-1] < most


class RowCells(TokenMessage, frozen=True):
    """By column: the cells of a client's rows, in the order of tokens of their own."""

    tag: ClassVar[str] = "count/cells"
    reveals: ClassVar[str] = (
        "for sealed row tokens that differ between views, the bins of a few columns at a time; "
        "how many rows each bin of a column has; how much its columns depend on each other"
    )

    cells: dict[str, IntegerVector]
    finest: dict[str, FinestCells]  # of the columns of numbers that it models
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
        models = {t.column: t.most for t in tasks if t.models and not schema[t.column].size}
        fits = self.finest.keys() == models.keys()
        fits = fits and all(self.finest[name].fits(most) for name, most in models.items())
        require(fits, sender, RowCells, "finest", f"expected finest cells of {', '.join(models)}")


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
    column with fewer values than ``least``, or without any, is one cell."""
    column = table.select([task.column]).values[:, 0]
    seen = ~np.isnan(column)
    if seen.sum() < max(least, 1):
        return np.zeros(len(column), np.int64)
    cells = np.full(len(column), UNKNOWN, np.int64)
    if table.schema[task.column].size:
        cells[seen] = _categories(column[seen].astype(np.int64), least)
    else:
        cells[seen] = _quantiles(column[seen], task.most, max(FEWEST_ROWS, least))
    return cells


def finest_of(table: Table, task: CellTask, least: int) -> Labels:
    """The same in cells as fine as there are."""
    return cells_of(table, replace(task, most=MOST_CELLS), least)


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
    table: Table,
    chosen: Labels,
    gain: float,
    dependence: str,
) -> Flow[None]:
    """``chosen``: rows that are in the views. With dependence="tree" cells of all columns are sent
    as they are."""
    together = dependence == "tree"
    least = 1 if together else party.least_count
    cells = {t.column: cells_of(table, t, party.least_count) for t in tasks}
    finest = {
        t.column: FinestCells.of(
            finest_of(table, t, party.least_count), cells[t.column], party.least_count
        )
        for t in tasks
        if t.models and not table.schema[t.column].size
    }
    views = seen_in_views(hidden, tasks, cells, chosen, least)
    sent = RowCells(*views, finest, gain)  # type: ignore[arg-type]
    yield from send(COORDINATOR, sent, reveals=ALL_COLUMNS if together else None)


def chosen_rows(ids: npt.NDArray[np.generic], thinned: int, seed: int) -> Labels:
    """One row in ``thinned``, the same at every party that holds it, in every run of a seed."""
    if thinned == 1:
        return np.arange(len(ids))
    drawn = tokens(ids, f"rows of views, {seed}".encode())
    return np.flatnonzero(drawn % np.uint64(thinned) == 0)


def seen_in_views(
    hidden: HiddenRows,
    tasks: Sequence[CellTask],
    cells: Mapping[str, Labels],
    chosen: Labels,
    least: int,
) -> tuple[Tokens, dict[str, Labels]]:
    """Tokens of the chosen rows in all views, rising, and the cells that are sent of them, which in
    a view are those of ``least`` of these rows or more."""
    tokens_of, cells_of_view = [], []
    for view in sorted({view for task in tasks for view in task.views}):
        at = [i for i, task in enumerate(tasks) if view in task.views]
        sent = np.full((len(chosen), len(tasks)), UNKNOWN, np.int64)
        own = np.stack([cells[tasks[i].column] for i in at], axis=1)
        sent[:, at] = shared_cells(own[chosen], least)
        tokens_of.append(tokens(hidden.tokens[chosen], derived(hidden.key, f"view {view}")))
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
    party: Party, table: Table, tasks: Sequence[CellTask]
) -> Flow[dict[str, LearnedCell]]:
    """By name a leaf from each of the finest cells of the columns that this party models."""
    models = [task for task in tasks if task.models]
    if not models:
        return {}
    work = partial(_learned, party.name, table, models, party.least_count)
    return (yield from compute("learning from cells of its columns", work))


def _learned(
    party: str, table: Table, tasks: Sequence[CellTask], least: int
) -> dict[str, LearnedCell]:
    return {
        cell_name(party, task.column, cell): leaf
        for task in tasks
        for cell, leaf in cell_leaves(
            table, task.column, finest_of(table, task, least), least
        ).items()
    }

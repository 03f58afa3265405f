"""Columns in cells, for the latent tree over the columns of all parties (latent.py).

Each category is a cell, and rare categories share one. Numbers are cut at their quantiles; a value
that many rows have is a cell of its own. No cell has fewer rows than the party's least count. A
party learns one distribution of a column from each cell of it; mixed, they are its own distribution
of the column (learning/spn/windows.py).

    count/cells   client → coordinator: for every view tokens of rows, in rising order, and for each
                  of them one number, the cells of its columns there; for each column that it models
                  the rows of its finest cells; and one number, how much its columns depend on each
                  other (leaves.py).

**Views.** The cells of many columns together identify a person to anyone who knows these columns.
So the coordinator gets pairs of columns instead of rows: every pair has a view of its own, in which
each row has another token, a keyed hash that only parties can follow from view to view (views.py).
What it learns is a table for every pair: how many rows have which cell of one column and of the
other. It cannot tell which rows of two tables are the same. Classes of a target are in views of one
column, and where rows are many in those of pairs as well, so that tables are by class.

All cells of a row that a party sends in a view are shared by at least ``least_count`` of its rows
there (``view_codes``), whatever the coordinator asks for: small groups join their neighbours. Cells
of two columns of one party are coarse for it. Cells that are sent are unions of the finest, which
have the leaves. What the coordinator learns from few cells it puts down to the finest by their rows
alone (learning/pairs/finer.py).

The tables reveal coarse ranks, which values are missing and, since the coordinator may query
leaves, roughly where each cell is. Anyone who knows a column of a party learns from its tables how
the columns of others are distributed among rows with the same cell, one column at a time. Other
parties learn nothing.
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
from fedcircuits.federation.messages import Count, IntegerVector, Message, require, require_shape
from fedcircuits.federation.sums.counting import Labels, compact
from fedcircuits.learning.spn.windows import MOST_STATES, LearnedCell, cell_leaves, parts_of
from fedcircuits.methods.fedpc.views import MOST_CELLS, CellPlan, CellTask, View, radixes
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.tokens import HiddenRows, ShortTokens, retokened, tokens
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

FEWEST_ROWS = 8  # of a cell
MOST_NATS = 1e3  # that a message may speak of
UNKNOWN = -1  # the cell of a missing value
Nats = Annotated[float, msgspec.Meta(ge=-MOST_NATS, le=MOST_NATS)]


@dataclass(frozen=True, slots=True)
class FinestCells:
    """How many rows each of the finest cells of a column has, in which of the cells that are sent
    it lies (a category in its own), and how many parts of equal probability each has at its party:
    more than one where most values differ."""

    rows: tuple[Count, ...]
    within: tuple[Count, ...]
    parts: Annotated[int, msgspec.Meta(ge=1, le=MOST_STATES)] = 1

    def coarse(self, most: int) -> Labels:
        """The group of each cell that is sent, of at most so many with about equally many rows."""
        rows = np.bincount(self.within, self.rows)
        if len(rows) <= most:
            return np.arange(len(rows))
        middle = (np.cumsum(rows) - rows / 2) / rows.sum()
        return np.unique((middle * most).astype(np.int64), return_inverse=True)[1].reshape(-1)

    @classmethod
    def of(cls, finest: Labels, sent: Labels, least: int, parts: int = 1) -> Self:
        """Of the cells of rows. If fewer than ``least`` values are missing, the largest cell counts
        these rows too: all rows are known, and so is what lacks from them."""
        known = np.unique(finest[finest >= 0], return_index=True, return_counts=True)
        first, rows, missing = known[1], known[2], int((finest < 0).sum())
        rows[rows.argmax()] += missing if missing < least else 0
        return cls(tuple(rows.tolist()), tuple(sent[finest >= 0][first].tolist()), parts)

    def fits(self, most: int) -> bool:
        """Whether they are cells with rows, in rising order, within so many cells or fewer."""
        known = max(most, MOST_CELLS)
        same = 0 < len(self.rows) == len(self.within) <= known and min(self.rows) > 0
        same = same and (self.parts == 1 or self.parts * len(self.rows) <= MOST_STATES)
        return same and list(self.within) == sorted(self.within) and self.within[-1] < most


class PairCells(Message, frozen=True):
    """The rows of all views of a client, one view after the other."""

    tag: ClassVar[str] = "count/cells"
    reveals: ClassVar[str] = (
        "for every pair of columns how many rows have which bins of both, and for every column, or "
        "where rows are many for every pair, which class, by sealed row tokens that differ between "
        "pairs; how many rows each bin of a column has, and whether most values of a column of "
        "numbers differ; how much its columns depend on each other"
    )

    tokens: IntegerVector  # (views · rows,) of unsigned 32 bits, rising within a view
    codes: IntegerVector  # (views · rows,)
    finest: dict[str, FinestCells]  # of the columns that it models
    alone: Nats  # a held-out row gains by a circuit of the columns it models over their cells

    def check(self, plan: CellPlan, schema: Schema, sender: str, held: int) -> None:
        """MessageError unless it has what was asked for; ``held``: the rows of the sender."""
        views = plan.views()
        require(bool(np.isfinite(self.alone)), sender, PairCells, "alone", "expected a number")
        rows = len(self.tokens) // max(len(views), 1)
        require_shape(self.tokens, (rows * len(views),), sender, PairCells, "tokens")
        require_shape(self.codes, (rows * len(views),), sender, PairCells, "codes")
        require(rows <= held, sender, PairCells, "tokens", f"expected {held:,} rows or fewer")
        problem = "expected tokens of unsigned 32 bits, rising in every view"
        lists = self.tokens.reshape(len(views), rows)
        fits = self.tokens.dtype == np.uint32 and bool((lists[:, 1:] >= lists[:, :-1]).all())
        require(fits, sender, PairCells, "tokens", problem)
        for at, (view, own) in enumerate(views):
            most = int(np.prod(radixes(plan, view, own, schema), dtype=np.int64))
            codes = self.codes[at * rows : (at + 1) * rows]
            fits = not rows or bool((codes.min() >= 0) and codes.max() < most)
            require(fits, sender, PairCells, "codes", f"expected numbers from 0 to {most - 1}")
        models = {t.column: schema[t.column].size or t.most for t in plan.tasks if t.models}
        fits = self.finest.keys() == models.keys()
        fits = fits and all(self.finest[name].fits(most) for name, most in models.items())
        fits = fits and all(
            own.parts == 1 or schema[name].kind == "real" for name, own in self.finest.items()
        )
        require(fits, sender, PairCells, "finest", f"expected finest cells of {', '.join(models)}")
        fits = all(sum(own.rows) <= held for own in self.finest.values())
        require(fits, sender, PairCells, "finest", f"expected cells of {held:,} rows or fewer")


def alone_name(party: str) -> str:
    """Of the leaf of all columns that a party models."""
    return f"{party}/alone"


def cell_name(party: str, column: str, cell: int) -> str:
    return f"{party}/{column}/cell {cell}"


def part_name(cell: str, part: int) -> str:
    return f"{cell}, part {part}"


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
    """The cell of each of some groups in rising order; every cell takes its share of the rows that
    are left."""
    if most >= MOST_CELLS >= len(rows) and rows.min() >= fewest:
        return np.arange(len(rows))
    cell, left = np.zeros(len(rows), np.int64), int(rows.sum())
    number, held = 0, 0
    for i, group in enumerate(rows.tolist()):
        wanted = max(fewest, (left + held) / (most - number))
        if held >= fewest and number + 1 < most and held + group / 2 > wanted:
            number, held = number + 1, 0
        cell[i] = number
        held, left = held + group, left - group
    if held < fewest and number:
        cell[cell == number] = number - 1
    return cell


# ---------------------------------------------------------------------- views


def send_cells(
    party: Party,
    hidden: HiddenRows,
    plan: CellPlan,
    table: Table,
    chosen: Labels,
    gain: float,
) -> Flow[None]:
    """``chosen``: rows that are in the views."""
    least = party.least_count
    cells = {t.column: cells_of(table, t, least) for t in plan.tasks}
    finest = {
        t.column: FinestCells.of(
            own := finest_of(table, t, least),
            cells[t.column],
            least,
            parts_of(table, t.column, own, least),
        )
        for t in plan.tasks
    }
    seen = seen_in_views(hidden, plan, table.schema, cells, finest, chosen, least)
    models = {t.column: finest[t.column] for t in plan.tasks if t.models}
    yield from send(COORDINATOR, PairCells(*seen, models, gain))  # type: ignore[arg-type]


def chosen_rows(ids: npt.NDArray[np.generic], thinned: int, seed: int) -> Labels:
    """One row in ``thinned``, the same at every party that holds it, in every run of a seed."""
    if thinned == 1:
        return np.arange(len(ids))
    drawn = tokens(ids, f"rows of views, {seed}".encode())
    return np.flatnonzero(drawn % np.uint64(thinned) == 0)


def seen_in_views(
    hidden: HiddenRows,
    plan: CellPlan,
    schema: Schema,
    cells: Mapping[str, Labels],
    finest: Mapping[str, FinestCells],
    chosen: Labels,
    least: int,
) -> tuple[ShortTokens, Labels]:
    """Tokens of the chosen rows in all views, rising in each, and their codes."""
    every = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    known = {name: labels[chosen] for name, labels in cells.items()}
    for view, own in plan.views():
        codes = codes_in_view(plan, view, own, schema, known, finest, least)
        fresh = retokened(hidden.tokens[chosen], derived(hidden.key, f"view {view}"))
        order = np.argsort(fresh)
        every[0].append(fresh[order])
        every[1].append(codes[order])
    return np.concatenate(every[0]), compact(np.concatenate(every[1]))


def codes_in_view(
    plan: CellPlan,
    view: View,
    own: Sequence[CellTask],
    schema: Schema,
    cells: Mapping[str, Labels],
    finest: Mapping[str, FinestCells],
    least: int,
) -> Labels:
    """What a client sends of each of its rows in a view."""
    columns: list[Labels] = []
    for task in own:
        labels = cells[task.column]
        if not schema[task.column].size:
            labels = coarser(labels, finest[task.column].coarse(plan.numbers(view)))
        columns.append(labels)
    ordered = [not schema[task.column].size for task in own]
    return view_codes(columns, radixes(plan, view, own, schema), ordered, least)


def coarser(labels: Labels, groups: Labels) -> Labels:
    """Cells in groups, of those that are known."""
    return np.where(labels >= 0, groups[np.maximum(labels, 0)], UNKNOWN)


def view_codes(
    columns: Sequence[Labels], radix: Sequence[int], ordered: Sequence[bool], least: int
) -> Labels:
    """One number for the cells of every row (rows,), which ``least`` rows have or more. Column by
    column, among rows that agree so far, small cells of numbers join their neighbours, and other
    small ones become unknown."""
    codes = np.zeros(len(columns[0]) if columns else 0, np.int64)
    for labels, size, rank in zip(columns, radix, ordered, strict=True):
        digits = labels + 1
        groups, at = np.unique(codes, return_inverse=True)
        at = at.reshape(-1)
        counts = np.bincount(at * size + digits, minlength=len(groups) * size)
        table = np.tile(np.arange(size), (len(groups), 1))
        small = (counts > 0) & (counts < least)
        for group in np.flatnonzero(small.reshape(-1, size).any(axis=1)):
            table[group] = _joined(counts.reshape(-1, size)[group], rank, least)
        codes = codes * size + table[at, digits]
    return codes


def _joined(rows: Labels, ordered: bool, least: int) -> Labels:
    """What each digit of so many rows becomes; the first is of unknown values."""
    became = np.arange(len(rows))
    if ordered:
        parts, held = [[0]], least
        for digit in range(1, len(rows)):
            if held >= least:
                parts.append([])
                held = 0
            parts[-1].append(digit)
            held += rows[digit]
        if held < least:  # they join those before, or are unknown
            parts[-2:] = [parts[-2] + parts[-1]]
        for part in parts[1:]:
            became[part] = part[int(rows[part].argmax())]
        became[parts[0]] = 0
    else:
        became[(rows > 0) & (rows < least)] = 0
    became[0] = 0
    unknown = int(rows[became == 0].sum())
    kept = np.bincount(became, rows, len(rows))
    if 0 < unknown < least and kept[1:].any():
        became[became == np.where(kept[1:] > 0, kept[1:], np.inf).argmin() + 1] = 0
    return became


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
    """Of every cell, and of the parts of cells of smooth columns."""
    learned: dict[str, LearnedCell] = {}
    for task in tasks:
        finest = finest_of(table, task, least)
        names = {k: cell_name(party, task.column, k) for k in range(int(finest.max()) + 1)}
        leaves = cell_leaves(table, task.column, finest, least)
        learned |= {names[k]: leaf for k, leaf in leaves.items()}
        parts = parts_of(table, task.column, finest, least)
        if parts > 1:
            leaves = cell_leaves(table, task.column, finest, least, parts)
            learned |= {part_name(names[k // parts], k % parts): leaf for k, leaf in leaves.items()}
    return learned

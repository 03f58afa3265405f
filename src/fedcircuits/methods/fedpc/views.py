"""Which columns are in which view of cells (cells.py).

Columns are in blocks, and there is a view of every block and of every pair of blocks, so that any
two columns are together in one. A block is one column. Where there are many columns, so that views
would take too long, it has several, of different parties: a view then has few columns of a party,
two at most, but more than two in all.

Cells are coarser by the number of classes, so that about ``ROWS_ALIKE`` rows of a class have the
same ones: few rows can be told from others in a view, and followed from there to another that has
the same column.

Together the tables of all pairs could determine the rows, without names, if they held more bits
than the rows do. So numbers have so few cells in pairs that tables of all rows hold fewer
(``undetermined``): the more columns and the fewer rows, the coarser. Tables by the classes of a
target hold more: if numbers had fewer than ``ENOUGH_CELLS`` cells, classes are in views of one
column only (learning/pairs/classes.py). There are two cells at least, also where these hold more:
where columns are about half as many as rows, or so many that views have six columns.

All rows are in every view, or, if there are many, one in so many, drawn by a hash of ids and of the
seed, which are no secret: so a seed gives the same model again. Rows are alike among those in the
views, so it does not matter who knows which rows these are. They are the same rows in all views,
since the difference of two sets would tell more.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.messages import Count
from fedcircuits.methods.meeting.hello import Hello
from fedcircuits.tables.schema import Schema

ROWS_OF_CELL = 12  # that a cell of numbers has at least where there are many rows
MOST_CELLS = 24
ENOUGH_CELLS = 5  # in pairs by class; rather than fewer, pairs are not by class
MOST_COARSE = 8  # cells of a column where two of a party's columns are in a view
MOST_BLOCKS = 200  # of columns, every pair of which is a view
ROWS_ALIKE = 8  # by their cells in a view
ROWS_OF_FINE_PAIR = 2  # of two cells as fine as in views of one column, on average
ROWS_OF_PAIR = 5  # of two cells as in views of two; at one party fewer than its least count join
MOST_ROWS = 5_000  # of a view
ENOUGH_ROWS = 1_000  # of a view: for fewer, blocks have several columns
MOST_TOKENS = 3_000_000  # of all rows in all views, by all parties
ROUNDED = 1e-6  # nats
MANY = 60.0  # nats

View = tuple[int, ...]  # the blocks of columns in it


@dataclass(frozen=True, slots=True)
class CellTask:
    """One column that a client cuts into cells."""

    column: str
    most: Count  # cells of numbers
    models: bool  # whether it learns a leaf from every cell
    block: Count | None = 0  # it is in the views of this block; None: classes, in every view


@dataclass(frozen=True, slots=True)
class CellPlan:
    """What a client cuts into cells, and sends in views."""

    tasks: tuple[CellTask, ...]
    blocks: Count  # of the columns of all parties
    coarse: Count = 2  # cells of numbers in views that have two columns of the client
    paired: Count = MOST_CELLS  # and in others of two blocks
    thinned: Count = 1  # one row of so many is in the views
    by_class: bool = True  # whether views of two blocks have the classes, too

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def views(self) -> list[tuple[View, list[CellTask]]]:
        """Those that the client sends rows in, and its columns there: classes first, then what has
        no order."""
        every, classes = [], [task for task in self.tasks if task.block is None]
        for view in views_of(self.blocks):
            own = [task for task in self.tasks if task.block in view]
            if self.by_class or len(view) == 1:
                own = classes + own
            if own:
                every.append((view, own))
        return every

    def of_view(self, view: View) -> int:
        """How many of the client's columns are in it, but for classes."""
        return sum(task.block in view for task in self.tasks)

    def numbers(self, view: View) -> int:
        """The most cells that one of its columns of numbers has in it."""
        if len(view) == 1:
            return MOST_CELLS
        return min(self.coarse, self.paired) if self.of_view(view) > 1 else self.paired

    def problems(self, names: Sequence[str], target: str | None) -> list[tuple[bool, str]]:
        """What must hold for a client with these columns, and what was expected."""
        blocks = [task.block for task in self.tasks if task.block is not None]
        classes = [task.column for task in self.tasks if task.block is None]
        most = max(blocks, default=0) < self.blocks <= MOST_BLOCKS
        return [
            (sorted(t.column for t in self.tasks) == sorted(names), "every column once"),
            (all(2 <= t.most <= MOST_CELLS for t in self.tasks), f"2 to {MOST_CELLS} cells"),
            (len(set(blocks)) == len(blocks), "one column in a block"),
            (most, f"{MOST_BLOCKS} blocks at most"),
            (set(classes) <= {target}, "no classes but the target's"),
            (2 <= self.coarse <= MOST_COARSE, f"2 to {MOST_COARSE} coarse cells"),
            (2 <= self.paired <= MOST_CELLS, f"2 to {MOST_CELLS} cells in pairs"),
            (self.thinned > 0, "one row in one or more"),
        ]


def views_of(blocks: int) -> list[View]:
    """Every block by itself, and every pair."""
    return [*((b,) for b in range(blocks)), *itertools.combinations(range(blocks), 2)]


def radixes(plan: CellPlan, view: View, own: Sequence[CellTask], schema: Schema) -> list[int]:
    """How many cells a code has for every column, with one for what is unknown."""
    sizes = [schema[task.column].size or min(plan.numbers(view), task.most) for task in own]
    return [size + 1 for size in sizes]


# ---------------------------------------------------------------------- the coordinator


def cell_plans(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None
) -> dict[str, CellPlan]:
    """What every party cuts into cells, and in which view it sends which; nothing where columns are
    in too many blocks."""
    target = target if target is not None and schema[target].size else None
    homes = _homes(schema, hellos, target)
    blocks, thinned = _blocks(homes, hellos)
    if len(blocks) > MOST_BLOCKS:
        return {}
    at = {name: number for number, block in enumerate(blocks) for name in block}
    classes = 1 if target is None else schema[target].size
    fewest = min(hello.rows for hello in hellos.values())
    sizes = [[schema[name].size for name in block] for block in blocks]
    parted = undetermined(sizes, fewest // thinned, classes)
    joined = parted if classes == 1 else undetermined([*sizes, [classes]], fewest // thinned)
    by_class = classes == 1 or parted >= min(ENOUGH_CELLS, max(joined, 2))
    paired = min(parted if by_class else joined, _cells_of_pair(fewest / thinned, MOST_CELLS))
    paired = max(paired, 2)
    most = paired if len(blocks) < len(at) else MOST_CELLS  # blocks are views by themselves
    plans = {}
    for party, hello in hellos.items():
        tasks = tuple(
            _task(name, party, schema, hellos, at, classes, thinned, most)
            for name in _in_order(schema, hello.schema.names)
        )
        parts = classes if by_class and target in hello.schema.names else 1
        coarse = _cells_of_pair(hello.rows / thinned / parts, MOST_COARSE)
        plans[party] = CellPlan(tasks, len(blocks), coarse, paired, thinned, by_class)
    return plans


def _in_order(schema: Schema, names: Sequence[str]) -> list[str]:
    """What has no order first."""
    return sorted(names, key=lambda name: (not schema[name].size, name))


def _task(
    name: str,
    party: str,
    schema: Schema,
    hellos: Mapping[str, Hello],
    at: Mapping[str, int],
    classes: int,
    thinned: int,
    most: int,
) -> CellTask:
    rows = {p: hello.rows for p, hello in hellos.items() if name in hello.schema.names}
    fewest, model = min(rows.values()), max(rows, key=lambda p: rows[p])
    alike = fewest / classes / thinned / ROWS_ALIKE
    alike = min(alike, np.sqrt(fewest / thinned / ROWS_OF_FINE_PAIR))
    cells = min(number_of_cells(fewest), int(np.clip(alike, 2, most)))
    return CellTask(name, cells, party == model, at.get(name))


def _homes(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None
) -> dict[str, tuple[str, ...]]:
    """Every column but the target at one of its holders, as equally many each as can be."""
    homes: dict[str, tuple[str, ...]] = dict.fromkeys(hellos, ())
    for name in schema.names:
        if name != target:
            holders = [p for p, hello in hellos.items() if name in hello.schema.names]
            home = min(holders, key=lambda p: len(homes[p]))
            homes[home] += (name,)
    return homes


def _blocks(
    homes: Mapping[str, Sequence[str]], hellos: Mapping[str, Hello]
) -> tuple[list[list[str]], int]:
    """Columns in blocks, of as few columns as leave enough rows in a view; and one row in how many
    is in the views."""
    most = max(hello.rows for hello in hellos.values())
    parties = sum(bool(own) for own in homes.values())
    names = [name for own in homes.values() for name in own]
    holders = {name: {p for p, h in hellos.items() if name in h.schema.names} for name in names}
    for size in range(1, max(parties, 1) + 1):
        blocks = _in_blocks(homes, holders, size)
        views = len(blocks) * (len(blocks) + 1) // 2
        lists = views * min(2 * size + 1, parties + 1)
        allowed = min(MOST_TOKENS // max(lists, 1), MOST_ROWS)
        if allowed >= min(most, ENOUGH_ROWS) and len(blocks) <= MOST_BLOCKS:
            break
    return blocks, max(1, -(-most // max(allowed, 1)))


def _in_blocks(
    homes: Mapping[str, Sequence[str]], holders: Mapping[str, set[str]], size: int
) -> list[list[str]]:
    """So many columns in each block, or fewer, of which nobody holds two."""
    left = {p: list(own) for p, own in homes.items() if own}
    blocks = []
    while left:
        block, taken = list[str](), set[str]()
        for party in sorted(left, key=lambda p: -len(left[p])):
            name = next((n for n in left[party] if not holders[n] & taken), None)
            if name is not None and len(block) < size:
                block.append(name)
                taken |= holders[name]
                left[party].remove(name)
        blocks.append(block)
        left = {p: own for p, own in left.items() if own}
    return blocks


def undetermined(blocks: Sequence[Sequence[int]], rows: int, classes: int = 1) -> int:
    """The most cells of numbers for which tables of all pairs of blocks by class, of columns with
    so many categories or 0 for numbers, hold fewer bits than the rows; 0 if even two hold more.
    What is not counted: what blocks by themselves hold by class. Bits: as many as it takes to write
    down which tables, or which rows in any order, there are."""
    for cells in range(MOST_CELLS, 1, -1):
        every = np.array([np.log([size or cells for size in own]).sum() for own in blocks])
        single = _nats(rows, np.log(classes) + every) - _nats(rows, np.log(classes))
        whole = _nats(rows, np.log(classes) + every.sum()) - _nats(rows, np.log(classes))
        i, j = np.triu_indices(len(every), 1)
        pairs = _nats(rows, np.log(classes) + every[i] + every[j]) - _nats(rows, np.log(classes))
        if (pairs - single[i] - single[j]).sum() <= whole - single.sum() + ROUNDED:
            return cells
    return 0


def _nats(rows: int, cells: Array | float) -> Array:
    """Logarithm of how many tables of so many rows there are; ``cells``: the logarithm of their
    number."""
    few = np.exp(np.minimum(cells, MANY))
    exact = -betaln(rows + 1.0, few) - np.log(rows + few)
    return np.asarray(np.where(few < np.exp(MANY), exact, rows * cells - gammaln(rows + 1)))


def _cells_of_pair(rows: float, most: int) -> int:
    return int(np.clip(np.sqrt(rows / ROWS_OF_PAIR), 2, most))


def number_of_cells(rows: int) -> int:
    """Of numbers, by the rows of whoever holds the fewest."""
    return int(np.clip(rows // ROWS_OF_CELL, 2, MOST_CELLS))

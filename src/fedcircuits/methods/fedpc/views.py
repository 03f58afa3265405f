"""Which columns are in which view of cells (cells.py), by the coordinator.

Columns are in blocks, and there is a view of every block and of every pair of blocks, so that any
two columns are together in one. A block is one column. Where there are many columns, so that views
would take too long, it has several, of different parties: a view then has few columns of a party,
two at most, but more than two in all.

Cells are coarser by the number of classes, so that about ``ROWS_ALIKE`` rows of a class have the
same ones: few rows can be told from others in a view, and followed from there to another that has
the same column. The classes of a target are in every view, since little is learned without them;
without a target, groups of similar rows at the party with most columns take their place.

All rows are in every view, or, if there are many, one in so many, drawn by a hash of ids and of the
seed, which are no secret: so a seed gives the same model again. Rows are alike among those in the
views, so it does not matter who knows which rows these are. They are the same rows in all views,
since the difference of two sets would tell more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcircuits.methods.fedpc.cells import (
    MOST_BLOCKS,
    MOST_CELLS,
    MOST_COARSE,
    MOST_GROUPS,
    CellPlan,
    CellTask,
    number_of_cells,
)
from fedcircuits.methods.meeting.hello import Hello
from fedcircuits.tables.schema import Schema

ROWS_ALIKE = 8  # by their cells in a view
ROWS_OF_GROUP = 60
MOST_ROWS = 5_000  # of a view
ENOUGH_ROWS = 1_000  # of a view: for fewer, blocks have several columns
MOST_TOKENS = 3_000_000  # of all rows in all views, by all parties


def cell_plans(
    schema: Schema, hellos: Mapping[str, Hello], target: str | None
) -> dict[str, CellPlan]:
    """What every party cuts into cells, and in which view it sends which."""
    target = target if target is not None and schema[target].size else None
    homes = _homes(schema, hellos, target)
    blocks, thinned = _blocks(homes, {p: hello.rows for p, hello in hellos.items()})
    at = {name: number for number, block in enumerate(blocks) for name in block}
    leader = max(homes, key=lambda p: len(homes[p]))
    groups = 0 if target is not None else _groups(hellos[leader].rows // thinned)
    classes = max(groups, 1) if target is None else schema[target].size
    plans = {}
    for party, hello in hellos.items():
        tasks = tuple(
            _task(name, party, schema, hellos, at, classes * thinned)
            for name in _in_order(schema, hello.schema.names)
        )
        told = groups if party == leader else 0
        parts = classes if told or target in hello.schema.names else 1
        alike = hello.rows / thinned / parts / ROWS_ALIKE
        coarse = 5 if 1 else int(np.clip(np.sqrt(alike / 2), 2, MOST_COARSE))
        plans[party] = CellPlan(tasks, len(blocks), coarse, told, thinned)
    return plans


def _groups(rows: int) -> int:
    groups = min(rows // ROWS_OF_GROUP, MOST_GROUPS)
    return groups if groups > 1 else 0


def _in_order(schema: Schema, names: Sequence[str]) -> list[str]:
    """What has no order first."""
    return sorted(names, key=lambda name: (not schema[name].size, name))


def _task(
    name: str,
    party: str,
    schema: Schema,
    hellos: Mapping[str, Hello],
    at: Mapping[str, int],
    parts: int,
) -> CellTask:
    """``parts``: one row in so many is of a class, in the views."""
    rows = {p: hello.rows for p, hello in hellos.items() if name in hello.schema.names}
    fewest, model = min(rows.values()), max(rows, key=lambda p: rows[p])
    alike = int(np.clip(fewest / parts / ROWS_ALIKE, 2, MOST_CELLS))
    most = min(number_of_cells(fewest), alike)
    return CellTask(name, most, party == model, at.get(name))


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
    homes: Mapping[str, Sequence[str]], rows: Mapping[str, int]
) -> tuple[list[list[str]], int]:
    """Columns in blocks, of as few columns as leave enough rows in a view; and one row in how many
    is in the views."""
    most, parties = max(rows.values()), sum(bool(own) for own in homes.values())
    for size in range(1, max(parties, 1) + 1):
        blocks = _in_blocks(homes, size)
        views = len(blocks) * (len(blocks) + 1) // 2
        lists = views * min(2 * size + 1, parties + 1)
        allowed = min(MOST_TOKENS // max(lists, 1), MOST_ROWS)
        if allowed >= min(most, ENOUGH_ROWS) and len(blocks) <= MOST_BLOCKS:
            break
    return blocks, max(1, -(-most // max(allowed, 1)))


def _in_blocks(homes: Mapping[str, Sequence[str]], size: int) -> list[list[str]]:
    """So many columns of different parties in each block, or fewer."""
    left = {p: list(own) for p, own in homes.items() if own}
    blocks = []
    while left:
        most = sorted(left, key=lambda p: -len(left[p]))[:size]
        blocks.append([left[p].pop(0) for p in most])
        left = {p: own for p, own in left.items() if own}
    return blocks

"""Linking views: which rows of two views are the same, and who are they then?

Parties hold five numbers each about the same 600 people, and one of them a class as well. Every
view has two columns, or one and the class, under new tokens; where rows are many also two and the
class. The coordinator compares two views: a
row whose cells, in all columns that both have, no other row has in either of them is the same row.
Cells of linked views come together, and the attacker, who knows the first party's columns with
names, identifies rows by them. Only right links are counted, as if it knew which are wrong.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np

import fedcircuits as fc
from benchmarks.attacks.measuring import Measure, attempt
from benchmarks.runner import Cell
from fedcircuits.methods.fedpc.cells import (
    UNKNOWN,
    FinestCells,
    cells_of,
    codes_in_view,
    finest_of,
)
from fedcircuits.methods.fedpc.training import METHOD
from fedcircuits.methods.fedpc.views import View, cell_plans, radixes, views_of
from fedcircuits.methods.meeting.hello import Hello

ROWS, COLUMNS = 600, 5
SETTINGS = [(2, 0), (2, 2), (2, 8), (5, 0), (5, 2), (5, 8)]  # parties, classes of the target
Views = dict[View, dict[tuple[str, str], Any]]  # by view and column the cells of all rows


def measures(seed: int) -> list[Measure]:
    found = []
    for parties, classes in SETTINGS:
        row: dict[str, Cell] = {
            "parties": parties,
            "target": f"{classes} classes" if classes else "none",
        }
        views = cache(partial(sent, parties, classes, seed))
        links = cache(partial(linked, views))
        found.append(attempt("views", row, partial(number, views)))
        found.append(attempt("linked, of views of a row", row, partial(_share, links)))
        found.append(attempt("rows named", row, partial(named, views, links)))
    return found


def sent(parties: int, classes: int, seed: int) -> Views:
    rng = np.random.default_rng([seed, parties, classes])
    width = COLUMNS * parties
    x = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, width)) + rng.normal(size=(ROWS, width))
    columns: dict[str, Any] = {f"x{i:02}": x[:, i] for i in range(width)}
    target = "class" if classes else None
    if target is not None:
        columns[target] = [f"class {c}" for c in rng.integers(classes, size=ROWS)]
    federation = fc.split(fc.Table.of(columns), parties, by="columns", target=target, seed=seed)
    hellos = {party.name: Hello.of(party.table, METHOD) for party in federation}
    plans = cell_plans(federation.schema, hellos, target)
    views: Views = {view: {} for view in views_of(next(iter(plans.values())).blocks)}
    for party in federation:
        plan, table, least = plans[party.name], party.table, party.least_count
        cells = {task.column: cells_of(table, task, least) for task in plan.tasks}
        finest = {
            t.column: FinestCells.of(finest_of(table, t, least), cells[t.column], least)
            for t in plan.tasks
        }
        for view, own in plan.views():
            codes = codes_in_view(plan, view, own, table.schema, cells, finest, least)
            for radix, task in zip(
                reversed(radixes(plan, view, own, table.schema)), reversed(own), strict=True
            ):
                codes, digits = np.divmod(codes, radix)
                views[view][party.name, task.column] = digits - 1
    return views


def number(views: Any) -> float:
    return float(len(views()))


def linked(views: Any) -> Any:
    """By row and view the smallest number of a view that it is linked with (rows, views)."""
    every = list(views().values())
    groups = np.tile(np.arange(len(every)), (ROWS, 1))
    for one, other in combinations(range(len(every)), 2):
        common = sorted(every[one].keys() & every[other].keys())
        if not common:
            continue
        alone = [_alone(every[view], common) for view in (one, other)]
        same = [np.stack([every[v][name] for name in common], 1) for v in (one, other)]
        rows = np.flatnonzero(alone[0] & alone[1] & (same[0] == same[1]).all(axis=1))
        for row in rows:
            a, b = sorted((groups[row, one], groups[row, other]))
            groups[row, groups[row] == b] = a
    return groups


def _alone(view: Mapping[tuple[str, str], Any], names: Sequence[tuple[str, str]]) -> Any:
    """Whether no other row has the same cells."""
    cells = np.stack([view[name] for name in names], axis=1)
    _, at, rows = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    return rows[at.reshape(-1)] == 1


def _share(links: Any) -> float:
    """Of views that are linked with another one of the same row."""
    groups = links()
    sizes = (groups[:, :, None] == groups[:, None, :]).sum(axis=2)
    return float((sizes > 1).mean())


def named(views: Any, links: Any) -> float:
    """The share of rows that nobody else is like by the first party's cells in linked views."""
    groups, found = links(), np.zeros(ROWS, bool)
    nothing = [np.full(ROWS, UNKNOWN)]
    known = [
        np.stack([c for (p, _), c in own.items() if p == "party 1"] or nothing, axis=1)
        for own in views().values()
    ]
    for row in range(ROWS):
        for group in np.unique(groups[row]):
            cells = np.hstack([known[v] for v in np.flatnonzero(groups[row] == group)])
            found[row] |= (cells == cells[row]).all(axis=1).sum() == 1
    return float(found.mean())

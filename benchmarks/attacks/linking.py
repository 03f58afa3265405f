"""Linking views: which rows of two views are the same, and who are they then?

Parties hold five numbers each about the same 600 people, and one of them a class as well. Every
view has some columns of every party, under new tokens. The coordinator compares two views: a row
whose cells, in all columns that both have, no other row has in either of them is the same row.
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
from fedcircuits.methods.fedpc.cells import UNKNOWN, cells_of, shared_cells

ROWS, COLUMNS = 600, 5
SETTINGS = [(5, 0), (5, 2), (5, 8), (8, 0), (8, 2), (8, 8)]  # parties, classes of the target
Views = dict[int, dict[tuple[str, str], Any]]  # by view and column the cells of all rows


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
    from fedcircuits.methods.fedpc.training import METHOD
    from fedcircuits.methods.fedpc.views import cell_tasks, views_of
    from fedcircuits.methods.meeting.hello import Hello

    rng = np.random.default_rng([seed, parties, classes])
    width = COLUMNS * parties
    x = rng.normal(size=(ROWS, 3)) @ rng.normal(size=(3, width)) + rng.normal(size=(ROWS, width))
    columns: dict[str, Any] = {f"x{i:02}": x[:, i] for i in range(width)}
    target = "class" if classes else None
    if target is not None:
        columns[target] = [f"class {c}" for c in rng.integers(classes, size=ROWS)]
    federation = fc.split(fc.Table.of(columns), parties, by="columns", target=target, seed=seed)
    hellos = {party.name: Hello.of(party.table, METHOD) for party in federation}
    many = views_of(federation.schema, hellos, target)
    tasks = cell_tasks(federation.schema, hellos, target, many)
    views: Views = {view: {} for view in range(many)}
    for party in federation:
        asked, least = tasks[party.name], party.least_count
        cells = {task.column: cells_of(party.table, task, least) for task in asked}
        for view in views:
            names = [task.column for task in asked if view in task.views]
            if names:
                alike = shared_cells(np.stack([cells[name] for name in names], axis=1), least)
                views[view] |= {(party.name, n): alike[:, i] for i, n in enumerate(names)}
    return views


def number(views: Any) -> float:
    return float(len(views()))


def linked(views: Any) -> Any:
    """By row and view the smallest number of a view that it is linked with (rows, views)."""
    groups = np.tile(np.arange(len(views())), (ROWS, 1))
    for one, other in combinations(views(), 2):
        common = sorted(views()[one].keys() & views()[other].keys())
        if not common:
            continue
        alone = [_alone(views()[view], common) for view in (one, other)]
        same = [np.stack([views()[v][name] for name in common], 1) for v in (one, other)]
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
    known = {
        view: np.stack([c for (p, _), c in own.items() if p == "party 1"] or nothing, axis=1)
        for view, own in views().items()
    }
    for row in range(ROWS):
        for group in np.unique(groups[row]):
            cells = np.hstack([known[v] for v in np.flatnonzero(groups[row] == group)])
            found[row] |= (cells == cells[row]).all(axis=1).sum() == 1
    return float(found.mean())

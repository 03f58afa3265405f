"""The upper part of a federated circuit as a latent tree over the columns of all parties.

Every column has a hidden state, its cell (cells.py): below it are the leaves that its party has
learned from its cells, above it a table for every state of its neighbour in the tree. A mixture of
such trees is learned from the cells of rows, whoever holds them (learning/chow_liu/stacking.py):
a row that only some parties hold says what it says of their columns. Messages, bytes and time grow
with the number of columns, not of combinations.

Rows come in views, each with few columns of every party (views.py).

A column that several parties hold is modelled by the one with the most rows. Rows that it lacks
count by the cells of other holders, where these mean the same: codes of categories do, and ranks of
numbers if both put common rows into about the same cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.chow_liu.finer import FinerStates
from fedcircuits.learning.chow_liu.stacking import LearnedForest, learn_forest
from fedcircuits.learning.chow_liu.states import StateRows
from fedcircuits.methods.fedpc.assembly import Assembly, RootChildren
from fedcircuits.methods.fedpc.cells import (
    CellTask,
    FinestCells,
    RowCells,
    alone_name,
    cell_name,
)
from fedcircuits.methods.fedpc.leaves import least_apart, share_apart
from fedcircuits.methods.meeting.tokens import match_messages
from fedcircuits.tables.schema import Schema

NEAR = 1.5  # cells: how far ranks of common rows may lie apart on average
COMMON = 10  # rows by which ranks are compared
APART = (
    "columns of different parties are assumed to be independent: held-out rows are more likely "
    "this way than with the dependence learned from the training rows"
)
UNJOINED = "no row is held by two parties: their columns are assumed to be independent"


def collect_cells(
    tasks: Mapping[str, Sequence[CellTask]], schema: Schema, members: Sequence[str]
) -> Flow[tuple[dict[str, RowCells], Labels]]:
    """What parties send of their rows, and where each lists the rows of views."""
    sent = yield from gather(members, RowCells)
    for party, message in sent.items():
        message.check(tasks[party], schema, party)
    return sent, match_messages(sent)


def by_forest(
    cells: Mapping[str, RowCells],
    tasks: Mapping[str, Sequence[CellTask]],
    where: Labels,
    schema: Schema,
    target: str | None,
    rng: np.random.Generator,
) -> tuple[tuple[Assembly, RootChildren], tuple[str, ...]]:
    """Nodes of the tree, and notes. ``where`` (rows, parties): the place of a row in each party's
    list, −1 where the party does not hold it."""
    schema = schema.select(sorted(schema.names))  # one model, whoever holds what
    models = {t.column: p for p, listed in tasks.items() for t in listed if t.models}
    columns = [
        _states(name, models[name], cells, where, bool(schema[name].size)) for name in schema.names
    ]
    kept = [names for _, names in columns]
    finest = [cells[models[n]].finest.get(n) for n in schema.names]
    finer = [None if own is None else _finer(own, names)
             for own, names in zip(finest, kept, strict=True)]  # fmt: skip
    rows = StateRows(
        np.stack([states for states, _ in columns], axis=1),
        tuple(len(names) for names in kept),
        tuple(not v.size for v in schema),
    )
    known = target is not None and schema[target].size > 0
    classes = rows.states[:, schema.index(target)] if known and target is not None else None
    learned = learn_forest(rows, rng, classes)
    assembly = Assembly((), {})
    trees = _Trees(assembly, schema, models, kept, finer, learned)
    names = trees.names()
    gained = sum(message.alone for message in cells.values())
    owners = list(models.values())
    least = least_apart([owners.count(p) for p in dict.fromkeys(owners)], gained)
    joint, seen, judges = learned.judged
    alone = share_apart(joint, gained * _inner(rows.states, owners) * seen, judges, least)
    names.append(_apart(assembly, schema, models))
    weights = np.append((1 - alone) * trees.weights(), alone)
    number = np.full(1, float(len(rows)))
    notes = (APART,) if learned.refused else ()
    if not ((where >= 0).sum(axis=1) > 1).any():
        notes = (UNJOINED,)
    return (assembly, RootChildren(names, weights * number)), notes


def _inner(states: Labels, owners: Sequence[str]) -> float:
    """How many pairs of a party's columns rows have, as a share of the columns that they have."""
    seen, pairs, both = states >= 0, 0, 0.0
    for party in dict.fromkeys(owners):
        number = owners.count(party)
        own = seen[:, [p == party for p in owners]].sum(axis=1)
        pairs += number * (number - 1)
        both += float((own * (own - 1)).mean())
    return min(both / max(pairs, 1) / max(float(seen.mean()), 1e-9), 1.0) if pairs else 1.0


def _apart(assembly: Assembly, schema: Schema, models: Mapping[str, str]) -> str:
    """What every party has learned alone of the columns that it models."""
    leaves = []
    for party in dict.fromkeys(models.values()):
        own = tuple(n for n in schema.names if models[n] == party)
        leaves.append(alone_name(party))
        assembly.nodes[leaves[-1]] = Leaf(leaves[-1], CIRCUIT, own)
        assembly.placement[leaves[-1]] = party
    if len(leaves) == 1:
        return leaves[0]
    assembly.nodes["apart"] = Product("apart", tuple(leaves))
    assembly.placement["apart"] = COORDINATOR
    return "apart"


def _states(
    name: str, model: str, cells: Mapping[str, RowCells], where: Labels, category: bool
) -> tuple[Labels, list[int]]:
    """The state of every row (rows,), and the cell of the modelling party that each state is."""
    parties = list(cells)
    holders = [model, *(p for p in parties if p != model and name in cells[p].cells)]
    main = _placed(cells[model].cells[name], where[:, parties.index(model)])
    completed = main.copy()
    for party in holders[1:]:
        other = _placed(cells[party].cells[name], where[:, parties.index(party)])
        if category or _alike(main, other):
            completed = np.where(completed < 0, other, completed)
    kept, states = np.unique(main[main >= 0]), np.full(len(completed), -1, np.int64)
    if not len(kept):  # rows were too few to send any cell of it
        return states, [0]
    at = np.minimum(np.searchsorted(kept, completed), len(kept) - 1)
    same = (completed >= 0) & (kept[at] == completed)
    states[same] = at[same]
    return states, kept.tolist()


def _finer(finest: FinestCells, kept: Sequence[int]) -> FinerStates:
    """Finest cells of a column whose states are these of the cells that were sent."""
    at = np.searchsorted(kept, finest.within).clip(0, len(kept) - 1)
    return FinerStates(np.array(finest.rows, np.float64), at)


def _placed(cells: Labels, at: Labels) -> Labels:
    """Cells of a party's list in the order of all rows, −1 of those that it lacks."""
    return np.where(at >= 0, cells.astype(np.int64)[np.maximum(at, 0)], -1)


def _alike(main: Labels, other: Labels) -> bool:
    """Whether two parties' cells of numbers mean the same on the rows that both hold."""
    both = (main >= 0) & (other >= 0)
    if both.sum() < COMMON or main.max() != other.max():
        return False
    return bool(np.abs(main[both] - other[both]).mean() <= NEAR)


class _Trees:
    """Nodes of all components."""

    def __init__(
        self,
        assembly: Assembly,
        schema: Schema,
        models: Mapping[str, str],
        kept: Sequence[Sequence[int]],
        finer: Sequence[FinerStates | None],
        learned: LearnedForest,
    ) -> None:
        self.assembly, self.schema, self.models = assembly, schema, models
        self.kept, self.finer, self.learned = kept, finer, learned

    def names(self) -> list[str]:
        """A node that spans all columns for every component."""
        leaves = [self._leaves(c) for c in range(len(self.kept))]
        names, flat = [], self._flat()
        if flat:
            names.append(self._mixture(flat, leaves))
        for i, (edges, tables) in enumerate(self.learned.components):
            if i in flat:
                continue
            made: dict[int, str] = {}
            below: dict[int, list[str]] = {c: [] for c in range(len(leaves))}
            for (column, parent), table in zip(reversed(edges), reversed(tables), strict=True):
                made[column] = self._column(i, column, table, leaves[column], below[column])
                if parent >= 0:
                    below[parent].append(made[column])
            roots = [made[c] for c, p in edges if p < 0]
            names.append(self._product(f"tree {i}", roots))
        return names

    def weights(self) -> Array:
        """Of these nodes."""
        own, flat = self.learned.weights, self._flat()
        trees = [w for i, w in enumerate(own) if i not in flat]
        return np.array([own[flat].sum(), *trees] if flat else trees)

    def _flat(self) -> list[int]:
        """Components in which all columns are independent: one node has them all."""
        every = enumerate(self.learned.components)
        return [i for i, (edges, _) in every if all(parent < 0 for _, parent in edges)]

    def _mixture(self, flat: list[int], leaves: Sequence[list[str]]) -> str:
        components = [self.learned.components[i] for i in flat]
        order = [{c: t for (c, _), t in zip(*own, strict=True)} for own in components]
        columns = [
            self._sum(f"{name} in components", own, self._lines(c, [t[c] for t in order]))
            for c, (name, own) in enumerate(zip(self.schema.names, leaves, strict=True))
        ]
        top = self._product("components", columns)
        weights = self.learned.weights[flat]
        return self._sum("mixture of components", [top], (weights / weights.sum())[None])

    def _leaves(self, column: int) -> list[str]:
        name = self.schema.names[column]
        party = self.models[name]
        finer = self.finer[column]
        cells = self.kept[column] if finer is None else range(len(finer.rows))
        leaves = [cell_name(party, name, cell) for cell in cells]
        for leaf in leaves:
            self.assembly.nodes[leaf] = Leaf(leaf, CIRCUIT, (name,))
            self.assembly.placement[leaf] = party
        return leaves

    def _column(
        self, tree: int, column: int, table: Array, leaves: list[str], below: list[str]
    ) -> str:
        """What stands below an edge: a mixture for every state of the parent."""
        name, finer = self.schema.names[column], self.finer[column]
        given = f"{name} given its neighbour, tree {tree}"
        if not below:
            return self._sum(given, leaves, self._lines(column, [table]))
        states = f"states of {name}"
        self._sum(states, leaves, np.eye(len(leaves)) if finer is None else finer.within)
        return self._sum(given, [self._product(f"{name}, tree {tree}", [states, *below])], table)

    def _lines(self, column: int, tables: Sequence[Array]) -> Array:
        """Tables of a column for its leaves, one below the other."""
        finer, lines = self.finer[column], np.concatenate(tables)
        return lines if finer is None else finer.lines(lines)

    def _sum(self, name: str, children: list[str], weight: Array) -> str:
        self.assembly.nodes[name] = Sum(name, tuple(children), len(weight))
        self.assembly.weights[name] = {WEIGHT: weight}
        self.assembly.placement[name] = COORDINATOR
        return name

    def _product(self, name: str, children: list[str]) -> str:
        if len(children) == 1:
            return children[0]
        self.assembly.nodes[name] = Product(name, tuple(children))
        self.assembly.placement[name] = COORDINATOR
        return name

"""The upper part of a federated circuit as a latent tree over the columns of all parties.

Every column has a hidden state, its cell (cells.py): below it are the leaves that its party has
learned from its cells, above it a table for every state of its neighbour in the tree. A mixture of
such trees is learned from tables of pairs of columns (learning/pairs/choosing.py), whoever holds
them: a row that only some parties hold says what it says of their columns.

A column that several parties hold is modelled by the one with the most rows. Rows that it lacks
count by the cells of other holders, where these mean the same: codes of categories do, and ranks of
numbers if both put common rows into about the same cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.learning.pairs.choosing import learn_pairs
from fedcircuits.learning.pairs.classes import by_classes
from fedcircuits.learning.pairs.forests import MixedForests, strongly_joined
from fedcircuits.learning.pairs.tables import (
    StateColumn,
    StateCounts,
    TablesOfPairs,
    completed,
    completed_single,
)
from fedcircuits.methods.fedpc.assembly import Assembly, RootChildren
from fedcircuits.methods.fedpc.cells import (
    FinestCells,
    PairCells,
    alone_name,
    cell_name,
    coarser,
    part_name,
)
from fedcircuits.methods.fedpc.leaves import least_apart, share_apart
from fedcircuits.methods.fedpc.views import CellPlan, CellTask, View, radixes, views_of
from fedcircuits.methods.meeting.tokens import ShortTokens, matched
from fedcircuits.tables.schema import Schema, Variable

NEAR = 1.5  # cells: how far ranks of common rows may lie apart on average
COMMON = 10  # rows by which ranks are compared
APART = (
    "columns of different parties are assumed to be independent: held-out rows are more likely "
    "this way than with the dependence learned from the training rows"
)
UNJOINED = "no row is held by two parties: their columns are assumed to be independent"


def collect_cells(
    plans: Mapping[str, CellPlan], schema: Schema, held: Mapping[str, int]
) -> Flow[dict[str, PairCells]]:
    """What parties send of their rows, of which each holds so many."""
    sent = yield from gather(tuple(plans), PairCells)
    for party, message in sent.items():
        message.check(plans[party], schema, party, held[party])
    return sent


def by_forest(
    sent: Mapping[str, PairCells],
    plans: Mapping[str, CellPlan],
    where: Labels,
    schema: Schema,
    rng: np.random.Generator,
) -> tuple[tuple[Assembly, RootChildren], tuple[str, ...]]:
    """Nodes of the tree, and notes. ``where`` (rows, parties): who holds which row."""
    schema = schema.select(sorted(schema.names))  # one model, whoever holds what
    models = {t.column: p for p, plan in plans.items() for t in plan.tasks if t.models}
    models = {name: models[name] for name in schema.names}
    finest = {name: sent[p].finest[name] for name, p in models.items()}
    gained = sum(message.alone for message in sent.values())
    owners = list(models.values())
    assembly, number = Assembly((), {}), float(len(where))
    apart = _apart(assembly, schema, models)
    if not ((where >= 0).sum(axis=1) > 1).any():
        return (assembly, RootChildren([apart], np.full(1, number))), (UNJOINED,)
    tables = _ViewTables(sent, plans, schema, models).all()
    parts = {c: finest[schema.names[c]].parts for c in strongly_joined(tables)}
    learned = learn_pairs(tables.finer(parts), rng)
    leaves = [
        _cells(models[v.name], v, finest[v.name], parts.get(c, 1)) for c, v in enumerate(schema)
    ]
    trees = _Trees(assembly, schema, models, leaves, learned.mixture)
    least = least_apart([owners.count(p) for p in dict.fromkeys(owners)], gained)
    folds = len(learned.gains)
    every = np.full(folds, gained), np.full(folds, number / folds)
    alone = share_apart(learned.gains, *every, least)
    weights = np.append((1 - alone) * trees.weights(), alone)
    notes = (APART,) if learned.refused else ()
    return (assembly, RootChildren([*trees.names(), apart], weights * number)), notes


def _cells(party: str, variable: Variable, finest: FinestCells, parts: int) -> list[str]:
    """The leaves of a column: one for each of its cells, or of their parts."""
    if variable.size:
        return [cell_name(party, variable.name, cell) for cell in finest.within]
    cells = [cell_name(party, variable.name, cell) for cell in range(len(finest.rows))]
    if parts == 1:
        return cells
    return [part_name(cell, part) for cell in cells for part in range(parts)]


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


# ---------------------------------------------------------------------- tables of pairs


@dataclass(frozen=True, slots=True)
class _InView:
    """The cells of a column in the rows of a view, −1 where unknown, and the group of cells that
    each of its states is in."""

    cells: Labels
    groups: Labels


@dataclass
class _ViewTables:
    """Tables of pairs, from the views of all parties."""

    sent: Mapping[str, PairCells]
    plans: Mapping[str, CellPlan]
    schema: Schema
    models: Mapping[str, str]  # by column the party that models it
    known: str | None = field(init=False)  # the column that classes are
    classes: int = field(init=False)

    def __post_init__(self) -> None:
        classes = {t.column for plan in self.plans.values() for t in plan.tasks if t.block is None}
        self.known = next(iter(classes), None)
        self.classes = 1 if self.known is None else len(self._finest(self.known).rows)

    def all(self) -> TablesOfPairs:
        singles: dict[int, StateCounts] = {}
        pairs: dict[tuple[int, int], StateCounts] = {}
        lists = {party: _Lists(plan, self.sent[party]) for party, plan in self.plans.items()}
        by_class = self.known is None or all(plan.by_class for plan in self.plans.values())
        for view in views_of(max(plan.blocks for plan in self.plans.values())):
            columns, classes = self._view(view, lists)
            names = sorted(columns)
            for at, i in enumerate(names):
                if i not in singles:
                    singles[i] = self._single(i, self._counted(classes, columns[i]))
                for j in names[at + 1 :]:
                    if (i, j) not in pairs:
                        counted = self._counted(classes, columns[i], columns[j])
                        if not by_class:
                            counted = by_classes(counted, singles[i], singles[j])
                        if owner := self._owner(i, j):
                            rows = lists[owner].rows
                            counted = completed(counted, singles[i], singles[j], rows)
                        pairs[i, j] = counted
        columns_ = tuple(
            StateColumn(np.array(self._finest(v.name).rows, np.float64), not v.size)
            for v in self.schema
        )
        known = None if self.known is None else self.schema.index(self.known)
        return TablesOfPairs(columns_, self.classes, known, singles, pairs)

    def _single(self, column: int, counted: StateCounts) -> StateCounts:
        """With the rows that its party left out because too few have their class and state."""
        owner = None if self.known is None else self._owner(column, self.schema.index(self.known))
        if owner is None or self.known is None:
            return counted
        states, classes = (
            np.array(self._finest(name).rows) / self.plans[owner].thinned
            for name in (self.schema.names[column], self.known)
        )
        return completed_single(counted, states, classes)

    def _owner(self, *columns: int) -> str | None:
        """The party that alone holds these columns, if one does: rows that it left out are no
        gaps."""
        names = {self.schema.names[c] for c in columns}
        held = {p: names.intersection(t.column for t in plan.tasks)
                for p, plan in self.plans.items()}  # fmt: skip
        holders = [p for p, own in held.items() if own]
        return holders[0] if len(holders) == 1 else None

    def _finest(self, name: str) -> FinestCells:
        return self.sent[self.models[name]].finest[name]

    def _counted(self, classes: Labels, *columns: _InView) -> StateCounts:
        """Rows that have all of these columns, by class; those of unknown class come last."""
        both = np.all([own.cells >= 0 for own in columns], axis=0)
        sizes = [int(own.groups.max()) + 1 for own in columns]
        code = np.where(classes < 0, self.classes, classes)
        for own, size in zip(columns, sizes, strict=True):
            code = code * size + own.cells
        number = (self.classes + 1) * int(np.prod(sizes))
        rows = np.bincount(code[both], minlength=number).astype(np.float64)
        groups = tuple(own.groups for own in columns)
        return StateCounts(rows.reshape(self.classes + 1, *sizes), groups)

    def _view(self, view: View, lists: Mapping[str, _Lists]) -> tuple[dict[int, _InView], Labels]:
        """By number, the columns of a view in the rows of all parties; and the classes of rows."""
        taking = [p for p, own in lists.items() if view in own.places]
        where = matched([lists[p].tokens(view) for p in taking])
        read: dict[str, dict[str, Labels]] = {}  # cells by column and party
        classes = np.full(len(where), -1, np.int64)
        for party, at in zip(taking, where.T, strict=True):
            own, labels = lists[party].cells(view, self.schema)
            placed = [np.where(at >= 0, cells[np.maximum(at, 0)], -1) for cells in labels]
            for task, cells in zip(own, placed, strict=True):
                read.setdefault(task.column, {})[party] = cells
        columns = {}
        for name, by_party in read.items():
            if name == self.known:
                classes = self._completed(name, by_party, view).cells
            else:
                columns[self.schema.index(name)] = self._completed(name, by_party, view)
        return columns, classes

    def _completed(self, name: str, by_party: Mapping[str, Labels], view: View) -> _InView:
        """Cells of whoever models the column, and of other holders where these mean the same."""
        model, finest = self.models[name], self._finest(name)
        category = bool(self.schema[name].size)
        within = np.array(finest.within)
        if category:  # the states are the cells that its party has
            groups = np.arange(len(within))
            states = np.full(self.schema[name].size, -1)
            states[within] = groups
        else:
            states = finest.coarse(self._numbers(model, by_party, view))
            groups = states[within]
        read = {}
        for party, cells in by_party.items():
            sent = None if category else finest.coarse(self.plans[party].numbers(view))
            read[party] = _as_states(cells, states, sent)
        main = cells = read.pop(model)
        for other in read.values():
            if category or _alike(main, other):
                cells = np.where((cells < 0) & (other <= groups.max()), other, cells)
        return _InView(cells, groups)

    def _numbers(self, model: str, holders: Iterable[str], view: View) -> int:
        """The most cells of a column of numbers in a view, by who models it or else by another
        holder that has two columns there."""
        plans = [self.plans[party] for party in (model, *holders)]
        return next((p for p in plans if p.of_view(view) > 1), plans[0]).numbers(view)


def _as_states(cells: Labels, states: Labels, sent: Labels | None) -> Labels:
    """A party's cells as states; ``sent``: what it sends of each cell, if it joins some."""
    if sent is not None:
        states = np.array(
            [states[sent == k][(sent == k).sum() // 2] for k in range(sent.max() + 1)]
        )
    return coarser(np.minimum(cells, len(states) - 1), states)


class _Lists:
    """What a party lists in its views."""

    def __init__(self, plan: CellPlan, sent: PairCells) -> None:
        self.plan, views = plan, plan.views()
        self.places = {view: (number, own) for number, (view, own) in enumerate(views)}
        self.rows = len(sent.tokens) // max(len(views), 1)
        self._tokens = sent.tokens.reshape(len(views), self.rows)
        self._codes = sent.codes.reshape(len(views), self.rows)

    def tokens(self, view: View) -> ShortTokens:
        return np.asarray(self._tokens[self.places[view][0]], np.uint32)

    def cells(self, view: View, schema: Schema) -> tuple[list[CellTask], list[Labels]]:
        """Its columns, and the cells of rows."""
        number, own = self.places[view]
        codes, labels = self._codes[number].astype(np.int64), []
        for radix in reversed(radixes(self.plan, view, own, schema)):
            codes, digits = np.divmod(codes, radix)
            labels.append(digits - 1)
        return own, labels[::-1]


def _alike(main: Labels, other: Labels) -> bool:
    """Whether two parties' cells of numbers mean the same on the rows that both hold."""
    both = (main >= 0) & (other >= 0)
    if both.sum() < COMMON:
        return False
    return bool(np.abs(main[both] - other[both]).mean() <= NEAR)


# ---------------------------------------------------------------------- nodes


class _Trees:
    """Nodes of all components."""

    def __init__(
        self,
        assembly: Assembly,
        schema: Schema,
        models: Mapping[str, str],
        leaves: Sequence[list[str]],
        learned: MixedForests,
    ) -> None:
        self.assembly, self.schema, self.models = assembly, schema, models
        self.leaves, self.learned = leaves, learned

    def names(self) -> list[str]:
        """A node that spans all columns for every component."""
        leaves = [self._placed(c) for c in range(len(self.leaves))]
        names, flat = [], self._flat()
        if flat:
            names.append(self._mixture(flat, leaves))
        for i, (edges, tables) in enumerate(self.learned.forests):
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
        own, flat = self.learned.weights, set(self._flat())
        trees = [w for i, w in enumerate(own) if i not in flat]
        return np.array([own[sorted(flat)].sum(), *trees] if flat else trees)

    def _flat(self) -> list[int]:
        """Components in which all columns are independent: one node has them all."""
        every = enumerate(self.learned.forests)
        return [i for i, (edges, _) in every if all(parent < 0 for _, parent in edges)]

    def _mixture(self, flat: list[int], leaves: Sequence[list[str]]) -> str:
        components = [self.learned.forests[i] for i in flat]
        order = [{c: t for (c, _), t in zip(*own, strict=True)} for own in components]
        columns = [
            self._sum(f"{name} in components", own, np.concatenate([t[c] for t in order]))
            for c, (name, own) in enumerate(zip(self.schema.names, leaves, strict=True))
        ]
        top = self._product("components", columns)
        weights = self.learned.weights[flat]
        return self._sum("mixture of components", [top], (weights / weights.sum())[None])

    def _placed(self, column: int) -> list[str]:
        """The leaves of a column, at its party."""
        name = self.schema.names[column]
        for leaf in self.leaves[column]:
            self.assembly.nodes[leaf] = Leaf(leaf, CIRCUIT, (name,))
            self.assembly.placement[leaf] = self.models[name]
        return self.leaves[column]

    def _column(
        self, tree: int, column: int, table: Array, leaves: list[str], below: list[str]
    ) -> str:
        """What stands below an edge: a mixture for every state of the parent."""
        name = self.schema.names[column]
        given = f"{name} given its neighbour, tree {tree}"
        if not below:
            return self._sum(given, leaves, table)
        states = f"states of {name}"
        self._sum(states, leaves, np.eye(len(leaves)))
        return self._sum(given, [self._product(f"{name}, tree {tree}", [states, *below])], table)

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

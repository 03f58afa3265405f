"""What the tables of pairs say of rows: bounds on how many rows have which cells of two columns.

A coordinator of ``FedPC`` by columns receives the rows of every view, and all that it needs to read
them it has sent itself. A table of two columns of different parties counts rows exactly. Two
columns of one party come in coarse cells, and cells of few rows have joined their neighbours. Which
of them is not said, but a cell between two that are there is in the part of one of these, so that
sums of counts have bounds. The true rows are always within all bounds.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from benchmarks.attacks.wire import Role
from fedcircuits.methods.fedpc.cells import FinestCells
from fedcircuits.methods.fedpc.views import CellPlan, CellTask, View, radixes, views_of
from fedcircuits.methods.meeting.tokens import matched
from fedcircuits.tables.schema import Schema

ANY = 1 << 40  # rows
UNKNOWN = -1  # of a row of which nothing is said


@dataclass(frozen=True)
class Column:
    """Its states are what views of two columns tell apart; categories without a row are none."""

    name: str
    party: str
    ordered: bool
    finest: FinestCells
    states: Any  # (cells,) of the cells that a party may send

    @property
    def rows(self) -> Any:
        """How many have each state (states,)."""
        rows = np.bincount(self.finest.within, self.finest.rows).astype(np.int64)
        return np.bincount(self.states[rows > 0], rows[rows > 0]).astype(np.int64)

    def digits(self, most: int) -> Any:
        """What is sent of each state (states,) where it has so many cells at most."""
        if not self.ordered:
            return np.unique(self.finest.within)
        return self.finest.coarse(most)[np.unique(self.states, return_index=True)[1]]


def told_apart(finest: FinestCells, plan: CellPlan, task: CellTask, ordered: bool) -> Any:
    """The state of each cell of a column: numbers have fewer cells in views of two columns than by
    themselves, and fewest in those that have two of their party."""
    cells = max(finest.within) + 1
    if not ordered:
        states = np.zeros(cells, np.int64)
        there = np.unique(finest.within)
        states[there] = np.arange(len(there))
        return states
    pairs = {plan.numbers(view) for view, own in plan.views() if task in own and len(view) > 1}
    if task.block is None or not pairs:
        return np.arange(cells)
    every = np.stack([finest.coarse(most) for most in sorted(pairs)], axis=1)
    return np.unique(every, axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True)
class Cut:
    """Rows of which one of ``digits`` is sent have a state of ``outer``; and rows with a state of
    ``inner`` are among them or, unless it is ``exact``, among those of which nothing is said."""

    digits: Any  # (sent,)
    inner: Any  # (states,) of booleans
    outer: Any
    exact: bool = True


@dataclass
class Bounds:
    """From ``low`` to ``high`` rows have a code of each set. A code is of the class and the states
    of two columns, one pair of columns after the other."""

    columns: list[Column]
    classes: Any  # (classes,) rows of each
    shares: list[Any]  # of columns: rows (classes, states) of each, as far as they are said
    starts: Any  # (columns, columns) the first code of a pair
    codes: int  # how many
    by_class: bool  # or the class, if there is a target, is the first column
    sets: list[Any] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)

    def add(self, codes: Any, low: int, high: int) -> None:
        if len(codes) and (low > 0 or high < self.classes.sum()):
            self.sets.append(codes)
            self.low.append(max(low, 0))
            self.high.append(high)

    def parted(self, rows: Any) -> tuple[Any, Any]:
        """Classes, in rising order, and cells of the columns, of rows (rows, class and columns)."""
        if not self.by_class:
            return np.zeros(len(rows), np.int64), rows
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return rows[:, 0], rows[:, 1:]

    def joined(self, classes: Any, table: Any) -> Any:
        return np.column_stack([classes, table]) if self.by_class else table


@dataclass
class _InView:
    """A column in the rows of a view."""

    column: Column
    sent: Any  # (rows,) digits, UNKNOWN where there is none
    digits: Any  # (states,) that stand for each state
    all_sent: Any  # (rows,) digits of cells, of which a state may have several

    def cuts(self, rows: Any) -> Iterator[Cut]:
        """Of these rows, among which small cells joined each other: as many as bound them."""
        there = np.unique(self.sent[rows])
        known = there[there >= 0]
        missing = np.setdiff1d(self.digits, known)
        if not self.column.ordered or not len(missing):
            for digit in known:
                states = self.digits == digit
                yield Cut(np.array([digit]), states, states)
            if len(missing):
                states = np.isin(self.digits, missing)
                yield Cut(np.array([UNKNOWN]), states, states)
            return
        for last, following in itertools.pairwise(known):
            within = self.digits <= last
            outer = self.digits < following
            yield Cut(known[known <= last], within, outer, UNKNOWN not in there)
        yield Cut(there, *[np.ones(len(self.digits), bool)] * 2)

    def parts(self, rows: Any) -> Iterator[Cut]:
        """The same by single digits, which a second column of the party is cut within."""
        there = np.unique(self.sent[rows])
        known = there[there >= 0]
        missing = ~np.isin(self.digits, known)
        for at, digit in enumerate(known):
            core = self.digits == digit
            hull = core
            if self.column.ordered:
                before = known[at - 1] if at else -1
                after = known[at + 1] if at + 1 < len(known) else self.digits.max() + 1
                hull = core | (missing & (self.digits > before) & (self.digits < after))
            yield Cut(np.array([digit]), core, hull)
        if UNKNOWN in there:
            exact = not self.column.ordered
            yield Cut(np.array([UNKNOWN]), missing if exact else missing & False, missing)


def bounds(role: Role, schema: Schema) -> Bounds:
    """From what a coordinator sent and received in a run."""
    plans = {
        to: msgspec.convert(d["cells"], CellPlan) for to, t, d in role.sent if t == "rows/plan"
    }
    sent = {party: d for party, tag, d in role.received if tag == "count/cells"}
    return _Reader(plans, sent, schema).bounds()


class _Reader:
    def __init__(
        self, plans: Mapping[str, CellPlan], sent: Mapping[str, Mapping[str, Any]], schema: Schema
    ) -> None:
        self.plans, self.sent, self.schema = plans, sent, schema
        tasks = [(task, party) for party, plan in plans.items() for task in plan.tasks]
        classes = [(task.column, party) for task, party in tasks if task.block is None]
        by_class = all(plan.by_class for plan in plans.values())
        self.target, self.holder = classes[0] if classes and by_class else (None, None)
        self.columns = [
            self._column(task, party) for task, party in tasks if task.column != self.target
        ]
        self.classes = None if by_class or not classes else classes[0][0]
        self.columns.sort(key=lambda c: (c.name != self.classes, c.party, c.ordered, c.name))

    def bounds(self) -> Bounds:
        blocks = next(iter(self.plans.values())).blocks
        read = {view: self._view(view) for view in views_of(blocks)}
        classes = np.bincount(next(iter(read.values()))[1])
        sizes = np.array([len(column.rows) for column in self.columns])
        starts, codes = _starts(sizes, len(classes))
        shares = [np.zeros((len(classes), size), np.int64) for size in sizes]
        found = Bounds(self.columns, classes, shares, starts, codes, not self.classes)
        place = {column.name: at for at, column in enumerate(self.columns)}
        for columns, of_class in read.values():
            at = [place[own.column.name] for own in columns]
            if len(columns) == 1:
                self._shares(found.shares[at[0]], columns[0], of_class)
            elif len(columns) == 2 and self._are_all_said(columns):
                for codes_, low, high in self._pair(columns[0], columns[1], of_class):
                    found.add(starts[at[0], at[1]] + codes_, low, high)
        return found

    def _are_all_said(self, columns: list[_InView]) -> bool:
        """Not where small cells of one party, which also holds the classes, have joined others."""
        if len({own.column.party for own in columns}) > 1 or not self.classes:
            return True
        if self.classes not in {own.column.name for own in columns}:
            return True
        pairs = np.stack([own.all_sent for own in columns])
        number = np.prod([len(np.unique(own.column.finest.within)) for own in columns])
        return len(np.unique(pairs, axis=1).T) == number and bool((pairs >= 0).all())

    def _column(self, task: CellTask, party: str) -> Column:
        finest = msgspec.convert(self.sent[party]["finest"][task.column], FinestCells)
        ordered = not self.schema[task.column].size
        states = told_apart(finest, self.plans[party], task, ordered)
        return Column(task.column, party, ordered, finest, states)

    def _view(self, view: View) -> tuple[list[_InView], Any]:
        """Its columns in the order of all columns, and the classes of its rows."""
        lists = {p: self._list(p, view) for p, plan in self.plans.items()
                 if view in dict(plan.views())}  # fmt: skip
        where = matched([tokens for tokens, _ in lists.values()])
        digits = {
            name: labels[at]
            for (_, own), at in zip(lists.values(), where.T, strict=True)
            for name, labels in own.items()
        }
        of_class = digits.pop(self.target, np.zeros(len(where), np.int64))
        of_class = np.unique(of_class, return_inverse=True)[1].reshape(-1)
        columns = []
        for column in self.columns:
            if column.name in digits:
                sent = digits[column.name]
                most = self.plans[column.party].numbers(view)
                if len(view) == 1 and column.ordered:
                    sent = np.where(sent < 0, UNKNOWN, column.states[sent])
                    numbers = np.arange(len(column.rows))
                else:
                    numbers = column.digits(most)
                columns.append(_InView(column, sent, numbers, digits[column.name]))
        return columns, of_class

    def _list(self, party: str, view: View) -> tuple[Any, dict[str, Any]]:
        """Tokens of a party's rows in a view, and by column what it sends of them."""
        plan, sent = self.plans[party], self.sent[party]
        views = plan.views()
        rows = len(sent["tokens"]) // len(views)
        at = [one for one, _ in views].index(view)
        own, codes = views[at][1], sent["codes"][at * rows : (at + 1) * rows].astype(np.int64)
        read = {}
        for radix, task in zip(
            reversed(radixes(plan, view, own, self.schema)), reversed(own), strict=True
        ):
            codes, digits = np.divmod(codes, radix)
            read[task.column] = digits - 1
        return sent["tokens"][at * rows : (at + 1) * rows], read

    def _shares(self, rows: Any, own: _InView, of_class: Any) -> None:
        for state, digit in enumerate(own.digits):
            rows[:, state] = np.bincount(of_class[own.sent == digit], minlength=len(rows))

    def _pair(self, one: _InView, other: _InView, of_class: Any) -> Iterator[tuple[Any, int, int]]:
        """Sets of codes, and how many rows have one of them at least and at most."""
        same = one.column.party == other.column.party
        for c in range(int(of_class.max()) + 1):
            within = of_class == c
            context = [within if p.column.party == self.holder else within | True
                       for p in (one, other)]  # fmt: skip
            for first in one.parts(context[0]) if same else one.cuts(context[0]):
                has = np.isin(one.sent, first.digits)
                rows = context[1] & has if same else context[1]
                for second in other.cuts(rows):
                    number = int((within & has & np.isin(other.sent, second.digits)).sum())
                    exact = first.exact and second.exact
                    unsaid = within & ((one.sent < 0) | (other.sent < 0))
                    most = number if exact else number + int(unsaid.sum())
                    yield from _between(c, first, second, number, most)


def _between(c: int, one: Cut, other: Cut, rows: int, most: int) -> Iterator[tuple[Any, int, int]]:
    size = len(one.outer) * len(other.outer)
    outer = c * size + np.flatnonzero(np.outer(one.outer, other.outer))
    inner = c * size + np.flatnonzero(np.outer(one.inner, other.inner))
    if len(outer) == len(inner):
        yield outer, rows, most
    else:
        yield outer, rows, ANY
        yield inner, 0, most


def _starts(sizes: Any, classes: int) -> tuple[Any, int]:
    starts, codes = np.zeros((len(sizes), len(sizes)), np.int64), 0
    for i in range(len(sizes)):
        for j in range(i + 1, len(sizes)):
            starts[i, j] = codes
            codes += classes * sizes[i] * sizes[j]
    return starts, codes

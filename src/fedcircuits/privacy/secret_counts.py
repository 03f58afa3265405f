"""How often labels of different parties meet in a row, counted on secret shares: the coordinator
learns the counts, and nobody learns a label of another party's row.

The label of a row is a list of zeros with a one in it. Each party deals shares of its lists; the
number of rows in a combination is a sum of products of them. The last product is summed over rows
before it is opened, so that counting two parties sends no product of single rows at all.

    count/tasks       coordinator → party: which parties' labels are counted, over how many rows
    count/rows        coordinator → party: which of its rows they are, where it holds them
    …/clusters/p      party p → member: shares of its rows' labels (labels, rows)
    …/occur           coordinator → member: which combinations of some of the parties occur; only
                      with three parties or more, and where all possible combinations are more than
                      ``room`` numbers
    …/meet            member → member: shares of products, row by row, for those combinations
    …/check/…         member → member: that lists are lists of labels, and all products (checks.py)
    …/sums, …/table   member → member, then member → coordinator: shares of the counts

Members are the parties, and with only two parties the coordinator as well. Any t of N members,
t = ⌊(N − 1)/2⌋, learn nothing together but what is said here: of two parties and the coordinator,
one party and the coordinator together would learn the other's labels. What the coordinator sees of
some of the parties' combinations follows from the counts that it sees in the end. A party learns
which of its rows the others hold, and nothing of their labels but what ``occur`` says.

A single member that changes, swaps, repeats or invents shares in any message ends the count before
anything is opened: products are checked, and counts have redundant shares. So does one whose lists
are not zeros with a single one in each. Nobody can check what a member claims about its own rows.

Shares are in the field of 2^31 − 1, which holds all counts: 4 bytes per number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, receive, send
from fedcircuits.federation.messages import Booleans, IntegerVector, Message, require, require_shape
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.federation.sums.counting import CombinationCounts, Contingency, Labels
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.checks import Claim, Made, checks_made, dot
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.sharing.group import Group, opened_to, shared
from fedcircuits.privacy.sharing.randomness import Stream

RING = Ring(31)
LONGEST = 1 << 20  # rows at a time, for which sums of products are exact (``inner``)
MOST_LABELS = 1 << 20
COUNTS = "the number of rows in each combination of clusters"
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CountTask:
    """Labels of some parties to be counted over the rows that exactly these hold."""

    table: int
    parties: tuple[str, ...]
    labels: tuple[Annotated[int, Meta(ge=1, le=MOST_LABELS)], ...]  # how many each party has
    rows: Annotated[int, Meta(ge=1, le=RING.modulus - 1)]


class CountTasks(Message, frozen=True):
    """What is counted, the same for all parties."""

    tag: ClassVar[str] = "count/tasks"
    reveals: ClassVar[str] = (
        "which parties' clusters are counted, over how many rows, and which of the reader's "
        "clusters are among them"
    )

    tasks: tuple[CountTask, ...]


class CountedRows(Message, frozen=True):
    """For each task, which of a party's rows are counted, as positions in its list."""

    tag: ClassVar[str] = "count/rows"
    reveals: ClassVar[str] = "which of the reader's rows other parties hold"

    rows: dict[int, IntegerVector]


class OccurringCombinations(Message, frozen=True):
    """Which combinations of two parts occur."""

    reveals: ClassVar[str] = (
        "which combinations of some parties' clusters occur, but not how often or in which rows"
    )

    occurs: Booleans  # (combinations of the first part, of the second)


# ---------------------------------------------------------------------- roles


@dataclass(frozen=True, slots=True)
class SecretCounts:
    """One end of counting on shares."""

    me: str
    parties: tuple[str, ...]
    key: bytes | None = field(default=None, repr=False)
    room: int = 1 << 22  # numbers in a block of rows, and before asking which occur
    products: int = 1 << 30  # products that a member makes

    @property
    def members(self) -> tuple[str, ...]:
        """Who holds shares: the parties, and with only two parties the coordinator as well."""
        return self.parties if len(self.parties) > 2 else (*self.parties, COORDINATOR)

    def contribute(self, labels: Mapping[int, Labels]) -> Flow[None]:
        tasks = (yield from receive(COORDINATOR, CountTasks)).tasks
        rows = (yield from receive(COORDINATOR, CountedRows)).rows
        mine = [number for number, task in enumerate(tasks) if self.me in task.parties]
        _require_tasks(tasks, self.parties, {n: len(label) for n, label in labels.items()}, mine)
        _require_rows(rows, {n: (tasks[n].rows, len(labels[tasks[n].table])) for n in mine})
        for number, task in enumerate(tasks):
            secret = None
            if number in rows:
                label = labels[task.table][rows[number]]
                size = task.labels[task.parties.index(self.me)]
                secret = RING.elements((label == np.arange(size)[:, None]).astype(np.uint64))
            yield from self._task(number, task).counted(secret)

    def collect(
        self, tables: Mapping[int, Contingency], where: Labels
    ) -> Flow[dict[int, CombinationCounts]]:
        """Like ``PlainCounts``, for tables of several parties and complete rows."""
        tasks, rows = _tasks(self.parties, tables, where)
        yield from broadcast(self.parties, CountTasks(tuple(tasks)))
        for party in self.parties:
            of_party = {
                i: rows[i][:, t.parties.index(party)]
                for i, t in enumerate(tasks) if party in t.parties
            }  # fmt: skip
            yield from send(party, CountedRows(of_party))
        parts: dict[int, list[CombinationCounts]] = {}
        for number, task in enumerate(tasks):
            counts = yield from self._task(number, task).counted(None)
            assert counts is not None, "the coordinator learns the counts"
            parties = tables[task.table].parties
            wide = np.full((len(counts[0]), len(parties)), -1, dtype=np.int64)
            wide[:, [parties.index(p) for p in task.parties]] = counts[0]
            parts.setdefault(task.table, []).append((wide, counts[1]))
        return {table: _sorted(counts) for table, counts in parts.items()}

    def _task(self, number: int, task: CountTask) -> _Tally:
        """Every task has different shares."""
        key, label = self.key or fresh_key(), f"clusters that meet, {number}"
        group = Group.of(self.me, self.members, key, label).over(RING)
        return _Tally(group, f"count/{number}", task, self.room, self.products)


def _require_tasks(
    tasks: Sequence[CountTask], parties: Sequence[str], listed: Mapping[int, int], mine: list[int]
) -> None:
    for task in tasks:
        fits = len(task.parties) == len(task.labels) == len(set(task.parties) & set(parties))
        problem = "expected a number of labels for each of several parties"
        require(fits and len(task.parties) > 0, COORDINATOR, CountTasks, "tasks", problem)
    known = all(tasks[number].table in listed for number in mine)
    require(known, COORDINATOR, CountTasks, "tasks", f"expected tables {sorted(listed)}")


def _require_rows(rows: Mapping[int, Labels], sizes: Mapping[int, tuple[int, int]]) -> None:
    fits = set(rows) == set(sizes)
    problem = f"{CountTasks.tag!r} asks for rows of tasks {sorted(sizes)}, got {sorted(rows)}"
    require(fits, COORDINATOR, CountedRows, "rows", problem)
    for number, (counted, listed) in sizes.items():
        require_shape(rows[number], (counted,), COORDINATOR, CountedRows, "rows")
        fits = not counted or 0 <= rows[number].min() <= rows[number].max() < listed
        require(fits, COORDINATOR, CountedRows, "rows", f"expected places from 0 to {listed - 1}")


def _tasks(
    parties: Sequence[str], tables: Mapping[int, Contingency], where: Labels
) -> tuple[list[CountTask], list[Labels]]:
    """Tasks, and where each of their parties lists the rows (rows, parties)."""
    tasks, rows = [], []
    for number, table in tables.items():
        at = where[:, [parties.index(p) for p in table.parties]]
        sets, which = np.unique(at >= 0, axis=0, return_inverse=True)
        for i, held in enumerate(sets):
            holders = tuple(p for p, has in zip(table.parties, held, strict=True) if has)
            if len(table.parties) > 1 and table.completed_by(holders):
                labels = tuple(table.labels[table.parties.index(p)] for p in holders)
                rows.append(at[which.reshape(-1) == i][:, held])
                tasks.append(CountTask(number, holders, labels, len(rows[-1])))
    return tasks, rows


def _sorted(parts: Sequence[CombinationCounts]) -> CombinationCounts:
    cells, rows = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort(cells.T[::-1])
    return cells[order], rows[order]


# ---------------------------------------------------------------------- counting one task


@dataclass(frozen=True, slots=True)
class _Met:
    """Combinations of some of a task's parties: those that one has dealt, or of two such parts."""

    places: tuple[int, ...]  # of its parties in the task
    cells: Labels  # (combinations, parties)
    dealt: Elements | None = field(default=None, repr=False)  # a member's shares (labels, rows, …)
    below: tuple[_Met, _Met] | None = None
    at: tuple[Labels, Labels] | None = None  # the place of each combination in the two parts


@dataclass(frozen=True, slots=True)
class _Tally:
    """One task, at one member or at the coordinator."""

    group: Group
    tag: str
    task: CountTask
    room: int
    products: int
    claims: list[Claim] = field(default_factory=list)  # not checked yet

    def counted(self, secret: Elements | None) -> Flow[CombinationCounts | None]:
        """At the coordinator the combinations of the task's parties that occur, and their rows."""
        parts = yield from self._dealt(secret)
        step, rows = 0, self.task.rows
        while len(parts) > 2:  # those with the fewest combinations first
            parts.sort(key=lambda part: (len(part.cells), part.places))
            joint = yield from self._joined(f"{self.tag}/{step}", parts[0], parts[1])
            parts, step = [joint, *parts[2:]], step + 1
        table = yield from self._table(self.tag, parts)
        if table is None:
            return None
        if (table > rows).any() or table.sum() != rows:
            raise ProtocolError(
                f"counts of {rows:,} rows of {', '.join(self.task.parties)} do not add up to that "
                "number: one of the members dealt wrong shares; start again without it"
            )
        at = np.nonzero(table)
        cells = np.concatenate([p.cells[i] for p, i in zip(parts, at, strict=True)], axis=1)
        order = np.argsort([place for part in parts for place in part.places])
        return cells[:, order], table[at].astype(np.float64)

    def _dealt(self, secret: Elements | None) -> Flow[list[_Met]]:
        """Every party deals before it waits for others: one round."""
        group, task = self.group, self.task
        parts: dict[str, _Met] = {}
        for dealer in sorted(task.parties, key=lambda p: p != group.me):
            place = task.parties.index(dealer)
            shape = (task.labels[place], task.rows)
            mine = secret if dealer == group.me else None
            tag = f"{self.tag}/clusters/{dealer}"
            dealt = yield from shared(group, tag, mine, shape, dealers=[dealer])
            cells = np.arange(shape[0])[:, None]
            parts[dealer] = _Met((place,), cells, dealt[0] if group.inside else None)
        every = [parts[p] for p in task.parties]  # in one order at all members
        self.claims.extend(_labels_claim(p.dealt) for p in every if p.dealt is not None)
        return every

    def _table(self, tag: str, parts: Sequence[_Met]) -> Flow[Labels | None]:
        """At the coordinator rows by combination of one part, or of two (combinations of each)."""
        shape = tuple(len(part.cells) for part in parts)
        total: Elements | None = None
        if self.group.inside:
            total, size = RING.zeros(shape), min(LONGEST, max(1, self.room // sum(shape)))
            for start in range(0, self.task.rows, size):
                block = slice(start, start + size)
                shares = []
                for part in parts:
                    shares.append((yield from self._shares(tag, part, block)))
                sums = _sums(shares)
                if len(parts) > 1:  # of degree 2t
                    sums = yield from reduced(self.group, f"{tag}/sums", sums)
                    self.claims.append(Claim.matrices(RING, shares[0], shares[1], sums))
                yield from self._checked(f"{tag}/check")
                total = RING.add(total, sums)
        table = yield from opened_to(self.group, f"{tag}/table", COORDINATOR, total, shape, COUNTS)
        return None if table is None else table[..., 0].astype(np.int64)

    def _shares(self, tag: str, part: _Met, rows: slice) -> Flow[Elements]:
        """A member's shares of which rows are in which combination, (combinations, rows, limbs)."""
        if part.below is None or part.at is None:
            assert part.dealt is not None, "a member has shares of all labels"
            return part.dealt[:, rows]
        factors = []
        for below, at in zip(part.below, part.at, strict=True):
            factors.append((yield from self._shares(tag, below, rows))[at])
        a, b = factors
        fresh = yield from reduced(self.group, f"{tag}/meet", RING.multiply(a, b))
        self.claims.append(Claim.of(RING, a, b, fresh))
        return fresh

    def _checked(self, tag: str) -> Flow[None]:
        """All that was claimed so far; ProtocolError if any of it is wrong."""
        plan = [[(claim.ring, claim.terms) for claim in self.claims]]
        checks = yield from checks_made(self.group, tag, plan)
        wrong = f"counts of {', '.join(self.task.parties)} are wrong"
        yield from checks.check(tag, self.claims, wrong)
        self.claims.clear()

    def _joined(self, tag: str, a: _Met, b: _Met) -> Flow[_Met]:
        """Combinations of both; where many are possible, only those that occur."""
        cells = np.arange(len(a.cells) * len(b.cells))
        if self.task.rows * len(cells) > self.room:
            cells = yield from self._occurring(tag, a, b)
        i, j = np.divmod(cells, len(b.cells))
        both = np.concatenate([a.cells[i], b.cells[j]], axis=1)
        return _Met((*a.places, *b.places), both, below=(a, b), at=(i, j))

    def _occurring(self, tag: str, a: _Met, b: _Met) -> Flow[Labels]:
        """The coordinator sees the counts, the others learn which combinations occur."""
        table = yield from self._table(tag, (a, b))
        rows, tag = self.task.rows, f"{tag}/occur"
        if self.group.me != COORDINATOR:
            occurs = (yield from receive(COORDINATOR, OccurringCombinations, tag)).occurs
            require_shape(occurs, (len(a.cells), len(b.cells)), COORDINATOR, tag, "occurs")
            return np.flatnonzero(occurs)
        assert table is not None, "the coordinator learns the counts"
        cells = np.flatnonzero(table)
        if rows * len(cells) > self.products:
            raise FederationError(
                f"{len(cells):,} combinations of clusters over {rows:,} rows are too many to "
                "count on shares: use fewer clusters, or weights='sizes'"
            )
        others = [m for m in self.group.members if m != COORDINATOR]
        yield from broadcast(others, OccurringCombinations(table > 0), tag)
        return cells


# ---------------------------------------------------------------------- matrices of the field


def _labels_claim(lists: Elements) -> Claim:
    """The claim that a row's numbers are 0 or 1 and add up to 1, of shares (labels, rows,
    limbs)."""
    x = lists.reshape(-1, RING.limbs)

    def made(stream: Stream) -> Made:
        one, sums = RING.elements(1), RING.sum(lists)
        left = RING.multiply(stream.elements(RING, (len(x),)), x)
        rest = dot(RING, stream.elements(RING, (len(sums),)), RING.subtract(one, sums))
        return left, RING.subtract(x, one), rest

    return Claim(RING, len(x), made)


def _sums(shares: Sequence[Elements]) -> Elements:
    if len(shares) == 1:
        return RING.sum(np.moveaxis(shares[0], 1, 0))
    return inner(shares[0][..., 0], shares[1][..., 0])[..., None]


def inner(a: Words, b: Words) -> Words:
    """Σ_r a[i, r] b[j, r] in the field: (i, j), of numbers below 2^31 − 1 and at most 2^20 rows.

    Halves of 16 bits are multiplied as float64 matrices, which is exact for this many rows: with
    x = 2^16 h + l, and 2^32 = 2 in the field, a sum of products is 2 hh + 2^16 (hl + lh) + ll.
    """
    p, (ah, al), (bh, bl) = np.uint64(RING.modulus), _halves(a), _halves(b)
    parts = (ah @ bh.T, ah @ bl.T + al @ bh.T, al @ bl.T)
    hh, middle, ll = (part.astype(np.uint64) % p for part in parts)
    return np.asarray((np.uint64(2) * hh + (middle << np.uint64(16)) + ll) % p, np.uint64)


def _halves(words: Words) -> tuple[Array, Array]:
    high, low = words >> np.uint64(16), words & np.uint64(0xFFFF)
    return high.astype(np.float64), low.astype(np.float64)

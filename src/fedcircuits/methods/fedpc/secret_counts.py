"""How often clusters of different parties meet in a row, counted on secret shares: the coordinator
learns the counts, and nobody a cluster of another party's row.

A row's cluster is a list of zeros with a one in it. Each party deals shares of its lists; the
number of rows in a combination is a sum of products of them. The last product is summed over rows
before it is opened, so that counting two parties sends no product of single rows at all.

    count/tasks       coordinator → party: which parties' clusters are counted, over how many rows
    count/rows        coordinator → party: which of its rows they are, where it holds them
    …/clusters/p      party p → member: shares of its rows' clusters (clusters, rows)
    …/occur           coordinator → member: which combinations of some of the parties occur; only of
                      three parties or more, and where all there could be are more than ``ROOM``
                      numbers
    …/meet            member → member: shares of products, row by row, for those combinations
    …/sums, …/table   member → member, then member → coordinator: shares of the counts

Members are the parties, or, where there are but two, these and the coordinator. Any t of N members,
t = ⌊(N − 1)/2⌋, learn nothing together but what is said here: of two parties and the coordinator,
one party and the coordinator together would learn the other's clusters. What the coordinator sees
of some of the parties' combinations follows from the counts that it sees in the end. A party learns
which of its rows the others hold, and nothing of their clusters but what ``occur`` says.

Shares are in the field of 2^31 − 1, which holds all counts: 4 bytes a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.sums.collectives import broadcast_payload
from fedcircuits.federation.tokens import Labels
from fedcircuits.federation.wire import AnyArray, Json
from fedcircuits.methods.fedpc.divisions import Division
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.randomness import fresh_key
from fedcircuits.privacy.sharing.sharing import opened_to, shared

RING = Ring(31)
ROOM = 1 << 22  # numbers of one block of rows; where all combinations have fewer none is left out
MOST = 1 << 30  # products that a member makes
LONGEST = 1 << 20  # rows at a time, for which sums of products are exact (``inner``)
COUNTS = "how many rows fall into which combination of clusters"
OCCUR = "which combinations of some parties' clusters occur, not how often nor in which rows"
Words = npt.NDArray[np.uint64]
Met = tuple[Labels, Array]  # combinations (combinations, parties), −1 who is not in it; their rows


@dataclass(frozen=True, slots=True)
class Task:
    """Clusters of some parties to be counted over the rows that exactly these hold."""

    division: int
    parties: tuple[str, ...]
    clusters: tuple[int, ...]  # how many each has
    rows: int

    @classmethod
    def of(cls, told: Mapping[str, object]) -> Task:
        parties, clusters = cast(list[str], told["parties"]), cast(list[int], told["clusters"])
        whole = cast(int, told["division"]), cast(int, told["rows"])
        return cls(whole[0], tuple(parties), tuple(clusters), whole[1])

    def to_json(self) -> Json:
        return {"division": self.division, "parties": list(self.parties),
                "clusters": list(self.clusters), "rows": self.rows}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """Combinations of some of a task's parties: those that one has dealt, or of two parts."""

    places: tuple[int, ...]  # of its parties in the task
    cells: Labels  # (combinations, parties)
    dealt: Elements | None = None  # a member's shares (clusters, rows, limbs)
    below: tuple[_Part, _Part] | None = None
    at: tuple[Labels, Labels] | None = None  # each combination's place in the two parts


def members_of(parties: Sequence[str]) -> tuple[str, ...]:
    """Who holds shares: the parties, and where there are but two the coordinator too."""
    return tuple(parties) if len(parties) > 2 else (*parties, COORDINATOR)


# ---------------------------------------------------------------------- roles


def client(
    me: str, parties: Sequence[str], key: bytes | None, labels: Mapping[int, Labels]
) -> Flow[None]:
    """``labels``: by division the clusters of its rows, in the order of its tokens."""
    heard = yield from recv_payload(COORDINATOR, "count/tasks")
    told = expect(heard, list, COORDINATOR, "count/tasks")
    tasks = [Task.of(expect(own, dict, COORDINATOR, "count/tasks")) for own in told]
    rows = yield from recv_payload(COORDINATOR, "count/rows")
    mine = expect(rows, dict, COORDINATOR, "count/rows")
    for number, task in enumerate(tasks):
        group = _group(me, parties, key, number)
        own = None
        if me in task.parties:
            label = labels[task.division][np.asarray(mine[str(number)], np.int64)]
            size = task.clusters[task.parties.index(me)]
            own = RING.elements((label == np.arange(size)[:, None]).astype(np.uint64))
        yield from _counted(group, f"count/{number}", task, own)


def coordinator(
    parties: Sequence[str],
    divisions: Sequence[Division],
    where: Labels,
    sizes: Mapping[str, Mapping[str, Sequence[int]]],
    key: bytes | None,
) -> Flow[dict[int, Met]]:
    """By division of several parties: combinations that have all its variables, and their rows, as
    ``tokens.patterns`` would find them. ``where`` (rows, parties): where each lists a row."""
    tasks, rows = _tasks(parties, divisions, where, sizes)
    about = "whose clusters are counted over how many rows, and of which of its own"
    yield from broadcast_payload(parties, "count/tasks", [t.to_json() for t in tasks], about)
    for party in parties:
        own: dict[str, AnyArray] = {
            str(i): rows[i][:, t.parties.index(party)]
            for i, t in enumerate(tasks) if party in t.parties
        }  # fmt: skip
        yield from send_payload(party, "count/rows", own, "which of its rows other parties hold")
    found: dict[int, list[Met]] = {}
    for number, task in enumerate(tasks):
        group = _group(COORDINATOR, parties, key, number)
        met = yield from _counted(group, f"count/{number}", task, None)
        assert met is not None, "the coordinator learns the counts"
        wide = np.full((len(met[0]), len(divisions[task.division].parties)), -1, dtype=np.int64)
        wide[:, [divisions[task.division].parties.index(p) for p in task.parties]] = met[0]
        found.setdefault(task.division, []).append((wide, met[1]))
    return {division: _sorted(parts) for division, parts in found.items()}


def _group(me: str, parties: Sequence[str], key: bytes | None, task: int) -> Group:
    """Other shares in every task."""
    label = f"clusters that meet, {task}"
    return Group.of(me, members_of(parties), key or fresh_key(), label).over(RING)


def _tasks(
    parties: Sequence[str],
    divisions: Sequence[Division],
    where: Labels,
    sizes: Mapping[str, Mapping[str, Sequence[int]]],
) -> tuple[list[Task], list[Labels]]:
    """Tasks, and where each of their parties lists the rows (rows, parties)."""
    tasks, rows = [], []
    for number, division in enumerate(divisions):
        at = where[:, [parties.index(p) for p in division.parties]]
        sets, which = np.unique(at >= 0, axis=0, return_inverse=True)
        for i, held in enumerate(sets):
            own = tuple(p for p, has in zip(division.parties, held, strict=True) if has)
            whole = all(set(own).intersection(s.holders) for s in division.spaces)
            if len(division.parties) > 1 and whole:
                clusters = tuple(len(sizes[p][str(number)]) for p in own)
                rows.append(at[which.reshape(-1) == i][:, held])
                tasks.append(Task(number, own, clusters, len(rows[-1])))
    return tasks, rows


def _sorted(parts: Sequence[Met]) -> Met:
    cells, rows = (np.concatenate(own) for own in zip(*parts, strict=True))
    order = np.lexsort(cells.T[::-1])
    return cells[order], rows[order]


# ---------------------------------------------------------------------- counting


def _counted(group: Group, tag: str, task: Task, own: Elements | None) -> Flow[Met | None]:
    """At the coordinator the combinations of the task's parties that occur, and their rows."""
    parts = yield from _dealt(group, tag, task, own)
    step = 0
    while len(parts) > 2:  # those with the fewest combinations first
        parts.sort(key=lambda part: (len(part.cells), part.places))
        joint = yield from _joined(group, f"{tag}/{step}", parts[0], parts[1], task.rows)
        parts, step = [joint, *parts[2:]], step + 1
    table = yield from _table(group, tag, parts, task.rows)
    if table is None:
        return None
    if (table > task.rows).any() or table.sum() != task.rows:
        raise ProtocolError(
            f"counts of {task.rows:,} rows of {', '.join(task.parties)} do not add up to them: one "
            "of the members has dealt wrong shares; start again without it"
        )
    at = np.nonzero(table)
    cells = np.concatenate([p.cells[i] for p, i in zip(parts, at, strict=True)], axis=1)
    order = np.argsort([place for part in parts for place in part.places])
    return cells[:, order], table[at].astype(np.float64)


def _dealt(group: Group, tag: str, task: Task, own: Elements | None) -> Flow[list[_Part]]:
    """Everybody deals before it waits for others: one round."""
    found: dict[str, _Part] = {}
    for dealer in sorted(task.parties, key=lambda p: p != group.me):
        place = task.parties.index(dealer)
        shape = (task.clusters[place], task.rows)
        secret = own if dealer == group.me else None
        dealt = yield from shared(
            group, f"{tag}/clusters/{dealer}", secret, shape, dealers=[dealer]
        )
        cells = np.arange(shape[0])[:, None]
        found[dealer] = _Part((place,), cells, dealt[0] if group.inside else None)
    return [found[p] for p in task.parties]


def _table(group: Group, tag: str, parts: Sequence[_Part], rows: int) -> Flow[Labels | None]:
    """At the coordinator rows by combination of one part, or of two (combinations of each)."""
    shape = tuple(len(part.cells) for part in parts)
    total: Elements | None = None
    if group.inside:
        total, size = RING.zeros(shape), min(LONGEST, max(1, ROOM // sum(shape)))
        for start in range(0, rows, size):
            some = slice(start, start + size)
            found = []
            for part in parts:
                found.append((yield from _shares(group, tag, part, some)))
            total = RING.add(total, _sums(found))
        if len(parts) > 1:  # of degree 2t
            total = yield from reduced(group, f"{tag}/sums", total)
    table = yield from opened_to(group, f"{tag}/table", COORDINATOR, total, shape, COUNTS)
    return None if table is None else table[..., 0].astype(np.int64)


def _shares(group: Group, tag: str, part: _Part, rows: slice) -> Flow[Elements]:
    """A member's shares of which rows are in which combination, (combinations, rows, limbs)."""
    if part.below is None or part.at is None:
        assert part.dealt is not None, "a member has shares of all clusters"
        return part.dealt[:, rows]
    found = []
    for below, at in zip(part.below, part.at, strict=True):
        found.append((yield from _shares(group, tag, below, rows))[at])
    return (yield from reduced(group, f"{tag}/meet", RING.multiply(*found)))


def _sums(shares: Sequence[Elements]) -> Elements:
    if len(shares) == 1:
        return RING.sum(np.moveaxis(shares[0], 1, 0))
    return inner(shares[0][..., 0], shares[1][..., 0])[..., None]


def _joined(group: Group, tag: str, a: _Part, b: _Part, rows: int) -> Flow[_Part]:
    """Combinations of both; of many there could be only those that occur."""
    cells = np.arange(len(a.cells) * len(b.cells))
    if rows * len(cells) > ROOM:
        cells = yield from _occurring(group, tag, a, b, rows)
    i, j = np.divmod(cells, len(b.cells))
    both = np.concatenate([a.cells[i], b.cells[j]], axis=1)
    return _Part((*a.places, *b.places), both, below=(a, b), at=(i, j))


def _occurring(group: Group, tag: str, a: _Part, b: _Part, rows: int) -> Flow[Labels]:
    """The coordinator sees how often, the others hear which."""
    table = yield from _table(group, tag, (a, b), rows)
    if group.me != COORDINATOR:
        heard = yield from recv_payload(COORDINATOR, f"{tag}/occur")
        found = expect(heard, np.ndarray, COORDINATOR, f"{tag}/occur")
        possible = np.arange(len(a.cells) * len(b.cells))
        if found.dtype != np.int64 or not np.isin(found, possible).all():
            raise ProtocolError(f"{COORDINATOR} sent no combinations under '{tag}/occur'")
        return found
    assert table is not None, "the coordinator learns the counts"
    cells = np.flatnonzero(table)
    if rows * len(cells) > MOST:
        raise FederationError(
            f"{len(cells):,} combinations of clusters over {rows:,} rows are too many to be "
            "counted on shares: take fewer clusters, or weights='sizes'"
        )
    others = [m for m in group.members if m != COORDINATOR]
    yield from broadcast_payload(others, f"{tag}/occur", cells, OCCUR)
    return cells


# ---------------------------------------------------------------------- matrices of the field


def inner(a: Words, b: Words) -> Words:
    """Σ_r a[i, r] b[j, r] in the field: (i, j), of numbers below 2^31 − 1 and at most 2^20 rows.

    Halves of 16 bits are multiplied as matrices of float64, which is exact for so many rows: with
    x = 2^16 h + l, and 2^32 = 2 in the field, a sum of products is 2 hh + 2^16 (hl + lh) + ll.
    """
    p, (ah, al), (bh, bl) = np.uint64(RING.modulus), _halves(a), _halves(b)
    parts = (ah @ bh.T, ah @ bl.T + al @ bh.T, al @ bl.T)
    hh, middle, ll = (part.astype(np.uint64) % p for part in parts)
    return np.asarray((np.uint64(2) * hh + (middle << np.uint64(16)) + ll) % p, np.uint64)


def _halves(words: Words) -> tuple[Array, Array]:
    high, low = words >> np.uint64(16), words & np.uint64(0xFFFF)
    return high.astype(np.float64), low.astype(np.float64)

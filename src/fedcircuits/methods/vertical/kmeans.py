"""k-means over columns of different parties, by the sums of vertical_sums.py; every role.

k-means++ (Arthur and Vassilvitskii, 2007) draws rows as centres, each next one with a chance in
proportion to its squared distance from the nearest so far; Lloyd's rule then moves every centre to
the mean of its rows. A centre is the index of a row or the mean of known rows, so that each party
has its own columns of it and nobody has more. Parties are clustered the way their columns together
are: distances are exact sums.

    seed/rows     party → sum: squared distances of all rows from the last row drawn (rows,).
                  result: the next row drawn, and the leader tells it.
    means/rows    party → sum: how much nearer a row is to the last centre than to each other, and
                  the sum of distances from the last ((K − 1) × rows + 1 numbers).
                  result: the nearest centre of every row, and the sum of all distances.
    means/agreed  leader → members: that sum, how many rows have changed, a centre without rows.
    means/worst   only if a centre has lost all rows: distances from all centres (K × rows); it goes
                  to the row that is farthest from all.

Every member learns every row's cluster, and which row of the common order each centre began at. A
hub learns every party's distances of rows that it cannot name, from which the party's columns can
be worked out up to a shift and a rotation; a party with few columns shows nearly its data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.vertical.centres import Points, Space
from fedcircuits.methods.vertical.rows import gathered, leader_of, rows_of, told_of
from fedcircuits.methods.vertical.sums import Sums, drawn, row_code

APART = "squared distances of rows from a row, in its columns"
NEARER = "how much nearer rows are to each centre than to the last, in its columns"


@dataclass(frozen=True, slots=True)
class KMeansPlan:
    clusters: int
    max_iter: int = 300
    tol: float = 0.0  # share of its value that the sum of distances must fall by to go on
    n_init: int = 1
    standardise: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Clustered:
    """What a member has at the end."""

    labels: Labels  # (own rows,) in the order of its own table
    space: Space | None  # None without columns
    centres: Array  # (clusters, features) of its own columns, in that space
    inertia: float
    rounds: int
    notes: tuple[str, ...] = ()


def member(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    plan: KMeansPlan,
    summation: Summation,
    secret: bytes,
    weight: Array | None = None,
    hubs: Sequence[Neighbourhood] = (),
) -> Flow[Clustered]:
    """One member's side, whether it holds columns or not."""
    members = summation.members(parties)
    rows = yield from rows_of(me, parties, leader_of(members), party, weight, secret)
    table = None if party is None else party.table.rows(rows.order)
    table, joined = yield from gathered(me, table, rows, hubs)
    space = points = None
    if table is not None and table.names:
        space = Space.of(table, joined.weight[joined.at], plan.standardise)
        points = space.points(table.values)
    sums = Sums(summation.at(me, members), joined, plan.clusters)
    best: Found | None = None
    for run in range(plan.n_init):
        rng = np.random.default_rng([plan.seed, run])
        seeds = yield from seeded(sums, points, f"{run}", rng)
        found = yield from lloyd(sums, points, seeds, f"{run}", plan.max_iter, plan.tol)
        if best is None or found.inertia < best.inertia:
            best = found
    assert best is not None
    labels = np.zeros(len(rows.order), np.int64)
    labels[rows.order] = best.labels[rows.at]
    notes = told_of(rows, hubs) if rows.schemas else ()
    return Clustered(labels, space, best.centres, best.inertia, best.rounds, notes)


# ---------------------------------------------------------------------- parts that EM begins with


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    labels: Labels  # (rows,) in the common order
    centres: Array  # (clusters, features) of the member
    inertia: float
    rounds: int


def seeded(
    sums: Sums, points: Points | None, name: str, rng: np.random.Generator
) -> Flow[list[int]]:
    """Rows of the common order to begin at; ``rng`` is alike at all members."""
    weight = sums.rows.weight
    chosen = [drawn(weight, rng)]
    draw = _Draw(weight, rng)
    for i in range(1, sums.components):
        value = np.zeros(sums.rows.total)
        if points is not None:
            at = sums.position(chosen[-1])
            if at is not None:
                centre = points.at(at)[None]
                own = points.distances(centre, slice(0, points.x.shape[1]))[0]
                value[sums.rows.at] = own
        chosen.append((yield from sums.chosen(f"seed/rows/{name}/{i}", value, APART, draw)))
    return chosen


class _Draw:
    """``then`` of k-means++: whoever adds up remembers how near the nearest row so far is."""

    def __init__(self, weight: Array, rng: np.random.Generator) -> None:
        self.weight, self.rng = weight, rng
        self.nearest = np.full(len(weight), np.inf)

    def __call__(self, total: Array) -> Array:
        self.nearest = np.minimum(self.nearest, np.maximum(total, 0.0))
        chance = self.weight * self.nearest
        return row_code(drawn(chance if chance.sum() > 0 else self.weight, self.rng))


def lloyd(
    sums: Sums, points: Points | None, seeds: Sequence[int], name: str, max_iter: int, tol: float
) -> Flow[Found]:
    """Lloyd's rule until no row changes, the sum falls by too little, or rounds are over."""
    centres = np.zeros((sums.components, 0))
    if points is not None:
        centres = np.stack([points.at(sums.position(row)) for row in seeds])
    labels, before = np.full(sums.rows.total, -1, np.int64), np.inf
    for t in range(max_iter):
        result = yield from sums.compared(
            f"means/rows/{name}/{t}", _nearness(points, centres), sums.everything, NEARER,
            _Nearest(sums.rows.weight),
        )  # fmt: skip
        new = result[:-1].astype(np.int64)
        changed, empty = float((new != labels).sum()), _empty(new, sums)
        told = yield from sums.summation.agree(
            f"means/agreed/{name}/{t}", np.array([result[-1], changed, empty]), "sum of distances"
        )
        inertia, labels = float(told[0]), new
        if points is not None:
            centres = points.centres(_membership(labels, sums), centres)
        if told[2] >= 0:
            centres = yield from _begun_anew(sums, points, centres, int(told[2]), f"{name}/{t}")
        elif told[1] == 0 or (np.isfinite(before) and before - inertia < tol * before):
            break
        before = inertia
    return Found(labels, centres, inertia, t + 1)


def _nearness(points: Points | None, centres: Array) -> Callable[[slice], Array] | None:
    return None if points is None else lambda rows: -points.distances(centres, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Nearest:
    """``then`` of Lloyd's rule: the nearest centre of every row, and the sum of distances."""

    weight: Array

    def __call__(self, total: Array) -> Array:
        apart = total[:-1].reshape(-1, len(self.weight))
        every = np.vstack([apart, np.zeros(len(self.weight))])
        labels = every.argmax(axis=0)
        inertia = -(total[-1] + self.weight @ every.max(axis=0))
        return np.append(labels.astype(np.float64), inertia)


def _membership(labels: Labels, sums: Sums) -> Array:
    """(clusters, own rows): weights of rows that are in a cluster."""
    own, weight = labels[sums.rows.at], sums.rows.weight[sums.rows.at]
    return np.asarray((own == np.arange(sums.components)[:, None]) * weight)


def _empty(labels: Labels, sums: Sums) -> int:
    """The first cluster without rows, −1 if there is none."""
    sizes = np.bincount(labels, minlength=sums.components)
    return -1 if sizes.all() or len(labels) < sums.components else int(sizes.argmin())


def _begun_anew(
    sums: Sums, points: Points | None, centres: Array, cluster: int, name: str
) -> Flow[Array]:
    even = np.zeros(sums.components)
    reveals = "squared distances of rows from all centres, in its columns"
    row = yield from sums.worst(f"means/worst/{name}", _nearness(points, centres), even, reveals)
    centres = centres.copy()
    if points is not None:
        centres[cluster] = points.at(sums.position(row))
    return centres

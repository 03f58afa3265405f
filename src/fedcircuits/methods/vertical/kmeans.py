"""k-means over columns of different parties: every role, with a server or without.

k-means++ (Arthur and Vassilvitskii, 2007) draws rows as centres, each next one with a chance in
proportion to its squared distance from the nearest so far; Lloyd's rule then moves every centre to
the mean of its rows. A centre is a row or the mean of known rows, so that each party has its own
columns of it and nobody has more. Distances of parties are exact sums, so the clusters are those of
all columns together. K clusters:

    agree, key, rows   hello, and rows in one order (methods/meeting)
    hub                columns into hubs, if asked for (rows.py)
    seed/rows          party → sum: squared distances of all rows from the last row drawn (rows,).
                       result: rows equally far, of which the first party draws the next one and
                       tells all (rows.py).
    means/rows         party → sum: how much nearer a row is to the last centre than to each other,
                       and the sum of distances from the last ((K − 1) × rows + 1 numbers).
                       result: the nearest centre of every row, and the sum of all distances.
    means/agreed       leader → members: that sum, how many rows changed, a centre without rows.
    means/worst        only if a centre has lost all rows: distances from all centres (K × rows); it
                       moves to the row that is farthest from all.
    result             what whoever asked hears of it (reports.py); parties keep what they learned

Every member learns every row's cluster, and which row of the common order each centre began at. A
hub learns every party's distances for rows that it cannot name, from which the party's columns can
be worked out up to a shift and a rotation; a party with few columns nearly shows its data.

A run that is broken off goes on from the last centres that all members have kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, compute, send, tell
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels, RowRule
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights, match_rows
from fedcircuits.methods.vertical.points import PartyCentres, PointSet, PointSpace
from fedcircuits.methods.vertical.reports import (
    MeansOutcome,
    TrainedMeans,
    means_told,
    schemas_of,
    two_parties,
)
from fedcircuits.methods.vertical.rows import (
    ALIKE,
    FINITE,
    RowDraw,
    RowSums,
    Span,
    Terms,
    check_enough,
    check_holders,
    columns_at,
    drawn,
    expected,
    holders,
)

METHOD = Method("vertical k-means", 2)
KEPT = 5  # rounds between two states that are kept for a run that fails
FROM_ROW = "squared distances of rows from a row, in its columns"
NEARER = "how much nearer rows are to each centre than to the last, in its columns"
FROM_CENTRES = "squared distances of rows from all centres, in its columns"


@dataclass(frozen=True, slots=True)
class KMeansPlan:
    """What all members of a run do alike."""

    clusters: int
    max_iter: int = 300
    tol: float = 0.0  # share of its value that the sum of distances must fall by to go on
    n_init: int = 1
    standardise: bool = False
    hubs: tuple[Neighbourhood, ...] = ()
    seed: int = 0
    rows: RowRule = "tokens"  # how they are matched


@dataclass(frozen=True, slots=True, eq=False)
class MeansProgress:
    """Where a member is in a run, from which it goes on should the run fail."""

    centres: Array  # (clusters, features) of the member
    labels: Labels  # (rows,) in the common order, that of the run's own key
    inertia: float
    run: int = 0
    round: int = 0
    best: LloydResult | None = None  # of the runs before
    plan: KMeansPlan | None = None

    def fitting(self, rows: int) -> MeansProgress:
        """The same for so many rows: clusters of different rows are not known."""
        alike = len(self.labels) == rows
        return self if alike else replace(self, labels=np.full(rows, -1, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class KMeansResult:
    """What a party has at the end, and keeps."""

    labels: Labels  # (own rows,) in the order of its own table
    centres: PartyCentres


def member(
    party: Party,
    parties: Sequence[str],
    plan: KMeansPlan,
    summation: Summation,
    secret: bytes,
    weight: SampleWeights | None = None,
    start: MeansProgress | None = None,
) -> Flow[KMeansResult]:
    """A party's side; ``weight``: of rows; ``start``: where a run that failed was."""
    me, members = party.name, summation.members(parties)
    end = yield from _learned(me, parties, party, plan, summation, secret, weight, start)
    if me == leader_of(members):
        yield from send(COORDINATOR, end.outcome())
    return KMeansResult(end.labels(), PartyCentres(end.space, end.best.centres))


def coordinator(
    parties: Sequence[str],
    plan: KMeansPlan,
    summation: Summation,
    start: MeansProgress | None = None,
) -> Flow[TrainedMeans]:
    """Whoever asked: it adds up, or hears from the first party what came of it."""
    leader = leader_of(summation.members(parties))
    if leader == COORDINATOR:
        about = (None, plan, summation, b"", None, start)
        outcome = (yield from _learned(COORDINATOR, parties, *about)).outcome()
    else:
        outcome = yield from means_told(leader, plan.max_iter)
    held = holders(schemas_of(outcome, parties, leader), plan.hubs)
    return TrainedMeans(outcome, held, (*outcome.notes, *two_parties(held)))


def _learned(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    plan: KMeansPlan,
    summation: Summation,
    secret: bytes,
    weight: SampleWeights | None,
    start: MeansProgress | None,
) -> Flow[MeansEnd]:
    """One member's side, whether it holds columns or not."""
    members = summation.members(parties)
    leader = leader_of(members)
    hellos = yield from meet(me, parties, leader, party, METHOD)
    check_holders({p: hello.schema for p, hello in hellos.items()})
    rows = yield from match_rows(me, parties, leader, party, weight, secret, hellos, plan.rows)
    check_enough(rows, plan.clusters, "clusters")
    table, joined = yield from columns_at(me, party, rows, plan.hubs)
    space = PointSpace.of(table, joined.weight[joined.at], plan.standardise)
    points = space.points(table.values)
    draw = RowDraw(me, parties[0], members, rows)
    sums = RowSums(summation.at(me, members), joined, plan.clusters, draw)
    best = yield from _best_run(plan, sums, points, start)
    return MeansEnd(rows, space, best)


def _best_run(
    plan: KMeansPlan, sums: RowSums, points: PointSet, start: MeansProgress | None
) -> Flow[LloydResult]:
    """All runs from the one that was broken off, and the best of them."""
    best = None if start is None else start.best
    for run in range(0 if start is None else start.run, plan.n_init):
        name, resumed = f"{run}", start is not None and run == start.run
        if start is None or not resumed:
            rng = np.random.default_rng([plan.seed, run])
            seeds = yield from seeded(sums, points, name, rng)
            begins = begun(sums, points, seeds)
        else:
            begins = start.fitting(sums.rows.total)
        begins = replace(begins, run=run, best=best, plan=plan)
        clustered = yield from lloyd(sums, points, begins, name, plan.max_iter, plan.tol)
        best = clustered if best is None or clustered.inertia < best.inertia else best
    assert best is not None
    return best


@dataclass(frozen=True, slots=True, eq=False)
class MeansEnd:
    """Where a member is when Lloyd's rule has ended."""

    rows: MatchedRows
    space: PointSpace
    best: LloydResult

    def labels(self) -> Labels:
        """(own rows,) in the order of the member's table."""
        labels = np.zeros(len(self.rows.order), np.int64)
        labels[self.rows.order] = self.best.labels[self.rows.at]
        return labels

    def outcome(self) -> MeansOutcome:
        """At the leader: how it has ended."""
        columns = {p: schema.variables for p, schema in self.rows.schemas.items()}
        rows, best = int(np.count_nonzero(self.rows.weight)), self.best
        return MeansOutcome(best.inertia, best.rounds, rows, columns, self.rows.notes)


# ---------------------------------------------------------------------- starts


def seeded(sums: RowSums, points: PointSet, name: str, rng: np.random.Generator) -> Flow[list[int]]:
    """Rows of the common order to begin at, here and in EM; ``rng`` is alike at all members."""
    (child_rng,) = rng.spawn(1)  # of the first party
    seeds = yield from sums.drawn(f"seed/rows/{name}/0", None, 1, child_rng)
    draw = _NextSeed(sums.rows.weight, rng)
    for i in range(1, sums.components):
        value, at = np.zeros(sums.rows.total), sums.position(seeds[-1])
        if at is not None:
            every = slice(0, points.x.shape[1])
            value[sums.rows.at] = points.distances(points.at(at)[None], every)[0]
        seeds.append(
            (yield from sums.chosen(f"seed/rows/{name}/{i}", value, FROM_ROW, draw, child_rng))
        )
    return seeds


class _NextSeed:
    """Rows that the next one of k-means++ is drawn from, all equally far from the nearest so far;
    whoever adds up remembers how far that is."""

    def __init__(self, weight: Array, rng: np.random.Generator) -> None:
        self.weight, self.rng = weight, rng
        self.nearest = np.full(len(weight), np.inf)

    def __call__(self, total: Array) -> Labels:
        self.nearest = np.minimum(self.nearest, np.maximum(total, 0.0))
        chance = self.weight * self.nearest
        if chance.sum() == 0:
            return np.flatnonzero(self.weight > 0)
        far = np.rint(self.nearest / (self.nearest.max() * ALIKE))
        distances, which = np.unique(far, return_inverse=True)
        shares = np.zeros(len(distances))
        np.add.at(shares, which, chance)
        at = drawn(shares, self.rng)
        return np.flatnonzero((which == at) & (self.weight > 0))


# ---------------------------------------------------------------------- Lloyd's rule


@dataclass(frozen=True, slots=True, eq=False)
class LloydResult:
    labels: Labels  # (rows,) in the common order
    centres: Array  # (clusters, features) of the member
    inertia: float
    rounds: int


def begun(sums: RowSums, points: PointSet, seeds: Sequence[int]) -> MeansProgress:
    """Centres at rows of the common order."""
    centres = np.stack([points.at(sums.position(row)) for row in seeds])
    return MeansProgress(centres, np.full(sums.rows.total, -1, np.int64), np.inf)


def lloyd(
    sums: RowSums, points: PointSet, start: MeansProgress, name: str, max_iter: int, tol: float
) -> Flow[LloydResult]:
    """Lloyd's rule until no row changes, the sum falls by too little, or rounds are over."""
    centres, labels, before = start.centres, start.labels, start.inertia
    number, total, weight = sums.components, sums.rows.total, sums.rows.weight
    inertias, which = Span(1, -FINITE, FINITE), Span(1, -1, number - 1, whole=True)
    check = expected((total + 1,), Span(total, 0, number - 1, whole=True), inertias)
    agreed = expected((3,), inertias, Span(1, 0, total, whole=True), which)
    then = partial(_nearest, weight)
    for t in range(start.round, max_iter):
        tag, terms = f"means/rows/{name}/{t}", _nearness(points, centres)
        result = yield from sums.compared(tag, terms, sums.everything, NEARER, then, check)
        new = result[:-1].astype(np.int64)
        sizes = np.bincount(new, minlength=number)
        lacks = total >= number and not sizes.all()
        value = [result[-1], (new != labels).sum(), sizes.argmin() if lacks else -1]
        inertia, changed, empty = yield from sums.collective.agree(
            f"means/agreed/{name}/{t}", np.array(value), "sum of distances", agreed
        )
        labels = new
        membership = (labels[sums.rows.at] == np.arange(number)[:, None]) * weight[sums.rows.at]
        centres = points.centres(membership, centres)
        if empty >= 0:
            even, terms = np.zeros(sums.components), _nearness(points, centres)
            row = yield from sums.worst(f"means/worst/{name}/{t}", terms, even, FROM_CENTRES)
            centres[int(empty)] = points.at(sums.position(row))
        elif changed == 0 or (np.isfinite(before) and before - inertia < tol * before):
            break
        before = float(inertia)
        yield from tell("means", t + 1, max_iter)
        if start.plan is not None and (t + 1) % KEPT == 0 and t + 1 < max_iter:
            at = replace(start, centres=centres, labels=labels, inertia=before, round=t + 1)
            yield from compute(f"round {t + 1} of run {start.run}", partial(replace, at))
    return LloydResult(labels, centres, float(inertia), t + 1)


def _nearest(weight: Array, total: Array) -> Array:
    """The nearest centre of every row, and the sum of distances."""
    differences = total[:-1].reshape(-1, len(weight))
    every = np.vstack([differences, np.zeros(len(weight))])
    inertia = -(total[-1] + weight @ every.max(axis=0))
    return np.append(every.argmax(axis=0).astype(np.float64), inertia)


def _nearness(points: PointSet, centres: Array) -> Terms:
    return lambda rows: -points.distances(centres, rows)

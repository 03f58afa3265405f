"""k-means over columns of different parties, with a server or without.

**Who takes part.** N parties that hold different columns of the same rows, and a coordinator that
asked for the clusters. With ``Hub()`` the coordinator also adds up; with any other summation the
parties add up among themselves and the first party leads.

**What crosses**, for K clusters and R rows:

    agree, key, rows   hello, and rows brought into a common order (methods/meeting)
    hub                columns moved into hubs, if asked for (rows.py)
    seed, means        seeding and rounds of Lloyd's algorithm (points.py)
    result/means       first party → coordinator, without a server: sum of squared distances,
                       rounds, number of rows, columns of all parties

**What each party learns.** Every member learns the cluster of every row, and at which row of the
common order each centre started. A hub learns every party's distances for rows that it cannot
identify, from which the party's columns can be recovered up to a shift and a rotation; a party with
few columns nearly shows its data. Centres stay with the parties.

An interrupted run continues from the last centres that all members have kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import (
    Count,
    Message,
    require,
)
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.hello import Method, leader_of
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights
from fedcircuits.methods.vertical.points import (
    KMeansPlan,
    LloydResult,
    MeansProgress,
    PartyCentres,
    PointSet,
    PointSpace,
    begun,
    lloyd,
    seeded,
)
from fedcircuits.methods.vertical.rows import (
    Columns,
    RowSums,
    Setting,
    check_enough,
    holders,
    schemas_of,
    two_parties,
)
from fedcircuits.tables.schema import Schema

METHOD = Method("vertical k-means", 2)


@dataclass(frozen=True, slots=True, eq=False)
class KMeansResult:
    """A party's result, which it keeps."""

    labels: Labels  # (own rows,) in the order of its table
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
    """A party's side. ``weight``: weights of rows; ``start``: where a failed run had been."""
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
    """The coordinator's side: it adds up, or receives the outcome from the first party."""
    leader = leader_of(summation.members(parties))
    if leader == COORDINATOR:
        about = (None, plan, summation, b"", None, start)
        outcome = (yield from _learned(COORDINATOR, parties, *about)).outcome()
    else:
        outcome = yield from _received_outcome(leader, plan.max_iter)
    schemas = schemas_of(outcome.columns, parties, leader, outcome.tag)
    held = holders(schemas, plan.hubs)
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
    setting = Setting(METHOD, me, parties, summation, plan.rows, plan.hubs)
    rows, _ = yield from setting.matched(party, secret, weight)
    check_enough(rows, plan.clusters, "clusters")
    table, sums = yield from setting.columns(party, rows, plan.clusters)
    space = PointSpace.of(table, sums.rows.weight[sums.rows.at], plan.standardise)
    points = space.points(table.values)
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


# ---------------------------------------------------------------------- the outcome


class MeansOutcome(Message, frozen=True):
    """How k-means has ended."""

    tag: ClassVar[str] = "result/means"
    reveals: ClassVar[str] = "the inertia, the number of rows, the columns of all parties"

    inertia: float
    rounds: Count
    rows: Count  # that count
    columns: Columns
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedMeans:
    """The coordinator's result for clusters."""

    outcome: MeansOutcome
    columns: Mapping[str, Schema]  # by party, of its centres
    notes: tuple[str, ...] = ()


def _received_outcome(leader: str, rounds: int) -> Flow[MeansOutcome]:
    outcome = yield from receive(leader, MeansOutcome)
    fits = 0 < outcome.rounds <= rounds
    require(fits, leader, MeansOutcome, "rounds", f"expected 1 to {rounds}")
    require(abs(outcome.inertia) < np.inf, leader, MeansOutcome, "inertia", "expected a number")
    require(outcome.rows > 0, leader, MeansOutcome, "rows", "expected at least 1")
    return outcome

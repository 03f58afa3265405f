"""Who models which variables, and what every client does. The coordinator decides this from the
variables and rows that each client holds.

A division assigns every variable to one of its holders. It is a split by columns and is learned as
one: clusters of the parties in it, joined by the rows that they all hold. If no variable is shared,
there is one division. If all parties hold all variables, there is one division per party, which
contains only that party: data split by rows. Between these extremes, every party has first choice
in one division and gets all variables that it holds; the rest goes to the parties with which it
shares most rows. A circuit mixes its divisions, weighted by their rows. A shared variable thus
stays next to the other columns of the party that models it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedcircuits.federation.federation import COORDINATOR, LEAST_COUNT, Subspace
from fedcircuits.federation.messages import Count, Message, require
from fedcircuits.federation.placement import Answers
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Contingency, Labels
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.methods.fedpc.views import CellPlan
from fedcircuits.methods.meeting.hello import Assignment
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.refinement.roles import EMSettings
from fedcircuits.methods.refinement.training import Way
from fedcircuits.methods.shared.training import SharedPlan
from fedcircuits.tables.schema import Schema

HUB = Hub()
NO_CELLS = CellPlan((), 0)
Auto = Literal["auto"]
Rule = Literal["cooccurrence", "sizes", "em"]
Shared = Literal["divided", "cluster", "pooled"]
Dependence = Literal["combinations", "pairs"]
Flags = npt.NDArray[np.bool_]
SMALL = 2_000  # rows: circuits are quickly learned from fewer, and mixing them gains more
MOST_PATTERNS = 64  # sets of holders that a party looks for partners in
MOST_CLUSTERS = 64
INDEPENDENT = (
    "columns of different parties are assumed to be independent, because {}: give row ids that "
    "they share, Federation(…, row_id='…')"
)
MADE_UP = (
    "weights='sizes', the paper's rule, pairs clusters of different parties at random: the model "
    "contains dependence between their columns that no row supports"
)
LENT = "learned only from rows of other parties, as if independent of its own columns"
NOT_ALLOWED = (
    "EM over rows was skipped: it needs learned circuits to leave their parties "
    "(allow_collect=True)"
)


@dataclass(frozen=True, slots=True)
class FedPCPlan:
    """What all parties of a run do alike."""

    members: tuple[str, ...] = field(repr=False)  # work is kept when a party is lost
    clusters: int | Auto = "auto"
    products: int | Auto = "auto"
    weights: Rule = "cooccurrence"
    shared: Shared = "divided"
    ensemble: int | Auto = "auto"
    target: str | None = None
    share_target: bool = False
    share_clusters: bool = False
    refine: int = 0  # rounds of EM over weights and leaves, across the parties
    validation: float = 0.0  # the share of its rows that they hold out to stop by
    seed: int = 0
    summation: Summation = field(default=HUB, repr=False)
    rows: RowRule = field(default="tokens", repr=False)  # how they are matched
    answers: Answers = field(default="leaves", repr=False)
    dependence: Dependence = "combinations"  # of columns at different parties
    least: int = LEAST_COUNT  # rows of all parties in a bin of circuits by sums
    draws: bytes = field(default=b"", repr=False)  # a party's own, by which it draws rows

    def for_party(self) -> FedPCPlan:
        return replace(self, summation=self.summation.for_party(), draws=own_key("draws"))

    @property
    def em(self) -> EMSettings:
        return EMSettings(self.refine, self.validation, self.summation, self.seed)

    @property
    def shares(self) -> SharedPlan:
        """Of circuits by sums."""
        return SharedPlan(
            self.members, self.summation, self.seed, least=self.least, draws=self.draws
        )

    def check_cells(self, cells: CellPlan, names: Sequence[str]) -> None:
        """MessageError where a client with these columns is asked for cells that are not in the
        plan."""
        hidden = self.summation.hides or self.answers == "root"
        fits = not cells or (self.dependence == "pairs" and not hidden)
        require(fits, COORDINATOR, ClientWork, "cells", "expected no cells")
        for holds, expected in cells.problems(names, self.target) if cells else ():
            require(holds, COORDINATOR, ClientWork, "cells", f"expected {expected}")

    def way_of_em(self, horizontal: bool) -> Way | None:
        """EM across parties on their own "rows", or on shared ones by the "network" or, if nobody
        may see one party's numbers, by "sums"; None if it is not wanted."""
        if horizontal:
            return "rows" if self.refine else None
        if not self.refine and self.weights != "em":
            return None
        return "sums" if self.summation.hides else "network"


@dataclass(frozen=True, slots=True)
class VariableSplit:
    """How the variables are split between the parties, and what follows from it."""

    schema: Schema
    spaces: list[Subspace]
    horizontal: bool
    tokens: bool  # whether rows are matched by tokens
    notes: tuple[str, ...]  # what the user should know
    completed: bool = False  # whether a party may be completed by those who hold what it lacks

    def of_rows(self, where: Labels) -> bool:
        """Whether parties hold different rows, of matched ones, and some lack a column."""
        return self.completed and bool(((where >= 0).sum(axis=1) <= 1).all())


# ---------------------------------------------------------------------- messages to a client


def usual_clusters(rows: int) -> int:
    """A cluster for every 50 rows of a small table, fewer and fewer of a large one."""
    return int(np.clip(np.sqrt(rows) / 2.5, 2, MOST_CLUSTERS))


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """What a client does in one division: it clusters its rows by these columns."""

    division: int
    columns: tuple[str, ...]
    alone: bool  # in the division: its rows need no clusters but those of the target's classes
    exchange: bool  # whether it sends its first clusters and receives others'
    most: Count = MOST_CLUSTERS  # clusters, where their number is not given


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Variables of which a client learns a leaf from every cluster, or one from all rows; or both,
    as two groups of one number (leaves.py)."""

    number: int  # among the groups of all divisions
    division: int
    variables: tuple[str, ...]
    pooled: bool  # learned from all rows at once


class ClientWork(Message, frozen=True):
    """What a client is to cluster and learn."""

    tag: ClassVar[str] = "rows/plan"
    reveals: ClassVar[str] = (
        "which of its columns the reader models, and how many other parties model them"
    )

    tasks: tuple[ClusterTask, ...]
    groups: tuple[LeafGroup, ...]
    cells: CellPlan = NO_CELLS

    def check(self, names: Sequence[str], tag: str, shares: bool) -> None:
        """MessageError unless a client with these columns can do it; ``tag``: that it came under,
        its own where rows are matched; ``shares``: whether clusters may be told."""
        divisions = [task.division for task in self.tasks]
        numbers = [(group.number, group.pooled) for group in self.groups]
        sets = [t.columns for t in self.tasks] + [g.variables for g in self.groups]
        known = all(s and len(set(s)) == len(s) and set(s) <= set(names) for s in sets)
        instead = not self.cells or (not divisions and tag == self.tag)
        for field_name, holds, problem in (
            ("tasks", known, "expected columns of the client's table, each once"),
            ("tasks", len(set(divisions)) == len(divisions), "a division occurs twice"),
            ("tasks", all(task.most > 0 for task in self.tasks), "expected one cluster or more"),
            ("tasks", tag == self.tag or not any(t.exchange for t in self.tasks), "no tokens"),
            ("tasks", shares or not any(t.exchange for t in self.tasks), "nobody shares clusters"),
            ("cells", instead, "expected them instead of clusters, with tokens"),
            ("groups", len(set(numbers)) == len(numbers), "a group occurs twice"),
            ("groups", {g.division for g in self.groups} == set(divisions), "of other divisions"),
        ):
            require(holds, COORDINATOR, tag, field_name, problem)


class FedPCAssignment(Assignment, frozen=True):
    """What the coordinator asks of a client; work follows later where rows are matched first."""

    reveals: ClassVar[str] = "who takes part, and which of the reader's columns others hold"

    work: ClientWork | None


# ---------------------------------------------------------------------- divisions


@dataclass(frozen=True, slots=True)
class Division:
    """Groups of variables and who models them; ``first`` is the number of the first group among
    those of all divisions. More than one holder only where a group is not divided (assembly.py)."""

    spaces: tuple[Subspace, ...]
    first: int = 0
    turn: int = 0  # which of several circuits over the same groups

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p for s in self.spaces for p in s.holders))

    def groups(self, party: str) -> dict[int, Subspace]:
        """The groups of one party by number."""
        return {i: s for i, s in enumerate(self.spaces, self.first) if party in s.holders}

    def table(self, clusters: Sequence[int]) -> Contingency:
        """Whose clusters are counted together; ``clusters``: how many each party has."""
        return Contingency(self.parties, tuple(clusters), tuple(s.holders for s in self.spaces))

    def apart(self, plan: FedPCPlan) -> bool:
        """Whether what its parties learn alone stands beside what joins them (leaves.py)."""
        usual = plan.shared == "divided" and plan.weights != "sizes"
        return usual and self.turn == 0 and len(self.parties) > 1

    def most_clusters(self, where: Labels | None, members: Sequence[str]) -> int:
        """Of a party. The second circuit of few rows has half as many as usual, and no more
        combinations than there are rows that all hold: few clusters show best whether columns
        depend at all."""
        if len(self.parties) < 2 or where is None or self.turn != 1 or len(where) > SMALL:
            return MOST_CLUSTERS
        at = [members.index(p) for p in self.parties]
        rows = max(int((where[:, at] >= 0).all(axis=1).sum()), 1)
        most = min(usual_clusters(rows) / 2, float(rows) ** (1 / len(self.parties)))
        return max(2, int(most + 0.5))

    def exchanges(self, split: VariableSplit, plan: FedPCPlan) -> bool:
        """Whether its parties hear of each other's clusters: every second circuit goes by own
        ones, so that what is mixed differs."""
        apart = len(self.parties) > 1 and all(len(s.holders) == 1 for s in self.spaces)
        wanted = split.tokens and plan.share_clusters and plan.clusters != 1
        return wanted and apart and self.turn % 2 == 0


def divisions_of(
    split: VariableSplit, members: Sequence[str], where: Labels, plan: FedPCPlan
) -> tuple[list[Division], tuple[str, ...]]:
    """Of matched rows, ``where`` (rows, parties) with −1 where a party lacks a row; and notes."""
    held = where >= 0
    if split.of_rows(where):
        return by_completed_party(split.spaces, dict(zip(members, held.sum(axis=0), strict=True)))
    divisions = by_rows_held(split.spaces, members, held)
    if not divisions:
        why = "no row is held by parties that have all variables together"
        return numbered([split.spaces]), (INDEPENDENT.format(why),)
    if plan.shared != "divided":
        return numbered([split.spaces]), ()
    few = len(where) < SMALL
    times = (4 if few else 2) if plan.ensemble == "auto" else plan.ensemble
    every = numbered(divisions, times)
    unused = [p for p in members if not any(p in d.parties for d in every)]
    note = "{} shares no row with parties that hold the other variables: it was left out"
    return every, tuple(note.format(p) for p in unused)


def numbered(divisions: Sequence[Sequence[Subspace]], times: int = 1) -> list[Division]:
    """Divisions whose groups have numbers of their own; those of several parties so many times."""
    every, first = [], 0
    for turn in range(times):
        for spaces in divisions:
            if turn == 0 or len(spaces) > 1:
                every.append(Division(tuple(spaces), first, turn))
                first += len(spaces)
    return every


def by_party(spaces: Sequence[Subspace], parties: Sequence[str]) -> list[list[Subspace]]:
    """All hold everything: a division of every party alone."""
    return [[Subspace((p,), tuple(v for s in spaces for v in s.variables))] for p in parties]


def by_completed_party(
    spaces: Sequence[Subspace], rows: Mapping[str, int]
) -> tuple[list[Division], tuple[str, ...]]:
    """Different rows, and some parties lack a column: a division of every party, in which what it
    lacks is learned, by itself, by those who have most rows of it; and notes."""
    divisions: list[Division] = []
    notes = []
    for party in rows:
        models: dict[str, tuple[str, ...]] = {party: ()}
        for space in spaces:
            most = max(space.holders, key=lambda holder: rows[holder])
            holder = party if party in space.holders else most
            models[holder] = models.get(holder, ()) + space.variables
        groups = tuple(Subspace((holder,), names) for holder, names in models.items() if names)
        divisions.append(Division(groups, sum(len(d.spaces) for d in divisions), turn=1))
        if lent := [name for holder, own in models.items() if holder != party for name in own]:
            notes.append(f"{party} lacks {', '.join(map(repr, lent))}: {LENT}")
    return divisions, tuple(notes)


def by_rows_held(
    spaces: Sequence[Subspace], parties: Sequence[str], held: Flags
) -> list[list[Subspace]]:
    """``held`` (rows, parties): who has which row. Empty where no row has all variables."""
    sets, rows = np.unique(held, axis=0, return_counts=True)
    order = np.argsort(-rows, kind="stable")
    sets, rows = sets[order], rows[order]
    owners = np.array([[p in s.holders for p in parties] for s in spaces])  # (spaces, parties)
    covers = (sets.astype(int) @ owners.T.astype(int) > 0).all(axis=1)
    choices: dict[tuple[int, ...], None] = {}
    for party in range(len(parties)):
        best = _best(party, owners, sets, rows, np.flatnonzero(covers & sets[:, party]))
        if best is not None:
            choices[best] = None
    return [_spaces(spaces, parties, choice) for choice in choices]


def _best(
    party: int, owners: Flags, sets: Flags, rows: Labels, candidates: Labels
) -> tuple[int, ...] | None:
    """Whom every subspace goes to when this party chooses first; the choice with most rows."""
    best, most = None, 0
    for i in candidates[:MOST_PATTERNS]:
        ranked = np.argsort(-owners.sum(axis=0), kind="stable")
        order = [party, *(p for p in ranked if sets[i, p] and p != party)]
        choice = tuple(next(p for p in order if held[p]) for held in owners)
        together = int(rows[sets[:, sorted(set(choice))].all(axis=1)].sum())
        if together > most:
            best, most = choice, together
    return best


def _spaces(
    spaces: Sequence[Subspace], parties: Sequence[str], choice: tuple[int, ...]
) -> list[Subspace]:
    variables: dict[int, tuple[str, ...]] = dict.fromkeys(sorted(set(choice)), ())
    for space, party in zip(spaces, choice, strict=True):
        variables[party] += space.variables
    return [Subspace((parties[p],), names) for p, names in variables.items()]


# ---------------------------------------------------------------------- work


def work_of(
    party: str,
    divisions: Sequence[Division],
    split: VariableSplit,
    plan: FedPCPlan,
    cells: CellPlan = NO_CELLS,
    where: Labels | None = None,
) -> ClientWork:
    """What a client is to cluster and learn; ``where``: of matched rows, as in ``divisions_of``."""
    tasks, groups = [], []
    for number, division in enumerate(divisions):
        spaces = division.groups(party)
        if not spaces:
            continue
        pooled = {i for i, s in spaces.items() if plan.shared == "pooled" and len(s.holders) > 1}
        apart = tuple(v for i, s in spaces.items() if i not in pooled for v in s.variables)
        columns = apart or tuple(v for s in spaces.values() for v in s.variables)
        alone = len(division.parties) == 1
        most = division.most_clusters(where, plan.members)
        tasks.append(ClusterTask(number, columns, alone, division.exchanges(split, plan), most))
        groups += [LeafGroup(i, number, s.variables, i in pooled) for i, s in spaces.items()]
        if division.apart(plan):
            groups += [LeafGroup(i, number, s.variables, True) for i, s in spaces.items()]
    return ClientWork(tuple(tasks), tuple(groups), cells)

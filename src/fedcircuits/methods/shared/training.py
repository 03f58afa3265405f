"""One circuit that all parties share, for parties that hold different rows of the same columns. Its
structure follows from summed counts, its parameters from EM with summed statistics.

**Who takes part.** Clients, which hold tables, and a coordinator without data, for which the
circuit is learned. The coordinator takes part in sums if the summation needs it (``Hub``).

**What crosses:**

    agree/hello       client → coordinator: names, kinds and categories of its columns, its number
                      of rows
    agree/plan        coordinator → client: who takes part, the agreed kinds of its columns
    shared/bins/t     client → sum: counts of its rows by bin; this and the next steps are described
    shared/pairs      in summing.py
    shared/centres/t
    shared/spread
    shared/…/rows
    shared/structure  one member → all others: a digest of the circuit, which each has built itself
    shared/rows/t     client → sum, every round: log-likelihood and number of its rows and of its
                      held-out rows, and how many pass through every unit of a node (em.py)
    shared/counts/t   client → sum, every round: expected statistics of its rows for every unit that
                      at least the least count of rows of all parties pass through (units.py); with
                      many ordered levels by ranges of them, and once, t = levels, for every level
    shared/smoothing  client → sum: log-likelihoods of held-out rows, if there are such levels
    shared/circuit    first client → coordinator, if it does not add up: the learned circuit

With differential privacy all counts have noise, and there are fewer rounds (noisy.py).

**What each party learns.** All learn the totals, and therefore the circuit. No row leaves its
party, and nobody learns a circuit that was learned from the rows of one party. The summation
decides who sees what a single party adds: a hub sees every party's array, in a tree parents see
sums of branches, on secret shares nobody sees any. Whoever sees one party's array learns counts of
its rows by column and pair of columns, and weighted sums of them: a party with few rows should use
``Secret()``. N − 1 parties together can always subtract their own part from a total, and so can
either of two.

A lost party ends the run; what others have computed is kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.agreement import agree
from fedcircuits.federation.federation import COORDINATOR, LEAST_COUNT, Party
from fedcircuits.federation.flow import Compute, Flow, Tell, digest, receive, send
from fedcircuits.federation.messages import Message, blaming, require
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import Collective, Summation
from fedcircuits.federation.sums.summations import Hub, Tree
from fedcircuits.learning.em import EMSchedule, Fitted
from fedcircuits.learning.least_counts import RareValues, without_rare
from fedcircuits.learning.stopping import Mask, held_share
from fedcircuits.learning.summed.clusters import Beginning, ClusteredRows
from fedcircuits.methods.meeting.hello import Assignment, Method, hellos_of, introduce
from fedcircuits.methods.refinement.rows import LeafCircuit
from fedcircuits.methods.shared import noisy
from fedcircuits.methods.shared.em import Rounds, em_by_sums
from fedcircuits.methods.shared.summing import (
    SummedColumns,
    SummedRows,
    summed_columns,
    summed_rows,
)
from fedcircuits.privacy.differential import Noise
from fedcircuits.tables.schema import Schema

METHOD = Method("shared", 1)
SHARED = "shared circuit"  # in the words of errors
HUB, ALONE = Hub(), Tree()


class SharedLearner(Protocol):
    """What says how a shared circuit looks and where EM begins: estimators that learn by EM."""

    target: str | None  # the column to predict
    enough: ClassVar[int]  # rows with which a party learns well enough alone

    def clusters_summed(self, schema: Schema) -> tuple[int, int | None]:
        """How many clusters EM begins with, and the column whose classes have so many each."""
        ...

    def beginning(self, rows: ClusteredRows, schema: Schema, rng: np.random.Generator) -> Beginning:
        """The circuit and where EM begins, by rows that were drawn from summed clusters."""
        ...

    def rounds(self) -> tuple[EMSchedule, float]:
        """How EM goes, and the share of held-out rows."""
        ...


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """What all members do alike."""

    members: tuple[str, ...] = field(repr=False)
    summation: Summation = field(default=HUB, repr=False)
    seed: int = 0
    noise: Noise | None = None  # with differential privacy
    least: int = LEAST_COUNT  # rows of all parties that a bin of a number holds
    draws: bytes = field(default=b"", repr=False)  # a party's own, by which it draws rows

    def for_party(self) -> SharedPlan:
        noise = None if self.noise is None else self.noise.for_party()
        return replace(
            self, summation=self.summation.for_party(), noise=noise, draws=own_key("draws")
        )

    def collective(self, me: str) -> Collective:
        """A member's end of all sums of a run."""
        return self.summation.at(me, self.summation.members(self.members))


@dataclass(frozen=True, slots=True, eq=False)
class LearnedTogether:
    """What every member has at the end."""

    beginning: Beginning
    fitted: Fitted
    rare: tuple[RareValues, ...] = ()  # values that were replaced in all rows
    rounds: Rounds | None = None  # of EM, where this member has made them


class SharedCircuit(Message, frozen=True):
    """First client → coordinator."""

    tag: ClassVar[str] = "shared/circuit"
    reveals: ClassVar[str] = (
        "the circuit that all parties share, and the log-likelihood of all rows"
    )

    start: LeafCircuit
    learned: LeafCircuit
    history: list[float]
    validation: list[float]
    converged: bool

    @classmethod
    def of(cls, together: LearnedTogether) -> SharedCircuit:
        circuit, fitted = together.beginning.circuit, together.fitted
        start = LeafCircuit.of((circuit, together.beginning.start))
        learned = LeafCircuit.of((circuit, fitted.parameters))
        return cls(start, learned, [*fitted.history], [*fitted.validation], fitted.converged)

    def together(self, schema: Schema, sender: str) -> LearnedTogether:
        with blaming(sender, SharedCircuit, "learned"):
            circuit, parameters = self.learned.learned()
        with blaming(sender, SharedCircuit, "start"):
            start = self.start.learned()[1]
            start.check(circuit)
        same = set(circuit.schema.names) == set(schema.names)
        require(same, sender, SharedCircuit, "learned", "expected a circuit over all columns")
        history = tuple(self.history), tuple(self.validation)
        return LearnedTogether(
            Beginning(circuit, start), Fitted(parameters, *history, self.converged)
        )


# ---------------------------------------------------------------------- roles


def client(party: Party, plan: SharedPlan, learner: SharedLearner) -> Flow[LearnedTogether]:
    """A party: the circuit of all rows."""
    check_least(party, plan)
    assignment, table = yield from introduce(party, METHOD, Assignment, members=plan.members)
    table = table.select([v.name for v in assignment.variables])  # in one order at all parties
    values = table.values[np.isfinite(table.values).any(axis=1)]
    learned = yield from learned_together(party.name, values, table.schema, plan, learner)
    if party.name == plan.members[0] and COORDINATOR not in plan.summation.members(plan.members):
        yield from send(COORDINATOR, SharedCircuit.of(learned))
    return learned


def coordinator(plan: SharedPlan, learner: SharedLearner) -> Flow[LearnedTogether]:
    """Whoever asked for the circuit: it adds up, or receives the result."""
    hellos = yield from hellos_of(plan.members, METHOD)
    schema = same_columns({p: hello.schema for p, hello in hellos.items()})
    for party in plan.members:
        yield from send(party, Assignment(plan.members, schema.variables, False, None))
    if COORDINATOR in plan.summation.members(plan.members):
        nothing = np.zeros((0, len(schema)))
        return (yield from learned_together(COORDINATOR, nothing, schema, plan, learner))
    first = plan.members[0]
    return (yield from receive(first, SharedCircuit)).together(schema, first)


def check_least(party: Party, plan: SharedPlan) -> None:
    """FederationError where bins may hold fewer rows than the party allows."""
    if party.least_count > plan.least:
        raise FederationError(
            f"{party.name} has least_count={party.least_count}, but bins of a {SHARED} may hold "
            f"{plan.least} rows of all parties: plan with the largest"
        )


def same_columns(schemas: Mapping[str, Schema]) -> Schema:
    """What all mean by their columns, or FederationError where one lacks some."""
    agreed = agree(schemas)
    for party, schema in schemas.items():
        if absent := [n for n in agreed.names if n not in schema]:
            holder = next(p for p, s in schemas.items() if absent[0] in s)
            raise FederationError(
                f"{party} has no column {absent[0]!r}, which {holder} has: a {SHARED} needs "
                "parties with different rows of the same columns"
            )
    return agreed


def lots_of(me: str, seed: int, rows: int) -> Array:
    """From 0 to 1, of every row of a party: the smallest are held out."""
    return np.random.default_rng([seed, zlib.crc32(me.encode())]).random(rows)


def learned_together(
    me: str,
    values: Array,
    schema: Schema,
    plan: SharedPlan,
    learner: SharedLearner,
    held: Mask | None = None,
    collective: Collective | None = None,
    columns: SummedColumns | None = None,
    least: int | None = None,
) -> Flow[LearnedTogether]:
    """A member's part, with rows or without. ``held``: which of its rows are held out, by default
    as the learner says; ``collective``: its end of all sums of a run, and ``columns``: what is
    known of columns, where several circuits are learned in it; ``least``: rows of all parties that
    a statistic is about, if not as planned."""
    collective = plan.collective(me) if collective is None else collective
    schedule, share = learner.rounds()
    about = f"{plan} {learner} {None if held is None else held.tolist()}"
    rows = SummedRows(values, collective, plan.members, about, least or plan.least)
    if plan.noise is not None:
        return (yield from _learned_noisily(rows, schema, plan, learner, plan.noise))
    if columns is None:
        columns = yield from summed_columns(rows, schema, plan.least)
    rows.values = without_rare(rows.values, columns.rare)
    rows.mark = digest(rows.mark, columns.mark)
    drawn = yield from summed_rows(rows, columns, *learner.clusters_summed(schema), plan.seed)
    if held is None:
        held = lots_of(me, plan.seed, len(values)) < held_share(drawn.rows, share)
    rng = np.random.default_rng([plan.seed, 2])
    with rows.making("shared/spread"):
        beginning = learner.beginning(drawn, schema, rng)
    yield from _same_circuit(beginning.circuit, collective)
    rounds = yield from em_by_sums(rows, held, beginning, schedule)
    beginning = replace(beginning, rules=rounds.rules)
    return LearnedTogether(beginning, rounds.fitted, drawn.rare, rounds)


def _learned_noisily(
    rows: SummedRows, schema: Schema, plan: SharedPlan, learner: SharedLearner, noise: Noise
) -> Flow[LearnedTogether]:
    noisy.refuse_numbers(schema)
    clusters = learner.clusters_summed(schema)
    drawn = yield from noisy.noisy_rows(rows, schema, *clusters, plan.seed, noise)
    with rows.making("shared/pairs"):
        beginning = learner.beginning(drawn, schema, np.random.default_rng([plan.seed, 2]))
    yield from _same_circuit(beginning.circuit, rows.collective)
    fitted = yield from noisy.noisy_em(rows, beginning, learner.rounds()[0], noise)
    return LearnedTogether(beginning, fitted)


def in_one_place(
    values: Array, schema: Schema, learner: SharedLearner, seed: int, least: int = 1
) -> LearnedTogether:
    """The same of one table, without anything that crosses. ``least``: rows that a statistic is
    about."""
    plan = SharedPlan(("all",), ALONE, seed, least=max(least, LEAST_COUNT))
    flow = learned_together("all", values, schema, plan, learner, least=least)
    answer: object = None
    while True:
        try:
            effect = flow.send(answer)
        except StopIteration as stop:
            learned: LearnedTogether = stop.value
            return learned
        assert isinstance(effect, Compute | Tell), "a single member sends nothing"
        answer = effect.work() if isinstance(effect, Compute) else None


def _same_circuit(circuit: Circuit, collective: Collective) -> Flow[None]:
    """An error that blames whoever has made another circuit of the same sums."""
    code = np.frombuffer(bytes.fromhex(digest(circuit.dumps())), np.uint8).astype(np.float64)

    def problem(other: Array) -> str:
        same = np.array_equal(code, other)
        return "" if same else "its circuit of the same sums differs: install equal versions"

    about = "a digest of the circuit, which all parties know"
    yield from collective.agree("shared/structure", code, about, problem)

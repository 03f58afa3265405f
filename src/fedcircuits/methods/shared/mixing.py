"""FedPC of parties with few rows each: circuits by sums, mixed with what each party learned alone.

Circuits of thirty rows each are worth little, however many are mixed. If parties hold different
rows of the same columns, and few each, they therefore also learn circuits by sums (training.py) and
weight them by held-out rows. In some of these circuits, columns that depend on no other have leaves
of their own (learning/summed/apart.py), so that none is worse than independence:

    shared/ask        coordinator → client: whether they do
    shared/…          sums, for each candidate circuit
    shared/judged     client → sum: log-likelihoods of its held-out rows under each circuit and
                      under its own, and their number (circuits + 2,)
    shared/weights/t  client → sum: how many of these rows each circuit explains under the current
                      weights, and the log-likelihood of their mixture (circuits + 2,): EM
    shared/…          sums: the last rounds of the circuits with any weight, on all rows
    shared/choice     first client → coordinator: the weights, and the log-likelihoods

On held-out rows the mixture is at least as likely as the best of its parts. A party does not have
the others' circuits, so the mixture is scored without them: the real mixture is at least as good.
What was learned by sums is one leaf of the joint circuit, for which the first party answers. All
parties know it, and the total log-likelihood of held-out rows. Afterwards, parties whose rows make
it worse for the others are identified (suspects.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, compute, receive, send
from fedcircuits.federation.messages import Count, FiniteVector, Message, require
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.learning.least_counts import RareValues, without_rare
from fedcircuits.learning.stopping import FEW, Mask
from fedcircuits.methods.refinement.roles import are_likelihoods, statistics_problem
from fedcircuits.methods.shared import suspects
from fedcircuits.methods.shared.alone import FLOOR, Learned, log_values, mixture
from fedcircuits.methods.shared.em import SCALE, em_by_sums
from fedcircuits.methods.shared.summing import SummedColumns, SummedRows, making, summed_columns
from fedcircuits.methods.shared.suspects import Judge
from fedcircuits.methods.shared.training import (
    LearnedTogether,
    SharedLearner,
    SharedPlan,
    learned_together,
    lots_of,
)
from fedcircuits.tables.table import Table

NAME = "shared"  # of the leaf
HELD = 0.2  # of the rows, at least, that are held out from few
ALONE = 20  # rows from which a party learns a circuit that is worth judging
PREFERRED = 5.0  # rows that speak for the best circuit beforehand, of 0.1 · (circuits + this)
BEHIND = 0.1
ROUNDS = 10  # of EM over weights
LEAST_WEIGHT = 0.02  # of a circuit that is kept
JUDGED = "the log-likelihood and number of its held-out rows"
EXPLAINED = "how many of its held-out rows each circuit explains, and their log-likelihood"


class AskShared(Message, frozen=True):
    """Coordinator → client: whether a circuit by sums is learned."""

    tag: ClassVar[str] = "shared/ask"
    reveals: ClassVar[str] = "whether parties have few rows each, and the number of all rows"

    wanted: bool
    number: Count  # of all rows


class SharedChoice(Message, frozen=True):
    """First client → coordinator: what held-out rows have said."""

    tag: ClassVar[str] = "shared/choice"
    reveals: ClassVar[str] = "the weights of the circuits, and the log-likelihood of held-out rows"

    weights: FiniteVector  # of circuits by sums, and at last of parties' own together
    scores: FiniteVector  # of the same, and of the mixture; none if no rows were held out

    @property
    def parties_share(self) -> float:
        return float(self.weights[-1])

    @property
    def best(self) -> int:
        """The circuit by sums under which held-out rows are likeliest."""
        return int(self.scores[:-2].argmax()) if len(self.scores) else 0


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a member goes by: circuits in question, the rows to learn from, some of them held."""

    me: str
    table: Table
    plan: SharedPlan
    learners: Sequence[SharedLearner]
    number: int  # of all rows of all parties
    validation: float
    collective: Collective  # one for the whole run: shares of secrets are never dealt twice

    @property
    def held(self) -> Mask:
        share = max(self.validation, HELD) if self.validation and self.number >= FEW else 0.0
        return lots_of(self.me, self.plan.seed, len(self.table)) < share

    def judge(self, learned: LearnedTogether, chosen: int) -> Judge:
        """Of parties that make a circuit worse."""
        learner, plan = self.learners[chosen], self.plan
        values = without_rare(self.table.values, learned.rare)
        about = self.me, values, self.held, learned, learner.rounds()[0], self.collective
        return Judge.of(*about, plan.least, plan.draws, learner.target)

    def columns(self) -> Flow[SummedColumns]:
        """What is summed once for all circuits."""
        rows = self._rows((), self.plan)
        return (yield from summed_columns(rows, self.table.schema, self.plan.least))

    def fitted(self, learner: SharedLearner, columns: SummedColumns) -> Flow[LearnedTogether]:
        about = self.me, self.table.values, self.table.schema, self.plan, learner, self.held
        return learned_together(*about, self.collective, columns)

    def from_all_rows(self, learned: LearnedTogether, chosen: int) -> Flow[Learned]:
        """With the last rounds of EM once more, in which no rows are held out."""
        circuit, rounds, learned_from = learned.beginning.circuit, learned.rounds, learned.fitted
        assert rounds is not None, "this member has made them"
        if not rounds.number:
            return circuit, learned_from.parameters
        schedule = self.learners[chosen].rounds()[0]
        schedule = replace(schedule, epochs=rounds.number, tolerance=-np.inf)
        about = self.plan, chosen, learned_from.history, learned_from.validation
        rows = self._rows(learned.rare, *about)
        beginning = replace(learned.beginning, start=rounds.before)
        nobody = np.zeros(len(self.table), np.bool_)
        again = yield from em_by_sums(rows, nobody, beginning, schedule)
        return circuit, again.fitted.parameters

    def _rows(self, rare: Sequence[RareValues], *about: object) -> SummedRows:
        values, plan = without_rare(self.table.values, rare), self.plan
        return SummedRows(values, self.collective, plan.members, f"{about}", plan.least)


def client(
    view: View,
    table: Table,
    sharing: tuple[SharedPlan, Sequence[SharedLearner], float],
    alone: Callable[[Table], Learned],
) -> Flow[View]:
    """``alone``: what the party learns from some of its rows."""
    asked = yield from receive(COORDINATOR, AskShared)
    if not asked.wanted:
        return view
    plan, learners, validation = sharing
    table = table.select(sorted(table.names))  # in one order at all parties
    collective = plan.collective(view.me)
    site = Sharing(view.me, table, plan, learners, asked.number, validation, collective)
    choice, learned, best = yield from _chosen(site, alone)
    if view.me == plan.members[0]:
        yield from send(COORDINATOR, choice)
    if len(choice.scores):
        yield from suspects.client(site.judge(best, choice.best), plan.members)
    leaves = view.leaves if choice.parties_share else ()
    circuits = {leaf.name: view.parameters.circuits[leaf.name] for leaf in leaves}
    if view.me == plan.members[0] and learned is not None:
        circuits[NAME] = learned
        leaves = (*leaves, Leaf(NAME, CIRCUIT, learned[0].schema.names))
    return replace(view, leaves=leaves, parameters=Parameters({}, circuits), _ready={})


def coordinator(
    joint: Joint,
    rows: Sequence[int],
    sharing: tuple[SharedPlan, Sequence[SharedLearner], float],
    horizontal: bool,
) -> Flow[tuple[Joint, str, tuple[str, ...]]]:
    """``rows``: of every party. The joint circuit with one by sums, what was chosen and why, and
    what else the user should know."""
    plan, learners, validation = sharing
    wanted = horizontal and len(rows) > 1 and float(np.median(rows)) < _enough(learners)
    yield from broadcast(plan.members, AskShared(wanted, sum(rows)))
    if not wanted:
        return joint, "", ()
    schema = joint.circuit.schema.select(sorted(joint.circuit.schema.names))
    judge = None
    if COORDINATOR in plan.summation.members(plan.members):
        nothing = Table(schema, np.zeros((0, len(schema))))
        collective = plan.collective(COORDINATOR)
        site = Sharing(COORDINATOR, nothing, plan, learners, sum(rows), validation, collective)
        share, _, best = yield from _chosen(site, None)
        judge = site.judge(best, share.best)
    first = plan.members[0]
    choice = yield from receive(first, SharedChoice)
    _check(choice, len(learners), len(schema), first)
    odd: tuple[str, ...] = ()
    if len(choice.scores):
        odd = yield from suspects.coordinator(judge, plan.members, len(schema))
    return with_shared(joint, choice.parties_share, first), _reason(choice, learners, rows), odd


def _chosen(
    site: Sharing, alone: Callable[[Table], Learned] | None
) -> Flow[tuple[SharedChoice, Learned | None, LearnedTogether]]:
    """Circuits by sums, mixed as is best on held-out rows and learned from all rows, if they have
    any weight; and the best of them, without the held-out rows."""
    columns = yield from site.columns()
    learned_all = []
    for learner in site.learners:
        learned_all.append((yield from site.fitted(learner, columns)))
        if not learned_all[-1].fitted.validation:
            first = learned_all[0]
            weights = np.eye(len(site.learners) + 1)[0]
            learned = first.beginning.circuit, first.fitted.parameters
            return SharedChoice(weights, np.zeros(0)), learned, first
    choice = yield from _weighed(site, (yield from _judged(site, learned_all, alone)))
    again = []
    for i in np.flatnonzero(choice.weights[:-1]):
        again.append((yield from site.from_all_rows(learned_all[i], int(i))))
    shares = choice.weights[:-1][choice.weights[:-1] > 0]
    return choice, mixture(again, shares) if again else None, learned_all[choice.best]


def _judged(
    site: Sharing,
    learned: Sequence[LearnedTogether],
    alone: Callable[[Table], Learned] | None,
) -> Flow[Array]:
    """Log-likelihoods of a member's held-out rows, under every circuit and under its own, which
    counts by its share of all rows (circuits + 1, rows)."""
    kept, rows = site.table.rows(~site.held), site.table.rows(site.held)
    logs = [log_values((one.beginning.circuit, one.fitted.parameters), rows) for one in learned]
    logs.append(np.full(len(rows), FLOOR))
    whole = not np.isnan(site.table.values).all(axis=0).any()  # it knows something of all columns
    if alone is not None and whole and len(rows) and len(kept) >= ALONE:
        own = yield from compute("learning from rows that are not held out", lambda: alone(kept))
        logs[-1] = log_values(own, rows) + np.log(len(site.table) / max(site.number, 1))
    return np.stack(logs)


def _weighed(site: Sharing, logs: Array) -> Flow[SharedChoice]:
    """Weights under which all held-out rows are likeliest, by EM."""

    def summed(tag: str, numbers: Array, last: float, reveals: str) -> Flow[Array]:
        mine = SCALE * np.append(numbers, last)
        total = yield from site.collective.sum(tag, mine, reveals, check=statistics_problem)
        return np.asarray(total / SCALE)

    total = yield from summed("shared/judged", logs.sum(axis=1), logs.shape[1], JUDGED)
    number = max(float(total[-1]), 1.0)
    scores = total[:-1] / number
    with making("shared/judged", site.plan.members):
        if not are_likelihoods(scores, len(site.table.schema)):
            raise ValueError("expected log-likelihoods of rows")
    behind = np.ones(len(logs))
    behind[scores.argmax()] += PREFERRED
    weights, likely = behind / behind.sum(), 0.0
    for t in range(ROUNDS):
        share = logs + np.log(weights)[:, None]
        mixed = np.asarray(logsumexp(share, axis=0))
        explained = np.exp(share - mixed).sum(axis=1)
        total = yield from summed(f"shared/weights/{t}", explained, mixed.sum(), EXPLAINED)
        weights = np.maximum(total[:-1], 0.0) + BEHIND * behind
        weights, likely = weights / weights.sum(), float(total[-1]) / number
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    return SharedChoice(weights / weights.sum(), np.maximum(np.append(scores, likely), FLOOR))


def _check(choice: SharedChoice, circuits: int, columns: int, sender: str) -> None:
    weights, scores = choice.weights, choice.scores
    shares = bool((weights >= 0).all() and abs(weights.sum() - 1) < 1e-9)
    shares = shares and len(weights) == circuits + 1
    for field, sound, problem in (
        ("weights", shares, "expected shares of every circuit and of parties' own"),
        ("scores", len(scores) in (0, circuits + 2), "expected one for every circuit"),
        ("scores", are_likelihoods(scores, columns), "expected log-likelihoods"),
    ):
        require(sound, sender, SharedChoice, field, problem)


def with_shared(joint: Joint, share: float, holder: str) -> Joint:
    """The joint circuit, with this share, beside one by sums that this party answers for."""
    if share == 1:
        return joint
    leaf = Leaf(NAME, CIRCUIT, joint.circuit.schema.names)
    if share == 0:
        alone = Circuit((leaf,), joint.circuit.schema)
        return Joint(alone, {NAME: holder}, Parameters({}))
    root = Sum("mixed", (NAME, joint.circuit.root.name))
    circuit = Circuit((*joint.circuit.nodes, leaf, root), joint.circuit.schema)
    weights = {**joint.parameters.values, "mixed": {WEIGHT: np.array([[1 - share, share]])}}
    placement = {**joint.placement, NAME: holder, "mixed": COORDINATOR}
    return Joint(circuit, placement, Parameters(weights))


def _enough(learners: Sequence[SharedLearner]) -> int:
    """Rows with which a party learns well enough alone."""
    return min(learner.enough for learner in learners)


def _reason(choice: SharedChoice, learners: Sequence[SharedLearner], rows: Sequence[int]) -> str:
    few = f"the median party has {int(np.median(rows))} rows, fewer than {_enough(learners)}"
    if not len(choice.scores):
        name = str(learners[0])
        return f"one circuit by sums, {name}, because {few}; too few rows to hold some out"
    *_, own, mixed = choice.scores
    judged = f"log-likelihood of held-out rows {mixed:.2f}"
    judged += f", under the parties' own circuits {own:.2f}" if own > FLOOR else ""
    if choice.parties_share == 1:
        return (
            f"the parties' own circuits, although {few}: they are best on held-out rows ({judged})"
        )
    pairs = zip(learners, choice.weights[:-1], strict=True)
    names = [f"{learner}, weight {weight:.2g}" for learner, weight in pairs if weight]
    if share := choice.parties_share:
        names.append(f"parties' own circuits, weight {share:.2g}")
    what = "circuits by sums" if len(names) > 1 else "one circuit by sums"
    return f"{what}: {'; '.join(names)}; because {few} ({judged})"

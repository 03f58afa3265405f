"""FedPC of parties with few rows each: one circuit by sums, beside what each has learned alone.

Circuits of thirty rows each are worth little, however many are mixed. So where parties hold
different rows of the same columns, and few each, they learn circuits by sums too (training.py), and
judge by rows that they hold back:

    shared/ask       coordinator → client: whether they do
    shared/…         sums, for each of the circuits in question; then a few more rounds for the
                     best of them, from all rows
    shared/judged    client → sum: log-likelihoods of its rows held back under the best circuit,
                     mixed with its own in several shares (shares + 2,)
    shared/choice    first client → coordinator: which circuit it is, the share, and how likely the
                     rows were

Of others' circuits a party has none, so that the mixture is judged as if it had no part of theirs:
it is at least as good as that. The circuit by sums is a leaf of the joint one that the first party
answers for. Everybody knows it, and the likelihood of all rows held back together. Then parties are
found whose rows make it worse for the others (suspects.py).
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
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, broadcast, compute, receive, send
from fedcircuits.federation.messages import Count, FiniteVector, Message, Share, require
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.learning.least_counts import without_rare
from fedcircuits.learning.stopping import FEW, Mask
from fedcircuits.methods.refinement.roles import are_likelihoods, statistics_problem
from fedcircuits.methods.shared import suspects
from fedcircuits.methods.shared.em import em_by_sums
from fedcircuits.methods.shared.summing import SummedRows
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
SHARES = np.array([0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0])  # of parties' own circuits
FEW_ROWS = 2_000  # of a party: with more it learns well enough alone
MORE_ROUNDS = 3  # of EM, once the rows held back are learned from as well
HELD = 0.2  # of the rows, at least, that are held back from few
FLOOR = -1e4  # nats of a row that a circuit finds impossible
JUDGED = "log-likelihoods of its rows held back, and their number"
Learned = tuple[Circuit, Parameters]


class AskShared(Message, frozen=True):
    """Coordinator → client: whether a circuit by sums is learned."""

    tag: ClassVar[str] = "shared/ask"
    reveals: ClassVar[str] = "whether parties have few rows each"

    wanted: bool
    number: Count  # of all rows


class SharedChoice(Message, frozen=True):
    """First client → coordinator: what rows held back have said."""

    tag: ClassVar[str] = "shared/choice"
    reveals: ClassVar[str] = "which circuit was chosen, and how likely rows held back are"

    chosen: Count
    own: Share  # of parties' circuits in the mixture
    scores: FiniteVector  # of circuits by sums
    mixed: FiniteVector  # of mixtures in all shares; none if no rows were held back


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

    def fitted(self, learner: SharedLearner) -> Flow[LearnedTogether]:
        about = self.me, self.table.values, self.table.schema, self.plan, learner, self.held
        return learned_together(*about, self.collective)

    def from_all_rows(self, learned: LearnedTogether, chosen: int) -> Flow[LearnedTogether]:
        """A few more rounds of EM, in which no rows are held back."""
        schedule = self.learners[chosen].rounds()[0]
        schedule = replace(schedule, epochs=MORE_ROUNDS, tolerance=-np.inf)
        about = f"{self.plan} {chosen} {learned.fitted.history} {learned.fitted.validation}"
        values = without_rare(self.table.values, learned.rare)
        rows = SummedRows(values, self.collective, self.plan.members, about, self.plan.least)
        beginning = replace(learned.beginning, start=learned.fitted.parameters)
        nobody = np.zeros(len(self.table), np.bool_)
        fitted = yield from em_by_sums(rows, nobody, beginning, schedule)
        return LearnedTogether(beginning, fitted, learned.rare)


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
    choice, learned, kept = yield from _chosen(site, alone)
    if view.me == plan.members[0]:
        yield from send(COORDINATOR, choice)
    if len(choice.mixed):
        yield from suspects.client(site.judge(kept, choice.chosen), plan.members)
    leaves = view.leaves if choice.own else ()
    circuits = {leaf.name: view.parameters.circuits[leaf.name] for leaf in leaves}
    if view.me == plan.members[0] and choice.own < 1:
        circuits[NAME] = learned.beginning.circuit, learned.fitted.parameters
        leaves = (*leaves, Leaf(NAME, CIRCUIT, learned.beginning.circuit.schema.names))
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
    wanted = horizontal and len(rows) > 1 and float(np.median(rows)) < FEW_ROWS
    yield from broadcast(plan.members, AskShared(wanted, sum(rows)))
    if not wanted:
        return joint, "", ()
    schema = joint.circuit.schema.select(sorted(joint.circuit.schema.names))
    judge = None
    if COORDINATOR in plan.summation.members(plan.members):
        nothing = Table(schema, np.zeros((0, len(schema))))
        collective = plan.collective(COORDINATOR)
        site = Sharing(COORDINATOR, nothing, plan, learners, sum(rows), validation, collective)
        share, _, kept = yield from _chosen(site, None)
        judge = site.judge(kept, share.chosen)
    first = plan.members[0]
    choice = yield from receive(first, SharedChoice)
    _check(choice, len(learners), len(schema), first)
    odd: tuple[str, ...] = ()
    if len(choice.mixed):
        odd = yield from suspects.coordinator(judge, plan.members, len(schema))
    return with_shared(joint, choice.own, first), _reason(choice, learners, rows), odd


def _chosen(
    site: Sharing, alone: Callable[[Table], Learned] | None
) -> Flow[tuple[SharedChoice, LearnedTogether, LearnedTogether]]:
    """The best circuit by sums on rows held back: learned from all rows, and without these."""
    learned_all = []
    for learner in site.learners:
        learned_all.append((yield from site.fitted(learner)))
        if not learned_all[-1].fitted.validation:
            nothing = np.zeros(0)
            return SharedChoice(0, 0.0, nothing, nothing), learned_all[0], learned_all[0]
    scores = np.array([max(f.fitted.validation) for f in learned_all])
    best = int(scores.argmax())
    mixed = yield from _judged(site, site.held, learned_all[best], alone)
    learned = yield from site.from_all_rows(learned_all[best], best)
    share = float(SHARES[int(mixed.argmax())])
    return SharedChoice(best, share, np.maximum(scores, FLOOR), mixed), learned, learned_all[best]


def _judged(
    site: Sharing, held: Mask, learned: LearnedTogether, alone: Callable[[Table], Learned] | None
) -> Flow[Array]:
    """Mean log-likelihood of all rows held back, for every share of parties' own circuits."""
    total = np.zeros(len(SHARES) + 1)
    if alone is not None and held.any() and not held.all():
        kept, rows = site.table.rows(~held), site.table.rows(held)
        alone_model = yield from compute(
            "learning from rows that are not held back", lambda: alone(kept)
        )
        share = len(site.table) / max(site.number, 1)
        logs = np.stack(
            [
                _log_values((learned.beginning.circuit, learned.fitted.parameters), rows),
                _log_values(alone_model, rows) + np.log(share),
            ]
        )
        with np.errstate(divide="ignore"):
            weights = np.log(np.stack([1 - SHARES, SHARES]))  # (2, shares)
        mixed = logsumexp(logs[:, :, None] + weights[:, None], axis=0)  # (rows, shares)
        total[:-1], total[-1] = np.maximum(mixed, FLOOR).sum(axis=0), len(rows)
    sums = yield from site.collective.sum("shared/judged", total, JUDGED, check=statistics_problem)
    return np.asarray(sums[:-1] / max(float(sums[-1]), 1.0))


def _log_values(learned: Learned, rows: Table) -> Array:
    circuit, parameters = learned
    values = rows.select(circuit.schema.names).values
    return Distribution(circuit, parameters).log_values_within(np.array(values), {})


def _check(choice: SharedChoice, circuits: int, columns: int, sender: str) -> None:
    for field, sound, problem in (
        ("chosen", choice.chosen < circuits, f"expected one of {circuits} circuits"),
        ("own", choice.own in SHARES.tolist(), "expected a share that was judged"),
        ("scores", len(choice.scores) in (0, circuits), "expected one for every circuit"),
        ("mixed", len(choice.mixed) in (0, len(SHARES)), "expected one for every share"),
        ("scores", are_likelihoods(choice.scores, columns), "expected log-likelihoods"),
        ("mixed", are_likelihoods(choice.mixed, columns), "expected log-likelihoods"),
    ):
        require(sound, sender, SharedChoice, field, problem)


def with_shared(joint: Joint, share: float, holder: str) -> Joint:
    """The joint circuit beside one by sums, which this party answers for; ``own``: its share."""
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


def _reason(choice: SharedChoice, learners: Sequence[SharedLearner], rows: Sequence[int]) -> str:
    name = str(learners[choice.chosen])
    few = f"parties have {int(np.median(rows))} rows each in the middle, fewer than {FEW_ROWS}"
    if not len(choice.mixed):
        return f"one circuit by sums, {name}, because {few}; rows are too few to hold some back"
    likely = dict(zip(SHARES.tolist(), choice.mixed.tolist(), strict=True))
    best = likely[choice.own]
    judged = f"log-likelihood of rows held back {best:.2f}, under parties' own {likely[1.0]:.2f}"
    if choice.own == 1:
        return (
            f"parties' own circuits, though {few}: they are the best on rows held back ({judged})"
        )
    if choice.own == 0:
        return f"one circuit by sums, {name}, because {few} ({judged})"
    return (
        f"one circuit by sums, {name}, mixed with parties' own, which weigh {choice.own:g}, "
        f"because {few} ({judged})"
    )

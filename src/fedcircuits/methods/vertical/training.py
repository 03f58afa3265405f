"""EM for a mixture whose columns are split over parties (Valdeira, Soares and Xavier, 2022), with a
server or without. As a circuit, the mixture is a sum of K products of one leaf per party.

**Who takes part.** N parties that hold different columns of the same rows, and a coordinator that
asked for the model. With ``Hub()`` the coordinator also adds up; with any other summation the
parties add up among themselves and the first party leads.

**Idea** (section 3). Given the component, the columns of one party are independent of the others':
a covariance has one block per party. Log-densities of parties therefore add up, and nothing else is
needed from other parties.

**What crosses**, for K components and R rows:

    agree, key, rows   hello, and rows brought into a common order (methods/meeting)
    hub                columns moved into hubs, if asked for (section 4; rows.py)
    seed, means        the start of EM by k-means (points.py)
    em/terms           party → sum, every iteration: the differences between the log-density of each
                       component and that of the last one, (K − 1) × R, and the sum of the last
                       one's log-densities, 1. Result: normalised responsibilities and the
                       log-likelihood, of the same size.
    em/agreed          leader → members, every iteration: log-likelihood per row, and the index of
                       an empty component or −1 (2 numbers). All members stop by these numbers, so
                       all stop together.
    em/worst           party → sum, only if a component is empty: terms of all components, K × R.
                       The component restarts at the row of lowest density, as wide as all rows.
    result/mixture     first party → coordinator, without a server: weights of components (K),
                       log-likelihoods per row (iterations), whether EM converged, restarted
                       components, the number of rows, the columns of all parties
    result/block       party → coordinator: how many numbers it learned for one component, and
                       which components collapsed in which of its columns

After each sum every party updates its block locally; parameters never leave a party.

**What each party learns.** Everything that others learn about a party is in its terms. A hub sees
them for every row, as do neighbours in gossip, and the values of a party with few columns can
nearly be recovered from them (of a single column: up to shift and scale). With two parties, each
can compute the other's terms from the result. All members learn the responsibilities of all rows,
and nobody can identify rows other than its own.

With ``batch_size``, each step takes one batch of rows and replaces its part of the sums (Neal and
Hinton, 1993): less is sent per step, and fewer passes are needed. The log-likelihood of such a pass
is that of each batch at its step. A lost party ends the run. What the others had learned in the
last rounds is kept, and the run can continue from there with or without the lost party. Without it,
the mixture over the remaining columns is the exact marginal of the former mixture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, gather, receive, send
from fedcircuits.federation.messages import (
    Count,
    FiniteVector,
    Message,
    RealVector,
    require,
    require_shape,
)
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.meeting.hello import Method, leader_of
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights
from fedcircuits.methods.vertical.block import MixtureBlock, joint_of
from fedcircuits.methods.vertical.em import (
    Components,
    EMPlan,
    EMProgress,
    MixtureMember,
    best_run,
    expected_rows,
    responsibilities,
    settled,
)
from fedcircuits.methods.vertical.rows import (
    Columns,
    Setting,
    check_enough,
    holders,
    schemas_of,
    two_parties,
)
from fedcircuits.tables.schema import Schema

METHOD = Method("vertical mixture", 2)


class MixtureOutcome(Message, frozen=True):
    """The outcome of EM."""

    tag: ClassVar[str] = "result/mixture"
    reveals: ClassVar[str] = (
        "the weights of the components, the log-likelihoods, the number of rows, the columns of "
        "all parties"
    )

    weights: FiniteVector  # (components,)
    bounds: RealVector  # (iterations,): log-likelihood per row before every update
    bound: float  # the same at the end
    settled: bool
    restarts: tuple[tuple[Count, Count], ...]  # components that have restarted, and when
    rows: Count  # that count
    columns: Columns
    notes: tuple[str, ...]


class BlockReport(Message, frozen=True):
    """A party's report on its block."""

    tag: ClassVar[str] = "result/block"
    reveals: ClassVar[str] = "its number of parameters, and in which columns components collapsed"

    numbers: Count  # of one component
    collapsed: dict[str, list[Count]]  # by column, components without any spread in it


@dataclass(frozen=True, slots=True, eq=False)
class TrainedMixture:
    """The coordinator's result for a mixture."""

    outcome: MixtureOutcome
    joint: Joint
    columns: Mapping[str, Schema]  # by party, of its block
    numbers: int  # that all parties have learned for one component
    sound: bool  # whether no component has collapsed
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------------- roles


@dataclass(frozen=True, slots=True, eq=False)
class EMResult:
    """A party's result, which it keeps."""

    progress: EMProgress  # of the best run, when it ended
    labels: Labels  # (own rows,) in the order of its table
    view: View


def member(
    party: Party,
    parties: Sequence[str],
    plan: EMPlan,
    summation: Summation,
    secret: bytes,
    weight: SampleWeights | None = None,
    start: EMProgress | None = None,
    before: EMProgress | None = None,
) -> Flow[EMResult]:
    """A party's side. ``weight``: weights of rows. EM continues from ``start``, with the values
    that the party itself had learned ``before``, if any."""
    if start is not None and before is not None:
        start = replace(start, values=before.values)
    me, members = party.name, summation.members(parties)
    end = yield from _learned(me, parties, party, plan, summation, secret, weight, start)
    block, state = end.local.block, end.model.state
    if me == leader_of(members):
        yield from send(COORDINATOR, end.outcome())
    yield from send(COORDINATOR, BlockReport(block.n_parameters, block.collapsed(state)))
    return EMResult(end.best, end.labels(), block.view(party, state))


def coordinator(
    parties: Sequence[str],
    plan: EMPlan,
    summation: Summation,
    start: EMProgress | None = None,
) -> Flow[TrainedMixture]:
    """The coordinator's side: it adds up, or receives the outcome from the first party."""
    members = summation.members(parties)
    leader = leader_of(members)
    if leader == COORDINATOR:
        about = (plan, summation, b"", None, start)
        outcome = (yield from _learned(COORDINATOR, parties, None, *about)).outcome()
    else:
        outcome = yield from _received_outcome(leader, plan.components, plan.max_iter)
    schemas = schemas_of(outcome.columns, parties, leader, outcome.tag)
    blocks = yield from gather(parties, BlockReport)
    return trained_mixture(outcome, schemas, blocks, plan.hubs, plan.reg_covar)


def _learned(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    plan: EMPlan,
    summation: Summation,
    secret: bytes,
    weight: SampleWeights | None,
    start: EMProgress | None,
) -> Flow[MixtureEnd]:
    """One member's side, whether it holds columns or not."""
    setting = Setting(METHOD, me, parties, summation, plan.rows, plan.hubs)
    rows, _ = yield from setting.matched(party, secret, weight)
    check_enough(rows, plan.components, "components")
    if plan.batch_size is not None:
        rows = rows.shuffled(np.random.default_rng([plan.seed, 0]))
    table, sums = yield from setting.columns(party, rows, plan.components)
    held = sums.rows.weight[sums.rows.at]
    block = MixtureBlock.of(table, held, plan.components, dict(plan.leaves), plan.reg_covar)
    local = MixtureMember(plan, sums, table, block)
    best, model = yield from best_run(local, start)
    final = yield from expected_rows(local, model, sums.everything, "em/terms/final")
    return MixtureEnd(local, rows, best, model, final)


@dataclass(frozen=True, slots=True, eq=False)
class MixtureEnd:
    """A member's state when EM has ended."""

    local: MixtureMember
    rows: MatchedRows
    best: EMProgress
    model: Components
    final: Array  # responsibilities and log-likelihood of all rows

    def labels(self) -> Labels:
        """(own rows,) the most responsible component, in the order of the member's table."""
        rows = self.rows
        resp = responsibilities(self.final, self.local.plan.components, rows.total)
        labels = np.zeros(len(rows.order), np.int64)
        labels[rows.order] = resp.argmax(axis=0)[rows.at]
        return labels

    def outcome(self) -> MixtureOutcome:
        """At the leader: the outcome."""
        best, bound = self.best, float(self.final[-1] / self.rows.weight.sum())
        columns = {p: schema.variables for p, schema in self.rows.schemas.items()}
        return MixtureOutcome(
            self.model.weights, np.array(best.bounds), bound, settled(self.local.plan, best),
            best.restarts, int(np.count_nonzero(self.rows.weight)), columns, self.rows.notes,
        )  # fmt: skip


# ---------------------------------------------------------------------- at the coordinator


def _received_outcome(leader: str, components: int, rounds: int) -> Flow[MixtureOutcome]:
    """The outcome that the first party sends, checked."""
    outcome = yield from receive(leader, MixtureOutcome)
    require_shape(outcome.weights, (components,), leader, MixtureOutcome, "weights")
    shares = bool((outcome.weights >= 0).all()) and abs(outcome.weights.sum() - 1) < 1e-6
    known = all(k < components and t <= rounds for k, t in outcome.restarts)
    for field, holds, problem in (
        ("weights", shares, "expected shares that add up to 1"),
        ("bounds", 0 < len(outcome.bounds) <= rounds, f"expected 1 to {rounds} log-likelihoods"),
        ("bounds", bool((outcome.bounds < np.inf).all()), "expected numbers"),
        ("bound", outcome.bound < np.inf, "expected a number"),
        ("rows", outcome.rows > 0, "expected at least 1"),
        ("restarts", known, f"expected components below {components} and rounds to {rounds}"),
    ):
        require(holds, leader, MixtureOutcome, field, problem)
    return outcome


def trained_mixture(
    outcome: MixtureOutcome,
    schemas: Mapping[str, Schema],
    blocks: Mapping[str, BlockReport],
    hubs: Sequence[Neighbourhood],
    reg_covar: float,
) -> TrainedMixture:
    """The result, from the outcome of EM and every party's report."""
    held = holders(schemas, hubs)
    for party, block in blocks.items():
        schema = held.get(party, Schema(()))
        fits = all(
            name in schema and all(k < len(outcome.weights) for k in which)
            for name, which in block.collapsed.items()
        )
        require(fits, party, BlockReport, "collapsed", "expected its columns, and components")
    notes = [*outcome.notes, *two_parties(held), *_restarted(outcome.restarts)]
    notes += [n for p, b in blocks.items() for n in _collapsed(p, b.collapsed, reg_covar)]
    joint = joint_of(np.array(outcome.weights, np.float64), schemas, held)
    numbers = sum(block.numbers for block in blocks.values())
    sound = not any(block.collapsed for block in blocks.values())
    return TrainedMixture(outcome, joint, held, numbers, sound, tuple(notes))


def _collapsed(me: str, columns: Mapping[str, Sequence[int]], reg_covar: float) -> list[str]:
    return [
        f"{_named(which)} collapsed at {me}: the variance of {column!r} there is no larger "
        f"than reg_covar={reg_covar:g}; raise reg_covar, or use fewer components"
        for column, which in columns.items()
    ]


def _named(which: Sequence[int]) -> str:
    if len(which) == 1:
        return f"component {which[0]} has"
    return f"components {', '.join(map(str, which[:5]))}{', …' if len(which) > 5 else ''} have"


def _restarted(restarts: Sequence[tuple[int, int]]) -> list[str]:
    which = ", ".join(f"component {k} after {t} iterations" for k, t in restarts[:5])
    which += ", …" if len(restarts) > 5 else ""
    return [f"restarted at the row of lowest density, being empty: {which}"] if which else []

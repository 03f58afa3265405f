"""EM for a mixture whose columns are split over parties (Valdeira, Soares and Xavier, 2022): every
role, with a server or without. As a circuit: a sum of K products of one leaf per party.

Parties hold different columns about the same rows. Given the component, a party's columns are
independent of the others' (a covariance has one block per party), so log-densities of parties add
up, and nothing else is needed from others:

    agree, key, rows   hello, and rows in one order (methods/meeting)
    hub                columns into hubs, if asked for (rows.py)
    seed, means        where EM begins (kmeans.py)
    em/terms           party → sum: how much more likely each component finds a row than the last
                       one does, and the sum of the last one's log-densities: (K − 1) × rows + 1
                       numbers. result: responsibilities, normalised once, and the log-likelihood:
                       as many.
    em/agreed          leader → members: the log-likelihood per row, and which component is empty
                       (2). All stop by these numbers, so all stop at once.
    em/worst           only if a component is empty: terms of all components (K × rows). It begins
                       anew at the row of lowest density, as wide as all rows are.
    result             what whoever asked hears of it (reports.py); parties keep what they learned

Then every party updates its own block by itself. Everything that others learn about a party is in
its terms: a hub sees them for every row, as do neighbours in gossip, and a party's few columns can
nearly be worked out from them (one column: up to shift and scale). With two parties each works out
the other's terms from the result. All members learn the responsibilities of all rows, and nobody
which rows they are, apart from its own.

With ``batch_size`` each step takes one batch of rows and replaces its share of the sums (Neal and
Hinton, 1993): less travels per step, and fewer passes are needed. The log-likelihood of such a pass
is that of each batch when it was looked at. A lost party ends the run; what the others had learned
in the last rounds is kept, and the run may go on from there with or without it. Without it the
mixture of the remaining columns is what the mixture of all was for them: the exact marginal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Flow, gather, send
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.meeting.hello import Method, leader_of, meet
from fedcircuits.methods.meeting.rows import MatchedRows, SampleWeights, match_rows
from fedcircuits.methods.vertical.block import MixtureBlock
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
from fedcircuits.methods.vertical.reports import (
    BlockReport,
    MixtureOutcome,
    TrainedMixture,
    mixture_told,
    schemas_of,
    trained_mixture,
)
from fedcircuits.methods.vertical.rows import (
    RowDraw,
    RowSums,
    check_enough,
    check_holders,
    columns_at,
)

METHOD = Method("vertical mixture", 2)


@dataclass(frozen=True, slots=True, eq=False)
class EMResult:
    """What a party has at the end, and keeps."""

    progress: EMProgress  # of the best run, when it ended
    labels: Labels  # (own rows,) in the order of its own table
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
    """A party's side; ``weight``: of rows. EM goes on from ``start``, with what the party itself
    has learned ``before`` if it did."""
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
    """Whoever asked: it adds up, or hears from the first party what came of it."""
    members = summation.members(parties)
    leader = leader_of(members)
    if leader == COORDINATOR:
        about = (plan, summation, b"", None, start)
        outcome = (yield from _learned(COORDINATOR, parties, None, *about)).outcome()
    else:
        outcome = yield from mixture_told(leader, plan.components, plan.max_iter)
    schemas = schemas_of(outcome, parties, leader)
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
    members = summation.members(parties)
    leader = leader_of(members)
    hellos = yield from meet(me, parties, leader, party, METHOD)
    check_holders({p: hello.schema for p, hello in hellos.items()})
    rows = yield from match_rows(me, parties, leader, party, weight, secret, hellos, plan.rows)
    check_enough(rows, plan.components, "components")
    if plan.batch_size is not None:
        rows = rows.shuffled(np.random.default_rng([plan.seed, 0]))
    table, joined = yield from columns_at(me, party, rows, plan.hubs)
    held = joined.weight[joined.at]
    block = MixtureBlock.of(table, held, plan.components, dict(plan.leaves), plan.reg_covar)
    draw = RowDraw(me, parties[0], members, rows)
    sums = RowSums(summation.at(me, members), joined, plan.components, draw)
    local = MixtureMember(plan, sums, table, block)
    best, model = yield from best_run(local, start)
    final = yield from expected_rows(local, model, sums.everything, "em/terms/final")
    return MixtureEnd(local, rows, best, model, final)


@dataclass(frozen=True, slots=True, eq=False)
class MixtureEnd:
    """Where a member is when EM has ended."""

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
        """At the leader: how it has ended."""
        best, bound = self.best, float(self.final[-1] / self.rows.weight.sum())
        columns = {p: schema.variables for p, schema in self.rows.schemas.items()}
        return MixtureOutcome(
            self.model.weights, np.array(best.bounds), bound, settled(self.local.plan, best),
            best.restarts, int(np.count_nonzero(self.rows.weight)), columns, self.rows.notes,
        )  # fmt: skip

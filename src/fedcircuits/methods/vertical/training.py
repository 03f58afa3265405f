"""EM for a mixture whose columns are split over parties (Valdeira, Soares and Xavier, 2022): every
role, with or without a server. As a circuit: a sum of K products of one leaf a party.

Parties hold other columns about the same rows. Given the component a party's columns are
independent of the others' (a covariance has one block a party), so that log-densities of parties
add up, and nothing else is needed of others:

    rows, key, hub  rows in one order; columns into hubs, if asked for (vertical_rows.py)
    seed, means     where EM begins (vertical_kmeans.py)
    em/terms        party → sum: how much more likely each component finds a row than the last one
                    does, and the sum of the last one's log-densities: (K − 1) × rows + 1 numbers.
                    result: responsibilities, normalised once, and the log-likelihood: as many.
    em/agreed       leader → members: the log-likelihood a row, and which component is empty (2).
                    All stop by these numbers, so all stop at once.
    em/worst        only if a component is empty: terms of all components (K × rows). It begins anew
                    at the row of lowest density, as wide as all rows are.

Then every party updates its own block by itself. Everything that others learn of a party is in its
terms: a hub sees them for every row, as do neighbours in gossip, and a party's few columns can
nearly be worked out from them (one column: up to shift and scale). With two parties each works out
the other's terms from the result. All members learn all rows' responsibilities, and nobody which
rows they are, beyond its own.

With ``batch_size`` each step takes one lot of rows and replaces its share of the sums (Neal and
Hinton, 1993): less travels a step, and fewer passes are needed. The log-likelihood of such a pass
is that of each lot when it was looked at. A lost party ends the run; what the others had learned in
the last rounds is kept, and the run may go on from there with or without it. Without it the mixture
of the other columns is what the mixture of all was for them: the exact marginal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Flow, compute
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.methods.vertical.blocks import Block, State
from fedcircuits.methods.vertical.centres import Space
from fedcircuits.methods.vertical.kmeans import lloyd, seeded
from fedcircuits.methods.vertical.mixture import (
    End,
    Mixed,
    Model,
    Plan,
    Progress,
    Share,
    joint_of,
    view_of,
)
from fedcircuits.methods.vertical.rows import Rows, gathered, leader_of, rows_of, told_of
from fedcircuits.methods.vertical.sums import Normalised, Sums, drawn, responsibilities

SEED_ROUNDS = 20  # of k-means before EM
EMPTY = 1.5  # rows: a component that is responsible for fewer begins anew
KEPT = 5  # rounds between two states that are kept for a run that fails
LIKELIER = "how much likelier each component finds rows than the last one does, in its columns"
LIKELY = "how likely each component finds rows, in its columns"
AGREED = "the log-likelihood, and whether a component is empty"


def member(
    me: str,
    parties: Sequence[str],
    party: Party | None,
    plan: Plan,
    summation: Summation,
    secret: bytes,
    weight: Array | None = None,
    start: Progress | None = None,
) -> Flow[Mixed]:
    """One member's side, whether it holds columns or not; ``weight``: of its own rows."""
    members = summation.members(parties)
    rows = yield from rows_of(me, parties, leader_of(members), party, weight, secret)
    if plan.batch_size is not None:
        rows = rows.shuffled(np.random.default_rng([plan.seed, 0]))
    table = None if party is None else party.table.rows(rows.order)
    table, joined = yield from gathered(me, table, rows, plan.hubs)
    block = None
    if table is not None and table.names:
        weights = joined.weight[joined.at]
        block = Block.of(table, weights, dict(plan.leaves), plan.reg_covar)
    end = End(plan, Sums(summation.at(me, members), joined, plan.components), table, block)
    best, model = yield from _best(end, start)
    last = yield from _expected(end, model, end.sums.everything, "em/terms/final")
    return _mixed(me, party, end, rows, best, model, last)


def _mixed(
    me: str, party: Party | None, end: End, rows: Rows, best: Progress, model: Model, last: Array
) -> Mixed:
    resp = responsibilities(last, end.plan.components, rows.total)
    labels = np.zeros(len(rows.order), np.int64)
    labels[rows.order] = resp.argmax(axis=0)[rows.at]
    notes = [*_collapsed(me, end, model)]
    joint = None
    if rows.schemas:  # at the leader
        joint = joint_of(end.plan, rows.schemas, model.weights)
        notes = [*told_of(rows, end.plan.hubs), *_anew(best), *notes]
    return Mixed(
        model.weights,
        best.bounds,
        _settled(end.plan, best),
        float(last[-1] / rows.weight.sum()),
        labels,
        None if party is None else view_of(party, end, model),
        joint,
        end.outside(model),
        0 if end.block is None else end.block.free,
        tuple(notes),
    )


def _collapsed(me: str, end: End, model: Model) -> list[str]:
    if end.block is None:
        return []
    found: dict[str, list[int]] = {}
    for k, column in end.block.collapsed(model.state).items():
        found.setdefault(column, []).append(k)
    return [
        f"{_named(which)} collapsed at {me}: {column!r} varies no more there than reg_covar="
        f"{end.plan.reg_covar:g} says; raise reg_covar, or take fewer components"
        for column, which in found.items()
    ]


def _named(which: Sequence[int]) -> str:
    if len(which) == 1:
        return f"component {which[0]} has"
    return f"components {', '.join(map(str, which[:5]))}{', …' if len(which) > 5 else ''} have"


def _anew(best: Progress) -> list[str]:
    which = ", ".join(f"component {k} after {t} iterations" for k, t in best.anew[:5])
    which += ", …" if len(best.anew) > 5 else ""
    return [f"without rows, and begun anew at the row of lowest density: {which}"] if which else []


# ---------------------------------------------------------------------- runs


def _best(end: End, start: Progress | None) -> Flow[tuple[Progress, Model]]:
    """All runs, and the best of them."""
    found: list[tuple[Progress, Model]] = []
    if start is not None and start.best is not None:
        found.append((start.best, start.best.model(end.block, end.plan.components)))
    first = 0 if start is None else start.run
    for run in range(first, max(end.plan.n_init, first + 1)):
        here = start if start is not None and run == first else Progress(run=run)
        if here is start:
            model = here.model(end.block, end.plan.components)
        else:
            model = yield from _begun(end, run)
        found.append((yield from _climbed(end, model, here, found[0][0] if found else None)))
        found = [max(found, key=lambda one: one[0].bounds[-1])]
    return found[0]


def _begun(end: End, run: int) -> Flow[Model]:
    """A start that all members know alike."""
    plan, rows = end.plan, end.sums.rows
    rng = np.random.default_rng([plan.seed, 1, run])
    if plan.init == "random_from_data":
        model, left = end.whole(), rows.weight.copy()
        for k in range(plan.components):
            row = drawn(left if left.sum() > 0 else rows.weight, rng)
            model, left[row] = end.moved(model, k, row), 0.0
        return model
    points = None
    if end.table is not None and end.block is not None:
        space = Space.of(end.table, rows.weight[rows.at], standardise=True)
        points = space.points(end.table.values)
    seeds = yield from seeded(end.sums, points, f"{run}", rng)
    found = yield from lloyd(end.sums, points, seeds, f"{run}", SEED_ROUNDS, 0.0)
    resp = np.asarray(found.labels == np.arange(plan.components)[:, None], np.float64)
    model = end.whole()
    share = end.share(resp, end.sums.everything, model, model.state)
    return end.maximised([share], model, model.state)


def _climbed(
    end: End, model: Model, here: Progress, best: Progress | None
) -> Flow[tuple[Progress, Model]]:
    """EM until it settles or rounds are over."""
    plan, fixed = end.plan, model.state
    shares: list[Share | None] = [None] * len(end.lots)
    while here.round < plan.max_iter:
        name = f"{here.run}/{here.round}"
        model, total = yield from _passed(end, model, shares, fixed, name)
        size = np.sum([share[0] for share in shares if share is not None], axis=0)
        bound, empty = yield from _agreed(end, total, size, len(here.anew), name)
        anew = here.anew
        if empty >= 0:
            words = (f"em/worst/{name}", end.terms(model), model.log_weights, LIKELY)
            row = yield from end.sums.worst(*words)
            model, shares = end.moved(model, empty, row), [None] * len(end.lots)
            anew = (*anew, (empty, here.round + 1))
        here = Progress(
            end.outside(model), model.weights, here.run, here.round + 1, (*here.bounds, bound),
            anew, best, plan,
        )  # fmt: skip
        if _settled(plan, here):
            break
        if here.round % KEPT == 0:
            yield from compute(f"round {here.round} of run {here.run}", partial(_same, here))
    return here, model


def _same(here: Progress) -> Progress:
    return here


def _settled(plan: Plan, here: Progress) -> bool:
    """Whether the last update changed little, and was an update."""
    if len(here.bounds) < 2 or (here.anew and here.anew[-1][1] >= here.round - 1):
        return False
    return abs(here.bounds[-1] - here.bounds[-2]) < plan.tol


def _passed(
    end: End, model: Model, shares: list[Share | None], fixed: State, name: str
) -> Flow[tuple[Model, float]]:
    """One pass over all rows: of one lot an iteration of EM, of several one step for each.

    Sums of several lots stand about one origin; those of a single one may move with the model.
    """
    lots, total = end.lots, 0.0
    for i, part in enumerate(lots):
        tag = f"em/terms/{name}" + (f"/{i}" if len(lots) > 1 else "")
        result = yield from _expected(end, model, part, tag)
        total += float(result[-1])
        resp = responsibilities(result, end.plan.components, part.stop - part.start)
        origin = model.state if len(lots) == 1 else fixed
        shares[i] = end.share(resp, part, model, origin)
        known = [share for share in shares if share is not None]
        if len(known) == len(lots):
            model = end.maximised(known, model, origin)
    return model, total


def _expected(end: End, model: Model, part: slice, tag: str) -> Flow[Array]:
    then = Normalised(model.log_weights, end.sums.rows.weight[part])
    return (yield from end.sums.compared(tag, end.terms(model), part, LIKELIER, then))


def _agreed(end: End, total: float, size: Array, anew: int, name: str) -> Flow[tuple[float, int]]:
    """The log-likelihood a row, and a component without rows or −1, as the leader sees them."""
    weight = end.sums.rows.weight
    least = EMPTY * weight.sum() / np.count_nonzero(weight)
    lacks = len(size) > 1 and size.min() < least and anew < len(size)
    empty = int(size.argmin()) if lacks else -1
    value = np.array([total / weight.sum(), empty])
    told = yield from end.sums.summation.agree(f"em/agreed/{name}", value, AGREED)
    return float(told[0]), int(told[1])

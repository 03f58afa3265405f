"""The iterations of EM for a mixture whose columns are split over parties: one member's side.

This is the local part, between sums over members: a member's block of every component (block.py)
gives terms of rows, and is updated from sums of rows weighted by responsibilities. training.py has
the roles and what crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow, compute, tell
from fedcircuits.federation.sums.collectives import FINITE, Span, expected
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical.block import BlockState, MixtureBlock, UserValues, added
from fedcircuits.methods.vertical.points import KEPT, PointSpace, begun, lloyd, seeded
from fedcircuits.methods.vertical.rows import RowSums
from fedcircuits.tables.table import Table

SEED_ROUNDS = 20  # of k-means before EM
EMPTY = 1.5  # rows: a component responsible for fewer restarts
LIKELIER = "per row, the log-density of its columns under each component minus that of the last"
LIKELY = "per row, the log-density of its columns under each component"
AGREED = "the log-likelihood, and which component is empty, if any"

Init = Literal["k-means++", "random_from_data"]
BatchSums = tuple[Array, BlockState]  # of a batch: rows of every component, sums of the block


@dataclass(frozen=True, slots=True)
class EMPlan:
    """Settings that are the same at all members of a run."""

    components: int = 1
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_iter: int = 100
    n_init: int = 1
    init: Init = "k-means++"
    batch_size: int | None = None
    leaves: tuple[tuple[str, str], ...] = ()  # families of columns that do not have the default
    hubs: tuple[Neighbourhood, ...] = ()
    seed: int = 0
    rows: RowRule = "tokens"  # how they are matched


@dataclass(frozen=True, slots=True, eq=False)
class EMProgress:
    """A member's state in a run, in the user's units: its start, or where it continues."""

    values: UserValues = ()  # of its columns; absent ones are as for all rows together
    weights: Array | None = None  # (components,); None: equal
    run: int = 0
    round: int = 0
    bounds: tuple[float, ...] = ()  # log-likelihood per row before every update
    restarts: tuple[tuple[int, int], ...] = ()  # components that have restarted, and when
    best: EMProgress | None = None  # of the runs before
    plan: EMPlan | None = None


# ---------------------------------------------------------------------- the half without messages


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """All components as one member knows them: its own block of each, and all weights."""

    state: BlockState
    weights: Array  # (components,)


@dataclass(frozen=True, slots=True, eq=False)
class MixtureMember:
    """One member of a run: the local half of EM."""

    plan: EMPlan
    sums: RowSums
    table: Table  # in the common order
    block: MixtureBlock

    @property
    def batches(self) -> list[slice]:
        """Ranges of rows that are looked at one after the other."""
        total = self.sums.rows.total
        size = self.plan.batch_size or total
        return [slice(a, min(a + size, total)) for a in range(0, total, size)]

    def begun(self, progress: EMProgress) -> Components:
        """From known values; unknown ones are as for all rows together."""
        weights, number = progress.weights, self.plan.components
        equal = np.full(number, 1 / number)
        state = self.block.from_user_units(progress.values)
        return Components(state, equal if weights is None else weights)

    def restarted(self, model: Components, component: int, row: int) -> Components:
        """One component at a row, with as much weight as the others on average."""
        state = self.block.restarted(model.state, component, self.sums.position(row))
        weights = model.weights.copy()
        weights[component] = weights.sum() - weights[component]
        weights[component] /= max(len(weights) - 1, 1)
        return Components(state, weights / weights.sum())

    def batch_sums(
        self, resp: Array, part: slice, model: Components, origin: BlockState
    ) -> BatchSums:
        """What a batch of rows says; resp is (components, rows)."""
        weighted = resp * self.sums.rows.weight[part]
        held = np.ascontiguousarray(self.sums.held(weighted, part))
        rows = self.sums.held_range(part)
        return weighted.sum(axis=1), self.block.statistics(held, model.state, origin, rows)

    def maximised(
        self, batches: Sequence[BatchSums], model: Components, origin: BlockState
    ) -> Components:
        """The components that follow from the sums of all batches."""
        size = np.sum([rows for rows, _ in batches], axis=0)
        total = added([sums for _, sums in batches])
        return Components(self.block.maximise(total, model.state, origin), size / size.sum())


# ---------------------------------------------------------------------- runs


def best_run(local: MixtureMember, start: EMProgress | None) -> Flow[tuple[EMProgress, Components]]:
    """All runs, and the best of them."""
    runs: list[tuple[EMProgress, Components]] = []
    if start is not None and start.best is not None:
        runs.append((start.best, local.begun(start.best)))
    first = 0 if start is None else start.run
    for run in range(first, max(local.plan.n_init, first + 1)):
        if start is not None and run == first:
            progress, model = start, local.begun(start)
        else:
            progress, model = EMProgress(run=run), (yield from _started(local, run))
        best = runs[0][0] if runs else None
        runs.append((yield from _iterated(local, model, progress, best)))
        runs = [max(runs, key=lambda one: one[0].bounds[-1])]
    return runs[0]


def _started(local: MixtureMember, run: int) -> Flow[Components]:
    """A start that is the same at all members."""
    plan, sums, model = local.plan, local.sums, local.begun(EMProgress())
    weight = sums.rows.weight
    rng = np.random.default_rng([plan.seed, 1, run])
    if plan.init == "random_from_data":
        rows = yield from sums.drawn(f"seed/rows/{run}", None, plan.components, rng)
        for k, row in enumerate(rows):
            model = local.restarted(model, k, row)
        return model
    space = PointSpace.of(local.table, weight[sums.rows.at], standardise=True)
    points = space.points(local.table.values)
    seeds = yield from seeded(sums, points, f"{run}", rng)
    start = begun(sums, points, seeds)
    clusters = yield from lloyd(sums, points, start, f"{run}", SEED_ROUNDS, 0.0)
    resp = np.asarray(clusters.labels == np.arange(plan.components)[:, None], np.float64)
    batch = local.batch_sums(resp, sums.everything, model, model.state)
    return local.maximised([batch], model, model.state)


def _iterated(
    local: MixtureMember, model: Components, progress: EMProgress, best: EMProgress | None
) -> Flow[tuple[EMProgress, Components]]:
    """EM until it settles or rounds are over."""
    plan, sums, origin = local.plan, local.sums, model.state
    batches: list[BatchSums | None] = [None] * len(local.batches)
    while progress.round < plan.max_iter:
        name = f"{progress.run}/{progress.round}"
        model, total = yield from _pass(local, model, batches, origin, name)
        size = np.sum([batch[0] for batch in batches if batch is not None], axis=0)
        bound, empty = yield from _agreed(sums, total, size, len(progress.restarts), name)
        restarts = progress.restarts
        if empty >= 0:
            terms = partial(local.block.terms, model.state)
            row = yield from sums.worst(
                f"em/worst/{name}", terms, logarithms(model.weights), LIKELY
            )
            model, batches = local.restarted(model, empty, row), [None] * len(local.batches)
            restarts = (*restarts, (empty, progress.round + 1))
        progress = EMProgress(
            local.block.in_user_units(model.state), model.weights, progress.run,
            progress.round + 1, (*progress.bounds, bound), restarts, best, plan,
        )  # fmt: skip
        yield from tell("em", progress.round, plan.max_iter, bound)
        if settled(plan, progress):
            break
        if progress.round % KEPT == 0:
            step = f"round {progress.round} of run {progress.run}"
            yield from compute(step, partial(replace, progress))  # kept, should the run fail
    return progress, model


def settled(plan: EMPlan, progress: EMProgress) -> bool:
    """Whether the last update changed little, and was an update."""
    bounds, restarts = progress.bounds, progress.restarts
    if len(bounds) < 2 or (restarts and restarts[-1][1] >= progress.round - 1):
        return False
    return abs(bounds[-1] - bounds[-2]) < plan.tol


def _pass(
    local: MixtureMember,
    model: Components,
    batches: list[BatchSums | None],
    fixed: BlockState,
    name: str,
) -> Flow[tuple[Components, float]]:
    """One pass over all rows: an iteration of EM with one batch, a step per batch with several.

    Sums of several batches are about one origin; those of a single one may move with the model.
    """
    ranges, total = local.batches, 0.0
    for i, part in enumerate(ranges):
        tag = f"em/terms/{name}" + (f"/{i}" if len(ranges) > 1 else "")
        result = yield from expected_rows(local, model, part, tag)
        total += float(result[-1])
        resp = responsibilities(result, local.plan.components, part.stop - part.start)
        origin = model.state if len(ranges) == 1 else fixed
        batches[i] = local.batch_sums(resp, part, model, origin)
        known = [batch for batch in batches if batch is not None]
        if len(known) == len(ranges):
            model = local.maximised(known, model, origin)
    return model, total


def expected_rows(local: MixtureMember, model: Components, part: slice, tag: str) -> Flow[Array]:
    """The E-step of a range of rows: K − 1 responsibilities per row, and the log-likelihood."""
    weight, terms = local.sums.rows.weight[part], partial(local.block.terms, model.state)
    size = (local.plan.components - 1) * len(weight)
    check = expected((size + 1,), Span(size, 0, 1), Span(1, -np.inf, FINITE))
    then = partial(normalised, logarithms(model.weights), weight)
    return (yield from local.sums.compared(tag, terms, part, LIKELIER, then, check))


def normalised(log_weights: Array, weight: Array, total: Array) -> Array:
    """From summed differences, K − 1 per row, and the sum of last terms: K − 1 responsibilities
    per row, and the log-likelihood of all rows. ``weight``: of rows."""
    last = log_weights[-1]
    out = np.empty(len(total))
    logits = out[:-1].reshape(-1, len(weight))
    np.add(total[:-1].reshape(logits.shape), (log_weights[:-1] - last)[:, None], out=logits)
    top = logits.max(axis=0, initial=0.0)
    logits -= top
    np.exp(logits, out=logits)
    size = logits.sum(axis=0) + np.exp(-top)
    logits /= size
    top += np.log(size)
    out[-1] = total[-1] + weight @ top + last * weight.sum()
    return out


def responsibilities(result: Array, components: int, rows: int) -> Array:
    """(components, rows), from what ``normalised`` has returned."""
    first = result[:-1].reshape(components - 1, rows)
    return np.vstack([first, np.maximum(1.0 - first.sum(axis=0), 0.0)])


def _agreed(
    sums: RowSums, total: float, size: Array, restarts: int, name: str
) -> Flow[tuple[float, int]]:
    """The log-likelihood per row, and a component without rows or −1, as the leader sees them."""
    weight = sums.rows.weight
    least = EMPTY * weight.sum() / np.count_nonzero(weight)
    lacks = len(size) > 1 and size.min() < least and restarts < len(size)
    value = np.array([total / weight.sum(), size.argmin() if lacks else -1])
    check = expected((2,), Span(1, -np.inf, FINITE), Span(1, -1, len(size) - 1, whole=True))
    bound, empty = yield from sums.collective.agree(f"em/agreed/{name}", value, AGREED, check)
    return float(bound), int(empty)


def logarithms(weights: Array) -> Array:
    return np.log(np.maximum(weights, 1e-300))

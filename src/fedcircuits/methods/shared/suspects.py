"""Parties whose rows make the circuit by sums worse for the others: wrong labels, a different unit,
a sensor that is stuck.

Each party first subtracts its own statistics from the total, and so knows the circuit that the
others would have without it. It tells the coordinator how likely the middle half of its rows is
under that circuit (single rows may be odd at any party), and how many of its columns are constant.
A party that deviates from the others by more than chance, given their number, need not be wrong;
parties may simply be unlike each other. So the others learn once more without it. The party is
named if their held-out rows are then more likely by more than chance. A party that deviates by far,
or has columns that are constant at no other party, is named unless the others' rows are less likely
without it, and if it deviates beyond doubt it is named in any case.

Wrong labels hardly change the likelihood of whole rows. With a target, a party therefore also sends
how much its labels say about its rows under the others' circuit,
log p(x, y) − log p(x) − log p(y), within bounds; how much right labels of the same classes would
say; and log p(y). It is also named if its labels say hardly any of what right ones would, provided
that its labels are less common, or say less than elsewhere by more than chance. Labels of rows that
are merely unlike the others' say more than the same labels shuffled, wrong ones do not: a party is
named only if its labels gain little over shuffled ones, and never if all of them are the same.

    shared/totals        client → sum: expected statistics of its rows for every unit of a node
    shared/fit           client → coordinator: mean and variance of the log-likelihoods of its rows
                         under the others' circuit, from the middle half of them; its number of
                         constant columns; what its labels say, what right ones would say, and the
                         variance of that; mean and variance of log p(y); what its labels gain over
                         shuffled ones, and what right ones would. Nothing about fewer rows than the
                         least count
    shared/suspects      coordinator → client: parties that differ most, at most two
    shared/with/i/t      client → sum: statistics of most of its rows, drawn anew for each of these
    shared/without/i/t   sums; the second without those of suspect i
    shared/…/rows        client → sum: before each of these three, how many rows pass through every
                         unit: statistics are sent only for units with enough rows (units.py)
    shared/effect        client → sum: for every suspect, the gain of the others' held-out rows
                         without it (suspects · 3,)
    shared/effects       first client → coordinator: the totals of these

Two sums over the same rows, with a party and without it, would reveal to all parties what this
party added. So each sum is over a different four fifths of every party's rows: the difference is
the suspect's part plus unknown parts of all others, of about √n rows for n rows in total. A party
draws these rows with its own key, anew in every run: runs with the same draws and different
suspects would reveal exactly what each adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from scipy.special import ndtri

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.direct import JointCounts
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, LEAST_COUNT
from fedcircuits.federation.flow import Flow, broadcast, compute, digest, gather, receive, send
from fedcircuits.federation.messages import FiniteVector, Message, require, require_shape
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.learning.em import EMSchedule, with_pseudo_rows
from fedcircuits.learning.stopping import Mask
from fedcircuits.learning.summed.clusters import Beginning
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.refinement.roles import statistics_problem
from fedcircuits.methods.shared.summing import making
from fedcircuits.methods.shared.training import LearnedTogether
from fedcircuits.methods.shared.units import Units

FEWEST = 4  # parties among which one can stand out
ALARM = 0.01  # chance that any party deviates where all are right
FAR, SURE = 6.0, 12.0  # deviations of a party by far, and beyond doubt
SAID = 3.0  # nats at most that a label counts
LITTLE = 0.25  # of what right labels would say, which wrong ones do not reach
HARDLY = 0.5  # of what right labels would gain over shuffled ones, which wrong ones do not reach
RARE = np.log(2.0)  # nats by which labels are less common than elsewhere: half as common
ODD = 0.1  # of the labels, which may be wrong at any party
DRAWS = 400  # rows by which that is known
CHANCE = 3.0  # deviations of a gain that is no chance
GAIN = 0.05  # nats per row that it is at least
MOST = 2  # suspects
ROUNDS = 2  # of EM without a suspect
ENOUGH = 5  # values of a column that may be constant
ROUNDING = 1e-9  # rows: fewer of a unit are none
SMOOTH = ("gaussian", "multivariate_gaussian")
FLOOR = -1e4  # nats of a row that the circuit finds impossible
DRAWN = 0.8  # of the rows, for sums with and without a suspect
LABELS = 7  # numbers about its labels
FACTS = 4 + LABELS  # that a party tells of how its rows fit
PASSING = "how many of its rows pass through every unit of a node"
TOTALS = "expected statistics of its rows for every unit that enough rows of all pass through"
EFFECT = "the gain in log-likelihood of its held-out rows without a suspect, and their number"


class RowsFit(Message, frozen=True):
    """How well a party's rows fit what the others have learned: mean, variance and number of their
    log-likelihoods, how many columns of reals have one value, what labels say about rows, what
    right ones would and its variance, mean and variance of how likely labels are, and what they
    and right ones gain over shuffled ones."""

    tag: ClassVar[str] = "shared/fit"
    reveals: ClassVar[str] = (
        "the likelihood of its rows under a circuit learned by the others, its number of constant "
        "columns, how well its labels fit its rows and would fit if they were right or shuffled, "
        "and how common its labels are"
    )

    facts: FiniteVector


class Suspects(Message, frozen=True):
    """Parties that stand out."""

    tag: ClassVar[str] = "shared/suspects"
    reveals: ClassVar[str] = "which parties have unusual rows"

    names: tuple[str, ...]


class SuspectEffects(Message, frozen=True):
    """Of every suspect: the others' gain without it, its square, and their rows."""

    tag: ClassVar[str] = "shared/effects"
    reveals: ClassVar[str] = "the gain in log-likelihood of held-out rows without each suspect"

    totals: FiniteVector


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """A member with its rows, and the circuit that all have learned from rows not held out."""

    me: str
    values: Array
    held: Mask
    beginning: Beginning
    plan: EMSchedule
    collective: Collective
    least: int  # rows below which nothing is told of how they fit, or of a unit
    draws: bytes = field(repr=False)
    target: str | None
    program: CircuitProgram
    packed: Packed
    units: Units

    @classmethod
    def of(
        cls,
        me: str,
        values: Array,
        held: Mask,
        learned: LearnedTogether,
        plan: EMSchedule,
        collective: Collective,
        least: int = LEAST_COUNT,
        draws: bytes = b"",
        target: str | None = None,
    ) -> Judge:
        program = CircuitProgram(learned.beginning.circuit)
        packed = program.pack(learned.fitted.parameters)
        about = me, values, held, learned.beginning, plan, collective, least, draws or fresh_key()
        units = Units.of(program, program.counts(torch.from_numpy(values[:0].copy()), packed))
        return cls(*about, target, program, packed, units)

    def statistics(self, packed: Packed, drawn: str = "") -> Array:
        """Of its rows that are not held back, or of some that are drawn by this name."""
        taken = ~self.held
        if drawn:
            seed = int.from_bytes(derived(self.draws, f"rows of {drawn}"))
            taken = taken & (np.random.default_rng(seed).random(len(taken)) < DRAWN)
        return self.program.counts(torch.from_numpy(self.values[taken].copy()), packed).flat()

    def maximised(self, total: Array, packed: Packed) -> Packed:
        shape = self.program.counts(torch.from_numpy(self.values[:0].copy()), packed)
        counts = Counts(0.0, 0.0, tuple(map(_counted, shape.like(total).steps)))
        counts = with_pseudo_rows(self.program, counts, packed, self.plan)
        return self.program.maximise(counts, packed, self.beginning.rules)

    def log_values(self, x: Array, packed: Packed) -> Array:
        logs = self.program.log_values(torch.from_numpy(x.copy()), packed).double().numpy()
        return np.asarray(np.maximum(logs, FLOOR))

    def labels(self, packed: Packed) -> Array:
        """What labels say about rows in the mean, what right labels of the same classes would by
        this circuit, by rows drawn from it, and the variance of that for a row; mean and variance
        of how likely labels are by themselves; what they and right ones gain over shuffled ones."""
        schema = self.beginning.circuit.schema
        if self.target is None or not schema[self.target].size:
            return np.zeros(LABELS)
        at = schema.index(self.target)
        both = self.values[~np.isnan(self.values[:, at])]
        if not len(both):
            return np.zeros(LABELS)
        share = np.bincount(both[:, at].astype(np.int64)) / len(both)
        nothing = torch.full((DRAWS, len(schema)), torch.nan, dtype=torch.float64)
        drawn = self.program.complete(nothing, packed, np.random.default_rng(0))[0]
        right, variance, shuffled = self._right(drawn, at, packed, share)
        classes = np.flatnonzero(share).tolist()
        (said, *others), common = self._said(both, classes, at, packed)
        gained = said.mean() - share[classes] @ np.mean(others, axis=1)
        facts = said.mean(), right, variance, common.mean(), common.var(), gained, right - shuffled
        return np.array(facts)

    def _right(self, drawn: Array, at: int, packed: Packed, share: Array) -> Array:
        """What right labels say about rows drawn from the circuit, in these shares of the classes,
        the variance of that, and what shuffled ones would say."""
        mean, variance, shuffled, classes = 0.0, 0.0, 0.0, np.flatnonzero(share).tolist()
        usual, *others = self._said(drawn, classes, at, packed)[0]
        for k in classes:
            members = drawn[:, at] == k
            if members.any():
                mean += share[k] * usual[members].mean()
                variance += share[k] * usual[members].var()
                told = [other[members].mean() for other in others]
                shuffled += share[k] * (share[classes] @ told)
        return np.array([mean, variance, shuffled])

    def _said(
        self, rows: Array, classes: Sequence[int], at: int, packed: Packed
    ) -> tuple[list[Array], Array]:
        """What labels say about rows, in nats within bounds: those that rows have, then each of the
        classes in their place; and how likely a row's label is by itself."""
        lone = np.full((self.beginning.circuit.schema.variables[at].size, rows.shape[1]), np.nan)
        lone[:, at] = np.arange(len(lone))
        single, own = self.log_values(lone, packed), rows[:, at].astype(np.int64)
        alone = self.log_values(_labelled(rows, at, np.nan), packed)
        every = [(rows, single[own]), *((_labelled(rows, at, k), single[k]) for k in classes)]
        said = [np.clip(self.log_values(x, packed) - alone - by, -SAID, SAID) for x, by in every]
        return said, np.clip(single[own], FLOOR, 0.0)

    def still(self) -> int:
        """How many real columns that are not in histograms have one value at this party."""
        circuit, number = self.beginning.circuit, 0
        for leaf in circuit.leaves():
            for name in leaf.scope if leaf.family in SMOOTH else ():
                x = self.values[:, circuit.schema.index(name)]
                x = x[~np.isnan(x)]
                number += len(x) >= ENOUGH and bool((x == x[0]).all())
        return number

    def without(self, suspects: Sequence[str]) -> Flow[Array]:
        """Totals of gains, their squares and rows, of every suspect."""
        losses = np.zeros((len(suspects), 3))
        for i, suspect in enumerate(suspects):
            with_it = without = self.packed
            for t in range(ROUNDS):
                tag = f"shared/without/{i}/{t}"
                mine = self.statistics(without, tag)
                mine = np.zeros_like(mine) if self.me == suspect else mine
                total, _ = yield from self.sum(tag, mine)
                without = self.maximised(total, without)
                tag = f"shared/with/{i}/{t}"
                total, _ = yield from self.sum(tag, self.statistics(with_it, tag))
                with_it = self.maximised(total, with_it)
            if self.me != suspect and self.held.any():
                held = self.values[self.held]
                gain = self.log_values(held, without) - self.log_values(held, with_it)
                losses[i] = gain.sum(), np.square(gain).sum(), len(gain)
        return (yield from self.added("shared/effect", losses.reshape(-1), EFFECT))

    def sum(self, tag: str, statistics: Array) -> Flow[tuple[Array, Array]]:
        """Totals of units that enough rows of all pass through (units.py), and its own part."""
        rows = yield from self.added(f"{tag}/rows", self.units.rows(statistics), PASSING)
        part = self.units.only(statistics, rows, self.least)
        return (yield from self.added(tag, part, TOTALS)), part

    def added(self, tag: str, numbers: Array, reveals: str) -> Flow[Array]:
        return self.collective.sum(tag, numbers, reveals, check=statistics_problem)


def _labelled(rows: Array, at: int, label: float) -> Array:
    rows = rows.copy()
    rows[:, at] = label
    return rows


def _counted(step: Derivative) -> Derivative:
    """Without rounding errors, which are all that is left of a unit whose rows one party had."""
    if isinstance(step, torch.Tensor):
        return step.clamp_min(0.0)
    if isinstance(step, LeafCounts):
        return LeafCounts(step.sums, torch.where(step.count > ROUNDING, step.count, 0.0))
    if isinstance(step, JointCounts) and "count" in step.sums:
        count = step.sums["count"]
        return JointCounts({**step.sums, "count": torch.where(count > ROUNDING, count, 0.0)})
    return step


def _rest(total: Array, part: Array) -> Array:
    """What others have added: nothing, and no rounding error, where only this party has rows."""
    rest = total - part
    return np.where(np.abs(rest) < ROUNDING, 0.0, rest)


def client(judge: Judge, members: Sequence[str]) -> Flow[None]:
    """A party, which may be a suspect itself."""
    total, part = yield from judge.sum("shared/totals", judge.statistics(judge.packed))

    def fit() -> Array:
        with making("shared/totals", members):
            others = judge.maximised(_rest(total, part), judge.packed)
            logs = judge.log_values(judge.values, others)
        if len(logs) < judge.least:
            return np.zeros(FACTS)
        return np.array([*_middle(logs), len(logs), judge.still(), *judge.labels(others)])

    what = "scoring its rows under a circuit learned by the others"
    facts = yield from compute(what, fit, key=digest(judge.values, total))
    yield from send(COORDINATOR, RowsFit(facts))
    suspects = (yield from receive(COORDINATOR, Suspects)).names
    known = set(suspects) <= set(members) and len(set(suspects)) == len(suspects) <= MOST
    require(known, COORDINATOR, Suspects, "names", f"expected at most {MOST} of the parties")
    if suspects:
        with making("shared/without", members):
            totals = yield from judge.without(suspects)
        if judge.me == members[0]:
            yield from send(COORDINATOR, SuspectEffects(np.array(totals)))


def coordinator(judge: Judge | None, members: Sequence[str], columns: int) -> Flow[tuple[str, ...]]:
    """Notes on parties that make it worse. ``judge``: where the coordinator takes part in sums."""
    if judge is not None:
        nothing = np.zeros_like(judge.statistics(judge.packed))
        yield from judge.sum("shared/totals", nothing)
    fits = {p: f.facts for p, f in (yield from gather(members, RowsFit)).items()}
    for party, facts in fits.items():
        require_shape(facts, (FACTS,), party, RowsFit, "facts")
        sound = bool((facts[[1, 2, 3, 6, 8]] >= 0).all() and (np.abs(facts) < 1e12).all())
        require(sound, party, RowsFit, "facts", "expected mean, variance and number of rows")
    suspects = tuple(outliers := standing_out(fits))
    yield from broadcast(members, Suspects(suspects))
    if not suspects:
        return ()
    if judge is not None:
        yield from judge.without(suspects)
    first = members[0]
    totals = (yield from receive(first, SuspectEffects)).totals
    require_shape(totals, (3 * len(suspects),), first, SuspectEffects, "totals")
    pairs = zip(outliers.items(), totals.reshape(-1, 3), strict=True)
    return tuple(_note(name, out, *effect) for (name, out), effect in pairs if named(out, *effect))


def standing_out(fits: Mapping[str, Array]) -> dict[str, float]:
    """Parties whose rows fit what others have learned worse, or better, than chance allows, whose
    labels say less about them, or which have constant columns; by how many deviations. At most
    ``MOST`` of them, those that deviate most. Parties that reported no rows do not count."""
    fits = {party: facts for party, facts in fits.items() if facts[2] > 0}
    if len(fits) < FEWEST:
        return {}
    facts = np.stack([*fits.values()]).T
    mean, variance, rows, still, said, right, spread, common, varied, gained, gains = facts
    enough = float(ndtri(1 - ALARM / (2 * len(fits))))
    out = np.abs(_away(mean, variance, rows))
    spread = spread + ODD * (1 - ODD) * np.square(2 * gains)
    rare = (common < np.median(common) - RARE) & (_away(common, varied, rows) < -enough)
    wrong = (said < LITTLE * right) & (gained < HARDLY * gains)
    less = [_away(change, spread, rows) < -enough for change in (said - right, gained - gains)]
    wrong &= rare | less[0] | less[1]
    alone = (still > 0) & (np.quantile(still, 0.75) == 0)
    out = np.maximum(out, np.where(wrong, SURE, np.where(alone, FAR, 0.0)))
    order = [i for i in np.argsort(-out, kind="stable") if out[i] > enough]
    return {list(fits)[i]: float(out[i]) for i in order[:MOST]}


def _middle(values: Array) -> tuple[float, float]:
    """Mean of the middle half, and the variance of a normal whose middle half is as wide."""
    low, high = np.quantile(values, [0.25, 0.75])
    inner = values[(values >= low) & (values <= high)]
    return float(inner.mean()), float(((high - low) / 1.349) ** 2)


def _away(mean: Array, variance: Array, rows: Array) -> Array:
    """How far means of parties' rows are from their median, in deviations of what is usual."""
    away = mean - np.median(mean)
    usual = 1.4826 * np.median(np.abs(away))
    chance = np.sqrt(np.maximum(variance, variance.mean()) / np.maximum(rows, 1.0))
    return np.asarray(away / np.maximum(np.maximum(usual, chance), 1e-9))


def named(out: float, gain: float, square: float, rows: float) -> bool:
    """Whether a party that deviates this far is named, given what others gain without it."""
    if rows < 2 or out >= SURE:
        return bool(rows >= 2)
    mean = gain / rows
    spread = np.sqrt(max(square / rows - mean**2, 0.0) / rows)
    if out >= FAR:
        return bool(mean > -max(GAIN, CHANCE * spread))
    return bool(mean > GAIN and mean > CHANCE * spread)


def _note(party: str, out: float, gain: float, square: float, rows: float) -> str:
    return (
        f"{party} differs from the other parties, by {out:.1f} standard deviations: without it, "
        f"{rows:.0f} held-out rows of the others gain {gain / max(rows, 1.0):.2f} nats per row. "
        "Check its labels, units and constant columns, or leave it out: federation.select(…)"
    )

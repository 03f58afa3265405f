"""EM of one circuit that all parties have, on rows that stay with them: expected statistics are
added up, and every party makes the same M-step. Up to rounding, this is EM on all rows in one place
(learning/em.py).

In round t a party adds, and all learn the total of:

    shared/rows/t     log-likelihood of its possible rows, number of impossible ones, number of
                      rows (3,); the same for its held-out rows (3,); the expected number of its
                      rows that pass through every unit (units,)
    shared/counts/t   its number of rows (1,); expected statistics of its rows for every sum and
                      leaf, for units with enough rows of all parties (size,)

Held-out rows are scored before the first M-step and after every one, and EM returns the parameters
that were best on them. The last rounds before these may then be repeated on all rows: more rounds
would overfit.

For leaves with many ordered levels, such as grey levels, the rounds add up a few ranges of levels
(leaves/ranges.py): sums are ten times smaller and reveal no single level. Inside a range, levels
are as common as in all columns together. One more round, ``levels``, adds up every level. Held-out
rows determine how far leaves are then smoothed towards their ranges, unless the user has set it:

    shared/smoothing  log-likelihoods of the held-out rows, as above (smoothings, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.lookup import LookupStep
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.leaves import Categorical
from fedcircuits.errors import TableError
from fedcircuits.federation.flow import Flow, tell
from fedcircuits.learning.em import EMSchedule, Fitted, in_one_scale, with_pseudo_rows
from fedcircuits.learning.stopping import Mask, mean_likelihood
from fedcircuits.learning.summed.clusters import Beginning
from fedcircuits.methods.refinement.roles import NATS, statistics_problem
from fedcircuits.methods.refinement.rows import are_counts
from fedcircuits.methods.shared.summing import SummedRows
from fedcircuits.methods.shared.units import Units

ROWS = "log-likelihood and number of its rows, and how many pass through every unit of a node"
COUNTS = "expected statistics of its rows for every unit that enough rows of all pass through"
JUDGED = "log-likelihoods of its rows held back, for several smoothings, and their number"
HEAD = 6  # numbers before those of units
AGAIN = 3  # rounds at most that are made again from all rows
SCALE = 2.0**12  # as which they are added: sums on shares have a fixed point
TIMES = (12.5, 35.0, 100.0, 280.0, 800.0)  # pseudo-rows like ranges, for one like the column


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one party: some to learn from, some held out."""

    learned: torch.Tensor  # (rows, columns)
    held: torch.Tensor

    @classmethod
    def of(cls, values: Array, held: Mask) -> OwnRows:
        return cls(torch.from_numpy(values[~held].copy()), torch.from_numpy(values[held].copy()))


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """The result of EM, and from where the last rounds up to it began."""

    fitted: Fitted
    before: Parameters
    number: int  # of rounds from there
    rules: Rules | None = None  # bounds of leaves, as rows held back have chosen them


def em_by_sums(
    rows: SummedRows, held: Mask, beginning: Beginning, plan: EMSchedule
) -> Flow[Rounds]:
    """``held``: which of a member's rows are held out."""
    program, held_rows = CircuitProgram(beginning.circuit), OwnRows.of(rows.values, held)
    start, scale = beginning.start, beginning.scale
    packed = program.pack(start) if scale is None else in_one_scale(program, start, scale)
    ranges = InRanges.of(program, beginning.rules)
    sums = _Sums.of(program, packed, held_rows, ranges)
    history: list[float] = []
    scores: list[float] = []
    best, converged = [packed], False  # the best parameters, after those of rounds before
    recent = [packed]
    while True:
        name = f"{len(history)}"
        statistics, total = yield from sums.passing(rows, packed, name)
        history.append(mean_likelihood(*total[:3]))
        yield from tell("shared", len(history) - 1, plan.epochs, history[-1])
        if total[5] >= 0.5:
            scores.append(mean_likelihood(*total[3:HEAD]))
            best = recent if scores[-1] >= max(scores) else best
            converged = plan.stopping.ends(scores)
        else:
            best = recent
            converged = len(history) > 1 and history[-1] - history[-2] < plan.tolerance
        if converged or len(history) > plan.epochs:
            break
        counts = yield from sums.counts(rows, statistics, total, name)
        with rows.making(f"shared/counts/{name}"):
            counts = with_pseudo_rows(program, ranges.fine(counts), packed, plan)
            packed = program.maximise(counts, packed, ranges.drawing(None))
            recent = [*recent, packed][-1 - AGAIN :]
    learned, rules = best[-1], beginning.rules
    if ranges:
        last = LastRound(program, learned, held_rows, ranges, plan)
        learned, rules = yield from last.learned(rows, history, scores)
    fitted = Fitted(program.unpack(learned), tuple(history), tuple(scores), converged)
    return Rounds(fitted, program.unpack(best[0]), len(best) - 1, rules)


@dataclass(frozen=True, slots=True, eq=False)
class LastRound:
    """Counts of all levels, once, after rounds by ranges."""

    program: CircuitProgram
    packed: Packed
    rows: OwnRows
    ranges: InRanges
    plan: EMSchedule

    def learned(
        self, rows: SummedRows, history: list[float], scores: list[float]
    ) -> Flow[tuple[Packed, Rules | None]]:
        """Parameters and bounds of leaves; what they are worth is added to the lists."""
        name, times = "levels", self.ranges.times
        sums = _Sums.of(self.program, self.packed, self.rows, InRanges({}, {}))
        statistics, total = yield from sums.passing(rows, self.packed, name)
        history.append(mean_likelihood(*total[:3]))
        counts = yield from sums.counts(rows, statistics, total, name)
        counts = with_pseudo_rows(self.program, counts, self.packed, self.plan)
        if total[5] >= 0.5:
            tried = TIMES if self.plan.ranges is None else (times,)

            def judged() -> Array:
                made = (self._maximised(counts, each) for each in tried)
                likely = [_likelihood(self.program, each, self.rows.held) for each in made]
                return SCALE * np.stack(likely)

            sum_of = yield from rows.sum("shared/smoothing", judged, JUDGED, statistics_problem)
            likely = [mean_likelihood(*each) for each in sum_of / SCALE]
            times = tried[int(np.argmax(likely))]
            scores.append(max(likely))
        with rows.making(f"shared/counts/{name}"):
            return self._maximised(counts, times), self.ranges.drawing(times)

    def _maximised(self, counts: Counts, times: float) -> Packed:
        return self.program.maximise(counts, self.packed, self.ranges.drawing(times))


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """What is added up in a round: first how many rows pass through units, then their counts."""

    program: CircuitProgram
    held: OwnRows
    ranges: InRanges
    shape: Counts
    units: Units
    sound: SoundStatistics

    @classmethod
    def of(cls, program: CircuitProgram, packed: Packed, held: OwnRows, ranges: InRanges) -> _Sums:
        shape = ranges.coarse(program.counts(held.learned[:0], packed))
        sound = SoundStatistics(are_counts(shape), program)
        return cls(program, held, ranges, shape, Units.of(program, shape), sound)

    def passing(self, rows: SummedRows, packed: Packed, name: str) -> Flow[tuple[Array, Array]]:
        """What this member counts, and the first total."""
        work = _Statistics(self.program, packed, self.held, self.ranges)
        statistics = yield from rows.counted(f"shared/counts/{name}", work)
        passing = np.concatenate([statistics[:HEAD], self.units.rows(statistics[HEAD:])])
        total = yield from rows.add(f"shared/rows/{name}", passing, ROWS, self.sound.of_rows)
        if total[2] < 0.5 * SCALE:
            raise TableError("no row has an observed value to learn from")
        return statistics, total / SCALE

    def counts(self, rows: SummedRows, statistics: Array, total: Array, name: str) -> Flow[Counts]:
        known = self.units.only(statistics[HEAD:], total[HEAD:], rows.least)
        sent = np.append(statistics[2], known)
        summed = yield from rows.add(f"shared/counts/{name}", sent, COUNTS, self.sound.problem)
        return self.shape.like(summed[1:] / SCALE)


@dataclass(frozen=True, slots=True, eq=False)
class _Statistics:
    """What a party adds in one round."""

    program: CircuitProgram
    packed: Packed
    rows: OwnRows
    ranges: InRanges

    def __call__(self) -> Array:
        counts = self.program.counts(self.rows.learned, self.packed)
        likely = np.array([counts.log_likelihood, 0.0, len(self.rows.learned)])
        if not np.isfinite(counts.log_likelihood):
            likely = _likelihood(self.program, self.packed, self.rows.learned)
        held = _likelihood(self.program, self.packed, self.rows.held)
        return SCALE * np.concatenate([likely, held, self.ranges.coarse(counts).flat()])


def _likelihood(program: CircuitProgram, packed: Packed, x: torch.Tensor) -> Array:
    logs = program.log_values(x, packed).numpy()
    possible = np.isfinite(logs)
    return np.array([logs[possible].sum(), (~possible).sum(), len(logs)], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class SoundStatistics:
    """What statistics of some parties' rows must be like, by the number of rows in them."""

    counted: Mask  # (size,) which are expected numbers of rows
    program: CircuitProgram

    def of_rows(self, values: Array) -> str:
        if problem := statistics_problem(values):
            return problem
        likely, impossible, rows = values[:HEAD].reshape(2, 3).T / SCALE  # learned from, held out
        slack, columns = _slack(rows.sum()), len(self.program.circuit.schema)
        counts = np.concatenate([rows, impossible, values[HEAD:] / SCALE])
        if not ((counts >= -slack) & (counts <= rows.sum() + slack)).all():
            return "expected counts of no more rows than there are"
        if not (likely <= NATS * columns * (rows + slack)).all():
            return "expected log-likelihoods of so many rows"
        return ""

    def problem(self, values: Array) -> str:
        if problem := statistics_problem(values):
            return problem
        rows, slack = values[0] / SCALE, _slack(values[0] / SCALE)
        counts = np.append(rows, values[1:][self.counted] / SCALE)
        fits = bool(((counts >= -slack) & (counts <= rows + slack)).all())
        return "" if fits else "expected counts of no more rows than there are"


def _slack(rows: float) -> float:
    """Sums on shares are rounded."""
    return 0.01 * abs(rows) + 1.0


# ---------------------------------------------------------------------- ranges of levels


@dataclass(frozen=True, slots=True, eq=False)
class InRanges:
    """``steps``: by their number, how levels lie in ranges, and ranges in levels."""

    rules: Rules
    steps: dict[int, tuple[Array, Array]]  # (ranges, levels) each

    @classmethod
    def of(cls, program: CircuitProgram, rules: Rules | None) -> InRanges:
        rule = (rules or {}).get(Categorical.name)
        ranges = rule.ranges if isinstance(rule, Categorical) else None
        steps = {}
        for i, step in enumerate(program.steps):
            if ranges and ranges.times and isinstance(step, LookupStep):
                if step.rule.name == Categorical.name and ranges.names.issuperset(step.names):
                    steps[i] = ranges.member(step.levels)
        return cls(rules or {}, steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def coarse(self, counts: Counts) -> Counts:
        """What is added up."""
        return self._each(counts, lambda member: member[0])

    def fine(self, counts: Counts) -> Counts:
        """What the sums say about levels."""
        return self._each(counts, lambda member: member[1].T)

    def drawing(self, times: float | None) -> Rules | None:
        """The bounds of leaves that are drawn to their ranges so far; None: not at all."""
        rule = self.rules.get(Categorical.name)
        if not self or not isinstance(rule, Categorical) or rule.ranges is None:
            return self.rules or None
        ranges = None if times is None else replace(rule.ranges, times=times)
        return {**self.rules, Categorical.name: replace(rule, ranges=ranges)}

    @property
    def times(self) -> float:
        rule = self.rules.get(Categorical.name)
        return rule.ranges.times if isinstance(rule, Categorical) and rule.ranges else 0.0

    def _each(self, counts: Counts, matrix: Callable[[tuple[Array, Array]], Array]) -> Counts:
        steps: list[Derivative] = list(counts.steps)
        for i, member in self.steps.items():
            step = steps[i]
            assert isinstance(step, LeafCounts)
            factor = torch.from_numpy(np.ascontiguousarray(matrix(member)))
            steps[i] = LeafCounts(factor @ step.sums, step.count)
        return replace(counts, steps=tuple(steps))

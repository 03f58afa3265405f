"""EM of one circuit that all parties have, on rows that each keeps: expected statistics add up, and
everybody makes the same M-step. It is EM on all rows in one place (learning/em.py), to rounding.

What a party adds in round t, and all learn the total of:

    shared/rows/t     log-likelihood of its possible rows, number of impossible ones, number of
                      rows (3,); the same of the rows that it holds back (3,); how many of its rows
                      pass through every unit, in expectation (units,)
    shared/counts/t   its number of rows (1,); expected statistics of its rows for every sum and
                      leaf, of units with enough rows of all parties (size,)

Rows held back are judged before the first M-step and after every one, and EM ends with the
parameters that were best on them. The last rounds before these may then be made again from all
rows: more rounds than were best would fit the rows too closely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import TableError
from fedcircuits.federation.flow import Flow
from fedcircuits.learning.em import EMSchedule, Fitted, in_one_scale, with_pseudo_rows
from fedcircuits.learning.stopping import Mask, mean_likelihood
from fedcircuits.learning.summed.clusters import Beginning
from fedcircuits.methods.refinement.roles import NATS, statistics_problem
from fedcircuits.methods.refinement.rows import are_counts
from fedcircuits.methods.shared.summing import SummedRows
from fedcircuits.methods.shared.units import Units

ROWS = "log-likelihood and number of its rows, and how many pass through every unit of a node"
COUNTS = "expected statistics of its rows for every unit that enough rows of all pass through"
HEAD = 6  # numbers before those of units
AGAIN = 3  # rounds at most that are made again from all rows
SCALE = 2.0**12  # as which they are added: sums on shares have a fixed point


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one party: some to learn from, some held back."""

    learned: torch.Tensor  # (rows, columns)
    held: torch.Tensor

    @classmethod
    def of(cls, values: Array, held: Mask) -> OwnRows:
        return cls(torch.from_numpy(values[~held].copy()), torch.from_numpy(values[held].copy()))


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """What EM has found, and from where the last rounds up to it began."""

    fitted: Fitted
    before: Parameters
    number: int  # of rounds from there


def em_by_sums(
    rows: SummedRows, held: Mask, beginning: Beginning, plan: EMSchedule
) -> Flow[Rounds]:
    """``held``: which of a member's rows are held back."""
    program, held_rows = CircuitProgram(beginning.circuit), OwnRows.of(rows.values, held)
    start, scale = beginning.start, beginning.scale
    packed = program.pack(start) if scale is None else in_one_scale(program, start, scale)
    shape = program.counts(held_rows.learned[:0], packed)
    units, sound = Units.of(program, shape), SoundStatistics(are_counts(shape), program)
    history: list[float] = []
    scores: list[float] = []
    best, converged = [packed], False  # the best parameters, after those of rounds before
    recent = [packed]
    while True:
        t, work = len(history), _Statistics(program, packed, held_rows)
        own = yield from rows.counted(f"shared/counts/{t}", work)
        passing = np.concatenate([own[:HEAD], units.rows(own[HEAD:])])
        total = (yield from rows.add(f"shared/rows/{t}", passing, ROWS, sound.of_rows)) / SCALE
        if total[2] < 0.5:
            raise TableError("no row has a value to learn from")
        history.append(mean_likelihood(*total[:3]))
        if total[5] >= 0.5:
            scores.append(mean_likelihood(*total[3:HEAD]))
            best = recent if scores[-1] >= max(scores) else best
            converged = plan.stopping.ends(scores)
        else:
            best = recent
            converged = len(history) > 1 and history[-1] - history[-2] < plan.tolerance
        if converged or len(history) > plan.epochs:
            learned = program.unpack(best[-1])
            fitted = Fitted(learned, tuple(history), tuple(scores), converged)
            return Rounds(fitted, program.unpack(best[0]), len(best) - 1)
        told = np.append(own[2], units.only(own[HEAD:], total[HEAD:], rows.least))
        tag = f"shared/counts/{t}"
        summed = (yield from rows.add(tag, told, COUNTS, sound.problem)) / SCALE
        with rows.making(tag):
            counts = with_pseudo_rows(program, shape.like(summed[1:]), packed, plan)
            packed = program.maximise(counts, packed, beginning.rules)
            recent = [*recent, packed][-1 - AGAIN :]


@dataclass(frozen=True, slots=True, eq=False)
class _Statistics:
    """What a party adds in one round."""

    program: CircuitProgram
    packed: Packed
    rows: OwnRows

    def __call__(self) -> Array:
        counts = self.program.counts(self.rows.learned, self.packed)
        likely = np.array([counts.log_likelihood, 0.0, len(self.rows.learned)])
        if not np.isfinite(counts.log_likelihood):
            likely = _likelihood(self.program, self.packed, self.rows.learned)
        held = _likelihood(self.program, self.packed, self.rows.held)
        return SCALE * np.concatenate([likely, held, counts.flat()])


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
        likely, impossible, rows = values[:HEAD].reshape(2, 3).T / SCALE  # learned from, held back
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

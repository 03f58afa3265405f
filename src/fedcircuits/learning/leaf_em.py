"""A leaf in EM across parties: expected statistics of rows by their posteriors, and its M-step.

Gaussians are standardised by the mean and deviation of all rows of the party that holds the leaf.
Variances are bounded relative to these deviations, or by their starting values where these are
smaller, so that no step has to raise them. The holder's rows are a prior of every M-step with the
weight of ``behind`` rows: a leaf may be narrow or lack a category, but it cannot become a spike or
make a category impossible.

Steps are damped. EM has no memory: after a step, a unit depends only on the rows that reach it,
even if that is a thousandth of one row. A few outlying rows are soon covered by narrow Gaussians,
one each; a broad Gaussian that had covered them all is then hardly reached, and plain EM would
estimate it from almost nothing, so that new outlying rows would be almost impossible. A unit of a
leaf or sum that m rows reach therefore moves only part of the way to its maximum,

    now + m / (m + n) · (maximum − now), in all its parameters,

as if n = ``damping`` rows distributed as it expects were added. A unit that hundreds of rows reach
hardly changes by this; one that almost none reach stays as it is. The likelihood never decreases,
as in EM: on the straight line to its maximum the expected likelihood of a unit increases
monotonically, for weights, probabilities, rates and natural parameters because it is concave, for
the mean and (co)variance of normal distributions by its derivative. With w the remaining part of
the line, Δ the distance of the means, v = v* + w d and r = v* + w² Δ²,

    d/dw (log v + r / v) = w (d² + Δ² (v + v*)) / v² ≥ 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.evaluation.counts import Counts
from fedcircuits.circuits.evaluation.direct import JointCounts, JointStep
from fedcircuits.circuits.evaluation.inner_nodes import OuterSumStep, SumStep
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafStep, LeafValues
from fedcircuits.circuits.evaluation.lookup import LookupValues
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.evaluation.statistics import Frame
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.circuits.leaves.gaussian import Gaussian
from fedcircuits.tables.table import Table

NOTHING = 1e-12  # posteriors below it are left out
SAMPLE = 100  # rows behind every M-step
LEAST = 1e-4  # variance of a Gaussian, relative to that of all rows


@dataclass(frozen=True, slots=True)
class MStep:
    """How far leaves go: the weight of the holder's rows behind every step, the number of rows that
    takes a unit half of its way, and the least that move it at all."""

    behind: float = 1.0
    damping: float = 5.0
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and deviation of every column; 0 and 1 of one that has no values or one value."""

    names: tuple[str, ...]
    mean: Array
    deviation: Array

    @classmethod
    def of(cls, table: Table) -> Moments:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
            mean, deviation = np.nanmean(table.values, axis=0), np.nanstd(table.values, axis=0)
        return cls(table.names, np.nan_to_num(mean), np.where(deviation > 0, deviation, 1.0))

    def select(self, names: Sequence[str]) -> Moments:
        at = [self.names.index(n) for n in names]
        return Moments(tuple(names), self.mean[at], self.deviation[at])


class EMLeaf:
    """One leaf, folded for EM on some rows. ``every``: all rows of the party that holds it, at that
    party; ``moments``: of these, wherever it is."""

    def __init__(
        self,
        learned: tuple[Circuit, Parameters],
        rows: Table,
        moments: Moments,
        every: Table | None,
        step: MStep,
        moving: Collection[str] | None = None,
    ) -> None:
        """``moving``: the families of leaves that steps change, and nothing else; by default
        everything."""
        self.circuit, values = inline(*learned)
        leaves = {leaf.name for leaf in self.circuit.leaves() if leaf.family in (moving or ())}
        self.still = frozenset() if moving is None else self.circuit.by_name.keys() - leaves
        self.program, self.step = CircuitProgram(self.circuit), step
        names = self.circuit.schema.names
        self.x = torch.from_numpy(np.array(rows.select(names).values))
        self.behind = None
        if every is not None:
            stride = max(1, len(every) // SAMPLE)
            self.behind = torch.from_numpy(np.array(every.select(names).values[::stride]))
        scale = moments.select(names)
        self.packed = _in_frames(self.program, values, scale)
        self.rules = {"gaussian": Gaussian(_least_variance(self.circuit, values, scale), np.inf)}

    def log_values(self) -> Array:
        return np.asarray(self.program.log_values(self.x, self.packed).numpy())

    def counts(self, posterior: Array) -> Counts:
        """Expected statistics of the rows, and at the holder of those behind them."""
        likely = posterior > NOTHING
        weight = torch.from_numpy(posterior[likely])
        counts = self.program.counts(self.x[torch.from_numpy(likely)], self.packed, weight)
        if self.behind is None:
            return counts
        share = self.step.behind / len(self.behind)
        weight = torch.full((len(self.behind),), share, dtype=torch.float64)
        return counts.add(self.program.counts(self.behind, self.packed, weight))

    def no_counts(self) -> Counts:
        return self.program.counts(self.x[:0], self.packed)

    def maximise(self, counts: Counts) -> None:
        maximum = self.program.maximise(counts, self.packed, self.rules)
        rows, least, now = self.step.damping, self.step.least, self.packed
        least += self.step.behind if least > 0 and self.behind is not None else 0.0
        self.packed = damped(self.program, counts, now, maximum, rows, self.still, least)

    def learned(self) -> tuple[Circuit, Parameters]:
        return self.circuit, self.program.unpack(self.packed)


def _least_variance(circuit: Circuit, values: Parameters, moments: Moments) -> float:
    """The least variance, relative to that of all rows."""
    least = LEAST
    for leaf in circuit.leaves():
        if leaf.family == "gaussian":
            deviation = moments.select(leaf.scope).deviation
            least = min(least, float((values[leaf.name]["variance"] / deviation**2).min()))
    return least


def _in_frames(program: CircuitProgram, values: Parameters, moments: Moments) -> Packed:
    """Packed so that bounds of variances count in the deviations of all rows."""
    frames = {}
    for key in program.columns.frames(program.circuit, values):
        at = list(program.columns.cells[key].variables)
        frames[key] = Frame(moments.mean[at], moments.deviation[at])
    return Packed(frames, tuple(s.pack(values, frames, program.dtype) for s in program.steps))


# ---------------------------------------------------------------------- damped steps


def damped(
    program: CircuitProgram,
    counts: Counts,
    now: Packed,
    maximum: Packed,
    rows: float,
    still: Collection[str] = (),
    least: float = 0.0,
) -> Packed:
    """From ``now`` towards the maximum of these expected statistics; ``rows``: the n above;
    ``still``: nodes that stay as they are, as do units that fewer than ``least`` rows reach."""
    old, new = program.unpack(now), program.unpack(maximum)
    mixed: dict[str, Arrays] = {}
    for name, reach in rows_reaching(program, counts, now).items():
        moves = (reach > 0) & (reach >= least) & (name not in still)
        way = np.divide(reach, reach + rows, out=np.zeros_like(reach), where=moves)
        mixed[name] = {k: _between(old[name][k], new[name][k], way) for k in new[name]}
    values = Parameters(mixed)
    steps = (s.pack(values, now.frames, program.dtype) for s in program.steps)
    return Packed(now.frames, tuple(steps))


def _between(old: Array, new: Array, way: Array) -> Array:
    """What the family fixes stays to the last bit."""
    way = way.reshape(*way.shape, *[1] * (new.ndim - way.ndim))
    return np.where(new == old, old, (1 - way) * old + way * new)


def rows_reaching(program: CircuitProgram, counts: Counts, packed: Packed) -> dict[str, Array]:
    """How many rows reach every unit of leaves and sums: (units,), of leaves (units, variables),
    where a row counts that has the variable."""
    reach: dict[str, Array] = {}
    for step, flow, values in zip(program.steps, counts.steps, packed.values, strict=True):
        if isinstance(step, SumStep | OuterSumStep):
            assert flow is not None and not isinstance(flow, LeafCounts | JointCounts)
            totals = flow.double().sum(2).numpy()  # (folds, units)
            reach |= dict(zip(step.names, totals, strict=True))
        elif isinstance(step, LeafStep):
            assert isinstance(flow, LeafCounts)
            assert isinstance(values, LeafValues | LookupValues)
            for part in values.parts:
                rows, at = flow.count[part.pairs].double().numpy(), 0  # (pairs, units)
                for name, width in part.leaves:
                    reach[name] = rows[at : at + width].T
                    at += width
        elif isinstance(step, JointStep):
            assert isinstance(flow, JointCounts)
            reach[step.name] = flow.sums["count"].double().numpy()
    return reach

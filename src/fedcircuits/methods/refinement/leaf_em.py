"""A leaf in EM across parties: expected statistics of rows by their posteriors, and the M-step.

Gaussians are seen in the mean and deviation of all rows of the party that holds the leaf. Variances
are bounded in these deviations, or by those it begins with where these are smaller, so that no step
has to raise them. The holder's rows stand behind every M-step with the weight of ``BEHIND`` rows: a
leaf may be narrow or lack a category, not be a spike or call it impossible.

Rows far out are few, and narrow Gaussians soon take them one by one. A broad one that has covered
them all is then reached by a thousandth of a row, and plain EM would make it anew from that: new
rows far out would be next to impossible. So units go as far as rows justify (caution.py), as if
``CAUTION`` rows that look as they expect came with those that reach them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram, Counts, Packed
from fedcircuits.circuits.evaluation.statistics import Frame
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.learning.damping import cautious
from fedcircuits.leaves.gaussian import Gaussian
from fedcircuits.tables.table import Table

NOTHING = 1e-12  # posteriors below it are left out
BEHIND, SAMPLE = 1.0, 100  # weight and number of the rows behind every M-step
CAUTION = 5.0  # rows: a unit that so many reach goes half of its way
LEAST = 1e-4  # variance of a Gaussian, relative to that of all rows


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
    """One leaf, folded for EM on some rows. ``whole``: all rows of the party that holds it, at that
    party; ``moments``: of these, wherever it is."""

    def __init__(
        self,
        learned: tuple[Circuit, Parameters],
        rows: Table,
        moments: Moments,
        whole: Table | None,
    ) -> None:
        self.circuit, values = inline(*learned)
        self.program = CircuitProgram(self.circuit)
        names = self.circuit.schema.names
        self.x = torch.from_numpy(np.array(rows.select(names).values))
        step = 1 if whole is None else max(1, len(whole) // SAMPLE)
        behind = None if whole is None else np.array(whole.select(names).values[::step])
        self.behind = None if behind is None else torch.from_numpy(behind)
        own = moments.select(names)
        self.packed = _in_frames(self.program, values, own)
        self.rules = {"gaussian": Gaussian(_least(self.circuit, values, own), np.inf)}

    def log_values(self) -> Array:
        return np.asarray(self.program.log_values(self.x, self.packed).numpy())

    def counts(self, posterior: Array) -> Counts:
        """Expected statistics of the rows, and at the holder of those behind them."""
        likely = posterior > NOTHING
        weight = torch.from_numpy(posterior[likely])
        found = self.program.counts(self.x[torch.from_numpy(likely)], self.packed, weight)
        if self.behind is None:
            return found
        share = torch.full((len(self.behind),), BEHIND / len(self.behind), dtype=torch.float64)
        return found.add(self.program.counts(self.behind, self.packed, share))

    def nothing(self) -> Counts:
        """Counts of no rows."""
        return self.program.counts(self.x[:0], self.packed)

    def maximise(self, counts: Counts) -> None:
        maximum = self.program.maximise(counts, self.packed, self.rules)
        self.packed = cautious(self.program, counts, self.packed, maximum, CAUTION)

    def learned(self) -> tuple[Circuit, Parameters]:
        return self.circuit, self.program.unpack(self.packed)


def _least(circuit: Circuit, values: Parameters, moments: Moments) -> float:
    """The least variance in the deviations of all rows."""
    found = LEAST
    for leaf in circuit.leaves():
        if leaf.family == "gaussian":
            deviation = moments.select(leaf.scope).deviation
            found = min(found, float((values[leaf.name]["variance"] / deviation**2).min()))
    return found


def _in_frames(program: CircuitProgram, values: Parameters, moments: Moments) -> Packed:
    """Packed so that bounds of variances count in the deviations of all rows."""
    frames = {}
    for key in program.columns.frames(program.circuit, values):
        at = list(program.columns.cells[key].variables)
        frames[key] = Frame(moments.mean[at], moments.deviation[at])
    return Packed(frames, tuple(s.pack(values, frames, program.dtype) for s in program.steps))

"""Rows that are asked about again and again beside evidence that changes.

A leaf without a column of the evidence gives a row the same value every time, so such leaves are
evaluated once. The rows have one column each, and evidence is added to them: values of further
columns, or regions. What is known of a step's values in advance takes the place of its evaluation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.direct import DirectStep, JointStep, JointValues
from fedcircuits.circuits.evaluation.leaves import LeafValues
from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import Regions
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import Distribution

LARGEST = 1 << 23  # values of all nodes for all rows, above which batches are better
Index = npt.NDArray[np.integer]
Leaves = DirectStep | JointStep


class FixedRows:
    """Rows (rows, columns) of one distribution: the first is empty, others have one column each."""

    def __init__(self, distribution: Distribution, rows: Array) -> None:
        self.distribution, self.rows = distribution, rows
        self.program = distribution.program
        steps = enumerate(self.program.steps)
        self.steps = {i: s for i, s in steps if isinstance(s, Leaves)}
        self.columns = {i: step.columns for i, step in self.steps.items()}
        known = ~np.isnan(rows)
        self.holds: dict[int, npt.NDArray[np.bool_]] = {
            i: np.asarray(known[:, sorted(numbers)].any(axis=1))
            for i, numbers in self.columns.items()
        }
        packed = distribution.packed
        inputs = self.program.read(distribution._tensor(rows), packed)
        self.values = {i: self._evaluated(i, packed, inputs) for i in self.steps}

    @staticmethod
    def suits(distribution: object, rows: Array) -> bool:
        """Whether rows can be kept: a circuit in one place, of values that fit into memory."""
        return (
            isinstance(distribution, Distribution)
            and len(rows) * distribution.program.layout.rows <= LARGEST
        )

    def log_values(self, which: Index, x: Array, regions: Regions) -> Array:
        """log p(row, x, regions) of the first row and others, which leave columns of both open."""
        rows = self.rows[which].copy()
        seen = np.flatnonzero(~np.isnan(x[0]))
        rows[:, seen] = x[:, seen]
        packed = self.program.restrict(self.distribution.packed, regions)
        inputs = self.program.read(self.distribution._tensor(rows), packed)
        packed = self._known(which, {*seen.tolist(), *regions}, packed, inputs)
        log_values = self.program.log_values_of(inputs, packed)
        return np.asarray(log_values.double().numpy())

    def _known(self, which: Index, touched: set[int], packed: Packed, inputs: Inputs) -> Packed:
        """Parameters with the values of all leaves: those that evidence does not touch have them
        already, others are asked about the rows that have a column of theirs."""
        values = list(packed.values)
        for i, columns in self.columns.items():
            if columns & touched:
                known = self._touched(i, which, packed, inputs)
            else:
                known = self.values[i][:, which]
            old = values[i]
            assert isinstance(old, LeafValues | JointValues)
            values[i] = replace(old, known=known)
        return Packed(packed.frames, tuple(values), packed.within)

    def _touched(self, step: int, which: Index, packed: Packed, inputs: Inputs) -> Tensor:
        """Log-values (units, rows) of leaves: rows without their columns are like the first."""
        touched = np.flatnonzero(self.holds[step][which])
        some = torch.from_numpy(np.concatenate([[0], touched]))
        few = self._evaluated(step, packed, inputs.values(some))
        place = np.zeros(len(which), np.int64)
        place[touched] = np.arange(1, len(some))
        return few[:, torch.from_numpy(place)]

    def _evaluated(self, step: int, packed: Packed, inputs: Inputs) -> Tensor:
        """Log-values (folds · units, rows) of the leaves of a step."""
        values, rule = packed.values[step], self.steps[step]
        if isinstance(rule, DirectStep):
            assert isinstance(values, LeafValues)
            return rule.values(values, inputs, self.program.dtype)
        assert isinstance(values, JointValues)
        return rule.values(values, inputs, self.program.dtype, frozenset())

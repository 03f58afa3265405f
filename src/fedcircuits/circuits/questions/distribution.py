"""A circuit with its parameters on this machine, ready for queries (queryable.py).

``FixedRows`` are rows that are queried repeatedly with changing evidence. A leaf without a column
of the evidence gives a row the same value every time, so such leaves are evaluated once. The rows
have one column each, and evidence is added to them: values of further columns, or regions. Values
of a step that are known in advance replace its evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.devices import CPU
from fedcircuits.circuits.evaluation.direct import DirectStep, JointStep, JointValues
from fedcircuits.circuits.evaluation.leaves import LeafValues
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import (
    Array,
    Arrays,
    Family,
    JointFamily,
    Region,
    family,
)
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.questions.queryable import Queryable, Regions, around, askable


class Distribution(Queryable):
    """``Distribution(circuit, parameters).log_likelihood(x)``: questions in numbers."""

    def __init__(
        self,
        circuit: Circuit,
        parameters: Parameters,
        dtype: torch.dtype = torch.float64,
        device: torch.device = CPU,
    ) -> None:
        self.circuit, self.parameters = askable(circuit, parameters)
        self.program = CircuitProgram(self.circuit, dtype, device)

    @cached_property
    def packed(self) -> Packed:
        return self.program.pack(self.parameters)

    @cached_property
    def deterministic(self) -> bool:
        return is_deterministic(self.circuit, self.parameters)

    # ------------------------------------------------------------------ answers

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        packed = self.program.restrict(self.packed, regions)
        log_values = self.program.log_values(self._tensor(x), packed)
        return np.asarray(log_values.double().cpu().numpy())

    def _tensor(self, x: Array) -> torch.Tensor:
        """Raw rows stay in double precision until they are centred."""
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        centre = self._centre(at)

        def moments(rule: Family, arrays: Arrays) -> Array:
            mass, one, two = around(centre, rule, arrays, region)
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(mass > 0, np.stack([one, two]) / mass, 0.0)

        packed = self.program.restrict(self.packed, regions)
        one, two = self.program.average(self._tensor(x), packed, at, moments).double().cpu().numpy()
        with np.errstate(invalid="ignore"):
            return one + centre, np.maximum(two - np.square(one), 0.0)

    def _centre(self, at: int) -> float:
        """About where a variable lies if its leaves can be moved there: squares do not cancel."""
        name = self.circuit.schema.names[at]
        joint = (n for n in self.circuit.leaves() if isinstance(family(n.family), JointFamily))
        if any(name in leaf.scope for leaf in joint):
            return 0.0
        for key, frame in self.packed.frames.items():
            members = self.program.columns.cells[key].variables
            if at in members:
                return float(frame.shift[members.index(at)])
        return 0.0

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        packed = self.program.restrict(self.packed, regions)
        return self.program.complete(self._tensor(x), packed, rng)[0]

    def best_paths(self, x: Array) -> Array:
        """log-value of the best single path for every row, NaN maximised out."""
        _, paths = self.program.complete(self._tensor(x), self.packed, None)
        return np.asarray(paths.double().cpu().numpy())


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

    def log_values(self, which: Index, x: Array, regions: Mapping[int, Region]) -> Array:
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

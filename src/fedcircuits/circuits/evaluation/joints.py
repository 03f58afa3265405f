"""The step of one leaf of a joint family: several variables at once, in the family's own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Layout, Slot
from fedcircuits.circuits.evaluation.statistics import Inputs, bounded
from fedcircuits.circuits.evaluation.step import (
    BatchState,
    Descent,
    Frames,
    Functional,
    Regions,
    Rules,
    Step,
)
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Arrays, JointFamily, family
from fedcircuits.circuits.graph.parameters import Parameters


@dataclass(frozen=True, slots=True)
class JointValues:
    arrays: Arrays
    tensors: Mapping[str, Tensor]
    regions: Regions = field(default_factory=dict)  # by position in the scope


@dataclass(frozen=True, slots=True)
class JointCounts:
    sums: Mapping[str, Tensor]

    def add(self, other: JointCounts) -> JointCounts:
        return JointCounts({n: s + other.sums[n] for n, s in self.sums.items()})

    def scaled(self, factor: float) -> JointCounts:
        return JointCounts({n: s * factor for n, s in self.sums.items()})


@dataclass(frozen=True)
class JointStep(Step[JointValues, JointCounts]):
    name: str
    rule: JointFamily
    folds: int
    units: int
    start: int
    number: Tensor  # (1,)
    variables: tuple[int, ...]

    @classmethod
    def make(cls, slot: Slot, layout: Layout, circuit: Circuit) -> JointStep:
        [leaf] = slot.leaves
        rule = family(leaf.family)
        assert isinstance(rule, JointFamily)
        variables = tuple(circuit.schema.index(v) for v in leaf.scope)
        row, number = layout.row[slot.name], torch.tensor([layout.number[slot.name]])
        return cls(leaf.name, rule, 1, leaf.units, row, number, variables)

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> JointValues:
        return _values(parameters[self.name], dtype)

    def unpack(self, p: JointValues) -> dict[str, Arrays]:
        return {self.name: p.arrays}

    def restrict(self, p: JointValues, regions: Regions) -> JointValues:
        own = {i: regions[v] for i, v in enumerate(self.variables) if v in regions}
        return replace(p, regions=own)

    def _read(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return bounded(x[:, list(self.variables)], dtype)

    def upward(self, p: JointValues, state: BatchState) -> None:
        self.evaluate(p, state.inputs, self.own(state.values), state.arithmetic.maximises)

    def evaluate(self, p: JointValues, inputs: Inputs, out: Tensor, maximum: bool = False) -> None:
        """Log-values into out (1, units, batch)."""
        x = self._read(inputs.x, out.dtype)
        if maximum:
            out[0] = self.rule.log_maximum(x, p.tensors)
        else:
            out[0] = self.rule.log_density(x, p.tensors, p.regions)

    def downward(self, p: JointValues, state: BatchState, gradient: Tensor) -> JointCounts:
        own = self.own(gradient)[0]
        return JointCounts(
            self.rule.statistics(self._read(state.inputs.x, own.dtype), own, p.tensors)
        )

    def maximise(
        self, counts: JointCounts, p: JointValues, frames: Frames, rules: Rules
    ) -> JointValues:
        rule = rules.get(self.rule.name, self.rule)
        assert isinstance(rule, JointFamily)
        sums = {n: s.double().numpy() for n, s in counts.sums.items()}
        dtype = next(iter(p.tensors.values())).dtype
        return _values(rule.maximise(sums, p.arrays), dtype)

    def choose(self, p: JointValues, state: BatchState, choice: Descent) -> None:
        unit = choice.chosen[self.number][0].long().numpy()
        rows = np.flatnonzero(unit >= 0)
        if len(rows):
            where = np.ix_(rows, np.array(self.variables))
            own = choice.out[where]
            filled = self.rule.complete(own, unit[rows], p.arrays, p.regions, choice.rng)
            choice.out[where] = filled

    def average(
        self,
        p: JointValues,
        state: BatchState,
        gradient: Tensor,
        variable: int,
        functional: Functional,
    ) -> Tensor | None:
        """Σ gradient · (E[x], E[x²]) of a variable, given what is seen of the others."""
        if variable not in self.variables:
            return None
        x = self._read(state.inputs.x, torch.float64).numpy()
        moments = self.rule.moments(x, p.arrays, p.regions)
        at = self.variables.index(variable)
        found = torch.from_numpy(np.stack([m[:, :, at] for m in moments]))  # (2, units, batch)
        return (found * self.own(gradient)[0].double()).sum(1)


def _values(arrays: Arrays, dtype: torch.dtype) -> JointValues:
    tensors = {n: torch.from_numpy(np.ascontiguousarray(a)).to(dtype) for n, a in arrays.items()}
    return JointValues(arrays, tensors)

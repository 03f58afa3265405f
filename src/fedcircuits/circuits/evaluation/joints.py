"""The step of one leaf of a joint family: several variables at once, in the family's own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.layout import Layout, Slot
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.family import Array, Arrays, JointFamily, Region, family
from fedcircuits.circuits.parameters import Parameters


@dataclass(frozen=True, slots=True)
class JointValues:
    arrays: Arrays
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class JointCounts:
    sums: Mapping[str, Tensor]

    def add(self, other: JointCounts) -> JointCounts:
        return JointCounts({n: s + other.sums[n] for n, s in self.sums.items()})


@dataclass(frozen=True, slots=True)
class JointStep:
    name: str
    rule: JointFamily
    units: int
    start: int
    number: int
    variables: tuple[int, ...]

    @classmethod
    def make(cls, slot: Slot, layout: Layout, circuit: Circuit) -> JointStep:
        [leaf] = slot.leaves
        rule = family(leaf.family)
        assert isinstance(rule, JointFamily)
        variables = tuple(circuit.schema.index(v) for v in leaf.scope)
        row, number = layout.row[slot.name], layout.number[slot.name]
        return cls(leaf.name, rule, leaf.units, row, number, variables)

    def pack(self, parameters: Parameters, dtype: torch.dtype) -> JointValues:
        return self._values(parameters[self.name], dtype)

    def _values(self, arrays: Arrays, dtype: torch.dtype) -> JointValues:
        tensors = {
            n: torch.from_numpy(np.ascontiguousarray(a)).to(dtype) for n, a in arrays.items()
        }
        return JointValues(arrays, tensors)

    def _regions(self, regions: Mapping[int, Region]) -> dict[int, Region]:
        return {i: regions[v] for i, v in enumerate(self.variables) if v in regions}

    def _own(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x[:, list(self.variables)].to(dtype)

    def upward(
        self,
        p: JointValues,
        inputs: Inputs,
        out: Tensor,
        regions: Mapping[int, Region],
        maximum: bool,
    ) -> None:
        x = self._own(inputs.x, out.dtype)
        if maximum:
            found = self.rule.log_maximum(x, p.tensors)
        else:
            found = self.rule.log_density(x, p.tensors, self._regions(regions))
        out.copy_(found)

    def downward(self, p: JointValues, inputs: Inputs, gradient: Tensor) -> JointCounts:
        own = gradient.narrow(0, self.start, self.units)
        return JointCounts(self.rule.statistics(self._own(inputs.x, own.dtype), own, p.tensors))

    def maximise(
        self, counts: JointCounts, p: JointValues, rules: Mapping[str, object], dtype: torch.dtype
    ) -> JointValues:
        rule = rules.get(self.rule.name, self.rule)
        assert isinstance(rule, JointFamily)
        sums = {n: s.double().numpy() for n, s in counts.sums.items()}
        return self._values(rule.maximise(sums, p.arrays), dtype)

    def average(
        self,
        p: JointValues,
        inputs: Inputs,
        gradient: Tensor,
        variable: int,
        regions: Mapping[int, Region],
    ) -> Tensor | int:
        """Σ posterior · (E[x], E[x²]) of a variable, (2, batch)."""
        if variable not in self.variables:
            return 0
        x = inputs.x[:, list(self.variables)].double().numpy()
        moments = self.rule.moments(x, p.arrays, self._regions(regions))
        at = self.variables.index(variable)
        found = torch.from_numpy(np.stack([m[:, :, at] for m in moments]))  # (2, units, batch)
        return (found * gradient.narrow(0, self.start, self.units).double()).sum(1)

    def complete(
        self,
        p: JointValues,
        chosen: Tensor,
        out: Array,
        regions: Mapping[int, Region],
        rng: np.random.Generator | None,
    ) -> None:
        unit = chosen[self.number].long().numpy()
        rows = np.flatnonzero(unit >= 0)
        if len(rows):
            own = out[np.ix_(rows, self.variables)]
            filled = self.rule.complete(own, unit[rows], p.arrays, self._regions(regions), rng)
            out[np.ix_(rows, self.variables)] = filled

"""The step of leaves whose log-values come from elsewhere: circuits that another party holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.step import BatchState, Descent, Frames, Step
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import IMPOSSIBLE, Arrays
from fedcircuits.circuits.graph.parameters import Parameters


@dataclass(frozen=True)
class GivenStep(Step[None, None]):
    folds: int
    units: int
    start: int
    rows: Tensor  # (folds · units,) of the given matrix

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit) -> GivenStep:
        first = given_rows(circuit)
        units = int(key[2])
        rows = [first[s.name] + k for s in slots for k in range(units)]
        return cls(len(slots), units, layout.row[slots[0].name], torch.tensor(rows))

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> None:
        return None

    def unpack(self, p: None) -> dict[str, Arrays]:
        return {}

    def upward(self, p: None, state: BatchState) -> None:
        assert state.inputs.given is not None, "inline the circuit leaves, or give their values"
        values = state.inputs.given[self.rows].clamp_min(IMPOSSIBLE)
        self.own(state.values)[:] = values.view(self.folds, self.units, -1)

    def downward(self, p: None, state: BatchState, gradient: Tensor) -> None:
        return None

    def choose(self, p: None, state: BatchState, choice: Descent) -> None:
        return None


def given_rows(circuit: Circuit) -> dict[str, int]:
    """The first row of every circuit leaf in the matrix of given values: they lie end to end."""
    found, at = {}, 0
    for leaf in circuit.leaves():
        if leaf.family == CIRCUIT:
            found[leaf.name] = at
            at += leaf.units
    return found

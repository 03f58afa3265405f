"""A circuit with its parameters on this machine, ready for questions (queryable.py)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from fedcircuits.circuits.evaluation.devices import CPU
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
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

"""Expectation–maximisation for any circuit: expected statistics up and down, then their maximum.

E-step  one upward and one downward pass give every node's expected statistics, additive over rows.
M-step  weights are normalised counts, leaves maximise what they expect to have seen.
The likelihood of the rows never falls, up to the leaves' priors and floors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.program import Program
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.errors import StructureError, TableError


@dataclass(frozen=True, slots=True)
class Fitted:
    parameters: Parameters
    history: tuple[float, ...]  # mean log-likelihood before every iteration, and after the last
    converged: bool


def maximise_likelihood(
    circuit: Circuit,
    start: Parameters,
    x: Array,
    *,
    weight: Array | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
    rules: Rules | None = None,
) -> Fitted:
    """EM from ``start`` until the mean log-likelihood gains less than ``tolerance``."""
    if circuit.units[circuit.root.name] != 1:
        raise StructureError(
            f"the root must have one unit to be learned, {circuit.root.name!r} has "
            f"{circuit.units[circuit.root.name]}"
        )
    if len(x) == 0 or (weight is not None and not weight.sum() > 0):
        raise TableError("expected rows to learn from, got none that weighs anything")
    program = Program(circuit)
    packed = program.pack(start)
    rows = torch.from_numpy(np.ascontiguousarray(x))
    weights = None if weight is None else torch.from_numpy(weight)
    history: list[float] = []
    while True:
        counts = program.counts(rows, packed, weights)
        history.append(counts.log_likelihood / counts.weight)
        converged = len(history) > 1 and history[-1] - history[-2] < tolerance
        if converged or len(history) > iterations:
            break
        packed = program.maximise(counts, packed, rules)
    return Fitted(program.unpack(packed), tuple(history), converged)

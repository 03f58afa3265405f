"""The upper part of a circuit whose leaves are evaluated elsewhere: sums and products alone.

Every leaf is a circuit of its own. Their log-values come in as one matrix (units, rows), the units
of all leaves end to end in the order of the nodes, and what goes back to them comes out in the same
order: the posterior of every leaf unit, or which unit a row chose.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.arithmetic import (
    LOG_SPACE,
    MAX_PRODUCT,
    Arithmetic,
    as_answers,
    finite,
)
from fedcircuits.circuits.evaluation.counts import Counts
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import BatchState, Descent
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import QueryError


class UpperCircuit:
    """``UpperCircuit(circuit).log_values(given, packed)``, given as (leaf units, rows)."""

    def __init__(self, circuit: Circuit, dtype: torch.dtype = torch.float64) -> None:
        local = [leaf.name for leaf in circuit.leaves() if leaf.family != CIRCUIT]
        if local:
            raise QueryError(f"leaf {local[0]!r} of a network must be a circuit held elsewhere")
        self.circuit = circuit
        self.program = CircuitProgram(circuit, dtype)

    def pack(self, parameters: Parameters) -> Packed:
        return self.program.pack(parameters)

    def log_values(self, given: Array, packed: Packed) -> Array:
        """(rows,) of the root."""
        log_values = [
            self._upward(part, packed).values[self.program.root].clone()  # else all values stay
            for part in self._parts(given)
        ]
        return np.asarray(as_answers(torch.cat(log_values), self.circuit).double().cpu().numpy())

    def posteriors(
        self, given: Array, packed: Packed, weight: Array | None = None
    ) -> tuple[Array, Counts]:
        """Posterior of every leaf unit (units, rows) times the rows' weights, and the expected
        counts of all sums; what is impossible has posterior zero."""
        weights = torch.ones(given.shape[1]) if weight is None else torch.as_tensor(weight)
        posteriors, total, at = [], None, 0
        for part in self._parts(given):
            share = weights[at : at + part.shape[1]].to(self.program.dtype)
            at += part.shape[1]
            state = self._upward(part, packed)
            gradient, derivatives = self.program.downward(state, packed, share)
            triples = zip(self.program.steps, derivatives, packed.values, strict=True)
            steps = tuple(step.expected(d, p) for step, d, p in triples)
            logs = (finite(state.values[self.program.root].double()) * share).nan_to_num(nan=0.0)
            counts = Counts(float(logs.sum()), float(share.sum()), steps)
            total = counts if total is None else total.add(counts)
            posteriors.append(self._given(gradient))
        assert total is not None
        return np.asarray(torch.cat(posteriors, 1).double().cpu().numpy()), total

    def choices(
        self, given: Array, packed: Packed, rng: np.random.Generator | None
    ) -> tuple[Array, Array]:
        """The unit of every leaf that a row reaches (leaves, rows), −1 where it does not, drawn
        from the posterior or, without rng, the best; and the root's log-value, or its maximum."""
        chosen, roots = [], []
        numbers = [self.program.layout.number[leaf.name] for leaf in self.circuit.leaves()]
        for part in self._parts(given):
            state = self._upward(part, packed, MAX_PRODUCT if rng is None else LOG_SPACE)
            slots = len(self.program.layout.number) + 1
            picked = torch.full((slots, part.shape[1]), -1, dtype=torch.int32)
            picked[self.program.layout.number[self.circuit.root.name]] = 0
            choice = Descent(picked, np.empty((part.shape[1], 0)), rng)
            for step, values in zip(
                reversed(self.program.steps), reversed(packed.values), strict=True
            ):
                step.choose(values, state, choice)
            chosen.append(picked[numbers])
            roots.append(state.values[self.program.root].clone())
        return torch.cat(chosen, 1).cpu().numpy(), as_answers(
            torch.cat(roots), self.circuit
        ).double().cpu().numpy()

    def _parts(self, given: Array) -> list[Tensor]:
        whole = torch.as_tensor(np.nan_to_num(given, neginf=-np.inf)).to(self.program.dtype)
        size = self.program.batch
        return [whole[:, a : a + size] for a in range(0, max(1, given.shape[1]), size)]

    def _upward(
        self, given: Tensor, packed: Packed, arithmetic: Arithmetic = LOG_SPACE
    ) -> BatchState:
        rows = given.shape[1]
        nothing = torch.full((rows, len(self.circuit.schema)), torch.nan)
        blank = torch.zeros(0, rows, dtype=self.program.dtype)
        inputs = Inputs(nothing, blank, None, 0, len(self.circuit.schema), given)
        return self.program.upward(inputs, packed, arithmetic)

    def _given(self, matrix: Tensor) -> Tensor:
        rows = [
            self.program.layout.row[leaf.name] + k
            for leaf in self.circuit.leaves()
            for k in range(leaf.units)
        ]
        return matrix[rows]

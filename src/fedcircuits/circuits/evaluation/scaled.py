"""Circuits of several units without outer products, evaluated by plain numbers (scaled_kernel.py).

In log space a sum takes an exponential of every child and a logarithm of every unit. Here a node's
values are numbers between 0 and 2, times a power of two for every row of data, and a sum is a
matrix product and nothing else. Leaves are evaluated as always, and looked-up ones are read from a
table of probabilities. What single precision cannot hold (a node whose units are all below 2⁻¹⁰⁰)
is found, and those rows of data are evaluated in log space.

A product that one sum reads is multiplied within the loop of that sum, and never written down;
which rows the loops read and write is found beforehand (scaled_plan.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import scaled_kernel as kernel
from fedcircuits.circuits.evaluation.counts import Derivative
from fedcircuits.circuits.evaluation.devices import CPU, empty, zeros
from fedcircuits.circuits.evaluation.inner_nodes import (
    OuterStep,
    OuterSumStep,
    ProductStep,
    SumStep,
)
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.lookup import LookupStep, LookupValues
from fedcircuits.circuits.evaluation.scaled_plan import Ints, Reads, plan
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import BatchState

if TYPE_CHECKING:
    from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed


LOG_2 = math.log(2.0)
SOME, MANY = 4, 48  # units between which these loops beat batched products
LOWEST = -(1 << 24)  # power of two of a leaf: what is less is lost
# bits behind the exponent, its bias, and the least one of a node
FORMS = {torch.float32: (np.int32, 23, 127, -100), torch.float64: (np.int64, 52, 1023, -900)}


@dataclass(frozen=True, slots=True)
class ScaledState:
    """One batch on its way up."""

    inputs: Inputs
    values: Tensor  # (rows, batch)
    powers: npt.NDArray[np.int32]  # (slots, batch)
    lost: npt.NDArray[np.uint8]  # (batch,) rows of data that are to be evaluated in log space
    room: tuple[npt.NDArray[Any], npt.NDArray[Any]]  # (batch,) as numbers and as their bits
    places: dict[int, Ints] = field(default_factory=dict)  # lines that steps look up, by their rows


class ScaledProgram:
    def __init__(self, program: CircuitProgram) -> None:
        self.program = program
        integer, *form = FORMS[program.dtype]
        self.integer, self.form = integer, tuple(integer(n) for n in form)
        number = program.layout.number
        self.numbers = [np.array([number[s.name] for s in g]) for _, g in program.layout.groups]
        self.root = number[program.circuit.root.name]
        self.plan = plan(program.steps, self.numbers, self.root)

    def upward(self, inputs: Inputs, packed: Packed, values: Tensor) -> ScaledState:
        batch, slots = values.shape[1], len(self.program.layout.number) + 1
        room = np.empty(batch, values.numpy().dtype)
        state = ScaledState(
            inputs, values, np.zeros((slots, batch), np.int32), np.zeros(batch, np.uint8),
            (room, room.view(self.integer)),
        )  # fmt: skip
        into, how = (values.numpy(), state.powers, state.lost), (state.room, self.form)
        for step, p, reads, numbers in self._steps(packed):
            if isinstance(step, ProductStep) and reads is not None:
                if not reads.passed:
                    kernel.multiply(
                        *into, step.start, step.units, numbers, reads.rows, reads.slots, *how
                    )
            elif isinstance(step, SumStep) and reads is not None:
                kernel.mix(*into, step.start, numbers, reads.arrays, p.numpy(), *how)
            elif (places := _places(step, p, inputs)) is not None:
                state.places[step.start] = places
                kernel.look_up(into[0], step.start, _lines(p.linear), places)
            else:
                state.powers[numbers] = _leaves(step, p, state)
        np.maximum(state.lost, into[0][self.program.root] <= 0, out=state.lost)
        return state

    def _steps(self, packed: Packed) -> list[tuple[Any, Any, Reads | None, Ints]]:
        steps = self.program.steps
        return list(zip(steps, packed.values, self.plan.steps, self.numbers, strict=True))

    def log_values(self, state: ScaledState) -> Tensor:
        """(batch,) of the root; of lost rows anything."""
        last = state.values[self.program.root].double().clamp_min(1e-300)
        powers = torch.from_numpy(state.powers[self.root]).double()
        return (last.log() + LOG_2 * powers).to(self.program.dtype)

    def downward(
        self,
        state: ScaledState,
        packed: Packed,
        weight: Tensor,
        gradient: Tensor,
        free: bool = False,
    ) -> list[Derivative]:
        """For every step the derivatives of the weighted log-likelihood; no row may be lost.

        ``gradient`` may hold anything; in the end it holds the flows of leaves and sums. ``free``:
        of looked-up tables the derivatives by their free numbers, as tensors.
        """
        gradient[self.program.root] = weight
        gradient[self.plan.unread] = 0.0
        values, flow = state.values.numpy(), gradient.numpy()
        derivatives: list[Derivative] = []
        for step, p, reads, numbers in reversed(self._steps(packed)):
            derivative: Derivative = None
            if isinstance(step, ProductStep) and reads is not None:
                if not reads.passed:
                    kernel.unmultiply(flow, step.start, step.units, reads.rows, reads.fresh)
            elif isinstance(step, SumStep) and reads is not None:
                derivative = empty(tuple(p.shape), p)
                kernel.unmix(
                    values, state.powers, state.lost, step.start, numbers, reads.arrays, p.numpy(),
                    flow, derivative.numpy(), state.room, self.form,
                )  # fmt: skip
            elif (places := state.places.get(step.start)) is not None:
                counted = _by_free if free else _counted
                derivative = counted(step, flow, places, p.linear)
            else:
                derivative = step.downward(p, BatchState(state.inputs, state.values), gradient)
            derivatives.append(derivative)
        return derivatives[::-1]


def can_scale(program: CircuitProgram) -> bool:
    """Whether these loops take all of its steps."""
    outer = any(isinstance(s, OuterStep | OuterSumStep) for s in program.steps)
    return program.device == CPU and not outer


def suits(program: CircuitProgram) -> bool:
    """Whether they do, and there are so many units that they pay."""
    inner = [s.units for s in program.steps if isinstance(s, SumStep | ProductStep)]
    return can_scale(program) and SOME <= max(inner, default=0) <= MANY


def _leaves(step: Any, p: Any, state: ScaledState) -> Any:
    """Values of leaves, by way of their logarithms; and the powers of two (slots, batch)."""
    step.upward(p, BatchState(state.inputs, state.values))
    logs = step.rows_in(state.values)
    power = torch.round(logs.amax(1) / LOG_2).clamp_(LOWEST, -LOWEST)
    logs.sub_(power[:, None] * LOG_2).exp_()
    return power.numpy()


def _places(step: object, p: object, inputs: Inputs) -> Ints | None:
    """Lines of the table that complete rows of data look up; None where this is not all."""
    if not isinstance(step, LookupStep) or not isinstance(p, LookupValues):
        return None
    if inputs.seen is not None or p.shift is not None or len(step.pairs.slot) != step.folds:
        return None
    level = inputs.x.t()[step.pairs.variable]
    if not bool(((level >= 0) & (level < step.levels) & (level == level.floor())).all()):
        return None
    first = torch.arange(step.folds)[:, None] * step.levels
    return np.asarray((first + level.long()).numpy())


def _lines(table: Tensor) -> npt.NDArray[Any]:
    """(pairs · levels, units)"""
    return np.asarray(table.view(-1, table.shape[2]).numpy())


def _counted(step: LookupStep, flow: npt.NDArray[Any], places: Ints, old: Tensor) -> Derivative:
    sums, count = zeros(tuple(old.shape), old), zeros((step.folds, step.units), old)
    kernel.add_up(flow, step.start, places, _lines(sums), count.numpy())
    return LeafCounts(sums, count)


def _by_free(step: LookupStep, flow: npt.NDArray[Any], places: Ints, old: Tensor) -> Derivative:
    derivative = empty(tuple(old.shape), old)
    kernel.add_up_free(flow, step.start, places, _lines(old), _lines(derivative))
    return derivative

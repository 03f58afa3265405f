"""Circuits of several units without outer products, evaluated by plain numbers (scaled_kernel.py).

In log space a sum takes an exponential of every child and a logarithm of every unit. Here a node's
values are numbers between 0 and 2, times a power of two for every row of data, and a sum is a
matrix product and nothing else. Leaves are evaluated as always, and looked-up ones are read from a
table of probabilities. What single precision cannot hold (a node whose units are all below 2⁻¹⁰⁰)
is found, and those rows of data are evaluated in log space.

Which nodes come one after the other and what they read is found beforehand (scaled_plan.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import scaled_kernel as kernel
from fedcircuits.circuits.evaluation import table_kernel
from fedcircuits.circuits.evaluation.counts import Derivative, by_free_numbers
from fedcircuits.circuits.evaluation.devices import CPU, empty
from fedcircuits.circuits.evaluation.inner_nodes import (
    OuterStep,
    OuterSumStep,
    ProductStep,
    SumStep,
)
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.lookup import LookupStep, LookupValues
from fedcircuits.circuits.evaluation.scaled_plan import Plan, plan
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import BatchState

if TYPE_CHECKING:
    from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed

LOG_2 = math.log(2.0)
SOME, MANY = 4, 128  # units between which these loops beat batched products
LOWEST = 1 << 24  # less than 2 to the power of minus this in a leaf is lost
MOST_POWERS = 1 << 30  # of all leaves of a row together, so that 32 bits hold their sum
# bits behind the exponent, its bias, the least one of a node, and the least without care
FORMS = {
    torch.float32: (np.int32, 23, 127, -100, -50), torch.float64: (np.int64, 52, 1023, -900, -450),
}  # fmt: skip

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ScaledState:
    """One batch on its way up."""

    inputs: Inputs
    values: Tensor  # (rows, batch)
    powers: npt.NDArray[np.int32]  # (slots, batch)
    lost: npt.NDArray[np.uint8]  # (batch,) rows of data that are to be evaluated in log space
    room: tuple[Floats, npt.NDArray[Any]]  # (batch,) as numbers and as their bits
    weights: Floats  # of all sums, end to end
    places: dict[int, Ints] = field(default_factory=dict)  # lines that steps look up


class ScaledProgram:
    def __init__(self, program: CircuitProgram) -> None:
        self.program = program
        integer, *form = FORMS[program.dtype]
        self.integer, self.form = integer, tuple(integer(n) for n in form)
        number = program.layout.number
        self.numbers = [np.array([number[s.name] for s in g]) for _, g in program.layout.groups]
        self.root = number[program.circuit.root.name]
        self.lowest = -min(LOWEST, MOST_POWERS // max(1, len(program.circuit.schema)))

    @cached_property
    def plan(self) -> Plan:
        return plan(self.program.steps, self.numbers, self.root)

    def upward(self, inputs: Inputs, packed: Packed, values: Tensor) -> ScaledState:
        batch, slots = values.shape[1], len(self.program.layout.number) + 1
        room = np.empty(batch, values.numpy().dtype)
        state = ScaledState(
            inputs, values, np.zeros((slots, batch), np.int32), np.zeros(batch, np.uint8),
            (room, room.view(self.integer)), self._weights(packed),
        )  # fmt: skip
        for i, (step, p) in enumerate(zip(self.program.steps, packed.values, strict=True)):
            if isinstance(step, ProductStep | SumStep):
                continue
            places = _places(step, p, inputs)
            if places is not None and isinstance(p, LookupValues):
                state.places[i] = places
                if i != self.plan.looked_up:
                    out = step.rows_in(values).numpy()
                    table_kernel.look_up_all(out, _lines(p.linear), places)
            else:
                state.powers[self.numbers[i]] = _leaves(step, p, state, self.lowest)
        table, places = self._table(packed, state)
        kernel.upward(
            self.plan.arrays, values.numpy(), state.powers, state.lost, state.weights, table,
            places, self.plan.widest, state.room, self.form,
        )  # fmt: skip
        np.maximum(state.lost, values.numpy()[self.program.root] <= 0, out=state.lost)
        return state

    def _weights(self, packed: Packed) -> Floats:
        """Of all sums, end to end."""
        if not packed.weights:
            none = torch.empty(0, dtype=self.program.dtype)
            sums = (p.flatten() for p in packed.values if isinstance(p, Tensor))
            packed.weights.append(torch.cat([none, *sums]))
        return np.asarray(packed.weights[0].numpy())

    def _table(self, packed: Packed, state: ScaledState) -> tuple[Floats, Ints]:
        """Of the leaves that the loops look up, and where; nothing of both if they do not."""
        i = self.plan.looked_up
        if i is None or i not in state.places:
            batch = state.values.shape[1]
            return np.empty((0, 0), state.room[0].dtype), np.empty((0, batch), np.int64)
        p = packed.values[i]
        assert isinstance(p, LookupValues)
        return _lines(p.linear), state.places[i]

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
        """For every step its expected counts; no row may be lost. ``free``: derivatives of the
        weighted log-likelihood by the free numbers of weights and looked-up tables, as tensors.

        ``gradient`` may hold anything; in the end it holds the flows of leaves that are not looked
        up.
        """
        gradient[self.program.root] = weight
        gradient[self.plan.unread] = 0.0
        counted = {}
        for i, at in state.places.items():
            p = packed.values[i]
            assert isinstance(p, LookupValues)
            counted[i] = _LeafDerivative.of(p, at, free)
        table, places = self._table(packed, state)
        chosen = self.plan.looked_up
        nothing = places, free, table, table, table
        into = nothing if chosen is None or chosen not in counted else counted[chosen].arrays
        shares = empty((self.plan.number,), state.values)
        kernel.downward(
            self.plan.arrays, state.values.numpy(), state.powers, state.lost, state.weights,
            into, self.plan.widest, int(not len(places)), gradient.numpy(), shares.numpy(),
            state.room, self.form,
        )  # fmt: skip
        derivatives: list[Derivative] = []
        for i, (step, p) in enumerate(zip(self.program.steps, packed.values, strict=True)):
            if isinstance(p, Tensor):
                first = self.plan.weights[i]
                derivatives.append(shares[first : first + p.numel()].view(p.shape))
            elif isinstance(step, ProductStep):
                derivatives.append(None)
            elif i in counted:
                if i != self.plan.looked_up:
                    table_kernel.add_up_all(step.rows_in(gradient).numpy(), *counted[i].arrays)
                derivatives.append(counted[i].derivative)
            else:
                batch = BatchState(state.inputs, state.values)
                counts = [step.downward(p, batch, gradient)]
                derivatives += by_free_numbers(counts, [p]) if free else counts
        return derivatives


def can_scale(program: CircuitProgram) -> bool:
    """Whether these loops take all of its steps."""
    outer = any(isinstance(s, OuterStep | OuterSumStep) for s in program.steps)
    return program.device == CPU and not outer


def suits(program: CircuitProgram) -> bool:
    """Whether they do, and there are so many units that they pay."""
    inner = [s.units for s in program.steps if isinstance(s, SumStep | ProductStep)]
    return can_scale(program) and SOME <= max(inner, default=0) <= MANY


def _leaves(step: Any, p: Any, state: ScaledState, lowest: int) -> Any:
    """Values of leaves, by way of their logarithms; and the powers of two (slots, batch)."""
    step.upward(p, BatchState(state.inputs, state.values))
    logs = step.rows_in(state.values)
    power = torch.round(logs.amax(1) / LOG_2).clamp_(lowest, -lowest)
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


@dataclass(frozen=True, slots=True)
class _LeafDerivative:
    """What is counted of leaves that are looked up."""

    derivative: Derivative
    arrays: tuple[Ints, bool, Floats, Floats, Floats]  # as table_kernel.add_up_all takes them

    @classmethod
    def of(cls, p: LookupValues, places: Ints, free: bool) -> _LeafDerivative:
        old = p.linear
        if free:
            slopes = empty(tuple(old.shape), old)
            return cls(slopes, (places, free, _lines(slopes), _lines(old)[:0], _lines(old)))
        sums, count = empty(tuple(old.shape), old), empty((len(places), old.shape[2]), old)
        arrays = places, free, _lines(sums), np.asarray(count.numpy()), _lines(old)
        return cls(LeafCounts(sums, count), arrays)

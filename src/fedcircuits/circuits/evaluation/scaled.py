"""Circuits of several units without outer products, evaluated by plain numbers (scaled_kernel.py).

In log space a sum takes an exponential of every child and a logarithm of every unit. Here a node's
values are numbers between 0 and 2, times a power of two for every row of data, and a sum is a
matrix product and nothing else. Leaves are evaluated as always, and looked-up ones are read from a
table of probabilities. What single precision cannot hold (a node whose units are all below 2⁻¹⁰⁰)
is found, and those rows of data are evaluated in log space.

Which rows the loops read on the way up and write on the way down is found beforehand (``plan``).
The inputs of a sum come in parts, one for each of its children. A product that nobody but one sum
reads is never written down: the sum multiplies its children as it goes, and on the way down gives
each of them its share. The first share that a node is given is written and later ones are added to
it, so that the matrix need not be zero beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import scaled_kernel as kernel
from fedcircuits.circuits.evaluation import table_kernel
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
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import BatchState, Step

if TYPE_CHECKING:
    from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed

LOG_2 = math.log(2.0)
SOME, MANY = 4, 48  # units between which these loops beat batched products
LOWEST = -(1 << 24)  # power of two of a leaf: what is less is lost
# bits behind the exponent, its bias, the least one of a node, and the least without care
FORMS = {
    torch.float32: (np.int32, 23, 127, -100, -50), torch.float64: (np.int64, 52, 1023, -900, -450),
}  # fmt: skip

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1


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
                table_kernel.look_up(into[0], step.start, _lines(p.linear), places)
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
    table_kernel.add_up(flow, step.start, places, _lines(sums), count.numpy())
    return LeafCounts(sums, count)


def _by_free(step: LookupStep, flow: npt.NDArray[Any], places: Ints, old: Tensor) -> Derivative:
    derivative = empty(tuple(old.shape), old)
    table_kernel.add_up_free(flow, step.start, places, _lines(old), _lines(derivative))
    return derivative


# ---------------------------------------------------------------------- what is read and written


@dataclass(frozen=True, slots=True)
class Reads:
    """What the slots of an inner step read. Products have one part, which is multiplied."""

    rows: Ints  # (folds, parts, factors) first rows, −1 for none
    slots: Ints  # the same shape, 0 for none
    sizes: Ints  # (folds, parts) units, 0 for none
    fresh: Bools  # as rows: nothing has been written there before, on the way down
    passed: bool = False  # products that are never written down

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints, Bools]:
        return self.rows, self.slots, self.sizes, self.fresh


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Reads | None, ...]
    unread: Ints  # rows of leaves that nobody writes on the way down


def plan(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], root: int) -> Plan:
    """For every step, whose slots have these numbers; ``root`` is the slot of the root."""
    read = [_read(step) for step in steps]
    size = 1 + max(int(n.max()) for n in numbers)
    times = np.zeros(size, np.int64)  # every slot is read by sums, or by products
    by_sums = np.zeros(size, bool)
    for step, reads in zip(steps, read, strict=True):
        if reads is not None:
            np.add.at(times, reads.slots, 1)
            by_sums[reads.slots] = isinstance(step, SumStep)
    single = (times == 1) & by_sums
    pairs = zip(steps, numbers, strict=True)
    passed = [isinstance(s, ProductStep) and bool(single[n].all()) for s, n in pairs]
    products = {
        int(number): (reads.rows[f, 0], reads.slots[f, 0])
        for reads, over, slots in zip(read, passed, numbers, strict=True)
        if over and reads is not None
        for f, number in enumerate(slots)
    }
    written = np.zeros(size, bool)
    written[root] = True
    planned: list[Reads | None] = []
    for reads, over in reversed(list(zip(read, passed, strict=True))):
        if reads is not None and over:
            reads = replace(reads, passed=True)
        elif reads is not None:
            reads = _with_products(reads, products)
            reads = replace(reads, fresh=_first(reads.slots, written))
            written[reads.slots] = True
        planned.append(reads)
    return Plan(tuple(reversed(planned)), _unread(steps, numbers, written))


def _read(step: Step[Any, Any]) -> Reads | None:
    if isinstance(step, ProductStep):
        rows = step.rows.index.view(step.arity, step.folds, step.units)[:, :, 0].t().numpy()
        slots = step.children.contiguous().numpy()[:, None]
        rows = np.where(slots > 0, rows[:, None], NONE)
        return Reads(rows, slots, np.full((step.folds, 1), step.units), np.zeros(rows.shape, bool))
    if not isinstance(step, SumStep):
        return None
    rows = step.rows.index.view(step.folds, step.inputs).numpy()
    used = np.arange(step.inputs) < np.array(step.used)[:, None]
    begins = used & (step.child_units.numpy() == 0)
    parts = int(begins.sum(1).max())
    at = np.repeat(np.array(step.used)[:, None], parts + 1, axis=1)  # where parts begin and end
    for f in range(step.folds):
        starts = np.flatnonzero(begins[f])
        at[f, : len(starts)] = starts
    sizes, first = np.diff(at), np.minimum(at[:, :-1], step.inputs - 1)
    there = sizes > 0
    first_rows = np.where(there, np.take_along_axis(rows, first, 1), NONE)[:, :, None]
    slots = np.where(there, np.take_along_axis(step.children.numpy(), first, 1), 0)[:, :, None]
    return Reads(first_rows, slots, sizes, np.zeros(slots.shape, bool))


def _with_products(reads: Reads, products: dict[int, tuple[Ints, Ints]]) -> Reads:
    """The children of products that are passed over, in place of these."""
    if reads.rows.shape[2] > 1:
        return reads
    inside = [products.get(int(slot)) for slot in reads.slots.ravel()]
    factors = max((len(p[0]) for p in inside if p is not None), default=1)
    rows = np.full((*reads.sizes.shape, factors), NONE)
    slots = np.zeros(rows.shape, np.int64)
    rows[:, :, 0], slots[:, :, 0] = reads.rows[:, :, 0], reads.slots[:, :, 0]
    flat_rows, flat_slots = rows.reshape(-1, factors), slots.reshape(-1, factors)
    for i, product in enumerate(inside):
        if product is not None:
            flat_rows[i, : len(product[0])], flat_slots[i, : len(product[1])] = product
    return Reads(rows, slots, reads.sizes, reads.fresh)


def _first(slots: Ints, written: Bools) -> Bools:
    """Which of the writes are the first to their slots."""
    fresh = np.zeros(slots.size, bool)
    named, place = np.unique(slots, return_index=True)
    fresh[place[(named > 0) & ~written[named]]] = True
    return fresh.reshape(slots.shape)


def _unread(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], written: Bools) -> Ints:
    rows = [
        np.arange(step.folds * step.units)[np.repeat(~written[n], step.units)] + step.start
        for step, n in zip(steps, numbers, strict=True)
        if not isinstance(step, ProductStep)
    ]
    return np.concatenate(rows)

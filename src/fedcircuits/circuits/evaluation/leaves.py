"""Steps of leaves of one-dimensional families; linear families as one matrix product.

The coefficients of all linear leaves stand on rows of the statistics T (statistics.py). Slots of
equal width and several units are gathered in blocks and multiplied in a batch; others are written
as one matrix, or added entry by entry where that would be large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot, linear_size
from fedcircuits.circuits.evaluation.pairs import FamilyPart, LeafPairs
from fedcircuits.circuits.evaluation.statistics import Columns, Inputs
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
from fedcircuits.circuits.graph.family import Array, Arrays, LinearFamily, Tensors
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ParameterError

LOST = 1e15  # terms of a log density that leave no digit of the sum


@dataclass(frozen=True, slots=True)
class LeafValues:
    """The packed parameters of a leaf step."""

    parts: tuple[FamilyPart, ...]
    coefficients: Tensor  # linear: (entries, units) on rows of T
    constants: Tensor  # linear: (pairs, units), wherever the pair's variable is seen
    shift: Tensor | None = None  # (folds, units) log-masses of the regions
    regions: Regions = field(default_factory=dict)
    known: Tensor | None = None  # (folds · units, batch) log-values, where they need no evaluation


@dataclass(frozen=True, slots=True)
class LeafCounts:
    """Additive over rows, batches and parties: expected statistics of every pair and unit."""

    sums: Tensor  # linear (entries, units), else (S, pairs, units)
    count: Tensor  # (pairs, units)

    def add(self, other: LeafCounts) -> LeafCounts:
        return LeafCounts(self.sums + other.sums, self.count + other.count)

    def scaled(self, factor: float) -> LeafCounts:
        return LeafCounts(self.sums * factor, self.count * factor)


class InParts(Protocol):
    """Packed parameters of leaves, whatever the passes need beside."""

    @property
    def parts(self) -> tuple[FamilyPart, ...]: ...

    @property
    def regions(self) -> Regions: ...


V = TypeVar("V", bound=InParts)


class LeafStep(Step[V, LeafCounts], Generic[V]):
    """What linear and other leaves share: everything but the passes."""

    numbers: Tensor  # (folds,)
    pairs: LeafPairs

    def unpack(self, p: V) -> dict[str, Arrays]:
        arrays: dict[str, Arrays] = {}
        for part in p.parts:
            at = 0
            for name, width in part.leaves:
                arrays[name] = {
                    n: a[at : at + width].swapaxes(0, 1) for n, a in part.arrays.items()
                }
                at += width
        return arrays

    def log_masses(self, p: V, regions: Regions, dtype: torch.dtype) -> Tensor | None:
        """Of the regions (folds, units), None where there are none."""
        log_masses = self.pairs.region_constants(p.parts, regions, self.folds, self.units)
        return None if log_masses is None else torch.as_tensor(log_masses).to(dtype)

    def choose(self, p: V, state: BatchState, choice: Descent) -> None:
        chosen = choice.chosen[self.numbers]
        self.pairs.complete(p.parts, chosen, choice.out, p.regions, choice.rng)

    def average(
        self,
        p: V,
        state: BatchState,
        gradient: Tensor,
        variable: int,
        functional: Functional,
    ) -> Tensor | None:
        return self.pairs.average(p.parts, self.rows_in(gradient), variable, functional)


class ValuedStep(LeafStep[LeafValues]):
    """Leaves whose packed parameters are ``LeafValues``."""

    def restrict(self, p: LeafValues, regions: Regions) -> LeafValues:
        shift = self.log_masses(p, regions, p.constants.dtype)
        return replace(p, shift=shift, regions=regions)


@dataclass(frozen=True)
class LinearStep(ValuedStep):
    folds: int
    units: int
    start: int
    block: tuple[int, int]  # entries and pairs of every slot where all are equal, else (0, 0)
    numbers: Tensor
    pairs: LeafPairs
    first: Tensor  # (pairs,) first entry of the pair
    entry_row: Tensor  # (entries,) row of T
    entry_slot: Tensor  # (entries,)
    places: Mapping[tuple[str, int], Mapping[int, int]]  # by cell: variable → position

    @classmethod
    def make(
        cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit, columns: Columns
    ) -> LinearStep:
        pairs = LeafPairs.of(slots, circuit)
        kinds = circuit.schema.variables
        cells = [(rule, kinds[int(pairs.variable[at])].levels) for _, rule, at in pairs.leaves]
        places = {c: {v: i for i, v in enumerate(columns.cells[c].variables)} for c in set(cells)}
        rows: list[int] = []
        first: list[int] = []
        owner: list[int] = []
        variables, slot_of = pairs.variable.tolist(), pairs.slot.tolist()
        for cell, (_, _, start), width in zip(cells, pairs.leaves, pairs.widths, strict=True):
            known = columns.cells[cell]
            for p in range(start, start + width):
                first.append(len(rows))
                at = known.start + places[cell][variables[p]]
                rows += [at + s * len(known.variables) for s in range(known.width)]
                owner += [slot_of[p]] * known.width
        block = linear_size(slots[0], circuit) if key[3] else (0, 0)
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        return cls(
            len(slots), int(key[2]), layout.row[slots[0].name], block, numbers, pairs,
            torch.tensor(first), torch.tensor(rows), torch.tensor(owner), places,
        )  # fmt: skip

    # ------------------------------------------------------------------ parameters

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> LeafValues:
        return self.from_parts(self.pairs.pack(parameters), frames, dtype)

    def from_parts(
        self, parts: tuple[FamilyPart, ...], frames: Frames, dtype: torch.dtype
    ) -> LeafValues:
        tensors = [
            {n: torch.as_tensor(np.ascontiguousarray(a)) for n, a in framed.items()}
            for framed in (self.framed(part, frames) for part in parts)
        ]
        coefficients, constants = self.operand(parts, tensors, frames)
        if dtype == torch.float64:
            self._refuse_lost_digits(constants)
        return LeafValues(parts, coefficients.to(dtype), constants.to(dtype))

    def _refuse_lost_digits(self, constants: Tensor) -> None:
        """A log density is a difference of terms as large as these: beyond, all digits cancel."""
        pair = int(constants.abs().amax(1).argmax())
        if float(constants[pair].abs().max()) > LOST:
            name = [leaf for leaf, _, first in self.pairs.leaves if first <= pair][-1]
            raise ParameterError(
                f"parameters of {name!r}: they are too narrow, or too far from those of other "
                "leaves of the variable, for densities to be computed: rescale the column"
            )

    def operand(
        self, parts: tuple[FamilyPart, ...], tensors: Sequence[Tensors], frames: Frames
    ) -> tuple[Tensor, Tensor]:
        """Coefficients (entries, units) and constants (pairs, units), differentiable by tensors."""
        some = next(iter(tensors[0].values()))
        coefficients = some.new_zeros(len(self.entry_row), self.units)
        constants = some.new_zeros(len(self.first), self.units)
        for part, values in zip(parts, tensors, strict=True):
            rule = part.rule
            assert isinstance(rule, LinearFamily)
            natural, constant = rule.natural(values)  # (S, pairs, units), (pairs, units)
            first = self.first[part.pairs]
            for s in range(len(natural)):
                coefficients.index_put_((first + s,), natural[s])
            frame = self._frame(part, frames)
            if frame is not None:
                constant = constant - torch.as_tensor(np.log(frame[1])).to(constant)
            constants.index_put_((part.pairs,), constant)
        return coefficients, constants

    def _frame(self, part: FamilyPart, frames: Frames) -> tuple[Array, Array] | None:
        """shift and scale (pairs, 1) of a part, if its family has frames."""
        variables = self.pairs.variable[part.pairs].tolist()
        name = part.rule.name
        cell = next(c for c, at in self.places.items() if c[0] == name and variables[0] in at)
        if cell not in frames:
            return None
        at = [self.places[cell][v] for v in variables]
        return frames[cell].shift[at][:, None], frames[cell].scale[at][:, None]

    def framed(self, part: FamilyPart, frames: Frames) -> Arrays:
        """A part's parameters as its frame shows them."""
        frame = self._frame(part, frames)
        return part.arrays if frame is None else _moved(part, part.arrays, *frame)

    def unframed(self, part: FamilyPart, arrays: Arrays, frames: Frames) -> Arrays:
        frame = self._frame(part, frames)
        return arrays if frame is None else _moved(part, arrays, -frame[0] / frame[1], 1 / frame[1])

    # ------------------------------------------------------------------ upward

    def upward(self, p: LeafValues, state: BatchState) -> None:
        inputs = state.inputs
        rows, owner, coefficients = self._operand(p, inputs, state.arithmetic.maximises)
        shaped = self.rows_in(state.values)
        if self.block[0]:
            width = len(rows) // self.folds
            weights = coefficients.view(self.folds, width, self.units).transpose(1, 2)
            for a, b in self.chunks(self.folds, width * shaped.shape[2]):
                read = inputs.matrix.index_select(0, rows[a * width : b * width])
                torch.bmm(weights[a:b], read.view(b - a, width, -1), out=shaped[a:b])
        else:
            self._flat(rows, owner, coefficients, inputs.matrix, shaped)
        if inputs.seen is None:
            shaped += self.constant(p)[:, :, None]
        if p.shift is not None:
            shaped += p.shift[:, :, None]

    def constant(self, p: LeafValues) -> Tensor:
        """What a slot's leaves add where all their variables are seen, (folds, units)."""
        total = torch.zeros(self.folds, self.units, dtype=p.constants.dtype)
        return total.index_add_(0, self.pairs.slot, p.constants)

    def _operand(
        self, p: LeafValues, inputs: Inputs, maximum: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of T, slots and coefficients: statistics, and constants where values are missing."""
        rows, owner, coefficients = [self.entry_row], [self.entry_slot], [p.coefficients]
        if inputs.seen is not None:
            rows.append(inputs.seen_row + self.pairs.variable)
            owner.append(self.pairs.slot)
            coefficients.append(p.constants)
        if inputs.seen is not None and maximum:
            rows.append(inputs.unseen_row + self.pairs.variable)
            owner.append(self.pairs.slot)
            coefficients.append(_log_modes(p))
        if self.block[0]:  # keep the entries of a slot together
            by_slot = [c.view(self.folds, -1, self.units) for c in coefficients]
            return (
                torch.cat([r.view(self.folds, -1) for r in rows], 1).flatten(),
                owner[0],
                torch.cat(by_slot, 1).flatten(0, 1),
            )
        return torch.cat(rows), torch.cat(owner), torch.cat(coefficients)

    def _flat(
        self, rows: Tensor, owner: Tensor, coefficients: Tensor, matrix: Tensor, out: Tensor
    ) -> None:
        if self.folds * self.units * len(matrix) <= self.limits.dense:
            dense = torch.zeros(self.folds, len(matrix), self.units, dtype=out.dtype)
            dense.index_put_((owner, rows), coefficients, accumulate=True)
            wide = dense.transpose(1, 2).reshape(-1, len(matrix))
            torch.mm(wide, matrix, out=out.view(len(wide), -1))
            return
        out.zero_()
        for a, b in self.chunks(len(rows), self.units * out.shape[2]):
            terms = coefficients[a:b, :, None] * matrix.index_select(0, rows[a:b])[:, None]
            out.index_add_(0, owner[a:b], terms)

    # ------------------------------------------------------------------ downward

    def downward(self, p: LeafValues, state: BatchState, gradient: Tensor) -> LeafCounts:
        flow, inputs = self.rows_in(gradient), state.inputs
        sums = self._pull(flow, inputs.matrix, self.entry_row, self.entry_slot, self.block[0])
        if inputs.seen is None:
            return LeafCounts(sums, flow.sum(2)[self.pairs.slot])
        rows = inputs.seen_row + self.pairs.variable
        seen = self._pull(flow, inputs.matrix, rows, self.pairs.slot, self.block[1])
        return LeafCounts(sums, seen)

    def _pull(
        self, flow: Tensor, matrix: Tensor, rows: Tensor, owner: Tensor, width: int
    ) -> Tensor:
        """Σ over the batch of gradient · T, (entries, units)."""
        pulled = torch.empty(len(rows), self.units, dtype=flow.dtype)
        if width:
            shaped = pulled.view(self.folds, width, self.units)
            for a, b in self.chunks(self.folds, width * flow.shape[2]):
                read = matrix.index_select(0, rows[a * width : b * width]).view(b - a, width, -1)
                torch.bmm(read, flow[a:b].transpose(1, 2), out=shaped[a:b])
            return pulled
        for a, b in self.chunks(len(rows), self.units * flow.shape[2]):
            read = matrix.index_select(0, rows[a:b])[:, :, None]  # (entries, batch, 1)
            pulled[a:b] = torch.bmm(flow.index_select(0, owner[a:b]), read)[:, :, 0]
        return pulled

    def maximise(
        self, counts: LeafCounts, p: LeafValues, frames: Frames, rules: Rules
    ) -> LeafValues:
        parts = tuple(self._maximised(part, counts, frames, rules) for part in p.parts)
        return self.from_parts(parts, frames, p.coefficients.dtype)

    def _maximised(
        self, part: FamilyPart, counts: LeafCounts, frames: Frames, rules: Rules
    ) -> FamilyPart:
        rule = rules.get(part.rule.name, part.rule)
        assert isinstance(rule, LinearFamily)
        first = self.first[part.pairs]
        sums = torch.stack([counts.sums[first + s] for s in range(self._width(part))])
        count = counts.count[part.pairs].double().cpu().numpy()
        after = rule.maximise(count, sums.double().cpu().numpy(), self.framed(part, frames))
        return replace(part, arrays=self.unframed(part, after, frames)).sound()

    def _width(self, part: FamilyPart) -> int:
        """How many statistics each pair of a part has."""
        at = int(part.pairs[0])
        end = int(self.first[at + 1]) if at + 1 < len(self.first) else len(self.entry_row)
        return end - int(self.first[at])


def _moved(part: FamilyPart, arrays: Arrays, shift: Array, scale: Array) -> Arrays:
    assert isinstance(part.rule, LinearFamily)
    moved = part.rule.affine(arrays, shift, scale)
    assert moved is not None
    return moved


def _log_modes(p: LeafValues) -> Tensor:
    logs = torch.zeros_like(p.constants)
    for part in p.parts:
        logs[part.pairs] = part.log_mode().to(logs)
    return logs

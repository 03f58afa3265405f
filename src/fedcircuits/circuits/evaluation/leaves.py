"""Steps of leaves: linear families as one matrix product, others by their own formula.

Every step offers: pack (parameters by name → values), names (back again), upward, downward (the
additive statistics of EM, which are also the gradient of linear leaves), maximise (the M-step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot, linear_size
from fedcircuits.circuits.evaluation.pairs import Functional, Pairs, Part
from fedcircuits.circuits.evaluation.rows import chunks
from fedcircuits.circuits.evaluation.statistics import Columns, Frame, Inputs
from fedcircuits.circuits.family import (
    Array,
    Arrays,
    Family,
    JointFamily,
    LinearFamily,
    Region,
    Tensors,
)
from fedcircuits.circuits.parameters import Parameters

Frames = Mapping[tuple[str, int], Frame]
Regions = Mapping[int, Region]
Rules = Mapping[str, Family | JointFamily]  # families with settings other than the registered ones
DENSE = 1 << 22  # largest coefficient matrix that is written out


@dataclass(frozen=True, slots=True)
class LeafValues:
    """The packed parameters of a leaf step."""

    parts: tuple[Part, ...]
    coefficients: Tensor  # linear: (entries, units) on rows of T
    constants: Tensor  # linear: (pairs, units), wherever the pair's variable is seen


@dataclass(frozen=True, slots=True)
class LeafCounts:
    """Additive over rows, batches and parties: expected statistics of every pair and unit."""

    sums: Tensor  # linear (entries, units), else (S, pairs, units)
    count: Tensor  # (pairs, units)

    def add(self, other: LeafCounts) -> LeafCounts:
        return LeafCounts(self.sums + other.sums, self.count + other.count)


@dataclass(frozen=True, slots=True)
class LinearStep:
    folds: int
    units: int
    start: int
    block: tuple[int, int]  # entries and pairs of every slot where all are equal, else (0, 0)
    numbers: Tensor  # (folds,)
    pairs: Pairs
    first: Tensor  # (pairs,) first entry of the pair
    entry_row: Tensor  # (entries,) row of T
    entry_slot: Tensor  # (entries,)
    places: Mapping[tuple[str, int], Mapping[int, int]]  # variable → position in its cell

    @classmethod
    def make(
        cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit, columns: Columns
    ) -> LinearStep:
        pairs = Pairs.of(slots, circuit)
        sizes = circuit.schema.variables
        cells = tuple(
            (rule, sizes[int(pairs.variable[start])].size) for _, rule, start in pairs.leaves
        )
        rows: list[int] = []
        first: list[int] = []
        owner: list[int] = []
        places = {c: {v: i for i, v in enumerate(columns.cells[c].variables)} for c in set(cells)}
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

    def from_parts(self, parts: tuple[Part, ...], frames: Frames, dtype: torch.dtype) -> LeafValues:
        arrays = [self.framed(part, frames) for part in parts]
        tensors = [
            {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in found.items()}
            for found in arrays
        ]
        coefficients, constants = self.operand(parts, tensors, frames)
        return LeafValues(parts, coefficients.to(dtype), constants.to(dtype))

    def operand(
        self, parts: tuple[Part, ...], tensors: Sequence[Tensors], frames: Frames
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
                coefficients = coefficients.index_put((first + s,), natural[s])
            frame = self._frame(part, frames)
            if frame is not None:
                constant = constant - torch.from_numpy(np.log(frame[1])).to(constant)
            constants = constants.index_put((part.pairs,), constant)
        return coefficients, constants

    def _frame(self, part: Part, frames: Frames) -> tuple[Array, Array] | None:
        """shift and scale (pairs, 1) of a part, if its family has frames."""
        cell = next(c for c in self.places if self._is(part, c))
        if cell not in frames:
            return None
        at = [self.places[cell][v] for v in self.pairs.variable[part.pairs].tolist()]
        return frames[cell].shift[at][:, None], frames[cell].scale[at][:, None]

    def _is(self, part: Part, cell: tuple[str, int]) -> bool:
        return (
            part.rule.name == cell[0]
            and int(self.pairs.variable[part.pairs[0]]) in self.places[cell]
        )

    def framed(self, part: Part, frames: Frames) -> Arrays:
        """A part's parameters as its frame shows them."""
        frame = self._frame(part, frames)
        return part.arrays if frame is None else _moved(part, part.arrays, *frame)

    def unframed(self, part: Part, arrays: Arrays, frames: Frames) -> Arrays:
        frame = self._frame(part, frames)
        return arrays if frame is None else _moved(part, arrays, -frame[0] / frame[1], 1 / frame[1])

    # ------------------------------------------------------------------ upward

    def upward(
        self, p: LeafValues, inputs: Inputs, out: Tensor, shift: Tensor | None, maximum: bool
    ) -> None:
        """Log-values into out (folds · units, batch)."""
        rows, owner, coefficients = self._operand(p, inputs, maximum)
        if self.block[0]:
            width = len(rows) // self.folds
            weights = coefficients.view(self.folds, width, self.units).transpose(1, 2)
            shaped = out.view(self.folds, self.units, -1)
            for a, b in chunks(self.folds, width * out.shape[1]):
                read = inputs.matrix.index_select(0, rows[a * width : b * width])
                torch.bmm(weights[a:b], read.view(b - a, width, -1), out=shaped[a:b])
        else:
            self._flat(rows, owner, coefficients, inputs.matrix, out)
        if inputs.seen is None:
            total = torch.zeros(self.folds, self.units, dtype=out.dtype)
            total.index_add_(0, self.pairs.slot, p.constants)
            out += total.view(-1, 1)
        if shift is not None:
            out += shift.view(-1, 1)

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
            coefficients.append(self._log_modes(p))
        if len(rows) == 1:
            return rows[0], owner[0], coefficients[0]
        if self.block[0]:  # keep the entries of a slot together
            return (
                torch.cat([r.view(self.folds, -1) for r in rows], 1).flatten(),
                owner[0],
                torch.cat([c.view(self.folds, -1, self.units) for c in coefficients], 1).flatten(
                    0, 1
                ),
            )
        return torch.cat(rows), torch.cat(owner), torch.cat(coefficients)

    def _flat(
        self, rows: Tensor, owner: Tensor, coefficients: Tensor, matrix: Tensor, out: Tensor
    ) -> None:
        if self.folds * self.units * len(matrix) <= DENSE:
            dense = torch.zeros(self.folds, len(matrix), self.units, dtype=out.dtype)
            dense.index_put_((owner, rows), coefficients, accumulate=True)
            torch.mm(dense.transpose(1, 2).reshape(-1, len(matrix)), matrix, out=out)
            return
        shaped = out.view(self.folds, self.units, -1).zero_()
        for a, b in chunks(len(rows), self.units * out.shape[1]):
            terms = coefficients[a:b, :, None] * matrix.index_select(0, rows[a:b])[:, None]
            shaped.index_add_(0, owner[a:b], terms)

    def _log_modes(self, p: LeafValues) -> Tensor:
        logs = torch.zeros_like(p.constants)
        for part in p.parts:
            logs[part.pairs] = log_mode(part).to(logs)
        return logs

    # ------------------------------------------------------------------ downward

    def downward(self, p: LeafValues, inputs: Inputs, gradient: Tensor) -> LeafCounts:
        own = gradient.narrow(0, self.start, self.folds * self.units).view(
            self.folds, self.units, -1
        )
        sums = self._pull(own, inputs.matrix, self.entry_row, self.entry_slot, self.block[0])
        if inputs.seen is None:
            return LeafCounts(sums, own.sum(2)[self.pairs.slot])
        rows = inputs.seen_row + self.pairs.variable
        return LeafCounts(
            sums, self._pull(own, inputs.matrix, rows, self.pairs.slot, self.block[1])
        )

    def _pull(self, own: Tensor, matrix: Tensor, rows: Tensor, owner: Tensor, width: int) -> Tensor:
        """Σ over the batch of gradient · T, (entries, units)."""
        found = torch.empty(len(rows), self.units, dtype=own.dtype)
        if width:
            shaped = found.view(self.folds, width, self.units)
            for a, b in chunks(self.folds, width * own.shape[2]):
                read = matrix.index_select(0, rows[a * width : b * width]).view(b - a, width, -1)
                torch.bmm(read, own[a:b].transpose(1, 2), out=shaped[a:b])
            return found
        for a, b in chunks(len(rows), self.units * own.shape[2]):
            read = matrix.index_select(0, rows[a:b])[:, :, None]  # (entries, batch, 1)
            found[a:b] = torch.bmm(own.index_select(0, owner[a:b]), read)[:, :, 0]
        return found

    def maximise(
        self, counts: LeafCounts, p: LeafValues, frames: Frames, rules: Rules
    ) -> LeafValues:
        parts = tuple(self._maximised(part, counts, frames, rules) for part in p.parts)
        return self.from_parts(parts, frames, p.coefficients.dtype)

    def _maximised(self, part: Part, counts: LeafCounts, frames: Frames, rules: Rules) -> Part:
        rule = rules.get(part.rule.name, part.rule)
        assert isinstance(rule, LinearFamily)
        width = self._width(part)
        sums = torch.stack([counts.sums[self.first[part.pairs] + s] for s in range(width)])
        count = counts.count[part.pairs].double().numpy()
        after = rule.maximise(count, sums.double().numpy(), self.framed(part, frames))
        after = self.unframed(part, after, frames)
        return replace(part, arrays=after)

    def _width(self, part: Part) -> int:
        ends = torch.cat([self.first[1:], torch.tensor([len(self.entry_row)])])
        return int((ends - self.first)[part.pairs[0]])


def _moved(part: Part, arrays: Arrays, shift: Array, scale: Array) -> Arrays:
    assert isinstance(part.rule, LinearFamily)
    moved = part.rule.affine(arrays, shift, scale)
    assert moved is not None
    return moved


def log_mode(part: Part) -> Tensor:
    """log density at the mode, (pairs, units)."""
    tensors = {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in part.arrays.items()}
    return part.rule.log_density(torch.from_numpy(part.rule.mode(part.arrays)), tensors)


@dataclass(frozen=True, slots=True)
class DirectStep:
    """Leaves of one family that is not linear, all of one number of units and variables."""

    folds: int
    units: int
    width: int
    start: int
    numbers: Tensor
    pairs: Pairs  # folds · width, in order

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit) -> DirectStep:
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), int(key[3]), int(key[4]), start, numbers, Pairs.of(slots, circuit))

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> LeafValues:
        return self.from_parts(self.pairs.pack(parameters), frames, dtype)

    def from_parts(self, parts: tuple[Part, ...], frames: Frames, dtype: torch.dtype) -> LeafValues:
        nothing = torch.zeros(0, dtype=dtype)
        return LeafValues(parts, nothing, nothing)

    def log_values(
        self, parts: tuple[Part, ...], tensors: Sequence[Tensors], inputs: Inputs
    ) -> Tensor:
        """(folds · units, batch), differentiable by the tensors (pairs, units, …)."""
        some = next(iter(tensors[0].values()))
        total = some.new_zeros(self.folds, self.units, len(inputs.x))
        for part, values in zip(parts, tensors, strict=True):
            x, seen = self._read(part, 0, len(part.pairs), inputs, some.dtype)
            found = part.rule.log_density(x, {n: v.unsqueeze(2) for n, v in values.items()})
            found = found if seen is None else torch.where(seen, found, 0.0)
            total = total.index_add(0, self.pairs.slot[part.pairs], found)
        return total.flatten(0, 1)

    def _tensors(self, part: Part, a: int, b: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Parameters (pairs, units, 1, …) of some pairs of a part: the 1 is the batch."""
        return {n: torch.from_numpy(v[a:b]).to(dtype).unsqueeze(2) for n, v in part.arrays.items()}

    def upward(
        self, p: LeafValues, inputs: Inputs, out: Tensor, shift: Tensor | None, maximum: bool
    ) -> None:
        out = out.zero_().view(self.folds, self.units, -1)
        for part in p.parts:
            modes = log_mode(part).to(out) if maximum else None
            for a, b in chunks(len(part.pairs), self.units * out.shape[2]):
                x, seen = self._read(part, a, b, inputs, out.dtype)
                found = part.rule.log_density(x, self._tensors(part, a, b, out.dtype))
                if seen is not None:
                    other = 0.0 if modes is None else modes[a:b, :, None]
                    found = torch.where(seen, found, other)
                out.index_add_(0, self.pairs.slot[part.pairs[a:b]], found)
        if shift is not None:
            out += shift.view(self.folds, self.units, 1)

    def _read(
        self, part: Part, a: int, b: int, inputs: Inputs, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """Values (pairs, 1, batch), and where they are seen."""
        variables = self.pairs.variable[part.pairs[a:b]]
        x = inputs.x.t()[variables].to(dtype)[:, None]
        if inputs.seen is None:
            return x, None
        seen = inputs.seen[variables][:, None] > 0
        return torch.where(seen, x, 0.0), seen

    def downward(self, p: LeafValues, inputs: Inputs, gradient: Tensor) -> LeafCounts:
        own = gradient.narrow(0, self.start, self.folds * self.units).view(
            self.folds, self.units, -1
        )
        count = torch.zeros(len(self.pairs.slot), self.units, dtype=own.dtype)
        sums = torch.zeros(0, *count.shape, dtype=own.dtype)
        for part in p.parts:
            for a, b in chunks(len(part.pairs), self.units * own.shape[2]):
                x, seen = self._read(part, a, b, inputs, own.dtype)
                found = part.rule.statistics(x, self._tensors(part, a, b, own.dtype))
                weight = own[self.pairs.slot[part.pairs[a:b]]]
                weight = weight if seen is None else weight * seen
                if len(found) > len(sums):
                    more = torch.zeros(len(found) - len(sums), *count.shape, dtype=own.dtype)
                    sums = torch.cat([sums, more])
                sums[: len(found), part.pairs[a:b]] = (found * weight).sum(3)
                count[part.pairs[a:b]] = weight.sum(2)
        return LeafCounts(sums, count)

    def maximise(
        self, counts: LeafCounts, p: LeafValues, frames: Frames, rules: Rules
    ) -> LeafValues:
        parts = []
        for part in p.parts:
            rule = rules.get(part.rule.name, part.rule)
            assert isinstance(rule, Family)
            one = {n: torch.from_numpy(a[:1, :1, None]) for n, a in part.arrays.items()}
            width = len(rule.statistics(torch.zeros(1, 1, 1, dtype=torch.float64), one))
            count, sums = counts.count[part.pairs], counts.sums[:width, part.pairs]
            after = rule.maximise(count.double().numpy(), sums.double().numpy(), part.arrays)
            parts.append(replace(part, arrays=after))
        return replace(p, parts=tuple(parts))


def by_name(p: LeafValues) -> dict[str, Arrays]:
    """Packed parameters back under the names of their leaves, (units, variables, …)."""
    found: dict[str, Arrays] = {}
    for part in p.parts:
        at = 0
        for name, width in part.leaves:
            found[name] = {n: a[at : at + width].swapaxes(0, 1) for n, a in part.arrays.items()}
            at += width
    return found


def average(
    step: LinearStep | DirectStep,
    p: LeafValues,
    gradient: Tensor,
    variable: int,
    functional: Functional,
) -> Tensor | int:
    shape = (step.folds, step.units, -1)
    own = gradient.narrow(0, step.start, step.folds * step.units).view(shape)
    return step.pairs.average(p.parts, own, variable, functional)

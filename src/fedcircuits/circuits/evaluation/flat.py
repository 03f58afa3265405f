"""A program and its parameters as one list of rows, for the compiled executor (kernel.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import kernel
from fedcircuits.circuits.evaluation.direct import DirectStep, JointStep
from fedcircuits.circuits.evaluation.forests import Codes, Tables, tables
from fedcircuits.circuits.evaluation.inner_nodes import ProductStep, SumStep, sound
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafValues, LinearStep
from fedcircuits.circuits.evaluation.statistics import Inputs

if TYPE_CHECKING:
    from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
FEW = 3  # units up to which a compiled loop beats batched products


@dataclass(frozen=True, slots=True)
class FlatBlock:
    """The entries of one step: for each the row it belongs to, what it reads, and its value."""

    owner: Ints
    reads: Ints
    values: Array
    source: Ints  # position in the step's packed tensor, −1 for none


@dataclass(frozen=True, slots=True)
class Flat:
    kind: npt.NDArray[np.int8]
    ptr: Ints
    idx: Ints  # leaves: row of the statistics; else: row of the list
    placed: Ints  # the same with places instead of rows
    val: npt.NDArray[np.floating]
    const: npt.NDArray[np.floating]
    place: Ints
    places: int
    source: Ints  # (entries,) step and position, as offset[step] + position
    row: Ints  # (rows,) row of the value matrix
    branches: Ints  # of trees that are looked up (forests.py), (branches, 4)
    table: npt.NDArray[np.floating]


def suits(program: CircuitProgram, trees: frozenset[str] = frozenset()) -> bool:
    """Whether the compiled executor takes this program: no outer products, few units; in trees,
    which it looks up, anything."""
    kinds = LinearStep | DirectStep | JointStep | ProductStep | SumStep
    pairs = zip(program.steps, program.layout.groups, strict=True)
    return all(
        (isinstance(s, kinds) and s.units <= FEW) or all(slot.name in trees for slot in slots)
        for s, (_, slots) in pairs
    )


def flatten(
    program: CircuitProgram, packed: Packed, masked: bool, trees: Tables | None = None
) -> Flat:
    """masked: constants of leaves as coefficients on the rows that say what is seen; trees: what
    stands in for the trees of complete rows."""
    rows = program.layout.rows
    kind = np.full(rows, kernel.PRODUCT, np.int8)
    tiny = kernel.TINY[np.dtype(np.float32 if program.dtype == torch.float32 else np.float64)]
    const = np.zeros(rows)
    blocks, offset = [], 0
    extra = program.columns.rows + (2 * program.columns.variables if masked else 0)
    for step, values in needed(program, packed, trees):
        if isinstance(step, LinearStep) and isinstance(values, LeafValues):
            block = _linear(step, values, const, program.columns.rows, masked)
            kind[step.start : step.start + step.folds * step.units] = kernel.LEAF
        elif isinstance(step, ProductStep):
            block = _product(step)
        elif isinstance(step, SumStep) and isinstance(values, Tensor):
            block = _sum(step, values)
            kind[step.start : step.start + step.folds * step.units] = kernel.SUM
            kind[block.owner[block.values < tiny]] = kernel.EXACT
        else:
            assert isinstance(step, DirectStep | JointStep)
            numbers = np.arange(step.start, step.start + step.folds * step.units)
            block = FlatBlock(
                numbers,
                extra + np.arange(len(numbers)),
                np.ones(len(numbers)),
                np.full(len(numbers), -1),
            )
            kind[numbers] = kernel.LEAF
            extra += len(numbers)
        shifted = np.where(block.source >= 0, block.source + offset, -1)
        blocks.append(FlatBlock(block.owner, block.reads, block.values, shifted))
        offset += _size(step, values)
    if trees is not None:
        blocks = _looked_up(program, trees, kind, blocks)
    return _ordered(program, kind, const, blocks, trees)


def needed(
    program: CircuitProgram, packed: Packed, trees: Tables | None
) -> list[tuple[object, object]]:
    """The steps and their parameters, without those that only rows inside trees need."""
    inside = frozenset() if trees is None else program.forests.members
    return [
        (step, values)
        for step, values, (_, slots) in zip(
            program.steps, packed.values, program.layout.groups, strict=True
        )
        if not all(slot.name in inside for slot in slots)
    ]


def _looked_up(
    program: CircuitProgram, trees: Tables, kind: npt.NDArray[np.int8], blocks: list[FlatBlock]
) -> list[FlatBlock]:
    """The units of tops read branches, nothing else."""
    units = [
        (program.layout.row[name] + k, span)
        for name, spans in trees.spans.items()
        for k, span in enumerate(spans)
    ]
    rows = np.array([row for row, _ in units])
    kind[rows] = kernel.FOREST
    rest = []
    for b in blocks:
        kept = ~np.isin(b.owner, rows)
        rest.append(FlatBlock(b.owner[kept], b.reads[kept], b.values[kept], b.source[kept]))
    owner = np.repeat(rows, [len(span) for _, span in units])
    reads = np.concatenate([span for _, span in units])
    return [*rest, FlatBlock(owner, reads, np.ones(len(owner)), np.full(len(owner), -1))]


def _size(step: object, values: object) -> int:
    """How many derivatives a step has room for: coefficients and constants, or weights."""
    if isinstance(step, LinearStep) and isinstance(values, LeafValues):
        return values.coefficients.numel() + values.constants.numel()
    return values.numel() if isinstance(values, Tensor) else 0


def _linear(
    step: LinearStep, p: LeafValues, const: Array, seen_row: int, masked: bool
) -> FlatBlock:
    slots, rows = [step.entry_slot.numpy()], [step.entry_row.numpy()]
    values, k = [p.coefficients.double().numpy()], step.units
    if masked:
        slots.append(step.pairs.slot.numpy())
        rows.append(seen_row + step.pairs.variable.numpy())
        values.append(p.constants.double().numpy())
    constants = const[step.start : step.start + step.folds * k]
    for part in (None if masked else step.constant(p), p.shift):
        constants += 0.0 if part is None else part.double().numpy().reshape(-1)
    slot, read, value = np.concatenate(slots), np.concatenate(rows), np.concatenate(values)
    owner = step.start + slot[:, None] * k + np.arange(k)
    source = np.arange(value.size).reshape(value.shape)
    return FlatBlock(owner.reshape(-1), np.repeat(read, k), value.reshape(-1), source.reshape(-1))


def _product(step: ProductStep) -> FlatBlock:
    reads = step.rows.index.numpy().reshape(step.arity, -1)
    owner = np.broadcast_to(step.start + np.arange(reads.shape[1]), reads.shape)
    real = reads > 0
    n = int(real.sum())
    return FlatBlock(owner[real], reads[real], np.zeros(n), np.full(n, -1))


def _sum(step: SumStep, weight: Tensor) -> FlatBlock:
    w = sound(weight, step.names).double().numpy()  # (folds, units, inputs)
    reads = step.rows.index.numpy().reshape(step.folds, 1, step.inputs)
    owner = step.start + np.arange(step.folds * step.units).reshape(step.folds, step.units, 1)
    real = w > 0
    return FlatBlock(
        np.broadcast_to(owner, w.shape)[real],
        np.broadcast_to(reads, w.shape)[real],
        w[real],
        np.flatnonzero(real.reshape(-1)),
    )


def _ordered(
    program: CircuitProgram,
    kind: npt.NDArray[np.int8],
    const: Array,
    blocks: list[FlatBlock],
    trees: Tables | None,
) -> Flat:
    owner = np.concatenate([b.owner for b in blocks])
    by_owner = np.argsort(owner, kind="stable")
    reads = np.concatenate([b.reads for b in blocks])[by_owner]
    values = np.concatenate([b.values for b in blocks])[by_owner]
    source = np.concatenate([b.source for b in blocks])[by_owner]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(kind)))])
    order = kernel.depth_first(kind, ptr, reads, program.root)
    position = np.full(len(kind), -1)
    position[order] = np.arange(len(order))
    counts = (ptr[1:] - ptr[:-1])[order]
    starts = np.concatenate([[0], np.cumsum(counts)])
    take = np.repeat(ptr[order] - starts[:-1], counts) + np.arange(starts[-1])
    leaf = np.repeat(np.isin(kind[order], (kernel.LEAF, kernel.FOREST)), counts)
    idx = np.where(leaf, reads[take], position[np.where(leaf, 0, reads[take])])
    place, places = kernel.assign_places(kind[order], starts, idx)
    placed = np.where(leaf, idx, place[np.where(leaf, 0, idx)])
    dtype = np.float32 if program.dtype == torch.float32 else np.float64
    return Flat(
        kind[order], starts, idx, placed, values[take].astype(dtype), const[order].astype(dtype),
        place, int(places), source[take], order,
        np.zeros((0, 4), np.int64) if trees is None else trees.branches,
        np.zeros(0, dtype) if trees is None else trees.logs.astype(dtype),
    )  # fmt: skip


def trees_of(program: CircuitProgram, packed: Packed) -> Tables | None:
    """What complete rows look up, if the circuit has trees and all else is for the executor."""
    weights: dict[str, Array] = {}
    codes: dict[str, Array] = {}
    for step, values in zip(program.steps, packed.values, strict=True):
        if isinstance(step, SumStep) and isinstance(values, Tensor):
            for i, (name, used) in enumerate(zip(step.names, step.used, strict=True)):
                if name in program.forests.limbs:
                    weights[name] = values[i, :, :used].double().numpy()
        elif isinstance(step, DirectStep) and isinstance(values, LeafValues):
            for part in values.parts:
                if part.rule.name == "indicator":
                    arrays = step.unpack(replace(values, parts=(part,)))
                    codes |= {n: a["code"] for n, a in arrays.items() if n in program.forests.forks}
    return tables(program.forests, program.circuit, weights, codes)


# ---------------------------------------------------------------------- running


def _bits(flat: Flat) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.floating]]:
    """Scratch space, as integers and as floating point."""
    single = flat.val.dtype == np.float32
    bits: npt.NDArray[np.integer] = np.zeros(kernel.BLOCK, np.int32 if single else np.int64)
    return bits, bits.view(np.float32 if single else np.float64)


def log_values(
    flat: Flat, matrix: npt.NDArray[np.floating], codes: Codes | None = None
) -> npt.NDArray[np.floating]:
    """codes (columns, batch): of complete rows, where trees are looked up."""
    out = np.empty(matrix.shape[1], matrix.dtype)
    codes = np.zeros((0, matrix.shape[1]), np.int32) if codes is None else codes
    kernel.upward(
        flat.kind, flat.place, flat.places, flat.ptr, flat.placed, flat.val, flat.const,
        matrix, *_bits(flat), (flat.branches, flat.table, codes), out,
    )  # fmt: skip
    return out


def counts(
    flat: Flat, program: CircuitProgram, packed: Packed, inputs: Inputs, weight: Tensor
) -> tuple[float, tuple[LeafCounts | Tensor | None, ...]]:
    """EM's statistics by step, as the other executor gives them."""
    masked = inputs.seen is not None
    d_val, d_const = np.zeros(len(flat.val)), np.zeros(len(flat.kind))
    objective = kernel.downward(
        flat.kind, flat.ptr, flat.idx, flat.val, flat.const, inputs.matrix.contiguous().numpy(),
        weight.numpy(), *_bits(flat), d_val, d_const,
    )  # fmt: skip
    sizes = [_size(s, v) for s, v in zip(program.steps, packed.values, strict=True)]
    gathered = np.zeros(sum(sizes))
    known = flat.source >= 0
    gathered[flat.source[known]] = d_val[known]
    by_row = np.zeros(program.layout.rows)
    by_row[flat.row] = d_const
    counts_of_steps: list[LeafCounts | Tensor | None] = []
    at = 0
    for step, values, size in zip(program.steps, packed.values, sizes, strict=True):
        mine, at = gathered[at : at + size], at + size
        if isinstance(step, LinearStep) and isinstance(values, LeafValues):
            counts_of_steps.append(_leaf_counts(step, values, mine, by_row, masked))
        elif isinstance(values, Tensor):
            counts_of_steps.append(torch.from_numpy(mine).view(values.shape).mul(values))
        else:
            counts_of_steps.append(None)
    return objective, tuple(counts_of_steps)


def _leaf_counts(
    step: LinearStep, p: LeafValues, mine: Array, by_row: Array, masked: bool
) -> LeafCounts:
    entries = p.coefficients.numel()
    sums = torch.from_numpy(mine[:entries]).view(p.coefficients.shape)
    if masked:
        return LeafCounts(sums, torch.from_numpy(mine[entries:]).view(p.constants.shape))
    rows = by_row[step.start : step.start + step.folds * step.units].reshape(step.folds, step.units)
    return LeafCounts(sums, torch.from_numpy(rows)[step.pairs.slot])

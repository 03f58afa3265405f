"""Steps of product nodes: sums of logarithms, elementwise or of all pairs of units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot, ValueRows
from fedcircuits.circuits.evaluation.step import BatchState, Descent, Frames, Step
from fedcircuits.circuits.graph.family import Arrays
from fedcircuits.circuits.graph.parameters import Parameters


class _AnyProduct(Step[None, None]):
    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> None:
        return None

    def unpack(self, p: None) -> dict[str, Arrays]:
        return {}


@dataclass(frozen=True)
class ProductStep(_AnyProduct):
    folds: int
    units: int
    start: int
    arity: int
    rows: ValueRows  # (arity, folds, units); row 0 fills up
    numbers: Tensor  # (folds,) of the slots
    children: Tensor  # (folds, arity) numbers of the slots read, 0 for filling

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> ProductStep:
        units, arity = int(key[2]), int(key[3])
        reads: list[list[str]] = [[*s.reads, *[""] * (arity - len(s.reads))] for s in slots]
        rows = [
            layout.row[r[i]] + k if r[i] else 0
            for i in range(arity)
            for r in reads
            for k in range(units)
        ]
        children = torch.tensor([[layout.number[c] if c else 0 for c in r] for r in reads])
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), units, start, arity, ValueRows.of(rows), numbers, children)

    def upward(self, p: None, state: BatchState) -> None:
        read = self.rows.read(state.values, self.arity, self.folds, self.units)
        torch.sum(read, 0, out=self.rows_in(state.values))

    def downward(self, p: None, state: BatchState, gradient: Tensor) -> None:
        flow = self.rows_in(gradient)
        self.rows.add(gradient, flow.expand(self.arity, *flow.shape))

    def choose(self, p: None, state: BatchState, choice: Descent) -> None:
        fold, column, unit = choice.active(self.numbers)
        for i in range(self.arity):
            choice.set(self.children[fold, i], column, unit)
        choice.chosen[0] = -1


@dataclass(frozen=True)
class OuterStep(_AnyProduct):
    folds: int
    units: int  # of the product: left · right
    start: int
    sides: tuple[int, int]  # units of left and right
    left: ValueRows  # (folds, left units)
    right: ValueRows
    numbers: Tensor  # (folds,)
    children: Tensor  # (folds, 2)

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> OuterStep:
        sides = (int(key[3]), int(key[4]))
        rows = [
            ValueRows.of([layout.row[s.reads[i]] + k for s in slots for k in range(sides[i])])
            for i in (0, 1)
        ]
        children = torch.tensor([[layout.number[c] for c in s.reads] for s in slots])
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), int(key[2]), start, sides, rows[0], rows[1], numbers, children)

    def _pairs(self, matrix: Tensor) -> Tensor:
        return self.rows_in(matrix).view(self.folds, *self.sides, -1)

    def upward(self, p: None, state: BatchState) -> None:
        left = self.left.read(state.values, self.folds, self.sides[0], 1)
        right = self.right.read(state.values, self.folds, 1, self.sides[1])
        torch.add(left, right, out=self._pairs(state.values))

    def downward(self, p: None, state: BatchState, gradient: Tensor) -> None:
        flow = self._pairs(gradient)  # (folds, left, right, batch)
        self.left.add(gradient, flow.sum(2))
        self.right.add(gradient, flow.sum(1))

    def choose(self, p: None, state: BatchState, choice: Descent) -> None:
        fold, column, unit = choice.active(self.numbers)
        choice.set(self.children[fold, 0], column, unit // self.sides[1])
        choice.set(self.children[fold, 1], column, unit % self.sides[1])

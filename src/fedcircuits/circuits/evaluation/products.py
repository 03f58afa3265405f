"""Steps of product nodes: sums of logarithms, elementwise or of all pairs of units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.rows import Rows


@dataclass(frozen=True, slots=True)
class ProductStep:
    folds: int
    units: int
    arity: int
    start: int  # first row written
    rows: Rows  # (arity, folds, units)
    numbers: Tensor  # (folds,) of the slots
    children: Tensor  # (folds, arity) numbers of the slots read, 0 for filling

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> ProductStep:
        units, arity = int(key[2]), int(key[3])
        reads = [[*s.reads, *[None] * (arity - len(s.reads))] for s in slots]
        rows = [
            layout.row[r[i]] + k if r[i] else 0
            for i in range(arity)
            for r in reads
            for k in range(units)
        ]
        children = torch.tensor([[layout.number[c] if c else 0 for c in r] for r in reads])
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), units, arity, start, Rows.of(rows), numbers, children)

    def upward(self, values: Tensor) -> None:
        out = values.narrow(0, self.start, self.folds * self.units)
        torch.sum(self.rows.read(values, self.arity, -1), 0, out=out)

    def downward(self, gradient: Tensor) -> None:
        own = gradient.narrow(0, self.start, self.folds * self.units)
        self.rows.add(gradient, own.expand(self.arity, *own.shape))

    def choose(self, chosen: Tensor) -> None:
        """Pass the chosen unit (slots, batch; −1 is none) on to all children."""
        mine = chosen[self.numbers]  # (folds, batch)
        for i in range(self.arity):
            active = mine >= 0
            fold, column = torch.nonzero(active, as_tuple=True)
            chosen[self.children[fold, i], column] = mine[fold, column]
        chosen[0] = -1


@dataclass(frozen=True, slots=True)
class OuterStep:
    folds: int
    units: tuple[int, int]  # left, right
    start: int
    left: Rows  # (folds, units[0])
    right: Rows  # (folds, units[1])
    numbers: Tensor  # (folds,)
    children: Tensor  # (folds, 2)

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> OuterStep:
        units = (int(key[3]), int(key[4]))
        sides = [
            Rows.of([layout.row[s.reads[i]] + k for s in slots for k in range(units[i])])
            for i in (0, 1)
        ]
        children = torch.tensor([[layout.number[c] for c in s.reads] for s in slots])
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), units, start, sides[0], sides[1], numbers, children)

    def _pairs(self, matrix: Tensor) -> Tensor:
        size = self.folds * self.units[0] * self.units[1]
        return matrix.narrow(0, self.start, size).view(self.folds, *self.units, -1)

    def upward(self, values: Tensor) -> None:
        left = self.left.read(values, self.folds, self.units[0], 1)
        right = self.right.read(values, self.folds, 1, self.units[1])
        torch.add(left, right, out=self._pairs(values))

    def downward(self, gradient: Tensor) -> None:
        own = self._pairs(gradient)  # (folds, left, right, batch)
        self.left.add(gradient, own.sum(2))
        self.right.add(gradient, own.sum(1))

    def choose(self, chosen: Tensor) -> None:
        mine = chosen[self.numbers]
        fold, column = torch.nonzero(mine >= 0, as_tuple=True)
        unit = mine[fold, column]
        chosen[self.children[fold, 0], column] = unit // self.units[1]
        chosen[self.children[fold, 1], column] = unit % self.units[1]

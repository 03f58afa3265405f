"""Steps of sum nodes: matrix products in linear space after subtracting the maximum.

With E = exp(children − max) a sum is log(W E) + max. Weights of zero on the largest child can make
W E underflow; then, and only then, the same is computed in log space, exactly.

The downward pass takes d objective / d log-value and gives W's share of it: for an objective of
summed log-likelihoods, W · dW are the expected counts of EM, and the gradient of a child's rows is
the posterior of its units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.rows import Rows, chunks
from fedcircuits.circuits.family import IMPOSSIBLE, log_of

Choose = Callable[[Tensor], Tensor]  # (n, options) log scores -> (n,) options


def _log_mix(weight: Tensor, scaled: Tensor, top: Tensor, exact: Callable[[], Tensor]) -> Tensor:
    """log(W E) + max, (folds, units, batch)."""
    if weight.shape[1] == 1 and weight.shape[2] < 32:
        mixed = torch.sum(weight[:, 0, :, None] * scaled, 1, keepdim=True)
    else:
        mixed = torch.bmm(weight, scaled)
    if float(mixed.min()) < _tiny(mixed):
        return torch.where(mixed < _tiny(mixed), exact(), torch.log(mixed) + top)
    return mixed.log_().add_(top)


def _tiny(values: Tensor) -> float:
    return 1e-30 if values.dtype == torch.float32 else 1e-290


def _log_space(weight: Tensor, children: Tensor) -> Tensor:
    joint = log_of(weight)[..., None] + children[:, None]  # (folds, units, inputs, batch)
    return torch.logsumexp(joint, 2).clamp_min(IMPOSSIBLE)


def _maximum(weight: Tensor, children: Tensor) -> Tensor:
    return torch.amax(log_of(weight)[..., None] + children[:, None], 2)


def _shares(
    weight: Tensor,
    scaled: Tensor,
    top: Tensor,
    out: Tensor,
    own: Tensor,
    children: Callable[[], Tensor],
) -> tuple[Tensor, Tensor]:
    """d objective / d weight, and the posterior share of every input (folds, inputs, batch)."""
    gap = top - out
    if float(gap.max()) > 60.0:  # the mix underflowed somewhere: posterior in log space
        below = children()
        ratio = torch.exp(below[:, None] - out[:, :, None])  # (folds, units, inputs, batch)
        ratio = torch.where(out[:, :, None] > IMPOSSIBLE / 2, ratio, 0.0).clamp_max(1e30)
        pulled = torch.nan_to_num(ratio * own[:, :, None], posinf=0.0, neginf=0.0)
        return pulled.sum(3), (weight[..., None] * pulled).sum(1)
    scale = torch.exp_(gap).mul_(own)  # (folds, units, batch)
    d_weight = torch.bmm(scale, scaled.transpose(1, 2))
    if weight.shape[1] == 1:
        return d_weight, (weight.transpose(1, 2) * scale).mul_(scaled)
    return d_weight, torch.bmm(weight.transpose(1, 2), scale).mul_(scaled)


@dataclass(frozen=True, slots=True)
class SumStep:
    folds: int
    units: int
    inputs: int
    start: int
    names: tuple[str, ...]
    used: tuple[int, ...]  # inputs of each fold before filling up
    rows: Rows  # (folds, inputs); filled up with an own child, at weight 0
    numbers: Tensor  # (folds,)
    children: Tensor  # (folds, inputs) number of the slot of each input
    child_units: Tensor  # (folds, inputs) its unit

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, units: dict[str, int]) -> SumStep:
        inputs = int(key[3])
        flat = [[(c, u) for c in s.reads for u in range(units[c])] for s in slots]
        used = tuple(len(f) for f in flat)
        full = [f + [f[0]] * (inputs - len(f)) for f in flat]
        return cls(
            len(slots), int(key[2]), inputs, layout.row[slots[0].name],
            tuple(s.name for s in slots), used,
            Rows.of([layout.row[c] + u for f in full for c, u in f]),
            torch.tensor([layout.number[s.name] for s in slots]),
            torch.tensor([[layout.number[c] for c, _ in f] for f in full]),
            torch.tensor([[u for _, u in f] for f in full]),
        )  # fmt: skip

    def upward(self, weight: Tensor, values: Tensor, maximum: bool = False) -> None:
        batch = values.shape[1]
        out = values.narrow(0, self.start, self.folds * self.units).view(self.folds, self.units, -1)
        for a, b in chunks(self.folds, batch * self.inputs * (self.units if maximum else 1)):
            below, w = self._children(values, a, b), weight[a:b]
            if maximum:
                out[a:b] = _maximum(w, below)
                continue
            top = below.amax(1, keepdim=True)
            scaled = torch.exp_(below - top)
            out[a:b] = _log_mix(w, scaled, top, lambda w=w, x=below: _log_space(w, x))

    def downward(self, weight: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        batch = values.shape[1]
        d_weight = torch.empty_like(weight)
        out = values.narrow(0, self.start, self.folds * self.units).view(self.folds, self.units, -1)
        own = gradient.narrow(0, self.start, self.folds * self.units).view(out.shape)
        for a, b in chunks(self.folds, batch * self.inputs):
            below = self._children(values, a, b)
            top = below.amax(1, keepdim=True)
            scaled = torch.exp_(below - top)
            d_weight[a:b], share = _shares(
                weight[a:b], scaled, top, out[a:b], own[a:b], lambda x=below: x
            )
            self.rows.part(a * self.inputs, b * self.inputs).add(gradient, share)
        return d_weight

    def _children(self, values: Tensor, a: int, b: int) -> Tensor:
        return self.rows.part(a * self.inputs, b * self.inputs).read(values, b - a, self.inputs)

    def choose(self, weight: Tensor, values: Tensor, chosen: Tensor, choose: Choose) -> None:
        mine = chosen[self.numbers]
        fold, column = torch.nonzero(mine >= 0, as_tuple=True)
        if len(fold) == 0:
            return
        below = values[self.rows.index.view(self.folds, -1)[fold], column[:, None]]
        option = choose(log_of(weight[fold, mine[fold, column].long()]) + below)
        chosen[self.children[fold, option], column] = self.child_units[fold, option].to(
            chosen.dtype
        )


@dataclass(frozen=True, slots=True)
class OuterSumStep:
    """A sum over outer products (partitions) of left and right children, all of one shape."""

    folds: int
    units: int
    partitions: int
    sides: tuple[int, int]  # units of left and right children
    start: int
    names: tuple[str, ...]
    left: Rows  # (folds, partitions, left units)
    right: Rows
    numbers: Tensor  # (folds,)
    lefts: Tensor  # (folds, partitions) numbers of the slots read
    rights: Tensor

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> OuterSumStep:
        sides, m = (int(key[3]), int(key[4])), int(key[5])
        reads = [[s.reads[:m] for s in slots], [s.reads[m:] for s in slots]]
        rows = [
            Rows.of([layout.row[c] + k for r in reads[i] for c in r for k in range(sides[i])])
            for i in (0, 1)
        ]
        numbers = [torch.tensor([[layout.number[c] for c in r] for r in reads[i]]) for i in (0, 1)]
        own = torch.tensor([layout.number[s.name] for s in slots])
        return cls(
            len(slots), int(key[2]), m, sides, layout.row[slots[0].name],
            tuple(s.name for s in slots), rows[0], rows[1], own, numbers[0], numbers[1],
        )  # fmt: skip

    @property
    def inputs(self) -> int:
        return self.partitions * self.sides[0] * self.sides[1]

    def _sides(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]:
        n, m = self.partitions * self.sides[0], self.partitions * self.sides[1]
        left = self.left.part(a * n, b * n).read(values, b - a, self.partitions, self.sides[0])
        right = self.right.part(a * m, b * m).read(values, b - a, self.partitions, self.sides[1])
        return left, right

    @staticmethod
    def _joint(left: Tensor, right: Tensor) -> Tensor:
        """Log-values of all pairs, (folds, inputs, batch)."""
        return (left[:, :, :, None] + right[:, :, None]).flatten(1, 3)

    def _scaled(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """exp of all pairs less their maximum (folds, inputs, batch), and that maximum."""
        top_left, top_right = left.amax(2, keepdim=True), right.amax(2, keepdim=True)
        top = top_left + top_right
        if self.partitions == 1:
            first = torch.exp_(left - top_left)
        else:
            top = top.amax(1, keepdim=True)
            first = torch.exp_(left + (top_right - top))
        second = torch.exp_(right - top_right)
        pairs = first[:, :, :, None] * second[:, :, None]
        return pairs.view(len(left), self.inputs, -1), top.view(len(left), 1, -1)

    def upward(self, weight: Tensor, values: Tensor, maximum: bool = False) -> None:
        batch = values.shape[1]
        out = values.narrow(0, self.start, self.folds * self.units).view(self.folds, self.units, -1)
        for a, b in chunks(self.folds, batch * self.inputs * (self.units if maximum else 1)):
            (left, right), w = self._sides(values, a, b), weight[a:b]
            if maximum:
                out[a:b] = _maximum(w, self._joint(left, right))
                continue
            scaled, top = self._scaled(left, right)
            out[a:b] = _log_mix(
                w, scaled, top, lambda w=w, x=left, y=right: _log_space(w, self._joint(x, y))
            )

    def downward(self, weight: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        batch = values.shape[1]
        d_weight = torch.empty_like(weight)
        out = values.narrow(0, self.start, self.folds * self.units).view(self.folds, self.units, -1)
        own = gradient.narrow(0, self.start, self.folds * self.units).view(out.shape)
        n, m = self.partitions * self.sides[0], self.partitions * self.sides[1]
        for a, b in chunks(self.folds, 2 * batch * self.inputs):
            left, right = self._sides(values, a, b)
            scaled, top = self._scaled(left, right)
            d_weight[a:b], share = _shares(
                weight[a:b], scaled, top, out[a:b], own[a:b],
                lambda x=left, y=right: self._joint(x, y),
            )  # fmt: skip
            pairs = share.view(b - a, self.partitions, *self.sides, batch)
            self.left.part(a * n, b * n).add(gradient, pairs.sum(3))
            self.right.part(a * m, b * m).add(gradient, pairs.sum(2))
        return d_weight

    def choose(self, weight: Tensor, values: Tensor, chosen: Tensor, choose: Choose) -> None:
        mine = chosen[self.numbers]
        fold, column = torch.nonzero(mine >= 0, as_tuple=True)
        if len(fold) == 0:
            return
        left, right = (
            values[rows.index.view(self.folds, -1)[fold], column[:, None]].view(
                len(fold), self.partitions, -1
            )
            for rows in (self.left, self.right)
        )
        pairs = (left[:, :, :, None] + right[:, :, None]).flatten(1)
        option = choose(log_of(weight[fold, mine[fold, column].long()]) + pairs)
        size = self.sides[0] * self.sides[1]
        partition, pair = option // size, option % size
        chosen[self.lefts[fold, partition], column] = (pair // self.sides[1]).to(chosen.dtype)
        chosen[self.rights[fold, partition], column] = (pair % self.sides[1]).to(chosen.dtype)

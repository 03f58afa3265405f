"""Steps of inner nodes. Products are sums of logarithms, elementwise or of all pairs of units. What
adding up means in a sum on the way up is an argument (arithmetic.py).

The downward pass of a sum takes d objective / d log-value and gives W's share of it: for an
objective of summed log-likelihoods, W · dW are the expected counts of EM, and the gradient of a
child's rows is the posterior of its units.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import weight_kernel
from fedcircuits.circuits.evaluation.arithmetic import tiny
from fedcircuits.circuits.evaluation.devices import CPU, NUMPY, empty
from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot, ValueRows
from fedcircuits.circuits.evaluation.step import BatchState, Descent, Frames, Rules, Step
from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array, Arrays, log_of
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import ParameterError


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


FAR = 60.0  # nats below the largest child at which the linear path is given up


class _AnySum(Step[Tensor, Tensor]):
    """What sums over any children share; W is (folds, units, inputs)."""

    inputs: int
    names: tuple[str, ...]
    used: tuple[int, ...]  # inputs of each fold before filling up

    @abstractmethod
    def log_children(self, values: Tensor, a: int, b: int) -> Tensor:
        """(folds a to b, inputs, batch)."""

    @abstractmethod
    def scaled_children(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]:
        """exp(children − top) (folds, inputs, batch), and top (folds, 1, batch)."""

    @abstractmethod
    def add_shares(self, gradient: Tensor, a: int, b: int, share: Tensor) -> None:
        """Give every input its share (folds, inputs, batch) of the gradient."""

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> Tensor:
        weight = np.zeros((self.folds, self.units, self.inputs))
        for i, (name, used) in enumerate(zip(self.names, self.used, strict=True)):
            weight[i, :, :used] = parameters[name][WEIGHT]
        rounded = torch.as_tensor(weight).to(dtype)
        lost = torch.as_tensor(weight > 0) & (rounded == 0)  # impossible is another thing
        return sound(rounded.masked_fill_(lost, torch.finfo(dtype).tiny), self.names)

    def unpack(self, p: Tensor) -> dict[str, Arrays]:
        used = zip(self.names, self.used, strict=True)
        return {name: {WEIGHT: _normalised(p[i, :, :n])} for i, (name, n) in enumerate(used)}

    def upward(self, p: Tensor, state: BatchState) -> None:
        state.arithmetic.mix(self, p, state.values)

    def downward(self, p: Tensor, state: BatchState, gradient: Tensor) -> Tensor:
        values, out, flow = state.values, self.rows_in(state.values), self.rows_in(gradient)
        shares = torch.empty_like(p)
        for a, b in self.chunks(self.folds, 2 * values.shape[1] * self.inputs):
            scaled, top = self.scaled_children(values, a, b)
            gap = top - out[a:b]
            if float(gap.max()) > FAR:
                below = self.log_children(values, a, b)
                shares[a:b], share = _log_space_shares(p[a:b], below, out[a:b], flow[a:b])
            else:
                scale = torch.exp_(gap).mul_(flow[a:b])  # (folds, units, batch)
                torch.bmm(scale, scaled.transpose(1, 2), out=shares[a:b])
                pulled = p[a:b].transpose(1, 2)
                narrow = self.units == 1
                share = (pulled * scale if narrow else torch.bmm(pulled, scale)).mul_(scaled)
            self.add_shares(gradient, a, b, share)
        return shares

    def expected(self, d: Tensor, p: Tensor) -> Tensor:
        return d.mul_(p)

    def maximise(self, counts: Tensor, p: Tensor, frames: Frames, rules: Rules) -> Tensor:
        if p.device == CPU and p.dtype in NUMPY:
            weight = empty(tuple(p.shape), p)
            arrays = (t.contiguous().numpy() for t in (counts.to(p.dtype), p, weight))
            if weight_kernel.normalise(*arrays):
                return weight
        total = counts.sum(2, keepdim=True)
        counted = total > 0
        weight = counts / total
        if not bool(counted.all()):
            weight = torch.where(counted, weight, p)
        return sound(weight.to(p.dtype), self.names)


def sound(weight: Tensor, names: tuple[str, ...]) -> Tensor:
    """W (folds, units, inputs) itself, if every unit is a mixture of something.

    Compiled loops read the first input of every unit: there must be one whose weight is positive.
    """
    least, most = torch.aminmax(weight, dim=2)  # NaN where one is
    mixes = (least >= 0) & (most > 0) & torch.isfinite(most)
    if not bool(mixes.all()):
        fold, unit = (int(i) for i in torch.nonzero(~mixes)[0])
        raise ParameterError(
            f"sum {names[fold]!r}: the weights of unit {unit} must be finite, not negative and not "
            "all zero; were the counts or data they come from finite, and of a sensible scale?"
        )
    return weight


def _log_space_shares(
    weight: Tensor, children: Tensor, out: Tensor, flow: Tensor
) -> tuple[Tensor, Tensor]:
    """d objective / d weight and shares, where the linear path would underflow."""
    possible = out > IMPOSSIBLE / 2  # (folds, units, batch)
    logs = log_of(weight)[..., None] + (children[:, None] - out[:, :, None])
    posterior = torch.where(possible[:, :, None], torch.exp(logs.clamp_max(0.0)), 0.0)
    pulled = posterior * flow[:, :, None]  # (folds, units, inputs, batch)
    share, total = pulled.sum(1), pulled.sum(3)
    return torch.where(weight > 0, total / weight.clamp_min(tiny(weight)), 0.0), share


def _normalised(weight: Tensor) -> Array:
    values = weight.double().cpu().numpy()
    return np.asarray(values / values.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class SumStep(_AnySum):
    folds: int
    units: int
    start: int
    inputs: int
    names: tuple[str, ...]
    used: tuple[int, ...]
    rows: ValueRows  # (folds, inputs); filled up with an own child, at weight 0
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
            len(slots), int(key[2]), layout.row[slots[0].name], inputs,
            tuple(s.name for s in slots), used,
            ValueRows.of([layout.row[c] + u for f in full for c, u in f]),
            torch.tensor([layout.number[s.name] for s in slots]),
            torch.tensor([[layout.number[c] for c, _ in f] for f in full]),
            torch.tensor([[u for _, u in f] for f in full]),
        )  # fmt: skip

    def log_children(self, values: Tensor, a: int, b: int) -> Tensor:
        return self.rows.part(a * self.inputs, b * self.inputs).read(values, b - a, self.inputs)

    def scaled_children(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]:
        below = self.log_children(values, a, b)
        top = below.amax(1, keepdim=True)
        return torch.exp_(below - top), top

    def add_shares(self, gradient: Tensor, a: int, b: int, share: Tensor) -> None:
        self.rows.part(a * self.inputs, b * self.inputs).add(gradient, share)

    def choose(self, p: Tensor, state: BatchState, choice: Descent) -> None:
        fold, column, unit = choice.active(self.numbers)
        if len(fold):
            below = state.values[self.rows.index.view(self.folds, -1)[fold], column[:, None]]
            option = choice.pick(log_of(p[fold, unit]) + below)
            choice.set(self.children[fold, option], column, self.child_units[fold, option])


@dataclass(frozen=True)
class OuterSumStep(_AnySum):
    """A sum over outer products (partitions) of left and right children, all of one shape."""

    folds: int
    units: int
    start: int
    inputs: int  # partitions · left · right
    names: tuple[str, ...]
    used: tuple[int, ...]
    partitions: int
    sides: tuple[int, int]  # units of left and right children
    left: ValueRows  # (folds, partitions, left units)
    right: ValueRows
    numbers: Tensor  # (folds,)
    lefts: Tensor  # (folds, partitions) numbers of the slots read
    rights: Tensor

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout) -> OuterSumStep:
        sides, m = (int(key[3]), int(key[4])), int(key[5])
        reads = [[s.reads[:m] for s in slots], [s.reads[m:] for s in slots]]
        rows = [
            ValueRows.of([layout.row[c] + k for r in reads[i] for c in r for k in range(sides[i])])
            for i in (0, 1)
        ]
        numbers = [torch.tensor([[layout.number[c] for c in r] for r in reads[i]]) for i in (0, 1)]
        places = torch.tensor([layout.number[s.name] for s in slots])
        inputs = m * sides[0] * sides[1]
        return cls(
            len(slots), int(key[2]), layout.row[slots[0].name], inputs,
            tuple(s.name for s in slots), (inputs,) * len(slots),
            m, sides, rows[0], rows[1], places, numbers[0], numbers[1],
        )  # fmt: skip

    def _sides(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]:
        n, m = self.partitions * self.sides[0], self.partitions * self.sides[1]
        left = self.left.part(a * n, b * n).read(values, b - a, self.partitions, self.sides[0])
        right = self.right.part(a * m, b * m).read(values, b - a, self.partitions, self.sides[1])
        return left, right

    def log_children(self, values: Tensor, a: int, b: int) -> Tensor:
        left, right = self._sides(values, a, b)
        return (left[:, :, :, None] + right[:, :, None]).flatten(1, 3)

    def scaled_children(self, values: Tensor, a: int, b: int) -> tuple[Tensor, Tensor]:
        left, right = self._sides(values, a, b)
        top_left, top_right = left.amax(2, keepdim=True), right.amax(2, keepdim=True)
        top = top_left + top_right
        if self.partitions == 1:
            first = torch.exp_(left - top_left)
        else:
            top = top.amax(1, keepdim=True)
            first = torch.exp_((left + top_right) - top)  # rounds to at most 0, at any size
        second = torch.exp_(right - top_right)
        pairs = first[:, :, :, None] * second[:, :, None]
        return pairs.view(b - a, self.inputs, -1), top.view(b - a, 1, -1)

    def add_shares(self, gradient: Tensor, a: int, b: int, share: Tensor) -> None:
        n, m = self.partitions * self.sides[0], self.partitions * self.sides[1]
        pairs = share.view(b - a, self.partitions, *self.sides, -1)
        self.left.part(a * n, b * n).add(gradient, pairs.sum(3))
        self.right.part(a * m, b * m).add(gradient, pairs.sum(2))

    def choose(self, p: Tensor, state: BatchState, choice: Descent) -> None:
        fold, column, unit = choice.active(self.numbers)
        if len(fold) == 0:
            return
        left, right = (
            state.values[rows.index.view(self.folds, -1)[fold], column[:, None]].view(
                len(fold), self.partitions, -1
            )
            for rows in (self.left, self.right)
        )
        pairs = (left[:, :, :, None] + right[:, :, None]).flatten(1)
        option = choice.pick(log_of(p[fold, unit]) + pairs)
        size = self.sides[0] * self.sides[1]
        partition, pair = option // size, option % size
        choice.set(self.lefts[fold, partition], column, pair // self.sides[1])
        choice.set(self.rights[fold, partition], column, pair % self.sides[1])

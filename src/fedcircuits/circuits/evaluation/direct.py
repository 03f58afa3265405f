"""Steps of leaves whose log density is not linear in statistics: by the family's own formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafStep, LeafValues
from fedcircuits.circuits.evaluation.pairs import FamilyPart, LeafPairs
from fedcircuits.circuits.evaluation.rows import chunks
from fedcircuits.circuits.evaluation.statistics import Inputs, bounded
from fedcircuits.circuits.evaluation.step import BatchState, Frames, Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Family, Tensors
from fedcircuits.circuits.graph.parameters import Parameters


@dataclass(frozen=True)
class DirectStep(LeafStep):
    """Leaves of one family, all of one number of units and variables."""

    folds: int
    units: int
    start: int
    numbers: Tensor
    pairs: LeafPairs

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit) -> DirectStep:
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        start = layout.row[slots[0].name]
        return cls(len(slots), int(key[3]), start, numbers, LeafPairs.of(slots, circuit))

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> LeafValues:
        return self.from_parts(self.pairs.pack(parameters), dtype)

    def from_parts(self, parts: tuple[FamilyPart, ...], dtype: torch.dtype) -> LeafValues:
        nothing = torch.zeros(0, dtype=dtype)
        return LeafValues(parts, nothing, nothing)

    def upward(self, p: LeafValues, state: BatchState) -> None:
        self.evaluate(p, state.inputs, self.own(state.values), state.arithmetic.maximises)

    def evaluate(self, p: LeafValues, inputs: Inputs, out: Tensor, maximum: bool = False) -> None:
        """Log-values into out (folds, units, batch)."""
        if p.known is not None:
            out.copy_(p.known.view_as(out))
            return
        out.zero_()
        for part in p.parts:
            modes = part.log_mode().to(out) if maximum else None
            for a, b in chunks(len(part.pairs), self.units * out.shape[2]):
                x, seen = self._read(part, a, b, inputs, out.dtype)
                found = part.rule.log_density(x, _tensors(part, a, b, out.dtype))
                if seen is not None:
                    other = torch.zeros(1).to(out) if modes is None else modes[a:b, :, None]
                    found = torch.where(seen, found, other)
                out.index_add_(0, self.pairs.slot[part.pairs[a:b]], found)
        if p.shift is not None:
            out += p.shift[:, :, None]

    def log_values(
        self, parts: tuple[FamilyPart, ...], tensors: Sequence[Tensors], inputs: Inputs
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

    def _read(
        self, part: FamilyPart, a: int, b: int, inputs: Inputs, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        """Values (pairs, 1, batch), and where they are seen."""
        variables = self.pairs.variable[part.pairs[a:b]]
        x = bounded(inputs.x.t()[variables], dtype)[:, None]
        if inputs.seen is None:
            return x, None
        seen = inputs.seen[variables][:, None] > 0
        return torch.where(seen, x, 0.0), seen

    def downward(self, p: LeafValues, state: BatchState, gradient: Tensor) -> LeafCounts:
        own = self.own(gradient)
        count = torch.zeros(len(self.pairs.slot), self.units, dtype=own.dtype)
        sums = torch.zeros(0, *count.shape, dtype=own.dtype)
        for part in p.parts:
            for a, b in chunks(len(part.pairs), self.units * own.shape[2]):
                x, seen = self._read(part, a, b, state.inputs, own.dtype)
                found = part.rule.statistics(x, _tensors(part, a, b, own.dtype))
                weight = own[self.pairs.slot[part.pairs[a:b]]]
                weight = weight if seen is None else weight * seen
                sums = _widened(sums, len(found))
                sums[: len(found), part.pairs[a:b]] = (found * weight).sum(3)
                count[part.pairs[a:b]] = weight.sum(2)
        return LeafCounts(sums, count)

    def maximise(
        self, counts: LeafCounts, p: LeafValues, frames: Frames, rules: Rules
    ) -> LeafValues:
        return replace(p, parts=tuple(_maximised(part, counts, rules) for part in p.parts))


def _tensors(part: FamilyPart, a: int, b: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters (pairs, units, 1, …) of some pairs of a part: the 1 is the batch."""
    return {n: torch.from_numpy(v[a:b]).to(dtype).unsqueeze(2) for n, v in part.arrays.items()}


def _widened(sums: Tensor, width: int) -> Tensor:
    """Room for more statistics: parts of one step may have different numbers of them."""
    missing = max(0, width - len(sums))
    return torch.cat([sums, sums.new_zeros(missing, *sums.shape[1:])]) if missing else sums


def _maximised(part: FamilyPart, counts: LeafCounts, rules: Rules) -> FamilyPart:
    rule = rules.get(part.rule.name, part.rule)
    assert isinstance(rule, Family)
    one = {n: torch.from_numpy(a[:1, :1, None]) for n, a in part.arrays.items()}
    width = len(rule.statistics(torch.zeros(1, 1, 1, dtype=torch.float64), one))
    count, sums = counts.count[part.pairs], counts.sums[:width, part.pairs]
    after = rule.maximise(count.double().numpy(), sums.double().numpy(), part.arrays)
    return replace(part, arrays=after)

"""Steps of categorical leaves of many levels: a table read at the value of every row.

With units · levels in the thousands a product with one-hot statistics would be mostly zeros. Here
the table is (pairs, levels, units), so that the value of a row picks ``units`` numbers that lie
side by side; expected counts are added at the same places. The table holds log probabilities where
it comes from parameters, and plain ones where EM has just made it: taking the logarithm of what a
batch reads costs less than of all that it does not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import table_kernel as kernel
from fedcircuits.circuits.evaluation.devices import CPU, empty, zeros
from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafStep
from fedcircuits.circuits.evaluation.pairs import FamilyPart, LeafPairs
from fedcircuits.circuits.evaluation.statistics import Inputs
from fedcircuits.circuits.evaluation.step import BatchState, Frames, Regions, Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import IMPOSSIBLE, TabledFamily, family
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ParameterError

Names = tuple[tuple[str, int], ...]  # of leaves, and their numbers of variables


@dataclass(frozen=True)
class LookupValues:
    """The packed tables of a step."""

    table: Tensor  # (pairs, levels, units)
    logarithmic: bool
    rule: TabledFamily
    leaves: Names
    shift: Tensor | None = None  # (folds, units) log-masses of the regions
    regions: Regions = field(default_factory=dict)

    def logs(self) -> Tensor:
        return self.table if self.logarithmic else torch.log(self.table).clamp_min(IMPOSSIBLE)

    def with_table(self, table: Tensor) -> LookupValues:
        """Other probabilities (pairs, levels, units)."""
        return LookupValues(table, False, self.rule, self.leaves)

    @cached_property
    def linear(self) -> Tensor:
        """Plain probabilities, (pairs, levels, units)."""
        return torch.exp(self.table) if self.logarithmic else self.table

    @cached_property
    def parts(self) -> tuple[FamilyPart, ...]:
        """The same as all other leaves have it, for questions."""
        tables = self.linear.double().cpu().numpy().transpose(0, 2, 1)
        arrays = {"probability": tables / tables.sum(-1, keepdims=True)}
        return (FamilyPart(self.rule, self.leaves, torch.arange(len(self.table)), arrays),)


@dataclass(frozen=True)
class LookupStep(LeafStep[LookupValues]):
    folds: int
    units: int
    start: int
    levels: int
    rule: TabledFamily
    numbers: Tensor
    pairs: LeafPairs
    names: tuple[str, ...]  # (pairs,) of the variables

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit) -> LookupStep:
        numbers = torch.tensor([layout.number[s.name] for s in slots])
        pairs = LeafPairs.of(slots, circuit)
        names = tuple(circuit.schema.names[i] for i in pairs.variable.tolist())
        levels = circuit.schema[names[0]].levels
        rule, start = family(slots[0].leaves[0].family), layout.row[slots[0].name]
        assert isinstance(rule, TabledFamily)
        return cls(len(slots), slots[0].units, start, levels, rule, numbers, pairs, names)

    @property
    def _leaves(self) -> Names:
        return tuple(
            (name, width)
            for (name, _, _), width in zip(self.pairs.leaves, self.pairs.widths, strict=True)
        )

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> LookupValues:
        [part] = self.pairs.pack(parameters)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(part.arrays["probability"]), IMPOSSIBLE)
        table = torch.as_tensor(np.ascontiguousarray(logs.transpose(0, 2, 1)))
        return LookupValues(table.to(dtype), True, self.rule, self._leaves)

    def restrict(self, p: LookupValues, regions: Regions) -> LookupValues:
        shift = self.log_masses(p, regions, p.table.dtype)
        return LookupValues(p.table, p.logarithmic, p.rule, p.leaves, shift, regions)

    # ------------------------------------------------------------------ passes

    def _places(self, inputs: Inputs, a: int, b: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """Rows of the flat table (pairs, batch); where the variable is seen; and where it has a
        value that is no level."""
        variables = self.pairs.variable[a:b]
        x = inputs.x.t()[variables]
        seen = None if inputs.seen is None else inputs.seen[variables] > 0
        known = x if seen is None else torch.where(seen, x, 0.0)
        level = known.clamp(0, self.levels - 1).long()
        return torch.arange(a, b)[:, None] * self.levels + level, seen, level != known

    def upward(self, p: LookupValues, state: BatchState) -> None:
        out, single = self.rows_in(state.values), len(self.pairs.slot) == self.folds
        flat = p.table.view(-1, self.units)
        modes = p.parts[0].log_mode().to(out) if state.arithmetic.maximises else None
        if not single:
            out.zero_()
        for a, b in self.chunks(len(self.names), self.units * out.shape[2]):
            places, seen, strange = self._places(state.inputs, a, b)
            read = flat.index_select(0, places.flatten())
            if not p.logarithmic:
                read.log_().clamp_min_(IMPOSSIBLE)
            values = read.view(b - a, -1, self.units).transpose(1, 2)  # (pairs, units, batch)
            if bool(strange.any()):
                values = torch.where(strange[:, None], IMPOSSIBLE, values)
            if seen is not None:
                other = values.new_zeros(1) if modes is None else modes[a:b, :, None]
                values = torch.where(seen[:, None], values, other)
            if single:
                out[a:b] = values
            else:
                out.index_add_(0, self.pairs.slot[a:b], values)
        if p.shift is not None:
            out += p.shift[:, :, None]

    def downward(self, p: LookupValues, state: BatchState, gradient: Tensor) -> LeafCounts:
        flow = self.rows_in(gradient)
        sums = zeros((len(self.names) * self.levels, self.units), flow)
        count = flow.new_empty(len(self.names), self.units)
        single = len(self.pairs.slot) == self.folds
        for a, b in self.chunks(len(self.names), self.units * flow.shape[2]):
            places, seen, _ = self._places(state.inputs, a, b)
            weight = flow[a:b] if single else flow[self.pairs.slot[a:b]]
            weight = weight if seen is None else weight * seen[:, None]
            count[a:b] = weight.sum(2)
            sums.index_add_(0, places.flatten(), weight.transpose(1, 2).reshape(-1, self.units))
        return LeafCounts(sums.view(len(self.names), self.levels, self.units), count)

    # ------------------------------------------------------------------ M-step

    def _pseudo_counts(self, rule: TabledFamily) -> Tensor:
        """(pairs, levels), kept for the next M-step by the same rule."""
        kept: tuple[TabledFamily, Tensor] | None = vars(self).get("kept")
        if kept is None or kept[0] is not rule:
            pseudo = np.stack([rule.pseudo_counts(name, self.levels) for name in self.names])
            kept = vars(self)["kept"] = rule, torch.as_tensor(pseudo)
        return kept[1]

    def maximise(
        self, counts: LeafCounts, p: LookupValues, frames: Frames, rules: Rules
    ) -> LookupValues:
        rule = rules.get(self.rule.name, self.rule)
        assert isinstance(rule, TabledFamily)
        added = self._pseudo_counts(rule).to(counts.sums)
        drawn = rule.drawn_to(self.names, counts.sums.cpu().numpy())
        if drawn is not None:
            counts = LeafCounts(counts.sums + torch.as_tensor(drawn).to(counts.sums), counts.count)
        table = empty(tuple(counts.sums.shape), counts.sums)
        if table.device == CPU:
            arrays = (t.numpy() for t in (counts.sums, added, p.linear, table))
            _check_counts(float(kernel.frequencies(*arrays)), p)
        else:
            for a, b in self.chunks(len(table), self.levels * self.units):
                table[a:b] = _frequencies(counts.sums[a:b] + added[a:b, :, None], p, a, b)
        return LookupValues(table, False, p.rule, p.leaves)


def _check_counts(least: float, p: LookupValues) -> None:
    if least < 0:
        raise ParameterError(
            f"parameters of {p.leaves[0][0]!r}: probability must not be negative; are the counts "
            "it comes from?"
        )


def _frequencies(counts: Tensor, p: LookupValues, a: int, b: int) -> Tensor:
    """Of some pairs (pairs, levels, units); what it was where nothing was counted."""
    _check_counts(float(counts.min()), p)
    total = counts.sum(1, keepdim=True)
    if not bool((total > 0).all()):
        old = torch.exp(p.table[a:b]) if p.logarithmic else p.table[a:b]
        return torch.where(total > 0, counts / total, old)
    return counts.div_(total)

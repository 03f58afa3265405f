"""Steps of leaves whose log density is not linear in statistics: by the family's own formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LeafValues, ValuedStep
from fedcircuits.circuits.evaluation.pairs import FamilyPart, LeafPairs
from fedcircuits.circuits.evaluation.statistics import Inputs, bounded
from fedcircuits.circuits.evaluation.step import (
    BatchState,
    Descent,
    Frames,
    Functional,
    Regions,
    Rules,
    Step,
)
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import (
    IMPOSSIBLE,
    Arrays,
    Family,
    JointFamily,
    Tensors,
    family,
    raise_if_wrong,
)
from fedcircuits.circuits.graph.parameters import Parameters


@dataclass(frozen=True)
class DirectStep(ValuedStep):
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
        self.evaluate(p, state.inputs, self.rows_in(state.values), state.arithmetic.maximises)

    @property
    def columns(self) -> frozenset[int]:
        return frozenset(self.pairs.variable.tolist())

    def values(self, p: LeafValues, inputs: Inputs, dtype: torch.dtype) -> Tensor:
        """Log-values (folds · units, batch)."""
        if p.known is not None:
            return p.known
        out = torch.empty(self.folds, self.units, len(inputs.x), dtype=dtype)
        self.evaluate(p, inputs, out)
        return out.flatten(0, 1)

    def evaluate(self, p: LeafValues, inputs: Inputs, out: Tensor, maximum: bool = False) -> None:
        """Log-values into out (folds, units, batch)."""
        if p.known is not None:
            out.copy_(p.known.view_as(out))
            return
        out.zero_()
        for part in p.parts:
            modes = part.log_mode().to(out) if maximum else None
            for a, b in self.chunks(len(part.pairs), self.units * out.shape[2]):
                x, seen = self._read(part, a, b, inputs, out.dtype)
                log_density = part.rule.log_density(x, _tensors(part, a, b, out.dtype))
                if seen is not None:
                    other = torch.zeros(1).to(out) if modes is None else modes[a:b, :, None]
                    log_density = torch.where(seen, log_density, other)
                out.index_add_(0, self.pairs.slot[part.pairs[a:b]], log_density)
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
            log_density = part.rule.log_density(x, {n: v.unsqueeze(2) for n, v in values.items()})
            log_density = log_density if seen is None else torch.where(seen, log_density, 0.0)
            total = total.index_add(0, self.pairs.slot[part.pairs], log_density)
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
        flow = self.rows_in(gradient)
        count = torch.zeros(len(self.pairs.slot), self.units, dtype=flow.dtype)
        sums = torch.zeros(0, *count.shape, dtype=flow.dtype)
        for part in p.parts:
            for a, b in self.chunks(len(part.pairs), self.units * flow.shape[2]):
                x, seen = self._read(part, a, b, state.inputs, flow.dtype)
                statistics = part.rule.statistics(x, _tensors(part, a, b, flow.dtype))
                weight = flow[self.pairs.slot[part.pairs[a:b]]]
                weight = weight if seen is None else weight * seen
                sums = _widened(sums, len(statistics))
                sums[: len(statistics), part.pairs[a:b]] = (statistics * weight).sum(3)
                count[part.pairs[a:b]] = weight.sum(2)
        return LeafCounts(sums, count)

    def maximise(
        self, counts: LeafCounts, p: LeafValues, frames: Frames, rules: Rules
    ) -> LeafValues:
        return replace(p, parts=tuple(_maximised(part, counts, rules) for part in p.parts))


def _tensors(part: FamilyPart, a: int, b: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters (pairs, units, 1, …) of some pairs of a part: the 1 is the batch."""
    return {n: torch.as_tensor(v[a:b]).to(dtype).unsqueeze(2) for n, v in part.arrays.items()}


def _widened(sums: Tensor, width: int) -> Tensor:
    """Room for more statistics: parts of one step may have different numbers of them."""
    missing = max(0, width - len(sums))
    return torch.cat([sums, sums.new_zeros(missing, *sums.shape[1:])]) if missing else sums


def _maximised(part: FamilyPart, counts: LeafCounts, rules: Rules) -> FamilyPart:
    rule = rules.get(part.rule.name, part.rule)
    assert isinstance(rule, Family)
    one = {n: torch.as_tensor(a[:1, :1, None]) for n, a in part.arrays.items()}
    width = len(rule.statistics(torch.zeros(1, 1, 1, dtype=torch.float64), one))
    count, sums = counts.count[part.pairs], counts.sums[:width, part.pairs]
    after = rule.maximise(count.double().cpu().numpy(), sums.double().cpu().numpy(), part.arrays)
    return replace(part, arrays=after).sound()


# ---------------------------------------------------------------------- joints
#
# The step of one leaf of a joint family: several variables at once, in the family's own way.


@dataclass(frozen=True, slots=True)
class JointValues:
    arrays: Arrays
    tensors: Mapping[str, Tensor]
    regions: Regions = field(default_factory=dict)  # by position in the scope
    known: Tensor | None = None  # (units, batch) log-values, where they need no evaluation


@dataclass(frozen=True, slots=True)
class JointCounts:
    sums: Mapping[str, Tensor]

    def add(self, other: JointCounts) -> JointCounts:
        return JointCounts({n: s + other.sums[n] for n, s in self.sums.items()})

    def scaled(self, factor: float) -> JointCounts:
        return JointCounts({n: s * factor for n, s in self.sums.items()})


@dataclass(frozen=True)
class JointStep(Step[JointValues, JointCounts]):
    name: str
    rule: JointFamily
    folds: int
    units: int
    start: int
    number: Tensor  # (1,)
    variables: tuple[int, ...]

    @classmethod
    def make(cls, slot: Slot, layout: Layout, circuit: Circuit) -> JointStep:
        [leaf] = slot.leaves
        rule = family(leaf.family)
        assert isinstance(rule, JointFamily)
        variables = tuple(circuit.schema.index(v) for v in leaf.scope)
        row, number = layout.row[slot.name], torch.tensor([layout.number[slot.name]])
        return cls(leaf.name, rule, 1, leaf.units, row, number, variables)

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> JointValues:
        return self.from_arrays(parameters[self.name], dtype)

    def from_arrays(self, arrays: Arrays, dtype: torch.dtype) -> JointValues:
        raise_if_wrong(self.name, self.rule.check(arrays))
        whole = {n: torch.as_tensor(np.ascontiguousarray(a)).to(dtype) for n, a in arrays.items()}
        return JointValues(arrays, whole)

    def unpack(self, p: JointValues) -> dict[str, Arrays]:
        return {self.name: p.arrays}

    def restrict(self, p: JointValues, regions: Regions) -> JointValues:
        within = {i: regions[v] for i, v in enumerate(self.variables) if v in regions}
        return replace(p, regions=within)

    def _read(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return bounded(x[:, list(self.variables)], dtype)

    def upward(self, p: JointValues, state: BatchState) -> None:
        self.evaluate(p, state.inputs, self.rows_in(state.values), state.arithmetic.maximises)

    @property
    def columns(self) -> frozenset[int]:
        return frozenset(self.variables)

    def values(
        self, p: JointValues, inputs: Inputs, dtype: torch.dtype, unseen: frozenset[int]
    ) -> Tensor:
        """Log-values (units, batch); of columns that no row has seen nothing is said."""
        if p.known is not None:
            return p.known
        if not p.regions and unseen.issuperset(self.variables):
            return torch.zeros(self.units, len(inputs.x), dtype=dtype)
        out = torch.empty(1, self.units, len(inputs.x), dtype=dtype)
        self.evaluate(p, inputs, out)
        return out[0]

    def evaluate(self, p: JointValues, inputs: Inputs, out: Tensor, maximum: bool = False) -> None:
        """Log-values into out (1, units, batch)."""
        if p.known is not None:
            out[0] = p.known
            return
        x = self._read(inputs.x, out.dtype)
        if maximum:
            out[0] = self.rule.log_maximum(x, p.tensors)
        else:
            out[0] = self.rule.log_density(x, p.tensors, p.regions)

    def log_values(self, tensors: Tensors, x: Tensor) -> Tensor:
        """(units, batch), differentiable by the tensors and by x (batch, variables)."""
        some = next(iter(tensors.values()))
        return self.rule.log_density(self._read(x, some.dtype), tensors, {})

    def downward(self, p: JointValues, state: BatchState, gradient: Tensor) -> JointCounts:
        flow = self.rows_in(gradient)[0]
        return JointCounts(
            self.rule.statistics(self._read(state.inputs.x, flow.dtype), flow, p.tensors)
        )

    def maximise(
        self, counts: JointCounts, p: JointValues, frames: Frames, rules: Rules
    ) -> JointValues:
        rule = rules.get(self.rule.name, self.rule)
        assert isinstance(rule, JointFamily)
        sums = {n: s.double().cpu().numpy() for n, s in counts.sums.items()}
        dtype = next(iter(p.tensors.values())).dtype
        return self.from_arrays(rule.maximise(sums, p.arrays), dtype)

    def choose(self, p: JointValues, state: BatchState, choice: Descent) -> None:
        unit = choice.chosen[self.number][0].long().cpu().numpy()
        rows = np.flatnonzero(unit >= 0)
        if len(rows):
            where = np.ix_(rows, np.array(self.variables))
            units = choice.out[where]
            filled = self.rule.complete(units, unit[rows], p.arrays, p.regions, choice.rng)
            choice.out[where] = filled

    def average(
        self,
        p: JointValues,
        state: BatchState,
        gradient: Tensor,
        variable: int,
        functional: Functional,
    ) -> Tensor | None:
        """Σ gradient · (E[x], E[x²]) of a variable, given what is seen of the others."""
        if variable not in self.variables:
            return None
        x = self._read(state.inputs.x, torch.float64).cpu().numpy()
        moments = self.rule.moments(x, p.arrays, p.regions)
        at = self.variables.index(variable)
        stacked = torch.as_tensor(np.stack([m[:, :, at] for m in moments]))  # (2, units, batch)
        return (stacked * self.rows_in(gradient)[0].double()).sum(1)


# ---------------------------------------------------------------------- given
#
# The step of leaves whose log-values come from elsewhere: circuits that another party holds.


@dataclass(frozen=True)
class GivenStep(Step[None, None]):
    folds: int
    units: int
    start: int
    rows: Tensor  # (folds · units,) of the given matrix

    @classmethod
    def make(cls, key: Key, slots: list[Slot], layout: Layout, circuit: Circuit) -> GivenStep:
        first = given_rows(circuit)
        units = int(key[2])
        rows = [first[s.name] + k for s in slots for k in range(units)]
        return cls(len(slots), units, layout.row[slots[0].name], torch.tensor(rows))

    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> None:
        return None

    def unpack(self, p: None) -> dict[str, Arrays]:
        return {}

    def upward(self, p: None, state: BatchState) -> None:
        assert state.inputs.given is not None, "inline the circuit leaves, or give their values"
        values = state.inputs.given[self.rows].clamp_min(IMPOSSIBLE)
        self.rows_in(state.values)[:] = values.view(self.folds, self.units, -1)

    def downward(self, p: None, state: BatchState, gradient: Tensor) -> None:
        return None

    def choose(self, p: None, state: BatchState, choice: Descent) -> None:
        return None


def given_rows(circuit: Circuit) -> dict[str, int]:
    """The first row of every circuit leaf in the matrix of given values: they lie end to end."""
    rows, at = {}, 0
    for leaf in circuit.leaves():
        if leaf.family == CIRCUIT:
            rows[leaf.name] = at
            at += leaf.units
    return rows

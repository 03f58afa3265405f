"""A circuit as a short list of batched steps, and the passes over it.

upward    leaves to root: log-values; sums add, or take the maximum
downward  root to leaves: posteriors of all units, with the additive statistics of EM on the way
choices   root to leaves: one unit of every node a row reaches, drawn or the best; fills NaN

Parameters are packed once per program, shaped as the steps want them; the graph is folded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.evaluation import flat
from fedcircuits.circuits.evaluation.flat import Flat
from fedcircuits.circuits.evaluation.joints import JointCounts, JointStep, JointValues
from fedcircuits.circuits.evaluation.layout import Key, Layout, Slot, lay_out
from fedcircuits.circuits.evaluation.leaves import (
    DirectStep,
    Frames,
    LeafCounts,
    LeafValues,
    LinearStep,
    Regions,
    Rules,
    average,
    by_name,
)
from fedcircuits.circuits.evaluation.pairs import Functional
from fedcircuits.circuits.evaluation.parallel import in_threads
from fedcircuits.circuits.evaluation.products import OuterStep, ProductStep
from fedcircuits.circuits.evaluation.statistics import Columns, Inputs
from fedcircuits.circuits.evaluation.sums import OuterSumStep, SumStep
from fedcircuits.circuits.family import IMPOSSIBLE, Array, Arrays
from fedcircuits.circuits.parameters import WEIGHT, Parameters
from fedcircuits.errors import QueryError

T = TypeVar("T")
Step = LinearStep | DirectStep | JointStep | ProductStep | OuterStep | SumStep | OuterSumStep
Values = LeafValues | JointValues | Tensor | None
Derivative = LeafCounts | JointCounts | Tensor | None
NUMBERS = 1 << 20  # in the value matrix of one batch
LARGEST = 4096  # rows of one batch


@dataclass(frozen=True, slots=True)
class Packed:
    """Parameters in the shape of a program: one entry a step."""

    frames: Frames
    values: tuple[Values, ...]
    flat: dict[bool, Flat] = field(default_factory=dict, repr=False)  # for the compiled executor


@dataclass(frozen=True, slots=True)
class Counts:
    """The expected statistics of EM: additive over batches and over parties."""

    log_likelihood: float  # summed over rows, weighted
    weight: float  # of all rows
    steps: tuple[Derivative, ...]

    def add(self, other: Counts) -> Counts:
        steps = tuple(_add(a, b) for a, b in zip(self.steps, other.steps, strict=True))
        return Counts(self.log_likelihood + other.log_likelihood, self.weight + other.weight, steps)


def _add(a: Derivative, b: Derivative) -> Derivative:
    if a is None:
        return None
    return a + b if isinstance(a, Tensor) else a.add(b)  # type: ignore[operator, arg-type]


class Program:
    """The folded form of a circuit, for one floating-point type."""

    def __init__(self, circuit: Circuit, dtype: torch.dtype = torch.float64) -> None:
        if not circuit.is_density:
            raise QueryError("a circuit with fuse nodes is no density: evaluate its fuse node")
        self.circuit, self.dtype = circuit, dtype
        self.layout = lay_out(circuit)
        self.columns = Columns.of(circuit)
        self.steps = tuple(self._step(key, slots) for key, slots in self.layout.groups)
        self.root = self.layout.row[circuit.root.name]
        self.compiled = flat.suits(self)
        self.batch = int(np.clip(NUMBERS // self.layout.rows, 32, LARGEST))

    def _step(self, key: Key, slots: list[Slot]) -> Step:
        layout, circuit = self.layout, self.circuit
        match key[1]:
            case "linear":
                return LinearStep.make(key, slots, layout, circuit, self.columns)
            case "direct":
                return DirectStep.make(key, slots, layout, circuit)
            case "joint":
                return JointStep.make(slots[0], layout, circuit)
            case "product":
                return ProductStep.make(key, slots, layout)
            case "outer":
                return OuterStep.make(key, slots, layout)
            case "outer_sum":
                return OuterSumStep.make(key, slots, layout)
        units = {s.name: s.units for _, group in layout.groups for s in group}
        return SumStep.make(key, slots, layout, units)

    # ------------------------------------------------------------------ parameters

    def pack(self, parameters: Parameters) -> Packed:
        frames = self.columns.frames(self.circuit, parameters)
        return Packed(frames, tuple(self._packed(s, parameters, frames) for s in self.steps))

    def _packed(self, step: Step, parameters: Parameters, frames: Frames) -> Values:
        match step:
            case LinearStep() | DirectStep():
                return step.pack(parameters, frames, self.dtype)
            case JointStep():
                return step.pack(parameters, self.dtype)
            case SumStep():
                weight = np.zeros((step.folds, step.units, step.inputs))
                for i, (name, used) in enumerate(zip(step.names, step.used, strict=True)):
                    weight[i, :, :used] = parameters[name][WEIGHT]
                return torch.from_numpy(weight).to(self.dtype)
            case OuterSumStep():
                stacked = np.stack([parameters[name][WEIGHT] for name in step.names])
                return torch.from_numpy(stacked).to(self.dtype)
        return None

    def unpack(self, packed: Packed) -> Parameters:
        found: dict[str, Arrays] = {}
        for step, values in zip(self.steps, packed.values, strict=True):
            if isinstance(values, LeafValues):
                found.update(by_name(values))
            elif isinstance(values, JointValues) and isinstance(step, JointStep):
                found[step.name] = values.arrays
            elif isinstance(values, Tensor) and isinstance(step, SumStep):
                for i, (name, used) in enumerate(zip(step.names, step.used, strict=True)):
                    found[name] = {WEIGHT: _normalised(values[i, :, :used])}
            elif isinstance(values, Tensor) and isinstance(step, OuterSumStep):
                for i, name in enumerate(step.names):
                    found[name] = {WEIGHT: _normalised(values[i])}
        return Parameters(found)

    # ------------------------------------------------------------------ upward

    def read(self, x: Tensor, packed: Packed) -> Inputs:
        return self.columns.read(x, packed.frames, self.dtype)

    def shifts(self, packed: Packed, regions: Regions) -> tuple[Tensor | None, ...]:
        """What restricting variables to regions adds to every leaf, a constant of the query."""
        return tuple(
            self._shift(step, values, regions)
            for step, values in zip(self.steps, packed.values, strict=True)
        )

    def _shift(self, step: Step, values: Values, regions: Regions) -> Tensor | None:
        if not regions or not isinstance(values, LeafValues):
            return None
        assert isinstance(step, LinearStep | DirectStep)
        found = step.pairs.region_constants(values.parts, regions, step.folds, step.units)
        return None if found is None else torch.from_numpy(found).to(self.dtype)

    def upward(
        self,
        inputs: Inputs,
        packed: Packed,
        shifts: tuple[Tensor | None, ...] | None = None,
        regions: Regions | None = None,
        maximum: bool = False,
        known: Mapping[int, Tensor] | None = None,
    ) -> Tensor:
        """The value matrix (rows, batch); ``known`` are rows of steps that need no evaluation."""
        values = torch.empty(self.layout.rows, inputs.x.shape[0], dtype=self.dtype)
        values[0] = 0
        for i, (step, own) in enumerate(zip(self.steps, packed.values, strict=True)):
            shift = shifts[i] if shifts else None
            if isinstance(step, LinearStep | DirectStep) and isinstance(own, LeafValues):
                out = values.narrow(0, step.start, step.folds * step.units)
                if known and i in known:
                    out.copy_(known[i])
                else:
                    step.upward(own, inputs, out, shift, maximum)
            elif isinstance(step, JointStep) and isinstance(own, JointValues):
                out = values.narrow(0, step.start, step.units)
                step.upward(own, inputs, out, regions or {}, maximum)
            elif isinstance(step, SumStep | OuterSumStep) and isinstance(own, Tensor):
                step.upward(own, values, maximum)
            elif isinstance(step, ProductStep | OuterStep):
                step.upward(values)
        return values

    def log_values(self, x: Tensor, packed: Packed, regions: Regions | None = None) -> Tensor:
        """Log-value of the root for every row; regions restrict columns that are NaN in x."""
        shifts = self.shifts(packed, regions or {})

        def evaluate(rows: Tensor) -> Tensor:
            if self.compiled and not regions:
                return self._run_compiled(rows, packed)
            values = self.upward(self.read(rows, packed), packed, shifts, regions)
            return values[self.root].clone()  # a view would keep the whole matrix

        most = LARGEST if self.compiled and not regions else self.batch
        return finite(torch.cat(list(self._over_batches(evaluate, x, most))))

    def _run_compiled(self, x: Tensor, packed: Packed) -> Tensor:
        inputs = self.read(x, packed)
        found = flat.log_values(self._flat(packed, inputs), self._matrix(inputs, packed).numpy())
        return torch.from_numpy(found)

    def _flat(self, packed: Packed, inputs: Inputs) -> Flat:
        masked = inputs.seen is not None
        if masked not in packed.flat:
            packed.flat[masked] = flat.flatten(self, packed, masked)
        return packed.flat[masked]

    def _matrix(self, inputs: Inputs, packed: Packed) -> Tensor:
        """Statistics, and behind them the values of leaves that are not linear."""
        extra = []
        for step, own in zip(self.steps, packed.values, strict=True):
            if isinstance(step, DirectStep) and isinstance(own, LeafValues):
                extra.append(torch.empty(step.folds * step.units, len(inputs.x), dtype=self.dtype))
                step.upward(own, inputs, extra[-1], None, False)
            elif isinstance(step, JointStep) and isinstance(own, JointValues):
                extra.append(torch.empty(step.units, len(inputs.x), dtype=self.dtype))
                step.upward(own, inputs, extra[-1], {}, False)
        return torch.cat([inputs.matrix, *extra]) if extra else inputs.matrix.contiguous()

    def _spans(self, rows: int, most: int) -> list[tuple[int, int]]:
        """Batches whose value matrix stays small, at least one for every thread."""
        fair = -(-rows // torch.get_num_threads())
        size = max(1, min(most, max(fair, 32)))
        return [(a, min(a + size, rows)) for a in range(0, rows, size)] or [(0, 0)]

    def _over_batches(self, function: Callable[[Tensor], T], x: Tensor, most: int) -> Iterator[T]:
        yield from in_threads(function, [x[a:b] for a, b in self._spans(len(x), most)])

    # ------------------------------------------------------------------ downward

    def downward(
        self, values: Tensor, inputs: Inputs, packed: Packed, weight: Tensor
    ) -> tuple[Tensor, list[Derivative]]:
        """Posterior of every unit (rows, batch) times the rows' weights, and for every step the
        derivatives of the weighted log-likelihood: by weights, or the statistics of leaves."""
        gradient = torch.zeros_like(values)
        root = values[self.root]
        gradient[self.root] = torch.where(root > IMPOSSIBLE / 2, weight, 0.0)
        found: list[Derivative] = [None] * len(self.steps)
        for i in range(len(self.steps) - 1, -1, -1):
            step, own = self.steps[i], packed.values[i]
            if isinstance(step, LinearStep | DirectStep) and isinstance(own, LeafValues):
                found[i] = step.downward(own, inputs, gradient)
            elif isinstance(step, JointStep) and isinstance(own, JointValues):
                found[i] = step.downward(own, inputs, gradient)
            elif isinstance(step, SumStep | OuterSumStep) and isinstance(own, Tensor):
                found[i] = step.downward(own, values, gradient)
            elif isinstance(step, ProductStep | OuterStep):
                step.downward(gradient)
        return gradient, found

    def _expected(self, inputs: Inputs, packed: Packed, weight: Tensor) -> Counts:
        values = self.upward(inputs, packed)
        _, found = self.downward(values, inputs, packed, weight)
        steps = tuple(
            d.mul_(v) if isinstance(d, Tensor) and isinstance(v, Tensor) else d
            for d, v in zip(found, packed.values, strict=True)
        )
        total = float((values[self.root].double() * weight.double()).sum())
        return Counts(total, float(weight.double().sum()), steps)

    def counts(self, x: Tensor, packed: Packed, weight: Tensor | None = None) -> Counts:
        """Expected statistics of rows x: add them over batches or parties, then maximise."""
        weight = torch.ones(len(x), dtype=self.dtype) if weight is None else weight.to(self.dtype)
        linear = self.compiled and not any(
            isinstance(s, DirectStep | JointStep) for s in self.steps
        )

        def expect(span: tuple[int, int]) -> Counts:
            inputs, own = self.read(x[span[0] : span[1]], packed), weight[span[0] : span[1]]
            if linear:
                folded = self._flat(packed, inputs)
                total, steps = flat.counts(
                    folded,
                    self,
                    packed,
                    inputs.matrix.contiguous().numpy(),
                    own,
                    inputs.seen is not None,
                )
                return Counts(total, float(own.double().sum()), steps)
            return self._expected(inputs, packed, own)

        found = in_threads(expect, self._spans(len(x), LARGEST if linear else self.batch))
        total = next(found)
        for more in found:
            total = total.add(more)
        return total

    def maximise(self, counts: Counts, packed: Packed, rules: Rules | None = None) -> Packed:
        """The M-step: parameters from expected statistics."""
        new = tuple(
            self._maximised(s, v, c, packed.frames, rules or {})
            for s, v, c in zip(self.steps, packed.values, counts.steps, strict=True)
        )
        return Packed(packed.frames, new)

    def _maximised(
        self,
        step: Step,
        values: Values,
        counts: Derivative,
        frames: Frames,
        rules: Rules,
    ) -> Values:
        if isinstance(values, LeafValues) and isinstance(counts, LeafCounts):
            assert isinstance(step, LinearStep | DirectStep)
            return step.maximise(counts, values, frames, rules)
        if isinstance(values, JointValues) and isinstance(counts, JointCounts):
            assert isinstance(step, JointStep)
            return step.maximise(counts, values, rules, self.dtype)
        if isinstance(values, Tensor) and isinstance(counts, Tensor):
            total = counts.sum(2, keepdim=True)
            return torch.where(total > 0, counts / total, values)
        return None

    # ------------------------------------------------------------------ queries of one batch

    def average(
        self,
        x: Tensor,
        packed: Packed,
        regions: Regions,
        variable: int,
        functional: Functional,
    ) -> Tensor:
        """Posterior mean of a functional of one variable's leaves, (D, rows)."""
        shifts = self.shifts(packed, regions)

        def over(rows: Tensor) -> Tensor:
            inputs = self.read(rows, packed)
            values = self.upward(inputs, packed, shifts, regions)
            gradient, _ = self.downward(
                values, inputs, packed, torch.ones(len(rows), dtype=self.dtype)
            )
            total: Tensor | int = 0
            for step, own in zip(self.steps, packed.values, strict=True):
                if isinstance(step, LinearStep | DirectStep) and isinstance(own, LeafValues):
                    total = total + average(step, own, gradient, variable, functional)
                elif isinstance(step, JointStep) and isinstance(own, JointValues):
                    total = total + step.average(own, inputs, gradient, variable, regions)
            assert isinstance(total, Tensor)
            return total

        return torch.cat(list(self._over_batches(over, x, self.batch)), 1)

    def complete(
        self,
        x: Tensor,
        packed: Packed,
        regions: Regions,
        rng: np.random.Generator | None,
    ) -> tuple[Array, Tensor]:
        """NaN filled by a draw from the conditional, or by the best choices without rng.

        Also the log-value of the root: of the seen part, or the maximum over choices.
        """
        shifts = self.shifts(packed, regions)
        filled, roots = [], []
        for rows in x.split(self.batch):
            inputs = self.read(rows, packed)
            values = self.upward(inputs, packed, shifts, regions, maximum=rng is None)
            filled.append(self._choose(rows, values, packed, regions, rng))
            roots.append(values[self.root].clone())
        return np.concatenate(filled), finite(torch.cat(roots))

    def _choose(
        self,
        x: Tensor,
        values: Tensor,
        packed: Packed,
        regions: Regions,
        rng: np.random.Generator | None,
    ) -> Array:
        chosen = torch.full((len(self.layout.number) + 1, len(x)), -1, dtype=torch.int32)
        chosen[self.layout.number[self.circuit.root.name]] = 0
        out = x.double().numpy().copy()

        def pick(scores: Tensor) -> Tensor:
            if rng is not None:  # Gumbel noise makes the maximum a draw
                noise = rng.gumbel(size=tuple(scores.shape))
                scores = scores.double() + torch.from_numpy(noise)
            return scores.argmax(1)

        for step, own in zip(reversed(self.steps), reversed(packed.values), strict=True):
            if isinstance(step, SumStep | OuterSumStep) and isinstance(own, Tensor):
                step.choose(own, values, chosen, pick)
            elif isinstance(step, ProductStep | OuterStep):
                step.choose(chosen)
            elif isinstance(step, LinearStep | DirectStep) and isinstance(own, LeafValues):
                step.pairs.complete(own.parts, chosen[step.numbers], out, regions, rng)
            elif isinstance(step, JointStep) and isinstance(own, JointValues):
                step.complete(own, chosen, out, regions, rng)
        return out


def finite(log_values: Tensor) -> Tensor:
    """IMPOSSIBLE outside of a circuit is −∞."""
    return torch.where(log_values > IMPOSSIBLE / 2, log_values, -torch.inf)


def _normalised(weight: Tensor) -> Array:
    values = weight.double().numpy()
    return np.asarray(values / values.sum(axis=1, keepdims=True))

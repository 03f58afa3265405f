"""A circuit as a short list of batched steps, and the passes over it.

upward    leaves to root: log-values; what sums do is an argument (arithmetic.py)
downward  root to leaves: posteriors of all units, with the additive statistics of EM on the way
choices   root to leaves: one unit of every node a row reaches, drawn or the best; fills NaN

The graph is folded once. Parameters are packed for it, shaped as the steps want them; packed
parameters restricted to regions answer for an event. Rows go through in batches, on all threads, or
on another device (devices.py), where all that a program gives back as tensors then lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation import flat
from fedcircuits.circuits.evaluation.arithmetic import (
    LOG_SPACE,
    MAX_PRODUCT,
    Arithmetic,
    as_answers,
    weighted_sum,
)
from fedcircuits.circuits.evaluation.counts import Counts, Derivative, are_finite, by_free_numbers
from fedcircuits.circuits.evaluation.devices import CPU, Loan, Scratch, here, placed
from fedcircuits.circuits.evaluation.direct import DirectStep, GivenStep, JointStep, JointValues
from fedcircuits.circuits.evaluation.flat import Flat
from fedcircuits.circuits.evaluation.forests import Forests, Tables
from fedcircuits.circuits.evaluation.inner_nodes import (
    OuterStep,
    OuterSumStep,
    ProductStep,
    SumStep,
)
from fedcircuits.circuits.evaluation.layout import (
    LARGEST,
    Key,
    Limits,
    Slot,
    batch_rows,
    in_threads,
    lay_out,
    update_rows,
)
from fedcircuits.circuits.evaluation.leaves import LeafValues, LinearStep
from fedcircuits.circuits.evaluation.lookup import LookupStep, LookupValues
from fedcircuits.circuits.evaluation.scaled import ScaledProgram, ScaledState
from fedcircuits.circuits.evaluation.scaled import suits as suits_scaled
from fedcircuits.circuits.evaluation.statistics import Columns, Inputs
from fedcircuits.circuits.evaluation.step import (
    BatchState,
    Descent,
    Frames,
    Functional,
    Regions,
    Rules,
    Step,
)
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import IMPOSSIBLE, Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ParameterError, QueryError

T = TypeVar("T")
Risen = BatchState | ScaledState  # a batch on its way up
Values = LeafValues | LookupValues | JointValues | Tensor | None  # of one step


@dataclass(frozen=True, slots=True)
class Packed:
    """Parameters in the shape of a program: one entry a step."""

    frames: Frames
    values: tuple[Values, ...]
    within: bool = False  # whether variables are restricted to regions
    flat: dict[bool, Flat] = field(default_factory=dict, repr=False)  # for the compiled executor
    trees: list[tuple[Tables, Flat] | None] = field(default_factory=list, repr=False)
    weights: list[Tensor] = field(default_factory=list, repr=False)  # end to end, for scaled.py


class CircuitProgram:
    """The folded form of a circuit, for one floating-point type and one device."""

    steps: tuple[Step[Any, Any], ...]

    def __init__(
        self,
        circuit: Circuit,
        dtype: torch.dtype = torch.float64,
        device: torch.device = CPU,
        limits: Limits = Step.limits,
    ) -> None:
        if not circuit.is_density:
            raise QueryError("a circuit with fuse nodes is no density: evaluate its fuse node")
        self.circuit, self.dtype, self.device = circuit, dtype, device
        self.layout = lay_out(circuit, limits)
        with here(device):
            self.columns = Columns.of(circuit, limits)
            groups = self.layout.groups
            self.steps = tuple(self._step(key, slots).within(limits) for key, slots in groups)
        self.root = self.layout.row[circuit.root.name]
        self.compiled = device == CPU and flat.suits(self)
        self.forests = Forests.of(circuit)
        looks_up = device == CPU and bool(self.forests.tops)
        self.looks_up = looks_up and flat.suits(self, self.forests.members)
        self.batch = batch_rows(self.layout.rows)
        self.update = update_rows(self.layout.rows, len(self.layout.number))
        self.scaled = None if self.compiled or not suits_scaled(self) else ScaledProgram(self)
        self.scratch = Scratch()

    def _step(self, key: Key, slots: list[Slot]) -> Step[Any, Any]:
        layout, circuit = self.layout, self.circuit
        match key[1]:
            case "linear":
                return LinearStep.make(key, slots, layout, circuit, self.columns)
            case "lookup":
                return LookupStep.make(key, slots, layout, circuit)
            case "direct":
                return DirectStep.make(key, slots, layout, circuit)
            case "given":
                return GivenStep.make(key, slots, layout, circuit)
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

    @placed
    def pack(self, parameters: Parameters) -> Packed:
        with np.errstate(all="ignore"):  # of wrong values, which the steps refuse
            frames = self.columns.frames(self.circuit, parameters)
        return Packed(frames, tuple(s.pack(parameters, frames, self.dtype) for s in self.steps))

    @placed
    def unpack(self, packed: Packed) -> Parameters:
        arrays: dict[str, Arrays] = {}
        for step, values in zip(self.steps, packed.values, strict=True):
            arrays.update(step.unpack(values))
        return Parameters(arrays)

    @placed
    def restrict(self, packed: Packed, regions: Regions) -> Packed:
        """The same with variables restricted to regions, for rows that leave them open."""
        if not regions:
            return packed
        pairs = zip(self.steps, packed.values, strict=True)
        return Packed(packed.frames, tuple(s.restrict(v, regions) for s, v in pairs), True)

    # ------------------------------------------------------------------ one batch

    @placed
    def read(self, x: Tensor, packed: Packed) -> Inputs:
        return self.columns.read(x.to(self.device), packed.frames, self.dtype)

    @placed
    def upward(
        self, inputs: Inputs, packed: Packed, arithmetic: Arithmetic = LOG_SPACE
    ) -> BatchState:
        values = torch.empty(self.layout.rows, len(inputs.x), dtype=self.dtype)
        return self._upward(inputs, packed, arithmetic, values)

    def _upward(
        self, inputs: Inputs, packed: Packed, arithmetic: Arithmetic, values: Tensor
    ) -> BatchState:
        values[0] = 0
        state = BatchState(inputs, values, arithmetic)
        for step, parameters in zip(self.steps, packed.values, strict=True):
            step.upward(parameters, state)
        return state

    @placed
    def downward(
        self, state: BatchState, packed: Packed, weight: Tensor
    ) -> tuple[Tensor, list[Derivative]]:
        """Posterior of every unit (rows, batch) times the rows' weights, and for every step the
        derivatives of the weighted log-likelihood."""
        return self._downward(state, packed, weight, torch.zeros_like(state.values))

    def _downward(
        self, state: BatchState, packed: Packed, weight: Tensor, gradient: Tensor
    ) -> tuple[Tensor, list[Derivative]]:
        possible = state.values[self.root] > IMPOSSIBLE / 2
        gradient[self.root] = torch.where(possible, weight, 0.0)
        derivatives: list[Derivative] = [None] * len(self.steps)
        for i in range(len(self.steps) - 1, -1, -1):
            derivatives[i] = self.steps[i].downward(packed.values[i], state, gradient)
        return gradient, derivatives

    @placed
    def ascend(self, inputs: Inputs, packed: Packed, values: Tensor) -> tuple[Risen, Tensor]:
        """The quickest way up, and the log-values of the root; ``values`` is room (rows, batch)."""
        if self.scaled is not None:
            scaled = self.scaled.upward(inputs, packed, values)
            if not scaled.lost.any():
                return scaled, self.scaled.log_values(scaled)
        state = self._upward(inputs, packed, LOG_SPACE, values)
        return state, values[self.root].clone()  # a view would keep the matrix

    @placed
    def descend(
        self, state: Risen, packed: Packed, weight: Tensor, gradient: Tensor, free: bool = False
    ) -> list[Derivative]:
        """And down again: expected counts of every step or, by ``free`` numbers of weights and
        looked-up tables, derivatives. ``gradient`` is room (rows, batch)."""
        if self.scaled is not None and isinstance(state, ScaledState):
            derivatives = self.scaled.downward(state, packed, weight, gradient, free)
            if are_finite(derivatives):
                return derivatives  # or a unit was too small to divide by
        risen = state if isinstance(state, BatchState) else self.upward(state.inputs, packed)
        derivatives = self._downward(risen, packed, weight, gradient.zero_())[1]
        triples = zip(self.steps, derivatives, packed.values, strict=True)
        expected = [step.expected(d, p) for step, d, p in triples]
        return by_free_numbers(expected, packed.values) if free else expected

    def _expected(self, inputs: Inputs, packed: Packed, weight: Tensor) -> Counts:
        shape, room = (self.layout.rows, len(inputs.x)), Loan(self.scratch)
        state, logs = self.ascend(inputs, packed, room.matrix("values", shape, self.dtype))
        gradient = room.matrix("gradient", shape, self.dtype)
        expected = self.descend(state, packed, weight, gradient)
        return Counts(weighted_sum(logs, weight), float(weight.sum()), tuple(expected))

    # ------------------------------------------------------------------ the compiled executor

    def _flat(self, packed: Packed, inputs: Inputs) -> Flat:
        masked = inputs.seen is not None
        if masked not in packed.flat:
            packed.flat[masked] = flat.flatten(self, packed, masked)
        return packed.flat[masked]

    def _matrix(self, inputs: Inputs, packed: Packed, trees: Tables | None = None) -> Tensor:
        """Statistics, and behind them the values of leaves that are not linear."""
        rows, unseen = [], inputs.unseen()
        for step, values in flat.needed(self, packed, trees):
            if isinstance(step, DirectStep) and isinstance(values, LeafValues):
                rows.append(step.values(values, inputs, self.dtype))
            elif isinstance(step, JointStep) and isinstance(values, JointValues):
                rows.append(step.values(values, inputs, self.dtype, unseen))
        return torch.cat([inputs.matrix, *rows]) if rows else inputs.matrix.contiguous()

    def _with_trees(self, packed: Packed) -> tuple[Tables, Flat] | None:
        """The executor's list for complete rows, in which trees are looked up."""
        if not packed.trees:
            trees = flat.trees_of(self, packed) if self.looks_up and not packed.within else None
            flattened = None if trees is None else (trees, flat.flatten(self, packed, False, trees))
            packed.trees.append(flattened)
        return packed.trees[0]

    def _looked_up(self, inputs: Inputs, packed: Packed) -> Tensor | None:
        """Log-values of complete rows, if trees can be looked up for them."""
        looked_up = self._with_trees(packed) if inputs.seen is None else None
        codes = None if looked_up is None else looked_up[0].codes(inputs.x.numpy())
        if looked_up is None or codes is None:
            return None
        matrix = self._matrix(inputs, packed, looked_up[0]).numpy()
        return torch.from_numpy(flat.log_values(looked_up[1], matrix, codes))

    # ------------------------------------------------------------------ many rows

    def _spans(self, rows: int, most: int) -> list[tuple[int, int]]:
        """Batches whose value matrix stays small, at least one for every thread."""
        fair = -(-rows // (torch.get_num_threads() if self.device == CPU else 1))
        size = max(1, min(most, max(fair, 32)))
        return [(a, min(a + size, rows)) for a in range(0, rows, size)]

    def _over_batches(self, function: Callable[[Tensor], T], x: Tensor, most: int) -> Iterator[T]:
        spans = self._spans(len(x), most)
        yield from in_threads(function, [x[a:b] for a, b in spans], self.device == CPU)

    @placed
    def log_values(self, x: Tensor, packed: Packed) -> Tensor:
        """Log-value of the root for every row."""
        if len(x) == 0:
            return self.log_values(_one_row(x), packed)[:0]
        x = x.to(self.device)
        gaps = torch.isnan(x.sum(1)) if self.looks_up else torch.zeros(1, dtype=torch.bool)
        if bool(gaps.all()) or not bool(gaps.any()):
            return as_answers(self._log_values(x, packed), self.circuit)
        log_values = torch.empty(len(x), dtype=self.dtype)  # rows without gaps are looked up
        log_values[gaps], log_values[~gaps] = (
            self._log_values(x[part], packed) for part in (gaps, ~gaps)
        )
        return as_answers(log_values, self.circuit)

    def log_values_of(self, inputs: Inputs, packed: Packed) -> Tensor:
        """The same of one batch, whose values some steps may know already."""
        return as_answers(self._evaluated(inputs, packed), self.circuit)

    def _evaluated(self, inputs: Inputs, packed: Packed) -> Tensor:
        if self.compiled:
            matrix = self._matrix(inputs, packed).numpy()
            return torch.from_numpy(flat.log_values(self._flat(packed, inputs), matrix))
        room, shape = Loan(self.scratch), (self.layout.rows, len(inputs.x))
        return self.ascend(inputs, packed, room.matrix("values", shape, self.dtype))[1]

    def _log_values(self, x: Tensor, packed: Packed) -> Tensor:
        def evaluate(rows: Tensor) -> Tensor:
            inputs = self.read(rows, packed)
            looked_up = self._looked_up(inputs, packed)
            return self._evaluated(inputs, packed) if looked_up is None else looked_up

        wide = self.batch if self.scaled is None else self.update
        most = LARGEST if self.compiled else wide
        return torch.cat(list(self._over_batches(evaluate, x, most)))

    @placed
    def counts(self, x: Tensor, packed: Packed, weight: Tensor | None = None) -> Counts:
        """Expected statistics of rows x: add them over batches or parties, then maximise."""
        if len(x) == 0:
            return self.counts(_one_row(x), packed, torch.zeros(1))
        weights = torch.ones(len(x)) if weight is None else weight
        x, weights = x.to(self.device), weights.to(self.device, self.dtype)
        opaque = any(isinstance(s, DirectStep | JointStep) for s in self.steps)
        compiled = self.compiled and not opaque

        def expect(span: tuple[int, int]) -> Counts:
            inputs, part = self.read(x[span[0] : span[1]], packed), weights[span[0] : span[1]]
            if not compiled:
                return self._expected(inputs, packed, part)
            parts = self._flat(packed, inputs)
            total, steps = flat.counts(parts, self, packed, inputs, part)
            return Counts(total, float(part.sum()), steps)

        spans = self._spans(len(x), LARGEST if compiled else self.update)
        parts = in_threads(expect, spans, self.device == CPU)
        total = next(parts)
        for more in parts:
            total = total.take_in(more)
        return total

    @placed
    def maximise(self, counts: Counts, packed: Packed, rules: Rules | None = None) -> Packed:
        """The M-step: parameters from expected statistics; ParameterError where they make none."""
        if not are_finite(counts.steps):
            raise ParameterError(
                "the expected statistics of EM must be finite: rescale columns of very large values"
            )
        frames, known = packed.frames, rules or {}

        def of_step(i: int) -> Values:
            new: Values = self.steps[i].maximise(counts.steps[i], packed.values[i], frames, known)
            return new

        return Packed(frames, tuple(in_threads(of_step, range(len(self.steps)), counts.many)))

    @placed
    def average(self, x: Tensor, packed: Packed, variable: int, functional: Functional) -> Tensor:
        """Posterior mean of a functional of one variable's leaves, (D, rows)."""
        if len(x) == 0:
            return self.average(_one_row(x), packed, variable, functional)[:, :0]

        def over(rows: Tensor) -> Tensor:
            state = self.upward(self.read(rows, packed), packed)
            gradient, _ = self.downward(state, packed, torch.ones(len(rows), dtype=self.dtype))
            pairs = zip(self.steps, packed.values, strict=True)
            terms = (s.average(v, state, gradient, variable, functional) for s, v in pairs)
            return torch.stack([t for t in terms if t is not None]).sum(0)

        return torch.cat(list(self._over_batches(over, x, self.batch)), 1)

    @placed
    def complete(
        self, x: Tensor, packed: Packed, rng: np.random.Generator | None
    ) -> tuple[Array, Tensor]:
        """NaN filled by a draw from the conditional, or by the best choices without rng.

        Also the log-value of the root: of the seen part, or the maximum over choices.
        """
        if len(x) == 0:
            return x.double().cpu().numpy(), torch.empty(0, dtype=self.dtype)
        filled, roots = [], []
        arithmetic = MAX_PRODUCT if rng is None else LOG_SPACE
        for a in range(0, len(x), self.batch):  # on any number of threads: draws repeat
            rows = x[a : a + self.batch]
            state = self.upward(self.read(rows, packed), packed, arithmetic)
            chosen = torch.full((len(self.layout.number) + 1, len(rows)), -1, dtype=torch.int32)
            chosen[self.layout.number[self.circuit.root.name]] = 0
            choice = Descent(chosen, rows.double().cpu().numpy().copy(), rng)
            for step, values in zip(reversed(self.steps), reversed(packed.values), strict=True):
                step.choose(values, state, choice)
            filled.append(choice.out)
            roots.append(state.values[self.root].clone())
        return np.concatenate(filled), as_answers(torch.cat(roots), self.circuit)


def _one_row(x: Tensor) -> Tensor:
    """Where there are no rows: one that knows nothing, its result is cut away or weighs nothing."""
    return x.new_full((1, x.shape[1]), torch.nan)

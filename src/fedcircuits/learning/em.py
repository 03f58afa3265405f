"""Expectation–maximisation for any circuit: expected statistics, then their maximum.

E-step  one upward and one downward pass give every node's expected statistics, additive over rows.
M-step  weights are normalised counts; leaves maximise their expected log-likelihood.

Over all rows at once the likelihood never decreases, up to the leaves' priors and floors. Over
batches (stepwise EM, Cappé and Moulines 2009) statistics are a running average that forgets with a
step size falling from ``step`` to ``last_step``: many updates from one pass over the rows. Rows
come from a source batch by batch, so a table need not fit into memory.

The step falls linearly over all planned updates. A long step keeps the parameters moving, so the
score on held-back rows soon stops improving although a shorter step would still improve it. When
that happens, learning does not end: the step falls to its last value within ``SETTLING`` epochs,
and learning ends then.

Leaves that allow it are maximised on standardised data, and the bounds of their rules are in that
scale: one scale per variable, or one ``scale`` for all where they share it, as pixels do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.devices import CPU, here
from fedcircuits.circuits.evaluation.direct import DirectStep
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LinearStep
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed, Values
from fedcircuits.circuits.evaluation.statistics import Frame
from fedcircuits.circuits.evaluation.step import Rules, Step
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import StructureError, TableError
from fedcircuits.learning.batches import Batch, InMemory, Source
from fedcircuits.learning.hidden_trees.run import TreeRun
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.learning.stopping import EarlyStopping

SETTLING = 4  # epochs
SETTLED = 2.0  # times the last step: nothing is left to fall
Report = Callable[[int, float], None]  # after every epoch: its number, mean log-likelihood
PIECE = 65_536  # rows of one E-step where no batch size is given
LEAST_WEIGHT = 1e-20  # of a sum, over batches


@dataclass
class FallingStep:
    """The step of every update.

    >>> step = FallingStep(0.3, 0.1, epochs=10, updates_per_epoch=1.0)
    >>> [round(step.next(), 2) for _ in range(3)], step.settle()
    ([0.3, 0.28, 0.26], True)
    >>> [round(step.next(), 2) for _ in range(5)], step.settle()
    ([0.24, 0.2, 0.17, 0.14, 0.1], False)
    """

    first: float
    last: float
    epochs: int
    updates_per_epoch: float

    def __post_init__(self) -> None:
        self.planned = self.epochs * max(1.0, self.updates_per_epoch)
        self.done = 0
        self.settling = False

    def next(self) -> float:
        """The step of the next update, which is counted as done."""
        step = self._now()
        self.done += 1
        return step

    def settle(self) -> bool:
        """Whether the step is to fall within a few epochs from here; it does so once."""
        now = self._now()
        if self.settling or now <= SETTLED * self.last:
            return False
        left = SETTLING * max(1.0, self.updates_per_epoch)
        self.first, self.planned, self.done = now, min(left, self.planned - self.done), 0
        self.settling = True
        return True

    @property
    def over(self) -> bool:
        """Whether a step that was to settle has done so."""
        return self.settling and self.done >= self.planned

    def _now(self) -> float:
        return self.first + min(1.0, self.done / self.planned) * (self.last - self.first)


@dataclass(frozen=True, slots=True)
class EMSchedule:
    """How EM goes over the rows."""

    epochs: int = 100
    batch_size: int | None = None  # rows of one update; None: all of them
    step: float = 0.3
    last_step: float = 0.01
    tolerance: float = 1e-4  # least gain of an epoch, in nats per row
    patience: int = 5  # epochs without such a gain on the validation rows
    smoothing: float = 0.0  # pseudo-rows of every weight of a sum
    behind: float = 0.0  # pseudo-rows of every unit of a leaf, that look as all its units together
    ranges: float | None = None  # of hidden trees (hidden_trees.priors); None: by validation rows

    @property
    def stopping(self) -> EarlyStopping:
        return EarlyStopping(self.patience, self.tolerance)

    def falling(self, rows: int) -> FallingStep:
        """The steps for this many rows."""
        return FallingStep(self.step, self.last_step, self.epochs, rows / (self.batch_size or rows))

    def stopped(self, scores: Sequence[float], step: FallingStep) -> bool:
        """Whether held-out rows end learning; where a step can still fall, it does so first."""
        if step.settling:
            return step.over
        falls = self.batch_size is not None
        return self.stopping.ends(scores) and not (falls and step.settle())


@dataclass(frozen=True, slots=True)
class Fitted:
    parameters: Parameters
    history: tuple[float, ...]  # mean log-likelihood of the rows in every epoch
    validation: tuple[float, ...]  # of the validation rows after every epoch
    converged: bool


def maximise_likelihood(
    circuit: Circuit,
    start: Parameters,
    rows: Array | Source,
    *,
    weight: Array | None = None,
    schedule: EMSchedule | None = None,
    validation: InMemory | None = None,
    rules: Rules | None = None,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    rng: np.random.Generator | None = None,
    report: Report | None = None,
) -> Fitted:
    """EM from ``start``; with validation rows, the parameters that were best on them."""
    source = InMemory(rows, weight) if isinstance(rows, np.ndarray) else rows
    check_learnable(circuit, source)
    plan = schedule or EMSchedule()
    draws = rng if rng is not None else np.random.default_rng(0)
    run: TreeRun | _EMRun
    shape = _fast(circuit, plan, dtype, scale) if device == CPU else None
    if shape is not None:
        run = TreeRun(circuit, shape, start, source, plan, rules, validation)
    else:
        program = CircuitProgram(circuit, dtype, device)
        packed = program.pack(start) if scale is None else in_one_scale(program, start, scale)
        run = _EMRun(program, packed, source, plan, rules, validation)
    while not run.finished:
        run.epoch(draws)
        if report is not None:
            report(len(run.history), run.history[-1])
    return Fitted(run.parameters(), tuple(run.history), tuple(run.validation), run.converged)


def _fast(
    circuit: Circuit, plan: EMSchedule, dtype: torch.dtype, scale: float | None
) -> TreeShape | None:
    """Hidden trees with tables as leaves have passes of their own, in single precision."""
    suits = plan.batch_size is not None and not plan.behind and scale is None
    return TreeShape.of(circuit) if suits and dtype == torch.float32 else None


def check_learnable(circuit: Circuit, source: Source) -> None:
    """Refuses a circuit of several roots, and rows that weigh nothing."""
    if circuit.units[circuit.root.name] != 1:
        raise StructureError(
            f"the root must have one unit to be learned, {circuit.root.name!r} has "
            f"{circuit.units[circuit.root.name]}"
        )
    if not source.weight > 0:
        raise TableError("expected rows to learn from, but no row has positive weight")


def in_one_scale(program: CircuitProgram, start: Parameters, scale: float) -> Packed:
    """Packed so that all variables share one scale."""
    scales = program.columns.frames(program.circuit, start)
    frames = {key: Frame(f.shift, np.full_like(f.scale, scale)) for key, f in scales.items()}
    with here(program.device):
        return Packed(frames, tuple(s.pack(start, frames, program.dtype) for s in program.steps))


def _revivable(new: Values, old: Values) -> Values:
    """Weights that batches do not let vanish: what is not zero from the start never becomes it.

    A row may need what no row of the last batches did; and sums stay in the range of their fast
    path, which holds down to e^−60.
    """
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        return torch.where(old > 0, new.clamp_min(LEAST_WEIGHT), new)
    return new


def with_pseudo_rows(
    program: CircuitProgram, counts: Counts, packed: Packed, plan: EMSchedule
) -> Counts:
    """More rows for every weight of a sum that is not 0, and for every unit of leaves."""
    if not plan.smoothing and not plan.behind:
        return counts
    triples = zip(program.steps, counts.steps, packed.values, strict=True)
    return Counts(
        counts.log_likelihood, counts.weight, tuple(_more_rows(*each, plan) for each in triples)
    )


def _more_rows(
    step: Step[Any, Any], counts: Derivative, values: Values, plan: EMSchedule
) -> Derivative:
    if isinstance(counts, Tensor) and isinstance(values, Tensor):
        return torch.where(values > 0, counts + plan.smoothing, counts)
    if not plan.behind or not isinstance(counts, LeafCounts):
        return counts
    total = counts.count.sum(-1, keepdim=True)  # (pairs, 1)
    if isinstance(step, LinearStep):
        ends = torch.cat([step.first[1:], step.first.new_tensor([len(step.entry_row)])])
        total_of_sums = total.repeat_interleave(ends - step.first, 0)  # (entries, 1)
    elif isinstance(step, DirectStep):
        total_of_sums = total
    else:
        return counts
    share = counts.sums.sum(-1, keepdim=True) / total_of_sums.clamp_min(1e-300)
    share = torch.where(total_of_sums > 0, share, 0.0)
    return LeafCounts(counts.sums + plan.behind * share, counts.count + plan.behind * (total > 0))


def mean_log_likelihood(program: CircuitProgram, packed: Packed, rows: InMemory) -> float:
    """The mean log-likelihood per row, weighted."""
    log_values = program.log_values(torch.from_numpy(rows.values), packed)
    return rows.mean(log_values.double().cpu().numpy())


class _EMRun:
    def __init__(
        self,
        program: CircuitProgram,
        start: Packed,
        source: Source,
        plan: EMSchedule,
        rules: Rules | None,
        validation: InMemory | None,
    ) -> None:
        self.program, self.source, self.plan, self.rules = program, source, plan, rules
        self.packed = self.best = start
        self.held = validation
        self.history: list[float] = []
        self.validation: list[float] = []
        self.average: Counts | None = None
        self.step = plan.falling(len(source))
        self.finished = self.converged = False

    def epoch(self, rng: np.random.Generator) -> None:
        size = self.plan.batch_size
        total, weight = 0.0, 0.0
        everything: Counts | None = None
        for batch in self.source.batches(size or PIECE, rng if size else None):
            counts = self._expect(batch)
            total, weight = total + counts.log_likelihood, weight + counts.weight
            if size is None:
                everything = counts if everything is None else everything.add(counts)
            elif counts.weight > 0:
                self._update(counts)
        self.history.append(total / weight)
        if everything is not None:
            self._maximise_all(everything)
        self._judge()

    def _expect(self, batch: Batch) -> Counts:
        x, weight = batch
        weights = None if weight is None else torch.from_numpy(weight)
        return self.program.counts(torch.from_numpy(x), self.packed, weights)

    def _maximise_all(self, counts: Counts) -> None:
        """Classic EM: the last epoch only measures what the step before it has given."""
        gain = self.history[-1] - self.history[-2] if len(self.history) > 1 else np.inf
        self.converged = self.held is None and bool(gain < self.plan.tolerance)
        self.finished = self.converged or len(self.history) > self.plan.epochs
        if not self.finished:
            smoothed = with_pseudo_rows(self.program, counts, self.packed, self.plan)
            self.packed = self.program.maximise(smoothed, self.packed, self.rules)

    def _update(self, counts: Counts) -> None:
        """Stepwise EM: a running average of statistics, each batch as if it were all rows.

        Pseudo-counts of leaves then weigh against the whole table, not against one row.
        """
        counts.scale(self.source.weight / counts.weight)
        rate = self.step.next()
        if self.average is None:
            self.average = counts
        else:
            self.average.move_to(counts, rate)
        smoothed = with_pseudo_rows(self.program, self.average, self.packed, self.plan)
        maximised = self.program.maximise(smoothed, self.packed, self.rules)
        pairs = zip(maximised.values, self.packed.values, strict=True)
        self.packed = Packed(maximised.frames, tuple(_revivable(new, old) for new, old in pairs))

    def _judge(self) -> None:
        """Validation rows decide what is kept and when to stop; without them, the number of
        epochs."""
        if self.held is None:
            self.best = self.packed
        else:
            self.validation.append(mean_log_likelihood(self.program, self.packed, self.held))
            if self.validation[-1] >= max(self.validation):
                self.best = self.packed
            if self.plan.stopped(self.validation, self.step):
                self.finished = self.converged = True
        if self.plan.batch_size is not None and len(self.history) >= self.plan.epochs:
            self.finished = True

    def parameters(self) -> Parameters:
        """The parameters of the best epoch."""
        return self.program.unpack(self.best)

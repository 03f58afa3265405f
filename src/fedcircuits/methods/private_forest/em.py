"""EM whose expected counts are added up on shares: all parties' rows, as if they were in one place.

    em/counts/t/…   party → party: shares of expected counts of every unit of every structure and of
                    the log-likelihood of rows held back, with their number; then of the totals

One round of EM is two rounds of messages. All parties learn the totals, and so the parameters of
every iteration; N − 1 of them together know the last one's counts, fewer than half nothing but the
totals. A structure that no longer gains on the rows held back stops, and takes no more part.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram, Counts, Packed
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.federation.flow import Flow, compute
from fedcircuits.federation.sums.collectives import Collective
from fedcircuits.learning.em import EMSchedule
from fedcircuits.methods.private_forest.forests import RULES

TOLD = "expected counts of all units, and log-likelihoods of rows held back"
JUDGED = 4  # numbers beside the counts: log-likelihood and number of rows, seen and held back


@dataclass(slots=True)
class Learning:
    """One structure on its way; the same at all parties."""

    program: CircuitProgram
    packed: Packed
    template: Counts
    best: Packed
    history: list[float] = field(default_factory=list)  # mean of a row held back
    finished: bool = False

    @classmethod
    def of(cls, circuit: Circuit, start: Parameters, rows: Array) -> Learning:
        program = CircuitProgram(circuit)
        packed = program.pack(start)
        template = program.counts(torch.from_numpy(rows[:1].copy()), packed)
        return cls(program, packed, template, packed)

    @property
    def width(self) -> int:
        return len(self.template.flat()) + JUDGED

    @property
    def parameters(self) -> Parameters:
        return self.program.unpack(self.best)

    def expected(self, rows: Array, held: Array) -> Array:
        """What this party adds, (width,)."""
        counts = self.program.counts(torch.from_numpy(rows), self.packed)
        judged = (
            self.program.log_values(torch.from_numpy(held), self.packed).sum() if len(held) else 0
        )
        ends = [counts.log_likelihood, counts.weight, float(judged), float(len(held))]
        return np.append(counts.flat(), ends)

    def update(self, total: Array, schedule: EMSchedule | None, last: bool) -> None:
        """From the totals of all parties; without a schedule nothing stops it."""
        seen, rows, judged, held = total[-JUDGED:]
        self.history.append(float(judged / held if held else seen / rows))
        if schedule is None or self.history[-1] >= max(self.history):
            self.best = self.packed
        if schedule is not None:
            patience = schedule.patience
            recent, before = self.history[-patience:], self.history[:-patience]
            stuck = bool(before) and max(recent) < max(before) + schedule.tolerance
            self.finished = last or stuck
        if not self.finished:
            counts = self.template.like(total[:-JUDGED])
            self.packed = self.program.maximise(counts, self.packed, RULES)
            if schedule is None:
                self.best = self.packed


def learned_together(
    summation: Collective,
    structures: Sequence[Learning],
    rows: Array,
    held: Array,
    rounds: int,
    schedule: EMSchedule | None,
) -> Flow[None]:
    """So many iterations of all structures at most, judged by rows held back if there is a
    schedule: then the best parameters are kept, and one more round judges the last."""
    heard = zlib.crc32(held.tobytes(), zlib.crc32(rows.tobytes()))
    for t in range(rounds + (schedule is not None)):
        active = [s for s in structures if not s.finished]
        if not active:
            break
        own = yield from compute(
            f"counting what is expected, round {t} ({heard:08x})",
            lambda active=active: np.concatenate([s.expected(rows, held) for s in active]),  # type: ignore[misc]
        )
        total = yield from summation.sum(f"em/counts/{t}", own, TOLD)
        heard = zlib.crc32(total.tobytes(), heard)
        parts = np.split(total, np.cumsum([s.width for s in active])[:-1])
        for structure, part in zip(active, parts, strict=True):
            structure.update(part, schedule, last=t == rounds)

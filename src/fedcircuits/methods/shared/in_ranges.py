"""Counts of many ordered levels, such as grey levels, as counts of a few ranges of them.

Rounds of EM add up ranges (leaves.ranges): sums are ten times smaller and reveal no single level.
Inside a range, levels are as common as in all columns together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.lookup import LookupStep
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.leaves import Categorical

TIMES = (12.5, 35.0, 100.0, 280.0, 800.0)  # pseudo-rows like ranges, for one like the column


@dataclass(frozen=True, slots=True, eq=False)
class InRanges:
    """``steps``: by their number, how levels lie in ranges, and ranges in levels."""

    rules: Rules
    steps: dict[int, tuple[Array, Array]]  # (ranges, levels) each

    @classmethod
    def of(cls, program: CircuitProgram, rules: Rules | None) -> InRanges:
        rule = (rules or {}).get(Categorical.name)
        ranges = rule.ranges if isinstance(rule, Categorical) else None
        steps = {}
        for i, step in enumerate(program.steps):
            if ranges and ranges.times and isinstance(step, LookupStep):
                if step.rule.name == Categorical.name and ranges.names.issuperset(step.names):
                    steps[i] = ranges.member(step.levels)
        return cls(rules or {}, steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def coarse(self, counts: Counts) -> Counts:
        """What is added up."""
        return self._each(counts, lambda member: member[0])

    def fine(self, counts: Counts) -> Counts:
        """What the sums say about levels."""
        return self._each(counts, lambda member: member[1].T)

    def drawing(self, times: float | None) -> Rules | None:
        """The bounds of leaves that are drawn to their ranges so far; None: not at all."""
        rule = self.rules.get(Categorical.name)
        if not self or not isinstance(rule, Categorical) or rule.ranges is None:
            return self.rules or None
        ranges = None if times is None else replace(rule.ranges, times=times)
        return {**self.rules, Categorical.name: replace(rule, ranges=ranges)}

    @property
    def times(self) -> float:
        rule = self.rules.get(Categorical.name)
        return rule.ranges.times if isinstance(rule, Categorical) and rule.ranges else 0.0

    def _each(self, counts: Counts, matrix: Callable[[tuple[Array, Array]], Array]) -> Counts:
        steps: list[Derivative] = list(counts.steps)
        for i, member in self.steps.items():
            step = steps[i]
            assert isinstance(step, LeafCounts)
            factor = torch.from_numpy(np.ascontiguousarray(matrix(member)))
            steps[i] = LeafCounts(factor @ step.sums, step.count)
        return replace(counts, steps=tuple(steps))

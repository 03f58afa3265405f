"""Units of a circuit through which few rows pass: no statistics of them are sent.

The statistics of a component with one row are the values of this row. In every round of EM the
parties therefore first add up how many rows pass through each unit of each sum and leaf, in
expectation. Only then do they send statistics, and only of units with at least the least count of
rows of all parties. Other units are learned from pseudo-rows alone, or stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedcircuits.circuits.evaluation.counts import Counts, Derivative
from fedcircuits.circuits.evaluation.direct import DirectStep, JointCounts
from fedcircuits.circuits.evaluation.leaves import LeafCounts, LinearStep
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.evaluation.step import Step
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.stopping import Mask

ROUNDING = 1e-3  # rows: sums on shares have a fixed point


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Which unit each of the statistics is about."""

    unit: npt.NDArray[np.int64]  # (size,)
    counted: Mask  # (size,) which statistics add up to the rows of their unit
    number: int

    @classmethod
    def of(cls, program: CircuitProgram, shape: Counts) -> Units:
        units, counted, number = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)], 0
        for step, counts in zip(program.steps, shape.steps, strict=True):
            first = number
            for one, adds in _units(step, counts):
                units.append(first + one.reshape(-1).numpy())
                counted.append(np.full(one.numel(), adds))
                number = max(number, 1 + int(units[-1].max(initial=-1)))
        return cls(np.concatenate(units), np.concatenate(counted), number)

    def rows(self, statistics: Array) -> Array:
        """That pass through every unit (units,)."""
        rows = np.bincount(self.unit[self.counted], statistics[self.counted], self.number)
        return np.asarray(rows, np.float64)

    def only(self, statistics: Array, rows: Array, least: int) -> Array:
        """Statistics of units that the least count of rows pass through, 0 of others."""
        enough = (rows >= least - ROUNDING) | (least <= 1)
        return np.where(enough[self.unit], statistics, 0.0)


def _units(step: Step[Any, Any], counts: Derivative) -> list[tuple[torch.Tensor, bool]]:
    """Of every tensor of a step, in order: the unit of each number, and whether it counts rows."""
    if counts is None:
        return []
    if isinstance(counts, JointCounts):
        shape = counts.sums["count"].shape
        unit = torch.arange(shape.numel()).view(shape)
        return [(_along(unit, one.shape), name == "count") for name, one in counts.sums.items()]
    if isinstance(counts, torch.Tensor):
        shape = counts.shape[:-1]
        return [(_along(torch.arange(shape.numel()).view(shape), counts.shape), True)]
    unit = torch.arange(counts.count.numel()).view(counts.count.shape)  # (pairs, units)
    return [(_of_sums(step, counts, unit), False), (unit, True)]


def _of_sums(step: Step[Any, Any], counts: LeafCounts, unit: torch.Tensor) -> torch.Tensor:
    if isinstance(step, LinearStep):
        ends = torch.cat([step.first[1:], step.first.new_tensor([len(step.entry_row)])])
        return unit.repeat_interleave(ends - step.first, 0)
    if isinstance(step, DirectStep):
        return unit.expand(counts.sums.shape)
    return unit[:, None].expand(counts.sums.shape)  # (pairs, levels, units)


def _along(unit: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The same number along all further axes."""
    return unit.view(*unit.shape, *[1] * (len(shape) - unit.dim())).expand(shape)

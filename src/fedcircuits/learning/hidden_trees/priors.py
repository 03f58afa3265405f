"""What leaves are drawn to: the column, and their own coarse picture where levels have an order.

A state that has met a few hundred rows cannot tell how common each of 256 grey levels is. It can
tell how common each of some twenty ranges of them is; inside a range, levels are as common as in
all columns together. Most pseudo-rows of a unit look like that, the others as the column does.
Ranges hold equally many values of all columns, and a level that is common has a range of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, TabledFamily, family
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.leaves import Categorical
from fedcircuits.tables.schema import Variable

Floats = npt.NDArray[np.float32]
RANGES = 16
MANY = 64  # levels that have ranges
EVEN = 1e-3  # pseudo-rows of each level of a boolean
BACK = 50  # times as many pseudo-rows look as the ranges of the unit as look as the column


@dataclass(frozen=True, slots=True)
class Pseudo:
    """Pseudo-rows of the levels of all variables, end to end."""

    flat: Floats  # (levels,) that are the same for every unit
    back: Floats  # (levels,) times the share of the unit's range
    range_of: npt.NDArray[np.int32]  # (levels,) row of the table of ranges
    ranges: int
    total: Floats  # (variables, 1)

    @classmethod
    def of(cls, circuit: Circuit, shape: TreeShape, rules: Rules) -> Pseudo:
        flat, ordered = _flat(circuit, shape, rules)
        back, range_of = np.zeros_like(flat), np.zeros(len(flat), np.int32)
        ranges = 1  # of nobody
        total = np.add.reduceat(flat, shape.first)
        for levels, members in _by_levels(shape, ordered).items():
            spans = {v: slice(shape.first[v], shape.first[v] + levels) for v in members}
            bins = _ranges(np.stack([flat[s] for s in spans.values()]).sum(0))
            pooled = np.stack([flat[s] / total[v] for v, s in spans.items()]).sum(0)
            within = pooled / np.bincount(bins, pooled)[bins]
            for v, span in spans.items():
                back[span] = BACK * total[v] * within
                range_of[span] = ranges + bins
                ranges += int(bins.max()) + 1
        total[sorted(ordered)] *= 1 + BACK
        return cls(flat, back, range_of, ranges, total[:, None])

    def pictures(self, table: Floats, scale: float, counts: Floats, shape: TreeShape) -> Floats:
        """The share of every range in each unit (ranges, K), from counts of levels."""
        pictures = np.zeros((self.ranges, table.shape[1]), np.float32)
        edges = np.flatnonzero(np.diff(self.range_of, prepend=-1))
        pictures[self.range_of[edges]] = np.float32(scale) * np.add.reduceat(table, edges)
        owner = np.zeros(self.ranges, np.int64)
        owner[self.range_of] = np.repeat(np.arange(len(shape.sizes)), shape.sizes)
        return np.asarray(pictures / np.maximum(counts[owner], 1e-30), np.float32)


def _flat(circuit: Circuit, shape: TreeShape, rules: Rules) -> tuple[Floats, set[int]]:
    """Pseudo-counts as the families give them, and the variables with a prior whose levels have an
    order."""
    shares, ordered = np.full(int(shape.sizes.sum()), EVEN, np.float32), set()
    for _, name, variables in shape.leaves:
        rule = rules.get(name, family(name))
        if not isinstance(rule, TabledFamily):
            continue
        priors: Mapping[str, Array] = (rule.prior or {}) if isinstance(rule, Categorical) else {}
        for v in variables:
            variable = circuit.schema.variables[v]
            pseudo = rule.pseudo_counts(variable.name, int(shape.sizes[v]))
            shares[shape.first[v] : shape.first[v] + shape.sizes[v]] = pseudo
            if variable.name in priors and pseudo.sum() > 0 and _has_order(variable):
                ordered.add(v)
    return shares, ordered


def _has_order(variable: Variable) -> bool:
    return variable.levels >= MANY and all(isinstance(c, int | float) for c in variable.categories)


def _by_levels(shape: TreeShape, ordered: set[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for v in sorted(ordered):
        groups.setdefault(int(shape.sizes[v]), []).append(v)
    return groups


def _ranges(counts: Floats) -> npt.NDArray[np.int64]:
    """The range of every level, in order: a level with more than its share has its own."""
    heavy = counts > counts.sum() / RANGES
    rest = np.where(heavy, 0.0, counts)
    middle = np.cumsum(rest) - rest / 2
    part = np.minimum(middle * RANGES // max(rest.sum(), 1e-300), RANGES - 1)
    new = np.diff(part, prepend=part[0]) != 0
    new |= heavy | np.append(False, heavy[:-1])
    new[0] = False
    return np.cumsum(new)

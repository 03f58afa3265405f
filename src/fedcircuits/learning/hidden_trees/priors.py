"""What leaves are drawn to: the column, and their own coarse picture where levels have an order.

A state that has met a few hundred rows cannot tell how common each of 256 grey levels is. It can
tell how common each of some twenty ranges of them is; inside a range, levels are as common as in
all columns together (leaves.ranges). Most pseudo-rows of a unit look like that, the others as the
column does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, TabledFamily, family
from fedcircuits.circuits.leaves import Categorical
from fedcircuits.circuits.leaves.ranges import LevelRanges, hats
from fedcircuits.learning.hidden_trees import kernels
from fedcircuits.learning.hidden_trees.shape import TreeShape
from fedcircuits.tables.schema import Schema, Variable

Floats = npt.NDArray[np.float32]
MANY = 64  # levels that have ranges
EVEN = 1e-3  # pseudo-rows of each level of a boolean
BACK = 50.0  # pseudo-rows that look as the ranges of the unit, for one that looks as the column


@dataclass(frozen=True, slots=True)
class Pseudo:
    """Pseudo-rows of the levels of all variables, end to end."""

    flat: Floats  # (levels,) that are the same for every unit
    back: Floats  # (levels,) times what the unit's ranges say
    range_of: npt.NDArray[np.int32]  # (levels,) row of the table of ranges
    next_one: Floats  # (levels,) share of the range behind it
    whole: Floats  # (ranges, 1) of a range in all columns together
    drawn: Floats  # (variables, 1) all that look as the unit's ranges
    total: Floats  # (variables, 1)

    @classmethod
    def of(cls, circuit: Circuit, shape: TreeShape, rules: Rules, times: float = BACK) -> Pseudo:
        """``times`` as many pseudo-rows look as the ranges of the unit as look as the column."""
        flat, ordered = _flat(circuit, shape, rules)
        back, next_one = np.zeros_like(flat), np.zeros_like(flat)
        range_of = np.zeros(len(flat), np.int32)
        whole: list[npt.NDArray[np.generic]] = [np.ones(1)]  # of nobody
        total = np.add.reduceat(flat, shape.first)
        for levels, members in _by_levels(shape, ordered).items():
            spans = {v: slice(shape.first[v], shape.first[v] + levels) for v in members}
            pooled = np.stack([flat[s] / total[v] for v, s in spans.items()]).mean(0)
            bins, behind = hats(pooled)
            size = np.bincount(bins, pooled * (1 - behind), int(bins.max()) + 2)
            size += np.bincount(bins + 1, pooled * behind, len(size))
            for v, span in spans.items():
                back[span] = times * total[v] * pooled
                range_of[span] = sum(map(len, whole)) + bins
                next_one[span] = behind
                whole.append(size)
        drawn = np.zeros_like(total)
        drawn[sorted(ordered)] = times * total[sorted(ordered)]
        sizes = np.concatenate([*whole, np.ones(1)])[:, None]
        return cls(
            flat, back, range_of, next_one, np.maximum(sizes, 1e-30).astype(np.float32),
            drawn[:, None], (total + drawn)[:, None],
        )  # fmt: skip

    @property
    def ranged(self) -> bool:
        """Whether any pseudo-row looks as ranges."""
        return bool((self.drawn > 0).any())

    def more(self, factor: float) -> Pseudo:
        """So many times as many pseudo-rows that look as ranges."""
        f = np.float32(factor)
        total = self.total + (f - 1) * self.drawn
        return replace(self, back=f * self.back, drawn=f * self.drawn, total=total)

    def pictures(self, table: Floats, scale: float, counts: Floats, shape: TreeShape) -> Floats:
        """The share of every range in each unit (ranges, K), by that in all columns together."""
        pictures = np.zeros((len(self.whole), table.shape[1]), np.float32)
        inverse = np.asarray(np.float32(scale) / np.maximum(counts, 1e-30), np.float32)
        kernels.draw(
            table, inverse, shape.first, shape.sizes, self.back, self.range_of, self.next_one,
            pictures,
        )  # fmt: skip
        return np.asarray(pictures / self.whole, np.float32)


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


def level_ranges(schema: Schema, shares: Mapping[str, Array], times: float | None) -> LevelRanges:
    """The same for EM in double precision, of the columns with these shares of levels."""
    names = frozenset(v.name for v in schema if v.name in shares and _has_order(v))
    groups: dict[int, list[Array]] = {}
    for name in schema.names:
        if name in names:
            groups.setdefault(len(shares[name]), []).append(shares[name])
    pooled = {levels: np.asarray(np.mean(group, axis=0)) for levels, group in groups.items()}
    return LevelRanges(names, BACK if times is None else times, pooled)


def _by_levels(shape: TreeShape, ordered: set[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for v in sorted(ordered):
        groups.setdefault(int(shape.sizes[v]), []).append(v)
    return groups

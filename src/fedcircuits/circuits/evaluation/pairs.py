"""Leaf distributions of a step: one for every slot, variable of its scope, and unit.

A pair is a slot and one variable in it. LeafPairs of one family and shape are a part, whose
parameters are arrays (pairs, units, …): all that queries need beside the upward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Slot
from fedcircuits.circuits.evaluation.step import Functional
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import (
    Array,
    Arrays,
    Family,
    Region,
    family,
    raise_if_wrong,
)
from fedcircuits.circuits.graph.parameters import Parameters


@dataclass(frozen=True, slots=True)
class FamilyPart:
    rule: Family
    leaves: tuple[tuple[str, int], ...]  # names and widths
    pairs: Tensor  # (n,) which pairs of the step
    arrays: Mapping[str, Array]  # (n, units, …)

    def log_mode(self) -> Tensor:
        """log density at the mode, (n, units)."""
        tensors = {n: torch.as_tensor(np.ascontiguousarray(a)) for n, a in self.arrays.items()}
        return self.rule.log_density(torch.as_tensor(self.rule.mode(self.arrays)), tensors)

    def sound(self) -> FamilyPart:
        """Itself, if the values are such as its family can have; else ParameterError."""
        if self.rule.check(self.arrays) is not None:
            ends = np.cumsum([width for _, width in self.leaves])
            for (name, width), end in zip(self.leaves, ends, strict=True):
                arrays = {n: a[end - width : end] for n, a in self.arrays.items()}
                raise_if_wrong(name, self.rule.check(arrays))
        return self


@dataclass(frozen=True, slots=True)
class LeafPairs:
    variable: Tensor  # (pairs,)
    slot: Tensor  # (pairs,) fold of the slot in the step
    leaves: tuple[tuple[str, str, int], ...]  # name, family, first pair
    widths: tuple[int, ...]

    @classmethod
    def of(cls, slots: list[Slot], circuit: Circuit) -> LeafPairs:
        variable: list[int] = []
        slot_of: list[int] = []
        leaves = []
        for fold, slot in enumerate(slots):
            for leaf in slot.leaves:
                leaves.append((leaf.name, leaf.family, len(variable)))
                variable += [circuit.schema.index(v) for v in leaf.scope]
                slot_of += [fold] * len(leaf.scope)
        starts = [*(start for _, _, start in leaves), len(variable)]
        widths = tuple(b - a for a, b in pairwise(starts))
        return cls(torch.tensor(variable), torch.tensor(slot_of), tuple(leaves), widths)

    def pack(self, parameters: Parameters) -> tuple[FamilyPart, ...]:
        """Parameters by name into parts of equal family and shape."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for i, (name, rule, _) in enumerate(self.leaves):
            shapes = tuple((n, a.shape[2:]) for n, a in parameters[name].items())
            groups.setdefault((rule, shapes), []).append(i)
        return tuple(self._part(members, parameters) for members in groups.values())

    def _part(self, members: list[int], parameters: Parameters) -> FamilyPart:
        leaves = tuple((self.leaves[i][0], self.widths[i]) for i in members)
        pairs = [np.arange(self.leaves[i][2], self.leaves[i][2] + self.widths[i]) for i in members]
        first = parameters[leaves[0][0]]
        arrays = {
            name: np.concatenate([parameters[leaf][name].swapaxes(0, 1) for leaf, _ in leaves])
            for name in first
        }
        rule = family(self.leaves[members[0]][1])
        assert isinstance(rule, Family)
        part = FamilyPart(rule, leaves, torch.as_tensor(np.concatenate(pairs)), arrays)
        return part.sound()

    # ------------------------------------------------------------------ queries

    def region_constants(
        self, parts: tuple[FamilyPart, ...], regions: Mapping[int, Region], folds: int, units: int
    ) -> Array | None:
        """log P(every restricted variable falls into its region), (folds, units)."""
        total = None
        for part in parts:
            for variable, region in regions.items():
                at = np.flatnonzero(self.variable[part.pairs].cpu().numpy() == variable)
                if len(at) == 0:
                    continue
                total = np.zeros((folds, units)) if total is None else total
                arrays = {n: a[at] for n, a in part.arrays.items()}
                mass = sum(part.rule.mass(arrays, *interval) for interval in region)
                with np.errstate(divide="ignore"):
                    logs = np.maximum(np.log(mass), -1e30)
                np.add.at(total, self.slot.cpu().numpy()[part.pairs.cpu().numpy()[at]], logs)
        return total

    def average(
        self,
        parts: tuple[FamilyPart, ...],
        posterior: Tensor,
        variable: int,
        functional: Functional,
    ) -> Tensor | None:
        """Σ posterior · functional over this variable's leaves, (D, batch).

        posterior is (folds, units, batch).
        """
        total: Tensor | None = None
        for part in parts:
            at = np.flatnonzero(self.variable[part.pairs].cpu().numpy() == variable)
            if len(at):
                averages = functional(part.rule, {n: a[at] for n, a in part.arrays.items()})
                weights = posterior[self.slot[part.pairs[at]]].double()  # (n, units, batch)
                terms = torch.as_tensor(averages)[..., None] * weights
                term = torch.where(weights > 0, terms, 0.0).sum((1, 2))  # 0 · ∞ is 0
                total = term if total is None else total + term
        return total

    def complete(
        self,
        parts: tuple[FamilyPart, ...],
        chosen: Tensor,  # (folds, batch) unit or −1
        out: Array,  # (batch, variables), NaN is filled
        regions: Mapping[int, Region],
        rng: np.random.Generator | None,
    ) -> None:
        for part in parts:
            unit = chosen[self.slot[part.pairs]].cpu().numpy()  # (n, batch)
            variables = self.variable[part.pairs].cpu().numpy()
            missing = np.isnan(out[:, variables]).T & (unit >= 0)
            pair, row = np.nonzero(missing)
            for region, at in _by_region(variables[pair], regions):
                arrays = {n: a[pair[at], unit[pair[at], row[at]]] for n, a in part.arrays.items()}
                out[row[at], variables[pair[at]]] = draw(part.rule, arrays, region, rng)


def _by_region(
    variables: np.ndarray[tuple[int], np.dtype[np.int64]], regions: Mapping[int, Region]
) -> Iterator[tuple[Region | None, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    restricted = np.isin(variables, list(regions))
    if not restricted.all():
        yield None, np.flatnonzero(~restricted)
    for variable, region in regions.items():
        if (variables == variable).any():
            yield region, np.flatnonzero(variables == variable)


def draw(
    rule: Family, arrays: Arrays, region: Region | None, rng: np.random.Generator | None
) -> Array:
    """A value of every distribution, inside the region: drawn, or the mode without rng."""
    if rng is None:
        return rule.mode(arrays)
    if region is None:
        return rule.sample(rng, arrays)
    masses = np.stack([rule.mass(arrays, *interval) for interval in region])  # (intervals, n)
    which = (rng.random(masses.shape[1]) * masses.sum(0) >= masses.cumsum(0)).sum(0)
    which = np.minimum(which, len(region) - 1)
    drawn = np.empty(masses.shape[1])
    for i, interval in enumerate(region):
        at = np.flatnonzero(which == i)
        if len(at):
            drawn[at] = rule.sample(rng, {n: a[at] for n, a in arrays.items()}, *interval)
    return drawn

"""One party's columns under every component of a mixture: the block of a vertical mixture.

A block is a list of parts that are independent given the component: one Gaussian with full
covariance for all real columns, one distribution of a leaf family for each other column. All a
block has to give is the log-density of rows under every component, which parties add up, and
additive sums of rows weighed by responsibilities, from which it updates itself. NaN is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.circuits.graph.nodes import Leaf, Node, Product
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError
from fedcircuits.methods.vertical.gaussian_block import GaussianPart
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

USUAL = {"count": "poisson", "category": "categorical", "boolean": "bernoulli"}
State = tuple[Arrays, ...]  # what all parts have learned, in their own units
Outside = tuple[tuple[tuple[str, ...], Arrays], ...]  # the same by columns, in the user's units


class Part(Protocol):
    """Some columns of a block; arrays of a state have the components first."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def free(self) -> int: ...
    def terms(self, state: Arrays, rows: slice) -> Array: ...
    def statistics(self, weight: Array, state: Arrays, origin: Arrays, rows: slice) -> Arrays: ...
    def maximise(self, sums: Arrays, state: Arrays, origin: Arrays) -> Arrays: ...
    def whole(self, components: int) -> Arrays: ...
    def moved(self, state: Arrays, component: int, row: int | None) -> Arrays: ...
    def outside(self, state: Arrays) -> Arrays: ...
    def inside(self, names: tuple[str, ...], values: Arrays, components: int) -> Arrays: ...
    def leaf(self, state: Arrays, component: int) -> tuple[str, Arrays]: ...
    def collapsed(self, state: Arrays) -> Mapping[int, str]: ...


@dataclass(frozen=True, slots=True, eq=False)
class FamilyPart:
    """One column under a leaf family with additive statistics."""

    variable: Variable
    rule: Family
    x: Array  # (rows,), any value where it is missing
    seen: Array  # (rows,), 1 or 0
    start: Arrays  # of all rows, as one component
    sums: Array  # (statistics,): of all rows, for each row
    free: int

    @classmethod
    def of(cls, variable: Variable, rule: Family, x: Array, weight: Array) -> FamilyPart:
        seen = ~np.isnan(x)
        start = {n: a[None] for n, a in rule.start(x[seen], variable).items()}
        filled = np.where(seen, x, rule.mode(start)[0])
        found = rule.statistics(torch.from_numpy(filled)[None], _tensors(start)).numpy()
        w = np.where(seen, weight, 0.0)
        sums = found[:, 0] @ w / max(float(w.sum()), 1e-300)
        sizes = sum(a.size for a in start.values())
        free = sizes - ("simplex" in rule.domains.values())
        return cls(variable, rule, filled, seen.astype(np.float64), start, sums, free)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.variable.name,)

    def terms(self, state: Arrays, rows: slice) -> Array:
        x = torch.from_numpy(self.x[rows])[None]
        return np.asarray(self.rule.log_density(x, _tensors(state)).numpy() * self.seen[rows])

    def statistics(self, weight: Array, state: Arrays, origin: Arrays, rows: slice) -> Arrays:
        x, w = torch.from_numpy(self.x[rows])[None], weight * self.seen[rows]
        found = self.rule.statistics(x, _tensors(state)).numpy()  # (S, components or 1, rows)
        return {"count": w.sum(axis=1), "sums": np.einsum("skr,kr->sk", found, w)}

    def maximise(self, sums: Arrays, state: Arrays, origin: Arrays) -> Arrays:
        return self.rule.maximise(sums["count"], sums["sums"], state)

    def whole(self, components: int) -> Arrays:
        return {n: np.repeat(a, components, axis=0) for n, a in self.start.items()}

    def moved(self, state: Arrays, component: int, row: int | None) -> Arrays:
        """Half way between all rows and the row."""
        here: Arrays = self.whole(1)
        if row is not None and self.seen[row]:
            x = torch.from_numpy(self.x[row : row + 1])[None]
            own = self.rule.statistics(x, _tensors(here)).numpy()[:, :, 0]
            here = self.rule.maximise(np.array([2.0]), self.sums[:, None] + own, here)
        state = {n: a.copy() for n, a in state.items()}
        for name, value in here.items():
            state[name][component] = value[0]
        return state

    def outside(self, state: Arrays) -> Arrays:
        return state

    def inside(self, names: tuple[str, ...], values: Arrays, components: int) -> Arrays:
        fits = values.keys() == self.start.keys()
        return dict(values) if fits else self.whole(components)

    def leaf(self, state: Arrays, component: int) -> tuple[str, Arrays]:
        return self.rule.name, {n: a[component][None, None] for n, a in state.items()}

    def collapsed(self, state: Arrays) -> Mapping[int, str]:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """All columns of one party."""

    schema: Schema
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, table: Table, weight: Array, leaves: Mapping[str, str], reg_covar: float) -> Block:
        """``leaves``: families of columns that shall not have the usual one."""
        rules = {v.name: _rule(v, leaves) for v in table.schema}
        real = tuple(n for n, rule in rules.items() if rule is None)
        parts: list[Part] = []
        if real:
            x = table.select(real).values
            parts.append(GaussianPart.of(real, x, weight, reg_covar))
        for i, variable in enumerate(table.schema):
            rule = rules[variable.name]
            if rule is not None:
                parts.append(FamilyPart.of(variable, rule, table.values[:, i], weight))
        return cls(table.schema, tuple(parts))

    @property
    def free(self) -> int:
        return sum(part.free for part in self.parts)

    def terms(self, state: State, rows: slice) -> Array:
        """(components, rows)."""
        found = [part.terms(own, rows) for part, own in zip(self.parts, state, strict=True)]
        return sum(found[1:], found[0])

    def statistics(self, weight: Array, state: State, origin: State, rows: slice) -> State:
        each = zip(self.parts, state, origin, strict=True)
        return tuple(part.statistics(weight, own, about, rows) for part, own, about in each)

    def maximise(self, sums: State, state: State, origin: State) -> State:
        each = zip(self.parts, sums, state, origin, strict=True)
        return tuple(part.maximise(found, own, about) for part, found, own, about in each)

    def whole(self, components: int) -> State:
        return tuple(part.whole(components) for part in self.parts)

    def moved(self, state: State, component: int, row: int | None) -> State:
        each = zip(self.parts, state, strict=True)
        return tuple(part.moved(own, component, row) for part, own in each)

    def outside(self, state: State) -> Outside:
        each = zip(self.parts, state, strict=True)
        return tuple((part.names, part.outside(own)) for part, own in each)

    def inside(self, values: Outside, components: int) -> State:
        """A state of what is known of the columns; the rest is as all rows are."""
        return tuple(self._inside(part, values, components) for part in self.parts)

    @staticmethod
    def _inside(part: Part, values: Outside, components: int) -> Arrays:
        for names, found in values:
            if set(part.names) <= set(names):
                return part.inside(names, found, components)
        return part.whole(components)

    def circuit(self, state: State, component: int) -> tuple[Circuit, Parameters]:
        """One component as a circuit over the block's columns."""
        nodes: list[Node] = []
        values: dict[str, Arrays] = {}
        for part, own in zip(self.parts, state, strict=True):
            rule, parameters = part.leaf(own, component)
            name = part.names[0] if len(part.names) == 1 else "numbers"
            nodes.append(Leaf(f"leaf {name}", rule, part.names))
            values[f"leaf {name}"] = parameters
        if len(nodes) > 1:
            nodes.append(Product("all", tuple(n.name for n in nodes)))
        return Circuit(tuple(nodes), self.schema), Parameters(values)

    def collapsed(self, state: State) -> Mapping[int, str]:
        """Components without any spread in a column that has some elsewhere, and that column."""
        each = zip(self.parts, state, strict=True)
        return {k: n for part, own in each for k, n in part.collapsed(own).items()}


def added(sums: Sequence[State]) -> State:
    """The sums of several lots of rows together."""
    first, *others = sums
    return tuple(
        {n: sum((o[i][n] for o in others), part[n]) for n in part} for i, part in enumerate(first)
    )


def check_leaves(leaves: Mapping[str, str], schemas: Iterable[Schema]) -> None:
    """FederationError if a family is named for a column that nobody has, or does not fit it."""
    if not isinstance(leaves, Mapping):
        raise FederationError(
            f"leaves={leaves!r}: expected a dict of columns and families, such as "
            "{'income': 'gamma'}"
        )
    known = {v.name: v for schema in schemas for v in schema}
    for name in leaves:
        if name not in known:
            raise FederationError(f"leaves names {name!r}, which is no column of any party")
        _rule(known[name], leaves)


def _rule(variable: Variable, leaves: Mapping[str, str]) -> Family | None:
    """The family of a column; None for the Gaussian of all real ones."""
    name = leaves.get(variable.name, USUAL.get(variable.kind, "gaussian"))
    if name == "gaussian" and variable.kind == "real":
        return None
    rule = family(name)
    if not isinstance(rule, Family) or variable.kind not in rule.kinds:
        expected = ", ".join(sorted(rule.kinds)) if isinstance(rule, Family) else "one column"
        raise FederationError(
            f"the leaf of {variable.name!r}, a {variable.kind}, cannot be {name!r}, which is for "
            f"{expected}"
        )
    return rule


def _tensors(p: Arrays) -> dict[str, torch.Tensor]:
    """With an axis for rows behind that of components."""
    return {n: torch.from_numpy(np.ascontiguousarray(a)).unsqueeze(1) for n, a in p.items()}

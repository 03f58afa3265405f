"""One party's columns under every component of a mixture: its block of the mixture.

A block is a list of factors that are independent given the component: one Gaussian with full
covariance for all real columns (gaussian.py), and one distribution of a leaf family for each other
column. All it has to provide is the log-density of rows under every component, which parties add
up, and additive sums of rows weighted by responsibilities, from which it updates itself. NaN means
missing. A member without columns, such as a server, has a block without factors.

After training a block is a party's view of the circuit, one leaf per component, and the leader has
the graph above the leaves: a sum of products of one leaf per party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays, Family, family
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.placement import Joint, View
from fedcircuits.methods.vertical.gaussian import GaussianFactor
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

DEFAULT_FAMILIES = {"count": "poisson", "category": "categorical", "boolean": "bernoulli"}
BlockState = tuple[Arrays, ...]  # parameters, or sums, of all factors in their own units
UserValues = tuple[tuple[tuple[str, ...], Arrays], ...]  # parameters by columns, in user units


@dataclass(frozen=True, slots=True, eq=False)
class FamilyFactor:
    """One column under a leaf family with additive statistics."""

    variable: Variable
    rule: Family
    x: Array  # (rows,), any value where it is missing
    seen: Array  # (rows,), 1 or 0
    start: Arrays  # of all rows, as one component
    sums: Array  # (statistics,): of all rows, per row
    n_parameters: int

    @classmethod
    def of(cls, variable: Variable, rule: Family, x: Array, weight: Array) -> FamilyFactor:
        seen = ~np.isnan(x)
        start = {n: a[None] for n, a in rule.start(x[seen], variable).items()}
        filled = np.where(seen, x, rule.mode(start)[0])
        statistics = rule.statistics(torch.from_numpy(filled)[None], _tensors(start)).numpy()
        w = np.where(seen, weight, 0.0)
        sums = statistics[:, 0] @ w / max(float(w.sum()), 1e-300)
        size = sum(a.size for a in start.values()) - ("simplex" in rule.domains.values())
        return cls(variable, rule, filled, seen.astype(np.float64), start, sums, size)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.variable.name,)

    def terms(self, state: Arrays, rows: slice) -> Array:
        x = torch.from_numpy(self.x[rows])[None]
        return np.asarray(self.rule.log_density(x, _tensors(state)).numpy() * self.seen[rows])

    def statistics(self, weight: Array, state: Arrays, origin: Arrays, rows: slice) -> Arrays:
        x, w = torch.from_numpy(self.x[rows])[None], weight * self.seen[rows]
        each = self.rule.statistics(x, _tensors(state)).numpy()  # (S, components or 1, rows)
        return {"count": w.sum(axis=1), "sums": np.einsum("skr,kr->sk", each, w)}

    def maximise(self, sums: Arrays, state: Arrays, origin: Arrays) -> Arrays:
        return self.rule.maximise(sums["count"], sums["sums"], state)

    def of_all_rows(self, components: int) -> Arrays:
        return {n: np.repeat(a, components, axis=0) for n, a in self.start.items()}

    def restarted(self, state: Arrays, component: int, row: int | None) -> Arrays:
        """The component half way between all rows and the row."""
        new: Arrays = self.of_all_rows(1)
        if row is not None and self.seen[row]:
            x = torch.from_numpy(self.x[row : row + 1])[None]
            of_row = self.rule.statistics(x, _tensors(new)).numpy()[:, :, 0]
            new = self.rule.maximise(np.array([2.0]), self.sums[:, None] + of_row, new)
        state = {n: a.copy() for n, a in state.items()}
        for name, value in new.items():
            state[name][component] = value[0]
        return state

    def in_user_units(self, state: Arrays) -> Arrays:
        return state

    def from_user_units(self, names: tuple[str, ...], values: Arrays, size: int) -> Arrays:
        fits = values.keys() == self.start.keys()
        return dict(values) if fits else self.of_all_rows(size)

    def leaf(self, state: Arrays, component: int) -> tuple[str, Arrays]:
        return self.rule.name, {n: a[component][None, None] for n, a in state.items()}

    def collapsed(self, state: Arrays) -> Mapping[int, str]:
        return {}


Factor: TypeAlias = GaussianFactor | FamilyFactor  # arrays of their states have components first


@dataclass(frozen=True, slots=True, eq=False)
class MixtureBlock:
    """All columns of one party, under every component."""

    components: int
    schema: Schema
    factors: tuple[Factor, ...]

    @classmethod
    def of(
        cls, table: Table, weight: Array, components: int, leaves: Mapping[str, str], floor: float
    ) -> MixtureBlock:
        """``leaves``: families of columns that do not have the default; ``floor``: reg_covar."""
        rules = {v.name: _family_of(v, leaves) for v in table.schema}
        real = tuple(n for n, rule in rules.items() if rule is None)
        factors: list[Factor] = []
        if real:
            x = table.select(real).values
            factors.append(GaussianFactor.of(real, x, weight, floor))
        for i, variable in enumerate(table.schema):
            rule = rules[variable.name]
            if rule is not None:
                factors.append(FamilyFactor.of(variable, rule, table.values[:, i], weight))
        return cls(components, table.schema, tuple(factors))

    @property
    def n_parameters(self) -> int:
        """Numbers that one component learns."""
        return sum(factor.n_parameters for factor in self.factors)

    def terms(self, state: BlockState, rows: slice) -> Array:
        """(components, rows) log-densities."""
        each = [f.terms(values, rows) for f, values in zip(self.factors, state, strict=True)]
        if not each:
            return np.zeros((self.components, rows.stop - rows.start))
        return sum(each[1:], each[0])

    def statistics(
        self, weight: Array, state: BlockState, origin: BlockState, rows: slice
    ) -> BlockState:
        """Additive sums of rows; weight is (components, rows)."""
        each = zip(self.factors, state, origin, strict=True)
        return tuple(f.statistics(weight, values, about, rows) for f, values, about in each)

    def maximise(self, sums: BlockState, state: BlockState, origin: BlockState) -> BlockState:
        each = zip(self.factors, sums, state, origin, strict=True)
        return tuple(f.maximise(total, values, about) for f, total, values, about in each)

    def of_all_rows(self) -> BlockState:
        """Every component as all rows are."""
        return tuple(factor.of_all_rows(self.components) for factor in self.factors)

    def restarted(self, state: BlockState, component: int, row: int | None) -> BlockState:
        """One component restarted at a row of the party, or in the middle of its rows."""
        each = zip(self.factors, state, strict=True)
        return tuple(f.restarted(values, component, row) for f, values in each)

    def in_user_units(self, state: BlockState) -> UserValues:
        each = zip(self.factors, state, strict=True)
        return tuple((f.names, f.in_user_units(values)) for f, values in each)

    def from_user_units(self, values: UserValues) -> BlockState:
        """A state from known values of columns; the rest is as for all rows together."""
        return tuple(self._known(factor, values) for factor in self.factors)

    def _known(self, factor: Factor, values: UserValues) -> Arrays:
        for names, known in values:
            if set(factor.names) <= set(names):
                return factor.from_user_units(names, known, self.components)
        return factor.of_all_rows(self.components)

    def collapsed(self, state: BlockState) -> dict[str, list[int]]:
        """For each column the components without any spread in it, though others have some."""
        columns: dict[str, list[int]] = {}
        each = zip(self.factors, state, strict=True)
        for factor, values in each:
            for component, name in factor.collapsed(values).items():
                columns.setdefault(name, []).append(component)
        return columns

    # ------------------------------------------------------------------ circuits

    def circuit(self, state: BlockState, component: int) -> tuple[Circuit, Parameters]:
        """One component as a circuit over the block's columns."""
        nodes: list[Node] = []
        parameters: dict[str, Arrays] = {}
        for factor, values in zip(self.factors, state, strict=True):
            name = f"leaf {factor.names[0] if len(factor.names) == 1 else 'numbers'}"
            rule, parameters[name] = factor.leaf(values, component)
            nodes.append(Leaf(name, rule, factor.names))
        if len(nodes) > 1:
            nodes.append(Product("all", tuple(n.name for n in nodes)))
        return Circuit(tuple(nodes), self.schema), Parameters(parameters)

    def view(self, party: Party, state: BlockState) -> View:
        """The leaves that live at a party: one per component, over all columns of its block."""
        which = range(self.components if self.factors else 0)
        leaves = tuple(Leaf(leaf_name(party.name, k), CIRCUIT, self.schema.names) for k in which)
        circuits = {leaf.name: self.circuit(state, k) for k, leaf in enumerate(leaves)}
        parameters = Parameters({}, circuits)
        return View(party.name, self.schema, leaves, parameters, party.allow_collect)


def joint_of(weights: Array, schemas: Mapping[str, Schema], holders: Mapping[str, Schema]) -> Joint:
    """The graph above the leaves: a sum of products, one per component, of one leaf per holder."""
    nodes: list[Node] = []
    placement: dict[str, str] = {}
    tops = []
    for k in range(len(weights)):
        leaves = [Leaf(leaf_name(p, k), CIRCUIT, s.names) for p, s in holders.items()]
        nodes.extend(leaves)
        placement.update({leaf_name(p, k): p for p in holders})
        tops.append(leaves[0].name if len(leaves) == 1 else f"component {k}")
        if len(leaves) > 1:
            nodes.append(Product(tops[-1], tuple(leaf.name for leaf in leaves)))
            placement[tops[-1]] = COORDINATOR
    nodes.append(Sum("root", tuple(tops)))
    placement["root"] = COORDINATOR
    circuit = Circuit(tuple(nodes), Schema(tuple(v for schema in schemas.values() for v in schema)))
    return Joint(circuit, placement, Parameters({"root": {WEIGHT: weights[None]}}))


def leaf_name(party: str, component: int) -> str:
    return f"{party}/{component}"


def added(sums: Sequence[BlockState]) -> BlockState:
    """The sums of several batches of rows together."""
    first, *others = sums
    return tuple(
        {n: sum((o[i][n] for o in others), a) for n, a in arrays.items()}
        for i, arrays in enumerate(first)
    )


# ---------------------------------------------------------------------- families of columns


def check_leaves(leaves: Mapping[str, str], schema: Schema) -> None:
    """FederationError if a family is named for a column that nobody has, or does not fit it."""
    if not isinstance(leaves, Mapping):
        raise FederationError(
            f"leaves={leaves!r}: expected a dict of columns and families, such as "
            "{'income': 'gamma'}"
        )
    for name in leaves:
        if name not in schema:
            raise FederationError(f"leaves names {name!r}, which is not a column of any party")
        _family_of(schema[name], leaves)


def _family_of(variable: Variable, leaves: Mapping[str, str]) -> Family | None:
    """The family of a column; None for the Gaussian of all real ones."""
    name = leaves.get(variable.name, DEFAULT_FAMILIES.get(variable.kind, "gaussian"))
    if name == "gaussian" and variable.kind == "real":
        return None
    rule = family(name)
    if not isinstance(rule, Family) or variable.kind not in rule.kinds:
        expected = ", ".join(sorted(rule.kinds)) if isinstance(rule, Family) else "one column"
        raise FederationError(
            f"the leaf of {variable.name!r}, a {variable.kind}, cannot be {name!r}, which models "
            f"{expected}"
        )
    return rule


def _tensors(p: Arrays) -> dict[str, torch.Tensor]:
    """With an axis for rows behind that of components."""
    return {n: torch.from_numpy(np.ascontiguousarray(a)).unsqueeze(1) for n, a in p.items()}

"""A vertical mixture as one member holds it: its own block of every component, and all weights.

Plans, states that a run begins with or goes on from, the local half of EM, and what is left at the
end: a view of the party's own leaves, and at the leader the graph above them, a sum of products of
one leaf a party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.placement import Joint, View
from fedcircuits.federation.sums.topology import Neighbourhood
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.vertical.blocks import Block, Outside, State, added
from fedcircuits.methods.vertical.rows import holders
from fedcircuits.methods.vertical.sums import Sums, Terms
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

Init = Literal["k-means++", "random_from_data"]
Share = tuple[Array, State]  # of a lot of rows: rows of every component, sums of the block


@dataclass(frozen=True, slots=True)
class Plan:
    """What all members of a run do alike."""

    components: int = 1
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_iter: int = 100
    n_init: int = 1
    init: Init = "k-means++"
    batch_size: int | None = None
    leaves: tuple[tuple[str, str], ...] = ()  # families of columns that shall not have the usual
    hubs: tuple[Neighbourhood, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Where a member is in a run, in the user's units: what it begins with, or goes on from."""

    values: Outside = ()  # of its columns; what is absent is as all rows are
    weights: Array | None = None  # (components,); None: equal
    run: int = 0
    round: int = 0
    bounds: tuple[float, ...] = ()
    anew: tuple[tuple[int, int], ...] = ()  # components that have begun anew, and when
    best: Progress | None = None  # of the runs before
    plan: Plan | None = None

    def model(self, block: Block | None, components: int) -> Model:
        weights = self.weights
        if weights is None:
            weights = np.full(components, 1 / components)
        return Model(() if block is None else block.inside(self.values, components), weights)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One member's part, in its own units."""

    state: State
    weights: Array  # (components,)

    @property
    def log_weights(self) -> Array:
        return np.log(np.maximum(self.weights, 1e-300))


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """What a member has at the end."""

    weights: Array  # (components,)
    bounds: tuple[float, ...]  # log-likelihood a row before every update
    converged: bool
    bound: float  # log-likelihood a row at the end
    labels: Labels  # (own rows,) in the order of its own table
    view: View | None = None  # of a party
    joint: Joint | None = None  # of the leader
    values: Outside = ()  # of its columns, to go on from
    free: int = 0  # numbers that its columns have learned for one component
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """One member of a run: the half of EM that it does by itself."""

    plan: Plan
    sums: Sums
    table: Table | None
    block: Block | None

    @property
    def lots(self) -> list[slice]:
        """Ranges of rows that are looked at one after the other."""
        total = self.sums.rows.total
        size = self.plan.batch_size or total
        return [slice(a, min(a + size, total)) for a in range(0, total, size)]

    def terms(self, model: Model) -> Terms | None:
        block = self.block
        return None if block is None else lambda rows: block.terms(model.state, rows)

    def share(self, resp: Array, part: slice, model: Model, origin: State) -> Share:
        """What a lot of rows says; resp is (components, rows)."""
        weighed = resp * self.sums.rows.weight[part]
        size = weighed.sum(axis=1)
        if self.block is None:
            return size, ()
        held = np.ascontiguousarray(self.sums.held(weighed, part))
        return size, self.block.statistics(held, model.state, origin, self.sums.own(part))

    def maximised(self, shares: Sequence[Share], model: Model, origin: State) -> Model:
        size = np.sum([own for own, _ in shares], axis=0)
        state = model.state
        if self.block is not None:
            state = self.block.maximise(added([own for _, own in shares]), state, origin)
        return Model(state, size / size.sum())

    def whole(self) -> Model:
        """All components as all rows are."""
        number = self.plan.components
        state = () if self.block is None else self.block.whole(number)
        return Model(state, np.full(number, 1 / number))

    def moved(self, model: Model, component: int, row: int) -> Model:
        """One component at a row, with as much weight as the others on average."""
        state, weights = model.state, model.weights.copy()
        if self.block is not None:
            state = self.block.moved(state, component, self.sums.position(row))
        weights[component] = weights.sum() - weights[component]
        weights[component] /= max(len(weights) - 1, 1)
        return Model(state, weights / weights.sum())

    def outside(self, model: Model) -> Outside:
        return () if self.block is None else self.block.outside(model.state)


# ---------------------------------------------------------------------- circuits


def leaf_name(party: str, component: int) -> str:
    return f"{party}/{component}"


def view_of(party: Party, end: End, model: Model) -> View:
    """The leaves that live at a party: one a component, over all its columns."""
    if end.block is None:
        return View(party.name, Schema(()), (), Parameters({}), party.allow_collect)
    leaves, circuits = [], {}
    for k in range(end.plan.components):
        name = leaf_name(party.name, k)
        leaves.append(Leaf(name, CIRCUIT, end.block.schema.names))
        circuits[name] = end.block.circuit(model.state, k)
    parameters = Parameters({}, circuits)
    return View(party.name, end.block.schema, tuple(leaves), parameters, party.allow_collect)


def joint_of(plan: Plan, schemas: Mapping[str, Schema], weights: Array) -> Joint:
    """The graph above the leaves: a sum of one product a component."""
    held = holders(schemas, plan.hubs)
    nodes: list[Node] = []
    placement: dict[str, str] = {}
    tops = []
    for k in range(plan.components):
        leaves = [Leaf(leaf_name(p, k), CIRCUIT, s.names) for p, s in held.items()]
        nodes.extend(leaves)
        placement.update({leaf_name(p, k): p for p in held})
        tops.append(leaves[0].name if len(leaves) == 1 else f"component {k}")
        if len(leaves) > 1:
            nodes.append(Product(tops[-1], tuple(leaf.name for leaf in leaves)))
            placement[tops[-1]] = COORDINATOR
    nodes.append(Sum("root", tuple(tops)))
    placement["root"] = COORDINATOR
    schema = Schema(tuple(v for own in schemas.values() for v in own))
    return Joint(
        Circuit(tuple(nodes), schema), placement, Parameters({"root": {WEIGHT: weights[None]}})
    )

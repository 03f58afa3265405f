"""The upper part of a federated circuit: from cluster sizes and combinations to sums and products.

A row is held by some parties and lies in one cluster of each: its combination. Every combination
whose parties hold all variables together becomes a product, weighed by its rows; below it, for
every subspace, stands the leaf of the cluster, or a sum over the leaves of the parties that share
the subspace, weighed by the clusters' rows. So a row split gives a sum over parties, a column split
a sum over products, and what lies between both.

Combinations that no training row has are not impossible: one more product joins the parties'
clusters independently. Its weight is the share of rows whose combination occurs once, which is
about the chance that the next row's is new (Good and Turing).

Without matched rows the paper's rule is left: every cluster is in at least one product, drawn at
random, and products weigh as many rows as their leaves have together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedcircuits.circuits.circuit import CIRCUIT, Circuit, reachable
from fedcircuits.circuits.family import Array, Arrays
from fedcircuits.circuits.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import WEIGHT, Parameters
from fedcircuits.circuits.schema import Schema
from fedcircuits.federation.federation import COORDINATOR, Subspace
from fedcircuits.federation.placement import Placement
from fedcircuits.federation.tokens import Labels

POOLED = -1  # the cluster of a leaf that was learned from all rows
Sizes = Mapping[str, Sequence[int]]  # rows of every cluster of every party


@dataclass(frozen=True, slots=True)
class Assembled:
    circuit: Circuit
    parameters: Parameters  # weights of sums; leaves have theirs at home
    placement: Placement


def leaf_name(party: str, cluster: int, space: int) -> str:
    return f"{party}/all/{space}" if cluster == POOLED else f"{party}/{cluster}/{space}"


@dataclass(slots=True)
class Assembly:
    """Nodes as they are put together; equal ones are made once."""

    spaces: Sequence[Subspace]
    sizes: Sizes
    pooled: bool = False  # the published rule for shared subspaces: one mixture under all products
    nodes: dict[str, Node] = field(default_factory=dict)
    weights: dict[str, Arrays] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)

    def product(self, name: str, clusters: Mapping[str, int]) -> str:
        """One combination: a node that spans all variables, by parties that are in it."""
        return self._join(name, [self._space(i, clusters) for i in range(len(self.spaces))])

    def independent(self, name: str) -> str:
        """Every subspace by all clusters of all its holders, apart from the others."""
        spaces = [
            self._mixture(i, [(p, k) for p in s.holders for k in self._leaves_of(p, i)])
            for i, s in enumerate(self.spaces)
        ]
        return self._join(name, spaces)

    def finish(self, children: Sequence[str], counts: Array, schema: Schema) -> Assembled:
        root = self._sum("root", list(children), counts)
        circuit = Circuit(reachable(self.nodes.values(), root), schema)
        kept = set(circuit.by_name)
        weights = {n: w for n, w in self.weights.items() if n in kept}
        placed = {n: self.placement[n] for n in circuit.by_name}
        return Assembled(circuit, Parameters(weights), placed)

    def covers(self, parties: frozenset[str]) -> bool:
        return all(parties.intersection(s.holders) for s in self.spaces)

    # ------------------------------------------------------------------ nodes

    def _leaves_of(self, party: str, space: int) -> Sequence[int]:
        shared = self.pooled and len(self.spaces[space].holders) > 1
        return [POOLED] if shared else range(len(self.sizes[party]))

    def _space(self, space: int, clusters: Mapping[str, int]) -> str:
        holders = self.spaces[space].holders
        if self.pooled and len(holders) > 1:
            return self._mixture(space, [(p, POOLED) for p in holders])
        return self._mixture(space, [(p, clusters[p]) for p in holders if p in clusters])

    def _mixture(self, space: int, members: Sequence[tuple[str, int]]) -> str:
        leaves = [self._leaf(p, k, space) for p, k in members]
        rows = np.array([self._rows(p, k) for p, k in members], dtype=np.float64)
        return self._sum(" + ".join(leaves), leaves, rows)

    def _rows(self, party: str, cluster: int) -> int:
        own = self.sizes[party]
        return sum(own) if cluster == POOLED else own[cluster]

    def _leaf(self, party: str, cluster: int, space: int) -> str:
        name = leaf_name(party, cluster, space)
        self.nodes[name] = Leaf(name, CIRCUIT, self.spaces[space].variables)
        self.placement[name] = party
        return name

    def _sum(self, name: str, children: list[str], rows: Array) -> str:
        if len(children) == 1:
            return children[0]
        name = name if len(name) < 80 else f"{len(children)} leaves {len(self.nodes)}"
        self.nodes[name] = Sum(name, tuple(children))
        self.weights[name] = {WEIGHT: (rows / rows.sum())[None]}
        self.placement[name] = COORDINATOR
        return name

    def _join(self, name: str, children: list[str]) -> str:
        if len(children) == 1:
            return children[0]
        self.nodes[name] = Product(name, tuple(children))
        self.placement[name] = COORDINATOR
        return name


def by_rows(made: Assembly, schema: Schema) -> Assembled:
    """Every party holds every variable: a mixture of their circuits, weighed by their rows."""
    members = [(p, k) for p, own in made.sizes.items() for k in range(len(own))]
    children = [made.product(f"{p} {k}", {p: k}) for p, k in members]
    rows = np.array([made.sizes[p][k] for p, k in members], dtype=np.float64)
    return made.finish(children, rows, schema)


def by_cooccurrence(
    made: Assembly,
    schema: Schema,
    parties: Sequence[str],
    combinations: Labels,
    rows: Array,
    most: int | None = None,
) -> Assembled | None:
    """Combinations (combinations, parties) of clusters, −1 where a party lacks the rows; None where
    no combination has all variables."""
    complete = _complete(made, parties, combinations)
    combinations, rows = combinations[complete], rows[complete]
    if not len(rows):
        return None
    new = float((rows == 1).sum() / rows.sum())
    if most is not None and len(rows) > most:
        kept = np.sort(np.argsort(-rows, kind="stable")[:most])
        new += float(1 - rows[kept].sum() / rows.sum())
        combinations, rows = combinations[kept], rows[kept]
    children = []
    for i, labels in enumerate(combinations.tolist()):
        met = {p: k for p, k in zip(parties, labels, strict=True) if k >= 0}
        children.append(made.product(f"product {i}", met))
    if new > 0 and len(rows) > 1:
        children.append(made.independent("independent"))
        new = min(new, 0.5)
        rows = np.append(rows * (1 - new) / rows.sum(), new)
    return made.finish(children, rows, schema)


def _complete(made: Assembly, parties: Sequence[str], combinations: Labels) -> Array:
    sets, which = np.unique(combinations >= 0, axis=0, return_inverse=True)
    covers = [
        made.covers(frozenset(p for p, held in zip(parties, row, strict=True) if held))
        for row in sets
    ]
    return np.asarray(covers, dtype=bool)[which.reshape(-1)]


def by_sizes(
    made: Assembly, schema: Schema, products: int | Literal["auto"], rng: np.random.Generator
) -> Assembled:
    """The published rule."""
    most = max(len(own) for own in made.sizes.values())
    number = most if products == "auto" else max(most, products)
    columns = {}
    for party, own in made.sizes.items():
        extra = rng.integers(len(own), size=number - len(own))
        columns[party] = rng.permutation(np.concatenate([np.arange(len(own)), extra]))
    children, rows = [], []
    for i in range(number):
        clusters = {p: int(drawn[i]) for p, drawn in columns.items()}
        children.append(made.product(f"product {i}", clusters))
        rows.append(sum(made.sizes[p][k] for p, k in clusters.items()))
    return made.finish(children, np.array(rows, dtype=np.float64), schema)

"""The upper part of a federated circuit: from cluster sizes and combinations to sums and products.

A row is held by some parties and lies in one cluster of each: this is its combination. Every
combination whose parties hold all variables together becomes a product, weighted by its number of
rows. Below it, for every group of variables, is the leaf of the cluster. The root mixes the
products of all divisions (planning.py): a row split gives a sum over parties, a column split a sum
over products, and other splits something between the two.

Where shared columns are not divided, a sum over the leaves of all their holders takes the place of
the leaf: of the holders' clusters in the combination, weighted by their rows, or by the published
rule ("pooled") the same sum of leaves from all rows under every product.

Combinations that no training row has are not impossible: one more product joins the parties'
clusters independently. Its weight is the share of rows whose combination occurs once, which is
about the chance that the combination of the next row is new (Good and Turing).

Several circuits over the same division are weighted by how much their clusters say about each
other, of a row that was left out: what they capture of how the parties' columns depend on each
other, and not of chance. What parties learn alone is mixed in by the same measure (leaves.py).

Where no row joins the parties nothing is known of how their columns depend on each other, and one
product of independent groups is all there is. The paper's rule, weights="sizes", pairs clusters
there: every cluster is in at least one product, drawn at random, and a product is weighted by the
rows that its leaves have together. It makes up dependence that no row has shown.

Messages say how large clusters are and in how many rows they meet; they are checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum, reachable
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.federation.federation import COORDINATOR, Subspace
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import Count, Message, require
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.counting import CombinationCounts, Labels
from fedcircuits.methods.fedpc.cells import Nats
from fedcircuits.methods.fedpc.planning import Auto, Division, FedPCPlan
from fedcircuits.tables.schema import Schema


class ClusterSizes(Message, frozen=True):
    """By division how many rows each cluster has."""

    tag: ClassVar[str] = "count/sizes"
    reveals: ClassVar[str] = (
        "its number of rows in each cluster; how much more likely its rows are under a single "
        "circuit than under those of the clusters"
    )

    sizes: dict[int, tuple[Count, ...]]
    collect: bool  # with refine: whether what it has learned may leave it
    alone: dict[int, Nats]  # a row held back gains by one circuit over those of clusters

    @classmethod
    def of(cls, labels: Mapping[int, Labels], collect: bool, alone: dict[int, float]) -> Self:
        """Of the cluster of every row, by division."""
        sizes = {d: tuple(np.bincount(label).tolist()) for d, label in labels.items()}
        return cls(sizes, collect, alone)

    def check(self, party: str, divisions: Sequence[Division], rows: int) -> None:
        """MessageError unless it has clusters of all of the party's rows, by its divisions."""
        expected = {i for i, d in enumerate(divisions) if party in d.parties}
        fits = self.sizes.keys() == expected
        problem = f"the {COORDINATOR} asked for clusters of divisions {sorted(expected)}"
        require(fits, party, ClusterSizes, "sizes", problem)
        sound = all(min(s, default=0) > 0 and sum(s) == rows for s in self.sizes.values())
        require(sound, party, ClusterSizes, "sizes", f"expected clusters of its {rows:,} rows")
        numbers = self.alone.keys() <= expected and bool(np.isfinite([*self.alone.values()]).all())
        require(numbers, party, ClusterSizes, "alone", "expected numbers of its divisions")


def combination_counts(
    divisions: Sequence[Division],
    sizes: Mapping[str, ClusterSizes],
    where: Labels | None,
    plan: FedPCPlan,
) -> Flow[Mapping[int, CombinationCounts]]:
    """In how many rows which clusters meet, by division; nothing where rows are not matched."""
    if where is None or plan.weights == "sizes":
        return {}
    counting = plan.summation.counts(COORDINATOR, plan.members)
    tables = {
        i: d.table([len(sizes[p].sizes[i]) for p in d.parties]) for i, d in enumerate(divisions)
    }
    counts = yield from counting.collect(tables, where)
    for i, (combinations, met) in counts.items():
        for party, labels in zip(divisions[i].parties, combinations.T, strict=True):
            _check_met(labels, met, party, sizes[party].sizes[i])
    return counts


def _check_met(labels: Labels, rows: Array, party: str, sizes: Sequence[int]) -> None:
    """``labels``: of a party in combinations of so many rows, −1 where it is not in them."""
    held = labels >= 0
    rows_of = np.bincount(labels[held], rows[held], len(sizes))
    fits = len(rows_of) == len(sizes) and bool((rows_of <= np.array(sizes)).all())
    require(fits, party, ClusterSizes, "sizes", "more rows were counted in a cluster")


SHARPNESS = 4.0  # a circuit weighs e to this many times the nats that its clusters say
POOLED = -1  # the cluster of a leaf that was learned from all rows
Sizes = Mapping[str, Sequence[int]]  # rows of every cluster of every party


def leaf_name(party: str, cluster: int, space: int) -> str:
    return f"{party}/all/{space}" if cluster == POOLED else f"{party}/{cluster}/{space}"


@dataclass(frozen=True, slots=True)
class RootChildren:
    """Nodes that span all variables, and the rows that each stands for."""

    names: list[str]
    rows: Array
    information: float = 0.0  # nats that clusters of the parties say about each other in a row that
    # was left out
    shown: float | None = None  # of them, in which chance has no part; None where no row joins them


@dataclass(slots=True)
class Assembly:
    """Nodes of one division as they are put together; equal ones are made once."""

    spaces: Sequence[Subspace]
    sizes: Sizes
    first: int = 0  # the number of its first group of variables among those of all divisions
    pooled: bool = False  # the published rule for shared subspaces: one mixture under all products
    nodes: dict[str, Node] = field(default_factory=dict)
    weights: dict[str, Arrays] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)

    def product(self, number: int, clusters: Mapping[str, int]) -> str:
        """One combination: a node that spans all variables, by parties that are in it."""
        children = [self._space(i, clusters) for i in range(len(self.spaces))]
        return self._join(f"product {self.first}.{number}", children)

    def independent(self) -> str:
        """Every group by all clusters of all its holders, apart from the others."""
        spaces = [
            self._mixture(i, [(p, k) for p in s.holders for k in self._leaves_of(p, i)])
            for i, s in enumerate(self.spaces)
        ]
        return self._join(f"independent {self.first}", spaces)

    def of_all_rows(self) -> str:
        """Every group by what its holder has learned of it from all rows."""
        leaves = [self._leaf(s.holders[0], POOLED, i) for i, s in enumerate(self.spaces)]
        return self._join(f"apart {self.first}", leaves)

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
        return self.sum(" + ".join(leaves), leaves, rows)

    def _rows(self, party: str, cluster: int) -> int:
        sizes = self.sizes[party]
        return sum(sizes) if cluster == POOLED else sizes[cluster]

    def _leaf(self, party: str, cluster: int, space: int) -> str:
        name = leaf_name(party, cluster, self.first + space)
        self.nodes[name] = Leaf(name, CIRCUIT, self.spaces[space].variables)
        self.placement[name] = party
        return name

    def sum(self, name: str, children: list[str], rows: Array) -> str:
        if len(children) == 1:
            return children[0]
        name = name if len(name) < 80 else f"{len(children)} leaves {self.first}.{len(self.nodes)}"
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


def joined(parts: Sequence[tuple[Assembly, RootChildren]], schema: Schema) -> Joint:
    """One root over the children of all circuits: divisions are weighted by their rows, circuits
    of one division by what their clusters say. Parameters of leaves stay with their parties."""
    total = Assembly((), {})
    for assembly, _ in parts:
        total.nodes |= assembly.nodes
        total.weights |= assembly.weights
        total.placement |= assembly.placement
    names = [n for _, children in parts for n in children.names]
    rows = [c.rows * share for (_, c), share in zip(parts, _shares(parts), strict=True)]
    root = total.sum("root", names, np.concatenate(rows))
    circuit = Circuit(reachable(total.nodes.values(), root), schema)
    weights = {n: w for n, w in total.weights.items() if n in circuit.by_name}
    placement = {n: total.placement[n] for n in circuit.by_name}
    return Joint(circuit, placement, Parameters(weights))


def _shares(parts: Sequence[tuple[Assembly, RootChildren]]) -> Array:
    """The weight of every circuit among those over the same division."""
    nats = np.array([SHARPNESS * c.information for _, c in parts])
    shares = np.ones(len(parts))
    for spaces in dict.fromkeys(tuple(assembly.spaces) for assembly, _ in parts if assembly.spaces):
        same = [i for i, (assembly, _) in enumerate(parts) if tuple(assembly.spaces) == spaces]
        weights = np.exp(nats[same] - nats[same].max())
        shares[same] = weights / weights.sum()
    return shares


# ---------------------------------------------------------------------- children of the root


def children_of(
    division: Division,
    sizes: Sizes,
    counts: CombinationCounts | None,
    plan: FedPCPlan,
    rng: np.random.Generator,
) -> tuple[Assembly, RootChildren]:
    """Products of one division: by counts, independent where nothing was counted, or by sizes."""
    assembly = Assembly(division.spaces, sizes, division.first, plan.shared == "pooled")
    if len(division.parties) == 1:
        return assembly, by_rows(assembly, division.parties[0])
    if counts is not None:
        most = None if plan.products == "auto" else plan.products
        children = by_cooccurrence(assembly, division.parties, *counts, most)
        if children is not None:
            return assembly, children
    if plan.weights == "sizes":
        return assembly, by_sizes(assembly, plan.products, rng)
    rows = sum(sizes[division.parties[0]])
    return assembly, RootChildren([assembly.independent()], np.array([rows], dtype=np.float64))


def by_rows(assembly: Assembly, party: str) -> RootChildren:
    """A party that models every variable: its clusters, weighted by their rows."""
    sizes = assembly.sizes[party]
    names = [assembly.product(k, {party: k}) for k in range(len(sizes))]
    return RootChildren(names, np.array(sizes, dtype=np.float64))


def by_cooccurrence(
    assembly: Assembly,
    parties: Sequence[str],
    combinations: Labels,
    rows: Array,
    most: int | None = None,
) -> RootChildren | None:
    """Combinations (combinations, parties) of clusters, −1 where a party lacks the rows; None where
    no combination has all variables."""
    complete = _complete(assembly, parties, combinations)
    combinations, rows = combinations[complete], rows[complete]
    if not len(rows):
        return None
    total, new = rows.sum(), float((rows == 1).sum() / rows.sum())
    information = information_left_out(combinations, rows, min(new, 0.5))
    shown = max(information, dependence_shown(combinations, rows))
    if most is not None and len(rows) > most:
        kept = np.sort(np.argsort(-rows, kind="stable")[:most])
        new += float(1 - rows[kept].sum() / total)
        combinations, rows = combinations[kept], rows[kept]
    names = []
    for i, labels in enumerate(combinations.tolist()):
        met = {p: k for p, k in zip(parties, labels, strict=True) if k >= 0}
        names.append(assembly.product(i, met))
    if new > 0 and len(rows) > 1:
        names.append(assembly.independent())
        new = min(new, 0.5)
        rows = np.append(rows * (1 - new) / rows.sum(), new)
    return RootChildren(names, rows / rows.sum() * total, information, shown)


def information_left_out(combinations: Labels, rows: Array, new: float) -> float:
    """How much likelier a row is by the others' combinations than by their clusters as if these
    were independent, in nats; ``new``: the weight of independence."""
    others = max(float(rows.sum()) - 1, 1.0)
    apart = np.ones(len(rows))
    for labels in combinations.T.astype(np.int64):
        apart *= np.maximum(np.bincount(labels + 1, rows)[labels + 1] - 1, 0.5) / others
    joint = (1 - new) * (rows - 1) / others + new * apart
    return float(rows @ np.log(np.maximum(joint, 1e-300) / apart) / rows.sum())


def dependence_shown(combinations: Labels, rows: Array) -> float:
    """What clusters say about each other, in nats, less what they would say by chance and two
    deviations of that (twice as many nats times rows are about χ²). Nothing where combinations
    could be more than rows."""

    def entropy(labels: Labels) -> float:
        _, which = np.unique(labels, axis=0, return_inverse=True)
        p = np.bincount(which.reshape(-1), weights=rows) / rows.sum()
        return float(-(p * np.log(p)).sum())

    each = [len(np.unique(labels)) for labels in combinations.T]
    free = float(np.prod(each, dtype=np.float64)) - 1 - sum(n - 1 for n in each)
    total = float(rows.sum())
    if free > total:
        return -np.inf
    apart = sum(entropy(combinations[:, [i]]) for i in range(len(each)))
    chance = free + 2 * float(np.sqrt(2 * free))
    return apart - entropy(combinations) - chance / (2 * total)


def _complete(assembly: Assembly, parties: Sequence[str], combinations: Labels) -> Array:
    sets, which = np.unique(combinations >= 0, axis=0, return_inverse=True)
    covers = [
        assembly.covers(frozenset(p for p, held in zip(parties, row, strict=True) if held))
        for row in sets
    ]
    return np.asarray(covers, dtype=bool)[which.reshape(-1)]


def by_sizes(assembly: Assembly, products: int | Auto, rng: np.random.Generator) -> RootChildren:
    """The published rule."""
    most = max(len(sizes) for sizes in assembly.sizes.values())
    number = most if products == "auto" else max(most, products)
    columns = {}
    for party, sizes in assembly.sizes.items():
        extra = rng.integers(len(sizes), size=number - len(sizes))
        columns[party] = rng.permutation(np.concatenate([np.arange(len(sizes)), extra]))
    names, rows = [], []
    for i in range(number):
        clusters = {p: int(drawn[i]) for p, drawn in columns.items()}
        names.append(assembly.product(i, clusters))
        rows.append(sum(assembly.sizes[p][k] for p, k in clusters.items()))
    return RootChildren(names, np.array(rows, dtype=np.float64))

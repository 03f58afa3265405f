"""LearnSPN: a tree of sums and products from alternating splits of rows and columns.

A part of the table (rows × columns) becomes
    a leaf       if it has one column
    a product    if its columns fall into groups that do not depend on each other
    a sum        else, over clusters of its rows
    leaves       side by side, or a Chow–Liu tree, if it has too few rows or no clusters
Gens and Domingos 2013; mixed columns as Molina et al. 2018. No recursion: parts wait on a stack,
records are turned into nodes at the end, children before parents.

Weights count as repetitions, also towards ``min_rows``; equal rows of a discrete table are learned
from once, with their number as weight.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from fedcircuits.arguments import FLAG, Choice, Declared, Real, Whole, check_arguments
from fedcircuits.circuits.graph.circuit import Circuit, Node, Product, Sum, reachable
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import TableError
from fedcircuits.learning.chow_liu.trees import forest_nodes, spanning_tree
from fedcircuits.learning.independence import Floats, Index, groups
from fedcircuits.learning.spn.clustering import Features, split_rows
from fedcircuits.learning.spn.dependence import Dependence
from fedcircuits.learning.spn.marginals import Marginals
from fedcircuits.tables.schema import Schema

Test = Literal["auto", "g", "rdc"]


@dataclass(frozen=True, slots=True)
class SPNSettings:
    """``SPNSettings(min_rows=50)``; ``PRESETS`` has those of the federated circuits paper."""

    min_rows: int | None = None  # parts with fewer rows are not split; by default ``fewest``
    clusters: int = 3
    test: Test = "auto"  # g between discrete columns, rdc between others
    threshold: float | None = None  # of the test, by default ``THRESHOLD``; with auto only of rdc
    trees: bool = True  # Chow–Liu trees instead of independent leaves, where columns are discrete
    smoothing: float = 0.5  # pseudo-rows of every category
    least_count: int = 1  # rows that whatever is counted stands for

    allowed: ClassVar[Declared] = {
        "min_rows": Whole(1, or_=(None,)),
        "clusters": Whole(2),
        "test": Choice(*get_args(Test)),
        "threshold": Real(least=0, or_=(None,)),
        "trees": FLAG,
        "smoothing": Real(least=0),
        "least_count": Whole(1),
    }

    def __post_init__(self) -> None:
        check_arguments(self)

    def fewest(self, rows: float) -> float:
        """``min_rows``, or a twelfth of a small table's rows, at least 30 and at most 200."""
        return self.min_rows if self.min_rows is not None else min(max(rows / 12, 30), 200)


# Mixed sum-product networks of the federated circuits paper: RDC with thresholds 0.3 to 0.5, parts
# of 50 to 300 rows, leaves side by side.
PRESETS = {
    "paper": SPNSettings(min_rows=200, test="rdc", threshold=0.3, trees=False),
    "paper_fine": SPNSettings(min_rows=50, test="rdc", threshold=0.3, trees=False),
    "paper_coarse": SPNSettings(min_rows=300, test="rdc", threshold=0.5, trees=False),
}


@dataclass(slots=True)
class NodeDraft:
    """A node to be: what it is made of."""

    children: list[int] = field(default_factory=list)
    weights: Array | None = None  # of a sum
    part: tuple[Index, Index] | None = None  # rows and columns of a leaf, or a group of leaves
    independent: bool = False  # the columns of the part were found to be so


class OpenPart(NamedTuple):
    """Rows and columns that still have to be made into record ``at``."""

    at: int
    rows: Index
    columns: Index
    tested: bool  # whether the columns are known to depend on each other


def learn_spn(
    values: Array,
    schema: Schema,
    settings: SPNSettings,
    rng: np.random.Generator,
    weight: Array | None = None,
    context: Array | None = None,
) -> tuple[Circuit, Parameters]:
    """A circuit and its parameters for values (rows, columns), NaN missing, and row weights.

    ``context`` is a larger table that the rows are a part of (marginals.py)."""
    weight = np.ones(len(values)) if weight is None else np.asarray(weight, dtype=np.float64)
    _check(values, schema, weight)
    values, weight = values[weight > 0], weight[weight > 0]
    if all(v.size for v in schema):
        values, weight = _distinct(values, weight)
    return _Growth(values, schema, settings, rng, weight, context).circuit()


def _check(values: Array, schema: Schema, weight: Array) -> None:
    if values.ndim != 2 or values.shape[1] != len(schema):
        raise TableError(f"expected {len(schema)} columns, got values of shape {values.shape}")
    if not len(schema):
        raise TableError("expected a table of at least one column, got none")
    if weight.shape != (len(values),):
        raise TableError(f"expected a weight for each of {len(values)} rows, got {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise TableError("weights of rows must be finite and not negative")
    if not (weight > 0).any():
        found = "weights that are all 0" if len(values) else "none"
        raise TableError(f"expected at least one row to learn from, got {found}")


def _distinct(values: Array, weight: Array) -> tuple[Array, Array]:
    """Every row once, with the summed weight of its repetitions."""
    factors = np.random.default_rng(0).integers(1, 2**62, values.shape[1], dtype=np.uint64)
    codes = np.nan_to_num(values + 1).astype(np.uint64)
    _, first, place = np.unique(codes @ (2 * factors + 1), return_index=True, return_inverse=True)
    if not np.array_equal(codes[first[place]], codes):  # two rows of one hash: next to impossible
        return values, weight
    return values[first], np.bincount(place, weight).astype(np.float64)


class _Growth:
    def __init__(
        self,
        values: Array,
        schema: Schema,
        settings: SPNSettings,
        rng: np.random.Generator,
        weight: Array,
        context: Array | None,
    ) -> None:
        self.schema, self.settings, self.rng = schema, settings, rng
        self.weight = weight.astype(np.float32)
        self.fewest = settings.fewest(float(weight.sum()))
        self.shape = values.shape
        self.features = Features.of(values, schema)
        self.dependence = Dependence(
            values, schema, weight, settings.test, settings.threshold, self.features, rng
        )
        self.marginals = Marginals(
            values, schema, weight, settings.smoothing, rng, context, settings.least_count
        )
        self.records: list[NodeDraft] = []

    # ------------------------------------------------------------------ growing

    def grow(self) -> None:
        self.records.append(NodeDraft())
        stack = [OpenPart(0, np.arange(self.shape[0]), np.arange(self.shape[1]), False)]
        while stack:
            stack.extend(self._split(stack.pop()))

    def _split(self, part: OpenPart) -> list[OpenPart]:
        """Decide what a part's record is; the parts below it that are still to be decided."""
        rows, columns, record = part.rows, part.columns, self.records[part.at]
        weight = self.weight[rows]
        if len(columns) == 1 or weight.sum(dtype=np.float64) < self.fewest:
            record.part = (rows, columns)
            return []
        features = self.features.part(rows, columns)
        if not part.tested:
            dependent = self.dependence.of(rows, columns, features, weight)
            if len(found := groups(dependent)) > 1:
                return self._product(record, rows, columns, found)
        label = split_rows(features, self.settings.clusters, self.rng, weight)
        label = _enough(label, weight, self.settings.least_count)
        parts = [rows[label == k] for k in range(int(label.max()) + 1)]
        if len(parts) == 1:
            record.part = (rows, columns)
            return []
        record.weights = np.bincount(label, weight).astype(np.float64)
        return [OpenPart(self._child(record), p, columns, False) for p in parts]

    def _product(
        self, record: NodeDraft, rows: Index, columns: Index, found: list[Index]
    ) -> list[OpenPart]:
        """Groups of columns; those that stand alone are leaves side by side."""
        alone = [g for g in found if len(g) == 1]
        if len(alone) == len(found):
            record.part, record.independent = (rows, columns), True
            return []
        if alone:
            leaves = self.records[self._child(record)]
            leaves.part, leaves.independent = (rows, columns[np.concatenate(alone)]), True
        more = [g for g in found if len(g) > 1]
        return [OpenPart(self._child(record), rows, columns[g], True) for g in more]

    def _child(self, record: NodeDraft) -> int:
        self.records.append(NodeDraft())
        record.children.append(len(self.records) - 1)
        return len(self.records) - 1

    # ------------------------------------------------------------------ nodes

    def circuit(self) -> tuple[Circuit, Parameters]:
        self.grow()
        nodes: list[Node] = []
        values: dict[str, Arrays] = {}
        for i in range(len(self.records) - 1, -1, -1):
            record, name = self.records[i], f"n{i}"
            children = tuple(f"n{c}" for c in record.children)
            if record.part is not None:
                more, learned = self._leaves(name, *record.part, record.independent)
                nodes += more
                values |= learned
            elif record.weights is not None:
                nodes.append(Sum(name, children))
                values[name] = {WEIGHT: (record.weights / record.weights.sum())[None]}
            else:
                nodes.append(Product(name, children))
        return Circuit(tuple(nodes), self.schema), Parameters(values)

    def _leaves(
        self, name: str, rows: Index, columns: Index, independent: bool
    ) -> tuple[list[Node], dict[str, Arrays]]:
        """Leaves side by side, beside trees of the discrete columns that still depend."""
        discrete = columns[[self.schema.variables[c].size > 0 for c in columns]]
        if not self.settings.trees or independent or len(discrete) < 2:
            return self.marginals.nodes(name, rows, columns)
        variables = [self.schema.variables[c] for c in discrete]
        pairs = self.dependence.pairs(rows, discrete, self.weight[rows])
        edges = spanning_tree(pairs.gain(), 0.0)
        linked = {i for edge in edges if edge[1] >= 0 for i in edge}
        if not linked:
            return self.marginals.nodes(name, rows, columns)
        edges = [edge for edge in edges if edge[0] in linked]
        nodes, values, tops = forest_nodes(
            name, variables, edges, *pairs.tables(), self.settings.smoothing,
            self.settings.least_count,
        )  # fmt: skip
        rest = columns[~np.isin(columns, discrete[sorted(linked)])]
        if len(rest):
            more, learned = self.marginals.nodes(f"{name}.rest", rows, rest)
            nodes, values, tops = [*nodes, *more], values | learned, [*tops, f"{name}.rest"]
        return [*nodes, Product(name, tuple(tops))], values


def _enough(label: Index, weight: Floats, least: int) -> Index:
    """Clusters of fewer rows than ``least`` join the largest."""
    sizes = np.bincount(label, weight)
    if sizes.min() >= least or least <= 1:
        return label
    joined = np.where(sizes[label] >= least, label, sizes.argmax())
    return np.unique(joined, return_inverse=True)[1].reshape(-1)


# ---------------------------------------------------------------------- pruning
#
# A smaller circuit of the same distribution.
#
# product of products     one product (elementwise ones)
# sum of sums             one sum, its weights multiplied out, where that makes no more numbers
# child of weight 0       gone
# one child, weight 1     the child itself, as for a product of one child


def prune(circuit: Circuit, parameters: Parameters) -> tuple[Circuit, Parameters]:
    """Nodes keep their names and leaves their values; what is left out is found by its name."""
    return _Pruning(circuit, parameters).result()


class _Pruning:
    def __init__(self, circuit: Circuit, parameters: Parameters) -> None:
        self.circuit, self.parameters = circuit, parameters
        self.parents = Counter(c for n in circuit.nodes for c in n.children)
        self.nodes: dict[str, Node] = {}
        self.weights: dict[str, Array] = {}
        self.stands_for: dict[str, str] = {}  # a node that is gone: the node in its place

    def result(self) -> tuple[Circuit, Parameters]:
        for node in self.circuit.nodes:
            if isinstance(node, Sum):
                self._sum(node)
            elif isinstance(node, Product):
                self._product(node)
            else:
                self.nodes[node.name] = node
        root = self._now(self.circuit.root.name)
        left = Circuit(reachable(self.nodes.values(), root), self.circuit.schema)
        return left, self._values(left)

    def _values(self, left: Circuit) -> Parameters:
        values: dict[str, Arrays] = {}
        for node in left.nodes:
            if node.name in self.weights:
                values[node.name] = {WEIGHT: self.weights[node.name]}
            elif node.name in self.parameters:
                values[node.name] = self.parameters[node.name]
        inner = {n: c for n, c in self.parameters.circuits.items() if n in left.by_name}
        return Parameters(values, inner)

    def _now(self, name: str) -> str:
        return self.stands_for.get(name, name)

    def _replace(self, name: str, by: str) -> None:
        self.stands_for[name] = by
        self.parents[by] += self.parents[name] - 1

    def _product(self, node: Product) -> None:
        children: list[str] = []
        for child in map(self._now, node.children):
            below = self.nodes[child]
            joined = isinstance(below, Product) and not below.outer and not node.outer
            children += below.children if joined else (child,)
        if len(children) == 1:
            self._replace(node.name, children[0])
        else:
            self.nodes[node.name] = Product(node.name, tuple(children), node.outer)

    def _sum(self, node: Sum) -> None:
        columns: dict[str, Array] = {}  # the weights (units, inputs) of every child
        whole, start = self.parameters[node.name][WEIGHT], 0
        for child in map(self._now, node.children):
            inputs = self.circuit.units[child]
            part = whole[:, start : start + inputs]
            start += inputs
            for name, weight in self._below(child, part):
                columns[name] = columns[name] + weight if name in columns else weight
        kept = {n: w for n, w in columns.items() if w.any()}
        weight = np.concatenate(list(kept.values()), axis=1)
        if weight.shape == (1, 1):
            self._replace(node.name, next(iter(kept)))
            return
        self.nodes[node.name] = Sum(node.name, tuple(kept), node.units)
        self.weights[node.name] = np.asarray(weight)

    def _below(self, child: str, part: Array) -> list[tuple[str, Array]]:
        """The child with its weights (units, inputs), or what it mixes."""
        below = self.nodes[child]
        if not isinstance(below, Sum) or self.parents[child] > 1:
            return [(child, part)]
        inner = self.weights[child]  # (inputs, their inputs)
        if part.shape[0] * inner.shape[1] > part.size + inner.size:
            return [(child, part)]
        sizes = [self.circuit.units[c] for c in below.children]
        blocks = np.split(part @ inner, np.cumsum(sizes)[:-1], axis=1)
        return list(zip(below.children, blocks, strict=True))

"""LearnSPN: a tree of sums and products from alternating splits of rows and columns.

A part of the table (rows × columns) becomes
    a leaf       if it has one column
    a product    if its columns fall into groups that do not depend on each other
    a sum        else, over clusters of its rows
    a sum        over the values of a discrete column, where numbers depend on it and the part has
                 too few rows or no clusters
    leaves       side by side, Chow–Liu trees and normals, where that does not pay either
Gens and Domingos 2013; mixed columns as Molina et al. 2018; sums over values as in cutset networks
(Rahman et al. 2014). What pays is judged by held-out rows (judging.py). No recursion: parts wait on
a stack, records are turned into nodes at the end, children before parents.

Weights count as repetitions, also towards ``min_rows``; equal rows of a discrete table are learned
from once, with their number as weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from fedcircuits.arguments import FLAG, Choice, Declared, Real, Whole, check_arguments
from fedcircuits.circuits.graph.circuit import Circuit, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.errors import TableError
from fedcircuits.learning.chow_liu.trees import forest_nodes, spanning_tree
from fedcircuits.learning.independence import Floats, Index, groups
from fedcircuits.learning.spn.clustering import Features, split_rows
from fedcircuits.learning.spn.dependence import THRESHOLD, Dependence
from fedcircuits.learning.spn.judging import SURE, PartJudge
from fedcircuits.learning.spn.marginals import FEW, Marginals
from fedcircuits.tables.schema import Schema

Test = Literal["evidence", "g", "rdc"]


@dataclass(frozen=True, slots=True)
class SPNSettings:
    """``SPNSettings(min_rows=50)``; ``PRESETS`` has those of the federated circuits paper."""

    min_rows: int | None = None  # parts with fewer rows are not split; by default ``fewest``
    clusters: int = 3
    test: Test = "evidence"
    threshold: float | None = None  # of the test, by default ``THRESHOLD``
    trees: bool = True  # Chow–Liu trees instead of independent leaves, where columns are discrete
    smoothing: float = 0.5  # pseudo-rows in a table of a Chow–Liu tree
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

    @property
    def level(self) -> float:
        """The threshold, or the test's own."""
        return THRESHOLD[self.test] if self.threshold is None else self.threshold

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
    tested: bool = False  # whether the columns are known to depend on each other
    undivided: bool = False  # whether clusters of the rows are known not to pay


def learn_spn(
    values: Array,
    schema: Schema,
    settings: SPNSettings,
    rng: np.random.Generator,
    weight: Array | None = None,
    context: Array | None = None,
    target: int | None = None,
    report: Callable[[Array], None] | None = None,
) -> tuple[Circuit, Parameters]:
    """A circuit and its parameters for values (rows, columns), NaN missing, and row weights.

    ``context`` is a larger table that the rows are a part of (marginals.py); ``target`` a column
    to predict: rows are split by its classes first, if it has any. ``report`` is told the p-values
    of all pairs of columns on all rows, if the test is by evidence."""
    weight = np.ones(len(values)) if weight is None else np.asarray(weight, dtype=np.float64)
    _check(values, schema, weight)
    values, weight = values[weight > 0], weight[weight > 0]
    if all(v.size for v in schema):
        values, weight = _distinct(values, weight)
    growth = _Growth(values, schema, settings, rng, weight, context, target)
    learned = growth.circuit()
    if report is not None and growth.dependence.first is not None:
        report(growth.dependence.first)
    return learned


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
        problem = "weights that are all 0" if len(values) else "none"
        raise TableError(f"expected at least one row to learn from, got {problem}")


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
        target: int | None,
    ) -> None:
        self.schema, self.settings, self.rng = schema, settings, rng
        self.target = target
        self.by_class = target if target is not None and schema.variables[target].size else None
        self.weight = weight.astype(np.float32)
        self.shape, self.values = values.shape, values
        self.features = Features.of(values, schema)
        self.dependence = Dependence(
            values, schema, weight, settings.test, settings.threshold, self.features, rng
        )
        several = self.by_class is not None or settings.least_count > 1
        sure = SURE if several else 0.0
        self.marginals = Marginals(values, schema, weight, rng, context, settings.least_count, sure)
        self.judge = PartJudge(
            self.marginals, self.dependence, self.weight, settings.fewest(float(weight.sum())),
            settings.least_count, target, settings.trees,
        )  # fmt: skip
        self.records: list[NodeDraft] = []

    # ------------------------------------------------------------------ growing

    def grow(self) -> None:
        self.records.append(NodeDraft())
        stack = [OpenPart(0, np.arange(self.shape[0]), np.arange(self.shape[1]))]
        while stack:
            stack.extend(self._split(stack.pop()))

    def _split(self, part: OpenPart) -> list[OpenPart]:
        """Decide what a part's record is; the parts below it that are still to be decided."""
        rows, columns, record = part.rows, part.columns, self.records[part.at]
        weight = self.weight[rows]
        if part.undivided or len(columns) == 1 or weight.sum(dtype=np.float64) < self.judge.fewest:
            return self._by_value(record, rows, columns)
        features = self.features.part(rows, columns)
        if not part.tested:
            dependent = self.dependence.of(rows, columns, features, weight, self.target)
            if len(groups_apart := groups(dependent)) > 1:
                return self._product(record, rows, columns, groups_apart)
        if self.by_class is not None and self.by_class in columns:
            if len(classes := self._classes(rows, self.by_class)) > 1:
                return self._apart(record, classes, columns, self.by_class)
        label = split_rows(features, self.settings.clusters, self.rng, weight)
        label = _enough(label, weight, self.settings.least_count)
        parts = [rows[label == k] for k in range(int(label.max()) + 1)]
        if len(parts) == 1 or not self.judge.clusters_pay(rows, columns, parts):
            return self._by_value(record, rows, columns)
        record.weights = np.bincount(label, weight).astype(np.float64)
        return [OpenPart(self._child(record), p, columns) for p in parts]

    def _by_value(self, record: NodeDraft, rows: Index, columns: Index) -> list[OpenPart]:
        """A part that clusters do not divide: by the values of the discrete column that its
        numbers depend on most, if that pays, else leaves."""
        column = self.judge.decisive(rows, columns)
        if column is not None:
            classes = self._classes(rows, column)
            if len(classes) > 1 and self.judge.values_pay(rows, columns, column, classes):
                return self._apart(record, classes, columns, column, undivided=True)
        record.part = (rows, columns)
        return []

    def _classes(self, rows: Index, column: int) -> list[Index]:
        """Rows by their class; those of classes with too few of them, or none, together."""
        code = np.nan_to_num(self.values[rows, column], nan=-1).astype(np.int64) + 1
        weight, least = self.weight[rows], self.settings.least_count
        enough = np.bincount(code, weight) >= max(least, FEW)
        label = np.unique(np.where(enough[code], code, 0), return_inverse=True)[1].reshape(-1)
        label = _enough(label, weight, least)
        return [rows[label == k] for k in range(int(label.max()) + 1)]

    def _apart(
        self,
        record: NodeDraft,
        classes: list[Index],
        columns: Index,
        column: int,
        undivided: bool = False,
    ) -> list[OpenPart]:
        """A sum over the classes of a column, each with the remaining columns given it."""
        sizes = [self.weight[rows].sum(dtype=np.float64) for rows in classes]
        record.weights = np.array(sizes)
        others, children = columns[columns != column], []
        for rows in classes:
            product = self.records[self._child(record)]
            child = self.records[self._child(product)]
            child.part, child.independent = (rows, np.array([column])), True
            children.append(OpenPart(self._child(product), rows, others, undivided=undivided))
        return children

    def _product(
        self, record: NodeDraft, rows: Index, columns: Index, parts: list[Index]
    ) -> list[OpenPart]:
        """Groups of columns; those that stand alone are leaves side by side."""
        alone = [g for g in parts if len(g) == 1]
        if len(alone) == len(parts):
            record.part, record.independent = (rows, columns), True
            return []
        if alone:
            leaves = self.records[self._child(record)]
            leaves.part, leaves.independent = (rows, columns[np.concatenate(alone)]), True
        more = [g for g in parts if len(g) > 1]
        return [OpenPart(self._child(record), rows, columns[g], tested=True) for g in more]

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
                more, learned = self._leaves(name, record)
                nodes += more
                values |= learned
            elif record.weights is not None:
                nodes.append(Sum(name, children))
                values[name] = {WEIGHT: (record.weights / record.weights.sum())[None]}
            else:
                nodes.append(Product(name, children))
        return Circuit(tuple(nodes), self.schema), Parameters(values)

    def _leaves(self, name: str, record: NodeDraft) -> tuple[list[Node], dict[str, Arrays]]:
        """Normals and trees of columns that depend on each other, other leaves side by side."""
        assert record.part is not None
        rows, rest = record.part
        if record.independent or not self.settings.trees:
            return self.marginals.nodes(name, rows, rest)
        normals = self.judge.normals_of(rows, rest)
        nodes: list[Node] = []
        values: dict[str, Arrays] = {}
        tops: list[str] = []
        for i, normal in enumerate(normals):
            more, learned = self.judge.normals.nodes(f"{name}.normal{i}", rows, normal)
            nodes, values, tops = [*nodes, *more], values | learned, [*tops, more[-1].name]
            rest = rest[~np.isin(rest, normal.columns)]
        more, learned, roots, linked = self._forest(name, rows, rest)
        nodes, values, tops = [*nodes, *more], values | learned, [*tops, *roots]
        rest = rest[~np.isin(rest, linked)]
        if not tops:
            return self.marginals.nodes(name, rows, rest)
        if len(rest):
            more, learned = self.marginals.nodes(f"{name}.rest", rows, rest)
            nodes, values, tops = [*nodes, *more], values | learned, [*tops, f"{name}.rest"]
        return [*nodes, Product(name, tuple(tops))], values

    def _forest(
        self, name: str, rows: Index, columns: Index
    ) -> tuple[list[Node], dict[str, Arrays], list[str], Index]:
        """Chow–Liu trees of discrete columns that depend on each other: nodes, values, roots and
        the columns."""
        discrete = columns[[self.schema.variables[c].size > 0 for c in columns]]
        if len(discrete) < 2:
            return [], {}, [], discrete[:0]
        variables = [self.schema.variables[c] for c in discrete]
        pairs = self.dependence.pairs(rows, discrete, self.weight[rows])
        edges = spanning_tree(pairs.gain(), 0.0)
        linked = {i for edge in edges if edge[1] >= 0 for i in edge}
        if not linked:
            return [], {}, [], discrete[:0]
        edges = [edge for edge in edges if edge[0] in linked]
        nodes, values, tops = forest_nodes(
            name, variables, edges, *pairs.tables(), self.settings.smoothing,
            self.settings.least_count,
        )  # fmt: skip
        return nodes, values, tops, discrete[sorted(linked)]


def _enough(label: Index, weight: Floats, least: int) -> Index:
    """Parts of fewer rows than ``least`` join the largest."""
    sizes = np.bincount(label, weight)
    if sizes.min() >= least or least <= 1:
        return label
    joined = np.where(sizes[label] >= least, label, sizes.argmax())
    return np.unique(joined, return_inverse=True)[1].reshape(-1)

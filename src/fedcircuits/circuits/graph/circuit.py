"""The graph of a circuit: nodes in topological order over a schema, checked once, shown to anyone.

Checked on construction: names are unique, children exist and come first, sums are smooth (all
children over the same variables), products are decomposable (children over disjoint variables),
units agree, leaf families fit their variables, the root reaches every node and covers every
variable. What a circuit has learned is in ``Parameters``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from reprlib import repr as shortened
from typing import NoReturn

import numpy as np

from fedcircuits.circuits.graph.family import Family, TabledFamily, family
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema

# ---------------------------------------------------------------------- nodes
#
# The four kinds of node. A node is a vector of ``units``; it never carries learned values.
#
# Leaf     units distributions of one family over the same variables. A one-dimensional family over
#          several variables is factorised: the unit is the product of its distributions.
# Product  elementwise: unit k joins unit k of every child. outer: two children, unit (i, j) joins
#          unit i of the first with unit j of the second, j running fastest.
# Sum      unit k mixes all units of all children, laid end to end, by row k of its weight matrix.
# Fuse     combines its children by a named operation that is not a density: an average of
#          predictors, a network on representations. Only Leaf and Fuse may stand below it.


@dataclass(frozen=True, slots=True)
class Leaf:
    """``Leaf("heights", "gaussian", ("height",), units=3)``: three distributions of the height."""

    name: str
    family: str
    scope: tuple[str, ...]
    units: int = 1

    @property
    def children(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Product:
    """``Product("both", ("heights", "weights"))``: children over other variables, independent."""

    name: str
    children: tuple[str, ...]
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Sum:
    """``Sum("root", ("both",))``: a mixture of its children's units."""

    name: str
    children: tuple[str, ...]
    units: int = 1


@dataclass(frozen=True, slots=True)
class Fuse:
    """``Fuse("vote", ("left", "right"), "mean")``: predictions combined, no density."""

    name: str
    children: tuple[str, ...]
    operation: str
    units: int = 1


Node = Leaf | Product | Sum | Fuse

CIRCUIT = "circuit"  # the family of a leaf whose distribution is itself a circuit
PREDICTOR = "predictor"  # the family of a leaf that predicts and is not a density: below fuse nodes


@dataclass(frozen=True, repr=False)
class Circuit:
    """``Circuit((Leaf("a", "gaussian", ("x",), 2), Sum("root", ("a",))), Schema.real(["x"]))``."""

    nodes: tuple[Node, ...]  # children before parents; the last one is the root
    schema: Schema
    units: Mapping[str, int] = field(init=False, repr=False, compare=False)
    scopes: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        if not self.nodes:
            raise StructureError("a circuit needs at least one node")
        units, scopes = _check(self.nodes, self.schema)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "scopes", scopes)
        if missing := set(self.schema.names) - scopes[self.root.name]:
            raise StructureError(
                f"root {self.root.name!r} does not cover {_listed(missing)}: "
                "every variable of the schema must be under the root"
            )
        _refuse_unreached(self.nodes)

    @property
    def root(self) -> Node:
        return self.nodes[-1]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {n.name: n for n in self.nodes}

    def __getitem__(self, name: str) -> Node:
        try:
            return self.by_name[name]
        except KeyError:
            raise StructureError(f"the circuit has no node {name!r}") from None

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<Circuit of {len(self.nodes):,} nodes over {len(self.schema):,} variables>"

    def inputs(self, node: Node) -> int:
        """Number of units a sum or fuse node reads: the width of its weight matrix."""
        return sum(self.units[c] for c in node.children)

    def leaves(self) -> Iterator[Leaf]:
        return (n for n in self.nodes if isinstance(n, Leaf))

    @cached_property
    def is_density(self) -> bool:
        """Whether every node is a distribution, so that all queries make sense."""
        predicts = (isinstance(n, Leaf) and n.family == PREDICTOR for n in self.nodes)
        return not any(predicts) and not any(isinstance(n, Fuse) for n in self.nodes)

    # ------------------------------------------------------------------ JSON form

    def to_json(self) -> dict[str, object]:
        return {"schema": self.schema.to_json(), "nodes": [_row(n) for n in self.nodes]}

    @classmethod
    def from_json(cls, data: object) -> Circuit:
        if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
            raise StructureError("a circuit must be an object with 'schema' and 'nodes'")
        nodes = tuple(_node(row) for row in data["nodes"])
        return cls(nodes, Schema.from_json(data.get("schema")))

    def dumps(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def loads(cls, text: str) -> Circuit:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise StructureError(f"not the JSON form of a circuit: {error}") from None
        return cls.from_json(data)


def reachable(nodes: Iterable[Node], root: str) -> tuple[Node, ...]:
    """The nodes under ``root``, children before parents, whatever the order they come in."""
    by_name = {n.name: n for n in nodes}
    order: dict[str, Node] = {}
    opened: set[str] = set()
    stack = [(root, False)]
    while stack:
        name, ready = stack.pop()
        if name in order:
            continue
        if name not in by_name:
            raise StructureError(f"a node has the child {name!r}, which does not exist")
        if ready or not by_name[name].children:
            order[name] = by_name[name]
        elif name in opened:
            raise StructureError(f"node {name!r} stands below itself: a circuit has no cycles")
        else:
            opened.add(name)
            stack.append((name, True))
            stack.extend((c, False) for c in reversed(by_name[name].children))
    return tuple(order.values())


# ---------------------------------------------------------------------- checks


def _check(
    nodes: tuple[Node, ...], schema: Schema
) -> tuple[dict[str, int], dict[str, frozenset[str]]]:
    units: dict[str, int] = {}
    scopes: dict[str, frozenset[str]] = {}
    interned: dict[frozenset[str], frozenset[str]] = {}
    seen: dict[str, Node] = {}
    for node in nodes:
        _check_form(node)
        _check_edges(node, seen, nodes)
        if isinstance(node, Leaf):
            width, scope = node.units, _leaf_scope(node, schema)
        elif not node.children:
            raise StructureError(f"{_word(node)} {node.name!r} has no children")
        elif isinstance(node, Sum):
            width, scope = node.units, _sum_scope(node, scopes)
        elif isinstance(node, Product):
            width, scope = _product_units(node, units), _product_scope(node, scopes)
        else:
            width, scope = node.units, frozenset().union(*(scopes[c] for c in node.children))
        if not isinstance(width, int | np.integer) or isinstance(width, bool) or width < 1:
            raise StructureError(
                f"{_word(node)} {node.name!r}: units must be a whole number from 1, got {width!r}"
            )
        seen[node.name] = node
        units[node.name], scopes[node.name] = int(width), interned.setdefault(scope, scope)
    return units, scopes


def _check_form(node: Node) -> None:
    """Texts in place of tuples would be read letter by letter."""
    if not isinstance(node, Leaf | Product | Sum | Fuse):
        raise StructureError(f"expected Leaf, Product, Sum or Fuse as nodes, got {node!r}")
    if not isinstance(node.name, str):
        raise StructureError(f"the name of a node must be text, got {node.name!r}")
    what, names = ("scope", node.scope) if isinstance(node, Leaf) else ("children", node.children)
    if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names):
        raise StructureError(
            f"{_word(node)} {node.name!r}: {what} must be a tuple of names such as ('a', 'b') or "
            f"('a',), got {names!r}"
        )


def _check_edges(node: Node, seen: Mapping[str, Node], nodes: tuple[Node, ...]) -> None:
    if node.name in seen:
        raise StructureError(f"two nodes are named {node.name!r}: names must be unique")
    for child in node.children:
        if child not in seen:
            _refuse_child(node, child, nodes)
        below = seen[child]
        if isinstance(node, Fuse) and not isinstance(below, Leaf | Fuse):
            raise StructureError(
                f"fuse node {node.name!r} reads {_word(below)} {child!r}: "
                "expected leaves or other fuse nodes"
            )
        if isinstance(below, Leaf) and below.family == PREDICTOR and not isinstance(node, Fuse):
            raise StructureError(
                f"{_word(node)} {node.name!r} reads predictor {child!r}: only a fuse node may, "
                "since it is no density"
            )
        if isinstance(below, Fuse) and not isinstance(node, Fuse):
            raise StructureError(
                f"{_word(node)} {node.name!r} reads fuse node {child!r}: "
                "only another fuse node may, since its value is no density"
            )


def _refuse_child(node: Node, child: str, nodes: tuple[Node, ...]) -> NoReturn:
    problem = "does not exist"
    if child == node.name:
        problem = "is the node itself: a circuit has no cycles"
    elif any(n.name == child for n in nodes):
        problem = "comes after it: nodes are listed children first, and there are no cycles"
    raise StructureError(f"{_word(node)} {node.name!r} has the child {child!r}, which {problem}")


def _refuse_unreached(nodes: tuple[Node, ...]) -> None:
    """Parents come after their children, so one pass from the root sees them first."""
    root = nodes[-1].name
    reached = {root}
    for node in reversed(nodes):
        if node.name in reached:
            reached.update(node.children)
    if len(reached) < len(nodes):
        lost = [n.name for n in nodes if n.name not in reached]
        raise StructureError(
            f"root {root!r} does not reach {_listed(lost)}: the last node must be the root and all "
            "others below it; reachable(nodes, root) leaves the rest out"
        )


def _leaf_scope(leaf: Leaf, schema: Schema) -> frozenset[str]:
    scope = frozenset(leaf.scope)
    if not scope or len(scope) != len(leaf.scope):
        raise StructureError(
            f"leaf {leaf.name!r} must have a scope of different variables, got {leaf.scope!r}"
        )
    try:
        rule = None if leaf.family in (CIRCUIT, PREDICTOR) else family(leaf.family)
    except StructureError as error:
        raise StructureError(f"leaf {leaf.name!r}: {error}") from None
    for name in leaf.scope:
        if name not in schema:
            raise StructureError(f"leaf {leaf.name!r}: no variable {name!r} in the schema")
        if rule is not None and schema[name].kind not in rule.kinds:
            raise StructureError(
                f"leaf {leaf.name!r}: family {leaf.family!r} models "
                f"{' or '.join(sorted(rule.kinds))}, but {name!r} is a {schema[name].kind}"
            )
        if isinstance(rule, TabledFamily) and not schema[name].levels:
            raise StructureError(
                f"leaf {leaf.name!r}: the count {name!r} has no largest value, so that its values "
                f"cannot have a probability each: declare it, Variable({name!r}, 'count', most=…)"
            )
    if isinstance(rule, Family) and len({schema[n].levels for n in leaf.scope}) > 1:
        raise StructureError(
            f"leaf {leaf.name!r}: its variables have different numbers of categories; "
            "use one leaf for each number"
        )
    return scope


def _sum_scope(node: Sum, scopes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    scope = scopes[node.children[0]]
    for child in node.children[1:]:
        if scopes[child] != scope:
            raise StructureError(
                f"sum {node.name!r} is not smooth: {node.children[0]!r} and {child!r} differ in "
                f"{_listed(scopes[child] ^ scope)}"
            )
    return scope


def _product_scope(node: Product, scopes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    joined = frozenset().union(*(scopes[c] for c in node.children))
    if len(joined) == sum(len(scopes[c]) for c in node.children):
        return joined
    seen: frozenset[str] = frozenset()
    for child in node.children:
        if shared := seen & scopes[child]:
            raise StructureError(
                f"product {node.name!r} is not decomposable: {_listed(shared)} under {child!r} "
                "and under an earlier child"
            )
        seen |= scopes[child]
    raise AssertionError("unreachable")


def _product_units(node: Product, units: Mapping[str, int]) -> int:
    counts = [units[c] for c in node.children]
    if node.outer:
        if len(counts) != 2:
            raise StructureError(
                f"outer product {node.name!r} must have two children, got {len(counts)}"
            )
        return counts[0] * counts[1]
    if len(set(counts)) > 1:
        raise StructureError(
            f"product {node.name!r} joins children of {sorted(set(counts))} units elementwise: "
            "expected equal units, or outer=True"
        )
    return counts[0]


# ---------------------------------------------------------------------- rows of the JSON form


def _row(node: Node) -> list[object]:
    if isinstance(node, Leaf):
        return ["leaf", node.name, node.family, list(node.scope), int(node.units)]
    if isinstance(node, Product):
        return ["outer" if node.outer else "product", node.name, list(node.children)]
    if isinstance(node, Sum):
        return ["sum", node.name, list(node.children), int(node.units)]
    return ["fuse", node.name, list(node.children), node.operation, int(node.units)]


def _node(row: object) -> Node:
    match row:
        case ["leaf", str(name), str(rule), list(scope), int(units)] if _texts(scope):
            return Leaf(name, rule, tuple(scope), units)
        case ["product" | "outer" as kind, str(name), list(children)] if _texts(children):
            return Product(name, tuple(children), kind == "outer")
        case ["sum", str(name), list(children), int(units)] if _texts(children):
            return Sum(name, tuple(children), units)
        case ["fuse", str(name), list(children), str(how), int(units)] if _texts(children):
            return Fuse(name, tuple(children), how, units)
    raise StructureError(f"not a node of a circuit: {shortened(row)}")


def _texts(values: list[object]) -> bool:
    return all(isinstance(v, str) for v in values)


def _word(node: Node) -> str:
    return type(node).__name__.lower()


def _listed(names: Iterable[str], most: int = 5) -> str:
    ordered = sorted(names)
    return ", ".join(map(repr, ordered[:most])) + (" …" if len(ordered) > most else "")

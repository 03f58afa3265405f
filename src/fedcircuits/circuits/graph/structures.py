"""Structures to learn parameters for: graphs over a schema, from few numbers::

    factorised            one product of leaves
    mixture_of_products   a sum of factorised distributions
    random_binary         RAT: random balanced splits of the variables, several repetitions
    poon_domingos         rectangles of an image, split at every multiple of a step, or into pieces
    quad_tree, quad_graph quarters of an image, put together in one way or in two (image_structures)
    latent_tree           a tree over the variables: each has a hidden state that its children's
                          depend on (hidden Chow–Liu tree)
    chow_liu              the same tree with states that are the variables' own categories
    class_conditional     one copy of a structure's units for every class of a label

``leaf_family`` is the family of all leaves by its name, or gives that of a variable's leaves; by
default by its kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import networkx as nx
import numpy as np

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Arrays
from fedcircuits.circuits.graph.image_structures import poon_domingos, quad_graph, quad_tree
from fedcircuits.circuits.graph.leaf_regions import LeafFamily, by_kind, family_of, positive
from fedcircuits.circuits.graph.leaf_regions import region as leaf_region
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable

__all__ = [
    "LeafFamily",
    "by_kind",
    "chow_liu",
    "class_conditional",
    "factorised",
    "family_of",
    "indicator_codes",
    "latent_tree",
    "mixture_of_products",
    "parents",
    "poon_domingos",
    "quad_graph",
    "quad_tree",
    "random_binary",
]


def factorised(schema: Schema, *, leaf_family: LeafFamily = by_kind) -> Circuit:
    """Every variable on its own, independent of the others."""
    nodes: list[Node] = []
    leaf_region(nodes, "root", schema, schema.names, 1, leaf_family)
    return Circuit(tuple(nodes), schema)


def mixture_of_products(
    schema: Schema, components: int, *, leaf_family: LeafFamily = by_kind
) -> Circuit:
    """``components`` factorised distributions, weighted by the root."""
    positive(components=components)
    nodes: list[Node] = []
    child = leaf_region(nodes, "component", schema, schema.names, components, leaf_family)
    return Circuit((*nodes, Sum("root", (child,))), schema)


def random_binary(
    schema: Schema,
    *,
    depth: int,
    repetitions: int,
    units: int,
    rng: np.random.Generator,
    leaf_family: LeafFamily = by_kind,
) -> Circuit:
    """Every repetition halves the shuffled variables ``depth`` times, as far as they go."""
    positive(depth=depth, repetitions=repetitions, units=units)
    nodes: list[Node] = []

    def region(name: str, scope: Sequence[str], left: int, top: bool) -> str:
        if left == 0 or len(scope) == 1:
            return leaf_region(nodes, name, schema, scope, units, leaf_family)
        half = len(scope) // 2
        children = (
            region(f"{name}0", scope[:half], left - 1, False),
            region(f"{name}1", scope[half:], left - 1, False),
        )
        nodes.append(Product(f"{name}x", children, outer=True))
        if top:
            return f"{name}x"
        nodes.append(Sum(name, (f"{name}x",), units))
        return name

    shuffled = [[schema.names[i] for i in rng.permutation(len(schema))] for _ in range(repetitions)]
    tops = tuple(region(f"r{r}.", scope, depth, True) for r, scope in enumerate(shuffled))
    return Circuit((*nodes, Sum("root", tops)), schema)


# ---------------------------------------------------------------------- trees


def latent_tree(
    schema: Schema,
    tree: nx.Graph,
    units: int,
    *,
    leaf_family: LeafFamily = by_kind,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> Circuit:
    """Node v: leaf(v) × one sum for every child of v, all of ``units`` units.

    ``groups`` gives for every node of the tree the variables that share its state, such as the
    channels of a pixel; by default nodes are variables.
    """
    positive(units=units)
    scopes = {n: (n,) for n in schema.names} if groups is None else groups
    if groups is not None and sorted(v for g in groups.values() for v in g) != sorted(schema.names):
        raise StructureError("the groups must hold every variable of the schema once")
    return _tree(schema, tree, dict.fromkeys(scopes, units), leaf_family, scopes)


def chow_liu(schema: Schema, tree: nx.Graph) -> Circuit:
    """A Bayesian network over a tree of discrete variables; deterministic.

    The weights of sum ``sum:v`` are P(v | parent), a row for every category of the parent.
    """
    for variable in schema:
        if not variable.size:
            raise StructureError(
                f"a Chow–Liu tree needs categories or booleans, but {variable.name!r} is a "
                f"{variable.kind}: use latent_tree"
            )
    sizes, scopes = {v.name: v.size for v in schema}, {n: (n,) for n in schema.names}
    return _tree(schema, tree, sizes, "indicator", scopes)


def _tree(
    schema: Schema,
    tree: nx.Graph,
    states: Mapping[str, int],
    leaf_family: LeafFamily,
    scopes: Mapping[str, Sequence[str]],
) -> Circuit:
    _check_tree(scopes, tree)
    above = parents(tree)
    children: dict[str, list[str]] = {name: [] for name in above}
    nodes: list[Node] = []
    for name in reversed(above):
        parent = above[name]
        units = 1 if parent is None else states[parent]
        if parent is not None:
            children[parent].append(name)
        sums = tuple(f"sum:{c}" for c in children[name])
        leaf_region(nodes, f"leaf:{name}", schema, scopes[name], states[name], leaf_family)
        if sums:
            nodes.append(Product(f"product:{name}", (f"leaf:{name}", *sums)))
        below = f"product:{name}" if sums else f"leaf:{name}"
        nodes.append(Sum(f"sum:{name}", (below,), units))
    return Circuit(tuple(nodes), schema)


def parents(tree: nx.Graph) -> dict[str, str | None]:
    """The parent of every variable, parents first; the root lies in the middle of the tree."""
    tree = nx.Graph(tree)  # of a directed tree the directions do not count
    root = min(nx.center(tree))
    return {root: None, **{child: parent for parent, child in nx.bfs_edges(tree, root)}}


def _check_tree(names: Collection[str], tree: nx.Graph) -> None:
    if odd := set(tree.nodes) ^ set(names):
        raise StructureError(
            "the graph must be a tree over exactly the variables of the schema, they differ in "
            f"{', '.join(sorted(map(repr, odd))[:5])}"
        )
    if not len(names) or not nx.is_tree(tree):
        raise StructureError(
            f"the graph must be a tree: connected, without cycles, got {len(tree)} nodes and "
            f"{tree.number_of_edges()} edges"
        )


def class_conditional(circuit: Circuit, label: Variable) -> Circuit:
    """P(label) · P(rest | label): the root gets a unit for every class, beside an indicator."""
    if not label.size:
        raise StructureError(
            f"the label must be a category or boolean, {label.name!r} is a {label.kind}"
        )
    root = circuit.root
    if not isinstance(root, Sum):
        raise StructureError(f"the root must be a sum, got {type(root).__name__.lower()}")
    given = Sum(root.name, root.children, label.size)
    mark = Leaf(f"label:{label.name}", "indicator", (label.name,), label.size)
    joined = Product("classes", (mark.name, given.name))
    schema = Schema((*circuit.schema.variables, label))
    return Circuit((*circuit.nodes[:-1], given, mark, joined, Sum("joint", ("classes",))), schema)


# ---------------------------------------------------------------------- leaves


def indicator_codes(circuit: Circuit) -> dict[str, Arrays]:
    """The values of all indicator leaves: unit k represents code k."""
    return {
        leaf.name: {"code": np.arange(float(leaf.units))[:, None]}
        for leaf in circuit.leaves()
        if leaf.family == "indicator"
    }

"""Structures to learn parameters for: graphs over a schema, from few numbers.

factorised            one product of leaves
mixture_of_products   a sum of factorised distributions
random_binary         RAT: random balanced splits of the variables, several repetitions
poon_domingos         rectangles of an image, split at every multiple of a step, or into pieces
latent_tree           a tree over the variables: each has a hidden state that its children's depend
                      on (hidden Chow–Liu tree)
chow_liu              the same tree with states that are the variables' own categories
class_conditional     one copy of a structure's units for every class of a label

`leaf_family` is the family of all leaves by its name, or gives that of a variable's leaves; by
default by its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import networkx as nx
import numpy as np

from fedcircuits.arguments import Whole
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Arrays, TabledFamily, family
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable

LeafFamily = str | Callable[[Variable], str]
BY_KIND = {
    "real": "gaussian",
    "count": "poisson",
    "category": "categorical",
    "boolean": "bernoulli",
}


def by_kind(variable: Variable) -> str:
    """The family that fits a variable's kind; a count of known range has a probability for each."""
    return "categorical" if variable.most is not None else BY_KIND[variable.kind]


def family_of(variable: Variable, leaf_family: LeafFamily) -> str:
    """The family of a variable's leaves; a name that does not suit its kind gives way to one that
    does, so that a table of mixed kinds can have it where it suits."""
    if callable(leaf_family):
        return leaf_family(variable)
    if not isinstance(leaf_family, str):
        raise StructureError(
            "leaf_family must be the name of a family, or a function from a variable to one, got "
            f"{type(leaf_family).__name__}"
        )
    rule = family(leaf_family)
    suits = variable.kind in rule.kinds and (variable.levels or not isinstance(rule, TabledFamily))
    return leaf_family if suits else by_kind(variable)


def factorised(schema: Schema, *, leaf_family: LeafFamily = by_kind) -> Circuit:
    """Every variable on its own, independent of the others."""
    nodes: list[Node] = []
    _region(nodes, "root", schema, schema.names, 1, leaf_family)
    return Circuit(tuple(nodes), schema)


def mixture_of_products(
    schema: Schema, components: int, *, leaf_family: LeafFamily = by_kind
) -> Circuit:
    """``components`` factorised distributions, weighted by the root."""
    _positive(components=components)
    nodes: list[Node] = []
    child = _region(nodes, "component", schema, schema.names, components, leaf_family)
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
    _positive(depth=depth, repetitions=repetitions, units=units)
    nodes: list[Node] = []

    def region(name: str, scope: Sequence[str], left: int, top: bool) -> str:
        if left == 0 or len(scope) == 1:
            return _region(nodes, name, schema, scope, units, leaf_family)
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


def poon_domingos(
    schema: Schema,
    *,
    height: int,
    width: int,
    step: int | None = None,
    pieces: int | None = None,
    units: int,
    channels: int = 1,
    leaf_family: LeafFamily = by_kind,
) -> Circuit:
    """Variables are pixels in reading order, the channels of a pixel next to each other.

    Rectangles are cut at multiples of ``step`` pixels, or where both sides fall into ``pieces``
    equal parts, up to whole pixels.
    """
    _positive(height=height, width=width, units=units, channels=channels)
    rows, columns = _marks(height, step, pieces), _marks(width, step, pieces)
    if len(schema) != height * width * channels:
        raise StructureError(
            f"a {height} × {width} image of {channels} channels has {height * width * channels} "
            f"variables, the schema has {len(schema)}"
        )
    nodes: list[Node] = []
    done: dict[tuple[int, int, int, int], str] = {}
    whole = (0, height, 0, width)

    def pixels(top: int, bottom: int, left: int, right: int) -> list[str]:
        at = ((y * width + x) * channels for y in range(top, bottom) for x in range(left, right))
        return [schema.names[i + c] for i in at for c in range(channels)]

    def region(box: tuple[int, int, int, int]) -> str:
        if box in done:
            return done[box]
        name = "root" if box == whole else "{}:{},{}:{}".format(*box)
        splits = [(region(a), region(b)) for a, b in _cuts(box, rows, columns)]
        if splits:
            parts = tuple(f"{name}/{i}" for i in range(len(splits)))
            nodes.extend(Product(p, s, outer=True) for p, s in zip(parts, splits, strict=True))
            nodes.append(Sum(name, parts, 1 if box == whole else units))
        else:
            _region(nodes, name, schema, pixels(*box), 1 if box == whole else units, leaf_family)
        done[box] = name
        return name

    region(whole)
    return Circuit(tuple(nodes), schema)


def _marks(side: int, step: int | None, pieces: int | None) -> list[int]:
    """Where a side of an image can be cut."""
    if step is not None and pieces is None:
        _positive(step=step)
        return list(range(step, side, step))
    if pieces is not None and step is None:
        _positive(pieces=pieces)
        return sorted({i * side // pieces for i in range(1, pieces)} - {0})
    raise StructureError(f"give either step or pieces, got step={step} and pieces={pieces}")


def _cuts(
    box: tuple[int, int, int, int], rows: Sequence[int], columns: Sequence[int]
) -> Iterable[tuple[tuple[int, int, int, int], tuple[int, int, int, int]]]:
    """The ways to cut a rectangle in two at these rows and columns."""
    top, bottom, left, right = box
    for y in (y for y in rows if top < y < bottom):
        yield (top, y, left, right), (y, bottom, left, right)
    for x in (x for x in columns if left < x < right):
        yield (top, bottom, left, x), (top, bottom, x, right)


# ---------------------------------------------------------------------- trees


def latent_tree(
    schema: Schema, tree: nx.Graph, units: int, *, leaf_family: LeafFamily = by_kind
) -> Circuit:
    """Node v: leaf(v) × one sum for every child of v, all of ``units`` units."""
    _positive(units=units)
    return _tree(schema, tree, dict.fromkeys(schema.names, units), leaf_family)


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
    return _tree(schema, tree, {v.name: v.size for v in schema}, lambda v: "indicator")


def _tree(
    schema: Schema, tree: nx.Graph, states: Mapping[str, int], leaf_family: LeafFamily
) -> Circuit:
    _check_tree(schema, tree)
    above = parents(tree)
    children: dict[str, list[str]] = {name: [] for name in above}
    nodes: list[Node] = []
    for name in reversed(above):
        parent = above[name]
        units = 1 if parent is None else states[parent]
        if parent is not None:
            children[parent].append(name)
        sums = tuple(f"sum:{c}" for c in children[name])
        leaf = Leaf(f"leaf:{name}", family_of(schema[name], leaf_family), (name,), states[name])
        nodes.append(leaf)
        if sums:
            nodes.append(Product(f"product:{name}", (f"leaf:{name}", *sums)))
        below = f"product:{name}" if sums else f"leaf:{name}"
        nodes.append(Sum(f"sum:{name}", (below,), units))
    return Circuit(tuple(nodes), schema)


def parents(tree: nx.Graph) -> dict[str, str | None]:
    """The parent of every variable, parents first; the root lies in the middle of the tree."""
    tree = nx.Graph(tree)  # of a directed tree the directions do not count
    root = min(nx.center(tree))
    return {root: None, **dict(nx.bfs_predecessors(tree, root))}


def _check_tree(schema: Schema, tree: nx.Graph) -> None:
    if odd := set(tree.nodes) ^ set(schema.names):
        raise StructureError(
            "the graph must be a tree over exactly the variables of the schema, they differ in "
            f"{', '.join(sorted(map(repr, odd))[:5])}"
        )
    if not len(schema) or not nx.is_tree(tree):
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
    """The values of all indicator leaves: unit k stands for code k."""
    return {
        leaf.name: {"code": np.arange(float(leaf.units))[:, None]}
        for leaf in circuit.leaves()
        if leaf.family == "indicator"
    }


def _region(
    nodes: list[Node],
    name: str,
    schema: Schema,
    scope: Sequence[str],
    units: int,
    leaf_family: LeafFamily,
) -> str:
    """Leaves over a scope of mixed kinds: one leaf a family, joined by a product if several."""
    kinds: dict[tuple[str, int], list[str]] = {}
    for v in scope:
        kinds.setdefault((family_of(schema[v], leaf_family), schema[v].levels), []).append(v)
    leaves = [
        Leaf(name if len(kinds) == 1 else f"{name}:{rule}{size or ''}", rule, tuple(members), units)
        for (rule, size), members in kinds.items()
    ]
    nodes.extend(leaves)
    if len(leaves) > 1:
        nodes.append(Product(name, tuple(leaf.name for leaf in leaves)))
    return name


def _positive(**numbers: int) -> None:
    for name, value in numbers.items():
        Whole(1).check(name, value, StructureError)

"""Random models for properties: circuits of all kinds of nodes, families and structures.

Hypothesis draws the seed and the kinds of variables; numbers come from a generator made of the
seed, so that an example is repeatable and small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.step import Rules
from fedcircuits.circuits.graph import structures
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum, reachable
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.leaves import Bernoulli, Categorical, CountHistogram, Histogram
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import CUTS

FAMILIES = {  # by sort of variable
    "boolean": ("bernoulli", "categorical", "indicator"),
    "category": ("categorical", "indicator"),
    "count": ("poisson", "binomial", "count_histogram"),
    "real": ("gaussian", "student_t", "gamma", "exponential", "histogram"),
    "pixel": ("gaussian_mass",),
}
DISCRETE = ("boolean", "category")
EDGES = np.array([-0.5, 0.5, 1.5, 4.5, 9.5])
Mask = npt.NDArray[np.bool_]
Model = tuple[Circuit, Parameters]
PLAIN: Rules = {  # maximum likelihood, without pseudo-counts
    rule.name: rule
    for rule in (Bernoulli(0.0), Categorical(0.0), Histogram(0.0), CountHistogram(0.0))
}


def schema_of(sorts: tuple[str, ...]) -> Schema:
    """Variables named after their sort: boolean0, category1, …"""
    variables = []
    for i, sort in enumerate(sorts):
        kind = "real" if sort == "pixel" else sort
        categories = ("red", "green", "blue") if sort == "category" else ()
        variables.append(Variable(f"{sort}{i}", kind, categories))  # type: ignore[arg-type]
    return Schema(tuple(variables))


def sort_of(name: str) -> str:
    return name.rstrip("0123456789")


# ---------------------------------------------------------------------- parameters


def leaf_parameters(family: str, rng: np.random.Generator, size: int, *shape: int) -> Arrays:
    """Random parameters whose mass lies where the reference looks."""
    match family:
        case "bernoulli":
            return {"probability": rng.uniform(0.05, 0.95, shape)}
        case "categorical":
            return {"probability": _distributions(rng, *shape, size)}
        case "indicator":
            return {"code": rng.integers(size, size=shape).astype(np.float64)}
        case "poisson":
            return {"rate": rng.uniform(0.3, 4.0, shape)}
        case "binomial":
            trials = rng.choice([7.0, 20.0], shape)
            return {"probability": rng.uniform(0.05, 0.95, shape), "trials": trials}
        case "count_histogram":
            edges = np.broadcast_to(EDGES, (*shape, len(EDGES))).copy()
            return {"edges": edges, "probability": _distributions(rng, *shape, len(EDGES) - 1)}
        case "gaussian":
            return {"mean": rng.uniform(-1.5, 1.5, shape), "variance": rng.uniform(0.2, 2.0, shape)}
        case "student_t":
            degrees = rng.choice([5.0, 8.0], shape)
            location, scale = rng.uniform(-1.5, 1.5, shape), rng.uniform(0.4, 1.5, shape)
            return {"location": location, "scale": scale, "degrees": degrees}
        case "gamma":
            return {"shape": rng.choice([1.0, 2.0, 4.0], shape), "rate": rng.uniform(1, 3, shape)}
        case "exponential":
            return {"rate": rng.uniform(0.5, 3.0, shape)}
        case "histogram":
            edges = np.broadcast_to(CUTS, (*shape, len(CUTS))).copy()
            return {"edges": edges, "probability": _distributions(rng, *shape, len(CUTS) - 1)}
        case "gaussian_mass":
            mean, variance = rng.uniform(-0.1, 1.1, shape), rng.uniform(0.001, 0.1, shape)
            return {"mean": mean, "variance": variance}
    raise AssertionError(family)


def _distributions(rng: np.random.Generator, *shape: int) -> Array:
    """Rows that add up to 1, now and then with exact zeros."""
    draws = rng.gamma(1.0, size=shape) + 1e-3
    zero = (rng.random(shape) < 0.3) & (rng.random() < 0.5)
    zero[..., 0] &= ~zero.all(axis=-1)
    draws[zero] = 0.0
    return np.asarray(draws / draws.sum(axis=-1, keepdims=True))


def random_parameters(circuit: Circuit, rng: np.random.Generator) -> Parameters:
    found: dict[str, Arrays] = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            found[node.name] = {"weight": _distributions(rng, node.units, circuit.inputs(node))}
        elif isinstance(node, Leaf) and node.family == "multivariate_gaussian":
            width = len(node.scope)
            root = np.tril(rng.normal(size=(node.units, width, width)) * 0.5, -1)
            root += np.eye(width) * rng.uniform(0.5, 1.3, (node.units, 1, width))
            mean = rng.uniform(-1.0, 1.0, (node.units, width))
            found[node.name] = {"mean": mean, "covariance": root @ root.swapaxes(1, 2)}
        elif isinstance(node, Leaf):
            size = circuit.schema[node.scope[0]].size
            shape = (node.units, len(node.scope))
            found[node.name] = leaf_parameters(node.family, rng, size, *shape)
    return Parameters(found)


# ---------------------------------------------------------------------- random graphs


@dataclass(slots=True)
class _Builder:
    schema: Schema
    rng: np.random.Generator
    nodes: list[Node] = field(default_factory=list)
    known: dict[tuple[frozenset[str], int], list[str]] = field(default_factory=dict)

    def some(self) -> int:
        return int(self.rng.integers(1, 4))

    def add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.name

    def name(self) -> str:
        return f"n{len(self.nodes)}"

    def region(self, scope: list[str], units: int, depth: int) -> str:
        """A node over the scope: an old one now and then, so that nodes have several parents."""
        key = (frozenset(scope), units)
        if self.known.get(key) and self.rng.random() < 0.4:
            return str(self.rng.choice(self.known[key]))
        if self.is_leaf(scope, depth):
            made = self.leaf(scope, units)
        elif len(scope) > 1 and self.rng.random() < 0.3:
            made = self.product(scope, depth, units)
        else:
            made = self.sum(scope, units, depth)
        self.known.setdefault(key, []).append(made)
        return made

    def is_leaf(self, scope: list[str], depth: int) -> bool:
        alike = len({(sort_of(v), self.schema[v].size) for v in scope}) == 1
        return alike and (depth <= 0 or self.rng.random() < (0.5 if len(scope) == 1 else 0.2))

    def leaf(self, scope: list[str], units: int) -> str:
        families = FAMILIES[sort_of(scope[0])]
        if len(scope) > 1 and sort_of(scope[0]) == "real":
            families = (*families, "multivariate_gaussian")
        return self.add(Leaf(self.name(), str(self.rng.choice(families)), tuple(scope), units))

    def sum(self, scope: list[str], units: int, depth: int) -> str:
        children = tuple(self.input(scope, depth) for _ in range(self.some()))
        return self.add(Sum(self.name(), children, units))

    def input(self, scope: list[str], depth: int) -> str:
        if len(scope) == 1 or (depth > 0 and self.rng.random() < 0.4):
            return self.region(scope, self.some(), depth - 1)
        if self.rng.random() < 0.5:
            return self.product(scope, depth, self.some())
        cut = int(self.rng.integers(1, len(scope)))
        pair = tuple(self.region(p, self.some(), depth - 1) for p in (scope[:cut], scope[cut:]))
        return self.add(Product(self.name(), pair, outer=True))

    def product(self, scope: list[str], depth: int, units: int) -> str:
        """Of so many units: elementwise, or outer with all of them on one side."""
        order = [str(v) for v in self.rng.permutation(scope)]
        cut = int(self.rng.integers(1, len(order)))
        parts = [order[:cut], order[cut:]]
        if self.rng.random() < 0.5:
            sides = self.rng.permutation([1, units])
            pair = tuple(
                self.region(p, int(k), depth - 1) for p, k in zip(parts, sides, strict=True)
            )
            return self.add(Product(self.name(), pair, outer=True))
        if len(parts[1]) > 1 and self.rng.random() < 0.5:
            parts = [parts[0], parts[1][:1], parts[1][1:]]
        joined = tuple(self.region(part, units, depth - 1) for part in parts)
        return self.add(Product(self.name(), joined))


def random_graph(schema: Schema, rng: np.random.Generator, depth: int = 2) -> Circuit:
    """Smooth, decomposable, with shared nodes, 1 to 3 units and both products."""
    builder = _Builder(schema, rng)
    root = builder.sum(list(schema.names), 1, depth)
    return Circuit(reachable(builder.nodes, root), schema)


# ---------------------------------------------------------------------- structures


def _random_tree(schema: Schema, rng: np.random.Generator) -> nx.Graph:
    tree = nx.Graph()
    tree.add_nodes_from(schema.names)
    for i, name in enumerate(schema.names[1:], start=1):
        tree.add_edge(name, schema.names[int(rng.integers(i))])
    return tree


def _leaf_family(variable: Variable) -> str:
    return FAMILIES[sort_of(variable.name)][0]


Build = Callable[[Schema, np.random.Generator], Circuit]
STRUCTURES: dict[str, Build] = {
    "random": random_graph,
    "factorised": lambda s, rng: structures.factorised(s, leaf_family=_leaf_family),
    "mixture": lambda s, rng: structures.mixture_of_products(s, 5, leaf_family=_leaf_family),
    "random_binary": lambda s, rng: structures.random_binary(
        s, depth=2, repetitions=2, units=4, rng=rng, leaf_family=_leaf_family
    ),
    "poon_domingos": lambda s, rng: structures.poon_domingos(
        s, height=1, width=len(s), step=1, units=4, leaf_family=_leaf_family
    ),
    "latent_tree": lambda s, rng: structures.latent_tree(
        s, _random_tree(s, rng), 2, leaf_family=_leaf_family
    ),
    "class_conditional": lambda s, rng: structures.class_conditional(
        random_graph(s, rng), Variable("boolean9", "boolean")
    ),
}


def chow_liu_model(schema: Schema, rng: np.random.Generator) -> Model:
    circuit = structures.chow_liu(schema, _random_tree(schema, rng))
    found = random_parameters(circuit, rng)
    return circuit, Parameters({**found.values, **structures.indicator_codes(circuit)})


def model_of(structure: str, schema: Schema, seed: int) -> Model:
    rng = np.random.default_rng(seed)
    if structure == "chow_liu":
        return chow_liu_model(schema, rng)
    circuit = STRUCTURES[structure](schema, rng)
    found = dict(random_parameters(circuit, rng).values)
    if structure == "class_conditional":
        [mark] = [leaf.name for leaf in circuit.leaves() if leaf.scope == ("boolean9",)]
        found[mark] = {"code": np.array([[0.0], [1.0]])}
    return circuit, Parameters(found)


@st.composite
def models(
    draw: st.DrawFn,
    big: tuple[str, ...] = ("real", "count", "pixel"),
    small: int = 3,
    structure: str | None = None,
) -> Model:
    """A model over at most one variable of many values (``big``) and 1 to ``small`` of few."""
    few = draw(st.lists(st.sampled_from(DISCRETE), min_size=1, max_size=small))
    many = draw(st.sampled_from((None, *big)))
    structure = structure or draw(st.sampled_from(["random", "random", *STRUCTURES, "chow_liu"]))
    if structure == "chow_liu" or many is None:
        sorts = tuple(few)
    else:
        sorts = (*few, many)
    return model_of(structure, schema_of(sorts), draw(st.integers(0, 2**32 - 1)))


# ---------------------------------------------------------------------- rows and events


def random_rows(schema: Schema, rng: np.random.Generator, rows: int, missing: float = 0.5) -> Array:
    """(rows, variables) of possible values, some NaN."""
    x = np.empty((rows, len(schema)))
    for column, variable in zip(x.T, schema, strict=True):
        if variable.size:
            column[:] = rng.integers(variable.size, size=rows)
        elif variable.kind == "count":
            column[:] = rng.integers(8, size=rows)
        elif sort_of(variable.name) == "pixel":
            column[:] = rng.integers(256, size=rows) / 255
        else:
            column[:] = rng.normal(0.5, 1.5, size=rows)
    x[rng.random(x.shape) < missing] = np.nan
    return x


Said = tuple[str, Callable[[Array], Mask]]  # the text of an event, and where it holds


def _condition(schema: Schema, at: int, rng: np.random.Generator) -> Said:
    variable = schema.variables[at]
    name = variable.name
    if variable.size:
        chosen = rng.permutation(variable.size)[: int(rng.integers(1, variable.size + 1))]
        values = ", ".join(f"'{variable.categories[c]}'" for c in chosen)
        if rng.random() < 0.5:
            return f"{name} in {{{values}}}", lambda x: np.isin(x[:, at], chosen)
        return f"{name} not in {{{values}}}", lambda x: ~np.isin(x[:, at], chosen)
    ends = {"count": (1, 2, 4, 6), "pixel": (0.0, 0.1, 0.2, 0.7, 1.0), "real": CUTS}[sort_of(name)]
    low, high = (float(e) for e in sorted(rng.choice(ends, 2, replace=False)))
    match int(rng.integers(4)):
        case 0:
            return f"{name} > {low}", lambda x: x[:, at] > low
        case 1:
            return f"{name} <= {high}", lambda x: x[:, at] <= high
        case 2:
            return f"{low} <= {name} < {high}", lambda x: (x[:, at] >= low) & (x[:, at] < high)
    return f"{name} between {low} and {high}", lambda x: (x[:, at] >= low) & (x[:, at] <= high)


def random_event(schema: Schema, rng: np.random.Generator, depth: int = 2) -> Said:
    """Conditions under and, or and not."""
    if depth == 0 or rng.random() < 0.25:
        return _condition(schema, int(rng.integers(len(schema))), rng)
    if rng.random() < 0.25:
        text, holds = random_event(schema, rng, depth - 1)
        return f"not ({text})", lambda x: ~holds(x)
    (a, first), (b, second) = (random_event(schema, rng, depth - 1) for _ in range(2))
    if rng.random() < 0.5:
        return f"({a}) and ({b})", lambda x: first(x) & second(x)
    return f"({a}) or ({b})", lambda x: first(x) | second(x)

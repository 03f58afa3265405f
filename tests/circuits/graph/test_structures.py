"""Structures: valid over any schema, of the expected sizes, repeatable, and what they mean."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Arrays
from fedcircuits.circuits.graph.parameters import Parameters, random_weights
from fedcircuits.circuits.graph.structures import (
    chow_liu,
    class_conditional,
    factorised,
    indicator_codes,
    latent_tree,
    mixture_of_products,
    poon_domingos,
    random_binary,
)
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable

MIXED = Schema(
    (
        Variable("age"),
        Variable("visits", "count"),
        Variable("colour", "category", ("red", "blue", "green")),
        Variable("size", "category", ("s", "m", "l", "xl")),
        Variable("smoker", "boolean"),
        Variable("weight"),
    )
)
PATH = nx.path_graph(MIXED.names)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def counted(circuit: Circuit) -> dict[str, int]:
    return dict(Counter(type(n).__name__ for n in circuit.nodes))


EVERY: dict[str, Callable[[Schema], Circuit]] = {
    "factorised": factorised,
    "mixture": lambda s: mixture_of_products(s, 3),
    "random": lambda s: random_binary(s, depth=2, repetitions=2, units=3, rng=rng()),
    "image": lambda s: poon_domingos(s, height=1, width=len(s), step=1, units=2),
    "tree": lambda s: latent_tree(s, nx.star_graph(s.names), 2),
    "classes": lambda s: class_conditional(
        mixture_of_products(s, 3), Variable("y", "category", tuple("abc"))
    ),
}
kinds = st.sampled_from(["real", "count", "boolean", "two", "three"])


def schema_of(words: list[str]) -> Schema:
    sizes = {"two": ("a", "b"), "three": ("a", "b", "c")}
    return Schema(
        tuple(
            Variable(f"v{i}", "category", sizes[w]) if w in sizes else Variable(f"v{i}", w)  # type: ignore[arg-type]
            for i, w in enumerate(words)
        )
    )


@pytest.mark.parametrize("name", EVERY)
@given(words=st.lists(kinds, min_size=1, max_size=7))
def test_every_structure_covers_every_schema(name: str, words: list[str]) -> None:
    """Smooth and decomposable by construction of ``Circuit``; one unit at the root."""
    schema = schema_of(words)
    circuit = EVERY[name](schema)
    assert set(schema.names) <= circuit.scopes[circuit.root.name]
    assert circuit.units[circuit.root.name] == 1
    assert circuit.is_density
    assert Circuit.loads(circuit.dumps()) == circuit
    assert EVERY[name](schema) == circuit, "equal for equal numbers and seeds"
    below = {c for n in circuit.nodes for c in n.children}
    assert below == {n.name for n in circuit.nodes} - {circuit.root.name}, "all nodes are used"


@pytest.mark.parametrize("name", EVERY)
def test_leaves_follow_the_kinds(name: str) -> None:
    expected = {"real": "gaussian", "count": "poisson", "category": "categorical"}
    for leaf in EVERY[name](MIXED).leaves():
        if not leaf.name.startswith("label:"):
            for v in leaf.scope:
                assert leaf.family == expected.get(MIXED[v].kind, "bernoulli")


def test_leaf_families_can_be_chosen() -> None:
    circuit = factorised(Schema.real(3), leaf_family=lambda v: "student_t")
    assert counted(circuit) == {"Leaf": 1}
    assert next(circuit.leaves()).family == "student_t"


# ---------------------------------------------------------------------- sizes


def test_factorised_has_a_leaf_for_every_family_and_size() -> None:
    circuit = factorised(MIXED)
    assert counted(circuit) == {"Leaf": 5, "Product": 1}
    assert sorted(leaf.scope for leaf in circuit.leaves())[0] == ("age", "weight")
    assert counted(factorised(Schema.real(9))) == {"Leaf": 1}


def test_mixture_has_a_unit_for_every_component() -> None:
    circuit = mixture_of_products(MIXED, 7)
    assert counted(circuit) == {"Leaf": 5, "Product": 1, "Sum": 1}
    assert circuit.inputs(circuit.root) == 7
    assert {leaf.units for leaf in circuit.leaves()} == {7}


def test_random_binary_has_a_tree_for_every_repetition() -> None:
    circuit = random_binary(Schema.real(8), depth=2, repetitions=5, units=3, rng=rng())
    assert counted(circuit) == {"Leaf": 5 * 4, "Product": 5 * 3, "Sum": 5 * 2 + 1}
    assert circuit.inputs(circuit.root) == 5 * 3 * 3
    assert all(len(leaf.scope) == 2 and leaf.units == 3 for leaf in circuit.leaves())
    assert all(n.outer for n in circuit.nodes if isinstance(n, Product))


def test_random_binary_splits_as_far_as_variables_go() -> None:
    circuit = random_binary(Schema.real(3), depth=9, repetitions=1, units=2, rng=rng())
    assert sorted(leaf.scope for leaf in circuit.leaves()) == [("x0",), ("x1",), ("x2",)]
    alone = random_binary(Schema.real(1), depth=1, repetitions=2, units=2, rng=rng())
    assert counted(alone) == {"Leaf": 2, "Sum": 1}


def test_random_binary_differs_by_the_generator_only() -> None:
    def make(seed: int) -> Circuit:
        generator = np.random.default_rng(seed)
        return random_binary(Schema.real(9), depth=3, repetitions=3, units=2, rng=generator)

    assert make(1) == make(1)
    assert make(1) != make(2)
    first, second = (frozenset(leaf.scope) for leaf in itertools.islice(make(1).leaves(), 2))
    assert not first & second


def boxes(height: int, width: int, step: int) -> int:
    """Rectangles between multiples of the step and the borders."""
    rows, columns = (-(-length // step) for length in (height, width))
    return rows * (rows + 1) // 2 * columns * (columns + 1) // 2


@pytest.mark.parametrize(
    ("height", "width", "step"), [(4, 4, 2), (5, 3, 2), (3, 7, 3), (2, 2, 5), (1, 6, 1)]
)
def test_poon_domingos_has_all_rectangles(height: int, width: int, step: int) -> None:
    schema = Schema.real(height * width)
    circuit = poon_domingos(schema, height=height, width=width, step=step, units=2)
    regions = [n for n in circuit.nodes if not isinstance(n, Product)]
    assert len(regions) == boxes(height, width, step)
    grid = np.array(schema.names).reshape(height, width)
    for node in regions:
        ys, xs = np.nonzero(np.isin(grid, list(circuit.scopes[node.name])))
        area = (np.ptp(ys) + 1) * (np.ptp(xs) + 1)
        assert area == len(circuit.scopes[node.name]), f"{node.name} is no rectangle"
    tiles = [leaf.scope for leaf in circuit.leaves()]
    assert sorted(v for scope in tiles for v in scope) == sorted(schema.names)
    assert max(map(len, tiles)) <= step * step


def test_poon_domingos_keeps_the_channels_of_a_pixel_together() -> None:
    schema = Schema.real([f"{y}{x}{c}" for y in range(2) for x in range(3) for c in "rgb"])
    circuit = poon_domingos(schema, height=2, width=3, step=1, units=2, channels=3)
    tiles = {leaf.scope for leaf in circuit.leaves()}
    assert tiles == {tuple(f"{y}{x}{c}" for c in "rgb") for y in range(2) for x in range(3)}


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, None])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("components", lambda k: mixture_of_products(MIXED, k)),
        ("depth", lambda k: random_binary(MIXED, depth=k, repetitions=1, units=1, rng=rng())),
        ("repetitions", lambda k: random_binary(MIXED, depth=1, repetitions=k, units=1, rng=rng())),
        ("units", lambda k: random_binary(MIXED, depth=1, repetitions=1, units=k, rng=rng())),
        ("height", lambda k: poon_domingos(MIXED, height=k, width=6, step=1, units=1)),
        ("width", lambda k: poon_domingos(MIXED, height=1, width=k, step=1, units=1)),
        ("step", lambda k: poon_domingos(MIXED, height=1, width=6, step=k or 0, units=1)),
        (
            "channels",
            lambda k: poon_domingos(MIXED, height=1, width=6, step=1, units=1, channels=k),
        ),
        ("units", lambda k: latent_tree(MIXED, PATH, k)),
    ],
)
def test_bad_numbers(name: str, make: Callable[[object], Circuit], number: object) -> None:
    with pytest.raises(StructureError, match=f"{name} must be a whole number from 1, got"):
        make(number)


def test_numbers_of_numpy_are_taken() -> None:
    three = np.int64(3)
    assert mixture_of_products(MIXED, three) == mixture_of_products(MIXED, 3)  # type: ignore[arg-type]


def test_images_of_another_size() -> None:
    with pytest.raises(StructureError, match=r"2 × 2 image of 3 channels has 12 .* schema has 6"):
        poon_domingos(MIXED, height=2, width=2, step=1, units=1, channels=3)


CYCLE = nx.cycle_graph(MIXED.names)
FOREST = nx.Graph()
FOREST.add_nodes_from(MIXED.names)
STRANGE = nx.path_graph([*MIXED.names[:-1], "elsewhere"])


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (CYCLE, "must be a tree.*6 nodes and 6 edges"),
        (FOREST, "must be a tree.*6 nodes and 0 edges"),
        (STRANGE, "differ in 'elsewhere', 'weight'"),
        (nx.Graph(), "differ in"),
    ],
)
def test_graphs_that_are_no_tree_of_the_variables(tree: nx.Graph, words: str) -> None:
    with pytest.raises(StructureError, match=words):
        latent_tree(MIXED, tree, 2)


def test_no_variables() -> None:
    nothing = Schema(())
    with pytest.raises(StructureError, match="at least one node"):
        factorised(nothing)
    with pytest.raises(StructureError, match="must be a tree"):
        latent_tree(nothing, nx.Graph(), 2)


def test_step_or_pieces() -> None:
    for both in ({}, {"step": 2, "pieces": 2}):
        with pytest.raises(StructureError, match="give either step or pieces"):
            poon_domingos(MIXED, height=1, width=6, units=1, **both)


def test_chow_liu_is_for_categories() -> None:
    with pytest.raises(StructureError, match="'age' is a real: use latent_tree"):
        chow_liu(MIXED, PATH)


# ---------------------------------------------------------------------- meaning

DISCRETE = Schema(
    (
        Variable("a", "category", ("1", "2", "3")),
        Variable("b", "boolean"),
        Variable("c", "category", ("x", "y", "z", "w")),
        Variable("d", "boolean"),
    )
)
EDGES = [("a", "b"), ("a", "c"), ("c", "d")]


@pytest.mark.parametrize("directed", [False, True])
def test_chow_liu_is_the_bayesian_network_of_its_tables(directed: bool) -> None:
    tree = nx.DiGraph([(v, u) for u, v in EDGES]) if directed else nx.Graph(EDGES)
    circuit = chow_liu(DISCRETE, tree)
    values = {**random_weights(circuit, rng()), **indicator_codes(circuit)}
    parameters = Parameters(values)
    parameters.check(circuit)
    rows = np.array(list(itertools.product(range(3), range(2), range(4), range(2))), dtype=float)
    tables = {v: values[f"sum:{v}"]["weight"] for v in "abcd"}
    a, b, c, d = rows.astype(int).T
    expected = tables["a"][0, a] * tables["b"][a, b] * tables["c"][a, c] * tables["d"][c, d]
    distribution = Distribution(circuit, parameters)
    np.testing.assert_allclose(np.exp(distribution.log_likelihood(rows)), expected, rtol=1e-12)
    assert distribution.deterministic
    best = distribution.mpe(np.full((1, 4), np.nan))
    assert best.exact
    np.testing.assert_array_equal(best.values[0], rows[expected.argmax()])


def test_latent_tree_with_one_state_is_factorised() -> None:
    schema = Schema((Variable("x"), Variable("n", "count"), Variable("b", "boolean")))
    leaves: dict[str, Arrays] = {
        "leaf:x": {"mean": np.array([[1.0]]), "variance": np.array([[2.0]])},
        "leaf:n": {"rate": np.array([[3.0]])},
        "leaf:b": {"probability": np.array([[0.3]])},
    }
    tree = latent_tree(schema, nx.path_graph(["x", "n", "b"]), 1)
    one = {n.name: {"weight": np.ones((1, 1))} for n in tree.nodes if isinstance(n, Sum)}
    flat = factorised(schema)
    by_scope = {leaf.name: leaves[f"leaf:{leaf.scope[0]}"] for leaf in flat.leaves()}
    rows = np.array([[0.5, 2.0, 1.0], [np.nan, 0.0, np.nan], [3.0, np.nan, 0.0]])
    found = Distribution(tree, Parameters({**leaves, **one})).log_likelihood(rows)
    expected = Distribution(flat, Parameters(by_scope)).log_likelihood(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_latent_tree_sizes() -> None:
    circuit = latent_tree(MIXED, PATH, 4)
    assert counted(circuit) == {"Leaf": 6, "Product": 4, "Sum": 6}  # rooted in the middle
    sums = [n for n in circuit.nodes if isinstance(n, Sum)]
    assert [n.units for n in sums] == [4, 4, 4, 4, 4, 1]
    assert all(circuit.inputs(n) == 4 for n in sums)


LABEL = Variable("y", "category", ("no", "maybe", "yes"))


def test_class_conditional_is_prior_times_likelihood() -> None:
    base = mixture_of_products(Schema.real(2), 4)
    circuit = class_conditional(base, LABEL)
    assert circuit.schema.names == ("x0", "x1", "y")
    weights = random_weights(circuit, rng())
    leaf = {"mean": rng().normal(size=(4, 2)), "variance": np.ones((4, 2))}
    parameters = Parameters({**weights, **indicator_codes(circuit), "component": leaf})
    parameters.check(circuit)
    rows = np.hstack([rng().normal(size=(6, 2)), np.arange(6.0)[:, None] % 3])
    expected = np.empty(6)
    for i, row in enumerate(rows):
        own = {"root": {"weight": weights["root"]["weight"][[int(row[2])]]}, "component": leaf}
        given_class = Distribution(base, Parameters(own)).log_likelihood(row[None, :2])[0]
        expected[i] = np.log(weights["joint"]["weight"][0, int(row[2])]) + given_class
    found = Distribution(circuit, parameters).log_likelihood(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("circuit", "label", "words"),
    [
        (mixture_of_products(Schema.real(2), 2), Variable("y"), "'y' is a real"),
        (factorised(MIXED), LABEL, "root must be a sum, got product"),
        (factorised(Schema.real(2)), LABEL, "root must be a sum, got leaf"),
        (mixture_of_products(Schema((LABEL,)), 2), LABEL, "names must differ.*y"),
    ],
)
def test_labels_that_do_not_fit(circuit: Circuit, label: Variable, words: str) -> None:
    with pytest.raises(StructureError, match=words):
        class_conditional(circuit, label)


def test_indicator_codes_count_up() -> None:
    leaf = Leaf("i", "indicator", ("c",), 4)
    codes = indicator_codes(Circuit((leaf,), DISCRETE.select(["c"])))
    np.testing.assert_array_equal(codes["i"]["code"], [[0.0], [1.0], [2.0], [3.0]])

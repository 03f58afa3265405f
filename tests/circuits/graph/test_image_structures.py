"""Quad trees and quad graphs: shapes, and every question against brute force."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest

from fedcircuits.circuits.graph import structures
from fedcircuits.circuits.graph.circuit import Circuit, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters, random_weights
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import StructureError
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import probability

KINDS = [
    (build, kind)
    for build in (structures.quad_tree, structures.quad_graph)
    for kind in ("cp", "tucker")
]
NAN = np.nan


def pixels(number: int) -> Schema:
    return Schema(tuple(Variable(f"x{i}", "boolean") for i in range(number)))


def random_model(circuit: Circuit, seed: int = 0) -> tuple[Circuit, Parameters]:
    rng = np.random.default_rng(seed)
    found = dict(random_weights(circuit, rng))
    for leaf in circuit.leaves():
        found[leaf.name] = {"probability": rng.uniform(0.1, 0.9, (leaf.units, len(leaf.scope)))}
    return circuit, Parameters(found)


@pytest.mark.parametrize(("build", "kind"), KINDS)
@pytest.mark.parametrize(
    ("height", "width", "channels"), [(2, 3, 1), (3, 3, 1), (2, 2, 2), (1, 5, 1)]
)
def test_every_question_agrees_with_brute_force(
    build: object, kind: str, height: int, width: int, channels: int
) -> None:
    number = height * width * channels
    circuit = build(  # type: ignore[operator]
        pixels(number), height=height, width=width, channels=channels, units=3, product=kind
    )
    model = random_model(circuit)
    rows = np.array(list(product((0.0, 1.0), repeat=number)))
    expected = probability(*model, rows)
    distribution = Distribution(*model)
    np.testing.assert_allclose(np.exp(distribution.log_likelihood(rows)), expected, rtol=1e-9)
    assert expected.sum() == pytest.approx(1)
    half = rows[5].copy()
    half[::2] = NAN
    fits = (rows[:, 1::2] == half[1::2]).all(axis=1)
    assert np.exp(distribution.log_likelihood(half[None]))[0] == pytest.approx(expected[fits].sum())
    drawn = distribution.sample(np.repeat(half[None], 4_000, axis=0), np.random.default_rng(0))
    shares = [np.mean((drawn == row).all(axis=1)) for row in rows[fits]]
    np.testing.assert_allclose(shares, expected[fits] / expected[fits].sum(), atol=0.04)
    explained = distribution.mpe(half[None])
    at = int(np.flatnonzero((rows == explained.values).all(axis=1))[0])
    assert fits[at] and expected[at] == pytest.approx(np.exp(explained.log_value[0]))


def test_a_square_of_a_graph_is_divided_in_two_ways_that_share_quarters() -> None:
    circuit = structures.quad_graph(pixels(16), height=4, width=4, units=2)
    assert len(circuit[circuit.root.name].children) == 2
    halves = [set(circuit[p].children) for p in circuit[circuit.root.name].children]
    quarters = [
        {c for half in way for p in circuit[half].children for c in circuit[p].children}
        for way in halves
    ]
    assert quarters[0] == quarters[1] and len(quarters[0]) == 4


def test_a_tree_has_quarters_as_parts() -> None:
    circuit = structures.quad_tree(pixels(16), height=4, width=4, units=2)
    [top] = circuit[circuit.root.name].children
    assert isinstance(circuit[top], Product) and len(circuit[top].children) == 4
    assert sum(isinstance(n, Sum) for n in circuit.nodes) == 5


def test_mnist_size_folds_into_few_steps() -> None:
    for build in (structures.quad_tree, structures.quad_graph):
        circuit = build(pixels(784), height=28, width=28, units=2)
        assert len(list(circuit.leaves())) == 784


@pytest.mark.parametrize(
    "settings",
    [{"height": 3}, {"units": 0}, {"product": "hadamard"}, {"channels": 2}],
)
def test_bad_settings_are_named(settings: dict[str, object]) -> None:
    given = {"height": 2, "width": 2, "units": 2, **settings}
    with pytest.raises(StructureError):
        structures.quad_graph(pixels(4), **given)  # type: ignore[arg-type]


def test_the_channels_of_a_pixel_share_a_state() -> None:
    schema = pixels(4)
    groups = {"x0": ("x0", "x1"), "x2": ("x2", "x3")}
    tree = nx.Graph([("x0", "x2")])
    circuit = structures.latent_tree(schema, tree, 3, groups=groups)
    assert sorted(len(leaf.scope) for leaf in circuit.leaves()) == [2, 2]
    model = random_model(circuit)
    rows = np.array(list(product((0.0, 1.0), repeat=4)))
    expected = probability(*model, rows)
    np.testing.assert_allclose(np.exp(Distribution(*model).log_likelihood(rows)), expected)
    with pytest.raises(StructureError, match="every variable"):
        structures.latent_tree(schema, tree, 3, groups={"x0": ("x0",), "x2": ("x2", "x3")})

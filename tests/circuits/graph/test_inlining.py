"""Graphs that are evaluated in another form than they are written in: melted, or inlined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import probability
from tests.circuits.strategies import model_of, random_parameters, random_rows, schema_of

SEEDS = st.integers(0, 2**32 - 1)


def test_an_outer_product_with_readers_of_different_kinds() -> None:
    """It is written down for the product, and melts into the sum, in whatever order."""
    rng = np.random.default_rng(0)
    schema = schema_of(("boolean", "boolean", "boolean"))
    a, b, c = schema.names
    leaves = (
        Leaf("a", "bernoulli", (a,), 2),
        Leaf("b", "bernoulli", (b,), 1),
        Leaf("b2", "bernoulli", (b,), 1),
        Leaf("c", "bernoulli", (c,), 2),
    )
    outer = (Product("o", ("a", "b"), outer=True), Product("o2", ("a", "b2"), outer=True))
    x = random_rows(schema, rng, 20)
    for order in (("o", "o2"), ("o2", "o")):
        rest: tuple[Node, ...] = (
            Product("p", ("o", "c")),  # o has a reader that is no sum
            Sum("s", order, 2),
            Product("q", ("s", "c")),
            Sum("root", ("p", "q")),
        )
        circuit = Circuit((*leaves, *outer, *rest), schema)
        parameters = random_parameters(circuit, rng)
        found = Distribution(circuit, parameters).log_likelihood(x)
        with np.errstate(divide="ignore"):
            expected = np.log(probability(circuit, parameters, x))
        np.testing.assert_allclose(found, expected, atol=1e-12)


@settings(max_examples=10)
@given(SEEDS)
def test_circuits_as_leaves_of_circuits_as_leaves(seed: int) -> None:
    """Inlined, they give what the reference gives by recursion."""
    rng = np.random.default_rng(seed)
    schema = schema_of(("boolean", "category", "real"))
    b, c, r = schema.names
    inner = model_of("random", schema.select([c, b]), seed)  # in another order than outside
    middle = Circuit(
        (Leaf("in", CIRCUIT, (b, c)), Leaf("r", "gaussian", (r,)), Product("top", ("in", "r"))),
        schema.select([r, c, b]),
    )
    own = random_parameters_without_circuits(middle, rng)
    held = (middle, replace(own, circuits={"in": inner}))
    outer = Circuit(
        (Leaf("one", CIRCUIT, schema.names), Leaf("two", CIRCUIT, schema.names),
         Sum("root", ("one", "two"))),
        schema,
    )  # fmt: skip
    circuits = {"one": held, "two": model_of("mixture", schema, seed)}
    parameters = Parameters({"root": {"weight": np.array([[0.3, 0.7]])}}, circuits)
    parameters.check(outer)
    x = random_rows(schema, rng, 12, 0.3)
    x[:, 2] = np.where(np.isnan(x[:, 2]), 0.0, x[:, 2])
    with np.errstate(divide="ignore"):
        expected = np.log(probability(outer, parameters, x))
    np.testing.assert_allclose(Distribution(outer, parameters).log_likelihood(x), expected)
    flat = inline(outer, parameters)
    assert not any(leaf.family == CIRCUIT for leaf in flat[0].leaves())
    flat[1].check(flat[0])
    assert flat[0].root.name == "root" and {"one/in", "one/r"} <= set(flat[0].by_name)


def random_parameters_without_circuits(circuit: Circuit, rng: np.random.Generator) -> Parameters:
    plain = tuple(n for n in circuit.nodes if isinstance(n, Leaf) and n.family != CIRCUIT)
    some = {n.name: {"mean": rng.normal(size=(1, 1)), "variance": np.ones((1, 1))} for n in plain}
    return Parameters(some)


def test_inlining_refuses_other_codes() -> None:
    """Red and green change places between the leaf's circuit and the one around it."""
    outside = Schema((Variable("c", "category", ("red", "green")),))
    inside = Schema((Variable("c", "category", ("green", "red")),))
    circuit = Circuit((Leaf("leaf", CIRCUIT, ("c",)),), outside)
    inner = Circuit((Leaf("x", "categorical", ("c",)),), inside)
    held = Parameters({"x": {"probability": np.array([[[0.9, 0.1]]])}})
    with pytest.raises(ParameterError, match="'c'"):
        Distribution(circuit, Parameters({}, {"leaf": (inner, held)}))

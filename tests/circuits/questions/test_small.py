"""Questions without torch have the answers of Distribution, which are checked by enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.events import parse_event
from fedcircuits.circuits.questions.small import SmallDistribution
from fedcircuits.tables.schema import Schema
from tests.circuits.strategies import Model, model_of, models, random_event, random_rows, schema_of

SEEDS = st.integers(0, 2**32 - 1)


def same(model: Model, seed: int) -> None:
    """Every question to one row and an event."""
    rng, schema = np.random.default_rng(seed), model[0].schema
    small, large = SmallDistribution(*model), Distribution(*model)
    x = random_rows(schema, rng, 1, missing=0.7)
    event = parse_event(random_event(schema, rng)[0], schema)
    found, expected = (d.log_probability(x, event) for d in (small, large))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-7)
    for variable in schema:
        if variable.size:
            codes = [d.posterior(x, variable.name, event) for d in (small, large)]
            np.testing.assert_allclose(*codes, rtol=1e-7, atol=1e-9)
        if variable.kind != "category" and np.isfinite(expected[0]) and expected[0] > -30:
            pairs = [np.array(d.moments(x, variable.name, event)) for d in (small, large)]
            np.testing.assert_allclose(*pairs, rtol=1e-7, atol=1e-7)


@settings(max_examples=40)
@given(models(), SEEDS)
def test_answers_are_those_of_the_large_one(model: Model, seed: int) -> None:
    same(model, seed)


@settings(max_examples=10)
@given(SEEDS)
def test_reals_of_one_leaf(seed: int) -> None:
    """Several at once, among them multivariate normals."""
    same(model_of("random", schema_of(("real", "real", "boolean")), seed), seed)


def test_far_tails_of_a_normal() -> None:
    circuit = Circuit((Leaf("g", "multivariate_gaussian", ("a", "b")),), Schema.real(["a", "b"]))
    arrays = {"mean": np.zeros((1, 2)), "covariance": np.array([[[1.0, 0.5], [0.5, 1.0]]])}
    model = circuit, Parameters({"g": arrays})
    nothing = np.full((1, 2), np.nan)
    for text in ("a > 20", "a < -30", "a > 1 or a < -40", "a > 5 and b > 5"):
        event = parse_event(text, circuit.schema)
        found, expected = (
            d.log_probability(nothing, event)
            for d in (SmallDistribution(*model), Distribution(*model))
        )
        assert found == pytest.approx(expected, rel=1e-6)


def test_other_rows_go_to_the_large_one() -> None:
    model = model_of("random", schema_of(("real", "boolean")), 3)
    small, large = SmallDistribution(*model), Distribution(*model)
    several = random_rows(model[0].schema, np.random.default_rng(0), 5)
    assert (small.log_likelihood(several) == large.log_likelihood(several)).all()
    drawn = [d.sample(several, np.random.default_rng(1)) for d in (small, large)]
    assert np.array_equal(*drawn) and small.deterministic == large.deterministic


def test_a_real_that_is_seen_needs_no_torch() -> None:
    names = ["normal", "heavy", "waiting", "lasting", "binned", "a", "b"]
    families = ["gaussian", "student_t", "gamma", "exponential", "histogram"]
    leaves = [Leaf(n, f, (n,)) for n, f in zip(names, families, strict=False)]
    leaves.append(Leaf("joint", "multivariate_gaussian", ("a", "b")))
    one = np.ones((1, 1))
    arrays = {
        "normal": {"mean": one, "variance": 2 * one},
        "heavy": {"location": one, "scale": 2 * one, "degrees": 3 * one},
        "waiting": {"shape": 2 * one, "rate": 0.5 * one},
        "lasting": {"rate": 0.5 * one},
        "binned": {"edges": np.array([[[0.0, 1, 3]]]), "probability": np.array([[[0.25, 0.75]]])},
        "joint": {"mean": np.zeros((1, 2)), "covariance": np.array([[[1.0, 0.5], [0.5, 1.0]]])},
    }
    nodes = (*leaves, Product("root", tuple(leaf.name for leaf in leaves)))
    model = Circuit(nodes, Schema.real(names)), Parameters(arrays)
    small, large = SmallDistribution(*model), Distribution(*model)
    for value in (0.5, 1.0, 2.9, 7.0, -3.0):
        x = np.full((1, 7), value)
        assert small.log_likelihood(x)[0] == pytest.approx(large.log_likelihood(x)[0], rel=1e-12)
        x[0, -1] = np.nan  # a region given a
        event = parse_event("b > 0.2", model[0].schema)
        found, wanted = (d.log_probability(x, event)[0] for d in (small, large))
        assert found == pytest.approx(wanted, rel=1e-9)
    assert "large" not in vars(small)

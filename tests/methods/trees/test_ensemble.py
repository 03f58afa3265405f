"""The graph of tree ensembles, and how its nodes join answers, against the formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import PREDICTOR
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.methods.trees.ensemble import (
    PartyTrees,
    TreeEnsemble,
    average_predictions,
    fused,
    graph_of,
    multiply_predictions,
)

SCHEMA = fc.Schema((*fc.Schema.real(["a", "b", "c", "d"]), fc.Variable("y", "boolean")))
TARGET = SCHEMA["y"]


def grown(party: str, held: str, weight: float = 1.0, trees: int = 1) -> PartyTrees:
    return PartyTrees(party, [tuple(held)] * trees, weight, frozenset(held))


def ensemble(
    members: list[PartyTrees], target: fc.Variable = TARGET, overall: Array | None = None
) -> TreeEnsemble:
    circuit, placement, parameters = graph_of(members, SCHEMA, target)
    shares = np.array([0.7, 0.3]) if overall is None else overall
    return TreeEnsemble("coordinator", circuit, placement, target, shares, parameters)


def test_parties_with_the_same_columns() -> None:
    view = ensemble([grown("north", "ab", 30, trees=2), grown("south", "ab", 10)])
    nodes = [n.name for n in view.circuit.nodes]
    assert nodes == [
        "north/tree 1", "north/tree 2", "north/trees", "south/tree 1", "south/trees", "prediction",
    ]  # fmt: skip
    root = view.circuit.root
    assert root == fc.Fuse("prediction", ("north/trees", "south/trees"), "mean", 2)
    assert view.parameters["prediction"]["weight"].tolist() == [0.75, 0.25]
    assert view.placement["north/tree 2"] == view.placement["north/trees"] == "north"
    assert view.placement["prediction"] == "coordinator"
    assert view.circuit.schema.names == ("a", "b") and not view.circuit.is_density
    assert fc.Circuit.loads(view.circuit.dumps()) == view.circuit


def test_parties_with_different_columns() -> None:
    view = ensemble([grown("p", "ab", 30), grown("q", "ab", 10), grown("r", "bcd")])
    root = view.circuit.root
    assert root == fc.Fuse("prediction", ("columns 1", "r/trees"), "product", 2)
    assert view.circuit["columns 1"] == fc.Fuse("columns 1", ("p/trees", "q/trees"), "mean", 2)
    assert np.allclose(view.parameters["prediction"]["weight"], [(1 + 1 / 2) / 2, (1 / 2 + 2) / 3])


def test_numbers_are_averaged() -> None:
    view = ensemble([grown("p", "ab", 3), grown("q", "cd", 1)], SCHEMA["d"], np.array([5.0]))
    assert isinstance(view.circuit.root, fc.Fuse) and view.circuit.root.operation == "mean"
    vectors = {"p": np.array([[2.0], [2.0], [np.nan]]), "q": np.array([[6.0], [np.nan], [np.nan]])}
    assert fused(view, vectors).tolist() == [[3.0], [2.0], [5.0]]


def test_absent_children_of_a_product() -> None:
    view = ensemble([grown("p", "ab"), grown("q", "cd")])
    nothing = [np.nan, np.nan]
    vectors = {"p": np.array([[0.2, 0.8], nothing]), "q": np.array([nothing, nothing])}
    found = fused(view, vectors)
    assert np.allclose(found, [[0.2, 0.8], [0.7, 0.3]], atol=1e-3)


shares = st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3).map(
    lambda v: np.array(v) / np.sum(v)
)


@given(st.lists(shares, min_size=2, max_size=4), shares)
def test_a_product_is_naive_bayes(likelihoods: list[Array], overall: Array) -> None:
    """P_i(y | x_i) made from likelihoods by Bayes' rule give P(y | all x) back."""
    own = [overall * q / (overall @ q) for q in likelihoods]
    expected = overall * np.prod(likelihoods, axis=0)
    found = multiply_predictions([o[None] for o in own], np.ones(len(own)), overall)
    assert np.allclose(found[0], expected / expected.sum(), rtol=0.1)


@given(shares, shares)
def test_powers_of_a_product(own: Array, overall: Array) -> None:
    """The same expert twice, each with half the power, is one expert."""
    once = multiply_predictions([own[None]], np.ones(1), overall)
    twice = multiply_predictions([own[None]] * 2, np.full(2, 0.5), overall)
    assert np.allclose(once, twice) and np.allclose(once[0], own, atol=1e-3)


def test_nobody_has_a_veto_and_what_was_never_seen_stays_impossible() -> None:
    overall = np.array([0.5, 0.5, 0.0])
    sure, doubts = np.array([[1.0, 0.0, 0.0]]), np.array([[0.5, 0.5, 0.0]])
    found = multiply_predictions([sure, doubts], np.ones(2), overall)
    assert found[0, 1] > 1e-4 and found[0, 2] == 0 and found.sum() == pytest.approx(1)


@given(st.integers(1, 4), st.integers(0, 10_000), st.booleans())
def test_average_is_that_of_the_children_who_answer(
    children: int, seed: int, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.random((children, 6, 3))
    vectors[rng.random((children, 6)) < 0.4, rng.integers(3)] = np.nan
    weights = rng.uniform(0.1, 2, children) if weighted else np.ones(children)
    found = average_predictions(list(vectors), weights if weighted else None)
    for row in range(6):
        there = ~np.isnan(vectors[:, row]).any(axis=1)
        if there.any():
            right = np.average(vectors[there, row], axis=0, weights=weights[there])
            assert found[row] == pytest.approx(right)
        else:
            assert np.isnan(found[row]).all()


def test_averages_that_cannot_be() -> None:
    one = np.ones((2, 3))
    for vectors in ([], [one, np.ones((2, 4))], [np.ones(3)]):
        with pytest.raises(ParameterError, match="must all have one shape"):
            average_predictions(vectors)
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan]):
        with pytest.raises(ParameterError, match="weights must be 2 finite numbers"):
            average_predictions([one, one], weights)
    assert average_predictions([one, 3 * one], [0.0, 2.0]).tolist() == (3 * one).tolist()


def test_bagging_of_five_parties_on_adult(data: object) -> None:
    train = fc.datasets.load("adult", split="train")
    test = fc.datasets.load("adult", split="test")
    right = test.values[:, test.schema.index("income")]
    order = np.random.default_rng(0).permutation(len(train))
    leaves = [
        fc.DecisionTreeLeaf(random_state=i).fit(train.rows(part), "income")
        for i, part in enumerate(np.array_split(order, 5))
    ]
    found = average_predictions([leaf.predict_vector(test) for leaf in leaves])
    assert f1_score(right, found.argmax(axis=1), average="macro") > 0.78


def test_predictors_have_no_density() -> None:
    leaf = fc.Leaf("tree", PREDICTOR, ("a", "b"))
    circuit = fc.Circuit((leaf,), fc.Schema.real(["a", "b"]))
    with pytest.raises(QueryError, match="has no likelihood to ask for"):
        Distribution(circuit, fc.Parameters({}))
    with pytest.raises(fc.errors.StructureError, match="reads predictor 'tree'"):
        fc.Circuit((leaf, fc.Sum("root", ("tree",))), circuit.schema)

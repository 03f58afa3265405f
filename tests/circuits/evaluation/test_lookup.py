"""Tables of many levels, looked up: the same as one-hot products, and as brute force."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.layout import Limits
from fedcircuits.circuits.evaluation.lookup import LookupStep
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters, random_weights
from fedcircuits.circuits.graph.structures import latent_tree
from fedcircuits.circuits.leaves import Categorical
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import StructureError
from fedcircuits.learning.em import maximise_likelihood
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.strategies import Model

LEVELS = 20
NAN = np.nan


def tree_model(units: int = 5, seed: int = 0) -> Model:
    """A count, a category and a count of few values in a chain, all with random tables."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        (
            Variable("a", "count", most=LEVELS - 1),
            Variable("b", "category", tuple(range(LEVELS))),
            Variable("c", "count", most=2),
        )
    )
    circuit = latent_tree(schema, nx.Graph([("a", "b"), ("b", "c")]), units)
    values = dict(random_weights(circuit, rng))
    for leaf in circuit.leaves():
        levels = schema[leaf.scope[0]].levels
        values[leaf.name] = {"probability": rng.dirichlet(np.ones(levels), (leaf.units, 1))}
    return circuit, Parameters(values)


def every_row() -> np.ndarray:
    return np.array(list(product(range(LEVELS), range(LEVELS), range(3))), dtype=float)


def brute(model: Model, x: np.ndarray) -> np.ndarray:
    """Probabilities of whole rows, by multiplying matrices of the chain out."""
    circuit, values = model
    names = circuit.schema.names
    leaf = [
        values[f"leaf:{n}"]["probability"][:, 0, x[:, i].astype(int)] for i, n in enumerate("abc")
    ]
    middle = leaf[1]  # (units, rows)
    for i, name in ((0, "a"), (2, "c")):
        middle = middle * (values[f"sum:{name}"][WEIGHT] @ leaf[i])
    assert names == ("a", "b", "c")
    return np.asarray((values["sum:b"][WEIGHT] @ middle)[0])


def test_likelihoods_marginals_and_masses() -> None:
    model = tree_model()
    steps = CircuitProgram(model[0]).steps
    assert sum(isinstance(s, LookupStep) for s in steps) == 1  # a and b together; c has few levels
    rows = every_row()
    expected, distribution = brute(model, rows), Distribution(*model)
    found = np.exp(distribution.log_likelihood(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found.sum() == pytest.approx(1)
    open_row = np.array([[3.0, NAN, 1.0], [NAN, NAN, 2.0], [NAN, NAN, NAN]])
    by_hand = [
        expected[(rows[:, 0] == 3) & (rows[:, 2] == 1)].sum(), expected[rows[:, 2] == 2].sum(), 1.0
    ]  # fmt: skip
    np.testing.assert_allclose(np.exp(distribution.log_likelihood(open_row)), by_hand, rtol=1e-10)
    single = Distribution(*model, torch.float32).log_likelihood(rows)
    np.testing.assert_allclose(single, np.log(expected), atol=1e-4)


def test_events_draws_and_completions() -> None:
    model = tree_model(seed=1)
    rows = every_row()
    expected, distribution = brute(model, rows), Distribution(*model)
    event = ({"a": ((4.5, 9.5),)},)
    found = np.exp(distribution.log_probability(np.array([[NAN, 7.0, NAN]]), event))
    inside = (rows[:, 0] > 4.5) & (rows[:, 0] < 9.5) & (rows[:, 1] == 7)
    assert found[0] == pytest.approx(expected[inside].sum())
    drawn = distribution.sample(np.full((20_000, 3), NAN), np.random.default_rng(0))
    for column in range(3):
        shares = np.bincount(drawn[:, column].astype(int), minlength=LEVELS) / len(drawn)
        own = np.bincount(rows[:, column].astype(int), weights=expected, minlength=LEVELS)
        np.testing.assert_allclose(shares, own, atol=0.015)
    explained = distribution.mpe(np.array([[2.0, NAN, NAN]]))
    reached = expected[np.flatnonzero((rows == explained.values).all(axis=1))]
    assert explained.values[0, 0] == 2
    assert reached[0] == pytest.approx(np.exp(explained.log_value[0]))


def test_lookups_and_one_hot_products_agree() -> None:
    """Log-values, expected statistics and M-step, with weights and gaps, of both ways."""
    model = tree_model(seed=2)
    rng = np.random.default_rng(3)
    x = every_row()[rng.choice(len(every_row()), 300)]
    x[rng.random(x.shape) < 0.2] = NAN
    weight = torch.from_numpy(rng.uniform(0.2, 2.0, len(x)))
    results = []
    for least in (LEVELS, LEVELS + 1):
        program = CircuitProgram(model[0], limits=Limits(levels=least))
        packed = program.pack(model[1])
        counts = program.counts(torch.from_numpy(x), packed, weight)
        new = program.maximise(counts, packed)
        twice = program.maximise(program.counts(torch.from_numpy(x), new, weight), new)
        results.append((counts.log_likelihood, program.unpack(new), program.unpack(twice)))
    (looked, *one), (multiplied, *other) = results
    assert looked == pytest.approx(multiplied, rel=1e-12)
    for mine, theirs in zip(one, other, strict=True):
        for name in mine:
            for key, array in mine[name].items():
                np.testing.assert_allclose(array, theirs[name][key], rtol=1e-9, atol=1e-12)


def test_a_leaf_over_several_columns() -> None:
    rng = np.random.default_rng(4)
    schema = Schema(tuple(Variable(n, "count", most=LEVELS - 1) for n in "ab"))
    circuit = Circuit((Leaf("l", "categorical", ("a", "b"), 4), Sum("root", ("l",))), schema)
    table = rng.dirichlet(np.ones(LEVELS), (4, 2))
    parameters = Parameters({"l": {"probability": table}, "root": {WEIGHT: np.full((1, 4), 0.25)}})
    x = rng.integers(0, LEVELS, (50, 2))
    found = np.exp(Distribution(circuit, parameters).log_likelihood(x.astype(float)))
    np.testing.assert_allclose(found, (table[:, 0, x[:, 0]] * table[:, 1, x[:, 1]]).mean(axis=0))


def test_gradients_are_those_of_differences() -> None:
    model = tree_model(units=4, seed=5)
    module = Differentiable(CircuitProgram(model[0]), model[1])
    x = torch.from_numpy(every_row()[::17])
    module(x).sum().backward()
    for numbers in module.parameters():
        at = int(numbers.grad.abs().argmax())
        flat = numbers.data.view(-1)
        ends = []
        for change in (1e-5, -1e-5):
            flat[at] += change
            ends.append(float(module(x).detach().sum()))
            flat[at] -= change
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(
            float(numbers.grad.view(-1)[at]), rel=1e-4
        )


def test_em_never_falls_and_smooths_by_the_prior() -> None:
    model = tree_model(seed=6)
    rng = np.random.default_rng(7)
    x = Distribution(*tree_model(seed=8)).sample(np.full((400, 3), NAN), rng)
    rules = {"categorical": Categorical(0.0)}
    fitted = maximise_likelihood(*model, x, rules=rules)
    assert np.diff(fitted.history).min() > -1e-9
    prior = {n: np.full(LEVELS, 1e6 / LEVELS) for n in "ab"}
    flat = maximise_likelihood(*model, x, rules={"categorical": Categorical(prior=prior)})
    np.testing.assert_allclose(flat.parameters["leaf:a"]["probability"], 1 / LEVELS, rtol=1e-3)


def test_values_that_are_no_levels_are_impossible() -> None:
    """A program trusts its rows less than a table does: nothing is read beyond a table."""
    program = CircuitProgram(tree_model()[0])
    packed = program.pack(tree_model()[1])
    x = torch.tensor([[25.0, 3.0, 1.0], [-1.0, 3.0, 1.0], [2.5, 3.0, 1.0]], dtype=torch.float64)
    assert torch.isneginf(program.log_values(x, packed)).all()


def test_a_count_without_a_largest_value_has_no_table() -> None:
    schema = Schema((Variable("a", "count"),))
    with pytest.raises(StructureError, match="most="):
        Circuit((Leaf("l", "categorical", ("a",)),), schema)

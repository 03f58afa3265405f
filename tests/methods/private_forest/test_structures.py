"""Forests of random structures: sizes, side by side, how often units are used, weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.learning.em import EMSchedule
from fedcircuits.methods.private_forest.structures import (
    RULES,
    ForestShape,
    joined,
    joined_parameters,
    learned_alone,
    random_start,
    structure,
    structure_weights,
    sum_weights,
    usage,
)
from fedcircuits.tables.schema import Schema, Variable

SCHEMA = Schema(
    (
        *(Variable(f"v{i}", "boolean") for i in range(5)),
        Variable("a", "category", tuple("xyz")),
        Variable("b", "category", tuple("wxyz")),
    )
)
SHAPES = [
    ForestShape(2, units=3),
    ForestShape(2, 1, 2, 2),
    ForestShape(2, 2, 1, 2),
    ForestShape(2, repetitions=2, units=2),
]


def rows(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=count)
    return np.stack(
        [(rng.integers(v.size, size=count) * (rng.random(count) < 0.4) + kind) % v.size
         for v in SCHEMA], axis=1,
    ).astype(float)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_forest_is_the_weighted_sum(shape: ForestShape) -> None:
    rng = np.random.default_rng(3)
    circuits = [structure(SCHEMA, shape, rng) for _ in range(3)]
    starts = [random_start(c, rng) for c in circuits]
    weights = np.array([0.5, 0.2, 0.3])
    whole, parameters = joined(circuits), joined_parameters(circuits, starts, weights)
    parameters.check(whole)
    assert sum_weights(whole) == sum(map(sum_weights, circuits))
    x = rows(40)
    each = [Distribution(c, p).log_likelihood(x) for c, p in zip(circuits, starts, strict=True)]
    expected = logsumexp(each, axis=0, b=weights[:, None])
    np.testing.assert_allclose(Distribution(whole, parameters).log_likelihood(x), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_usage_is_what_em_expects(shape: ForestShape) -> None:
    """After a step of EM: the counts of that step, a row."""
    rng = np.random.default_rng(4)
    names = SCHEMA.names[:5]
    circuit = structure(SCHEMA.select(names), shape, rng)
    program, x = CircuitProgram(circuit), torch.from_numpy(rows(300)[:, :5].copy())
    packed = program.pack(random_start(circuit, rng))
    counts = program.counts(x, packed)
    after = program.unpack(program.maximise(counts, packed, RULES))
    found = usage(circuit, after)
    state = program.upward(program.read(x, packed), packed)
    posterior, _ = program.downward(state, packed, torch.ones(len(x), dtype=torch.float64))
    for leaf in circuit.leaves():
        start = program.layout.row[leaf.name]
        expected = posterior[start : start + leaf.units].mean(1).numpy()
        np.testing.assert_allclose(found[leaf.name], expected, rtol=1e-6)
    assert found[circuit.root.name] == [1.0]


def test_budget_is_divided() -> None:
    """As many weights as before at most, one structure a party."""
    assert ForestShape(3, units=33).divided(SCHEMA, 3) == ForestShape(1, units=33)
    assert ForestShape(3, units=33).divided(SCHEMA, 5) == ForestShape(1, units=19)
    rng = np.random.default_rng(0)
    for shape in (ForestShape(3, 1, 2, 4), ForestShape(3, 2, 1, 3)):
        budget = 3 * sum_weights(structure(SCHEMA, shape, rng))
        one = shape.divided(SCHEMA, 5)
        assert 5 * sum_weights(structure(SCHEMA, one, rng)) <= budget
        more = ForestShape(1, one.depth, one.repetitions, one.units + 1)
        assert 5 * sum_weights(structure(SCHEMA, more, rng)) > budget
    with pytest.raises(fc.FedcircuitsError, match="divided among 9 parties"):
        ForestShape(2, units=3).divided(SCHEMA, 9)
    with pytest.raises(fc.FedcircuitsError, match="divided among 9 parties"):
        ForestShape(1, 1, 2, 2).divided(SCHEMA, 9)


def test_weights_of_structures() -> None:
    likelihoods = np.array([-6.0, -8.0, -4.0])
    np.testing.assert_allclose(structure_weights(likelihoods, "rank"), [2 / 6, 1 / 6, 3 / 6])
    np.testing.assert_allclose(structure_weights(likelihoods, "uniform"), [1 / 3] * 3)
    found = structure_weights(likelihoods, "loglik")
    np.testing.assert_allclose(found / found[0], [1, 6 / 8, 6 / 4])
    found = structure_weights(likelihoods, "loglik2")
    np.testing.assert_allclose(found / found[0], [1, 36 / 64, 36 / 16])


def test_learning_stops_by_rows_held_back() -> None:
    circuit = structure(SCHEMA, ForestShape(1, units=20), np.random.default_rng(0))
    start = random_start(circuit, np.random.default_rng(1))
    found, judged = learned_alone(circuit, start, rows(60), rows(60, 1), EMSchedule(epochs=200))
    assert judged == pytest.approx(Distribution(circuit, found).log_likelihood(rows(60, 1)).mean())
    long, _ = learned_alone(circuit, start, rows(60), rows(0), EMSchedule(epochs=200, tolerance=0))
    assert judged > Distribution(circuit, long).log_likelihood(rows(60, 1)).mean()
    assert found["root"][WEIGHT].shape == (1, 20)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"structures": 0}, "structures"), ({"depth": -1}, "depth"), ({"units": True}, "units"),
     ({"repetitions": 1.5}, "repetitions"), ({"leaf": "gaussian"}, "leaf")],
)  # fmt: skip
def test_shapes_that_are_none(change: dict[str, object], said: str) -> None:
    with pytest.raises(fc.FedcircuitsError, match=said):
        ForestShape(**change)  # type: ignore[arg-type]


def test_leaves_of_one_family() -> None:
    found = structure(SCHEMA, ForestShape(1, units=2, leaf="categorical"), np.random.default_rng(0))
    assert {leaf.family for leaf in found.leaves()} == {"categorical"}

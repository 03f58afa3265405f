"""Rows far out, where the largest unit of a sum may have no weight, or next to none, in it.

Against the same circuit in log space, node by node: 1,200 random circuits, both executors.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.tables.schema import Schema
from tests.circuits.reference import log_probability
from tests.circuits.strategies import Model, model_of, schema_of

STRUCTURES = ("random", "mixture", "random_binary", "poon_domingos", "latent_tree")
SORTS = ("boolean", "category", "real", "real", "count")
WEIGHTS = (0.0, 0.0, 1e-320, 1e-300, 1e-200, 1e-20, 0.3, 1.0)  # that a sum may have


def far_rows(schema: Schema, rng: np.random.Generator, rows: int) -> Array:
    x = np.empty((rows, len(schema)))
    for column, variable in zip(x.T, schema, strict=True):
        if variable.size:
            column[:] = rng.integers(variable.size, size=rows)
        else:
            spread = float(rng.choice([10.0, 30.0, 100.0]))
            drawn = rng.normal(0.0, spread, rows)
            column[:] = drawn if variable.kind == "real" else np.floor(np.abs(drawn))
    return x


def extreme(model: Model, rng: np.random.Generator) -> Model:
    """The same with weights from nothing to everything."""
    circuit, parameters = model
    values = dict(parameters.values)
    for node in circuit.nodes:
        if isinstance(node, Sum) and rng.random() < 0.5:
            weight = rng.choice(WEIGHTS, values[node.name]["weight"].shape)
            weight[:, int(rng.integers(weight.shape[1]))] = 0.7
            values[node.name] = {"weight": weight / weight.sum(axis=1, keepdims=True)}
    return circuit, Parameters(values)


@pytest.mark.parametrize("block", range(12))
def test_against_log_space(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng(seed)
        sorts = tuple(str(s) for s in rng.choice(SORTS, int(rng.integers(1, 5))))
        model = model_of(str(rng.choice(STRUCTURES)), schema_of(sorts), seed)
        model = extreme(model, rng) if seed % 2 else model
        x = far_rows(model[0].schema, rng, 3)
        expected = log_probability(*model, x)
        distribution = Distribution(*model)
        found = [distribution.log_likelihood(x)]
        if distribution.program.compiled:
            distribution.program.compiled = False
            found.append(distribution.log_likelihood(x))
        for answer in found:
            np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-9)


def test_single_precision_keeps_weights_that_round_to_nothing() -> None:
    nodes = (Leaf("a", "gaussian", ("x",), 2), Sum("root", ("a",)))
    circuit = Circuit(nodes, Schema.real(["x"]))
    values = {
        "a": {"mean": np.array([[0.0], [60.0]]), "variance": np.ones((2, 1))},
        "root": {"weight": np.array([[1 - 1e-60, 1e-60]])},
    }
    x = np.array([[60.0], [0.0], [30.0]])
    expected = log_probability(circuit, Parameters(values), x)
    for compiled in (True, False):
        program = CircuitProgram(circuit, torch.float32)
        program.compiled = compiled
        found = program.log_values(torch.from_numpy(x), program.pack(Parameters(values))).numpy()
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
        assert found[0] == pytest.approx(np.log(np.finfo(np.float32).tiny) - 0.919, abs=0.01)

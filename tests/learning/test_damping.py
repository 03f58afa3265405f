"""M-steps that go as far as their rows justify: where they end, and that likelihood never falls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.nodes import Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.learning.damping import cautious, reached
from fedcircuits.leaves import Gaussian
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.evaluation.test_em import PLAIN
from tests.circuits.reference import expected
from tests.circuits.strategies import Model, model_of, models, random_rows, schema_of

SEEDS = st.integers(0, 2**32 - 1)
RULES = {**PLAIN, "gaussian": Gaussian(1e-12, np.inf)}


def step(
    program: CircuitProgram, x: torch.Tensor, packed: Packed, rows: float
) -> tuple[float, Packed]:
    """The likelihood before it, and the parameters after it."""
    counts = program.counts(x, packed)
    maximum = program.maximise(counts, packed, RULES)
    return counts.log_likelihood, cautious(program, counts, packed, maximum, rows)


def real_rows(model: Model, seed: int, rows: int = 20) -> torch.Tensor:
    return torch.from_numpy(random_rows(model[0].schema, np.random.default_rng(seed), rows, 0.3))


@settings(max_examples=60)
@given(models(big=("real", "count")), SEEDS, st.floats(0.0, 50.0))
def test_likelihood_never_falls(model: Model, seed: int, rows: float) -> None:
    """Whatever the families, however long the steps."""
    program = CircuitProgram(model[0])
    packed, x = program.pack(model[1]), real_rows(model, seed)
    found = []
    for _ in range(5):
        likelihood, packed = step(program, x, packed, rows)
        found.append(likelihood)
    program.unpack(packed).check(model[0])
    possible = np.array([f for f in found if np.isfinite(f)])
    assert (np.diff(possible) > -1e-6).all()


@given(models(), SEEDS)
def test_without_caution_it_is_em(model: Model, seed: int) -> None:
    program = CircuitProgram(model[0])
    packed, x = program.pack(model[1]), real_rows(model, seed)
    found = program.unpack(step(program, x, packed, 0.0)[1])
    plain = program.unpack(program.maximise(program.counts(x, packed), packed, RULES))
    assert found.values.keys() == plain.values.keys()
    for name, arrays in plain.values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(found[name][key], array, rtol=1e-12, err_msg=name)


@settings(max_examples=10)
@given(SEEDS)
def test_rows_that_reach_a_unit(seed: int) -> None:
    """Against the posteriors of all induced trees; of leaves, rows that have the variable."""
    schema = schema_of(("boolean", "real", "category"))
    circuit, parameters = model_of("random", schema, seed)
    x = random_rows(schema, np.random.default_rng(seed), 6, 0.3)
    truth = expected(circuit, parameters, x, np.ones(len(x)))
    program = CircuitProgram(circuit)
    packed = program.pack(parameters)
    found = reached(program, program.counts(torch.from_numpy(x), packed), packed)
    for node in circuit.nodes:
        if isinstance(node, Sum):
            total = np.zeros(node.units)
            for (name, unit, _), posterior in truth.items():
                if name == node.name:
                    total[unit] += posterior.sum()
            np.testing.assert_allclose(found[node.name], total, atol=1e-9)
    assert found.keys() == parameters.values.keys()
    for leaf in circuit.leaves():
        assert found[leaf.name].shape[0] == leaf.units


def test_half_of_the_way() -> None:
    """Ten rows, one of them without the second variable."""
    schema = Schema((Variable("a"), Variable("b")))
    circuit = Circuit((Leaf("g", "gaussian", ("a", "b")),), schema)
    start = {"mean": np.array([[0.0, 4.0]]), "variance": np.array([[9.0, 1.0]])}
    x = np.random.default_rng(0).normal(3.0, 0.1, (10, 2))
    x[0, 1] = np.nan
    program = CircuitProgram(circuit)
    packed = program.pack(Parameters({"g": start}))
    found = program.unpack(step(program, torch.from_numpy(x), packed, 10.0)[1])["g"]
    mean, variance = np.nanmean(x, axis=0), np.nanvar(x, axis=0)
    way = np.array([10 / 20, 9 / 19])
    np.testing.assert_allclose(found["mean"][0], (1 - way) * [0.0, 4.0] + way * mean)
    np.testing.assert_allclose(found["variance"][0], (1 - way) * [9.0, 1.0] + way * variance)


def test_what_hardly_any_row_reaches_stays() -> None:
    """A broad Gaussian of small weight, where all rows are at a narrow one: EM moves it among
    these at once."""
    nodes = (Leaf("g", "gaussian", ("a",), 2), Sum("s", ("g",)))
    start = {
        "g": {"mean": np.array([[0.0], [900.0]]), "variance": np.array([[1.0], [1e6]])},
        "s": {"weight": np.array([[0.99, 0.01]])},
    }
    program = CircuitProgram(Circuit(nodes, Schema((Variable("a"),))))
    x = torch.from_numpy(np.random.default_rng(0).normal(2.0, 0.5, (100, 1)))
    ends = []
    for rows in (0.0, 10.0):
        packed = program.pack(Parameters(start))
        for _ in range(10):
            packed = step(program, x, packed, rows)[1]
        ends.append(program.unpack(packed))
    plain, found = ends
    assert plain["g"]["mean"][1, 0] < 10 and plain["g"]["variance"][1, 0] < 1
    np.testing.assert_allclose(found["g"]["mean"], [[2.0], [900.0]], rtol=0.05)
    assert found["g"]["variance"][1, 0] == pytest.approx(1e6, rel=0.01)
    assert found["g"]["variance"][0, 0] < 0.3

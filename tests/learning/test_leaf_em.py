"""EM of one leaf: M-steps that go as far as their rows justify, without a fall of the likelihood,
and what the frame and the rows behind a leaf do to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram, Packed
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.leaves import Gaussian
from fedcircuits.learning.leaf_em import LEAST, EMLeaf, Moments, MStep, damped, rows_reaching
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import expected
from tests.circuits.strategies import PLAIN, Model, model_of, models, random_rows, schema_of
from tests.federation.cases import mixed_table

SEEDS = st.integers(0, 2**32 - 1)
RULES = {**PLAIN, "gaussian": Gaussian(1e-12, np.inf)}


def step(
    program: CircuitProgram, x: torch.Tensor, packed: Packed, rows: float
) -> tuple[float, Packed]:
    """The likelihood before it, and the parameters after it."""
    counts = program.counts(x, packed)
    maximum = program.maximise(counts, packed, RULES)
    return counts.log_likelihood, damped(program, counts, packed, maximum, rows)


def real_rows(model: Model, seed: int, rows: int = 20) -> torch.Tensor:
    return torch.from_numpy(random_rows(model[0].schema, np.random.default_rng(seed), rows, 0.3))


@settings(max_examples=40)
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
def test_without_damping_it_is_em(model: Model, seed: int) -> None:
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
    found = rows_reaching(program, program.counts(torch.from_numpy(x), packed), packed)
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


def far_rows(level: float) -> tuple[fc.Table, Circuit, Parameters]:
    """Two rows at a level, where one of two Gaussians is, and many at the other."""
    x = np.append(np.random.default_rng(0).normal(0.0, 1.0, 60), [level, level + 1.0])
    start = {
        "g": {"mean": np.array([[0.0], [40.0]]), "variance": np.array([[1.0], [400.0]])},
        "s": {"weight": np.array([[0.9, 0.1]])},
    }
    table = fc.Table.of({"a": x})
    nodes = (Leaf("g", "gaussian", ("a",), 2), Sum("s", ("g",)))
    return table, Circuit(nodes, table.schema), Parameters(start)


@pytest.mark.parametrize("level", [30.0, 50.0])
def test_fewer_rows_than_the_least_move_nothing(level: float) -> None:
    """The two rows would show in the mean of the Gaussian that they reach alone."""
    table, circuit, start = far_rows(level)
    means = {}
    for least in (0.0, 1.0, 5.0):
        step = MStep(behind=0.5, least=least)
        leaf = EMLeaf((circuit, start), table, Moments.of(table), table, step, ("gaussian",))
        for _ in range(2):
            leaf.maximise(leaf.counts(np.ones(len(table))))
        means[least] = leaf.learned()[1]["g"]["mean"][:, 0]
    assert means[5.0][1] == pytest.approx(40.0) and means[5.0][0] != 0.0
    assert abs(means[0.0][1] - 40.0) > 1 and np.array_equal(means[0.0], means[1.0])


# ---------------------------------------------------------------------- one leaf of a federation

NAMES = ["age", "colour", "visits"]


@settings(max_examples=5)
@given(st.integers(0, 2**31))
def test_frames_do_not_change_what_is_learned(seed: int) -> None:
    """Counts in another frame lead to the same leaf: moments only say where bounds lie."""
    table = mixed_table(60, seed % 1000).select(NAMES)
    model = fc.MixtureOfProducts(2, max_iter=2, random_state=0).fit(table)
    moments = Moments.of(table)
    moved = replace(moments, mean=moments.mean + 1.0, deviation=moments.deviation * 1.5)
    posterior = np.random.default_rng(seed).random(60)
    found = []
    for own in (moments, moved):
        leaf = EMLeaf((model.circuit_, model.parameters_), table, own, table, MStep())
        leaf.maximise(leaf.no_counts().like(leaf.counts(posterior).flat()))
        found.append(leaf.learned()[1])
    for name, arrays in found[0].values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(found[1][name][key], array, rtol=1e-9, atol=1e-9)


def test_moments_of_columns_without_values() -> None:
    table = fc.Table.of({"a": [1.0, 3.0, np.nan], "b": [7.0, 7.0, 7.0]})
    empty = fc.Table(table.schema, np.array([[np.nan, 7.0]]))
    moments = Moments.of(table)
    assert moments.mean.tolist() == [2.0, 7.0] and moments.deviation.tolist() == [1.0, 1.0]
    assert Moments.of(empty).mean.tolist() == [0.0, 7.0]
    assert moments.select(["b"]).mean.tolist() == [7.0]


@pytest.mark.parametrize("begin", [25.0, 25e-6])
def test_variances_are_bounded_by_all_rows_or_by_where_they_begin(begin: float) -> None:
    """One row is responsible for all: the leaf gets as narrow as the bound, and no narrower."""
    rng = np.random.default_rng(0)
    table = fc.Table.of({"a": rng.normal(3, 5, 200)})
    model = fc.MixtureOfProducts(1, random_state=0).fit(table)
    moments = Moments.of(table)
    [leaf] = list(model.circuit_.leaves())
    start = {**model.parameters_[leaf.name], "variance": np.full((1, 1), begin)}
    values = Parameters({**model.parameters_.values, leaf.name: start})
    em = EMLeaf((model.circuit_, values), table, moments, None, MStep(damping=0.0))
    posterior = np.zeros(200)
    posterior[0] = 1.0
    em.maximise(em.counts(posterior))
    found = em.learned()[1][leaf.name]["variance"][0, 0]
    assert found == pytest.approx(min(LEAST * moments.deviation[0] ** 2, begin), rel=1e-6)

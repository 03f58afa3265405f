"""Expectation–maximisation against posteriors of all induced trees, and its general laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import random_binary
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import StructureError, TableError
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.learning.starts import clusters, start_from
from fedcircuits.tables.schema import Schema
from tests.circuits.reference import count_trees, expected
from tests.circuits.strategies import (
    PLAIN,
    Model,
    model_of,
    models,
    random_parameters,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)


def tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def step(model: Model, *parts: tuple[Array, Array], compiled: bool | None = None) -> Parameters:
    """One iteration on parts of rows and weights whose counts are added."""
    program = CircuitProgram(model[0])
    program.compiled = program.compiled if compiled is None else compiled
    packed = program.pack(model[1])
    counts = [program.counts(tensor(x), packed, tensor(w)) for x, w in parts]
    total = counts[0]
    for more in counts[1:]:
        total = total.add(more)
    return program.unpack(program.maximise(total, packed, PLAIN))


def same(one: Parameters, other: Parameters, tolerance: float = 1e-9) -> None:
    assert one.values.keys() == other.values.keys()
    for name, arrays in one.values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(
                array, other[name][key], rtol=tolerance, atol=tolerance, err_msg=f"{name}/{key}"
            )


# ---------------------------------------------------------------------- one step


def expected_weights(model: Model, found: dict[tuple[str, int, int], Array], node: Sum) -> Array:
    """Normalised expected counts; the old weights where a unit is never reached."""
    weight = model[1][node.name]["weight"]
    counts = np.zeros(weight.shape)
    for (name, unit, i), posterior in found.items():
        if name == node.name:
            counts[unit, i] = posterior.sum()
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), weight)


def check_leaf(leaf: Leaf, learned: Parameters, schema: Schema, share: Array, x: Array) -> None:
    """share (rows,) is the posterior of the leaf's first unit."""
    column = x[:, schema.index(leaf.scope[0])]
    seen = ~np.isnan(column)
    share, column = share[seen], column[seen]
    if share.sum() < 1e-9:
        return
    share = share / share.sum()
    own = {n: a[0, 0] for n, a in learned[leaf.name].items()}
    if leaf.family == "gaussian":
        mean = share @ column
        assert own["mean"] == pytest.approx(mean, rel=1e-7, abs=1e-7)
        variance = share @ np.square(column - mean)
        assert variance < 1e-3 or own["variance"] == pytest.approx(variance, rel=1e-6)
    elif leaf.family == "categorical":
        codes = np.arange(len(own["probability"]))
        frequencies = share @ (column[:, None] == codes)
        np.testing.assert_allclose(own["probability"], frequencies, atol=1e-9)
    elif leaf.family == "bernoulli":
        assert own["probability"] == pytest.approx(share @ column, abs=1e-9)


@settings(max_examples=40)
@given(models(big=("real",)), SEEDS, st.booleans())
def test_a_step_follows_the_posteriors_of_induced_trees(
    model: Model, seed: int, compiled: bool
) -> None:
    """Nodes have several parents here, rows have gaps and weights, and come in two parts."""
    circuit, parameters = model
    assume(count_trees(circuit, parameters) <= 2000)
    rng = np.random.default_rng(seed)
    x = random_rows(circuit.schema, rng, 25, 0.3)
    weight = rng.uniform(0.1, 3.0, len(x))
    found = expected(circuit, parameters, x, weight)
    compiled = compiled and CircuitProgram(circuit).compiled
    parts = ((x[:10], weight[:10]), (x[10:], weight[10:]))
    learned = step(model, *parts, compiled=compiled)
    for node in circuit.nodes:
        if isinstance(node, Sum):
            weights = expected_weights(model, found, node)
            np.testing.assert_allclose(learned[node.name]["weight"], weights, atol=1e-9)
        elif isinstance(node, Leaf) and (node.name, 0, 0) in found:
            check_leaf(node, learned, circuit.schema, found[node.name, 0, 0], x)


@settings(max_examples=30)
@given(models(), SEEDS)
def test_counts_are_additive_and_weights_repeat_rows(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = random_rows(model[0].schema, rng, 30, 0.3)
    times = rng.integers(0, 4, len(x))
    repeated = np.repeat(x, times, axis=0)
    whole = step(model, (repeated, np.ones(len(repeated))))
    same(step(model, (x, times.astype(np.float64))), whole, 1e-8)
    ones = np.ones(len(repeated))
    cuts = sorted(int(c) for c in rng.integers(0, len(repeated) + 1, 2))
    parts = zip(np.split(repeated, cuts), np.split(ones, cuts), strict=True)
    same(step(model, *parts), whole, 1e-8)


def test_a_party_without_rows_adds_nothing() -> None:
    model = model_of("random", schema_of(("boolean", "real", "category")), 5)
    x = random_rows(model[0].schema, np.random.default_rng(0), 20)
    nothing = (np.empty((0, 3)), np.empty(0))
    same(step(model, (x, np.ones(20)), nothing), step(model, (x, np.ones(20))))
    same(step(model, nothing), model[1], 1e-12)


# ---------------------------------------------------------------------- many steps


@settings(max_examples=40)
@given(models(big=("real", "count")), SEEDS)
def test_the_likelihood_never_falls(model: Model, seed: int) -> None:
    """With missing values and weights, from a start that can explain all rows."""
    circuit, start = model[0], model[1]
    rng = np.random.default_rng(seed)
    x = random_rows(circuit.schema, rng, 40, 0.2)
    x = x[np.isfinite(Distribution(circuit, start).log_likelihood(x))]
    assume(len(x) > 3)
    weight = rng.uniform(0.1, 3.0, len(x))
    plan = EMSchedule(epochs=8, tolerance=-np.inf)
    found = maximise_likelihood(circuit, start, x, weight=weight, schedule=plan, rules=PLAIN)
    assert len(found.history) == 9 and not found.converged
    assert np.diff(found.history).min() > -1e-7
    found.parameters.check(circuit)
    logs = Distribution(circuit, found.parameters).log_likelihood(x)
    assert found.history[-1] == pytest.approx(float(np.average(logs, weights=weight)), rel=1e-9)


def test_it_stops_when_little_is_gained() -> None:
    circuit, start = model_of("mixture", schema_of(("real", "category")), 1)
    x = random_rows(circuit.schema, np.random.default_rng(0), 200, 0.1)
    x = x[np.isfinite(Distribution(circuit, start).log_likelihood(x))]
    found = maximise_likelihood(circuit, start, x, schedule=EMSchedule(epochs=500, tolerance=1e-5))
    assert found.converged and 2 < len(found.history) < 500
    assert found.history[-1] - found.history[-2] < 1e-5
    assert min(np.diff(found.history)[:-1]) >= 1e-5


def test_impossible_rows_do_not_stop_it() -> None:
    """A row that the start cannot explain teaches nothing and hides no gain of the others."""
    schema = schema_of(("real",))
    circuit = Circuit((Leaf("a", "exponential", schema.names, 2), Sum("root", ("a",))), schema)
    rate = {"rate": np.array([[1.0], [3.0]])}
    start = Parameters({"a": rate, "root": {"weight": np.array([[0.5, 0.5]])}})
    x = np.random.default_rng(0).exponential(size=(50, 1))
    alone = maximise_likelihood(
        circuit, start, x, schedule=EMSchedule(epochs=20, tolerance=-np.inf)
    )
    more = np.vstack([x, [[-1.0]]])
    found = maximise_likelihood(circuit, start, more, schedule=EMSchedule(epochs=20))
    assert len(found.history) == 21 and np.isneginf(found.history[0])
    same(found.parameters, alone.parameters)


# ---------------------------------------------------------------------- starts


@pytest.mark.parametrize("structure", ["mixture", "random_binary", "latent_tree", "random"])
def test_starts_are_sound_and_learn(structure: str) -> None:
    schema = schema_of(("real", "boolean", "category", "count"))
    rng = np.random.default_rng(0)
    circuit, truth = model_of(structure, schema, 11)
    x = Distribution(circuit, truth).sample(np.full((300, 4), np.nan), rng)
    x[rng.random(x.shape) < 0.1] = np.nan
    start = start_from(circuit, x, clusters(x, schema, 3, rng), rng)
    start.check(circuit)
    found = maximise_likelihood(circuit, start, x, schedule=EMSchedule(epochs=10))
    found.parameters.check(circuit)
    assert found.history[-1] > found.history[0]


def test_a_column_that_is_never_seen_keeps_a_distribution() -> None:
    schema = schema_of(("real", "boolean", "category", "count"))
    circuit, _ = model_of("mixture", schema, 0)
    rng = np.random.default_rng(0)
    x = random_rows(schema, rng, 50, 0.0)
    x[:, 2] = np.nan
    start = start_from(circuit, x, clusters(x, schema, 3, rng), rng)
    start.check(circuit)
    found = maximise_likelihood(circuit, start, x, schedule=EMSchedule(epochs=3)).parameters
    found.check(circuit)
    asked = np.full((3, 4), np.nan)
    asked[:, 2] = np.arange(3)
    total = np.exp(Distribution(circuit, found).log_likelihood(asked)).sum()
    assert total == pytest.approx(1.0)


def test_other_parameters_than_the_start_are_not_needed() -> None:
    """The M-step keeps what nothing was counted for: units that no row reaches."""
    schema = schema_of(("boolean",))
    circuit = Circuit((Leaf("a", "categorical", schema.names, 2), Sum("root", ("a",))), schema)
    parameters = random_parameters(circuit, np.random.default_rng(3))
    never = Parameters({**parameters.values, "root": {"weight": np.array([[1.0, 0.0]])}})
    learned = step((circuit, never), (np.array([[1.0], [0.0]]), np.ones(2)))
    np.testing.assert_allclose(learned["root"]["weight"], [[1.0, 0.0]])
    np.testing.assert_allclose(learned["a"]["probability"][1], never["a"]["probability"][1])


def test_what_cannot_be_learned_is_refused() -> None:
    schema = schema_of(("real",))
    leaf = {"mean": np.zeros((2, 1)), "variance": np.ones((2, 1))}
    several = Circuit((Leaf("a", "gaussian", schema.names, 2),), schema)
    with pytest.raises(StructureError, match="one unit"):
        maximise_likelihood(several, Parameters({"a": leaf}), np.zeros((3, 1)))
    one = Circuit((*several.nodes, Sum("root", ("a",))), schema)
    start = Parameters({"a": leaf, "root": {"weight": np.array([[0.5, 0.5]])}})
    for x, weight in ((np.empty((0, 1)), None), (np.zeros((2, 1)), np.zeros(2))):
        with pytest.raises(TableError, match="rows"):
            maximise_likelihood(one, start, x, weight=weight)


@given(models(), SEEDS)
@settings(max_examples=20)
def test_counts_as_one_vector(model: Model, seed: int) -> None:
    """What parties add up: vectors add like counts, and lead to the same parameters."""
    rng = np.random.default_rng(seed)
    program = CircuitProgram(model[0])
    packed = program.pack(model[1])
    one, other = (
        program.counts(tensor(random_rows(model[0].schema, rng, n)), packed) for n in (7, 5)
    )
    total = one.flat() + other.flat()
    np.testing.assert_array_equal(one.add(other).flat(), total)
    np.testing.assert_array_equal(one.like(total).flat(), total)
    direct = program.unpack(program.maximise(one.add(other), packed, PLAIN))
    assert program.unpack(program.maximise(other.like(total), packed, PLAIN)) == direct


def test_threads_share_a_large_m_step_with_the_same_result() -> None:
    rng, threads = np.random.default_rng(0), torch.get_num_threads()
    schema = Schema.real([f"x{i}" for i in range(16)])
    circuit = random_binary(schema, depth=3, repetitions=6, units=32, rng=rng)
    program = CircuitProgram(circuit)
    packed = program.pack(random_parameters(circuit, rng))
    x, found = tensor(rng.normal(size=(128, 16))), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            counts = program.counts(x, packed)
            assert counts.many
            found.append(program.unpack(program.maximise(counts, packed)))
    finally:
        torch.set_num_threads(threads)
    same(*found)

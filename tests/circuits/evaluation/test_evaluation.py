"""The evaluator at its edges: both executors, both precisions, far values, any number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.evaluation.layout import Limits
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import probability
from tests.circuits.strategies import (
    FAMILIES,
    Model,
    model_of,
    models,
    random_parameters,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)
NAN = np.nan


def tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def log_values(program: CircuitProgram, parameters: Parameters, x: Array) -> Array:
    return program.log_values(tensor(x), program.pack(parameters)).double().numpy()


def mixture(family: str, weight: list[float], **parameters: list[float]) -> Model:
    """A sum over the units of one leaf of one variable."""
    kind = "boolean" if family in FAMILIES["boolean"] else "real"
    schema = Schema((Variable("x", kind),))  # type: ignore[arg-type]
    circuit = Circuit((Leaf("a", family, ("x",), len(weight)), Sum("root", ("a",))), schema)
    own = {n: np.array(v)[:, None] for n, v in parameters.items()}
    return circuit, Parameters({"a": own, "root": {"weight": np.array([weight])}})


# ---------------------------------------------------------------------- executors


@settings(max_examples=40)
@given(models(), SEEDS)
def test_executors_agree(model: Model, seed: int) -> None:
    """The compiled loop and the batched steps: the same log-values, the same M-step."""
    circuit, parameters = model
    program = CircuitProgram(circuit)
    if not program.compiled:
        return
    x = random_rows(circuit.schema, np.random.default_rng(seed), 70)
    weight = torch.from_numpy(np.random.default_rng(seed).uniform(0.1, 2.0, 70))
    results = []
    for compiled in (True, False):
        program.compiled = compiled
        packed = program.pack(parameters)
        counts = program.counts(tensor(x), packed, weight)
        learned = program.unpack(program.maximise(counts, packed))
        results.append((program.log_values(tensor(x), packed).numpy(), counts, learned))
    (logs, counts, learned), (same_logs, same_counts, same_learned) = results
    np.testing.assert_allclose(logs, same_logs, rtol=1e-10, atol=1e-10)
    assert counts.weight == pytest.approx(same_counts.weight, rel=1e-12)
    assert counts.log_likelihood == pytest.approx(same_counts.log_likelihood, rel=1e-10)
    for name, arrays in learned.values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(array, same_learned[name][key], rtol=1e-8, atol=1e-10)


@settings(max_examples=40)
@given(models(big=("real", "count")), SEEDS)
def test_single_precision_is_close(model: Model, seed: int) -> None:
    """Within 1e-5 of log p, relative or absolute, on both executors."""
    x = random_rows(model[0].schema, np.random.default_rng(seed), 40)
    exact = log_values(CircuitProgram(model[0]), model[1], x)
    single = CircuitProgram(model[0], torch.float32)
    for compiled in {single.compiled, False}:
        single.compiled = compiled
        found = log_values(single, model[1], x)
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_single_precision_learns_in_single_precision(compiled: bool) -> None:
    """An M-step leaves everything in the type of the program, so that evaluation goes on."""
    model = mixture("gaussian", [0.3, 0.7], mean=[-1.0, 2.0], variance=[1.0, 2.0])
    x = tensor(np.random.default_rng(0).normal(size=(50, 1)))
    program = CircuitProgram(model[0], torch.float32)
    program.compiled = compiled
    packed = program.pack(model[1])
    packed = program.maximise(program.counts(x, packed), packed)
    program.compiled = False
    again = CircuitProgram(model[0])
    assert program.log_values(x, packed).dtype == torch.float32
    found = program.log_values(x, packed).double().numpy()
    np.testing.assert_allclose(
        found, log_values(again, program.unpack(packed), x.numpy()), rtol=1e-5
    )


@pytest.mark.parametrize("structure", ["random", "mixture", "random_binary", "poon_domingos"])
def test_chunks_and_sparse_operands_change_nothing(structure: str) -> None:
    """What large circuits need: a few folds at a time, no coefficient matrix written out."""
    circuit, parameters = model_of(structure, schema_of(("real", "boolean", "real", "category")), 8)
    x = tensor(random_rows(circuit.schema, np.random.default_rng(0), 70, 0.3))
    results = []
    for limits in (Limits(), Limits(dense=0, cache=1)):
        program = CircuitProgram(circuit, limits=limits)
        program.compiled = False
        packed = program.pack(parameters)
        learned = program.unpack(program.maximise(program.counts(x, packed), packed))
        best = program.complete(x, packed, None)[0]
        results.append((program.log_values(x, packed).numpy(), best, learned))
    (logs, best, learned), (same_logs, same_best, same_learned) = results
    np.testing.assert_allclose(logs, same_logs, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(best, same_best)
    for name, arrays in learned.values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(array, same_learned[name][key], rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------- sums that underflow


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_weight_on_the_largest_child(compiled: bool, dtype: torch.dtype) -> None:
    """At x = 0 the first unit is about 1000 nats above the others, and has weight zero."""
    spread = {"mean": [0.0, 45.0, 46.0], "variance": [1.0, 1.0, 1.0]}
    model = mixture("gaussian", [0.0, 0.5, 0.5], **spread)
    program = CircuitProgram(model[0], dtype)
    program.compiled = compiled
    x = np.array([[0.0], [NAN], [45.5]])
    near = 0.5 * 45.0**2 + 0.5 * np.log(2 * np.pi) + np.log(2)  # the other is 45.5 nats below
    sharp = -0.125 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(
        log_values(program, model[1], x), [-near, 0.0, sharp], rtol=1e-5, atol=1e-6
    )
    packed = program.pack(model[1])
    learned = program.unpack(program.maximise(program.counts(tensor(x[:1]), packed), packed))
    np.testing.assert_allclose(learned["root"]["weight"], [[0, 1, np.exp(-45.5)]], rtol=1e-2)


@pytest.mark.parametrize("compiled", [True, False])
def test_tiny_weights_count_in_full(compiled: bool) -> None:
    """A component of weight 1e-60 that alone explains one row of two has half of all counts."""
    model = mixture("gaussian", [1.0 - 1e-60, 1e-60], mean=[0.0, 100.0], variance=[1.0, 1.0])
    program = CircuitProgram(model[0])
    program.compiled = compiled
    packed, x = program.pack(model[1]), tensor(np.array([[0.0], [100.0]]))
    logs = program.log_values(x, packed).numpy() + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(logs, [0.0, -60 * np.log(10)], atol=1e-12)
    learned = program.unpack(program.maximise(program.counts(x, packed), packed))
    np.testing.assert_allclose(learned["root"]["weight"], [[0.5, 0.5]], rtol=1e-9)


def test_zero_weight_under_outer_products() -> None:
    schema = Schema.real(2)
    nodes: tuple[Node, ...] = (
        Leaf("a", "gaussian", ("x0",), 2),
        Leaf("b", "gaussian", ("x1",), 2),
        Product("p", ("a", "b"), outer=True),
        Sum("root", ("p",)),
    )
    far = {"mean": np.array([[0.0], [40.0]]), "variance": np.ones((2, 1))}
    weight = np.array([[0.0, 0.0, 0.0, 1.0]])
    found = Distribution(
        Circuit(nodes, schema), Parameters({"a": far, "b": far, "root": {"weight": weight}})
    )
    expected = -(40.0**2) - np.log(2 * np.pi)
    assert found.log_likelihood(np.zeros((1, 2)))[0] == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("many", range(1, 8))
def test_impossible_partitions_beside_a_possible_one(dtype: torch.dtype, many: int) -> None:
    """log 0 is finite inside, and its multiples round: no sum of them may come out above 0."""
    schema = schema_of(("category",) * (2 * many))
    left, right = schema.names[:many], schema.names[many:]
    nodes: list[Node] = []
    for i in range(3):
        nodes.append(Leaf(f"l{i}", "categorical", left, 2))
        nodes.append(Leaf(f"r{i}", "categorical", right, 2))
        nodes.append(Product(f"p{i}", (f"l{i}", f"r{i}"), outer=True))
    nodes += [Sum("none", ("p0", "p1")), Sum("some", ("p2",)), Sum("root", ("none", "some"))]
    circuit = Circuit(tuple(nodes), schema)
    found = dict(random_parameters(circuit, np.random.default_rng(many)).values)
    for i in range(3):
        for side in "lr":  # code 0 is impossible for two of three, in all or in all but one place
            table = np.full((2, many, 3), 1 / 3)
            table[:, int(side == "r" and i == 1) :] = [0.0, 0.5, 0.5] if i < 2 else [0.2, 0.3, 0.5]
            found[f"{side}{i}"] = {"probability": table}
    found["root"] = {"weight": np.array([[0.25, 0.75]])}
    logs = log_values(CircuitProgram(circuit, dtype), Parameters(found), np.zeros((2, 2 * many)))
    np.testing.assert_allclose(logs, np.log(0.75) + 2 * many * np.log(0.2), rtol=1e-5)


# ---------------------------------------------------------------------- far values


@pytest.mark.parametrize("family", FAMILIES["real"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("compiled", [True, False])
def test_far_values_are_never_nan(family: str, dtype: torch.dtype, compiled: bool) -> None:
    """Huge and tiny values beside ordinary ones, below a sum and a product."""
    rng = np.random.default_rng(0)
    schema = schema_of(("real", "real"))
    nodes = (
        Leaf("a", family, ("real0",), 2),
        Leaf("b", "gaussian", ("real1",), 2),
        Product("p", ("a", "b")),
        Sum("root", ("p",)),
    )
    circuit = Circuit(nodes, schema)
    program = CircuitProgram(circuit, dtype)
    program.compiled = compiled
    parameters = random_parameters(circuit, rng)
    packed = program.pack(parameters)
    far = [1e20, -1e20, 1e-300, -1e-300, 1e200, -1e200, 0.0, 1.7e308]
    x = np.array([*([v, 0.5] for v in far), *([0.5, v] for v in far), [0.5, 0.5]])
    logs = program.log_values(tensor(x), packed).double().numpy()
    with np.errstate(all="ignore"):
        expected = np.log(probability(circuit, parameters, x))
    size = np.abs(x)
    normal = (size.max(axis=1) < 10) & ((size == 0) | (size > 1e-30)).all(axis=1)
    normal &= np.isfinite(expected)
    assert not np.isnan(logs).any() and (logs < 10).all()
    np.testing.assert_allclose(logs[normal], expected[normal], rtol=1e-5)
    counts = program.counts(tensor(x), packed)
    for found in counts.steps:
        if isinstance(found, LeafCounts):
            assert torch.isfinite(found.sums).all() and torch.isfinite(found.count).all()
        elif isinstance(found, torch.Tensor):
            assert torch.isfinite(found).all()
    learned = program.unpack(program.maximise(counts, packed))
    assert all(np.isfinite(a).all() for arrays in learned.values.values() for a in arrays.values())


@pytest.mark.parametrize("compiled", [True, False])
def test_impossible_rows_are_minus_infinity_and_teach_nothing(compiled: bool) -> None:
    circuit, parameters = mixture("exponential", [0.4, 0.6], rate=[1.0, 3.0])
    program = CircuitProgram(circuit)
    program.compiled = compiled
    packed = program.pack(parameters)
    possible = np.array([[0.5], [2.0], [NAN]])
    x = np.array([[0.5], [-1.0], [2.0], [-7.0], [NAN]])
    assert np.isneginf(log_values(program, parameters, x)[[1, 3]]).all()
    both = [program.counts(tensor(rows), packed) for rows in (x, possible)]
    assert np.isneginf(both[0].log_likelihood) and both[0].weight == 5
    learned = [program.unpack(program.maximise(c, packed)) for c in both]
    np.testing.assert_allclose(learned[0]["root"]["weight"], learned[1]["root"]["weight"])
    np.testing.assert_allclose(learned[0]["a"]["rate"], learned[1]["a"]["rate"])
    weighted = program.counts(tensor(x), packed, tensor(np.array([1.0, 0.0, 1.0, 0.0, 1.0])))
    assert weighted.log_likelihood == pytest.approx(both[1].log_likelihood)


def test_offsets_stay_exact_in_single_precision() -> None:
    """Gaussians around 1e6 are evaluated in frames around their own centre."""
    rng = np.random.default_rng(0)
    means = [1e6 - 2, 1e6, 1e6 + 3]
    model = mixture("gaussian", [0.2, 0.5, 0.3], mean=means, variance=[1.0, 0.25, 4.0])
    x = 1e6 + rng.normal(size=(200, 1))
    single = log_values(CircuitProgram(model[0], torch.float32), model[1], x)
    np.testing.assert_allclose(single, log_values(CircuitProgram(model[0]), model[1], x), atol=1e-5)


# ---------------------------------------------------------------------- batches and threads


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("structure", ["random_binary", "mixture"])
def test_any_number_of_rows_in_any_split_on_any_threads(structure: str) -> None:
    circuit, parameters = model_of(structure, schema_of(("real", "boolean", "real", "category")), 4)
    x = random_rows(circuit.schema, np.random.default_rng(0), 5000, 0.2)
    with threads(1):
        whole = Distribution(circuit, parameters).log_likelihood(x)
    possible = np.isfinite(whole)
    with np.errstate(divide="ignore"):
        expected = np.log(probability(circuit, parameters, x))
    np.testing.assert_allclose(whole, expected, rtol=1e-9, atol=1e-12)
    assert possible.any()
    for number in (1, 2):
        with threads(number):
            found = Distribution(circuit, parameters)
            for rows in (0, 1, 63, 64, 65, 5000):
                np.testing.assert_allclose(found.log_likelihood(x[:rows]), whole[:rows], atol=1e-12)
            parts = [found.log_likelihood(part) for part in np.array_split(x, 7)]
            np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-12)


def test_draws_do_not_depend_on_threads() -> None:
    model = model_of("random_binary", schema_of(("real", "boolean", "real", "category")), 4)
    x = np.full((300, 4), NAN)
    drawn = []
    for number in (1, 2):
        with threads(number):
            drawn.append(Distribution(*model).sample(x, np.random.default_rng(1)))
    np.testing.assert_array_equal(drawn[0], drawn[1])

"""The evaluator at its edges: both executors, both precisions, far values, any number of rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits.leaves  # noqa: F401
from fedcircuits.circuits.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.distribution import Distribution
from fedcircuits.circuits.evaluation.leaves import LeafCounts
from fedcircuits.circuits.evaluation.program import Program
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.nodes import Leaf, Node, Product, Sum
from fedcircuits.circuits.parameters import Parameters, inline
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.errors import ParameterError
from tests.circuits.reference import probability, values
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


def log_values(program: Program, parameters: Parameters, x: Array) -> Array:
    return program.log_values(tensor(x), program.pack(parameters)).double().numpy()


def mixture(family: str, weight: list[float], **parameters: list[float]) -> Model:
    """A sum over the units of one leaf of one variable."""
    kind = "boolean" if family in FAMILIES["boolean"] else "real"
    schema = Schema((Variable("x", kind),))  # type: ignore[arg-type]
    circuit = Circuit((Leaf("a", family, ("x",), len(weight)), Sum("root", ("a",))), schema)
    own = {n: np.array(v)[:, None] for n, v in parameters.items()}
    return circuit, Parameters({"a": own, "root": {"weight": np.array([weight])}})


# ---------------------------------------------------------------------- executors


@settings(max_examples=60)
@given(models(), SEEDS)
def test_executors_agree(model: Model, seed: int) -> None:
    """The compiled loop and the batched steps: the same log-values, the same M-step."""
    circuit, parameters = model
    program = Program(circuit)
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
    exact = log_values(Program(model[0]), model[1], x)
    single = Program(model[0], torch.float32)
    for compiled in {single.compiled, False}:
        single.compiled = compiled
        found = log_values(single, model[1], x)
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_single_precision_learns_in_single_precision(compiled: bool) -> None:
    """An M-step leaves everything in the type of the program, so that evaluation goes on."""
    model = mixture("gaussian", [0.3, 0.7], mean=[-1.0, 2.0], variance=[1.0, 2.0])
    x = tensor(np.random.default_rng(0).normal(size=(50, 1)))
    program = Program(model[0], torch.float32)
    program.compiled = compiled
    packed = program.pack(model[1])
    packed = program.maximise(program.counts(x, packed), packed)
    program.compiled = False
    again = Program(model[0])
    assert program.log_values(x, packed).dtype == torch.float32
    found = program.log_values(x, packed).double().numpy()
    np.testing.assert_allclose(found, log_values(again, program.unpack(packed), x.numpy()), rtol=1e-5)


# ---------------------------------------------------------------------- sums that underflow


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_weight_on_the_largest_child(compiled: bool, dtype: torch.dtype) -> None:
    """At x = 0 the first unit is about 1000 nats above the others, and has weight zero."""
    spread = {"mean": [0.0, 45.0, 46.0], "variance": [1.0, 1.0, 1.0]}
    model = mixture("gaussian", [0.0, 0.5, 0.5], **spread)
    program = Program(model[0], dtype)
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
    program = Program(model[0])
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
    program = Program(circuit, dtype)
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
    program = Program(circuit)
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
    single = log_values(Program(model[0], torch.float32), model[1], x)
    np.testing.assert_allclose(single, log_values(Program(model[0]), model[1], x), atol=1e-5)


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
    np.testing.assert_array_equal(*drawn)


# ---------------------------------------------------------------------- size and depth


def test_many_children() -> None:
    rng = np.random.default_rng(0)
    weight = rng.dirichlet(np.ones(200))
    means, variances = rng.normal(size=200) * 5, rng.uniform(0.1, 2.0, 200)
    schema = Schema.real(1)
    leaves = tuple(Leaf(f"l{i}", "gaussian", ("x0",)) for i in range(200))
    circuit = Circuit((*leaves, Sum("root", tuple(n.name for n in leaves))), schema)
    own = {
        f"l{i}": {"mean": np.array([[m]]), "variance": np.array([[v]])}
        for i, (m, v) in enumerate(zip(means, variances, strict=True))
    }
    parameters = Parameters({**own, "root": {"weight": weight[None]}})
    x = rng.normal(size=(50, 1)) * 5
    found = Distribution(circuit, parameters).log_likelihood(x)
    np.testing.assert_allclose(found, np.log(probability(circuit, parameters, x)), rtol=1e-10)


def test_wide_product() -> None:
    schema = schema_of(("boolean",) * 200)
    leaves = tuple(Leaf(f"l{i}", "categorical", (n,), 2) for i, n in enumerate(schema.names))
    product = Product("p", tuple(n.name for n in leaves))
    circuit = Circuit((*leaves, product, Sum("root", ("p",))), schema)
    parameters = random_parameters(circuit, np.random.default_rng(2))
    x = random_rows(schema, np.random.default_rng(0), 20, 0.9)
    with np.errstate(divide="ignore"):
        expected = np.log(probability(circuit, parameters, x))
    np.testing.assert_allclose(
        Distribution(circuit, parameters).log_likelihood(x), expected, rtol=1e-10
    )


def test_deep_chains_need_no_recursion() -> None:
    """2,000 sums and products on top of each other."""
    depth = 1000
    schema = schema_of(("boolean",) * (depth + 1))
    nodes: list[Node] = [Leaf("s0", "bernoulli", (schema.names[0],))]
    for i in range(1, depth + 1):
        nodes.append(Leaf(f"l{i}", "bernoulli", (schema.names[i],)))
        nodes.append(Product(f"p{i}", (f"s{i - 1}", f"l{i}")))
        nodes.append(Sum(f"s{i}", (f"p{i}",)))
    circuit = Circuit(tuple(nodes), schema)
    parameters = random_parameters(circuit, np.random.default_rng(0))
    found = Distribution(circuit, parameters)
    x = random_rows(schema, np.random.default_rng(1), 3, 0.7)
    expected = values(circuit, parameters, x)["s1000"][0]
    np.testing.assert_allclose(found.log_likelihood(x), np.log(expected), rtol=1e-10)
    assert not np.isnan(found.sample(x, np.random.default_rng(0))).any()
    assert not np.isnan(found.mpe(x).values).any() and found.deterministic


MEMORY = """
import resource, sys
import numpy as np
import fedcircuits.leaves
from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.distribution import Distribution
from fedcircuits.circuits.nodes import Leaf, Product, Sum
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.schema import Schema

rng = np.random.default_rng(0)
schema = Schema.real(4)
nodes, values, level = [], {}, []
for i in range(16_384):
    for v in range(4):
        nodes.append(Leaf(f"l{i}.{v}", "gaussian", (f"x{v}",)))
        values[f"l{i}.{v}"] = {"mean": rng.normal(size=(1, 1)), "variance": np.ones((1, 1))}
    nodes.append(Product(f"p{i}", tuple(f"l{i}.{v}" for v in range(4))))
    level.append(f"p{i}")
while len(level) > 1:
    above = []
    for i in range(0, len(level), 2):
        name = f"s{len(nodes)}"
        nodes.append(Sum(name, (level[i], level[i + 1])))
        values[name] = {"weight": np.array([[0.5, 0.5]])}
        above.append(name)
    level = above
model = Distribution(Circuit(tuple(nodes), schema), Parameters(values))
x = rng.normal(size=(10_000, 4))
model.log_likelihood(x[:70])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = model.log_likelihood(x)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.isfinite(found).all()
print(len(nodes), (after - before) / 1024)
"""


def test_a_large_tree_needs_little_memory() -> None:
    """About 100,000 nodes, 10,000 rows: under 100 MB more than a few rows need."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    nodes, megabytes = done.stdout.split()
    assert int(nodes) > 98_000 and float(megabytes) < 100


# ---------------------------------------------------------------------- graphs


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

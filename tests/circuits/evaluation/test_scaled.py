"""The executor of plain numbers and powers of two, against the one in log space."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.evaluation.scaled import ScaledProgram, can_scale
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from tests.circuits.reference import log_probability
from tests.circuits.strategies import Model, models, random_rows

SEEDS = st.integers(0, 2**32 - 1)
CLOSE = {torch.float64: 1e-9, torch.float32: 2e-4}


def both(circuit: fc.Circuit, dtype: torch.dtype = torch.float64) -> list[CircuitProgram]:
    """Programs that take the one way and the other."""
    programs = [CircuitProgram(circuit, dtype) for _ in range(2)]
    for program in programs:
        program.compiled = False
        program.scaled = None
    programs[0].scaled = ScaledProgram(programs[0])
    return programs


def agree(model: Model, x: Array, dtype: torch.dtype, weight: Array | None = None) -> None:
    """Log-values, counts of EM and the gradient."""
    rows, results = torch.from_numpy(x), []
    weights = None if weight is None else torch.from_numpy(weight)
    for program in both(model[0], dtype):
        packed = program.pack(model[1])
        logs = program.log_values(rows, packed)
        counts = program.counts(rows, packed, weights)
        learned = program.unpack(program.maximise(counts, packed))
        module = Differentiable(program, model[1])
        module(rows).sum().backward()
        slopes = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        results.append((logs, counts, learned, slopes))
    (logs, counts, learned, slopes), (same_logs, same_counts, same, same_slopes) = results
    near = CLOSE[dtype]
    torch.testing.assert_close(logs, same_logs, rtol=near, atol=near)
    assert counts.log_likelihood == pytest.approx(same_counts.log_likelihood, rel=near, abs=near)
    np.testing.assert_allclose(counts.flat(), same_counts.flat(), rtol=50 * near, atol=50 * near)
    for name, slope in slopes.items():
        torch.testing.assert_close(slope, same_slopes[name], rtol=50 * near, atol=50 * near)
    if dtype == torch.float64:
        for name, arrays in learned.values.items():
            for key, array in arrays.items():
                np.testing.assert_allclose(array, same[name][key], rtol=1e-6, atol=1e-8)


@settings(max_examples=40)
@given(models(), SEEDS)
def test_any_circuit_without_outer_products(model: Model, seed: int) -> None:
    """Rows with gaps and weights, nodes with several parents."""
    if not can_scale(CircuitProgram(model[0])):
        return
    rng = np.random.default_rng(seed)
    x = random_rows(model[0].schema, rng, 40)
    agree(model, x, torch.float64, rng.uniform(0.1, 2.0, len(x)))


def images(units: int) -> tuple[Model, Array]:
    """A quad graph of 4 × 4 pixels of 20 levels, which are looked up."""
    rng = np.random.default_rng(units)
    pixels = rng.integers(0, 20, (70, 4, 4)).astype(np.uint8)
    schema = fc.Schema(tuple(fc.Variable(f"x{i}", "count", most=19) for i in range(16)))
    circuit = fc.structures.quad_graph(schema, height=4, width=4, units=units)
    values = {}
    for node in circuit.nodes:
        if isinstance(node, fc.Leaf):
            table = rng.dirichlet(np.ones(20), (node.units, 1))
            values[node.name] = {"probability": table}
        elif isinstance(node, fc.Sum):
            inputs = sum(circuit.units[child] for child in node.children)
            weight = rng.dirichlet(np.ones(inputs), node.units)
            values[node.name] = {"weight": weight}
    return (circuit, Parameters(values)), pixels.reshape(70, 16).astype(float)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("units", [4, 5, 11])
def test_tables_that_are_looked_up(units: int, gaps: bool, dtype: torch.dtype) -> None:
    model, x = images(units)
    if gaps:
        x[np.random.default_rng(0).random(x.shape) < 0.3] = np.nan
    assert CircuitProgram(model[0], dtype).scaled is not None  # it is the default
    agree(model, x, dtype)


def test_values_that_are_no_level_are_impossible() -> None:
    model, x = images(4)
    x[3, 5], x[7, 0] = 40.0, 2.5
    for program in both(model[0]):
        logs = program.log_values(torch.from_numpy(x), program.pack(model[1])).numpy()
        assert list(np.flatnonzero(np.isneginf(logs))) == [3, 7]


def apart(distance: float, levels: int) -> Model:
    """Units whose centres lie far apart, and sums that read only the one which is far away."""
    names = [f"x{i}" for i in range(levels)]
    nodes: list[fc.Leaf | fc.Sum | fc.Product] = [fc.Leaf("a0", "gaussian", ("x0",), 4)]
    centre = distance * np.arange(4.0)[:, None]
    values = {"a0": {"mean": centre, "variance": np.ones((4, 1))}}
    last = "a0"
    for i in range(1, levels):
        nodes += [fc.Leaf(f"a{i}", "gaussian", (f"x{i}",), 4), fc.Sum(f"s{i}", (last,), 4)]
        nodes.append(fc.Product(f"p{i}", (f"s{i}", f"a{i}")))
        values[f"a{i}"] = {"mean": centre[::-1].copy(), "variance": np.ones((4, 1))}
        values[f"s{i}"] = {"weight": np.roll(np.eye(4), i, axis=0)}
        last = f"p{i}"
    nodes.append(fc.Sum("root", (last,)))
    values["root"] = {"weight": np.array([[0.0, 0.0, 0.0, 1.0]])}
    return fc.Circuit(tuple(nodes), fc.Schema.real(names)), Parameters(values)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("distance", [1.0, 8.0, 15.0, 40.0, 300.0])
def test_what_plain_numbers_cannot_hold(distance: float, dtype: torch.dtype) -> None:
    """A row of data that is lost among plain numbers is worth what log space says."""
    model = apart(distance, 5)
    x = distance * np.random.default_rng(1).integers(0, 4, (60, 5)).astype(float)
    expected = log_probability(*model, x)
    program = both(model[0], dtype)[0]
    packed = program.pack(model[1])
    logs = program.log_values(torch.from_numpy(x), packed).double().numpy()
    np.testing.assert_allclose(logs, expected, rtol=CLOSE[dtype] / 10, atol=CLOSE[dtype])
    assert program.scaled is not None
    room = torch.empty(program.layout.rows, len(x), dtype=dtype)
    lost = program.scaled.upward(program.read(torch.from_numpy(x), packed), packed, room).lost
    assert distance in (8.0, 15.0) or lost.any() == (distance >= 40)


def twice_read() -> tuple[Model, Array]:
    """A sum whose products share a child, next to a product that two sums read."""
    rng = np.random.default_rng(5)
    names = ("x0", "x1", "x2")
    nodes: list[fc.Leaf | fc.Sum | fc.Product] = [
        fc.Leaf(name, "categorical", (f"x{v}",), 5)
        for name, v in (("a", 0), ("b", 1), ("c", 1), ("d", 2))
    ]
    nodes += [fc.Product("ab", ("a", "b")), fc.Product("ac", ("a", "c"))]
    nodes += [fc.Sum("s", ("ab", "ac"), 5), fc.Sum("t", ("ac",), 5)]
    nodes += [fc.Product("sd", ("s", "d")), fc.Product("td", ("t", "d"))]
    nodes.append(fc.Sum("root", ("sd", "td")))
    schema = fc.Schema(tuple(fc.Variable(name, "count", most=19) for name in names))
    circuit = fc.Circuit(tuple(nodes), schema)
    values = {}
    for node in circuit.nodes:
        if isinstance(node, fc.Leaf):
            values[node.name] = {"probability": rng.dirichlet(np.ones(20), (5, 1))}
        elif isinstance(node, fc.Sum):
            inputs = sum(circuit.units[child] for child in node.children)
            values[node.name] = {"weight": rng.dirichlet(np.ones(inputs), node.units)}
    return (circuit, Parameters(values)), rng.integers(0, 20, (40, 3)).astype(float)


@pytest.mark.parametrize("gaps", [False, True])
def test_children_that_are_read_several_times(gaps: bool) -> None:
    model, x = twice_read()
    if gaps:
        x[np.random.default_rng(0).random(x.shape) < 0.3] = np.nan
    agree(model, x, torch.float64)


def test_graphs_that_are_alive_at_the_same_time() -> None:
    """Each pass of a module has matrices of its own until its gradient is no longer needed."""
    model, x = images(5)
    rows = torch.from_numpy(x)
    module = Differentiable(CircuitProgram(model[0]), model[1])
    parameters = list(module.parameters())
    alone = [torch.autograd.grad(module(part).sum(), parameters) for part in (rows[:30], rows[30:])]
    first, second = module(rows[:30]).sum(), module(rows[30:]).sum()
    for _ in range(2):
        found = [torch.autograd.grad(s, parameters, retain_graph=True) for s in (first, second)]
        for ours, expected in zip(found, alone, strict=True):
            for a, b in zip(ours, expected, strict=True):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("levels", [2, 5])
def test_units_too_small_to_divide_by(levels: int) -> None:
    """They are read, and no row is lost on the way up: counts and gradients come from log space."""
    model = apart({2: 7.0, 5: 3.0}[levels], levels)
    x = model[1]["a0"]["mean"][np.random.default_rng(1).integers(0, 4, (60, levels)), 0]
    program = both(model[0], torch.float32)[0]
    packed = program.pack(model[1])
    assert program.scaled is not None
    room = torch.empty(program.layout.rows, len(x))
    lost = program.scaled.upward(program.read(torch.from_numpy(x), packed), packed, room).lost
    kept = x[lost == 0]
    assert len(kept)
    agree(model, kept, torch.float32)


def wide(columns: int) -> Model:
    """A product of as many sums as columns."""
    names = [f"x{i}" for i in range(columns)]
    nodes: list[fc.Leaf | fc.Sum | fc.Product] = []
    values = {}
    for name in names:
        nodes += [fc.Leaf(f"a{name}", "gaussian", (name,), 4), fc.Sum(f"s{name}", (f"a{name}",), 4)]
        values[f"a{name}"] = {"mean": np.zeros((4, 1)), "variance": np.ones((4, 1))}
        values[f"s{name}"] = {"weight": np.full((4, 4), 0.25)}
    nodes += [fc.Product("p", tuple(f"s{name}" for name in names)), fc.Sum("root", ("p",))]
    values["root"] = {"weight": np.full((1, 4), 0.25)}
    return fc.Circuit(tuple(nodes), fc.Schema.real(names)), Parameters(values)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("x", [0.55, 4500.0])
def test_products_of_many_children(x: float, dtype: torch.dtype) -> None:
    """Neither values, all near 2, nor powers of two, all far below 0, overflow."""
    model = wide(300)
    program = both(model[0], dtype)[0]
    packed = program.pack(model[1])
    rows = torch.full((2, 300), x, dtype=torch.float64)
    assert program.scaled is not None
    room = torch.empty(program.layout.rows, 2, dtype=dtype)
    lost = program.scaled.upward(program.read(rows, packed), packed, room).lost
    assert lost.all() == (x == 4500.0)
    expected = -150 * (np.log(2 * np.pi) + x * x)
    np.testing.assert_allclose(program.log_values(rows, packed), expected, rtol=1e-6)

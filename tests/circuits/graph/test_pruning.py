"""Pruned circuits are smaller and say the same."""

import numpy as np
import pytest

from fedcircuits import Circuit, CircuitModel, Leaf, Parameters, Product, Schema, Sum
from fedcircuits.circuits.graph.pruning import prune
from fedcircuits.circuits.graph.structures import random_binary
from fedcircuits.learning.spn.learn_spn import SPNSettings, learn_spn
from fedcircuits.learning.starts import clusters, start_from


def leaf(name: str, variable: str, mean: float) -> tuple[Leaf, dict[str, np.ndarray]]:
    return Leaf(name, "gaussian", (variable,)), {
        "mean": np.array([[mean]]),
        "variance": np.array([[1.0 + abs(mean)]]),
    }


def nested() -> tuple[Circuit, Parameters]:
    """A sum of a sum and a product of a product, with a child of weight 0 and a lone sum."""
    leaves = dict(leaf(f"{v}{i}", v, i - 1.0) for i in range(3) for v in "xyz")
    values = {node.name: arrays for node, arrays in leaves.items()}
    nodes = [
        *leaves,
        Sum("lone", ("z0",)),
        Product("xy0", ("x0", "y0")),
        Product("p0", ("xy0", "lone")),
        Product("p1", ("x1", "y1", "z1")),
        Product("p2", ("x2", "y2", "z2")),
        Sum("inner", ("p0", "p1")),
        Product("one", ("inner",)),
        Sum("root", ("one", "p2", "p1")),
    ]
    values |= {
        "lone": {"weight": np.array([[1.0]])},
        "inner": {"weight": np.array([[0.25, 0.75]])},
        "root": {"weight": np.array([[0.8, 0.0, 0.2]])},
    }
    return Circuit(tuple(nodes), Schema.real(["x", "y", "z"])), Parameters(values)


def scores(circuit: Circuit, parameters: Parameters, x: np.ndarray) -> np.ndarray:
    return CircuitModel(circuit, parameters).score_samples(x)


def test_sums_of_sums_and_products_of_products_become_one() -> None:
    circuit, parameters = nested()
    small, learned = prune(circuit, parameters)
    learned.check(small)
    assert small["root"] == Sum("root", ("p0", "p1"))
    assert learned["root"]["weight"] == pytest.approx(np.array([[0.2, 0.8]]))
    assert small["p0"] == Product("p0", ("x0", "y0", "z0"))
    assert {n.name for n in small.nodes if not isinstance(n, Leaf)} == {"root", "p0", "p1"}
    x = np.random.default_rng(0).normal(size=(50, 3))
    x[::3, 1] = np.nan
    same = scores(small, learned, x) - scores(circuit, parameters, x)
    assert np.abs(same).max() < 1e-12


def test_a_shared_sum_stays_and_what_would_grow_stays() -> None:
    (a, va), (b, vb) = leaf("a", "x", 0.0), leaf("b", "x", 1.0)
    nodes = (a, b, Sum("shared", ("a", "b")), Sum("s", ("shared", "a")), Sum("t", ("shared", "s")))
    half = {"weight": np.array([[0.5, 0.5]])}
    parameters = Parameters({"a": va, "b": vb, "shared": half, "s": half, "t": half})
    small, learned = prune(Circuit(nodes, Schema.real(["x"])), parameters)
    assert small["t"] == Sum("t", ("shared", "a"))
    assert learned["t"]["weight"] == pytest.approx(np.array([[0.75, 0.25]]))


def test_wide_circuits_keep_their_outer_products() -> None:
    rng = np.random.default_rng(1)
    schema, x = Schema.real(6), rng.normal(size=(80, 6))
    circuit = random_binary(schema, depth=2, repetitions=2, units=3, rng=rng)
    parameters = start_from(circuit, x, clusters(x, schema, 3, rng), rng)
    small, learned = prune(circuit, parameters)
    assert np.abs(scores(small, learned, x) - scores(circuit, parameters, x)).max() < 1e-11


@pytest.mark.parametrize("seed", range(3))
def test_a_learned_circuit_is_the_same_afterwards(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 4)) + 3 * rng.integers(0, 3, (400, 1))
    circuit, parameters = learn_spn(x, Schema.real(4), SPNSettings(min_rows=20), rng)
    small, learned = prune(circuit, parameters)
    learned.check(small)
    assert len(small) <= len(circuit)
    assert np.abs(scores(small, learned, x) - scores(circuit, parameters, x)).max() < 1e-12

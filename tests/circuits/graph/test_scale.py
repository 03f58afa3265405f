"""Wide, deep and large circuits: the same values, no recursion, little memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.tables.schema import Schema
from tests.circuits.reference import probability, values
from tests.circuits.strategies import random_parameters, random_rows, schema_of


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
import fedcircuits.circuits.leaves
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.graph.circuit import Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.tables.schema import Schema

rng = np.random.default_rng(0)
schema = Schema.real(4)
nodes, values, level = [], {}, []
for i in range(4_096):
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
x = rng.normal(size=(12_000, 4))
model.log_likelihood(x[:70])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = model.log_likelihood(x)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.isfinite(found).all()
print(len(nodes), (after - before) / 1024)
"""


def test_a_large_tree_needs_little_memory() -> None:
    """About 25,000 nodes and 12,000 rows, whose values would take 2.4 GB: under 100 MB more than a
    few rows need."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    nodes, megabytes = done.stdout.split()
    assert int(nodes) > 24_000 and float(megabytes) < 100

"""Determinism: never claimed where two inputs of a sum can be positive, found where it is meant."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Fuse, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.properties import is_deterministic
from fedcircuits.circuits.graph.structures import chow_liu, class_conditional, factorised
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import completions, values
from tests.circuits.strategies import (
    STRUCTURES,
    Model,
    model_of,
    models,
    random_parameters,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)


def overlap(model: Model) -> bool:
    """Whether some complete row makes two weighted inputs of a sum unit positive."""
    circuit, parameters = model
    rows = completions(circuit, parameters, np.full(len(circuit.schema), np.nan)).points
    found = values(circuit, parameters, rows)
    for node in circuit.nodes:
        if isinstance(node, Sum):
            below = np.concatenate([found[c] for c in node.children]) > 0  # (inputs, rows)
            active = (parameters[node.name]["weight"] > 0).astype(int) @ below
            if (active > 1).any():
                return True
    return False


@settings(max_examples=60)
@given(models(big=("count",)))
def test_determinism_is_never_claimed_wrongly(model: Model) -> None:
    assert not (is_deterministic(*model) and overlap(model))


@settings(max_examples=40)
@given(st.sampled_from([*STRUCTURES]), SEEDS)
def test_determinism_of_sparse_models(structure: str, seed: int) -> None:
    """Leaves that allow one code only and weights with zeros: many of these are deterministic."""
    rng = np.random.default_rng(seed)
    circuit, parameters = model_of(structure, schema_of(("category", "category")), seed)
    found = {}
    for name, arrays in parameters.values.items():
        found[name] = {n: a if n == "code" else _sparse(a, rng) for n, a in arrays.items()}
    model = (circuit, Parameters(found))
    if is_deterministic(*model):
        assert not overlap(model)
        rows = random_rows(circuit.schema, rng, 4)
        best = [completions(*model, row).mass.max() for row in rows]
        np.testing.assert_allclose(np.exp(Distribution(*model).mpe(rows).log_value), best)


def _sparse(array: Array, rng: np.random.Generator) -> Array:
    """A distribution over the last axis with more zeros."""
    kept = array * (rng.random(array.shape) < 0.4)
    kept[..., 0] += kept.sum(axis=-1) == 0
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


# ---------------------------------------------------------------------- where it must be found


def test_chow_liu_trees() -> None:
    schema = schema_of(("category", "boolean", "category", "boolean"))
    for tree in (nx.path_graph(schema.names), nx.star_graph(schema.names)):
        circuit = chow_liu(schema, tree)
        parameters = random_parameters(circuit, np.random.default_rng(0)).values
        codes = {
            leaf.name: {"code": np.arange(float(leaf.units))[:, None]} for leaf in circuit.leaves()
        }
        assert is_deterministic(circuit, Parameters({**parameters, **codes}))


def decision_tree() -> Model:
    """a = 0 decides at once, a = 1 asks b; real leaves below each decision."""
    schema = Schema((Variable("a", "boolean"), Variable("b", "boolean"), Variable("x")))
    nodes: list[Node] = []
    found = {}

    def leaf(name: str, family: str, variable: str, **parameters: list[float]) -> str:
        nodes.append(Leaf(name, family, (variable,)))
        found[name] = {
            n: np.array(v).reshape(1, 1, *np.shape(v)[1:]) for n, v in parameters.items()
        }
        return name

    def gaussian(name: str, mean: float) -> str:
        return leaf(name, "gaussian", "x", mean=[mean], variance=[1.0])

    for code in (0.0, 1.0):
        leaf(f"a={code:.0f}", "indicator", "a", code=[code])
        leaf(f"b={code:.0f}", "indicator", "b", code=[code])
        nodes.append(Product(f"under b={code:.0f}", (f"b={code:.0f}", gaussian(f"g{code}", code))))
    nodes.append(Sum("b", ("under b=0", "under b=1")))
    leaf("free b", "bernoulli", "b", probability=[0.5])
    nodes.append(Product("left", ("a=0", "free b", gaussian("g2", 2.0))))
    nodes.append(Product("right", ("a=1", "b")))
    nodes.append(Sum("root", ("left", "right")))
    weight = {"weight": np.array([[0.4, 0.6]])}
    return Circuit(tuple(nodes), schema), Parameters({**found, "b": weight, "root": weight})


def test_decision_trees() -> None:
    circuit, parameters = decision_tree()
    assert is_deterministic(circuit, parameters)
    explained = Distribution(circuit, parameters).mpe(np.full((1, 3), np.nan))
    assert explained.exact
    np.testing.assert_array_equal(explained.values, [[1.0, 1.0, 1.0]])  # 0.6 · 0.6
    merged = {**parameters.values, "a=1": parameters["a=0"]}
    assert not is_deterministic(circuit, Parameters(merged))


def test_pairs_that_lie_apart_in_different_variables() -> None:
    """No single variable tells all three inputs apart, each two are told apart by one."""
    schema = Schema((Variable("a", "boolean"), Variable("b", "boolean")))
    nodes: list[Node] = []
    supports = {"p": ([1, 0], [0.5, 0.5]), "q": ([0, 1], [1, 0]), "r": ([0, 1], [0, 1])}
    found = {}
    for name, tables in supports.items():
        for variable, table in zip("ab", tables, strict=True):
            nodes.append(Leaf(f"{name}{variable}", "categorical", (variable,)))
            found[f"{name}{variable}"] = {"probability": np.array(table, dtype=float)[None, None]}
        nodes.append(Product(name, (f"{name}a", f"{name}b")))
    circuit = Circuit((*nodes, Sum("root", tuple(supports))), schema)
    found["root"] = {"weight": np.array([[0.2, 0.3, 0.5]])}
    assert is_deterministic(circuit, Parameters(found))


@pytest.mark.parametrize("deterministic", [True, False])
def test_class_conditionals_are_as_deterministic_as_their_inside(deterministic: bool) -> None:
    schema = schema_of(("category", "boolean"))
    label = Variable("class", "category", ("a", "b", "c"))
    rng = np.random.default_rng(0)
    if deterministic:
        inside = chow_liu(schema, nx.path_graph(schema.names))
    else:
        plain = factorised(schema)
        inside = Circuit((*plain.nodes, Sum("mixed", ("root", "root"))), schema)
    circuit = class_conditional(inside, label)
    codes = {
        leaf.name: {"code": np.arange(float(leaf.units))[:, None]}
        for leaf in circuit.leaves()
        if leaf.family == "indicator"
    }
    found = {**random_parameters(circuit, rng).values, **codes}
    assert is_deterministic(circuit, Parameters(found)) == deterministic


def test_circuits_as_leaves_are_looked_into() -> None:
    circuit, parameters = decision_tree()
    outer = Circuit((Leaf("all", CIRCUIT, circuit.schema.names),), circuit.schema)
    assert is_deterministic(outer, Parameters({}, {"all": (circuit, parameters)}))
    mixed = {**parameters.values, "a=1": parameters["a=0"]}
    assert not is_deterministic(outer, Parameters({}, {"all": (circuit, Parameters(mixed))}))


def test_fused_circuits_are_not() -> None:
    circuit = Circuit(
        (Leaf("a", "gaussian", ("x0",)), Fuse("f", ("a",), "mean")), Schema.real(["x0"])
    )
    assert not is_deterministic(circuit, Parameters({}))

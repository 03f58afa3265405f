"""Trees that are looked up for complete rows give what evaluation of all units gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.evaluation.arithmetic import LOG_SPACE, finite
from fedcircuits.circuits.evaluation.forests import Forests
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from tests.circuits.strategies import (
    Model,
    chow_liu_model,
    model_of,
    random_parameters,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)


def evaluated(program: CircuitProgram, parameters: Parameters, x: Array) -> Array:
    """Step by step, without the compiled executor."""
    packed = program.pack(parameters)
    state = program.upward(program.read(torch.from_numpy(x), packed), packed, LOG_SPACE)
    return np.asarray(finite(state.values[program.root]).numpy())


def mixture_of_trees(seed: int, sorts: tuple[str, ...]) -> Model:
    """Trees, one of them without a root of its own, and a leaf that is none, under one sum."""
    rng, schema = np.random.default_rng(seed), schema_of(sorts)
    nodes, values = [], {}
    for i in range(3):
        circuit, parameters = chow_liu_model(schema, rng)
        names = {n.name: f"{i}/{n.name}" for n in circuit.nodes}
        for node in circuit.nodes[:-1] if i == 2 else circuit.nodes:
            inner = tuple(names[c] for c in node.children)
            match node:
                case Leaf():
                    nodes.append(Leaf(names[node.name], node.family, node.scope, node.units))
                case Product():
                    nodes.append(Product(names[node.name], inner))
                case Sum():
                    nodes.append(Sum(names[node.name], inner, node.units))
            if node.name in parameters.values:
                values[names[node.name]] = parameters[node.name]
    tops = [n.name for n in nodes if not any(n.name in m.children for m in nodes)]
    nodes.append(Sum("root", tuple(tops)))
    whole = Circuit(tuple(nodes), schema)
    values["root"] = random_parameters(whole, rng)["root"]
    return whole, Parameters(values)


@settings(max_examples=40)
@given(SEEDS, st.lists(st.sampled_from(["boolean", "category"]), min_size=2, max_size=6))
def test_mixtures_of_trees(seed: int, sorts: list[str]) -> None:
    model, rng = mixture_of_trees(seed, tuple(sorts)), np.random.default_rng(seed)
    program = CircuitProgram(model[0])
    assert program.looks_up and len(program.forests.tops) == 3
    x = random_rows(model[0].schema, rng, 50, missing=0.0)
    x[rng.random(len(x)) < 0.3, 0] = np.nan
    found = program.log_values(torch.from_numpy(x), program.pack(model[1])).numpy()
    np.testing.assert_allclose(found, evaluated(program, model[1], x), rtol=1e-10, atol=1e-10)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from(["random", "class_conditional", "chow_liu", "latent_tree"]))
def test_whatever_the_structure(seed: int, structure: str) -> None:
    """Indicators may stand anywhere, with any codes."""
    model = model_of(structure, schema_of(("boolean", "category", "boolean")), seed)
    program = CircuitProgram(model[0])
    x = random_rows(model[0].schema, np.random.default_rng(seed), 30, missing=0.1)
    found = program.log_values(torch.from_numpy(x), program.pack(model[1])).numpy()
    np.testing.assert_allclose(found, evaluated(program, model[1], x), rtol=1e-10, atol=1e-10)


def test_codes_in_any_order_and_values_that_are_none() -> None:
    schema = schema_of(("category",))
    circuit = Circuit((Leaf("a", "indicator", schema.names, 3), Sum("root", ("a",))), schema)
    codes = np.array([[2.0], [0.0], [1.0]])
    values = {"a": {"code": codes}, "root": {"weight": np.array([[0.5, 0.2, 0.3]])}}
    program = CircuitProgram(circuit)
    x = torch.tensor([[0.0], [1.0], [2.0], [7.0], [0.5], [torch.nan]]).double()
    found = program.log_values(x, program.pack(Parameters(values))).exp()
    assert found.numpy() == pytest.approx([0.2, 0.3, 0.5, 0.0, 0.0, 1.0])


def test_trees_share_nothing() -> None:
    """Indicators that two sums read are a top of their own."""
    schema = schema_of(("boolean",))
    nodes = (
        Leaf("a", "indicator", schema.names, 2),
        Sum("one", ("a",)),
        Sum("two", ("a",)),
        Sum("root", ("one", "two")),
    )
    assert Forests.of(Circuit(nodes, schema)).tops == ("a",)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_learn_spn_makes(dtype: torch.dtype) -> None:
    """Trees inside a larger circuit, some pruned into the sums above them."""
    rng = np.random.default_rng(0)
    hidden = rng.integers(3, size=800)
    chain = np.cumsum(rng.random((800, 12)) < 0.15 + 0.2 * hidden[:, None], axis=1) % 2 == 1
    model = fc.LearnSPN(random_state=0).fit(fc.Table.of(chain))
    program = CircuitProgram(model.circuit_, dtype)
    assert program.looks_up and program.forests.tops
    x = chain[:200].astype(np.float64)
    found = program.log_values(torch.from_numpy(x), program.pack(model.parameters_)).numpy()
    close = 1e-10 if dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(
        found, evaluated(program, model.parameters_, x), rtol=close, atol=close
    )

"""Public graphs, and bounds that owners keep to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import factorised, mixture_of_products
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.methods.private_forest.model import (
    Forest,
    bounded,
    check_bounds,
    probabilities,
)
from fedcircuits.tables.schema import Schema
from tests.methods.private_forest.asking import (
    booleans,
    circuits,
    held,
    known,
    mixed,
    mixture,
    parameters,
)


def test_regions_of_flat_forests() -> None:
    forest = Forest(mixture_of_products(mixed(5), 4))
    [region] = forest.regions
    assert forest.flat and forest.exponents == 4 and forest.codes == (2,) * 5 + (3, 4)
    assert region.bound == 67  # 9.5 bits for each of 7 variables
    assert len(region.leaves) == 3  # booleans, three codes, four codes


def test_regions_of_deeper_forests() -> None:
    forest = Forest(circuits()["depth 2"])
    assert not forest.flat and len(forest.regions) == 3 * 4 and forest.exponents == 24
    assert [r.first for r in forest.regions] == list(range(0, 24, 2))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (factorised(booleans(2)).nodes, "must be a sum of one unit, 'root' is a leaf of 1"),
        (mixture_of_products(Schema.real(2), 2).nodes, "'component' is of kind 'gaussian'"),
        (
            (Leaf("a", "bernoulli", ("v0", "v1")), Sum("root", ("a", "a"))),
            "sum 'root' reads a child twice",
        ),
        (
            (Leaf("a", "bernoulli", ("v0", "v1")), Product("b", ("a",)), Sum("root", ("b",))),
            "product 'b' has one child",
        ),
    ],
)
def test_graphs_that_cannot_be_asked_privately(nodes: Any, words: str) -> None:
    schema = Schema.real(2) if nodes[0].family == "gaussian" else booleans(2)
    with pytest.raises(StructureError, match=words):
        Forest(Circuit(nodes, schema))


@pytest.mark.parametrize(
    ("variables", "count", "bits"), [(16, 3, 709), (100, 5, 2357), (135, 12, 3167)]
)
def test_rings(variables: int, count: int, bits: int) -> None:
    """From the numbers of variables and parties alone."""
    for components in (1, 100):
        forest = Forest(mixture_of_products(booleans(variables), components))
        assert forest.ring(count).bits == bits


# ---------------------------------------------------------------------- bounds


@given(st.integers(0, 2**32), st.sampled_from(sorted(circuits())), st.sampled_from([0.0, 2.0**-10]))
def test_bounded_parameters_keep_to_the_bounds(seed: int, name: str, least: float) -> None:
    """Distributions with zeros too; what keeps to the bounds already is not touched."""
    forest = Forest(circuits()[name])
    rng = np.random.default_rng(seed)
    wild = parameters(forest, seed).values
    sharp = {
        n: {k: np.round(p, int(rng.integers(0, 3))) for k, p in own.items()}
        for n, own in wild.items()
    }
    for own in sharp.values():
        if "weight" in own:
            own["weight"][own["weight"].sum(1) == 0] = 1
            own["weight"] /= own["weight"].sum(1, keepdims=True)
        elif own["probability"].ndim == 3:
            own["probability"][own["probability"].sum(2) == 0] = 1
            own["probability"] /= own["probability"].sum(2, keepdims=True)
    found = bounded(forest, Parameters(sharp), least)
    found.check(forest.circuit)
    check_bounds(forest, found)
    again = bounded(forest, found, least)
    for n, own in found.values.items():
        for k, p in own.items():
            assert np.allclose(again[n][k], p, rtol=1e-7, atol=0)  # 1 − p is rounded at a bound
    for leaf in forest.circuit.leaves():
        assert probabilities(leaf, found).min() >= least * (1 - 1e-12)


def test_what_is_beyond_the_bounds_is_not_shared() -> None:
    forest = Forest(mixture_of_products(booleans(4), 2))
    low = mixture(forest, np.full((2, 4), 1e-6), np.array([0.5, 0.5]))
    with pytest.raises(ParameterError, match=r"likelihood of 'component' is below 2\^−38"):
        known(forest, low, "a", ("a", "b", "c"))
    rare = mixture(forest, np.full((2, 4), 0.5), np.array([1e-6, 1 - 1e-6]))
    with pytest.raises(ParameterError, match=r"a weight of 'root' is below 2\^−16"):
        known(forest, rare, "a", ("a", "b", "c"))
    for wrong in (low, rare):
        known(forest, bounded(forest, wrong), "a", ("a", "b", "c"))


def test_smoothing_is_as_little_as_needed() -> None:
    forest = Forest(mixture_of_products(booleans(4), 2))
    p = np.array([[1e-9, 0.5, 0.5, 0.5], [1e-9, 1e-9, 1 - 1e-9, 1e-9]])
    found = bounded(forest, mixture(forest, p, np.array([0.5, 0.5])))["component"]["probability"]
    assert np.array_equal(found[0], p[0])  # 33 bits, the bound is 38
    depth = -np.log2(np.minimum(found[1], 1 - found[1])).sum()
    assert 38 - 1e-6 < depth <= 38


def test_shares_of_another_model_are_refused() -> None:
    forest = Forest(mixture_of_products(booleans(4), 2))
    shares = held(forest, parameters(forest), 3)["party1"]
    shares.check(forest)
    with pytest.raises(ParameterError, match="party1 holds uint64"):
        shares.check(Forest(mixture_of_products(booleans(4), 3)))
    with pytest.raises(ParameterError, match="party1 holds shares of 1 nodes, the forest has 2"):
        replace(shares, arrays={"root": shares.arrays["root"]}).check(forest)

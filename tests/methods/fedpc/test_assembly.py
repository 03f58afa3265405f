"""The upper part of federated circuits, against counts and mixtures made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.network import UpperCircuit
from fedcircuits.circuits.graph.circuit import CIRCUIT, Leaf
from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.federation import COORDINATOR, Subspace
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.counting import Labels, patterns
from fedcircuits.methods.fedpc.assembly import (
    Assembly,
    by_cooccurrence,
    by_rows,
    by_sizes,
    dependence_shown,
    information_left_out,
    joined,
    leaf_name,
)
from fedcircuits.tables.schema import Schema
from tests.methods.fedpc.counted import by_hand, mixture

XYZ = Schema.real("xyz")
VERTICAL = [Subspace(("a",), ("x",)), Subspace(("b",), ("y", "z"))]
HYBRID = [Subspace(("a",), ("x",)), Subspace(("a", "b"), ("y",)), Subspace(("b", "c"), ("z",))]


def counted(
    made: Assembly, parties: Sequence[str], labels: Labels, most: int | None = None
) -> Joint:
    children = by_cooccurrence(made, parties, *patterns(labels), most)
    assert children is not None
    return joined([(made, children)], XYZ)


def density(made: Joint, leaves: dict[str, float]) -> float:
    """p of one row, whose leaves have these values."""
    network = UpperCircuit(made.circuit)
    logs = np.log([[leaves[leaf.name]] for leaf in made.circuit.leaves()])
    return float(np.exp(network.log_values(logs, network.pack(made.parameters))[0]))


def some_values(sizes: dict[str, list[int]], spaces: list[Subspace], seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    return {
        leaf_name(p, k, i): float(rng.uniform(0.1, 2))
        for i, s in enumerate(spaces)
        for p in s.holders
        for k in range(-1, len(sizes[p]))
    }


def drawn(seed: int, spaces: list[Subspace], parties: str, least: int) -> tuple[Labels, Any]:
    """Clusters of rows that all hold, or not (least −1), and their sizes."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(3, 30))
    labels = rng.integers(least, 3, size=(rows, len(parties)))
    labels[0] = 0
    sizes = {
        p: [max(1, int((labels[:, i] == k).sum())) for k in range(3)] for i, p in enumerate(parties)
    }
    return labels, sizes


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.sampled_from(["vertical", "hybrid"]), st.sampled_from([None, 1, 3])
)
def test_cooccurrence_counts_rows(seed: int, kind: str, most: int | None) -> None:
    spaces, parties, least = (VERTICAL, "ab", 0) if kind == "vertical" else (HYBRID, "abc", -1)
    labels, sizes = drawn(seed, spaces, parties, least)
    made = counted(Assembly(spaces, sizes), parties, labels, most)
    leaves = some_values(sizes, spaces, seed)
    expected = by_hand(labels, parties, spaces, sizes, leaves, most)
    assert density(made, leaves) == pytest.approx(expected, rel=1e-9)
    check(made, parties)


def check(made: Joint, parties: str) -> None:
    """Leaves live with their parties and have no parameters here, sums have weights."""
    for node in made.circuit.nodes:
        if isinstance(node, Leaf):
            assert node.family == CIRCUIT and made.placement[node.name] == node.name.split("/")[0]
        else:
            assert made.placement[node.name] == COORDINATOR
    assert set(made.placement) == set(made.circuit.by_name)
    assert not made.parameters.circuits
    for weight in made.parameters.values.values():
        assert weight["weight"].sum() == pytest.approx(1)


def test_leaves_that_several_products_share_are_one_node() -> None:
    sizes = {"a": [5, 5], "b": [5, 5]}
    labels = np.array([[0, 0], [0, 0], [0, 1], [0, 1], [1, 1], [1, 1]])
    made = counted(Assembly(VERTICAL, sizes), "ab", labels)
    assert len(list(made.circuit.leaves())) == 4
    read = [c for n in made.circuit.nodes for c in n.children]
    assert read.count("a/0/0") == 2 and read.count("b/1/1") == 2
    assert made.parameters["root"]["weight"][0] == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_no_rows_with_all_variables() -> None:
    labels = np.array([[0, -1], [-1, 0]])
    sizes = {"a": [1], "b": [1]}
    assert by_cooccurrence(Assembly(VERTICAL, sizes), "ab", *patterns(labels)) is None


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), min_size=1, max_size=4))
def test_rows_give_a_mixture_by_sizes(own: list[list[int]]) -> None:
    sizes = {f"p{i}": rows for i, rows in enumerate(own)}
    each = [Assembly([Subspace((p,), ("x", "y", "z"))], sizes, i) for i, p in enumerate(sizes)]
    parts = [(one, by_rows(one, p)) for one, p in zip(each, sizes, strict=True)]
    made = joined(parts, XYZ)
    leaves = some_values(sizes, [one.spaces[0] for one in each], 0)
    total = sum(map(sum, own))
    shares = [
        n / total * leaves[leaf_name(p, k, i)]
        for i, (p, rows) in enumerate(sizes.items())
        for k, n in enumerate(rows)
    ]
    assert density(made, leaves) == pytest.approx(sum(shares), rel=1e-9)


def products_of(made: Joint) -> list[tuple[str, ...]]:
    return [made.circuit[c].children for c in made.circuit.root.children]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(["auto", 2, 9]))
def test_the_published_rule(seed: int, products: Any) -> None:
    """Every cluster is in a product; products weigh the rows of their leaves together."""
    sizes = {"a": [10, 20, 30], "b": [6, 54]}
    part = Assembly(VERTICAL, sizes)
    made = joined([(part, by_sizes(part, products, np.random.default_rng(seed)))], XYZ)
    found = products_of(made)
    assert len(found) == (9 if products == 9 else 3)
    assert {leaf for p in found for leaf in p} == {"a/0/0", "a/1/0", "a/2/0", "b/0/1", "b/1/1"}
    rows: Array = np.array(
        [sum(sizes[leaf[0]][int(leaf.split("/")[1])] for leaf in p) for p in found], float
    )
    np.testing.assert_allclose(made.parameters["root"]["weight"][0], rows / rows.sum())


def test_pooled_leaves_stand_under_all_products() -> None:
    sizes = {"a": [4, 6], "b": [5, 5], "c": [7]}
    labels = np.array([[0, 0, 0]] * 3 + [[1, 1, 0]] * 4)
    made = counted(Assembly(HYBRID, sizes, pooled=True), "abc", labels)
    leaves = some_values(sizes, HYBRID, 3)
    pooled = [mixture([(p, -1) for p in s.holders], i, sizes, leaves) for i, s in enumerate(HYBRID)]
    own = 3 / 7 * leaves["a/0/0"] + 4 / 7 * leaves["a/1/0"]
    assert density(made, leaves) == pytest.approx(own * pooled[1] * pooled[2], rel=1e-9)
    assert {n for n in made.placement if "/all/" in n and " + " not in n} == {
        "a/all/1", "b/all/1", "b/all/2", "c/all/2"
    }  # fmt: skip


def test_long_names_of_sums_stay_apart() -> None:
    """Mixtures over many parties have names of their own, whatever the parties are called."""
    holders = tuple(f"a party of a rather long name, number {i}" for i in range(5))
    spaces = [
        Subspace(holders, ("x",)),
        Subspace(holders[1:], ("y",)),
        Subspace(holders[:4], ("z",)),
    ]
    sizes = {p: [2 + i, 3] for i, p in enumerate(holders)}
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, size=(40, 5))
    made = counted(Assembly(spaces, sizes), holders, labels)
    leaves = some_values(sizes, spaces, 1)
    expected = by_hand(labels, holders, spaces, sizes, leaves)
    assert density(made, leaves) == pytest.approx(expected, rel=1e-9)
    assert max(map(len, made.circuit.by_name)) < 120


# ---------------------------------------------------------------------- several circuits


def test_what_clusters_say_of_a_row_left_out() -> None:
    """Nothing of independent clusters, their entropy of equal ones; chance counts against them."""

    def information(labels: Labels, new: float) -> float:
        return information_left_out(*patterns(labels), new)

    rng = np.random.default_rng(0)
    assert information(rng.integers(3, size=(20_000, 2)), 0.0) == pytest.approx(0, abs=2e-3)
    same = np.repeat(np.arange(4), 500)[:, None] * np.ones((1, 3), int)
    assert information(same, 0.0) == pytest.approx(2 * np.log(4), abs=5e-3)
    assert information(rng.integers(8, size=(40, 2)), 0.5) < -0.1


def test_dependence_is_shown_where_chance_is_no_reason() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.integers(8, size=(400, 2)), rng.integers(8, size=(20_000, 2))
    weak = np.where(rng.random((20_000, 1)) < 0.1, many[:, :1], many)
    assert abs(dependence_shown(*patterns(few))) < 0.05
    assert 0.005 < dependence_shown(*patterns(weak)) < 0.05
    assert dependence_shown(*patterns(rng.integers(8, size=(400, 4)))) == -np.inf


def test_circuits_of_one_division_count_by_what_their_clusters_say() -> None:
    """Two circuits over one division: e⁴ times the weight for a nat more; divisions by rows."""
    sizes = {"a": [6, 6], "b": [6, 6]}
    meeting = np.array([[0, 0]] * 6 + [[1, 1]] * 6)
    crossing = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 3)
    alone = Assembly([Subspace(("c",), ("x", "y", "z"))], {"c": [36]}, 4)
    parts = [(alone, by_rows(alone, "c"))]
    for first, labels in ((0, meeting), (2, crossing)):
        made = Assembly(VERTICAL, sizes, first)
        children = by_cooccurrence(made, "ab", *patterns(labels))
        assert children is not None
        parts.append((made, children))
    weight = joined(parts, XYZ).parameters["root"]["weight"][0]
    assert weight[0] == pytest.approx(36 / 48)
    odds = weight[1:3].sum() / weight[3:].sum()
    told = [c.information for _, c in parts[1:]]
    assert told[0] - told[1] > 0.5 and odds == pytest.approx(np.exp(4 * (told[0] - told[1])))

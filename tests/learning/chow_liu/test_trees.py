"""Chow–Liu trees against all trees of few variables, and against the published figure of nltcs."""

from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from fedcircuits import CircuitModel, Schema, Variable
from fedcircuits.learning.chow_liu.coarse import coarsened
from fedcircuits.learning.chow_liu.trees import (
    best_tree,
    chow_liu_circuit,
    forest_nodes,
    learn_tree,
    spanning_tree,
)
from fedcircuits.learning.independence import OneHot, mutual_information, pair_tables


def trees(count: int) -> list[list[tuple[int, int]]]:
    """Every labelled tree, by its Prüfer sequence."""
    codes = product(range(count), repeat=count - 2)
    return [list(nx.from_prufer_sequence(list(code)).edges) for code in codes]


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_is_the_best_of_all(seed: int) -> None:
    information = np.random.default_rng(seed).random((6, 6))
    information = information + information.T
    best = max(sum(information[e] for e in tree) for tree in trees(6))
    found = spanning_tree(information)
    assert sum(information[e] for e in found if e[1] >= 0) == pytest.approx(best)
    assert [parent for _, parent in found].count(-1) == 1
    assert nx.is_tree(best_tree(Schema.real(6), information))


def test_a_forest_leaves_out_edges_that_gain_nothing() -> None:
    gain = np.full((5, 5), -1.0)
    gain[0, 2] = gain[2, 0] = 3.0
    gain[1, 4] = gain[4, 1] = 1.0
    found = spanning_tree(gain, 0.0)
    assert {frozenset(e) for e in found if e[1] >= 0} == {frozenset((0, 2)), frozenset((1, 4))}
    assert [parent for _, parent in found].count(-1) == 3
    order = [own for own, _ in found]
    assert all(order.index(parent) < order.index(own) for own, parent in found if parent >= 0)


def chain(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, Schema]:
    a = rng.integers(0, 2, rows)
    b = np.where(rng.random(rows) < 0.8, a, rng.integers(0, 3, rows))
    c = np.where(rng.random(rows) < 0.8, b, rng.integers(0, 3, rows))
    kinds = (Variable("a", "boolean"), *(Variable(n, "category", (0, 1, 2)) for n in "bc"))
    return np.stack([a, b, c], 1).astype(float), Schema(kinds)


def test_without_smoothing_the_tables_are_frequencies() -> None:
    x, schema = chain(np.random.default_rng(0), 400)
    hot = OneHot.of(x, schema.variables)
    circuit, parameters = chow_liu_circuit(schema, pair_tables(hot.matrix), hot.starts, 0.0)
    parameters.check(circuit)
    assert set(map(frozenset, learn_tree(x, schema).edges)) == {frozenset("ab"), frozenset("bc")}
    model = CircuitModel(circuit, parameters)
    for a, b in product((0, 1), (0, 1, 2)):
        seen = np.mean((x[:, 0] == a) & (x[:, 1] == b))
        query = np.array([[a, b, np.nan]], dtype=float)
        assert np.exp(model.score_samples(query))[0] == pytest.approx(seen, abs=1e-6)


def test_trees_inside_a_circuit_are_the_same_distribution() -> None:
    x, schema = chain(np.random.default_rng(1), 300)
    hot = OneHot.of(x, schema.variables)
    tables = pair_tables(hot.matrix)
    circuit, parameters = chow_liu_circuit(schema, tables, hot.starts, 0.5)
    edges = spanning_tree(mutual_information(tables, hot.starts))
    nodes, values, tops = forest_nodes("t", schema.variables, edges, tables, hot.starts, 0.5)
    assert tops == [nodes[-1].name]
    other = CircuitModel(type(circuit)(tuple(nodes), schema), type(parameters)(values))
    every = np.array(list(product(range(2), range(3), range(3))), dtype=float)
    direct = CircuitModel(circuit, parameters).score_samples(every)
    assert np.exp(direct).sum() == pytest.approx(1)
    assert np.allclose(other.score_samples(every), direct, atol=0.02)  # smoothed along the edges


def test_numbers_are_binned_for_the_tree_only() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=500)
    values = np.stack([x, rng.normal(size=500), x**2, np.full(500, np.nan)], axis=1)
    schema = Schema.real(["x", "noise", "square", "empty"])
    codes, sizes = coarsened(values, schema, 8)
    assert sizes == [8, 8, 8, 1] and (codes[:, 3] == -1).all()
    assert learn_tree(values, schema).has_edge("x", "square")


def test_nltcs_reaches_the_published_figure(data: Path) -> None:
    path = data / "debd" / "nltcs.npz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with np.load(path) as file:
        train, test = (file[n].astype(float) for n in ("train", "test"))
    schema = Schema(tuple(Variable(f"x{i}", "boolean") for i in range(train.shape[1])))
    hot = OneHot.of(train, schema.variables)
    circuit, parameters = chow_liu_circuit(schema, pair_tables(hot.matrix), hot.starts, 0.1)
    found = CircuitModel(circuit, parameters).score_samples(test).mean()
    assert found == pytest.approx(-6.759, abs=0.002)

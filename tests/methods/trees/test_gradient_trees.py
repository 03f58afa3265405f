"""Trees of gradient boosting: cells, exact sums, and splits against all splits tried one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.methods.trees.gradient_trees import (
    LEAST,
    SMOOTH,
    Cells,
    GrowingTree,
    best_splits,
    gradients,
    probabilities,
    steps,
)

SCHEMA = fc.Schema(
    (
        *fc.Schema.real(["a", "b"]),
        fc.Variable("c", "category", ("x", "y", "z")),
        fc.Variable("d", "boolean"),
    )
)
EDGES = [np.array([-1.0, 0.0, 0.5]), np.array([0.0])]


def rows(seed: int, number: int = 80, holes: float = 0.2) -> Array:
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [rng.normal(size=(number, 2)), rng.integers(3, size=number), rng.integers(2, size=number)]
    )
    return np.where(rng.random(x.shape) < holes, np.nan, x)


def terms(seed: int, number: int = 80, classes: int = 2) -> Array:
    rng = np.random.default_rng(seed)
    base = np.full(classes, 1 / classes)
    scores = rng.normal(size=(number, 1 if classes == 2 else classes))
    return gradients(scores, base, rng.integers(classes, size=number), np.ones(number))


def test_cells_of_values() -> None:
    cells = Cells.of(SCHEMA, EDGES)
    assert cells.column.tolist() == [0] * 5 + [1] * 3 + [2] * 4 + [3] * 3
    x = np.array([[-1.0, 0.1, 2.0, 0.0], [np.nan, -9.0, np.nan, 1.0], [0.6, 0.0, 0.0, np.nan]])
    assert cells.codes(x).tolist() == [[0, 6, 10, 12], [4, 5, 11, 13], [3, 5, 8, 14]]
    assert np.flatnonzero(cells.asks).tolist() == [0, 1, 2, 5, 8, 9, 10, 12]


@given(st.integers(0, 1000), st.integers(2, 4))
@settings(max_examples=30)
def test_sums_do_not_depend_on_who_adds_up(seed: int, classes: int) -> None:
    cells = Cells.of(SCHEMA, EDGES)
    codes, own = cells.codes(rows(seed)), terms(seed, classes=classes)
    whole = GrowingTree.planted(cells, codes).histogram(own)
    order = np.random.default_rng(seed).permutation(80)
    parts = [
        GrowingTree.planted(cells, codes[some]).histogram(own[some])
        for some in np.split(order, [9, 50])
    ]
    assert np.array_equal(parts[2] + parts[0] + parts[1], whole)


def gain(own: Array) -> float:
    g, h = np.split(own.sum(axis=0), 2)
    return float((g**2 / (h + SMOOTH)).sum())


@given(st.integers(0, 1000), st.integers(2, 3), st.sampled_from([0.0, 0.3]))
@settings(max_examples=40)
def test_the_best_split_is_the_best_of_all(seed: int, classes: int, holes: float) -> None:
    x, own = rows(seed, holes=holes), terms(seed, classes=classes)
    cells = Cells.of(SCHEMA, EDGES)
    growing = GrowingTree.planted(cells, cells.codes(x))
    chosen = best_splits(growing.histogram(own), cells)
    best = 0.0
    for column, edges in ((0, EDGES[0]), (1, EDGES[1]), (2, np.arange(3.0)), (3, np.zeros(1))):
        for edge in edges:
            known = x[:, column] != edge if column == 2 else x[:, column] <= edge
            for missing in (False, True):
                first = np.where(np.isnan(x[:, column]), missing, known)
                sides = own[first], own[~first]
                if min(s[:, own.shape[1] // 2 :].sum(axis=0).max() for s in sides) >= LEAST:
                    best = max(best, gain(sides[0]) + gain(sides[1]) - gain(own))
    growing.split(chosen)
    if best <= 0:
        assert chosen[0, 0] == -1 and not growing.level
        return
    sides = own[growing.place == 1], own[growing.place == 2]
    assert np.isclose(gain(sides[0]) + gain(sides[1]) - gain(own), best)
    assert np.array_equal(growing.terms[1], sides[0].sum(axis=0))


@given(st.integers(0, 1000), st.integers(2, 3))
@settings(max_examples=20)
def test_rows_arrive_where_the_tree_sends_them(seed: int, classes: int) -> None:
    x, own = rows(seed), terms(seed, classes=classes)
    cells, base = Cells.of(SCHEMA, EDGES), np.full(classes, 1 / classes)
    growing = GrowingTree.planted(cells, cells.codes(x))
    for _ in range(3):
        if growing.level:
            growing.split(best_splits(growing.histogram(own), cells))
    tree, moved = growing.grown(0.5, base)
    fc.DecisionTreeLeaf.from_arrays(
        tree.to_arrays(), SCHEMA, fc.Variable("t", "category", ("p", "q", "r")[:classes])
    )
    assert np.array_equal(tree.answers(x), probabilities(moved, base)[growing.place])
    for node in np.unique(growing.place):
        here = own[growing.place == node].sum(axis=0)
        assert np.allclose(moved[node], steps(here[None], 0.5)[0])


def test_gradients_are_those_of_the_likelihood() -> None:
    base, y = np.array([0.2, 0.3, 0.5]), np.array([0, 2])
    scores, weight = np.array([[0.1, -0.4, 0.3], [0.0, 0.2, -0.1]]), np.array([1.0, 2.0])

    def likelihood(moved: Array) -> float:
        return float(weight @ np.log(probabilities(moved, base)[np.arange(2), y]))

    found = gradients(scores, base, y, weight)
    for i in range(2):
        for k in range(3):
            step = np.zeros((2, 3))
            step[i, k] = 1e-5
            slope = (likelihood(scores + step) - likelihood(scores - step)) / 2e-5
            assert abs(found[i, k] - slope) < 1e-6


def test_a_class_that_no_row_has_stays_impossible() -> None:
    base = np.array([0.0, 0.5, 0.5])
    assert probabilities(np.array([[5.0, 1.0, 1.0]]), base).tolist() == [[0.0, 0.5, 0.5]]
    found = gradients(np.zeros((1, 3)), base, np.array([1]), np.ones(1))
    assert found.tolist() == [[0.0, 0.5, -0.5, 0.0, 0.25, 0.25]]

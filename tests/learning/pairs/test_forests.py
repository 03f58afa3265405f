"""Mixtures of forests over states: messages against enumeration, tables, and what is chosen."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedcircuits.learning.chow_liu.forests import Messages, table_of
from fedcircuits.learning.chow_liu.stacking import learn_forest, stacked_weights
from fedcircuits.learning.chow_liu.states import StateRows, gains
from fedcircuits.learning.chow_liu.trees import spanning_tree

SIZES = (2, 3, 2)
EDGES = [(1, -1), (0, 1), (2, 1)]


def some_tables() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.dirichlet(np.ones(SIZES[c]), 1 if p < 0 else SIZES[p]) for c, p in EDGES]


def probability(states: tuple[int, ...]) -> float:
    found = 1.0
    for (column, parent), table in zip(EDGES, some_tables(), strict=True):
        found *= table[states[parent] if parent >= 0 else 0, states[column]]
    return found


def rows_of(states: object, ordered: tuple[bool, ...] = (False, True, False)) -> StateRows:
    return StateRows(np.array(states, np.int64), SIZES, ordered)


@pytest.mark.parametrize("row", [(0, 1, 1), (-1, 2, 0), (1, -1, 1), (-1, -1, -1)])
def test_likelihoods_are_those_of_enumeration(row: tuple[int, ...]) -> None:
    fits = [
        s
        for s in product(*map(range, SIZES))
        if all(r in (-1, k) for r, k in zip(row, s, strict=True))
    ]
    found = Messages(rows_of([row]), EDGES, some_tables())
    assert np.isclose(np.exp(found.log[0]), sum(map(probability, fits)))
    counts = found.counts(np.ones(1))
    for (column, parent), own in zip(EDGES, counts, strict=True):
        expected = np.zeros(own.shape)
        for s in fits:
            expected[s[parent] if parent >= 0 else 0, s[column]] += probability(s)
        assert np.allclose(own, expected / expected.sum())


def test_ordered_columns_lean_on_their_correlation() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    y = 0.9 * x + np.sqrt(1 - 0.81) * rng.normal(size=4000)

    def cells(values: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.quantile(values, np.arange(1, 12) / 12), values)

    many = StateRows(np.stack([cells(x), cells(y)], 1), (12, 12), (True, True))
    few = many.rows(np.arange(150))
    truth = table_of(many.pair(0, 1), *many.shares, True)
    smooth = table_of(few.pair(0, 1), *few.shares, True)
    plain = table_of(few.pair(0, 1), *few.shares, False)
    assert np.allclose(smooth.sum(axis=1), 1)
    assert np.abs(smooth - truth).mean() < 0.8 * np.abs(plain - truth).mean()


def test_a_chain_is_found_and_noise_is_not() -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(3, size=400)
    b = np.where(rng.random(400) < 0.85, a, rng.integers(3, size=400))
    c = np.where(rng.random(400) < 0.85, b, rng.integers(3, size=400))
    noise = rng.integers(3, size=400)
    rows = StateRows(np.stack([a, c, b, noise], 1), (3, 3, 3, 3), (False,) * 4)
    found = spanning_tree(gains(rows), 0.0)
    pairs = {frozenset(edge) for edge in found if edge[1] >= 0}
    assert pairs == {frozenset({0, 2}), frozenset({1, 2})}


def test_where_nothing_depends_nothing_is_joined() -> None:
    rng = np.random.default_rng(3)
    rows = StateRows(rng.integers(5, size=(300, 6)), (5,) * 6, (True,) * 6)
    learned = learn_forest(rows, rng)
    assert all(parent < 0 for _, parent in learned.components[0][0]) and learned.gain == 0


def test_columns_that_no_row_joins_are_apart() -> None:
    rng = np.random.default_rng(4)
    a = rng.integers(3, size=300)
    states = np.stack([a, a, a], 1)
    states[:150, 2] = -1
    states[150:, :2] = -1
    learned = learn_forest(StateRows(states, (3, 3, 3), (False,) * 3), rng)
    joined = {frozenset(e) for edges, _ in learned.components for e in edges if e[1] >= 0}
    assert joined == {frozenset({0, 1})}


def test_components_are_taken_where_a_tree_is_not_enough() -> None:
    rng = np.random.default_rng(5)
    hidden = rng.integers(3, size=1500)
    states = np.where(
        rng.random((1500, 8)) < 0.75, hidden[:, None], rng.integers(3, size=(1500, 8))
    )
    rows = StateRows(states, (3,) * 8, (False,) * 8)
    learned = learn_forest(rows, rng)
    assert len(learned.weights) > 1 and np.isclose(learned.weights.sum(), 1)
    assert learned.gain > 1


def test_the_order_of_rows_does_not_count() -> None:
    rng = np.random.default_rng(6)
    a = rng.integers(3, size=(300, 1))
    states = np.where(rng.random((300, 4)) < 0.7, a, rng.integers(3, size=(300, 4)))
    rows = StateRows(states, (3,) * 4, (False,) * 4)
    one, other = (
        learn_forest(rows.rows(order), np.random.default_rng(0))
        for order in (np.arange(300), rng.permutation(300))
    )
    assert np.array_equal(one.weights, other.weights)
    for (edges, left), (others, right) in zip(one.components, other.components, strict=True):
        assert edges == others
        assert all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


def test_rows_held_back_weigh_models_that_know_different_rows() -> None:
    """Two models that each explain half of the rows share the weight; a useless one has none."""
    logs = np.full((3, 200), -5.0)
    logs[0, :100] = logs[1, 100:] = -1.0
    weights = stacked_weights(logs)
    assert np.isclose(weights.sum(), 1) and weights[2] < 0.03
    assert 0.4 < weights[0] < 0.6

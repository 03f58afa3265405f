"""Forests over states: edges, tables, and what rows held back say of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedcircuits.learning.pairs.copulas import copula, correlation
from fedcircuits.learning.pairs.forests import (
    Edges,
    ForestModel,
    differing_forests,
    table_of,
    worth_of_edges,
)
from fedcircuits.learning.pairs.tables import TablesOfPairs
from tests.learning.pairs.counting import (
    ONE_CAUSE,
    TWO_KINDS,
    counted,
    log_likelihoods,
    one_cause,
    true_gain,
    two_kinds,
)


def joined(edges: Edges) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in edges if edge[1] >= 0}


def best_forest(tables: TablesOfPairs, by_class: bool = False) -> ForestModel:
    [edges] = differing_forests(worth_of_edges(tables, by_class), 1)
    return ForestModel(tables, edges, by_class)


def chain(rows: int, seed: int) -> np.ndarray:
    """0 — 2 — 1, and noise."""
    rng = np.random.default_rng(seed)
    a = rng.integers(3, size=rows)
    b = np.where(rng.random(rows) < 0.85, a, rng.integers(3, size=rows))
    c = np.where(rng.random(rows) < 0.85, b, rng.integers(3, size=rows))
    return np.stack([a, c, b, rng.integers(3, size=rows)], 1)


def test_a_chain_is_found_and_noise_is_not() -> None:
    tables = counted(chain(400, 2), (3,) * 4, (False,) * 4)
    assert joined(best_forest(tables).edges) == {frozenset({0, 2}), frozenset({1, 2})}


def test_another_forest_avoids_the_edges_of_the_first() -> None:
    tables = counted(one_cause(400), *ONE_CAUSE)
    first, second = differing_forests(worth_of_edges(tables, False), 2)
    assert len(joined(first)) == len(joined(second)) == 8
    assert not joined(first) & joined(second)


def test_ordered_columns_lean_on_their_correlation() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    y = 0.9 * x + np.sqrt(1 - 0.81) * rng.normal(size=4000)

    def cells(values: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.quantile(values, np.arange(1, 12) / 12), values)

    states = np.stack([cells(x), cells(y)], 1)
    many, few = (counted(s, (12, 12), (True, True)) for s in (states, states[:150]))
    truth = of_edge(many, True)
    smooth, plain = of_edge(few, True), of_edge(few, False)
    assert np.allclose(smooth.sum(axis=1), 1)
    assert np.abs(smooth - truth).mean() < 0.8 * np.abs(plain - truth).mean()


def of_edge(tables: TablesOfPairs, ordered: bool) -> np.ndarray:
    above, below = (tables.shares(c, False)[0] for c in range(2))
    rows = tables.pair(0, 1, False).rows[0]
    few = copula(correlation(rows, above, below), above, below) if ordered else below[None]
    return table_of(rows, few, below, ordered)


def test_columns_that_no_row_joins_are_apart() -> None:
    states = np.repeat(np.random.default_rng(4).integers(3, size=(300, 1)), 3, axis=1)
    states[:150, 2] = -1
    states[150:, :2] = -1
    tables = counted(states, (3, 3, 3), (False,) * 3)
    assert joined(best_forest(tables).edges) == {frozenset({0, 1})}


def test_a_model_is_a_distribution() -> None:
    tables = counted(chain(300, 0), (3,) * 4, (False,) * 4)
    every = np.array(list(product(range(3), repeat=4)))
    for model in (best_forest(tables), ForestModel(tables, [(c, -1) for c in range(4)], False)):
        assert np.exp(log_likelihoods(model.mixed(), every)).sum() == pytest.approx(1)


def test_classes_have_tables_of_their_own_and_know_themselves() -> None:
    tables = counted(two_kinds(600, 0), *TWO_KINDS, known=6)
    model = best_forest(tables, by_class=True)
    found = model.mixed()
    assert len(found.weights) == 2 and found.weights.sum() == pytest.approx(1)
    assert all(6 not in edge for edge in joined(model.edges))
    for kind, (edges, own) in enumerate(found.forests):
        [table] = [t for (column, _), t in zip(edges, own, strict=True) if column == 6]
        assert table[0, kind] > 0.99


# ---------------------------------------------------------------------- rows held back


def test_rows_held_back_gain_what_fresh_rows_do() -> None:
    tables = counted(chain(500, 0), (3,) * 4, (False,) * 4)
    fresh = chain(20_000, 1)
    model = best_forest(tables)
    expected = true_gain(model.mixed(), tables, fresh)
    assert expected > 0.5
    assert model.gain(counted(fresh, (3,) * 4, (False,) * 4)) == pytest.approx(expected, abs=0.01)


def test_rows_held_back_gain_what_fresh_rows_do_by_class() -> None:
    """Once the class counted twice: with the forest, and with what it says of each column."""
    tables, fresh = counted(two_kinds(500, 0), *TWO_KINDS, known=6), two_kinds(20_000, 1)
    model = best_forest(tables, by_class=True)
    expected = true_gain(model.mixed(), tables, fresh)
    assert expected > 1
    held = counted(fresh, *TWO_KINDS, known=6)
    assert model.gain(held) == pytest.approx(expected, abs=0.02)


def told_by_class(rows: int, seed: int) -> np.ndarray:
    """Columns that depend by the class alone, the last."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    x = np.where(rng.random((rows, 4)) < 0.7, kind[:, None], rng.integers(3, size=(rows, 4)))
    return np.hstack([x, kind[:, None]])


def test_what_the_class_says_of_columns_counts_once() -> None:
    sizes, ordered = (3,) * 5, (False,) * 5
    tables, fresh = counted(told_by_class(500, 0), sizes, ordered, 4), told_by_class(20_000, 1)
    model = best_forest(tables, by_class=True)
    assert not joined(model.edges)
    expected = true_gain(model.mixed(), tables, fresh)
    assert expected > 1
    assert model.gain(counted(fresh, sizes, ordered, 4)) == pytest.approx(expected, abs=0.03)
    star = best_forest(tables)  # around the class
    assert all(4 in edge for edge in joined(star.edges))
    assert star.gain(counted(fresh, sizes, ordered, 4)) == pytest.approx(expected, abs=0.03)


def test_rows_of_groups_say_about_the_same() -> None:
    """A forest that was learned from, or is judged by, pairs of neighbouring states."""
    states, fresh = one_cause(2_000), one_cause(10_000, seed=1)
    groups = {c: np.arange(8) // 2 for c in range(8)}
    fine = counted(states, *ONE_CAUSE)
    coarse = counted(states, *ONE_CAUSE, groups=groups)
    edges = best_forest(fine).edges
    models = [ForestModel(tables, edges, False) for tables in (fine, coarse)]
    gains = [true_gain(model.mixed(), fine, fresh) for model in models]
    assert gains[0] > 1.9 and gains[1] > gains[0] - 0.25
    judged = [counted(fresh, *ONE_CAUSE, groups=g) for g in (None, groups)]
    by_fine, by_coarse = (models[0].gain(held) for held in judged)
    assert by_fine == pytest.approx(gains[0], abs=0.05)
    assert by_fine - 0.5 < by_coarse < by_fine

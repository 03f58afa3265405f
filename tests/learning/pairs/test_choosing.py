"""What joins columns, chosen by rows that are held back."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.pairs.choosing import LearnedPairs, learn_pairs
from tests.learning.pairs.counting import (
    ONE_CAUSE,
    TWO_KINDS,
    apart,
    counted,
    few_joined,
    log_likelihoods,
    one_cause,
    true_gain,
    two_kinds,
)


def flat(learned: LearnedPairs) -> np.ndarray:
    """Which components join no columns."""
    return np.array([all(p < 0 for _, p in edges) for edges, _ in learned.mixture.forests])


def test_where_nothing_depends_nothing_is_joined() -> None:
    rng = np.random.default_rng(3)
    tables = counted(rng.integers(5, size=(300, 6)), (5,) * 6, (True,) * 6)
    learned = learn_pairs(tables, rng)
    assert len(learned.mixture.weights) == 1 and flat(learned).all()
    assert learned.gains.tolist() == [0.0] and not learned.refused


def test_columns_that_no_row_joins_are_apart() -> None:
    states = np.repeat(np.random.default_rng(4).integers(3, size=(300, 1)), 3, axis=1)
    states[:150, 2] = -1
    states[150:, :2] = -1
    learned = learn_pairs(counted(states, (3, 3, 3), (False,) * 3), np.random.default_rng(0))
    edges = [frozenset(e) for own, _ in learned.mixture.forests for e in own if e[1] >= 0]
    assert set(edges) == {frozenset({0, 1})}


def test_factors_are_taken_where_forests_fall_short() -> None:
    learned = learn_pairs(counted(one_cause(400), *ONE_CAUSE), np.random.default_rng(0))
    assert learned.mixture.weights.sum() == pytest.approx(1)
    assert learned.mixture.weights[flat(learned)].sum() > 0.5 and len(learned.mixture.weights) > 20
    assert len(learned.gains) == 3 and learned.gains.mean() > 2


def test_forests_are_taken_where_columns_have_no_order() -> None:
    states = one_cause(400)
    tables = counted(states, ONE_CAUSE[0], (False,) * 9)
    learned = learn_pairs(tables, np.random.default_rng(0))
    assert len(learned.mixture.weights) < 10 and not flat(learned)[:-1].any()
    assert learned.mixture.weights[flat(learned)].sum() < 0.05


def test_what_classes_show_is_used() -> None:
    tables, fresh = counted(two_kinds(600, 0), *TWO_KINDS, known=6), two_kinds(2_000, 1)
    learned = learn_pairs(tables, np.random.default_rng(0))
    without = learn_pairs(counted(two_kinds(600, 0), *TWO_KINDS), np.random.default_rng(0))
    assert learned.gains.mean() > 2
    gains = [true_gain(found.mixture, tables, fresh) for found in (learned, without)]
    assert gains[0] > gains[1] + 0.5
    assert learned.gains.mean() == pytest.approx(gains[0], abs=0.5)


def test_independent_columns_gain_nothing() -> None:
    """Cells are cut by all rows, so that those held back fill up what the others lack: shares of
    states are known, and no smoothing of them counts as dependence."""
    rng = np.random.default_rng(5)
    order = np.argsort(rng.random((300, 8)), axis=0)
    states = np.empty((300, 8), np.int64)
    np.put_along_axis(states, order, np.arange(300)[:, None] // 20, axis=0)
    learned = learn_pairs(counted(states, (15,) * 8, (True,) * 8), rng)
    assert learned.gains.mean() < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_few_joined_rows_say_how_columns_depend(seed: int) -> None:
    tables = counted(few_joined(one_cause(300, seed), 30), *ONE_CAUSE)
    learned = learn_pairs(tables, np.random.default_rng(0))
    assert learned.gains.mean() > 0
    assert true_gain(learned.mixture, tables, one_cause(500, seed + 9)) > 1


def test_few_joined_rows_of_columns_that_do_not_depend() -> None:
    sizes, ordered, gains = (8, 8, 8, 3, 3, 5), (True, True, True, False, False, False), []
    for seed in range(5):
        drawn = np.random.default_rng(seed).integers(sizes, size=(800, 6))
        tables = counted(few_joined(drawn[:300], 12 + 12 * seed), sizes, ordered)
        learned = learn_pairs(tables, np.random.default_rng(0))
        gains.append(true_gain(learned.mixture, tables, drawn[300:]))
    assert np.mean(gains) > -0.05 and min(gains) > -0.2


def test_a_column_that_is_one_state_says_nothing() -> None:
    states = np.hstack([one_cause(200), np.zeros((200, 1), np.int64)])
    tables = counted(states, (*ONE_CAUSE[0], 1), (*ONE_CAUSE[1], True))
    learned = learn_pairs(tables, np.random.default_rng(0))
    found = log_likelihoods(learned.mixture, states)
    assert np.isfinite(found).all() and found.mean() > apart(tables, states).mean() + 2


def test_few_columns_are_joined() -> None:
    """A single column, and two: too few for factors."""
    alone = learn_pairs(counted(one_cause(50)[:, :1], (8,), (True,)), np.random.default_rng(0))
    assert flat(alone).all() and alone.gains.tolist() == [0.0]
    two = counted(one_cause(300)[:, :2], (8, 8), (True, True))
    learned = learn_pairs(two, np.random.default_rng(0))
    assert true_gain(learned.mixture, two, one_cause(2_000, 1)[:, :2]) > 0.15


def test_the_class_alone_with_one_column() -> None:
    states = one_cause(300)[:, [0, 8]]
    tables = counted(states, (8, 2), (True, False), known=1)
    learned = learn_pairs(tables, np.random.default_rng(0))
    assert true_gain(learned.mixture, tables, one_cause(2_000, 1)[:, [0, 8]]) > 0.2


def test_edges_by_chance_are_refused() -> None:
    """Found in few rows, and rows held back are likelier without: it is said."""
    states = np.random.default_rng(7).integers(4, size=(40, 10))
    tables = counted(states, (4,) * 10, (True,) * 5 + (False,) * 5)
    learned = learn_pairs(tables, np.random.default_rng(0))
    assert learned.refused and flat(learned).all() and len(learned.mixture.weights) == 1


@pytest.mark.parametrize("rows", [40, 150])
def test_columns_that_do_not_depend_are_seldom_joined(rows: int) -> None:
    """Neither by forests nor by factors, which rows held back do not confirm."""
    joined = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        states = rng.integers(4, size=(rows, 10))
        tables = counted(states, (4,) * 10, (True,) * 5 + (False,) * 5)
        joined += len(learn_pairs(tables, rng).mixture.weights) > 1
    assert joined <= 3

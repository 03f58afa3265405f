"""Factors behind all columns: pairs that no edge joins, gaps, other columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from fedcircuits.learning.chow_liu.factors import FactorMixture, factor_mixture
from fedcircuits.learning.chow_liu.forests import joint_logs
from fedcircuits.learning.chow_liu.stacking import LearnedForest, learn_forest
from fedcircuits.learning.chow_liu.states import StateRows, correlation_of

CUTS = np.linspace(-1.5, 1.5, 7)


def one_cause(rows: int, seed: int = 0, columns: int = 8) -> StateRows:
    """Columns of correlation 0.64, and the sign of their cause."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 1))
    x = 0.8 * z + 0.6 * rng.normal(size=(rows, columns))
    states = np.hstack([np.digitize(x, CUTS), z > 0]).astype(np.int64)
    return StateRows(states, (*[8] * columns, 2), (*[True] * columns, False))


def one_component(rows: StateRows, factors: int) -> FactorMixture:
    return factor_mixture(rows, factors, np.ones((1, len(rows))))


def pair(found: FactorMixture, a: int, b: int) -> np.ndarray:
    return (found.weights[:, None] * found.tables[a]).T @ found.tables[b]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_every_pair_of_columns_depends(number: int) -> None:
    found = one_component(one_cause(400), number)
    assert found.weights.sum() == pytest.approx(1)
    assert all(table.sum(axis=1) == pytest.approx(1) for table in found.tables)
    truth = one_cause(100_000, seed=1)
    for a, b in ((0, 1), (2, 7), (3, 8)):
        assert np.abs(pair(found, a, b) - truth.pair(a, b) / len(truth)).max() < 0.04


def test_points_have_the_likelihoods_of_their_tables() -> None:
    rows = one_cause(60)
    found = one_component(rows, 1)
    states = rows.states.copy()
    states[:, 3] = -1
    logs = found.logs(StateRows(states, rows.sizes, rows.ordered))
    expected = found.weights * np.prod(
        [found.tables[c][:, states[7, c]] for c in range(9) if c != 3], axis=0
    )
    assert np.exp(logs[:, 7]) == pytest.approx(expected)


def test_rows_with_gaps_count() -> None:
    rows, rng = one_cause(600), np.random.default_rng(3)
    states = np.where(rng.random(rows.states.shape) < 0.4, -1, rows.states)
    found = one_component(StateRows(states, rows.sizes, rows.ordered), 1)
    truth = one_cause(100_000, seed=1)
    assert np.abs(pair(found, 0, 5) - truth.pair(0, 5) / len(truth)).max() < 0.04


def two_kinds(rows: int, seed: int) -> tuple[StateRows, np.ndarray]:
    """Two classes, in which columns follow one cause in opposite directions."""
    rng = np.random.default_rng(seed)
    kind, z = rng.integers(2, size=rows), rng.normal(size=(rows, 1))
    sign = np.where(np.arange(6) < 3, 1.0, np.where(kind == 1, 1, -1)[:, None])
    x = 0.9 * sign * z + 0.45 * rng.normal(size=(rows, 6))
    states = np.hstack([np.digitize(x, CUTS), kind[:, None]]).astype(np.int64)
    return StateRows(states, (*[8] * 6, 2), (*[True] * 6, False)), kind


def test_classes_have_factors_of_their_own() -> None:
    """What all rows together do not show."""
    rows, kind = two_kinds(600, 0)
    test, _ = two_kinds(2000, 1)
    begin = np.where(kind == np.arange(2)[:, None], 0.95, 0.05)
    both = factor_mixture(rows, 1, begin)
    scores = [float(logsumexp(m.logs(test), axis=0).mean())
              for m in (one_component(rows, 1), one_component(rows, 2), both)]  # fmt: skip
    assert scores[2] > max(scores[:2]) + 0.5
    learned = learn_forest(rows, np.random.default_rng(0), kind)
    assert learned.gain > 2


def test_columns_without_order_have_no_factors() -> None:
    rows = one_cause(100)
    learned = learn_forest(
        StateRows(rows.states, rows.sizes, (False,) * 9), np.random.default_rng(0)
    )
    assert len(learned.weights) < 50


def test_they_are_taken_where_forests_fall_short() -> None:
    learned = learn_forest(one_cause(400), np.random.default_rng(0))
    flat = [all(p < 0 for _, p in edges) for edges, _ in learned.components]
    assert learned.weights[flat].sum() > 0.5


def test_independent_columns_gain_nothing_by_them() -> None:
    """Cells are cut by all rows, so that those held back fill up what the others lack: shares of
    states are known, and no smoothing of them counts as dependence."""
    rng = np.random.default_rng(5)
    order = np.argsort(rng.random((300, 8)), axis=0)
    states = np.empty((300, 8), np.int64)
    np.put_along_axis(states, order, np.arange(300)[:, None] // 20, axis=0)
    learned = learn_forest(StateRows(states, (15,) * 8, (True,) * 8), rng)
    assert learned.gain < 0.05


def few_joined(rows: StateRows, joined: int) -> StateRows:
    """So many whole rows among many of single columns."""
    rng, columns = np.random.default_rng(1), len(rows.sizes)
    states, left = rows.states.copy(), len(rows) - joined
    states[joined:][rng.integers(columns, size=left)[:, None] != np.arange(columns)] = -1
    return StateRows(states, rows.sizes, rows.ordered)


def gain_of(learned: LearnedForest, rows: StateRows, trained: StateRows) -> float:
    """Of whole rows over independent columns."""
    each = zip(learned.weights, learned.components, strict=True)
    logs = [np.log(weight) + joint_logs(rows, edges, np.ones(1), [tables])[1]
            for weight, (edges, tables) in each]  # fmt: skip
    apart = sum(np.log(share)[rows.states[:, c]] for c, share in enumerate(trained.shares))
    return float((logsumexp(np.stack(logs), axis=0) - apart).mean())


@pytest.mark.parametrize("seed", range(3))
def test_few_joined_rows_say_how_columns_depend(seed: int) -> None:
    rows = few_joined(one_cause(300, seed), 30)
    learned = learn_forest(rows, np.random.default_rng(0))
    assert learned.gain > 0 and gain_of(learned, one_cause(500, seed + 9), rows) > 1


def test_few_joined_rows_of_columns_that_do_not_depend() -> None:
    sizes, ordered, gains = (8, 8, 8, 3, 3, 5), (True, True, True, False, False, False), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        drawn = StateRows(rng.integers(sizes, size=(800, 6)), sizes, ordered)
        rows = few_joined(drawn.rows(np.arange(300)), 12 + 12 * seed)
        learned = learn_forest(rows, np.random.default_rng(0))
        gains.append(gain_of(learned, drawn.rows(np.arange(300, 800)), rows))
    assert np.mean(gains) > -0.05 and min(gains) > -0.2


def test_correlations_of_coarse_states_are_those_of_the_numbers() -> None:
    rng = np.random.default_rng(0)
    for r in (0.3, 0.8, 0.95):
        x = rng.normal(size=(20_000, 2)) @ np.linalg.cholesky([[1, r], [r, 1]]).T
        for states in (3, 7):
            cuts = np.linspace(-1.2, 1.2, states - 1)
            rows = StateRows(np.digitize(x, cuts), (states, states), (True, True))
            scores = [rows.scores(c)[rows.states[:, c]] for c in range(2)]
            left = np.sqrt(np.prod([np.var(score) for score in scores]))
            found = correlation_of(np.corrcoef(*scores)[0, 1], left)
            assert found == pytest.approx(r, abs=0.04)


def test_pairs_that_no_row_has_are_filled_in() -> None:
    """Columns 0 and 1 are never in the same row."""
    rows = one_cause(2_000)
    states = rows.states.copy()
    states[np.arange(2_000), np.arange(2_000) % 2] = -1
    found = one_component(StateRows(states, rows.sizes, rows.ordered), 1)
    truth = one_cause(100_000, seed=1)
    assert np.abs(pair(found, 0, 1) - truth.pair(0, 1) / len(truth)).max() < 0.02

"""Factors behind all columns: pairs that no edge joins, gaps, other columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from fedcircuits.learning.chow_liu.factors import FactorMixture, factor_mixture
from fedcircuits.learning.chow_liu.stacking import learn_forest
from fedcircuits.learning.chow_liu.states import StateRows

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


def test_few_joined_rows_are_not_held_back() -> None:
    """Thirty whole rows among many of single columns: all of them say how columns depend."""
    rows, rng = one_cause(300), np.random.default_rng(1)
    states = rows.states.copy()
    states[30:][rng.integers(9, size=270)[:, None] != np.arange(9)] = -1
    learned = learn_forest(StateRows(states, rows.sizes, rows.ordered), np.random.default_rng(0))
    assert len(learned.components) == 1 and learned.gain > 0

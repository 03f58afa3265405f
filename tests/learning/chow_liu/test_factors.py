"""Factors behind all columns: pairs that no edge joins, gaps, other columns."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.chow_liu.factors import factor_components
from fedcircuits.learning.chow_liu.forests import learn_forest
from fedcircuits.learning.chow_liu.states import StateRows, correlations

CUTS = np.linspace(-1.5, 1.5, 7)


def one_cause(rows: int, seed: int = 0, columns: int = 8) -> StateRows:
    """Columns of correlation 0.64, and the sign of their cause."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 1))
    x = 0.8 * z + 0.6 * rng.normal(size=(rows, columns))
    states = np.hstack([np.digitize(x, CUTS), z > 0]).astype(np.int64)
    return StateRows(states, (*[8] * columns, 2), (*[True] * columns, False))


def pair(components: tuple[np.ndarray, list[list[np.ndarray]]], a: int, b: int) -> np.ndarray:
    weights, tables = components
    return sum(w * t[a].T @ t[b] for w, t in zip(weights, tables, strict=True))


@pytest.mark.parametrize("number", [1, 2])
def test_every_pair_of_columns_depends(number: int) -> None:
    rows = one_cause(400)
    found = factor_components(rows, number)
    assert found is not None and found[0].sum() == pytest.approx(1)
    truth = one_cause(100_000, seed=1)
    for a, b in ((0, 1), (2, 7), (3, 8)):
        assert np.abs(pair(found, a, b) - truth.pair(a, b) / len(truth)).max() < 0.04


def test_correlations_are_of_what_was_cut() -> None:
    rows = one_cause(4000)
    found = correlations(rows, np.arange(8))
    assert found[~np.eye(8, dtype=bool)] == pytest.approx(0.64, abs=0.06)


def test_rows_with_gaps_count() -> None:
    rows, rng = one_cause(600), np.random.default_rng(3)
    states = np.where(rng.random(rows.states.shape) < 0.4, -1, rows.states)
    found = factor_components(StateRows(states, rows.sizes, rows.ordered), 1)
    assert found is not None
    truth = one_cause(100_000, seed=1)
    assert np.abs(pair(found, 0, 5) - truth.pair(0, 5) / len(truth)).max() < 0.04


def test_columns_without_order_have_no_factors() -> None:
    rows = one_cause(100)
    assert factor_components(StateRows(rows.states, rows.sizes, (False,) * 9), 1) is None


def test_they_are_taken_where_forests_fall_short() -> None:
    learned = learn_forest(one_cause(400), np.random.default_rng(0))
    flat = [all(p < 0 for _, p in edges) for edges, _ in learned.components]
    assert learned.weights[flat].sum() > 0.5

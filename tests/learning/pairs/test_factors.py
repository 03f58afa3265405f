"""Factors behind all columns: pairs that no edge joins, gaps, other columns."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.learning.pairs.factors import Correlations, FactorModel
from fedcircuits.learning.pairs.forests import MixedForests
from fedcircuits.learning.pairs.tables import TablesOfPairs
from tests.learning.pairs.counting import (
    ONE_CAUSE,
    TWO_KINDS,
    counted,
    one_cause,
    true_gain,
    two_kinds,
)

TRUTH = counted(one_cause(100_000, seed=1), *ONE_CAUSE)


def factors(tables: TablesOfPairs, number: int = 1, by_class: bool = False) -> FactorModel:
    return FactorModel(Correlations(tables, by_class), number)


def pair(found: MixedForests, a: int, b: int) -> np.ndarray:
    """P(states of both) of columns that are independent in every component."""
    tables = [[own[c][0] for _, own in found.forests] for c in (a, b)]
    return (found.weights[:, None] * np.array(tables[0])).T @ np.array(tables[1])


def furthest(found: MixedForests, a: int, b: int) -> float:
    truth = TRUTH.pair(a, b, False).rows[0]
    return float(np.abs(pair(found, a, b) - truth / truth.sum()).max())


@pytest.mark.parametrize("number", [1, 2, 4])
def test_every_pair_of_columns_depends(number: int) -> None:
    found = factors(counted(one_cause(400), *ONE_CAUSE), number).mixed()
    assert found.weights.sum() == pytest.approx(1)
    assert all(t.sum(axis=1) == pytest.approx(1) for _, own in found.forests for t in own)
    assert max(furthest(found, a, b) for a, b in ((0, 1), (2, 7), (3, 8))) < 0.04


def test_rows_with_gaps_count() -> None:
    states, rng = one_cause(600), np.random.default_rng(3)
    states = np.where(rng.random(states.shape) < 0.4, -1, states)
    assert furthest(factors(counted(states, *ONE_CAUSE)).mixed(), 0, 5) < 0.04


def test_columns_share_a_cause_though_no_row_has_both() -> None:
    states = one_cause(2_000)
    states[np.arange(2_000), np.arange(2_000) % 2] = -1
    assert furthest(factors(counted(states, *ONE_CAUSE)).mixed(), 0, 1) < 0.03


def test_columns_that_no_row_joins_are_apart() -> None:
    """Two groups of columns, of different rows: a factor of each, and nothing between them."""
    states = one_cause(800)[:, :8]
    states[:400, 4:] = -1
    states[400:, :4] = -1
    found = factors(counted(states, (8,) * 8, (True,) * 8), 2).mixed()
    within, between = pair(found, 0, 1), pair(found, 0, 5)
    independent = between.sum(axis=1)[:, None] * between.sum(axis=0)
    assert np.abs(between - independent).max() < 0.002
    assert np.abs(within - within.sum(axis=1)[:, None] * within.sum(axis=0)).max() > 0.015


def test_columns_without_order_have_no_factors() -> None:
    tables = counted(one_cause(100), ONE_CAUSE[0], (False,) * 9)
    assert not Correlations(tables, False).enough


def test_what_has_no_order_depends_on_the_factors() -> None:
    """Five unordered states, by a cause that the ordered columns tell."""
    states, fresh = (np.hstack([s, mixed_up(s)]) for s in (one_cause(1_000), one_cause(5_000, 1)))
    sizes, ordered = (*ONE_CAUSE[0], 5), (*ONE_CAUSE[1], False)
    tables = counted(states, sizes, ordered)
    model, without = factors(tables), factors(counted(states[:, :9], *ONE_CAUSE))
    gains = [true_gain(model.mixed(), tables, fresh)]
    gains.append(true_gain(without.mixed(), without.known.tables, fresh[:, :9]))
    assert gains[0] > gains[1] + 0.3


def mixed_up(states: np.ndarray) -> np.ndarray:
    """Groups of the sum of all columns under numbers in no order (rows, 1)."""
    return np.array([3, 0, 4, 1, 2])[np.digitize(states.sum(axis=1), [16, 24, 33, 41])][:, None]


def test_classes_have_factors_of_their_own() -> None:
    """What all rows together do not show."""
    tables, fresh = counted(two_kinds(600, 0), *TWO_KINDS, known=6), two_kinds(2_000, 1)
    models = factors(tables, 1), factors(tables, 2), factors(tables, 1, by_class=True)
    gains = [true_gain(model.mixed(), tables, fresh) for model in models]
    assert gains[2] > max(gains[:2]) + 0.5


@pytest.mark.parametrize("number", [1, 2])
def test_rows_held_back_gain_about_what_fresh_rows_do(number: int) -> None:
    tables, fresh = counted(one_cause(500), *ONE_CAUSE), one_cause(10_000, seed=2)
    model = factors(tables, number)
    expected = true_gain(model.mixed(), tables, fresh)
    assert expected > 2
    assert model.gain(counted(fresh, *ONE_CAUSE)) == pytest.approx(expected, abs=0.3)


def test_rows_held_back_gain_about_what_fresh_rows_do_by_class() -> None:
    """Once the class counted twice, as one that says something of each column and of factors."""
    tables, fresh = counted(two_kinds(600, 0), *TWO_KINDS, known=6), two_kinds(10_000, 1)
    model = factors(tables, 1, by_class=True)
    expected = true_gain(model.mixed(), tables, fresh)
    assert expected > 2
    assert model.gain(counted(fresh, *TWO_KINDS, known=6)) == pytest.approx(expected, abs=0.4)


def test_tables_in_groups_give_about_the_same_model() -> None:
    states, fresh = one_cause(2_000), one_cause(5_000, seed=1)
    groups = {c: np.array([0, 0, 1, 1, 2, 2, 3, 3]) for c in range(8)}
    fine, coarse = (factors(counted(states, *ONE_CAUSE, groups=g)) for g in (None, groups))
    gains = [true_gain(model.mixed(), fine.known.tables, fresh) for model in (fine, coarse)]
    assert gains[0] > 2 and gains[1] == pytest.approx(gains[0], abs=0.05)
    assert coarse.loadings == pytest.approx(fine.loadings * np.sign(
        coarse.loadings[:, :1] * fine.loadings[:, :1]), abs=0.05)  # fmt: skip


def test_correlations_of_coarse_groups_are_those_of_the_numbers() -> None:
    rng = np.random.default_rng(0)
    for r in (0.3, 0.8, 0.95):
        mixing = np.linalg.cholesky([[1, r, 0], [r, 1, 0], [0, 0, 1]])
        x = rng.normal(size=(20_000, 3)) @ mixing.T
        states = np.digitize(x, np.linspace(-2, 2, 23))
        for groups in (np.arange(24), np.digitize(np.arange(24), [8, 16]), np.arange(24) * 7 // 24):
            tables = counted(states, (24,) * 3, (True,) * 3, groups=dict.fromkeys(range(3), groups))
            found = Correlations(tables, False).matrices[0]
            assert found[0, 1] == pytest.approx(r, abs=0.04)
            assert abs(found[0, 2]) < 0.04

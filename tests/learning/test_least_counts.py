"""Counts of few rows: pooled, dropped or spread, and off with a least count of one."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.learning.least_counts import (
    RareValues,
    pooled,
    rare_mixed,
    without_few,
    without_rare,
)
from fedcircuits.learning.spn.fits import Grid


def test_one_row_is_enough_for_nothing_to_change() -> None:
    counts = np.array([3.0, 1.0, 0.0])
    assert pooled(counts, 1) is counts


@pytest.mark.parametrize("rare", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0), (2, 1, 1)])
def test_few_rows_count_as_none(rare: tuple[int, int, int]) -> None:
    """Beside one category that all others have, nothing tells whether there are any."""
    found = pooled(np.array([50.0 - sum(rare), *rare]), 5)
    assert np.allclose(found, [50, 0, 0, 0])


def test_rows_that_are_enough_together_are_spread() -> None:
    shares = np.array([0.5, 0.1, 0.3, 0.1])
    found = pooled(np.array([40.0, 4, 3, 3]), 5, shares)
    assert np.allclose(found, [40, 2, 6, 2])
    assert np.allclose(found, pooled(np.array([40.0, 2, 4, 4]), 5, shares))


def test_where_none_is_common() -> None:
    assert np.allclose(pooled(np.array([2.0, 1.0]), 5, np.array([0.25, 0.75])), [0.75, 2.25])
    assert np.allclose(pooled(np.zeros((2, 3)), 5), 0)


def test_columns_with_few_values() -> None:
    x = np.full((10, 2), np.nan)
    x[:6, 0], x[:3, 1] = 1.0, 7.0
    assert np.array_equal(np.isnan(without_few(x, 5)).sum(axis=0), [4, 10])


def test_which_rare_category_a_row_has_is_forgotten() -> None:
    common = ["a"] * 40 + ["b"] * 8
    tables = [
        fc.Table.of({"x": [*common, *rare]}, categories={"x": list("abcde")})
        for rare in (["c", "d", "d"], ["e", "c", "c"])
    ]
    first, second = (rare_mixed(t, 5).values for t in tables)
    assert np.array_equal(first, second)
    assert not np.array_equal(tables[0].values, tables[1].values)


@pytest.mark.parametrize("count", [True])
def test_edges_of_bins_do_not_go_by_single_rows(count: bool) -> None:
    """Another smallest and another largest value: mostly the same ends, and never far off."""
    rng = np.random.default_rng(0)
    weight, same, plain = np.ones(200), [], []
    for _ in range(40):
        column = np.sort(rng.choice(np.arange(10, 400), 200, replace=False)).astype(float)
        other = column.copy()
        other[0], other[-1] = column[0] + 0.5 * (not count) + count, column[-1] - 1
        one, two = (Grid.of(c, weight, count, least=5).edges for c in (column, other))
        same.append(np.array_equal(one[[0, -1]], two[[0, -1]]))
        moved = np.abs(one - two)[[0, -1]].max() if len(one) == len(two) else 0.0
        assert moved <= max(np.diff(one)[[0, -1 - count]].max(), 1.0)
        assert one[0] < column[0] and one[-1] > column[-1]
        assert (np.diff(one) > 0).all() and len(one) > 20
        edges = [Grid.of(c, weight, count).edges[[0, -1]] for c in (column, other)]
        plain.append(np.array_equal(*edges))
    assert np.mean(same) > 0.6 and not any(plain)


@pytest.mark.parametrize("count", [True])
def test_values_that_many_rows_share_have_bins_of_their_own(count: bool) -> None:
    """Also the smallest, and numbers that only look like reals; as without a least count."""
    rng = np.random.default_rng(1)
    column = np.minimum(rng.poisson(2.0, 400), 6).astype(float)
    plain, careful = (Grid.of(column, np.ones(400), count, least=n).edges for n in (1, 5))
    inside = (careful > -0.6) & (careful < 6.6)
    np.testing.assert_allclose(careful[inside], np.arange(8) - 0.5)
    np.testing.assert_allclose(plain[(plain > -0.6) & (plain < 6.6)], careful[inside])


def test_a_heavy_smallest_value_has_a_narrow_bin() -> None:
    """Nine of ten rows are exactly 0 and the others reach far: the bin of 0 does not."""
    rng = np.random.default_rng(2)
    column = np.where(rng.random(500) < 0.9, 0.0, np.round(np.exp(rng.normal(8, 1, 500))))
    for least in (1, 5):
        grid = Grid.of(column, np.ones(500), False, least=least)
        at = int(grid.share.argmax())
        assert grid.edges[at] < 0 < grid.edges[at + 1]
        assert grid.edges[at + 1] - grid.edges[at] < 0.01 * column.std(), least


@pytest.mark.parametrize("column", [np.full(40, 3.0), np.array([0.0, 0.0, 7.0]), np.zeros(2)])
@pytest.mark.parametrize("count", [True, False])
def test_few_values_and_few_rows_have_bins(column: np.ndarray, count: bool) -> None:
    grid = Grid.of(column, np.ones(len(column)), count, least=5)
    assert (np.diff(grid.edges) > 0).all() and np.isfinite(grid.edges).all()
    assert (grid.codes >= 0).all() and grid.share.sum() == pytest.approx(1)


def test_far_values_do_not_widen_the_first_bin() -> None:
    """One row lies a thousand times as far out as the others."""
    column = np.append(np.random.default_rng(3).random(300), 5_000.0)
    edges = Grid.of(column, np.ones(301), False, least=5).edges
    assert -0.2 < edges[0] < 0.02 and np.median(np.diff(edges)) < 0.1


def test_rare_numbers_are_mixed_with_their_neighbours() -> None:
    """Grey levels that few rows have each stay about where they are."""
    counts = np.array([50.0, 1, 2, 0, 3, 1, 9, 0, 1, 0])
    runs = RareValues.of(0, counts, 5, ordered=True)
    assert [(one.codes, one.instead) for one in runs] == [
        ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5)), *((((code,), (6,))) for code in (7, 8, 9))
    ]  # fmt: skip
    column = np.repeat(np.arange(10.0), counts.astype(int))[:, None]
    told = without_rare(column, runs)[:, 0]
    np.testing.assert_array_equal(told[column[:, 0] == 0], 0)
    inner = (column[:, 0] > 0) & (column[:, 0] < 6)
    assert set(told[inner]) <= {1, 2, 3, 4, 5} and len(set(told[inner])) > 2
    assert told[-1] == 6 and len(told) == counts.sum()
    missing = np.where(column == 2, np.nan, column)
    assert (np.isnan(without_rare(missing, runs)) == np.isnan(missing)).all()

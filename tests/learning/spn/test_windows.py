"""Leaves of a column's cells, mixed by their rows, are the owner's distribution of the column."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

import fedcircuits as fc
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.learning.least_counts import rare_mixed
from fedcircuits.learning.spn.windows import cell_leaves, parts_of
from fedcircuits.methods.fedpc.cells import cells_of
from fedcircuits.methods.fedpc.views import CellTask

LEAST = 5
COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: np.exp(rng.normal(size=n)),
    "far out": lambda rng, n: rng.standard_t(1.5, size=n),
    "two modes": lambda rng, n: rng.normal(size=n) * 0.3 + 3 * (rng.random(n) < 0.4),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.gamma(2.0, 50.0, n)),
    "counts": lambda rng, n: rng.poisson(4.0, n),
    "heavy counts": lambda rng, n: rng.poisson(rng.gamma(0.3, 8.0, n)),
    "categories": lambda rng, n: np.array(list("abcdefghi"))[rng.geometric(0.35, n).clip(1, 9) - 1],
    "yes or no": lambda rng, n: rng.random(n) < 0.1,
}  # fmt: skip


def mixed(table: fc.Table, cells: np.ndarray, test: np.ndarray, parts: int = 1) -> np.ndarray:
    leaves = cell_leaves(table, "x", cells, LEAST, parts)
    rows = np.repeat(np.bincount(cells[cells >= 0]) / parts, parts)
    logs = [
        Distribution(*leaf).log_likelihood(test) + np.log(rows[k]) for k, leaf in leaves.items()
    ]
    return np.asarray(logsumexp(np.stack(logs), axis=0)) - np.log(rows.sum())


@pytest.mark.parametrize("rows", [40, 250])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_in_cells_is_as_likely_as_by_itself(name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    gains = []
    for _ in range(4):
        every = fc.Table.of({"x": COLUMNS[name](rng, rows + 2_000)})
        train, test = every.rows(np.arange(rows)), every.rows(np.arange(rows, rows + 2_000))
        train = rare_mixed(train, LEAST)
        for most in (3, 24):
            cells = cells_of(train, CellTask("x", most, True), LEAST)
            alone = fc.LearnSPN(least_count=LEAST, random_state=0).fit(train).score_samples(test)
            gains.append(float((mixed(train, cells, test.values) - alone).mean()))
    assert np.mean(gains) > -0.02 and min(gains) > -0.15


@pytest.mark.parametrize("name", ["normal", "skewed", "far out", "two modes"])
@pytest.mark.parametrize("rows", [40, 250])
def test_a_column_in_parts_of_cells_is_as_likely_as_by_itself(name: str, rows: int) -> None:
    rng, gains = np.random.default_rng(rows), []
    for _ in range(4):
        every = fc.Table.of({"x": COLUMNS[name](rng, rows + 2_000)})
        train, test = every.rows(np.arange(rows)), every.rows(np.arange(rows, rows + 2_000))
        for most in (3, 24):
            cells = cells_of(train, CellTask("x", most, True), LEAST)
            parts = parts_of(train, "x", cells, LEAST)
            assert parts > 1
            alone = fc.LearnSPN(least_count=LEAST, random_state=0).fit(train).score_samples(test)
            gains.append(float((mixed(train, cells, test.values, parts) - alone).mean()))
    assert np.mean(gains) > -0.05 and min(gains) > -0.25


def test_parts_are_in_rising_order_and_have_their_share_of_the_cell() -> None:
    table = fc.Table.of({"x": np.random.default_rng(0).gamma(2.0, size=500)})
    cells = cells_of(table, CellTask("x", 6, True), LEAST)
    parts = parts_of(table, "x", cells, LEAST)
    leaves = cell_leaves(table, "x", cells, LEAST, parts)
    assert parts == 16 and list(leaves) == list(range(6 * 16))
    grid = np.linspace(-2, 30, 64_001)[:, None]
    density = np.exp([Distribution(*leaf).log_likelihood(grid) for leaf in leaves.values()])
    assert density.sum(axis=1) * (grid[1, 0] - grid[0, 0]) == pytest.approx(1, abs=0.02)
    means = (density * grid[:, 0]).sum(axis=1) / density.sum(axis=1)
    assert (np.diff(means) > 0).all()
    for k in range(1, 5):  # beyond the outer ones are tails
        own = density[k * parts : (k + 1) * parts].mean(axis=0)
        x = table.values[cells == k, 0]
        near = (grid[:, 0] > x.min() - 0.05) & (grid[:, 0] < x.max() + 0.05)
        assert own[near].sum() > 0.85 * own.sum()


@pytest.mark.parametrize("name", ["mostly zero", "counts", "categories", "yes or no"])
def test_columns_that_are_not_smooth_have_no_parts(name: str) -> None:
    table = fc.Table.of({"x": COLUMNS[name](np.random.default_rng(0), 300)})
    cells = cells_of(table, CellTask("x", 6, True), LEAST)
    assert parts_of(table, "x", cells, LEAST) == 1


def test_windows_lie_at_their_cells() -> None:
    x = np.random.default_rng(0).normal(size=400)
    table = fc.Table.of({"x": x})
    cells = cells_of(table, CellTask("x", 6, True), LEAST)
    for k, leaf in cell_leaves(table, "x", cells, LEAST).items():
        own = np.exp(Distribution(*leaf).log_likelihood(table.values))
        inside = (x[:, None] > x[cells == k].min()) & (x[:, None] < x[cells == k].max())
        assert own[inside[:, 0]].mean() > 2 * own[~inside[:, 0]].mean()


@pytest.mark.parametrize("rare", [0, 1, 3])
def test_rare_categories_are_as_likely_in_every_cell(rare: int) -> None:
    """Which of them rows have, and how many rows, does not show."""
    names = ["a"] * 40 + ["b"] * 10 + ["c", "d", "e"][:rare]
    declared = fc.Table.of({"x": [*names, "c", "d", "e"]})
    table = rare_mixed(declared.rows(np.arange(len(names))), LEAST)
    cells = cells_of(table, CellTask("x", 24, True), LEAST)
    test = np.arange(2.0, 5.0)[:, None]
    chances = [np.exp(Distribution(*leaf).log_likelihood(test))
               for leaf in cell_leaves(table, "x", cells, LEAST).values()]  # fmt: skip
    assert len(chances) == 2 and (chances[0] > 0).all()
    assert np.allclose(chances[0], chances[1], rtol=0.05) and np.ptp(chances[0]) < 1e-9


def test_a_column_without_values_has_one_leaf() -> None:
    table = fc.Table(fc.Schema.real(["x"]), np.full((30, 1), np.nan))
    assert list(cell_leaves(table, "x", np.zeros(30, np.int64), LEAST)) == [0]


@pytest.mark.parametrize("few", [1, 3, LEAST - 1])
def test_few_values_of_a_column_are_not_learned_from(few: int) -> None:
    """The leaf of three values once had their mean: it says nothing of them now."""
    leaves = []
    for level in (0.7, 0.2):
        x = np.full((30, 1), np.nan)
        x[:few, 0] = np.random.default_rng(few).normal(level, 1e-3, few)
        table = fc.Table(fc.Schema.real(["x"]), x)
        leaves.append(cell_leaves(table, "x", np.zeros(30, np.int64), LEAST)[0])
    asked = np.linspace(0, 1, 21)[:, None]
    one, other = (Distribution(*leaf).log_likelihood(asked) for leaf in leaves)
    assert np.array_equal(one, other)

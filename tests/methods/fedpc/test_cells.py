"""Cells of columns: no fewer rows than the least count, and leaves that are densities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.errors import MessageError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Compute, Flow
from fedcircuits.methods.fedpc.cells import (
    FEWEST_ROWS,
    MOST_CELLS,
    CellTask,
    LearnedCell,
    RowCells,
    cells_of,
    cells_within,
    few_enough,
    learn_cells,
)


@given(
    st.lists(st.integers(0, 30) | st.none(), min_size=1, max_size=200),
    st.integers(2, 24),
    st.integers(1, 20),
)
def test_cells_of_numbers_have_rows_enough(values: list[int | None], most: int, least: int) -> None:
    column = np.array([np.nan if v is None else v for v in values], np.float64)
    table = fc.Table(fc.Schema.real(["x"]), column[:, None])
    cells, seen = cells_of(table, CellTask("x", most, True), least), ~np.isnan(column)
    if not seen.any():
        assert (cells == 0).all()
        return
    assert (cells[~seen] == -1).all()
    rows = np.bincount(cells[seen])
    assert len(rows) <= most and (len(rows) == 1 or rows.min() >= max(FEWEST_ROWS, least))
    for value in np.unique(column[seen]):
        assert len(np.unique(cells[column == value])) == 1
    order = np.argsort(column[seen], kind="stable")
    assert (np.diff(cells[seen][order]) >= 0).all()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=300), st.integers(1, 12))
def test_runs_with_different_numbers_of_cells_tell_no_more_than_one(
    values: list[int], least: int
) -> None:
    table = fc.Table(fc.Schema.real(["x"]), np.array(values, np.float64)[:, None])
    finest = cells_of(table, CellTask("x", MOST_CELLS, True), least)
    for most in range(2, MOST_CELLS):
        cells = cells_of(table, CellTask("x", most, True), least)
        assert cells.max() < most
        assert all(len(np.unique(cells[finest == cell])) == 1 for cell in np.unique(finest))


def test_common_values_keep_cells_of_their_own() -> None:
    """Also where the column has rare values, which share the cell of a neighbour."""
    rows = [3, 250, 186, 35, 147, 42, 4]
    table = fc.Table.of({"x": np.repeat(np.arange(len(rows)), rows)})
    cells = cells_of(table, CellTask("x", MOST_CELLS, True), 5)
    assert np.bincount(cells).tolist() == [253, 186, 35, 147, 46]


def test_rare_categories_share_a_cell() -> None:
    table = fc.Table.of({"town": ["a"] * 20 + ["b"] * 9 + ["c"] * 3 + ["d"] * 3})
    cells = cells_of(table, CellTask("town", 24, True), 5)
    assert np.bincount(cells)[np.unique(cells)].tolist() == [20, 9, 6]
    few = cells_of(table.rows(np.arange(32)), CellTask("town", 24, True), 5)
    assert np.bincount(few).tolist() == [23, 9]


def computed(flow: Flow[dict[str, LearnedCell]]) -> dict[str, LearnedCell]:
    """What a flow that only computes returns."""
    answer: object = None
    while True:
        try:
            effect = flow.send(answer)
        except StopIteration as stop:
            return dict(stop.value)
        assert isinstance(effect, Compute)
        answer = effect.work()


def test_leaves_are_densities_and_none_is_a_spike() -> None:
    rng = np.random.default_rng(0)
    table = fc.Table.of({"x": np.exp(rng.normal(size=300)), "n": rng.poisson(3.0, 300)})
    tasks = [CellTask(name, 24, True) for name in table.names]
    cells = {t.column: cells_of(table, t, 5) for t in tasks}
    learned = computed(learn_cells(Party("north", table), table, tasks, cells))
    assert len(learned) == sum(len(np.unique(c)) for c in cells.values())
    grid = np.linspace(-60, 100, 400_001)[:, None]
    for name, (circuit, parameters) in learned.items():
        own = Distribution(circuit, parameters)
        if circuit.schema.names == ("x",):
            density = np.exp(own.log_likelihood(grid))
            assert abs(density.sum() * (grid[1, 0] - grid[0, 0]) - 1) < 1e-2, name
        else:
            total = np.exp(own.log_likelihood(np.arange(200.0)[:, None])).sum()
            assert abs(total - 1) < 1e-6, name


def test_a_party_that_only_cuts_learns_nothing() -> None:
    table = fc.Table.of({"x": np.arange(50.0)})
    task = CellTask("x", 4, False)
    cells = {"x": cells_of(table, task, 5)}
    assert computed(learn_cells(Party("north", table), table, [task], cells)) == {}


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"x": np.zeros(3, np.int8)},
        {"x": np.full(4, 4, np.int8)},
        {"x": np.full(4, -2, np.int8)},
    ],
)
def test_wrong_cells_blame_their_sender(cells: dict[str, np.ndarray]) -> None:
    schema, task = fc.Schema.real(["x"]), CellTask("x", 4, True)
    with pytest.raises(MessageError, match="north"):
        RowCells(cells, 0.0).check([task], schema, 4, "north")


@given(st.integers(0, 40), st.lists(st.integers(2, 64), max_size=12))
def test_cells_of_a_row_tell_no_more_than_they_may(numbers: int, sizes: list[int]) -> None:
    variables = [*(fc.Variable(f"x{i}", "real") for i in range(numbers))]
    variables += [
        fc.Variable(f"k{i}", "category", tuple(map(str, range(size))))
        for i, size in enumerate(sizes)
    ]
    most = cells_within(fc.Schema(tuple(variables)))
    bits = numbers * np.log2(max(most, 1)) + np.log2(sizes).sum()
    assert most == 0 or (2 <= most <= 24 and bits <= 24 + 1e-9)


def test_a_tree_joins_many_parties_of_few_columns() -> None:
    """Few parties, and those of many columns, are joined by clusters."""
    schemas = (fc.Schema.real([f"{k}{i}" for i in range(n)]) for k, n in (("a", 13), ("b", 12)))
    wide, narrow = schemas
    assert few_enough([narrow] * 5) and not few_enough([*[narrow] * 4, wide])
    assert not few_enough([narrow] * 4)

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
from fedcircuits.learning.spn.windows import LearnedCell
from fedcircuits.methods.fedpc.cells import (
    FEWEST_ROWS,
    MOST_CELLS,
    CellTask,
    FinestCells,
    RowCells,
    cells_of,
    chosen_rows,
    finest_of,
    learn_cells,
    seen_in_views,
    shared_cells,
)
from fedcircuits.methods.meeting.tokens import HiddenRows

TOKENS = np.arange(4, dtype=np.uint64)
FINEST = FinestCells((9, 9, 8), (0, 0, 1))


@given(
    st.lists(st.integers(0, 30) | st.none(), min_size=1, max_size=200),
    st.integers(2, 24),
    st.integers(1, 20),
)
def test_cells_of_numbers_have_rows_enough(values: list[int | None], most: int, least: int) -> None:
    column = np.array([np.nan if v is None else v for v in values], np.float64)
    table = fc.Table(fc.Schema.real(["x"]), column[:, None])
    cells, seen = cells_of(table, CellTask("x", most, True), least), ~np.isnan(column)
    if seen.sum() < least:
        assert (cells == 0).all()
        return
    assert (cells[~seen] == -1).all()
    rows = np.bincount(cells[seen])
    assert rows.min() >= least
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
    tasks = [CellTask(name, 4, True) for name in table.names]
    finest = [finest_of(table, t, 5) for t in tasks]
    learned = computed(learn_cells(Party("north", table), table, tasks))
    assert len(learned) == sum(len(np.unique(c)) for c in finest)
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
    assert computed(learn_cells(Party("north", table), table, [task])) == {}


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
        RowCells(TOKENS, cells, {"x": FINEST}, 0.0).check([task], schema, "north")


@pytest.mark.parametrize(
    "finest",
    [
        {},
        {"x": FinestCells((), ())},
        {"x": FinestCells((9, 0), (0, 1))},
        {"x": FinestCells((9, 9), (0,))},
        {"x": FinestCells((9, 9), (1, 0))},
        {"x": FinestCells((9, 9), (0, 4))},
        {"x": FinestCells((9,) * 25, (0,) * 25)},
        {"x": FINEST, "y": FINEST},
    ],
)
def test_wrong_finest_cells_blame_their_sender(finest: dict[str, FinestCells]) -> None:
    schema, task = fc.Schema.real(["x"]), CellTask("x", 4, True)
    RowCells(TOKENS, {"x": np.zeros(4, np.int8)}, {"x": FINEST}, 0.0).check([task], schema, "north")
    with pytest.raises(MessageError, match=r"north.*finest|finest.*north"):
        RowCells(TOKENS, {"x": np.zeros(4, np.int8)}, finest, 0.0).check([task], schema, "north")


def test_cells_that_are_sent_are_unions_of_the_finest() -> None:
    x = np.append(np.random.default_rng(0).gamma(2.0, size=399), np.nan)
    table, task = fc.Table.of({"x": x}), CellTask("x", 5, True)
    cells, finest = cells_of(table, task, 5), finest_of(table, task, 5)
    known = FinestCells.of(finest, cells, 5)
    assert known.fits(5) and len(known.rows) == 24 and min(known.rows) >= FEWEST_ROWS
    assert sum(FinestCells.of(finest, cells, 1).rows) == 399 and finest[-1] == cells[-1] == -1
    assert (np.array(known.within)[finest[:-1]] == cells[:-1]).all()


@pytest.mark.parametrize("few", [1, 4])
def test_few_values_and_few_missing_ones_do_not_show(few: int) -> None:
    """Once the finest cells added up to the number of values, and a column of three values had a
    leaf with their mean."""
    x = np.random.default_rng(few).normal(0.7, 1e-3, size=100)
    task = CellTask("x", MOST_CELLS, True)
    for gaps in (slice(few), slice(few, None)):  # few are missing, or all but few
        told = []
        for values in (np.where(np.isin(np.arange(100), np.arange(100)[gaps]), np.nan, x), x * 9):
            table = fc.Table(fc.Schema.real(["x"]), values[:, None])
            finest = finest_of(table, task, 5)
            told.append(sum(FinestCells.of(finest, finest, 5).rows))
        assert told == [100, 100]


def test_six_missing_values_show() -> None:
    x = np.append(np.random.default_rng(0).normal(size=94), [np.nan] * 6)
    finest = finest_of(fc.Table.of({"x": x}), CellTask("x", MOST_CELLS, True), 5)
    assert sum(FinestCells.of(finest, finest, 5).rows) == 94


@given(st.lists(st.tuples(*[st.integers(-1, 3)] * 3), min_size=1, max_size=80), st.integers(1, 12))
def test_in_a_view_no_row_stands_alone(rows: list[tuple[int, ...]], least: int) -> None:
    cells = np.array(rows, np.int64)
    sent = shared_cells(cells, least)
    assert ((sent == cells) | (sent == -1)).all()
    sizes = np.unique(sent, axis=0, return_counts=True)[1]
    assert sizes.min() >= min(least, len(cells))
    if least == 1:
        assert (sent == cells).all()


def test_cells_that_enough_rows_have_are_sent() -> None:
    cells = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [30, 20, 2, 40], axis=0)
    sent = shared_cells(cells, 5)
    assert (sent[:50] == cells[:50]).all()
    assert (sent[50:, 0] == 1).all() and (sent[50:, 1] == -1).all()  # or two rows would stand alone


def test_tokens_do_not_link_views() -> None:
    """A row has another token in every view, and those of its list are none of them."""
    rng = np.random.default_rng(0)
    hidden = HiddenRows(b"k" * 32, rng.integers(2**63, size=300).astype(np.uint64))
    tasks = [CellTask("x", 4, True, (0, 2)), CellTask("y", 4, True, (1, 2))]
    cells = {"x": rng.integers(4, size=300), "y": rng.integers(4, size=300)}
    sent, of_views = seen_in_views(hidden, tasks, cells, np.arange(300), 5)
    assert len(np.unique(sent)) == len(sent) == 900
    assert not np.isin(sent, hidden.tokens).any()
    seen = np.stack([of_views["x"], of_views["y"]], axis=1) >= 0
    sets, rows = np.unique(seen, axis=0, return_counts=True)
    assert dict(zip(map(tuple, sets.tolist()), rows.tolist(), strict=True)) == {
        (False, True): 300, (True, False): 300, (True, True): 300,
    }  # fmt: skip
    other = HiddenRows(b"o" * 32, hidden.tokens)
    elsewhere, _ = seen_in_views(other, tasks, cells, np.arange(300), 5)
    assert not np.isin(sent, elsewhere).any()


def test_parties_draw_the_same_rows_for_views_without_a_key() -> None:
    ids = np.arange(400)
    here, there = chosen_rows(ids, 4, 7), chosen_rows(ids[:200], 4, 7)
    assert 60 < len(here) < 140
    assert (here[here < 200] == there).all()
    assert (chosen_rows(ids, 4, 7) == here).all()
    assert len(chosen_rows(ids, 4, 8)) != len(here) or (chosen_rows(ids, 4, 8) != here).any()
    assert (chosen_rows(ids, 1, 7) == ids).all()


def test_rows_are_alike_among_those_in_the_views() -> None:
    """Or who knows which rows are in the views would know more."""
    rng = np.random.default_rng(0)
    hidden = HiddenRows(b"k" * 32, np.arange(600, dtype=np.uint64))
    tasks = [CellTask(name, 6, True, (0,)) for name in "xyz"]
    cells = {name: rng.integers(6, size=600) for name in "xyz"}
    _, sent = seen_in_views(hidden, tasks, cells, chosen_rows(np.arange(600), 5, 0), 5)
    alike = np.unique(np.stack(list(sent.values()), axis=1), axis=0, return_counts=True)[1]
    assert alike.min() >= 5

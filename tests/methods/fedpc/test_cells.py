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
from fedcircuits.learning.spn.windows import LearnedCell, parts_of
from fedcircuits.methods.fedpc.cells import (
    FEWEST_ROWS,
    FinestCells,
    PairCells,
    cells_of,
    chosen_rows,
    finest_of,
    learn_cells,
    seen_in_views,
    view_codes,
)
from fedcircuits.methods.fedpc.views import MOST_CELLS, CellPlan, CellTask, radixes, views_of
from fedcircuits.methods.meeting.tokens import HiddenRows, retokened
from tests.methods.fedpc.sending import KEY, plans_of, sent_by

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
    x, n = (len(np.unique(c)) for c in finest)
    assert len(learned) == x + x * parts_of(table, "x", finest[0], 5) + n
    grid = np.linspace(-60, 100, 400_001)[:, None]
    for name, (circuit, parameters) in learned.items():
        own = Distribution(circuit, parameters)
        if circuit.schema.names == ("x",):
            density, near = np.exp(own.log_likelihood(grid)), 3e-2 if "part" in name else 1e-2
            assert density.sum() * (grid[1, 0] - grid[0, 0]) == pytest.approx(1, abs=near), name
        else:
            total = np.exp(own.log_likelihood(np.arange(200.0)[:, None])).sum()
            assert abs(total - 1) < 1e-6, name


def test_a_party_that_only_cuts_learns_nothing() -> None:
    table = fc.Table.of({"x": np.arange(50.0)})
    assert computed(learn_cells(Party("north", table), table, [CellTask("x", 4, False)])) == {}


# ---------------------------------------------------------------------- what a sender is blamed for

SCHEMA = fc.Schema.real(["x", "y"])
ASKED = CellPlan((CellTask("x", 4, True, 0), CellTask("y", 5, False, 1)), 2, coarse=3)
TOKENS = np.array([1, 2, 3, 4, 1, 5, 6, 7, 2, 5, 8, 9], np.uint32)  # in views of x, y and both


def cells(**changes: object) -> PairCells:
    said: dict[str, object] = {"tokens": TOKENS, "codes": np.zeros(12, np.int8),
                               "finest": {"x": FINEST}, "alone": 0.0}  # fmt: skip
    return PairCells(**said | changes)  # type: ignore[arg-type]


def code(at: int, value: int) -> np.ndarray:
    codes = np.zeros(12, np.int8)
    codes[at] = value
    return codes


def test_cells_that_were_asked_for_are_taken() -> None:
    sizes = [int(np.prod(radixes(ASKED, view, own, SCHEMA))) for view, own in ASKED.views()]
    assert sizes == [5, 6, 16]
    for at, size in zip((0, 4, 8), sizes, strict=True):
        cells(codes=code(at, size - 1)).check(ASKED, SCHEMA, "north", 400)
    nothing = {"tokens": TOKENS[:0], "codes": np.zeros(0, np.int8)}
    cells(**nothing).check(ASKED, SCHEMA, "north", 400)


WRONG: dict[str, tuple[str, object]] = {
    "one token too few": ("tokens", TOKENS[:11]),
    "a list too few": ("tokens", TOKENS[:8]),
    "tokens of tokens": ("tokens", TOKENS[:, None]),
    "signed tokens": ("tokens", TOKENS.astype(np.int64)),
    "tokens that fall": ("tokens", TOKENS[::-1].copy()),
    "long tokens": ("tokens", TOKENS.astype(np.uint64)),
    "one code too few": ("codes", np.zeros(11, np.int8)),
    "codes of codes": ("codes", np.zeros((12, 1), np.int8)),
    "a code below 0": ("codes", code(0, -1)),
    "a code beyond the first view": ("codes", code(3, 5)),
    "a code beyond the second": ("codes", code(4, 6)),
    "a code beyond the coarse cells of both": ("codes", code(11, 16)),
    "gains beyond numbers": ("alone", float("nan")),
    "nothing of finest cells": ("finest", {}),
    "no finest cell": ("finest", {"x": FinestCells((), ())}),
    "a finest cell without rows": ("finest", {"x": FinestCells((9, 0), (0, 1))}),
    "a finest cell in none": ("finest", {"x": FinestCells((9, 9), (0,))}),
    "finest cells that fall": ("finest", {"x": FinestCells((9, 9), (1, 0))}),
    "a finest cell in one too far": ("finest", {"x": FinestCells((9, 9), (0, 4))}),
    "too many finest cells": ("finest", {"x": FinestCells((9,) * 25, (0,) * 25)}),
    "finest cells of more rows than it holds": ("finest", {"x": FinestCells((9, 2**61), (0, 1))}),
    "parts of cells that are too many": ("finest", {"x": FinestCells((9,) * 4, (0, 1, 2, 3), 25)}),
    "finest cells of what others model": ("finest", {"x": FINEST, "y": FINEST}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cells_blame_their_sender(name: str) -> None:
    field, value = WRONG[name]
    with pytest.raises(MessageError, match=rf"(?s)north.*{field}|{field}.*north"):
        cells(**{field: value}).check(ASKED, SCHEMA, "north", 400)


def test_who_sends_in_no_view_sends_nothing() -> None:
    """A party that holds nothing but numbers of one block that is not there."""
    nothing = CellPlan((), 3)
    said = {"tokens": TOKENS[:0], "codes": np.zeros(0, np.int8), "finest": {}}
    cells(**said).check(nothing, SCHEMA, "north", 400)
    with pytest.raises(MessageError, match="north"):
        cells(finest={}).check(nothing, SCHEMA, "north", 400)


# ---------------------------------------------------------------------- finest cells


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


# ---------------------------------------------------------------------- codes in a view


def digits_of(codes: np.ndarray, radix: tuple[int, ...]) -> np.ndarray:
    """The cells of every row (rows, columns), −1 where unknown."""
    return np.stack(np.unravel_index(codes, radix), axis=1) - 1


RADIX = (4, 5, 3)
ROWS = st.lists(st.tuples(*(st.integers(-1, size - 2) for size in RADIX)), min_size=1, max_size=120)


@given(ROWS, st.integers(1, 12), st.tuples(*[st.booleans()] * 3), st.integers(1, 3))
def test_in_a_view_no_row_stands_alone(
    rows: list[tuple[int, ...]], least: int, ordered: tuple[bool, ...], columns: int
) -> None:
    cells = np.array(rows, np.int64)[:, :columns]
    radix = RADIX[:columns]
    codes = view_codes(list(cells.T), radix, ordered[:columns], least)
    assert codes.min() >= 0 and codes.max() < np.prod(radix)
    if len(rows) < least:
        assert len(np.unique(codes)) == 1
    else:
        assert np.unique(codes, return_counts=True)[1].min() >= least
    sent = digits_of(codes, radix)
    assert (sent[cells < 0] == -1).all()  # nothing is made up of what is missing
    for column, rank in enumerate(ordered[:columns]):
        if not rank:  # a category is what it is, or unknown
            assert ((sent[:, column] == cells[:, column]) | (sent[:, column] == -1)).all()
    if least == 1:
        assert (sent == cells).all()


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=150), st.integers(1, 15))
def test_small_cells_of_numbers_join_their_neighbours(values: list[int], least: int) -> None:
    """Not others: what is sent of two cells is in the order of the cells."""
    cells = np.array(values, np.int64)
    sent = view_codes([cells], [11], [True], least) - 1
    known = sent >= 0
    order = np.argsort(cells[known], kind="stable")
    assert (np.diff(sent[known][order]) >= 0).all()
    if (cells >= 0).all() and len(cells) >= least:
        assert known.all()


def test_cells_that_enough_rows_have_are_sent() -> None:
    """The cells of the first column stay, whatever the second has."""
    cells = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [30, 20, 2, 40], axis=0)
    sent = digits_of(view_codes(list(cells.T), (3, 3), (False, False), 5), (3, 3))
    assert (sent[:, 0] == cells[:, 0]).all() and (sent[:50] == cells[:50]).all()
    assert (sent[50:, 1] == -1).all()  # or two rows would stand alone
    joined = digits_of(view_codes(list(cells.T), (3, 3), (False, True), 5), (3, 3))
    assert (joined[:50] == cells[:50]).all() and (joined[50:, 1] == 1).all()


def test_classes_come_first_and_are_told_wherever_enough_rows_have_them() -> None:
    rng = np.random.default_rng(0)
    kind, x, y = rng.integers(3, size=400), rng.integers(8, size=400), rng.integers(8, size=400)
    sent = digits_of(view_codes([kind, x, y], (4, 9, 9), (False, True, True), 5), (4, 9, 9))
    assert (sent[:, 0] == kind).all() and (sent >= 0).all()


# ---------------------------------------------------------------------- tokens of views


def two_columns(rows: int, seed: int = 0) -> tuple[CellPlan, dict[str, np.ndarray], HiddenRows]:
    rng = np.random.default_rng(seed)
    plan = CellPlan((CellTask("x", 4, True, 0), CellTask("y", 4, True, 1)), 2)
    hidden = HiddenRows(KEY, rng.integers(2**63, size=rows).astype(np.uint64))
    return plan, {name: rng.integers(4, size=rows) for name in "xy"}, hidden


def lists_of(
    plan: CellPlan, cells: dict[str, np.ndarray], hidden: HiddenRows
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and codes (views, rows)."""
    finest = {name: FinestCells((9, 9, 9, 9), (0, 1, 2, 3)) for name in cells}
    rows = np.arange(len(hidden.tokens))
    sent = seen_in_views(hidden, plan, SCHEMA, cells, finest, rows, 5)
    views = len(plan.views())
    return sent[0].reshape(views, -1), sent[1].reshape(views, -1)


def test_tokens_do_not_link_views() -> None:
    """A row has another token in every view, and those of its list are none of them."""
    plan, cells, hidden = two_columns(300)
    sent, codes = lists_of(plan, cells, hidden)
    assert sent.shape == codes.shape == (3, 300)
    assert len(np.unique(sent)) == 900 and not np.isin(sent, hidden.tokens).any()
    elsewhere, _ = lists_of(plan, cells, HiddenRows(b"o" * 32, hidden.tokens))
    assert not np.isin(sent, elsewhere).any()


def test_the_order_of_tokens_says_nothing() -> None:
    """Rows in the order of one view's tokens are in any order in another, and the k-th rows of two
    views have the same cells as often as any two."""
    plan, cells, hidden = two_columns(20_000)
    _, codes = lists_of(plan, cells, hidden)
    x, y, both = codes[0] - 1, codes[1] - 1, codes[2]  # cells 0…3
    true = np.stack([cells["x"], cells["y"]], 1)
    assert np.bincount(x).tolist() == np.bincount(true[:, 0]).tolist()
    coarse = digits_of(both, (3, 3)) if both.max() < 9 else digits_of(both, (5, 5))
    groups = FinestCells((9, 9, 9, 9), (0, 1, 2, 3)).coarse(plan.coarse)
    same = (groups[x] == coarse[:, 0]).mean()
    assert same == pytest.approx(0.5, abs=0.02)
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(0, abs=0.03)


def test_new_tokens_are_those_of_the_same_rows_for_who_has_the_key() -> None:
    rows = np.random.default_rng(0).integers(2**64, size=500, dtype=np.uint64)
    here, there = retokened(rows, KEY), retokened(rows[::-1].copy(), KEY)
    assert (here == there[::-1]).all() and len(np.unique(here)) == 500
    assert not np.isin(retokened(rows, b"o" * 32), here).any()
    ranks = np.argsort(np.argsort(rows)), np.argsort(np.argsort(here))
    assert abs(np.corrcoef(*ranks)[0, 1]) < 0.15


@pytest.mark.parametrize("target", [None, "kind"])
def test_rows_of_two_tables_cannot_be_joined_by_tokens(target: str | None) -> None:
    """All that parties send: a token is in one view only, at every party that holds the row."""
    rng = np.random.default_rng(0)
    frame = {f"x{i}": rng.normal(size=120) for i in range(5)}
    table = fc.Table.of({**frame, "kind": rng.choice(list("ab"), 120)})
    parties = fc.split(table, 3, by="columns", target="kind")
    plans = plans_of(parties, table.schema, target)
    sent = sent_by(parties, plans, 5)
    places: dict[int, set[tuple[int, ...]]] = {}
    for party, plan in plans.items():
        views = [view for view, _ in plan.views()]
        lists = np.asarray(sent[party].tokens).reshape(len(views), -1)
        assert lists.shape[1] == 120
        for view, own in zip(views, lists, strict=True):
            for token in own.tolist():
                places.setdefault(token, set()).add(view)
    assert all(len(views) == 1 for views in places.values())
    assert len(places) == 120 * len(views_of(next(iter(plans.values())).blocks))


@pytest.mark.parametrize("least", [1, 5, 20])
@pytest.mark.parametrize("parties", [2, 4])
def test_every_code_of_a_party_has_the_least_count_of_its_rows(least: int, parties: int) -> None:
    rng = np.random.default_rng(least)
    x = rng.normal(size=(300, 6))
    x[rng.random(x.shape) < 0.1] = np.nan
    frame = {f"x{i}": x[:, i] for i in range(6)} | {"town": rng.choice(list("abcdefgh"), 300)}
    table = fc.Table.of({**frame, "kind": rng.choice(list("abc"), 300)})
    split = fc.split(table, parties, by="columns", target="kind")
    plans = plans_of(split, table.schema, "kind")
    for party, message in sent_by(split, plans, least).items():
        message.check(plans[party], table.schema, party, 300)
        views = len(plans[party].views())
        for codes in np.asarray(message.codes).reshape(views, -1):
            assert np.unique(codes, return_counts=True)[1].min() >= least


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
    hidden = HiddenRows(KEY, np.arange(600, dtype=np.uint64))
    plan = CellPlan(tuple(CellTask(n, 6, True, b) for b, n in enumerate("xy")), 2, coarse=6)
    cells = {name: rng.integers(6, size=600) for name in "xy"}
    finest = {name: FinestCells((9,) * 6, tuple(range(6))) for name in "xy"}
    chosen = chosen_rows(np.arange(600), 5, 0)
    _, codes = seen_in_views(hidden, plan, SCHEMA, cells, finest, chosen, 5)
    for own in codes.reshape(3, -1):
        assert np.unique(own, return_counts=True)[1].min() >= 5

"""Views of cells: which columns are together in one, and that a seed gives the same model again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.methods.fedpc import views
from fedcircuits.methods.fedpc.views import (
    ENOUGH_ROWS,
    MOST_BLOCKS,
    MOST_CELLS,
    MOST_ROWS,
    MOST_TOKENS,
    CellPlan,
    CellTask,
    cell_plans,
    undetermined,
    views_of,
)
from fedcircuits.methods.meeting.hello import Hello
from tests.methods.fedpc.sending import hellos


def together(plans: Mapping[str, CellPlan]) -> Counter[frozenset[str]]:
    """In how many views two columns are, at whatever parties."""
    seen: dict[tuple[int, ...], set[str]] = {}
    for plan in plans.values():
        for view, own in plan.views():
            seen.setdefault(view, set()).update(t.column for t in own if t.block is not None)
    pairs = (itertools.combinations(sorted(names), 2) for names in seen.values())
    return Counter(frozenset(pair) for own in pairs for pair in own)


def fits(plans: Mapping[str, CellPlan], parties: Mapping[str, Hello], target: str | None) -> bool:
    """Whether every party accepts its plan."""
    every = [plans[p].problems(hello.schema.names, target) for p, hello in parties.items()]
    return all(holds for problems in every for holds, _ in problems)


def columns_of(each: Sequence[int]) -> list[list[str]]:
    """So many columns at every party, and classes at the last."""
    columns = [[f"x{i}_{j}" for j in range(number)] for i, number in enumerate(each)]
    columns[-1].append("kind")
    return columns


def overlapping(parties: int) -> list[list[str]]:
    """Every party holds columns of the next as well."""
    own = [[f"x{i}_{j}" for j in range(12)] for i in range(parties)]
    return [one + other[:6] for one, other in zip(own, own[1:] + own[:1], strict=True)]


# ---------------------------------------------------------------------- which columns


@pytest.mark.parametrize("each", [(1, 0), (6, 6, 6), (5, 7, 4, 8), (1,) * 20, (30, 0)])
@pytest.mark.parametrize("rows", [30, 1_000])
def test_any_two_columns_are_together_in_one_view(each: Sequence[int], rows: int) -> None:
    columns = columns_of(each)
    schema, parties = hellos(columns, rows)
    plans = cell_plans(schema, parties, "kind")
    names = [name for name in schema.names if name != "kind"]
    assert {plan.blocks for plan in plans.values()} == {len(names)}
    pairs = {frozenset(pair) for pair in itertools.combinations(names, 2)}
    assert together(plans) == Counter(pairs)
    assert fits(plans, parties, "kind")


MANY = {
    "many columns": columns_of((5,) * 20),
    "unequal": columns_of((60, 20, 20, 1)),
    "some at two parties": overlapping(8),
    "some at all": [[f"x{i}_{j}" for j in range(12)] + [f"all{j}" for j in range(9)]
                    for i in range(6)],
    "two parties": columns_of((80, 80)),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_where_columns_are_many_a_view_has_two_of_a_party_at_most(name: str) -> None:
    schema, parties = hellos(MANY[name], 3_000)
    target = "kind" if "kind" in schema.names else None
    plans = cell_plans(schema, parties, target)
    assert fits(plans, parties, target)
    for plan in plans.values():
        for _, own in plan.views():
            numbers = [task.column for task in own if task.block is not None]
            assert len(numbers) <= 2 and {t.column for t in own} - {*numbers} <= {"kind"}
    columns = [n for n in schema.names if n != target]
    assert plans["party 0"].blocks < len(columns)  # or nothing is tested here
    pairs = {frozenset(pair) for pair in itertools.combinations(columns, 2)}
    assert set(together(plans)) == pairs


@given(
    st.lists(st.sets(st.integers(0, 14), min_size=1), min_size=2, max_size=6),
    st.sampled_from([20, 500, 50_000]),
)
def test_every_party_accepts_its_plan(held: list[set[int]], rows: int) -> None:
    columns = [sorted(f"x{i}" for i in own) for own in held]
    schema, parties = hellos(columns, rows)
    plans = cell_plans(schema, parties, None)
    assert fits(plans, parties, None)
    pairs = {frozenset(pair) for pair in itertools.combinations(schema.names, 2)}
    assert set(together(plans)) == pairs


@pytest.mark.parametrize("rows", [200, 50_000])
@pytest.mark.parametrize("parties", [3, 8])
def test_a_column_that_two_parties_hold_is_in_the_same_block_of_both(
    parties: int, rows: int
) -> None:
    schema, greetings = hellos(overlapping(parties), rows)
    plans = cell_plans(schema, greetings, None)
    blocks: dict[str, set[int | None]] = {}
    models: Counter[str] = Counter()
    for plan in plans.values():
        for task in plan.tasks:
            blocks.setdefault(task.column, set()).add(task.block)
            models[task.column] += task.models
    assert all(len(own) == 1 for own in blocks.values())
    assert set(models.values()) == {1}


def test_classes_are_in_every_view_of_who_holds_them() -> None:
    schema, parties = hellos([["a", "kind"], ["b", "kind"], ["kind"], ["c"]], 300)
    plans = cell_plans(schema, parties, "kind")
    for party in ("party 0", "party 1", "party 2"):
        views = plans[party].views()
        assert [view for view, _ in views] == views_of(3)
        assert all(own[0].column == "kind" and own[0].block is None for _, own in views)
    assert [view for view, _ in plans["party 3"].views()] == [(2,), (0, 2), (1, 2)]
    without = cell_plans(schema, parties, None)
    assert all(task.block is not None for plan in without.values() for task in plan.tasks)


def test_a_target_of_numbers_is_a_column_as_others_are() -> None:
    schema, parties = hellos([["a"], ["b"]], 300)
    assert cell_plans(schema, parties, "b") == cell_plans(schema, parties, None)


def test_there_are_no_cells_of_too_many_columns_of_one_party() -> None:
    columns = columns_of((MOST_BLOCKS, 0))
    assert fits(cell_plans(*(made := hellos(columns, 100)), "kind"), made[1], "kind")
    columns[0].append("one more")
    assert cell_plans(*hellos(columns, 100), "kind") == {}


# ---------------------------------------------------------------------- how much


@pytest.mark.parametrize("each", [(2, 2), (4, 4, 4), (5,) * 20, (60, 60)])
@pytest.mark.parametrize("rows", [100, 1_000, 20_000])
def test_rows_of_views_are_thinned_only_where_they_are_many(each: Sequence[int], rows: int) -> None:
    schema, parties = hellos(columns_of(each), rows)
    plans = cell_plans(schema, parties, "kind")
    [thinned] = {plan.thinned for plan in plans.values()}
    views = sum(len(plan.views()) for plan in plans.values())
    sent = -(-rows // thinned)
    assert sent <= MOST_ROWS and views * sent < 1.2 * MOST_TOKENS
    if thinned > 1:
        assert views * rows > MOST_TOKENS / 3 or rows > MOST_ROWS
    if rows <= ENOUGH_ROWS and len(each) * max(each) < 40:
        assert thinned == 1


@pytest.mark.parametrize(
    ("sizes", "rows", "classes", "cells"),
    [
        ([0] * 3, 2_000, 1, 24),
        ([0] * 14, 5_000, 1, 24),
        ([0] * 30, 120, 1, 2),
        ([0] * 30, 120, 2, 0),
        ([0] * 30, 60, 1, 0),
        ([2] * 16, 500, 1, 24),
        ([2] * 60, 100, 1, 0),
        ([0] * 9 + [2], 300, 2, 5),
        ([200] * 200, 50, 1, 0),
    ],
)
def test_cells_in_pairs_are_coarser_where_columns_are_many(
    sizes: list[int], rows: int, classes: int, cells: int
) -> None:
    assert undetermined([[size] for size in sizes], rows, classes) == cells


def test_views_of_more_than_two_columns_hold_more() -> None:
    found = [undetermined([[0] * size] * (60 // size), 1_000) for size in (1, 2, 6)]
    assert found[0] > found[1] > found[2]
    schema, parties = hellos(columns_of((5,) * 20), 3_000)
    plans = cell_plans(schema, parties, None)
    blocks = [plans["party 0"].blocks, len(schema.names)]
    assert blocks[0] < blocks[1]
    assert {plan.paired for plan in plans.values()} == {2}


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_what_tables_hold_is_how_many_there_are(rows: int) -> None:
    """Of two columns of two cells, counted one by one."""
    tables = {t for t in itertools.product(range(rows + 1), repeat=4) if sum(t) == rows}
    assert np.exp(views._nats(rows, np.log(4))) == pytest.approx(len(tables))
    near = [views._nats(rows, views.MANY + more) for more in (-1e-9, 0.0)]
    assert near[0] == pytest.approx(near[1])


def test_one_table_of_two_columns_holds_what_the_rows_do() -> None:
    for rows, classes in itertools.product([3, 40, 5_000], [1, 6]):
        assert undetermined([[0], [0]], rows, classes) == MOST_CELLS


def test_tables_of_pairs_hold_less_than_rows() -> None:
    for columns, rows in itertools.product([2, 5, 12, 40], [20, 150, 1_000]):
        most = undetermined([[0]] * columns, rows)
        assert undetermined([[0]] * (columns + 1), rows) <= most
        plans = cell_plans(*hellos([[f"x{i}" for i in range(columns)]], rows), None)
        assert all(2 <= plan.paired <= max(most, 2) for plan in plans.values())
        for plan in plans.values():
            for view, _ in plan.views():
                assert plan.numbers(view) <= (plan.paired if len(view) > 1 else 24)


def test_classes_are_in_pairs_where_rows_are_enough_for_it() -> None:
    """Tables by class hold as many times more."""
    found = set()
    for rows in (12, 60, 2_000, 20_000):
        schema, parties = hellos(columns_of((4, 5, 5)), rows)
        plans = cell_plans(schema, parties, "kind")
        assert fits(plans, parties, "kind")
        [by_class] = {plan.by_class for plan in plans.values()}
        found.add(by_class)
        assert by_class == (
            undetermined([[0]] * 14, rows, schema["kind"].size) >= views.ENOUGH_CELLS
        )
        for view, own in plans["party 2"].views():
            assert any(task.block is None for task in own) == (by_class or len(view) == 1)
    assert found == {False, True}


def test_cells_are_coarser_where_rows_are_few() -> None:
    """And where there are classes, of which rows may be told apart."""
    found = {}
    for rows in (40, 300, 5_000):
        for target in (None, "kind"):
            schema, parties = hellos([["a", "b"], ["c", "kind"]], rows)
            plans = cell_plans(schema, parties, target)
            found[rows, target] = next(t.most for p in plans.values() for t in p.tasks)
            assert fits(plans, parties, target)
    assert found[40, None] < found[300, None] <= found[5_000, None] <= MOST_CELLS
    assert all(found[rows, "kind"] <= found[rows, None] for rows in (40, 300, 5_000))


# ---------------------------------------------------------------------- what a client refuses


PLAN = CellPlan(
    (CellTask("kind", 4, True, None), CellTask("a", 4, True, 0), CellTask("b", 4, False, 2)), 3
)


def tasks(**changes: object) -> CellPlan:
    return replace(PLAN, tasks=(*PLAN.tasks[:2], replace(PLAN.tasks[2], **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (tasks(block=0), "one column in a block"),
        (tasks(block=None), "no classes but the target's"),
        (tasks(block=3), "blocks at most"),
        (tasks(most=1), "cells"),
        (tasks(most=MOST_CELLS + 1), "cells"),
        (tasks(column="a"), "every column once"),
        (tasks(column="z"), "every column once"),
        (replace(PLAN, tasks=PLAN.tasks[:2]), "every column once"),
        (replace(PLAN, coarse=9), "2 to 8 coarse cells"),
        (replace(PLAN, coarse=1), "2 to 8 coarse cells"),
        (replace(PLAN, paired=1), "2 to 24 cells in pairs"),
        (replace(PLAN, paired=25), "2 to 24 cells in pairs"),
        (replace(PLAN, blocks=MOST_BLOCKS + 1), f"{MOST_BLOCKS} blocks at most"),
        (replace(PLAN, thinned=0), "one row in one or more"),
    ],
)
def test_a_plan_that_shows_more_is_a_problem(plan: CellPlan, expected: str) -> None:
    names = ["a", "b", "kind"]
    assert all(holds for holds, _ in PLAN.problems(names, "kind"))
    problems = [problem for holds, problem in plan.problems(names, "kind") if not holds]
    assert len(problems) >= 1 and any(expected in problem for problem in problems)
    assert not all(holds for holds, _ in PLAN.problems(names, None))


# ---------------------------------------------------------------------- a seed


def table_of(columns: int) -> fc.Table:
    rng = np.random.default_rng(0)
    kind, factor = rng.integers(2, size=60), rng.normal(size=(60, 1))
    x = rng.normal(size=(2, columns))[kind] + factor + 0.5 * rng.normal(size=(60, columns))
    return fc.Table.of(
        pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)]).assign(
            kind=np.array(list("ab"))[kind]
        )
    )


@pytest.mark.parametrize("parties", [2, 5])
def test_a_seed_gives_the_same_model_on_every_engine(parties: int) -> None:
    table = table_of(2 * parties - 1)
    split = fc.split(table, parties, by="columns", target="kind", allow_collect=True)
    engines = "memory", "memory", "process"
    models = [
        fc.FedPC(target="kind", random_state=3).fit(split, engine=engine) for engine in engines
    ]
    assert all("count/cells" in {entry.tag for entry in model.ledger_} for model in models)
    scores = [model.score_samples(table) for model in models]
    assert np.array_equal(scores[0], scores[1]) and np.array_equal(scores[0], scores[2])

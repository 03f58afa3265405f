"""Views of cells: what two of them have in common, and that a seed gives the same model again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.methods.fedpc.cells import MOST_VIEWS, CellTask
from fedcircuits.methods.fedpc.training import METHOD
from fedcircuits.methods.fedpc.views import cell_tasks, thinned, views_of
from fedcircuits.methods.meeting.hello import Hello


def hellos(columns: Sequence[Sequence[str]], rows: int) -> tuple[fc.Schema, dict[str, Hello]]:
    """Parties that hold these columns; "kind" has three classes."""
    names = sorted({name for own in columns for name in own})
    x = np.random.default_rng(0).normal(size=(9, len(names)))
    frame = pd.DataFrame(x, columns=names)
    if "kind" in names:
        frame["kind"] = list("abc") * 3
    table = fc.Table.of(frame)
    found = {}
    for i, own in enumerate(columns):
        own_table = fc.Table(table.schema.select(own), np.zeros((rows, len(own))), np.arange(rows))
        found[f"party {i}"] = Hello.of(own_table, METHOD)
    return table.schema, found


def views_of_columns(tasks: Mapping[str, Sequence[CellTask]]) -> dict[str, set[int]]:
    return {task.column: set(task.views) for own in tasks.values() for task in own}


@pytest.mark.parametrize("each", [(6, 6, 6), (5, 7, 4, 8), (4,) * 5, (3, 9, 3, 3, 3, 3), (4,) * 9])
def test_two_views_share_columns_of_one_party(each: Sequence[int]) -> None:
    columns = [[f"x{i}_{j}" for j in range(number)] for i, number in enumerate(each)]
    columns[-1].append("kind")
    schema, parties = hellos(columns, 300)
    views = views_of(schema, parties, "kind")
    assert 1 < views <= MOST_VIEWS
    seen = views_of_columns(cell_tasks(schema, parties, "kind", views))
    assert seen.pop("kind") == set(range(views))
    for one, other in itertools.combinations(range(views), 2):
        common = [name for name, where in seen.items() if {one, other} <= where]
        assert len({name.partition("_")[0] for name in common}) <= 1
    for one, other in itertools.combinations(seen, 2):
        if one.partition("_")[0] != other.partition("_")[0]:
            assert len(seen[one] & seen[other]) == 1  # and so all pairs of columns are seen


def test_a_column_that_two_parties_hold_is_in_the_same_views_of_both() -> None:
    columns = [[f"a{i}" for i in range(6)], [f"b{i}" for i in range(6)] + ["a0"], ["c0", "a1"]]
    schema, parties = hellos(columns, 200)
    views = views_of(schema, parties, None)
    tasks = cell_tasks(schema, parties, None, views)
    seen = {(p, task.column): task.views for p, own in tasks.items() for task in own}
    assert views > 1
    assert seen["party 0", "a0"] == seen["party 1", "a0"] != ()
    assert seen["party 0", "a1"] == seen["party 2", "a1"] != ()


def test_few_columns_are_in_one_view_and_too_many_in_none() -> None:
    assert views_of(*hellos([["a", "b"], ["c"], ["d"]], 300), None) == 1
    many = [[f"x{i}_{j}" for j in range(4)] for i in range(20)]
    assert views_of(*hellos(many, 300), None) == 1  # of coarser cells
    assert views_of(*hellos([[f"x{j}" for j in range(60)], ["y"], ["z"]], 50), None) > MOST_VIEWS


def test_rows_of_views_are_thinned_only_where_they_are_many() -> None:
    assert thinned(25, np.zeros((500, 5), np.int64)) == 1
    assert thinned(25, np.zeros((20_000, 5), np.int64)) == 10
    assert thinned(1, np.zeros((200_000, 5), np.int64)) == 1


def table_of(columns: int) -> fc.Table:
    rng = np.random.default_rng(0)
    kind, factor = rng.integers(2, size=60), rng.normal(size=(60, 1))
    x = rng.normal(size=(2, columns))[kind] + factor + 0.5 * rng.normal(size=(60, columns))
    return fc.Table.of(
        pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)]).assign(
            kind=np.array(list("ab"))[kind]
        )
    )


@pytest.mark.parametrize("parties", [5, 8])
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

"""Series columns of tables: kept by rows and selections, checked, and refused by other learners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, TableError

SPEED = np.random.default_rng(0).normal(size=(30, 5, 2))


def table(**options: Any) -> fc.Table:
    columns = {"event": np.arange(30) % 2 == 0, "age": np.arange(30)}
    return fc.Table.from_series({"speed": SPEED}, columns, np.arange(30), **options)


def test_series_stand_beside_columns() -> None:
    made = table()
    assert made.names == ("event", "age") and list(made.series) == ["speed"]
    assert made.series["speed"].shape == (30, 5, 2) and made.series["speed"].dtype == np.float32
    assert np.array_equal(made.row_ids, np.arange(30))
    assert "speed  series    5 steps × 2 channels" in repr(made)


def test_one_channel_and_no_columns() -> None:
    made = fc.Table.from_series({"a": SPEED[..., 0]})
    assert made.series["a"].shape == (30, 5, 1) and len(made) == 30 and made.names == ()


def test_rows_and_selections_keep_them() -> None:
    made = table().rows([4, 2]).select(["age", "speed"])
    assert np.array_equal(made.series["speed"], SPEED[[4, 2]].astype(np.float32))
    assert made.names == ("age",) and made.row_ids is not None and made.row_ids.tolist() == [4, 2]
    assert not table().select(["age"]).series
    assert [len(part.series["speed"]) for part in table().batches(20)] == [20, 10]


def test_frames_have_the_ordinary_columns() -> None:
    frame = table().to_pandas()
    assert list(frame.columns) == ["event", "age"] and frame.index.tolist() == list(range(30))


def test_the_rows_that_parties_share_keep_them() -> None:
    parties = fc.Federation({"north": table().rows([4, 2, 9]), "south": table().rows([9, 4])})
    both = fc.aligned(parties)
    for name in both.names:
        own = both[name].table
        assert own.row_ids is not None and own.row_ids.tolist() == [4, 9]
        assert np.array_equal(own.series["speed"], SPEED[[4, 9]].astype(np.float32))


def test_reading_in_another_schema_keeps_them() -> None:
    made = fc.Table.of(table(), kinds={"age": "real"})
    assert made.schema["age"].kind == "real" and "speed" in made.series
    named = fc.Table.from_series({"speed": SPEED}, {"id": range(30), "x": range(30)}, "id")
    assert named.names == ("x",) and named.row_ids is not None and "speed" in named.series


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "got none"),
        ({"event": SPEED}, "a series and of a column"),
        ({"speed": SPEED[:7]}, r"shape \(30, steps\)"),
        ({"speed": SPEED[:, 0, 0]}, r"shape \(30, steps\)"),
        ({"speed": np.full((30, 2), np.inf)}, "infinite"),
        ({"speed": [["a"]] * 30}, "array of numbers"),
        ({3: SPEED}, "must be text"),
        ([SPEED], "series by name"),
    ],
)
def test_what_is_no_series(series: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        fc.Table.from_series(series, {"event": np.arange(30) % 2 == 0})


def test_ids_that_do_not_fit() -> None:
    with pytest.raises(TableError, match="again"):
        fc.Table.from_series({"speed": SPEED}, row_id=np.zeros(30, int))
    with pytest.raises(TableError, match="expected 30 row ids"):
        fc.Table.from_series({"speed": SPEED}, row_id=np.arange(7))


def test_other_learners_refuse_them() -> None:
    with pytest.raises(TableError, match="LearnSPN cannot learn from series: 'speed'"):
        fc.LearnSPN().fit(table())
    parties = fc.Federation({"north": table(), "south": table()})
    with pytest.raises(TableError, match="FedPC cannot learn from series: 'speed' of north"):
        fc.FedPC().fit(parties)
    with pytest.raises(FederationError, match="series cannot be split by columns"):
        fc.split(table(), 2, by="columns")
    halves = fc.split(table(), 2, by="rows")
    assert sum(len(p.table.series["speed"]) for p in halves) == 30


def test_a_list_of_series_of_different_lengths() -> None:
    given = [np.arange(3.0), np.arange(5.0), np.arange(1.0)]
    found = fc.Table.from_series({"speed": given}, {"event": [True, False, True]}).series["speed"]
    assert found.shape == (3, 5, 1)
    assert np.array_equal(np.isnan(found[..., 0]).sum(axis=1), [2, 0, 4])
    wide = [np.ones((2, 3)), np.ones((4, 3))]
    assert fc.Table.from_series({"speed": wide}, {"a": [1, 2]}).series["speed"].shape == (2, 4, 3)
    with pytest.raises(TableError, match="or a list of arrays"):
        fc.Table.from_series({"speed": [np.ones((2, 3)), np.ones((4, 2))]}, {"a": [1, 2]})
    with pytest.raises(TableError, match="complex"):
        fc.Table.from_series({"speed": np.ones((2, 3)) * 1j}, {"a": [1, 2]})

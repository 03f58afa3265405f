"""The table itself: its values, its parts, and the way back to the user's own values."""

from __future__ import annotations

import doctest
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.errors import QueryError, TableError
from fedcircuits.tables import table as module
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

NAN = np.nan
COLUMNS = {
    "age": [31, 47, None],
    "weight": [70.5, None, 64.25],
    "sex": ["m", "f", None],
    "smoker": [True, None, False],
    "hit": [1, None, 0],
    "visits": [4, 5, 6],
}


@pytest.fixture
def table() -> Table:
    return Table.of(COLUMNS | {"id": ["p", "q", "r"]}, row_id="id", units={"weight": "kg"})


def test_documented_example():
    assert doctest.testmod(module).failed == 0


def test_columns_in_the_users_values(table):
    assert table.column("age").tolist() == [31, 47, None]
    assert table.column("sex").tolist() == ["m", "f", None]
    assert table.column("smoker").tolist() == [True, None, False]
    assert table.column("hit").tolist() == [1, None, 0]
    assert table.column("visits").dtype == np.int64
    np.testing.assert_array_equal(table.column("weight"), [70.5, NAN, 64.25])
    with pytest.raises(QueryError, match="did you mean 'weight'"):
        table.column("weigth")


def test_column_is_a_copy(table):
    table.column("weight")[0] = 0
    assert table.values[0, 1] == 70.5


def test_to_pandas(table):
    frame = table.to_pandas()
    assert frame.index.tolist() == ["p", "q", "r"]
    assert frame.index.name == "row_id"
    kinds = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert kinds == {
        "age": "Int64",
        "weight": "float64",
        "sex": "category",
        "smoker": "boolean",
        "hit": "Int64",
        "visits": "int64",
    }
    assert frame["age"].tolist() == [31, 47, pd.NA]
    assert frame["smoker"].tolist() == [True, pd.NA, False]
    assert frame["hit"].tolist() == [1, pd.NA, 0]
    assert frame["sex"].tolist()[:2] == ["m", "f"]
    whole = Table.of({"b": [True, False], "z": [1, 0], "s": ["n", "y"]}, kinds={"s": "boolean"})
    assert whole.to_pandas()["b"].tolist() == [True, False]
    assert whole.to_pandas()["b"].dtype == bool
    assert whole.to_pandas()["z"].dtype == np.int64
    assert whole.to_pandas()["s"].tolist() == ["n", "y"]


def test_round_trip_through_pandas(table):
    again = Table.of(table.to_pandas(), row_id="row_id", units={"weight": "kg"})
    assert again.schema == table.schema
    np.testing.assert_array_equal(again.values, table.values)
    assert again.row_ids.tolist() == table.row_ids.tolist()


def columns_of_kind(kind, rows):
    values = {
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "count": st.integers(0, 2**40),
        "category": st.sampled_from(["a", "b", " c", "NA", "1"]),
        "boolean": st.booleans(),
    }[kind]
    return st.lists(st.none() | values, min_size=rows, max_size=rows)


@st.composite
def typed_columns(draw):
    kinds = draw(st.lists(st.sampled_from(["real", "count", "category", "boolean"]), min_size=1))
    rows = draw(st.integers(1, 6))
    variables = tuple(
        Variable(f"v{i}", k, ("1", "NA", " c", "b", "a") if k == "category" else ())
        for i, k in enumerate(kinds)
    )
    return Schema(variables), {v.name: draw(columns_of_kind(v.kind, rows)) for v in variables}


@given(typed_columns())
@settings(max_examples=40, deadline=None)
def test_values_survive_and_agree_with_the_schema(example):
    schema, columns = example
    table = Table.of(columns, schema=schema)
    for variable, numbers in zip(schema, table.values.T, strict=True):
        given_values = columns[variable.name]
        np.testing.assert_array_equal(numbers, [variable.encode(v) for v in given_values])
        back = [None if v != v else v for v in table.column(variable.name).tolist()]
        assert back == given_values
    again = Table.of(table.to_pandas(), schema=schema)
    np.testing.assert_array_equal(again.values, table.values)


def test_select(table):
    part = table.select(["sex", "age"])
    assert part.names == ("sex", "age")
    np.testing.assert_array_equal(part.values, table.values[:, [2, 0]])
    assert part.row_ids is table.row_ids
    assert table.select("sex").names == ("sex",)
    with pytest.raises(QueryError, match="unknown variable"):
        table.select(["nothing"])


@pytest.mark.parametrize(
    ("index", "ids"),
    [
        ([2, 0], ["r", "p"]),
        (np.array([-1]), ["r"]),
        (np.array([True, False, True]), ["p", "r"]),
        ([True, True, False], ["p", "q"]),
        (slice(1, None), ["q", "r"]),
        ([], []),
    ],
)
def test_rows(table, index, ids):
    part = table.rows(index)
    assert part.row_ids.tolist() == ids
    assert len(part) == len(ids)
    places = [["p", "q", "r"].index(i) for i in ids]
    np.testing.assert_array_equal(part.values, table.values[places])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([3], "numbers below 3, got 3"),
        ([-4], "numbers below 3"),
        ([True, False], "mask of 3 rows, got 2"),
        ([0.5], "row numbers or a mask"),
        ([[0]], "row numbers or a mask"),
    ],
)
def test_rows_are_refused(table, index, message):
    with pytest.raises(TableError, match=message):
        table.rows(index)


def test_batches(table):
    parts = list(table.batches(2))
    assert [len(p) for p in parts] == [2, 1]
    np.testing.assert_array_equal(np.vstack([p.values for p in parts]), table.values)
    assert parts[1].row_ids.tolist() == ["r"]
    with pytest.raises(TableError, match="at least 1"):
        table.batches(0)


def test_repr(table):
    assert repr(table).splitlines() == [
        "Table: 3 rows × 6 variables",
        "  age     count     31 … 47, 33.3 % missing",
        "  weight  real      64.25 … 70.5 kg, 33.3 % missing",
        "  sex     category  'f', 'm', 33.3 % missing",
        "  smoker  boolean   False, True, 33.3 % missing",
        "  hit     boolean   0, 1, 33.3 % missing",
        "  visits  count     4 … 6",
    ]
    wide = Table.of(np.zeros((1, 30)))
    assert repr(wide).splitlines()[-1] == "  … and 18 more"
    rare = Table.of(np.append(np.arange(1999.5), NAN)[:, None])
    assert "under 0.1 % missing" in repr(rare)
    levels = Table.of({"x": [f"a long level {i}" for i in range(9)]})
    assert "9 categories" in repr(levels)
    assert "no values" in repr(Table.of({"x": [None]}, kinds={"x": "real"}))


def test_constructor_checks_its_values():
    schema = Schema((Variable("c", "category", ("a", "b")), Variable("n", "count"), Variable("r")))
    assert Table(schema, np.array([[NAN, NAN, NAN], [1, 7, -0.5]])).values.dtype == np.float64
    wrong = {
        "code below 2, got 2": [2, 0, 0],
        "code below 2, got -1": [-1, 0, 0],
        "code below 2, got 0.5": [0.5, 0, 0],
        "finite count, got -3": [0, -3, 0],
        "finite count, got 1.5": [0, 1.5, 0],
        "finite real, got inf": [0, 0, np.inf],
    }
    for message, row in wrong.items():
        with pytest.raises(TableError, match=f"{message} in row 0"):
            Table(schema, np.array([row], dtype=float))
    with pytest.raises(TableError, match=r"shape \(rows, 3\), got \(2, 2\)"):
        Table(schema, np.zeros((2, 2)))
    with pytest.raises(TableError, match=r"shape \(rows, 3\), got \(3,\)"):
        Table(schema, np.zeros(3))
    with pytest.raises(TableError, match="expected 2 row ids"):
        Table(schema, np.zeros((2, 3)), np.arange(3))


def test_is_frozen(table):
    with pytest.raises(AttributeError):
        table.schema = table.schema  # type: ignore[misc]


def test_speed_of_a_large_frame():
    rng, rows = np.random.default_rng(0), 100_000
    words = np.array([f"level{i}" for i in range(50)], dtype=object)
    columns = {f"r{i}": rng.normal(size=rows) for i in range(8)}
    columns |= {f"n{i}": rng.poisson(5, rows) for i in range(6)}
    columns |= {f"t{i}": words[rng.integers(0, 50, rows)] for i in range(6)}
    frame = pd.DataFrame(columns)
    start = time.process_time()
    table = Table.of(frame)
    assert time.process_time() - start < 3.0  # about 0.2 s; a loop over cells takes longer
    assert table.values.shape == (rows, 20)


def test_a_unit_is_a_text() -> None:
    with pytest.raises(TableError, match="a unit is a text, got 5"):
        Table.of({"a": [1.5, 2.5]}, units={"a": 5})  # type: ignore[dict-item]


def test_row_ids_of_pythons_numbers() -> None:
    large = {"id": np.array([10**30, 10**30 + 1], dtype=object), "a": [1.5, 2.5]}
    ids = Table.of(large, row_id="id").row_ids
    assert ids is not None and ids.tolist() == [str(10**30), str(10**30 + 1)]
    small = {"id": np.array([7, 8], dtype=object), "a": [1.5, 2.5]}
    ids = Table.of(small, row_id="id").row_ids
    assert ids is not None and ids.tolist() == [7, 8]

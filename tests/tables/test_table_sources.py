"""Tables from everything a user may hold, and matched to a schema."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedcircuits.errors import TableError
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table

COLUMNS = {
    "age": [31, 47, None],
    "weight": [70.5, 81.25, 64.0],
    "sex": ["m", "f", None],
    "smoker": [True, None, False],
}
SCHEMA = Schema(
    (
        Variable("age", "count"),
        Variable("weight"),
        Variable("sex", "category", ("f", "m")),
        Variable("smoker", "boolean"),
    )
)
VALUES = np.array([[31, 70.5, 1, 1], [47, 81.25, 0, np.nan], [np.nan, 64, np.nan, 0]])


@pytest.mark.parametrize(
    "data",
    [
        COLUMNS,
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS, dtype=object),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pd.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(COLUMNS, index=[7, 7, 7]),
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        pl.DataFrame(COLUMNS, schema_overrides={"sex": pl.Categorical}),
        pa.table(COLUMNS),
        pa.table(COLUMNS | {"sex": pa.array(COLUMNS["sex"]).dictionary_encode()}).set_column(
            2, "sex", pa.chunked_array([["m"], ["f", None]])
        ),
        {name: pl.Series(values) for name, values in COLUMNS.items()},
        {name: pa.array(values) for name, values in COLUMNS.items()},
    ],
    ids=lambda d: f"{type(d).__module__}.{type(d).__name__}",
)
def test_every_source_gives_the_same_table(data):
    table = Table.of(data)
    assert table.schema == SCHEMA
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.row_ids is None


def test_declared_orders_are_kept():
    levels = ["low", "mid", "high"]
    values = ["high", "low", "low"]
    enum = pl.DataFrame({"x": pl.Series(values, dtype=pl.Enum(levels))})
    ordered = pd.DataFrame({"x": pd.Categorical(values, levels, ordered=True)})
    for data in (enum, ordered, pa.Table.from_pandas(ordered)):
        table = Table.of(data)
        assert table.schema["x"].categories == ("low", "mid", "high")
        assert table.values[:, 0].tolist() == [2, 0, 0]


def test_arrow_dictionaries_of_chunks_are_unified():
    chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()]
    table = Table.of(pa.table({"x": pa.chunked_array(chunks)}))
    assert table.column("x").tolist() == ["b", "a", "c"]


def test_arrow_decimals_are_numbers():
    column = pa.array([Decimal("1.25"), None])
    table = Table.of(pa.table({"x": column}))
    assert table.schema["x"].kind == "real"
    np.testing.assert_array_equal(table.values[:, 0], [1.25, np.nan])


def test_numpy_matrix():
    array = np.array([[0.5, 1], [0.25, 0]])
    assert Table.of(array).names == ("x0", "x1")
    assert Table.of(array, names=["a", "b"]).schema["b"] == Variable("b", "boolean", (0, 1))
    mixed = Table.of(np.array([["a", 1.5], ["b", None]], dtype=object))
    assert [v.kind for v in mixed.schema] == ["category", "real"]


def test_numpy_structured():
    array = np.array([(1, 2.5, "a"), (3, 0.5, "b")], [("n", "i4"), ("r", "f4"), ("t", "U3")])
    table = Table.of(array)
    assert [v.kind for v in table.schema] == ["count", "real", "category"]
    assert table.values.tolist() == [[1, 2.5, 0], [3, 0.5, 1]]
    with pytest.raises(TableError, match="'v': expected one value per row"):
        Table.of(np.zeros(3, [("v", "f4", (2,))]))


def test_units_of_frames_of_any_library():
    for frame in (pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), pa.table(COLUMNS)):
        table = Table.of(frame, units={"age": "years"})
        assert table.schema["age"].unit == "years"
        np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than once: 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "more than once: '1'"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than once: 'a'"),
        (pd.DataFrame({"a": []}), "with rows, got none"),
        (pd.DataFrame(index=[1, 2]), "with columns, got none"),
        ({}, "with columns, got none"),
        (np.zeros((0, 3)), "with rows, got none"),
        (np.zeros((3, 0)), "with columns, got none"),
        (np.zeros(3), r"two dimensions .*\(3,\).*reshape"),
        (np.zeros((3, 2, 2)), "two dimensions"),
        ({"a": [1, 2], "b": [1]}, "one length, got 'a' 2, 'b' 1"),
        ({"a": 3}, "'a': expected a sequence"),
        ({"a": "text"}, "'a': expected a sequence"),
        ({"a": np.zeros((2, 2))}, "'a': expected one value per row"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "one level"),
        ({("a", "b"): [1]}, "a text as column name"),
        ({"": [1, 2]}, "no name; the row numbers"),
        (pd.Series([1, 2]), "to_frame"),
        ([[1, 2]], "numpy.array or pandas.DataFrame"),
        ("data.csv", r"Table.read\(path\)"),
        (torch.zeros(2, 2), r"\.numpy\(\)"),
        (7, "expected a Table, a DataFrame of pandas, polars or another"),
    ],
)
def test_no_table(data, message):
    with pytest.raises(TableError, match=message):
        Table.of(data)


def test_names_are_for_plain_arrays():
    with pytest.raises(TableError, match="expected 2 names"):
        Table.of(np.zeros((2, 2)), names=["a"])
    with pytest.raises(TableError, match="names= is for numpy"):
        Table.of(COLUMNS, names=["a"])
    with pytest.raises(TableError, match="names= is for plain arrays"):
        Table.of(np.zeros(2, [("a", "f4")]), names=["b"])


def test_row_ids():
    table = Table.of({"id": ["p2", "p1"], "x": [5, 6]}, row_id="id")
    assert table.names == ("x",)
    assert table.row_ids.tolist() == ["p2", "p1"]
    assert table.row_ids.dtype.kind == "U"
    numbers = Table.of(
        pd.DataFrame({"x": [5, 6]}, index=pd.Index([12, 11], name="id")), row_id="id"
    )
    assert numbers.row_ids.tolist() == [12, 11]
    assert Table.of({"": [0, 1], "x": [5, 6]}, row_id="").row_ids.tolist() == [0, 1]
    again = Table.of(Table.of({"id": [4, 9], "x": [5, 6]}), row_id="id")
    assert (again.names, again.row_ids.tolist()) == (("x",), [4, 9])


def test_whole_row_ids_that_became_floats_are_whole():
    frame = pd.DataFrame({"id": [3.0, 1.0, np.nan], "x": [1.0, 2.0, 3.0]}).dropna()
    assert Table.of(frame, row_id="id").row_ids.tolist() == [3, 1]
    for ids in ([0.5, 1.0], [1.0, 1e300], [1.0, np.inf]):
        found = Table.of({"id": ids, "x": [1.0, 2.0]}, row_id="id").row_ids
        assert found.tolist() == [str(i) for i in ids]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1, 2, 1], "x": [1, 2, 3]}, "row 2 has 1 again"),
        ({"id": ["a", None, None], "x": [1, 2, 3]}, "row 1 has none .*2 in all"),
        ({"idd": [1], "x": [1]}, "no column 'id'; did you mean 'idd'"),
        ({"y": [1], "x": [1]}, "no column 'id'; there are 'y', 'x'"),
        ({"id": [1, 2]}, "columns beside the row ids"),
    ],
)
def test_row_ids_are_refused(columns, message):
    with pytest.raises(TableError, match=message):
        Table.of(columns, row_id="id")


def test_schema_matches_by_name_in_any_order_and_ignores_others():
    data = {
        "extra": ["?", "!"],
        "smoker": [0, 1],
        "sex": ["f", "m"],
        "weight": [1, 2],
        "age": [3, 4],
    }
    table = Table.of(data, schema=SCHEMA)
    assert table.schema == SCHEMA
    assert table.values.tolist() == [[3, 1, 0, 0], [4, 2, 1, 1]]


def test_schema_with_absent_columns():
    data = {"sex": ["f", "m"], "age": [3, 4]}
    with pytest.raises(TableError, match=r"absent: 'weight', 'smoker'.*partial=True"):
        Table.of(data, schema=SCHEMA)
    table = Table.of(data, schema=SCHEMA, partial=True)
    np.testing.assert_array_equal(table.values, [[3, np.nan, 0, np.nan], [4, np.nan, 1, np.nan]])
    with pytest.raises(TableError, match="none of the columns 'y'"):
        Table.of({"y": [1]}, schema=SCHEMA, partial=True)


def test_schema_with_arrays():
    schema = Schema.real(["a", "b"])
    assert Table.of(np.array([[1, 2]]), schema=schema).values.tolist() == [[1, 2]]
    swapped = Table.of(np.array([[1, 2]]), names=["b", "a"], schema=schema)
    assert swapped.values.tolist() == [[2, 1]]
    with pytest.raises(TableError, match=r"expected 2 columns .*with 3"):
        Table.of(np.zeros((1, 3)), schema=schema)


def test_schema_excludes_overrides():
    with pytest.raises(TableError, match="without schema="):
        Table.of(COLUMNS, schema=SCHEMA, kinds={"age": "real"})


def test_table_is_read_again():
    table = Table.of(COLUMNS, units={"age": "years"}, kinds={"age": "real"})
    assert Table.of(table) is table
    assert Table.of(table, schema=table.schema) is table
    changed = Table.of(table, kinds={"smoker": "category"})
    assert changed.schema["age"] == Variable("age", "real", (), "years")
    assert changed.schema["smoker"].kind == "category"
    few = Table.of({"sex": ["m"], "age": [40]}, row_id=None)
    assert few.schema["sex"].categories == ("m",)
    matched = Table.of(few, schema=SCHEMA, partial=True)
    np.testing.assert_array_equal(matched.values, [[40, np.nan, 1, np.nan]])
    with_ids = Table.of({"id": ["a"], "sex": ["m"]}, row_id="id")
    assert Table.of(with_ids, schema=SCHEMA, partial=True).row_ids.tolist() == ["a"]


# ---------------------------------------------------------------------- what only an attacker holds


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"a": ["x", "\ud800"]}, "(column|variable) 'a'.*cannot be written"),
        ({"\ud800": [1.0]}, r"the column name '\\ud800' cannot be written"),
        ({"a": [10**5000, 1]}, "column 'a'.*too large"),
        ({"a": 10**5000}, "column 'a': expected a sequence of values, got a value of type int"),
        ({"a": np.zeros((2, 2))}, "column 'a': expected one value per row"),
        (np.zeros((1, 200_000)), "at most 100,000 columns, got 200,000"),
        ({f"x{i}": [1.0] for i in range(100_001)}, "at most 100,000 columns, got 100,001"),
        ([Table.of(COLUMNS), Table.of(COLUMNS)], "give one table, or fedcircuits.Federation"),
    ],
    ids=range(8),
)
def test_hostile_objects_are_refused_by_name(data, words):
    with pytest.raises(TableError, match=words) as caught:
        Table.of(data)
    assert len(str(caught.value).encode()) < 500


def test_row_ids_are_named_by_text():
    with pytest.raises(TableError, match="row_id: there is no column 1"):
        Table.of(COLUMNS, row_id=1)


def test_many_names_are_compared_quickly():
    frame = pd.DataFrame(np.ones((1, 60_000)), columns=["a", "b"] * 30_000)
    with pytest.raises(TableError, match="names must differ, got more than once: 'a', 'b'"):
        Table.of(frame)


class Streamed:
    """A frame of another library, as duckdb and ibis have it: it gives arrow tables."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


def test_frames_of_other_libraries():
    table = Table.of(Streamed())
    assert table.schema == SCHEMA
    np.testing.assert_array_equal(table.values, VALUES)


def test_frames_that_narwhals_knows():
    nw = pytest.importorskip("narwhals")
    assert Table.of(nw.from_native(pd.DataFrame(COLUMNS))).schema == SCHEMA
    assert Table.of(nw.from_native(pl.LazyFrame(COLUMNS))).schema == SCHEMA


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_come_back_in_the_users_kind(kind):
    frame = kind({"age": [31, 47], "sex": ["m", "f"]})
    back = Table.of(frame).like(frame)
    assert type(back) is type(frame)
    assert Table.of(back).schema == Table.of(frame).schema
    assert Table.of(frame).like(np.zeros(0)).tolist() == [[31, "m"], [47, "f"]]


def test_columns_that_cannot_be_learned_from_are_left_out_together(tmp_path):
    """Of a parquet file with lists, structs, bytes and times; decimals and moments are numbers."""
    path = tmp_path / "odd.parquet"
    table = pa.table({
        "list": [[1], [2, 3]], "struct": [{"a": 1}, {"a": 2}], "raw": [b"a", b"b"],
        "at": pa.array([1, 2], pa.time32("s")), "price": pa.array([Decimal("1.5"), Decimal("2")]),
        "seen": pa.array([0, 253_402_214_400], pa.timestamp("s")), "n": [1, 2],
    })  # fmt: skip
    pq.write_table(table, path)
    with pytest.warns(UserWarning, match=r"left out: 'list': nested.*'struct'.*'raw': bytes.*'at'"):
        read = Table.read(path)
    assert [v.kind_in_words for v in read.schema] == ["real", "date", "count"]
    assert np.isnan(read.values[1, 1])  # the year 9999 is none
    with pytest.raises(TableError, match="column 'list': expected numbers"):
        Table.read(path, kinds={"list": "category"})

"""Kinds inferred from columns, what overrides them, and what is refused."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedcircuits.errors import TableError
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

NAN = np.nan


def one(values: object, **options: object) -> Table:
    return Table.of({"x": values}, **options)


@pytest.mark.parametrize(
    ("values", "kind", "categories", "numbers"),
    [
        ([True, False, True], "boolean", (False, True), [1, 0, 1]),
        ([True, None, False], "boolean", (False, True), [1, NAN, 0]),
        (pd.array([True, None, False], dtype="boolean"), "boolean", (False, True), [1, NAN, 0]),
        ([0, 1, 1], "boolean", (0, 1), [0, 1, 1]),
        ([0, 0, 0], "boolean", (0, 1), [0, 0, 0]),
        ([0.0, 1.0, 0.0], "boolean", (0, 1), [0, 1, 0]),
        ([0.0, NAN, 1.0], "boolean", (0, 1), [0, NAN, 1]),
        (pd.array([1, None, 0], dtype="Int64"), "boolean", (0, 1), [1, NAN, 0]),
        ([0, 7, 1000], "count", (), [0, 7, 1000]),
        ([3, None, 5], "count", (), [3, NAN, 5]),
        ([5, 5, 5], "count", (), [5, 5, 5]),
        (np.array([2, 3, 4], dtype=np.uint8), "count", (), [2, 3, 4]),
        ([0, 7, 1001], "real", (), [0, 7, 1001]),
        ([-1, 7, 10], "real", (), [-1, 7, 10]),
        ([2.0, 3.0, 4.0], "real", (), [2, 3, 4]),
        ([2.5, NAN, 4.0], "real", (), [2.5, NAN, 4]),
        (np.array([2.5, 3.5], dtype=np.float32), "real", (), [2.5, 3.5]),
        ([Decimal("1.5"), 2.0, None], "real", (), [1.5, 2, NAN]),
        (["b", "a", None], "category", ("a", "b"), [1, 0, NAN]),
        (["True", "False", "True"], "category", ("False", "True"), [1, 0, 1]),
        (["yes", "no", "no"], "category", ("no", "yes"), [1, 0, 0]),
        (["only", "only"], "category", ("only",), [0, 0]),
        (pd.array(["b", "a", None], dtype="string"), "category", ("a", "b"), [1, 0, NAN]),
        (
            pd.Categorical(["low", "high", None], ["low", "mid", "high"]),
            "category",
            ("low", "mid", "high"),
            [0, 2, NAN],
        ),
        (pd.Categorical([30, 10]), "category", (10, 30), [1, 0]),
        (pd.Series([3, None], dtype="int64[pyarrow]"), "count", (), [3, NAN]),
        (pd.Series(["b", "a"], dtype=pd.ArrowDtype(pa.string())), "category", ("a", "b"), [1, 0]),
        (pd.Series([4, 5], dtype="Sparse[int]"), "count", (), [4, 5]),
        (np.ma.masked_array([4, 5, 6], [0, 1, 0]), "count", (), [4, NAN, 6]),
    ],
)
def test_kind_is_inferred(values, kind, categories, numbers):
    table = one(values)
    variable = table.schema["x"]
    assert (variable.kind, variable.categories) == (kind, categories)
    assert [type(c) for c in variable.categories] == [type(c) for c in categories]
    np.testing.assert_array_equal(table.values[:, 0], np.array(numbers, dtype=float))


@pytest.mark.parametrize(
    ("values", "kind", "categories", "numbers"),
    [
        ([0, 1, 1], "count", (), [0, 1, 1]),
        ([0, 1, 1], "real", (), [0, 1, 1]),
        ([30, 10, 30], "category", (10, 30), [1, 0, 1]),
        ([30.0, NAN, 10.0], "category", (10, 30), [1, NAN, 0]),
        ([0.5, 0.25], "category", (0.25, 0.5), [1, 0]),
        ([True, False], "category", (False, True), [1, 0]),
        (["yes", "no"], "boolean", ("no", "yes"), [1, 0]),
        ([2, 1, 2], "boolean", (1, 2), [1, 0, 1]),
        (["1.5", None, "2"], "real", (), [1.5, NAN, 2]),
        (["4", "2"], "count", (), [4, 2]),
        ([5000, 2], "count", (), [5000, 2]),
        ([None, None], "real", (), [NAN, NAN]),
        ([None, None], "boolean", (False, True), [NAN, NAN]),
    ],
)
def test_kinds_override(values, kind, categories, numbers):
    table = one(values, kinds={"x": kind})
    assert table.schema["x"] == Variable("x", kind, categories)
    np.testing.assert_array_equal(table.values[:, 0], np.array(numbers, dtype=float))


def test_categories_and_units_are_kept_as_given():
    table = one(["m", "f"], categories={"x": ["f", "m", "d"]}, units={"x": "sex"})
    assert table.schema["x"] == Variable("x", "category", ("f", "m", "d"), "sex")
    assert table.values[:, 0].tolist() == [1, 0]
    both = one(["J"], kinds={"x": "boolean"}, categories={"x": ("N", "J")})
    assert both.schema["x"] == Variable("x", "boolean", ("N", "J"))
    empty = one([None, None], categories={"x": ["a", "b"]})
    assert np.isnan(empty.values).all()


def test_categorical_of_intervals_becomes_text():
    bins = pd.cut(pd.Series([1, 5, 9]), [0, 4, 8, 12])
    assert one(bins).schema["x"].categories == ("(0, 4]", "(4, 8]", "(8, 12]")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, np.inf, -np.inf], ["'x'", "2 infinite", "row 1"]),
        ([1, np.inf, "a"], ["number (1 in row 0)", "text ('a' in row 2)"]),
        ([None, 1, "a"], ["number (1 in row 1)", "text ('a' in row 2)"]),
        ([True, "a"], ["boolean (True in row 0)", "text"]),
        ([[1, 2], [3]], ["nested values", "row 0"]),
        ([{"a": 1}], ["nested values"]),
        ([1j, 2j], ["complex"]),
        (np.array([1j]), ["complex"]),
        ([b"ab"], ["bytes", "decode"]),
        ([datetime.time(8, 30)], ["times without a date"]),
        (pd.period_range("2020", periods=2, freq="Y"), ["times without a date"]),
        (pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), ["nested values"]),
        ([None, None], ["no column is left", "no values", "kinds="]),
        ([NAN, NAN], ["no column is left", "no values", "kinds="]),
        ([10**400], ["too large"]),
        ([object()], ["type object"]),
    ],
)
def test_column_is_refused(values, words):
    with pytest.raises(TableError) as caught:
        one(values)
    for word in ["'x'", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ([1.5, 2], {"kinds": {"x": "count"}}, ["counts", "1.5 in row 0"]),
        ([3, -2], {"kinds": {"x": "count"}}, ["counts", "-2 in row 1"]),
        (["1", "two"], {"kinds": {"x": "real"}}, ["numbers", "'two' in row 1"]),
        (["1", "inf"], {"kinds": {"x": "real"}}, ["infinite", "row 1"]),
        (["a", "b", "c"], {"kinds": {"x": "boolean"}}, ["two values", "got 3"]),
        ([None], {"kinds": {"x": "category"}}, ["categories="]),
        ([1, 2], {"kinds": {"x": "categry"}}, ["did you mean 'category'"]),
        ([1, 2], {"kinds": {"X": "real"}}, ["kinds", "'X'"]),
        ([1, 2], {"units": {"y": "m"}}, ["units", "'y'"]),
        ([1, 2], {"categories": {"y": [1]}}, ["categories", "'y'"]),
        (["a"], {"categories": {"x": ["b", "b"]}}, ["named twice"]),
        (["a"], {"categories": {"x": ["b"]}}, ["unknown category 'a'", "'b'"]),
        ([1, 2], {"unseen": "drop"}, ["unseen", "'drop'"]),
    ],
)
def test_override_is_refused(values, options, words):
    with pytest.raises(TableError) as caught:
        one(values, **options)
    for word in words:
        assert word in str(caught.value)


def test_identifiers_are_left_out_unless_wanted():
    ids = [f"patient{i}" for i in range(30)]
    with pytest.raises(TableError, match=r"'x': codes or identifiers: 30 different texts in 30"):
        one(ids)
    assert one(ids, kinds={"x": "category"}).schema["x"].size == 30
    assert one(ids[:20]).schema["x"].size == 20
    assert one(ids * 2).schema["x"].size == 30  # half as many levels as rows
    with pytest.raises(TableError, match="codes or identifiers"):
        one(ids * 2 + [f"other{i}" for i in range(5)])


@pytest.mark.parametrize("form", [list, pd.Categorical])
def test_of_too_many_levels_the_rare_ones_are_pooled(form):
    many = [f"level{i}" for i in range(1001) for _ in range(4 if i % 2 else 6)]
    table = one(form(many))
    assert table.schema["x"].size == 502
    assert table.schema["x"].categories[-1] == "other"
    assert (table.column("x") == "other").sum() == 4 * 500
    assert "500 rare levels of 1,001 pooled" in table.readings[0].how
    assert one([v for v in many if v != "level0"]).schema["x"].size == 1000


def test_hard_limit_of_levels():
    values = [f"v{i}" for i in range(100_001)]
    with pytest.raises(TableError, match="100,000 levels, got 100,001"):
        one(values, kinds={"x": "category"})
    assert one(values[:-1], kinds={"x": "category"}).schema["x"].size == 100_000


def test_numbers_with_stray_text_are_numbers():
    values = [str(i / 7) for i in range(40)] + ["unknown"]
    table = one(values)
    assert table.schema["x"].kind == "real"
    assert np.isnan(table.values[:, 0]).sum() == 1
    assert table.readings[0].how == "1 other value taken as missing ('unknown')"
    assert one(values[:-1]).schema["x"].kind == "real"  # too many for a category
    assert one(["1", "2"] * 10).schema["x"].kind == "category"  # text, as the frame says


@pytest.mark.parametrize(
    ("trained", "asked", "codes"),
    [
        (["1", "2"], [2, 1], [1, 0]),
        (["1", "2"], [2.0, NAN], [1, NAN]),
        ([1, 2, 3], ["3", "1"], [2, 0]),
        ([True, False], [0, 1], [0, 1]),
        ([True, False], ["True", "False"], [1, 0]),
        ([0, 1], [True, False], [1, 0]),
        ([0, 1], ["1", "0"], [1, 0]),
        (["a", "b"], pd.Categorical(["b"], ["b", "never"]), [1]),
    ],
)
def test_categories_are_matched_by_value_or_spelling(trained, asked, codes):
    schema = one(trained, kinds={"x": "category"}).schema
    table = one(asked, schema=schema)
    np.testing.assert_array_equal(table.values[:, 0], np.array(codes, dtype=float))


def test_unseen_categories():
    schema = one(["red", "green", "blue"]).schema
    with pytest.raises(TableError) as caught:
        one(["red", "gren", "gren"], schema=schema, unseen="error")
    for word in ["'x'", "'gren' in row 1", "2 such", "'blue', 'green', 'red'", "did you mean"]:
        assert word in str(caught.value)
    with pytest.raises(TableError, match=r"'gren' in row 1 \(rows count from 0\), expected"):
        one(["red", "gren"], schema=schema, unseen="error")
    with pytest.warns(UserWarning, match=r"'x': 2 values of unknown categories \('gren'\)") as seen:
        table = one(["red", "gren", "gren"], schema=schema, unseen="missing")
    assert seen[0].filename == __file__
    np.testing.assert_array_equal(table.values[:, 0], [2, NAN, NAN])
    with pytest.warns(UserWarning, match=r"1 value of an unknown category \('gren'\) is taken"):
        assert np.isnan(one(["red", "gren"], schema=schema).values[1, 0])
    pooled = one(["red", "green", "other"]).schema
    with pytest.warns(UserWarning, match="is taken as 'other'"):
        assert one(["gren"], schema=pooled).column("x").tolist() == ["other"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one(["red", None], schema=schema, unseen="missing")


def test_unseen_number_for_a_boolean():
    schema = one([0, 1]).schema
    with pytest.raises(TableError, match=r"unknown category 2 in row 1"):
        one([0, 2], schema=schema)


@pytest.mark.parametrize("word", ["no", "yes"])
def test_words_for_yes_and_no_are_no_codes(word):
    """Of a category of 1 and 2, neither is a truth value."""
    schema = one([1, 2], kinds={"x": "category"}).schema
    with pytest.warns(UserWarning, match=f"an unknown category \\('{word}'\\) is taken as"):
        assert np.isnan(one([word, "2"], schema=schema).values[:, 0]).tolist() == [True, False]

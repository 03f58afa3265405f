from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.family import Region
from fedcircuits.circuits.questions.conditions import (
    Order,
    between,
    compare,
    is_true,
    members,
    number,
)
from fedcircuits.circuits.questions.regions import after, before, intersect
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Scalar, Variable

COUNT = Variable("n", "count")
STAGE = Variable("stage", "category", ("10", "2", "1.5"))


@pytest.mark.parametrize(
    ("order", "bound", "region"),
    [
        (">", 3, ((3.5, math.inf),)),
        (">=", 3, ((2.5, math.inf),)),
        ("<", 3, ((-0.5, 2.5),)),
        ("<=", 3, ((-0.5, 3.5),)),
        (">", 3.2, ((3.5, math.inf),)),
        (">=", 3.2, ((3.5, math.inf),)),
        ("<", 3.2, ((-0.5, 3.5),)),
        ("<=", 3.2, ((-0.5, 3.5),)),
        ("<", 0, ()),
        (">", -5, ((-0.5, math.inf),)),
        ("<=", -0.5, ()),
    ],
)
def test_counts_end_at_halves(order: Order, bound: float, region: Region) -> None:
    condition = compare(COUNT, order, bound)
    assert condition.region() == region
    for k in range(8):
        assert condition.holds(k) == any(lower < k < upper for lower, upper in region)


@given(st.sampled_from(["<", "<=", ">", ">="]), st.floats(allow_nan=False, allow_infinity=False))
def test_reals_end_where_the_order_says(order: Order, bound: float) -> None:
    condition = compare(Variable("x"), order, bound)
    region = condition.region()
    for value in (before(before(bound)), before(bound), bound, after(bound), after(after(bound))):
        if math.isfinite(value):
            inside = any(lower < value < upper for lower, upper in region)
            assert condition.holds(value) == inside


def test_real_intervals_have_their_ends() -> None:
    low, high = (c.region() for c in between(Variable("x"), 0, 0.5))
    assert intersect(low, high) == ((before(0.0), after(0.5)),)


def test_a_count_is_never_broken_or_negative() -> None:
    assert members(COUNT, [2.5, -1]).region() == ()
    assert members(COUNT, [2.5, 2, 3]).region() == ((1.5, 3.5),)


def test_a_count_too_large_for_halves_is_refused() -> None:
    with pytest.raises(QueryError, match="'n' is a count: 1e\\+16 is too large"):
        members(COUNT, [1e16])


def test_categories_that_are_numbers_compare_by_size() -> None:
    assert compare(STAGE, ">", 1.7).numbers == (0, 1)
    assert compare(STAGE, "<=", "2").numbers == (1, 2)
    assert [c.numbers for c in between(STAGE, 1, 2)] == [(0, 1, 2), (1, 2)]
    assert compare(STAGE, ">", 10).region() == ()


@pytest.mark.parametrize("value", [2, 2.0, "2", "2.0"])
def test_numbers_match_categories_by_text_or_size(value: object) -> None:
    assert number(STAGE, value) == 1


@pytest.mark.parametrize("categories", [("red", "blue"), ("1", "x"), (True, False), ("1", "nan")])
def test_other_categories_have_no_order(categories: tuple[Scalar, ...]) -> None:
    variable = Variable("v", "category", categories)
    with pytest.raises(QueryError, match="values of 'v' have no order: expected =, != or in"):
        compare(variable, "<", 1)


@pytest.mark.parametrize(
    ("categories", "code"),
    [
        ((False, True), 1),
        (("no", "yes"), 1),
        (("Yes", "No"), 0),
        ((1, 0), 0),
        ((0.0, 1.0), 1),
        (("t", "f"), 0),
    ],
)
def test_booleans_know_what_is_true(categories: tuple[Scalar, ...], code: float) -> None:
    variable = Variable("smoker", "boolean", categories)
    assert is_true(variable).numbers == (code,)
    assert [number(variable, v) for v in ("true", "YES", True, 1)] == [code] * 4
    assert [number(variable, v) for v in ("false", "No", False, 0)] == [1 - code] * 4


def test_a_boolean_without_truth_is_no_condition() -> None:
    sex = Variable("sex", "boolean", ("female", "male"))
    with pytest.raises(QueryError, match=r"'sex' alone is no condition.*sex = 'male'"):
        is_true(sex)
    with pytest.raises(QueryError, match="no category 'yes'"):
        number(sex, "yes")


@pytest.mark.parametrize("value", ["nan", "inf", 1e999, "old", None, math.nan, [1], object()])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(QueryError, match="'age'"):
        number(Variable("age"), value)

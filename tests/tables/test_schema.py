"""Variables: the user's values and the circuit's numbers, forth and back, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import QueryError, StructureError
from fedcircuits.tables.schema import Schema, Variable

COLOUR = Variable("colour", "category", ("red", "blue", "green"))
texts = st.text(min_size=1, max_size=8)
scalars = texts | st.integers(-5, 5) | st.floats(-5, 5) | st.booleans()


def variable(name: str, kind: str, categories: list[object], unit: str | None) -> Variable | None:
    """None where the categories are refused."""
    try:
        return Variable(name, kind, tuple(categories), unit)  # type: ignore[arg-type]
    except StructureError:
        return None


variables = st.builds(
    variable,
    texts,
    st.sampled_from(["real", "count", "category", "boolean"]),
    st.lists(scalars, max_size=4) | st.just([]),
    st.none() | texts,
).filter(lambda v: v is not None)
schemas = st.lists(variables, max_size=6, unique_by=lambda v: v.name).map(
    lambda found: Schema(tuple(found))
)


@given(schemas)
def test_json_form_gives_the_same_schema_back(schema: Schema) -> None:
    text = json.dumps(schema.to_json())
    found = Schema.from_json(json.loads(text))
    assert found == schema
    for own, other in zip(schema, found, strict=True):
        assert [type(c) for c in own.categories] == [type(c) for c in other.categories]


@given(variables.filter(lambda v: v.size > 0))
def test_every_category_finds_its_own_code(one: Variable) -> None:
    for code, category in enumerate(one.categories):
        assert one.encode(category) == code
        assert one.decode(code) is category


def test_numbers_stand_for_themselves() -> None:
    assert Variable("age").encode(40.5) == 40.5
    assert Variable("n", "count").encode("7") == 7.0
    assert Variable("n", "count").decode(7.0) == 7
    assert isinstance(Variable("n", "count").decode(7.0), int)
    assert Variable("n", "count").discrete and not Variable("age").discrete


@pytest.mark.parametrize("value", [None, math.nan, np.float64("nan")])
def test_missing_is_nan_and_none(value: object) -> None:
    for one in (Variable("age"), COLOUR):
        assert math.isnan(one.encode(value))
    assert COLOUR.decode(math.nan) is None


def test_a_category_is_also_found_by_its_spelling() -> None:
    year = Variable("year", "category", (2023, 2024))
    assert year.encode("2024") == 1.0
    assert year.encode(2024.0) == 1.0
    assert Variable("b", "boolean").encode("True") == 1.0


def test_categories_of_numpy_become_plain() -> None:
    found = Variable("n", "category", tuple(np.array([1, 2])))
    assert [type(c) for c in found.categories] == [int, int]
    assert type(Variable("s", "category", (np.str_("a"),)).categories[0]) is str


def test_a_boolean_has_false_and_true_unless_it_says_otherwise() -> None:
    assert Variable("b", "boolean").categories == (False, True)
    assert Variable("b", "boolean", ("no", "yes")).encode("yes") == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Variable("v", "date"), ["'v'", "real, count, category, boolean", "'date'"]),  # type: ignore[arg-type]
        (lambda: Variable("v", "real", ("a",)), ["'v'", "real has no categories"]),
        (lambda: Variable("v", "category"), ["'v'", "needs its categories"]),
        (lambda: Variable("v", "boolean", ("a", "b", "c")), ["'v'", "two values", "'c'"]),
        (lambda: Variable("v", "category", ("a", "a")), ["'v'", "named twice", "'a'"]),
        (lambda: Variable("v", "category", (1, "1")), ["'v'", "named twice", "1 and '1'"]),
        (lambda: Variable("v", "category", (1, True)), ["'v'", "named twice", "1 and True"]),
        (lambda: Variable("v", "category", (0.5, math.nan)), ["'v'", "finite", "nan"]),
        (lambda: Variable("v", "category", ("a", None)), ["'v'", "texts", "None"]),  # type: ignore[arg-type]
        (lambda: Variable("v", "category", "ab"), ["'v'", "tuple", "'ab'"]),  # type: ignore[arg-type]
        (lambda: Variable(3), ["text", "3"]),  # type: ignore[arg-type]
        (lambda: Schema((COLOUR, COLOUR)), ["differ", "colour"]),
    ],
)
def test_refused(make: object, words: list[str]) -> None:
    with pytest.raises(StructureError) as caught:
        make()  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value)


def deep(levels: int) -> object:
    found: object = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "rows",
    [
        None,
        "schema",
        {"name": "x"},
        [1],
        [{}],
        [{"name": 3}],
        [{"name": "x", "unit": 5}],
        [{"name": "x", "kind": 7}],
        [{"name": "x", "kind": deep(900)}],
        [{"name": "x", "kind": "category", "categories": "ab"}],
        [{"name": "x", "kind": "category", "categories": [None]}],
        [{"name": "x", "kind": "category", "categories": [deep(900)]}],
        [{"name": "x", "kind": "category", "categories": [math.inf]}],
        [{"name": "x"}, {"name": "x"}],
        [deep(900)],
        [{"name": deep(900)}],
    ],
)
def test_nonsense_json_is_refused(rows: object) -> None:
    with pytest.raises(StructureError) as caught:
        Schema.from_json(rows)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gren", ["'colour'", "'gren'", "'red', 'blue', 'green'", "did you mean 'green'?"]),
        (17, ["'colour'", "17", "expected one of"]),
    ],
)
def test_unknown_categories_name_the_known_ones(value: object, words: list[str]) -> None:
    with pytest.raises(QueryError) as caught:
        COLOUR.encode(value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("value", ["forty", [1], math.inf])
def test_what_is_no_number_is_refused_for_a_real(value: object) -> None:
    with pytest.raises(QueryError, match=r"'age'.*expected a.*number"):
        Variable("age").encode(value)


def test_many_categories_are_not_all_listed() -> None:
    many = Variable("v", "category", tuple(f"level {i}" for i in range(500)))
    with pytest.raises(QueryError, match="500 in all"):
        many.encode("none of these")


def test_an_empty_unit_is_none() -> None:
    assert Variable("dose", unit="") == Variable("dose")


def test_values_of_a_boolean_are_named_in_short() -> None:
    with pytest.raises(StructureError, match="a boolean has two values") as caught:
        Variable("x", "boolean", ("y" * 100_000, "no", "perhaps"))
    assert len(str(caught.value)) < 200


def test_variables_by_name() -> None:
    schema = Schema((COLOUR, Variable("age", unit="years"), Variable("n", "count")))
    assert schema.names == ("colour", "age", "n")
    assert schema["age"].unit == "years" and schema.index("n") == 2
    assert "age" in schema and "Age" not in schema and len(schema) == 3
    assert schema.select(["n", "colour"]).names == ("n", "colour")
    assert Schema.real(3).names == ("x0", "x1", "x2")
    assert Schema.real(["a"])["a"].kind == "real"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("colours", ["'colours'", "did you mean 'colour'?"]),
        ("zzz", ["'zzz'", "there are 'colour'"]),
    ],
)
def test_unknown_variables_say_what_there_is(name: str, words: list[str]) -> None:
    with pytest.raises(QueryError) as caught:
        Schema((COLOUR, Variable("age")))[name]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), np.array([]), 10**5000, object(), "\ud800", {}], ids=range(6)
)
def test_values_that_no_category_is(value: object) -> None:
    variable = Variable("grade", "category", ("a", 1))
    with pytest.raises(QueryError, match="'grade' has no category") as caught:
        variable.encode(value)
    str(caught.value).encode()


@pytest.mark.parametrize(
    "facts", [("\ud800",), ("a", "category", ("x", "\udfff")), ("a", "real", (), "\ud900")]
)
def test_text_that_cannot_be_written(facts: tuple[object, ...]) -> None:
    with pytest.raises(StructureError, match="half of a pair of UTF-16"):
        Variable(*facts)  # type: ignore[arg-type]


def test_labels_are_for_readers() -> None:
    assert Variable("smoker", "boolean").labels == ("no", "yes")
    assert Variable("x", "category", (0, "yes", True)).labels == ("0", "yes", "True")
    assert Variable("bit", "boolean", (0, 1)).labels == ("0", "1")
    assert Variable("answer", "boolean", ("nein", "ja")).labels == ("nein", "ja")
    assert Variable("age").labels == ()


def test_long_categories_are_cut_in_errors() -> None:
    with pytest.raises(StructureError, match="named twice") as refused:
        Variable("x", "category", ("x" * 10_000, "x" * 10_000))
    assert len(str(refused.value)) < 400

from __future__ import annotations

import pytest

from fedcircuits.circuits.questions.events import parse_event
from fedcircuits.circuits.questions.regions import Event
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

ODD = (
    "hours-per-week",
    "hours",
    "mean radius",
    "mean",
    "sepal length (cm)",
    "not-in-family",
    "1stFlrSF",
    "größe",
    "x.1",
    "_a",
    "a_",
    "a and b",
    "P (kPa)",
)
QUOTED = ("in", "OR", "7", "1e3", "a`b", " age", "-x", "(y)", "'z'", "%", "", "x\ny")
SCHEMA = Schema(tuple(Variable(n, "count") for n in ODD + QUOTED))


def above(name: str) -> Event:
    return ({name: ((3.5, float("inf")),)},)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("form", ["{}>3", "{} > 3", "3<{}", "not {} <= 3", "({} > 3)"])
def test_odd_names_are_read_bare(name: str, form: str) -> None:
    assert parse_event(form.format(name), SCHEMA) == above(name)


@pytest.mark.parametrize("name", ODD + QUOTED)
def test_every_name_is_read_in_backticks(name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    assert parse_event(f"{quoted} > 3 and 4 <= {quoted}", SCHEMA) == above(name)


@pytest.mark.parametrize("name", ["in", "OR", "7", "1e3"])
def test_numbers_and_keywords_need_backticks(name: str) -> None:
    with pytest.raises(QueryError, match=r"write `.*` in backticks"):
        parse_event(f"{name} > 3", SCHEMA)


def test_a_name_in_quotes_is_a_value() -> None:
    with pytest.raises(QueryError, match="write `mean radius` in backticks"):
        parse_event("'mean radius' > 3", SCHEMA)


def test_case_decides_only_between_names_that_differ_in_it() -> None:
    schema = Schema(tuple(Variable(n, "count") for n in ("Age", "AGE", "Mean Radius")))
    assert parse_event("Age > 3", schema) == above("Age")
    assert parse_event("AGE > 3", schema) == above("AGE")
    assert parse_event("mean radius > 3", schema) == above("Mean Radius")
    with pytest.raises(QueryError, match="unknown variable 'age': did you mean"):
        parse_event("age > 3", schema)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("hours-per-weeks > 3", "hours-per-week"),
        ("3 < hours-per-weeks", "hours-per-week"),
        ("mean radiu > 3", "mean radius"),
        ("mean  radius > 3", "mean radius"),
        ("`mean radiu` > 3", "mean radius"),
    ],
)
def test_a_name_goes_on_to_its_end(text: str, near: str) -> None:
    with pytest.raises(QueryError, match=f"did you mean '{near}'"):
        parse_event(text, SCHEMA)


LABELS = (
    ">50K",
    "<=50K",
    "7th-8th",
    "10th",
    "dark red",
    "dark",
    "rock and roll",
    "it's",
    '"',
    "-1",
)


@pytest.mark.parametrize("label", LABELS)
def test_odd_categories(label: str) -> None:
    schema = Schema((Variable("v", "category", LABELS),))
    code = LABELS.index(label)
    expected = ({"v": ((code - 0.5, code + 0.5),)},)
    single, double = label.replace("'", "''"), label.replace('"', '""')
    assert parse_event(f"v = '{single}'", schema) == expected
    assert parse_event(f'v in {{"{double}"}}', schema) == expected
    if label != '"':
        assert parse_event(f"v = {label}", schema) == expected
        assert parse_event(f"v in [{label}] and v == {label}", schema) == expected


def test_a_category_may_be_named_like_a_variable() -> None:
    schema = Schema((Variable("colour", "category", ("red", "blue")), Variable("red")))
    assert parse_event("colour = red", schema) == ({"colour": ((-0.5, 0.5),)},)

from __future__ import annotations

import pytest

from fedcircuits.circuits.questions.events import parse_event, parse_evidence, parse_question
from fedcircuits.circuits.questions.grammar import MAXIMUM_DEPTH
from fedcircuits.circuits.questions.regions import Event
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

SCHEMA = Schema(
    (
        Variable("age"),
        Variable("height"),
        Variable("n", "count"),
        Variable("sex", "category", ("female", "male")),
        Variable("smoker", "boolean"),
    )
)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "expected a condition such as age > 0, found the end"),
        ("age >", 5, "expected a value of 'age', found the end"),
        ("age > and smoker", 6, "expected a number, got 'and'"),
        ("age > 40 and", 12, "expected a condition such as age > 0, found the end"),
        ("or smoker", 0, "expected a condition such as age > 0, found 'or'"),
        ("(age > 40", 9, "expected ')', 'and' or 'or', found the end"),
        ("age > 40)", 8, "expected 'and', 'or' or the end, found ')'"),
        ("age > 40 smoker", 9, "expected 'and', 'or' or the end, found 'smoker'"),
        ("age > 3 < 5", 8, "expected 'and', 'or' or the end, found '<'"),
        ("age >< 3", 5, "expected a value of 'age', found '<'"),
        ("age 40", 0, "'age' alone is no condition: expected a comparison such as age > 1"),
        ("smoker and sex", 11, "'sex' alone is no condition"),
        ("3 < 4", 0, "expected a variable to compare 3 with"),
        ("'a' = 'b'", 0, "expected a variable to compare 'a' with"),
        ("age > height", 6, "expected a value to compare 'age' with, found another variable"),
        ("age > `height`", 6, "expected a value to compare 'age' with, found another variable"),
        ("smoker and agee > 4", 11, "unknown variable 'agee': did you mean 'age'?"),
        ("`agee` > 4", 0, "unknown variable 'agee': did you mean 'age'?"),
        ("age > 'old'", 6, "'age' is a real: expected a number, got 'old'"),
        ("age > 20-30", 6, "expected a number, got '20-30'"),
        ("age > 1e999", 6, "expected a finite number"),
        ("'old' < age", 0, "'age' is a real: expected a number, got 'old'"),
        ("3 < age < x", 10, "expected a number, got 'x'"),
        ("sex = femal", 6, "did you mean 'female'?"),
        ("sex in {female, mal}", 16, "did you mean 'male'?"),
        ("sex > female", 6, "the values of 'sex' have no order: expected =, != or in"),
        ("sex in female", 7, "expected '{' and a list of values after 'in', found 'female'"),
        ("sex in {}", 8, "expected a value of 'sex', found '}'"),
        ("sex in {female", 14, "expected ',' or '}', found the end"),
        ("sex in {female)", 14, "expected ',' or '}', found ')'"),
        ("sex not female", 8, "expected 'in' after 'not', found 'female'"),
        ("age between 3 or 4", 14, "expected 'and' between the two ends, found 'or'"),
        ("age between 4 and 3", 12, "'age' between 4 and 3: the lower end is above the upper end"),
        ("sex = 'female", 6, "expected a second ' that closes the one opened here"),
        ("`age > 3", 0, "expected a second ` that closes the one opened here"),
        ("age = 40", 0, "an exact value of 'age', which is real, has probability zero"),
        ("age\n> 3\tand ?", 12, "expected a condition such as age > 0, found '?'"),
    ],
)
def test_mistakes_are_pointed_at(text: str, column: int, message: str) -> None:
    with pytest.raises(QueryError) as error:
        parse_event(text, SCHEMA)
    said, shown, caret = str(error.value).split("\n")
    assert message in said
    assert shown == "  " + text.replace("\n", " ").replace("\t", " ")
    assert caret == " " * (2 + column) + "^"


def test_a_long_text_is_shown_around_the_mistake() -> None:
    text = "age > 3 and " * 50 + "agee > 4" + " and smoker" * 50
    with pytest.raises(QueryError) as error:
        parse_event(text, SCHEMA)
    _, shown, caret = str(error.value).split("\n")
    assert shown[caret.index("^") :].startswith("agee > 4")
    assert len(shown) < 110 and shown[2] == shown[-1] == "…"


@pytest.mark.parametrize("parse", [parse_event, parse_evidence, parse_question])
def test_long_and_deep_texts_are_refused(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(QueryError, match="1,000,000 characters: expected at most 10,000"):
        parse("(" * 1_000_000, SCHEMA)
    for opening in ("(", "not ", "!", "!("):
        with pytest.raises(QueryError, match="at most 100 parentheses and nots"):
            parse(opening * 2_000 + "smoker", SCHEMA)


def test_the_deepest_text_allowed() -> None:
    half = MAXIMUM_DEPTH // 2
    text = "not (n = 1 or n = 2 and smoker or " * half + "n = 3" + ")" * half
    assert parse_event(text, SCHEMA)
    with pytest.raises(QueryError, match="parentheses and nots"):
        parse_event(f"({text})", SCHEMA)


def test_text_is_text() -> None:
    with pytest.raises(QueryError, match="a question must be text, got int"):
        parse_event(3, SCHEMA)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- questions

SMOKER: Event = ({"smoker": ((0.5, 1.5),)},)


@pytest.mark.parametrize(
    "text",
    ["P(smoker | age = 60, n > 2)", "smoker|age=60 and n>2", " pr ( smoker | n > 2, 60 = age ) "],
)
def test_questions(text: str) -> None:
    event, evidence = parse_question(text, SCHEMA)
    assert event == SMOKER
    assert evidence.values == {"age": 60}
    assert evidence.event == ({"n": ((2.5, float("inf")),)},)


def test_a_bar_in_parentheses_is_an_or() -> None:
    event, evidence = parse_question("P((n < 2 | n > 5) || smoker | (n < 2 | n > 5))", SCHEMA)
    assert event == parse_event("n < 2 or n > 5 or smoker", SCHEMA)
    assert evidence.event == parse_event("n < 2 or n > 5", SCHEMA)


@pytest.mark.parametrize("name", ["P", "P (kPa)"])
def test_a_variable_may_be_called_p(name: str) -> None:
    schema = Schema((Variable(name, "count"), *SCHEMA))
    expected = ({name: ((3.5, float("inf")),)},)
    for form in ("P({} > 3)", "{} > 3", "P({} > 3 | {} > 2)"):
        assert parse_question(form.format(name, name), schema)[0] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("P(smoker | n > 2 | age > 3)", "one bar only, before what is given"),
        ("P(smoker", "expected '\\)', 'and' or 'or', found the end"),
        ("P(smoker) + 1", "expected 'and', 'or' or the end, found '\\+'"),
        ("P()", "expected a condition such as"),
        ("P(smoker | )", "expected a condition such as"),
        ("P( | smoker)", "expected a condition such as"),
        ("P(age = 3 | smoker)", "probability zero"),
    ],
)
def test_mistakes_in_questions(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        parse_question(text, SCHEMA)


# ---------------------------------------------------------------------- what only an attacker asks


@pytest.mark.parametrize("figure", ["9" * 400, "-" + "9" * 400, "1e400", "9" * 5000])
@pytest.mark.parametrize("text", ["x > {}", "{} < x", "x between 0 and {}", "x in {{{}}}"])
def test_numbers_beyond_all_measure(text: str, figure: str) -> None:
    schema = Schema((Variable("x"),))
    with pytest.raises(QueryError, match="expected a finite number") as caught:
        parse_event(text.format(figure), schema)
    assert len(str(caught.value)) < 400


def test_text_that_cannot_be_written() -> None:
    with pytest.raises(QueryError, match="half of a pair of UTF-16") as caught:
        parse_event("x > 1 and \ud800", Schema((Variable("x"),)))
    str(caught.value).encode()


@pytest.mark.parametrize(
    "value",
    [10**400, 10**5000, [10**5000], (10**400, None), {1.0, float("inf")}, object(), 1j],
    ids=range(7),
)
def test_values_beyond_all_measure(value: object) -> None:
    with pytest.raises(QueryError, match="expected a"):
        parse_evidence({"x": value}, Schema((Variable("x"),)))


@pytest.mark.parametrize(
    "text", ["`" + "``" * 2000 + "` > 1", "x > 1 " + "9" * 4000, "+0" + "9" * 400 + " < 4"]
)
def test_errors_are_short(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_event(text, Schema((Variable("x"),)))
    assert len(str(caught.value)) < 400

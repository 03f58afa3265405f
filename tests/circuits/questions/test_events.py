"""Events against brute force: random expressions, true or false at every point of a grid.

The grid has all ends that conditions can have and a point in every cell between them, so equality
on the grid is equality.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.questions.events import (
    Evidence,
    parse_event,
    parse_evidence,
    parse_question,
)
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, after, before
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable

Mask = npt.NDArray[np.bool_]
Said = tuple[str, Mask]

SCHEMA = Schema(
    (
        Variable("mean radius"),
        Variable("hours-per-week", "count"),
        Variable("colour", "category", ("red", "dark red", ">50K")),
        Variable("stage", "category", ("3", "1", "2")),
        Variable("smoker", "boolean", ("yes", "no")),
        Variable("old", "boolean"),
    )
)
REALS = (-2.75, -2.0, -1.25, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 1.0, 1.75, 2.0, 2.25)
COUNTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
GRID = np.array(list(itertools.product(REALS, COUNTS, *(range(v.size) for v in SCHEMA if v.size))))
POINTS = dict(zip(SCHEMA.names, GRID.T, strict=True))  # each (points,)
ORDERS: dict[str, Callable[..., Mask]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


# ---------------------------------------------------------------------- random expressions


def user_values(name: str) -> npt.NDArray[np.object_]:
    """(points,) what the user calls the value at each point."""
    return np.array([SCHEMA[name].decode(v) for v in POINTS[name]], dtype=object)


USER = {name: user_values(name) for name in SCHEMA.names}
NUMBERS = {
    "mean radius": POINTS["mean radius"],
    "hours-per-week": POINTS["hours-per-week"],
    "stage": USER["stage"].astype(float),
}
BOUNDS = {
    "mean radius": st.sampled_from(["-2", "-1", "0", "1e0", "+2.0", "-.5"]),
    "hours-per-week": st.sampled_from(["-1", "0", "1", "2.5", "3", "4.0", "6", "1_0"]),
    "stage": st.sampled_from(["0", "1", "1.5", "2", "3", "'2'"]),
}


def as_number(text: str) -> float:
    return float(text.strip("'"))


@st.composite
def orders(draw: st.DrawFn) -> Said:
    name = draw(st.sampled_from(sorted(BOUNDS)))
    operator, bound = draw(st.sampled_from(sorted(ORDERS))), draw(BOUNDS[name])
    mask = ORDERS[operator](NUMBERS[name], as_number(bound))
    if draw(st.booleans()):
        return f"{name} {operator} {bound}", mask
    return f"{bound}{MIRRORED[operator]}`{name}`", mask


@st.composite
def chains(draw: st.DrawFn) -> Said:
    name = draw(st.sampled_from(sorted(BOUNDS)))
    low, high = draw(BOUNDS[name]), draw(BOUNDS[name])
    below, above = draw(st.sampled_from(["<", "<="])), draw(st.sampled_from(["<", "<="]))
    mask = ORDERS[MIRRORED[below]](NUMBERS[name], as_number(low))
    return f"{low} {below} {name} {above} {high}", mask & ORDERS[above](
        NUMBERS[name], as_number(high)
    )


@st.composite
def intervals(draw: st.DrawFn) -> Said:
    name = draw(st.sampled_from(sorted(BOUNDS)))
    low, high = sorted((draw(BOUNDS[name]), draw(BOUNDS[name])), key=as_number)
    assume(name != "mean radius" or as_number(low) < as_number(high))
    mask = (NUMBERS[name] >= as_number(low)) & (NUMBERS[name] <= as_number(high))
    return f"{name} BETWEEN {low} And {high}", mask


@st.composite
def choices(draw: st.DrawFn) -> Said:
    name = draw(st.sampled_from(["colour", "stage", "smoker"]))
    chosen = draw(st.lists(st.sampled_from(SCHEMA[name].categories), min_size=1, max_size=3))
    quote = draw(st.sampled_from(["{0}", "'{0}'", '"{0}"']))
    written = [quote.format(c) for c in chosen]
    opening, closing = draw(st.sampled_from(["{}", "[]", "()"]))
    mask = np.isin(USER[name].astype(str), list(map(str, chosen)))
    if draw(st.booleans()):
        return f"{name} not in {opening}{','.join(written)}{closing}", ~mask
    return f"{name} in {opening} {' , '.join(written)} {closing}", mask


@st.composite
def equalities(draw: st.DrawFn) -> Said:
    name = draw(st.sampled_from(["colour", "stage", "smoker", "hours-per-week"]))
    value = draw(st.sampled_from(SCHEMA[name].categories or ("0", "3", "2.5", "-1", "6")))
    mask = USER[name].astype(str) == value
    operator = draw(st.sampled_from(["=", "==", "!=", "<>", "≠"]))
    text = f"{name} {operator} {value}" if draw(st.booleans()) else f"'{value}'{operator}{name}"
    return text, mask if operator in ("=", "==") else ~mask


ALONE = st.sampled_from(
    [
        ("smoker", USER["smoker"] == "yes"),
        ("old", POINTS["old"] == 1),
        ("old = no", POINTS["old"] == 0),
        ("smoker = True", USER["smoker"] == "yes"),
    ]
)
CONDITIONS = st.one_of(orders(), chains(), intervals(), choices(), equalities(), ALONE)


def joined(children: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    pairs = st.tuples(children, children)
    ands = st.sampled_from([" and ", " AND ", "&", " && "])
    ors = st.sampled_from([" or ", " Or ", "|", " || "])
    return st.one_of(
        st.builds(lambda p, o: (f"({p[0][0]}{o}{p[1][0]})", p[0][1] & p[1][1]), pairs, ands),
        st.builds(lambda p, o: (f"({p[0][0]}{o}{p[1][0]})", p[0][1] | p[1][1]), pairs, ors),
        st.builds(lambda c, n: (f"{n}({c[0]})", ~c[1]), children, st.sampled_from(["not ", "!"])),
        st.builds(lambda c: (f"not {c[0]}", ~c[1]), children),
    )


EXPRESSIONS = st.recursive(CONDITIONS, joined, max_leaves=7)


def hits(event: Event) -> npt.NDArray[np.int64]:
    """(points,) how many boxes hold each point."""
    count = np.zeros(len(GRID), dtype=np.int64)
    for box in event:
        inside = np.ones(len(GRID), dtype=bool)
        for name, region in box.items():
            inside &= np.any([(lo < POINTS[name]) & (POINTS[name] < up) for lo, up in region], 0)
        count += inside
    return count


@settings(max_examples=150)
@given(EXPRESSIONS)
def test_an_event_holds_where_its_expression_is_true(said: Said) -> None:
    text, mask = said
    np.testing.assert_array_equal(hits(parse_event(text, SCHEMA)), mask.astype(int), text)


@given(CONDITIONS, CONDITIONS, CONDITIONS)
def test_and_binds_before_or_and_not_before_and(a: Said, b: Said, c: Said) -> None:
    event = parse_event(f"{a[0]} or not {b[0]} and {c[0]}", SCHEMA)
    np.testing.assert_array_equal(hits(event), (a[1] | (~b[1] & c[1])).astype(int))


@given(CONDITIONS, CONDITIONS, CONDITIONS)
def test_a_comma_is_an_and_that_binds_last(a: Said, b: Said, c: Said) -> None:
    event = parse_event(f"{a[0]} or {b[0]}, {c[0]}", SCHEMA)
    np.testing.assert_array_equal(hits(event), ((a[1] | b[1]) & c[1]).astype(int))


@settings(max_examples=100)
@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from(REALS) | st.none())
def test_evidence_holds_where_its_expression_is_true(
    first: Said, second: Said, radius: float | None
) -> None:
    text, mask = f"{first[0]} and ({second[0]})", first[1] & second[1]
    if radius is not None:
        text, mask = f"{text} and mean radius = {radius}", mask & (GRID[:, 0] == radius)
    if not mask.any():
        with pytest.raises(QueryError, match="contradicts itself"):
            parse_evidence(text, SCHEMA)
        return
    evidence = parse_evidence(text, SCHEMA)
    fixed = [POINTS[name] == value for name, value in evidence.values.items()]
    inside = np.all(fixed, 0) if fixed else np.ones(len(GRID), dtype=bool)
    np.testing.assert_array_equal(hits(evidence.event) * inside, mask.astype(int), text)
    assert not any(name in box for name in evidence.values for box in evidence.event)


@given(EXPRESSIONS, EXPRESSIONS)
def test_a_question_is_an_event_given_evidence(asked: Said, given_: Said) -> None:
    assume(given_[1].any())
    for form in ("P(({0}) | ({1}))", " ({0}) | ({1}) ", "pr ( ({0})|({1}) ) "):
        event, evidence = parse_question(form.format(asked[0], given_[0]), SCHEMA)
        assert event == parse_event(asked[0], SCHEMA)
        assert evidence == parse_evidence(given_[0], SCHEMA)


WORDS = st.sampled_from(
    "mean radius|hours-per-week|colour|smoker|red|>50K|and|or|not|in|between|(|)|{|}|,|=|<|>=|!"
    "|&|'|\"|`|1|2.5|-|.|e5|P|\n|é|\x00|colour2|old".split("|")
)


@settings(max_examples=150)
@given(st.lists(WORDS | st.just("|"), max_size=12), st.sampled_from(["", " "]))
def test_any_text_is_read_or_refused(words: list[str], gap: str) -> None:
    text = gap.join(words)
    for parse in (parse_event, parse_evidence, parse_question):
        try:
            parse(text, SCHEMA)
        except QueryError as error:
            assert str(error)


# ---------------------------------------------------------------------- what evidence fixes

PATIENTS = Schema(
    (
        Variable("age"),
        Variable("income"),
        Variable("visits", "count"),
        Variable("sex", "category", ("female", "male")),
        Variable("colour", "category", ("red", "blue", "green")),
        Variable("stage", "category", ("1", "2", "3")),
        Variable("smoker", "boolean"),
        Variable("risk", "category", ("low", "high")),
    )
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("age = 40", {"age": 40}),
        ("age in {40} and sex = male", {"age": 40, "sex": 1}),
        ("age = 40 and age >= 40 and (age < 50 or smoker)", {"age": 40}),
        ("age = 40, age != 41, not age in {42}", {"age": 40}),
        ("age between 40 and 40", {"age": 40}),
        ("age >= 40 and not age > 40", {"age": 40}),
        ("(age <= 40 or smoker) and 40 <= age <= 41 and not smoker", {"age": 40, "smoker": 0}),
        ("not smoker and colour not in {red, blue}", {"smoker": 0, "colour": 2}),
        ("not (smoker or sex != male)", {"smoker": 0, "sex": 1}),
        ("2.5 < visits < 3.5", {"visits": 3}),
        ("", {}),
        ("  ", {}),
    ],
)
def test_what_evidence_fixes(text: str, values: dict[str, float]) -> None:
    assert parse_evidence(text, PATIENTS) == Evidence(values, EVERYTHING)


def test_one_value_in_every_alternative_is_fixed() -> None:
    evidence = parse_evidence("smoker and (age > 40 or income < 3)", PATIENTS)
    assert evidence.values == {"smoker": 1}
    assert evidence.event == (
        {"age": ((40, math.inf),)},
        {"age": ((-math.inf, after(40)),), "income": ((-math.inf, 3),)},
    )


def test_evidence_from_a_mapping() -> None:
    known = {
        "age": 40,
        "sex": "female",
        "income": (30, 50),
        "colour": {"red", "blue"},
        "stage": 2.0,
        "smoker": "yes",
        "visits": None,
        "risk": math.nan,
    }
    evidence = parse_evidence(known, PATIENTS)
    assert evidence.values == {"age": 40, "sex": 0, "stage": 1, "smoker": 1}
    assert evidence.event == ({"income": ((before(30), after(50)),), "colour": ((-0.5, 1.5),)},)


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), pd.NA, pd.NaT])
def test_missing_values_of_a_mapping_are_not_known(missing: object) -> None:
    assert parse_evidence({"age": missing, "sex": missing}, PATIENTS) == Evidence()
    assert parse_evidence({"age": (missing, missing)}, PATIENTS) == Evidence()


def test_open_ends_and_lists_of_a_mapping() -> None:
    known = {"age": (None, 30), "income": (10, math.inf), "visits": [1, 2], "stage": (2, None)}
    assert parse_evidence(known, PATIENTS).event == (
        {
            "age": ((-math.inf, after(30)),),
            "income": ((before(10), math.inf),),
            "visits": ((0.5, 2.5),),
            "stage": ((0.5, 2.5),),
        },
    )
    numbers = {"age": np.float64(3), "visits": np.int64(2), "smoker": np.bool_(True)}
    assert parse_evidence(numbers, PATIENTS).values == {"age": 3, "visits": 2, "smoker": 1}


def test_no_evidence() -> None:
    assert parse_evidence(None, PATIENTS) == parse_evidence({}, PATIENTS) == Evidence()
    assert parse_question("P(smoker)", PATIENTS)[1] == Evidence()


# ---------------------------------------------------------------------- errors of meaning


@pytest.mark.parametrize("text", ["age = 40", "age != 40", "age in {40, 50}", "not age == 40"])
def test_exact_values_of_real_variables_cannot_be_asked_for(text: str) -> None:
    with pytest.raises(QueryError, match=r"probability zero.* 39\.5 < age < 40\.5"):
        parse_event(text, PATIENTS)


def test_the_interval_suggested_has_the_decimals_of_the_value() -> None:
    with pytest.raises(QueryError, match=r"0\.1225 < age < 0\.1235"):
        parse_event("age = 0.123", PATIENTS)
    with pytest.raises(QueryError, match=r"5E\+19 < age < 1\.5E\+20"):
        parse_event("age = 1e20", PATIENTS)


@pytest.mark.parametrize(
    "known",
    ["age = 40 or smoker", "not age = 40", "age != 40", "age in {40, 50}", {"age": [40, 50]}],
)
def test_exact_values_are_known_for_certain_or_not_at_all(known: str | dict[str, object]) -> None:
    with pytest.raises(QueryError, match=r"'age' is real: .*39\.5 < age < 40\.5"):
        parse_evidence(known, PATIENTS)


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("age > 40 and age < 30", "'age'"),
        ("age = 40 and age > 40", "'age'"),
        ("age >= 40 and age < 40", "'age'"),
        ("age = 40, age = 41", "'age'"),
        ("age = 40 and age != 40", "'age'"),
        ("smoker and age > 2 and not smoker", "'smoker'"),
        ("colour = red and (colour = blue or colour = green and smoker)", "'colour', 'smoker'"),
        ("visits = 2.5", "'visits'"),
        ("visits < 0", "'visits'"),
        ({"visits": 2.5}, "'visits'"),
    ],
)
def test_contradictions_name_the_variable(known: str | dict[str, object], name: str) -> None:
    with pytest.raises(QueryError, match=f"contradicts itself: no value of {name} "):
        parse_evidence(known, PATIENTS)


def test_a_contradiction_points_to_the_condition() -> None:
    with pytest.raises(QueryError) as error:
        parse_question("P(smoker | age > 40 and age < 30)", PATIENTS)
    assert str(error.value).splitlines()[1:] == [
        "  P(smoker | age > 40 and age < 30)",
        "                          ^",
    ]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"agee": 3}, "unknown variable 'agee': did you mean 'age'"),
        ({"age": "old"}, "'age' is a real: expected a number, got 'old'"),
        ({"age": math.inf}, "finite"),
        ({"age": (50, 30)}, "'age' between 50 and 30: the lower end is above"),
        ({"age": (5, -math.inf)}, "finite"),
        ({"age": (1, 2, 3)}, "expected an interval .low, high., got 3 values"),
        ({"sex": ("female", "male")}, "the values of 'sex' have no order"),
        ({"sex": "femal"}, "no category 'femal'.*did you mean 'female'"),
        ({"sex": set()}, "'sex': expected at least one value"),
        ({"sex": {"male", None}}, "'sex' cannot be compared with a missing value"),
        ({"age": slice(1, 2)}, "expected a number"),
        (3, "must be text or a mapping of names to values, got int"),
    ],
)
def test_mistakes_in_a_mapping(known: object, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        parse_evidence(known, PATIENTS)  # type: ignore[arg-type]

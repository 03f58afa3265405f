"""Numbers with units and dates in questions, spelled as in the files of the model."""

import math

import pytest

from fedcircuits.circuits.questions.events import parse_event, parse_evidence
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import ReadingHabits, Schema, Variable

COLUMNS = (
    Variable("share", unit="%"),
    Variable("price", unit="€"),
    Variable("crp", unit="mg/l"),
    Variable("bp", unit="mm Hg"),
    Variable("came", unit="h"),
    Variable("born", unit="date"),
    Variable("visits", "count"),
    Variable("age"),
    Variable("bmi"),
    Variable("weight [kg]"),
)
GERMAN, AMERICAN = ReadingHabits(",", "dmy"), ReadingHabits(".", "mdy")


def lower_ends(text: str, *habits: ReadingHabits) -> dict[str, float]:
    (box,) = parse_event(text, Schema(COLUMNS, habits))
    return {name: region[0][0] for name, region in box.items()}


@pytest.mark.parametrize(
    "text, name, end",
    [
        ("share > 30%", "share", 30),
        ("30 % < share", "share", 30),
        ("price > 1.200,50 €", "price", 1200.5),
        ("price > € 1'200.50", "price", 1200.5),
        ("price > EUR -3,5", "price", -3.5),
        ("crp > 5mg/L", "crp", 5),
        ("bp > 120 mm Hg", "bp", 120),
        ("weight [kg] > 70,5 kg", "weight [kg]", 70.5),
        ("came > 2h", "came", 2),
        ("came > 2h30", "came", 2.5),
        ("visits > 1 234", "visits", 1234.5),
        ("visits > 1.234.567", "visits", 1234567.5),
        ("born > 31 May 1964", "born", -2041),
        ("born > 31/5/1964", "born", -2041),
        ("born > 1970-01-02 12:00", "born", 1.5),
    ],
)
def test_any_spelling_that_can_be_read_in_one_way_only(text: str, name: str, end: float) -> None:
    for habits in ((), (GERMAN,), (AMERICAN,), (GERMAN, AMERICAN)):
        assert lower_ends(text, *habits) == {name: end}


def test_a_comma_between_conditions_and_values_is_not_part_of_a_number() -> None:
    assert lower_ends("age > 40,5 < bmi") == {"age": 40, "bmi": 5}
    assert lower_ends("40,5 < bmi") == {"bmi": 40.5}
    assert lower_ends("1.200,50 € < price, age > 40") == {"price": 1200.5, "age": 40}
    assert lower_ends("age > 40,5, bmi > 2,5") == {"age": 40.5, "bmi": 2.5}
    (box,) = parse_event("visits in {1,5}", Schema(COLUMNS))
    assert box == {"visits": ((0.5, 1.5), (4.5, 5.5))}


@pytest.mark.parametrize("text", ["age > 1.200", "age > 1,200", "1.200 < age", "age > '1,200'"])
def test_what_can_be_read_in_two_ways_is_read_as_in_the_files_or_refused(text: str) -> None:
    point = "." in text
    assert lower_ends(text, AMERICAN) == {"age": 1.2 if point else 1200}
    if point:
        assert lower_ends(text) == {"age": 1.2}
    else:
        assert lower_ends(text, GERMAN) == {"age": 1.2}
    for habits in ((GERMAN,) if point else (), (GERMAN, AMERICAN)):
        with pytest.raises(QueryError, match=r"can be 1\.2 or 1200; write 1200, or 1\.20"):
            lower_ends(text, *habits)
    with pytest.raises(QueryError, match=r"can be 1 or 1000; write 1000, or 1\.0"):
        lower_ends("age > 1.000", GERMAN)


def test_dates_follow_the_order_of_the_files() -> None:
    april, march = lower_ends("born > 2024-04-03"), lower_ends("born > 2024-03-04")
    for text in ("born > 3/4/2024", "born > '3/4/2024'"):
        assert lower_ends(text) == lower_ends(text, GERMAN) == april
        assert lower_ends(text, AMERICAN) == march
        with pytest.raises(QueryError, match="the day first in some files"):
            lower_ends(text, GERMAN, AMERICAN)


@pytest.mark.parametrize(
    "text, message",
    [
        ("crp > 5 g", "'crp' is in mg/l: expected a number in mg/l, or without a unit, got '5 g'"),
        ("price > $5", "'price' is in €"),
        ("age > 40%", "'age' has no unit: expected a number without one, got '40%'"),
        ("age > 10-20", "expected a number, got '10-20'"),
        ("age > '<5'", "expected a number, got '<5'"),
    ],
)
def test_another_unit_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message.replace("$", r"\$")):
        parse_event(text, Schema(COLUMNS))


def test_mappings_take_the_same_texts() -> None:
    known = parse_evidence({"price": "1.200,50 €", "share": ("30 %", None)}, Schema(COLUMNS))
    assert known.values == {"price": 1200.5}
    assert known.event == ({"share": ((math.nextafter(30, 0), math.inf),)},)

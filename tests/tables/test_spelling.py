"""Numbers, dates and truth values as people write them."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.tables import spelling

NAN = float("nan")


@pytest.mark.parametrize(
    ("texts", "values", "unit"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300], None),
        (["0,8", "1,25", "12"], [0.8, 1.25, 12], None),
        (["1.234,5", "0,5"], [1234.5, 0.5], None),
        (["1,234.5", "2"], [1234.5, 2], None),
        (["1,234", "5,678"], [1234, 5678], None),  # thousands, as nothing says otherwise
        (["1,234", "5,6"], [1.234, 5.6], None),
        (["1'234.50", "12"], [1234.5, 12], None),
        (["1 234,5", "2"], [1234.5, 2], None),
        (["1\u00a0234", "12"], [1234, 12], None),
        (["12 %", "7%"], [12, 7], "%"),
        (["€ 3,50", "€ 1.200,00"], [3.5, 1200], "€"),
        (["$1,200.50", "$3"], [1200.5, 3], "$"),
        (["12 EUR", "3,5 EUR"], [12, 3.5], "EUR"),
        (["3.2 mg/l", "10 mg/l"], [3.2, 10], "mg/l"),
        (["<5", "7", "12", "0.5", "> 100"], [5, 7, 12, 0.5, 100], None),
        (["(3.5)", "2"], [-3.5, 2], None),
        (["−3", "2"], [-3, 2], None),
    ],
)
def test_numbers(texts: list[str], values: list[float], unit: str | None) -> None:
    found = spelling.numbers(texts)
    assert found is not None
    np.testing.assert_allclose(found.values, values)
    assert found.unit == unit


@pytest.mark.parametrize(
    "texts",
    [
        ["01234", "10115"],  # postcodes
        ["low", "high"],
        ["3 mg", "2 g"],  # not to be added
        ["<=50K", ">50K"],  # classes
        ["<18", "18", ">65"],
        ["1.2.3", "4.5.6"],
        ["12:30", "8:15"],
        [],
    ],
)
def test_what_is_no_column_of_numbers(texts: list[str]) -> None:
    assert spelling.numbers(texts) is None


def test_few_odd_texts_are_missing() -> None:
    found = spelling.numbers([*map(str, range(20)), "haemolysed"])
    assert found is not None
    assert np.isnan(found.values).tolist() == [False] * 20 + [True]


def test_the_decimal_sign_can_be_said() -> None:
    found = spelling.numbers(["1,234"], decimal=",")
    assert found is not None
    assert found.values.tolist() == [1.234]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_german_numbers_are_those_of_programs(numbers: list[float]) -> None:
    swap = str.maketrans(",.", ".,")
    texts = [f"{number:,.3f}".translate(swap) for number in numbers]
    found = spelling.numbers(texts, decimal=",")
    assert found is not None
    np.testing.assert_allclose(found.values, np.round(numbers, 3), atol=1e-9)


# ---------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("1964-05-31", "1964-05-31"),
        ("31/05/1964", "1964-05-31"),
        ("31.5.1964", "1964-05-31"),
        ("31.05.64", "1964-05-31"),
        ("31-05-1964", "1964-05-31"),
        ("1964/05/31", "1964-05-31"),
        ("05/31/1964", "1964-05-31"),
        ("31 May 1964", "1964-05-31"),
        ("May 31, 1964", "1964-05-31"),
        ("01.02.24", "2024-02-01"),
        ("2024-03-01T08:00:00Z", "2024-03-01T08:00"),
        ("2024-03-01 18:30", "2024-03-01T18:30"),
        ("01/03/2024 9:30", "2024-03-01T09:30"),
    ],
)
def test_dates(text: str, iso: str) -> None:
    found = spelling.dates([text])
    assert found is not None
    moment = datetime.datetime.fromisoformat(iso)
    days = (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
    np.testing.assert_allclose(found.days, [days])
    assert found.timed == ("T" in iso)


def test_the_order_of_day_and_month_is_that_of_the_column() -> None:
    months = spelling.dates(["03/04/2024", "03/25/2024"])
    days = spelling.dates(["03/04/2024", "25/04/2024"])
    assert months is not None
    assert days is not None
    assert days.days[0] - months.days[0] == 31 - 1  # 3 April, 4 March
    said = spelling.dates(["03/04/2024"], "mdy")
    assert said is not None
    assert said.days[0] == months.days[0]


@pytest.mark.parametrize("texts", [["12:30"], ["1.2.3.4"], ["99/99/2024"], ["hello"], ["2024"]])
def test_what_is_no_date(texts: list[str]) -> None:
    assert spelling.dates(texts) is None


@given(st.lists(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)), min_size=1))
def test_dates_of_the_calendar(dates: list[datetime.date]) -> None:
    found = spelling.dates([f"{d:%d.%m.%Y}" for d in dates], "dmy")
    assert found is not None
    expected = [(d - datetime.date(1970, 1, 1)).days for d in dates]
    assert found.days.tolist() == expected


# ---------------------------------------------------------------------- truths


@pytest.mark.parametrize(
    ("texts", "pair"),
    [
        (["Yes", "no ", "NO"], ("no", "yes")),
        (["True", "False"], ("false", "true")),
        (["J", "N"], ("n", "j")),
        (["oui", "non"], ("non", "oui")),
        (["yes"], None),
        (["yes", "no", "maybe"], None),
        (["0", "1"], None),  # numbers
    ],
)
def test_truths(texts: list[str], pair: tuple[str, str] | None) -> None:
    assert spelling.truths(texts) == pair

"""Dates and times as people write them."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.tables import dates


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
        ("31MAY1964", "1964-05-31"),
        ("31-May-64", "1964-05-31"),
        ("Sun, 31 May 1964", "1964-05-31"),
        ("31. Mai 1964", "1964-05-31"),
        ("31 mai 1964", "1964-05-31"),
        ("1 décembre 1964", "1964-12-01"),
        ("1. März 2024", "2024-03-01"),
        ("31 de mayo de 1964", "1964-05-31"),
        ("19640531", "1964-05-31"),
        ("31051964", "1964-05-31"),
        ("1964.05.31", "1964-05-31"),
        ("1964-05", "1964-05-01"),
        ("05/1964", "1964-05-01"),
        ("Mai 1964", "1964-05-01"),
        ("2024-W09", "2024-02-26"),
        ("2024-03-01T08:00:00+02:00", "2024-03-01T06:00"),
        ("2024-03-01 08:00 CET", "2024-03-01T07:00"),
        ("2024-03-01 08:00:00.123456", "2024-03-01T08:00"),
        ("3/31/2024 2:20 PM", "2024-03-31T14:20"),
        ("01.03.2024 08:15 Uhr", "2024-03-01T08:15"),
    ],
)
def test_dates(text: str, iso: str) -> None:
    found = dates.dates([text])
    assert found is not None
    moment = datetime.datetime.fromisoformat(iso)
    days = (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
    np.testing.assert_allclose(found.days, [days])
    assert found.timed == ("T" in iso)


def test_the_order_of_day_and_month_is_that_of_the_column() -> None:
    months = dates.dates(["03/04/2024", "03/25/2024"])
    days = dates.dates(["03/04/2024", "25/04/2024"])
    assert months is not None
    assert days is not None
    assert days.days[0] - months.days[0] == 31 - 1  # 3 April, 4 March
    said = dates.dates(["03/04/2024"], "mdy")
    assert said is not None
    assert said.days[0] == months.days[0]


@pytest.mark.parametrize(
    "texts",
    [
        ["12:30"],
        ["1.2.3.4"],
        ["99/99/2024"],
        ["hello"],
        ["2024"],
        ["9999-12-31"],
        ["00.00.0000"],
        ["31.02.2024"],
        ["1-0-1"],
        ["2023-24"],
        ["12345678"],
        ["Anna 1964"],
    ],
)
def test_what_is_no_date(texts: list[str]) -> None:
    assert dates.dates(texts) is None


@given(st.lists(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)), min_size=1))
def test_dates_of_the_calendar(days: list[datetime.date]) -> None:
    found = dates.dates([f"{d:%d.%m.%Y}" for d in days], "dmy")
    assert found is not None
    expected = [(d - datetime.date(1970, 1, 1)).days for d in days]
    assert found.days.tolist() == expected


def test_days_and_months_first_in_one_column_are_no_dates() -> None:
    assert dates.mixed_orders(["13/02/2024", "02/13/2024"])
    assert not dates.mixed_orders(["13/02/2024", "03/04/2024"])
    guessed = dates.dates(["03/04/2024"], hint="mdy")
    assert guessed is not None
    assert (guessed.doubtful, guessed.how) == ("dmy", "month first")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["08:30", "14:15", "00:00"], [8.5, 14.25, 0]),
        (["2:15 pm", "12:00 am"], [14.25, 0]),
        (["2h 30min", "45 min"], [2.5, 0.75]),
    ],
)
def test_times_are_hours(texts: list[str], expected: list[float]) -> None:
    found = dates.hours(texts)
    assert found is not None
    assert found[0].tolist() == expected


@pytest.mark.parametrize("texts", [["25:00"], ["8.30"], ["90 days"], ["noon"]])
def test_what_is_no_time(texts: list[str]) -> None:
    assert dates.hours(texts) is None

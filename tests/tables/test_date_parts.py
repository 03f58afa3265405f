"""Weekdays and months beside dates, and times of day in questions."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.errors import TableError
from fedcircuits.tables.date_parts import PARTS, codes
from fedcircuits.tables.declared import read_schema, read_table, schema_text
from fedcircuits.tables.schema import Variable

DAYS = [f"{1 + i % 28:02d}.{1 + i % 12:02d}.2021" for i in range(60)]


@given(st.dates(datetime.date(1000, 1, 1), datetime.date(2400, 1, 1)))
def test_they_are_those_of_the_calendar(day: datetime.date) -> None:
    days = np.array([(day - datetime.date(1970, 1, 1)).days + 0.4, np.nan])
    weekday, month = (codes(days, part) for part in PARTS)
    assert weekday[0] == day.weekday() and month[0] == day.month - 1
    assert np.isnan(weekday[1]) and np.isnan(month[1])


def test_columns_beside_the_date_and_read_again_from_dates_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("visit;x\n" + "".join(f"{d};{i % 7}\n" for i, d in enumerate(DAYS)))
    table = fc.Table.read(path, kinds={"visit": "date+weekday+month"})
    assert table.names == ("visit", "visit weekday", "visit month", "x")
    assert table.column("visit month")[:3].tolist() == ["Jan", "Feb", "Mar"]
    assert table.column("visit weekday")[0] == "Fri"  # the first of January 2021
    again = fc.Table.read(path, schema=table.schema)
    assert np.array_equal(again.values, table.values)
    frame = pd.DataFrame({"visit": pd.to_datetime(["2021-03-06"]), "x": [1]})
    assert fc.Table.of(frame, schema=table.schema).values[0, 1:3].tolist() == [5.0, 2.0]
    (tmp_path / "s.toml").write_text(schema_text(table.schema, table.readings))
    declared = read_schema(tmp_path / "s.toml")
    assert declared.columns["visit"].kind == "date+weekday+month"
    assert read_table(path, declared).schema == table.schema


def test_a_model_is_asked_in_them() -> None:
    visits = pd.DataFrame({"visit": pd.date_range("2021-01-01", periods=280)})
    visits["busy"] = visits["visit"].dt.day_of_week < 5
    table = fc.Table.of(visits, kinds={"visit": "date+weekday"})
    model = fc.MixtureOfProducts(8, random_state=0).fit(table)
    assert model.probability("busy = yes", given="visit weekday = Sun") < 0.2
    assert model.predict(visits[["visit"]].iloc[[1, 4]], "busy").tolist() == [False, True]


def test_what_is_no_part_is_refused() -> None:
    with pytest.raises(TableError, match=r"expected .*date\+weekday.*got 'date\+year'"):
        fc.Table.of({"visit": DAYS}, kinds={"visit": "date+year"})  # type: ignore[dict-item]


def test_times_of_day_in_questions() -> None:
    came = Variable("came", "real", unit="h")
    assert came.encode("14:30") == 14.5 and came.encode(3) == 3.0
    hours = np.random.default_rng(0).uniform(0, 24, 400)
    table = fc.Table.of({"came": hours, "late": hours > 12}, units={"came": "h"})
    model = fc.MixtureOfProducts(4, random_state=0).fit(table)
    asked = model.probability("late = true", given="came between 14:00 and 20:30")
    assert asked == model.probability("late = true", given="came between 14 and 20.5") > 0.8

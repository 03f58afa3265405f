"""Columns of dates are drawn and told as dates, not as days since 1970."""

from __future__ import annotations

import numpy as np

import fedcircuits as fc
from fedcircuits.pictures.drawing import figure_of
from fedcircuits.pictures.marginals import Beliefs, evidence_words, marginals_drawing


def model(days: int) -> fc.MixtureOfProducts:
    start = np.datetime64("2001-01-01")
    born = start + np.random.default_rng(0).integers(0, days, 80)
    table = fc.Table.of({"born": born.astype(str), "age": np.arange(80.0)})
    assert table.schema["born"].dated
    return fc.MixtureOfProducts(1, random_state=0).fit(table)


def ticks(found: fc.MixtureOfProducts) -> list[str]:
    beliefs = Beliefs(found._distribution, *found._given(None))
    figure = figure_of(marginals_drawing(beliefs, ["born"]))
    figure.canvas.draw()
    axes = figure.axes[-1]  # the only panel, above the ground
    return [label.get_text() for label in axes.get_xticklabels()]


def test_axes_have_years() -> None:
    years = ticks(model(9_000))
    assert len(years) >= 2 and all(1990 < int(year) < 2035 for year in years)


def test_axes_of_few_days_have_dates() -> None:
    days = ticks(model(90))
    assert days and all(day.startswith(("2000-", "2001-")) and len(day) == 10 for day in days)


def test_evidence_is_told_by_its_date() -> None:
    found = model(90)
    x, event = found._given({"born": "2001-02-03"})
    assert evidence_words(found.schema_, x, event) == "born = 2001-02-03"
    x, event = found._given("born > 2001-02-03")
    assert evidence_words(found.schema_, x, event).startswith("born >= 2001-02-0")

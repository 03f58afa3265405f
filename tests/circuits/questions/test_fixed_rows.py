"""Rows that are asked about again and again: the same answers as a question of its own."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.questions.distribution import Distribution, FixedRows
from tests.federation.cases import mixed_table


@pytest.fixture(scope="module")
def model() -> fc.LearnSPN:
    return fc.LearnSPN(min_rows=60, random_state=0).fit(mixed_table(400))


def rows_of(model: fc.LearnSPN) -> np.ndarray:
    """An empty row, and three of every column."""
    drawn = model._distribution.sample(
        np.full((3, len(model.schema_)), np.nan), np.random.default_rng(0)
    )
    rows = [np.full(len(model.schema_), np.nan)]
    for i in range(len(model.schema_)):
        for value in drawn[:, i]:
            rows.append(np.where(np.arange(len(model.schema_)) == i, value, np.nan))
    return np.array(rows)


@pytest.mark.parametrize("given", ["age > 40", "colour = red", "age > 40 and visits <= 3"])
@pytest.mark.parametrize("fixed", [None, "risk"])
def test_they_are_asked_beside_evidence(model: fc.LearnSPN, given: str, fixed: str | None) -> None:
    asked, rows = model._distribution, rows_of(model)
    assert isinstance(asked, Distribution) and FixedRows.suits(asked, rows)
    kept = FixedRows(asked, rows)
    x, event = model._given(given)
    if fixed is not None:
        x[0, model.schema_.index(fixed)] = 1.0
    regions = {model.schema_.index(name): region for name, region in event[0].items()}
    known = {*regions, *np.flatnonzero(~np.isnan(x[0])).tolist()}
    open_rows = np.flatnonzero(np.isnan(rows[:, sorted(known)]).all(1))
    whole = np.where(np.isnan(rows[open_rows]), x, rows[open_rows])
    expected = asked.log_probability(whole, event)
    np.testing.assert_allclose(kept.log_values(open_rows, x, regions), expected, rtol=1e-9)


def test_only_circuits_in_one_place_keep_rows() -> None:
    assert not FixedRows.suits(object(), np.zeros((1, 1)))

"""Distances of columns and dependence of pairs, where the answer is known."""

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.reports.comparison import dependence, distances, pairs

RNG = np.random.default_rng(0)


def test_distances_by_hand() -> None:
    one = fc.Table.of({"c": ["a"] * 3 + ["b"], "x": [0.5, 1.5, 2.5, 3.5]})
    two = fc.Table.of({"c": ["a"] * 1 + ["b"] * 3, "x": [9.5] * 4}, schema=one.schema)
    found = distances(one, two)
    assert found["c"] == pytest.approx(0.5) and found["x"] > 0.7
    assert (distances(one, one) == 0).all()


def test_missing_values_are_no_distance() -> None:
    """A model draws every value, so samples that lack none may come from the same distribution."""
    whole = fc.Table.of({"x": RNG.normal(size=4000), "c": RNG.choice(["a", "b"], 4000)})
    gaps = fc.Table(whole.schema, np.where(RNG.random((4000, 2)) < 0.3, np.nan, whole.values))
    assert distances(gaps, whole).max() < 0.05 and distances(whole, gaps).max() < 0.05
    model = fc.MixtureOfProducts(1, random_state=0).fit(gaps)
    assert fc.compare(model, gaps).columns["distance"].max() < 0.1


def test_a_copy_depends_and_a_coin_does_not() -> None:
    a = RNG.integers(0, 4, 4000)
    assert dependence(a, a, 4, 4) == pytest.approx(1, abs=0.01)
    assert dependence(a, RNG.integers(0, 4, 4000), 4, 4) == pytest.approx(0, abs=0.005)
    assert dependence(a, np.zeros(4000, np.int64), 4, 1) == 0


def test_gaps_are_a_value() -> None:
    """Whether a value is missing can depend on another column."""
    a = RNG.normal(size=2000)
    table = fc.Table.of({"a": a, "b": np.where(a > 0, np.nan, RNG.normal(size=2000))})
    assert pairs(table, table).loc[0, "first"] > 0.3

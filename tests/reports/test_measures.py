"""Measures against what they are defined to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.reports.measures import (
    Forecast,
    class_measures,
    expected_calibration_error,
    number_measures,
    rank_error,
    reliability,
)


def test_perfect_classes() -> None:
    truth = np.array([0.0, 1, 2, 1])
    found = class_measures(Forecast(truth, np.eye(3)[truth.astype(int)]), truth, 3)
    assert found == pytest.approx(
        {"accuracy": 1, "macro_f1": 1, "auc": 1, "log_loss": 0, "calibration_error": 0}
    )


def test_calibration_by_hand() -> None:
    """Four rows at 0.75, of which half are right, and one at 0.95, which is."""
    p = np.array([[0.75, 0.25]] * 4 + [[0.05, 0.95]])
    codes = np.array([0, 0, 1, 1, 1])
    low, high = reliability(p, codes)
    assert (low.rows, low.confidence, low.accuracy) == (4, 0.75, 0.5)
    assert (high.rows, high.confidence, high.accuracy) == (1, 0.95, 1)
    assert expected_calibration_error(p, codes) == pytest.approx((4 * 0.25 + 0.05) / 5)


def test_rows_of_one_class_have_no_auc() -> None:
    found = class_measures(Forecast(np.zeros(3), np.full((3, 2), 0.5)), np.zeros(3), 2)
    assert np.isnan(found["auc"]) and found["accuracy"] == 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_the_mean_explains_nothing(values: list[float]) -> None:
    truth = np.array(values)
    found = number_measures(Forecast(np.full(len(truth), truth.mean())), truth)
    assert np.isnan(found["r2"]) or found["r2"] == pytest.approx(0, abs=1e-6)
    assert found["rmse"] == pytest.approx(truth.std())


def test_ranks() -> None:
    assert rank_error((np.arange(1000) + 0.5) / 1000) < 1e-3
    assert rank_error(np.zeros(50)) == pytest.approx(0.5)


def test_certain_and_right_is_no_negative_zero() -> None:
    found = class_measures(Forecast(np.zeros(3), np.ones((3, 1))), np.zeros(3), 1)
    assert str(found["log_loss"]) == "0.0"

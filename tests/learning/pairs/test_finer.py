"""Tables over few states of a column, put down to finer states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from fedcircuits.learning.pairs.finer import FinerStates

FINE = FinerStates(np.full(24, 18.0), np.arange(24) * 7 // 24)


def coarse(lines: np.ndarray, finer: FinerStates) -> np.ndarray:
    states = range(finer.coarse.max() + 1)
    return np.stack([lines[:, finer.coarse == k].sum(axis=1) for k in states], axis=1)


@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (1, 0.3), (-2, 0.5), (0.1, 2)])
def test_normal_lines_are_exact(mean: float, deviation: float) -> None:
    ends = ndtr((ndtri(np.arange(1, 24) / 24) - mean) / deviation)
    line = np.diff([0.0, *ends, 1.0])[None]
    assert FINE.lines(coarse(line, FINE)) == pytest.approx(line, abs=1e-5)


@given(st.lists(st.floats(0, 1), min_size=7, max_size=7).filter(lambda p: sum(p) > 0.1))
def test_coarse_states_keep_their_probability(line: list[float]) -> None:
    table = np.array([line]) / sum(line)
    lines = FINE.lines(table)
    assert (lines >= 0).all() and coarse(lines, FINE) == pytest.approx(table, abs=1e-9)


def test_one_state_or_two_are_put_down_by_their_rows() -> None:
    rows = np.array([10.0, 20.0, 30.0])
    one = FinerStates(rows, np.zeros(3, np.int64))
    assert one.lines(np.ones((2, 1))) == pytest.approx(np.tile(rows / 60, (2, 1)), abs=1e-6)
    two = FinerStates(rows, np.array([0, 0, 1]))
    assert two.lines(np.array([[0.5, 0.5]])) == pytest.approx(np.array([[1, 2, 3]]) / 6, abs=1e-6)


def test_states_that_are_the_finest_stay() -> None:
    same = FinerStates(np.array([9.0, 9.0]), np.arange(2))
    table = np.array([[0.1, 0.9]])
    assert same.lines(table) is table

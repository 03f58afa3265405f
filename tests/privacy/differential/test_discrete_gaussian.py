"""Draws of noise: their distribution, their moments, and that a stream repeats them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from fedcircuits.privacy.differential import (
    UniformDraws,
    discrete_laplace,
    draws_of,
)
from fedcircuits.privacy.sharing.randomness import Stream

KEY = bytes(range(32))
COUNT = 6000


def fits(drawn: np.ndarray, weight: np.ndarray, values: np.ndarray) -> float:
    """The p-value of a chi-square test; values beyond the table are counted with its ends."""
    seen = np.bincount(np.clip(drawn, values[0], values[-1]).astype(int) - values[0])
    return float(chisquare(seen, COUNT * weight / weight.sum()).pvalue)


@pytest.mark.parametrize("variance", [1, 9, 50])
def test_numbers_have_the_right_frequencies(variance: int) -> None:
    drawn = draws_of(Stream(KEY, f"gauss {variance}"), variance, (COUNT,), 1.0)
    end = int(2.5 * variance**0.5)
    every = np.arange(-40 * end, 40 * end + 1)
    weight = np.exp(-(every**2) / (2 * variance))
    inside = np.arange(-end, end + 1)
    table = np.array([weight[np.clip(every, -end, end) == v].sum() for v in inside])
    assert fits(drawn, table, inside) > 1e-3


def test_laplace_numbers_have_the_right_frequencies() -> None:
    draws = UniformDraws(Stream(KEY, "laplace"))
    drawn = np.array([discrete_laplace(draws, 3) for _ in range(COUNT)])
    every, inside = np.arange(-400, 401), np.arange(-12, 13)
    weight = np.exp(-np.abs(every) / 3)
    table = np.array([weight[np.clip(every, -12, 12) == v].sum() for v in inside])
    assert fits(drawn, table, inside) > 1e-3


def test_draws_below_a_number_are_uniform() -> None:
    draws = UniformDraws(Stream(KEY, "uniform"))
    seen = np.bincount([draws.below(7) for _ in range(COUNT)], minlength=7)
    assert len(seen) == 7 and chisquare(seen).pvalue > 1e-3


def test_the_variance_is_the_given_one_on_a_fine_grid() -> None:
    """σ = 3.7 in steps of 2⁻²⁴: mean and variance within five standard errors."""
    variance, step = round((3.7 * 2**24) ** 2), 2.0**-24
    drawn = draws_of(Stream(KEY, "fine"), variance, (COUNT,), step)
    assert abs(drawn.mean()) < 5 * 3.7 / COUNT**0.5
    assert abs(drawn.var() / 3.7**2 - 1) < 5 * (2 / COUNT) ** 0.5
    assert ((drawn / step) % 1 == 0).all(), "multiples of the step, whatever they are added to"


def test_a_stream_repeats_and_labels_differ() -> None:
    one, two, other = (draws_of(Stream(KEY, label), 100, (50,), 1.0) for label in ("a", "a", "b"))
    assert np.array_equal(one, two) and not np.array_equal(one, other)

"""Products of small matrices and shares of weights in compiled loops, against numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.circuits.evaluation.small_products import correlate, multiply
from fedcircuits.circuits.evaluation.weight_kernel import normalise

SIZES = st.tuples(st.integers(1, 21), st.integers(1, 21), st.integers(1, 70))
TYPES = st.sampled_from([np.float32, np.float64])


@settings(max_examples=60)
@given(SIZES, TYPES, st.integers(0, 2**32 - 1))
def test_products_of_any_size(size: tuple[int, int, int], dtype: type, seed: int) -> None:
    units, inputs, batch = size
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(units, inputs)).astype(dtype)
    below = rng.normal(size=(inputs, batch)).astype(dtype)
    out = np.full((units, batch), np.nan, dtype)
    near = 1e-4 if dtype is np.float32 else 1e-12
    multiply(weight, below, out)
    np.testing.assert_allclose(out, weight @ below, rtol=near, atol=near)

    back = np.full((inputs, batch), np.nan, dtype)
    multiply(weight.T, out, back)
    np.testing.assert_allclose(back, weight.T @ out, rtol=50 * near, atol=50 * near)

    share = np.full((units, inputs), np.nan, dtype)
    correlate(out, below, share)
    np.testing.assert_allclose(share, out @ below.T, rtol=50 * near, atol=50 * near)


def shares(counts: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], bool]:
    """Of one node, whose old weights are equal."""
    given = np.array([counts], np.float64)
    out = np.full(given.shape, np.nan)
    sound = normalise(given, np.full(given.shape, 1 / given.shape[2]), out)
    return out[0], bool(sound)


def test_weights_are_shares_of_counts() -> None:
    weight, sound = shares([[1.0, 3.0], [0.0, 0.0], [0.0, 2.0]])
    assert sound
    np.testing.assert_array_equal(weight, [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize("odd", [[-1.0, 3.0], [np.nan, 1.0], [np.inf, 1.0], [-1.0, 1.0]])
def test_counts_that_make_no_weights(odd: list[float]) -> None:
    assert not shares([[1.0, 3.0], odd])[1]

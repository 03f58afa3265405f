"""Encoders that learn a scale alone: summaries and random convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.learning.encoders.fixed import SUMMARIES, Convolutions, summaries

RNG = np.random.default_rng(0)
ROWS = 60
YES = RNG.random(ROWS) < 0.5


def series(x: Any, **columns: Any) -> fc.Table:
    return fc.Table.from_series({"s": x}, {"yes": YES[: len(x)], **columns})


def test_summaries_of_a_series() -> None:
    x = np.array([[1.0, 3.0, 2.0, 6.0, 4.0, 8.0]])
    found = summaries(x[..., None].astype(np.float32))[0]
    off = x[0] - 4
    assert found[:4] == pytest.approx([4.0, x.std(), 1.0, 8.0])
    assert found[4] == pytest.approx(np.polyfit(np.linspace(0, 1, 6), x[0], 1)[0])
    assert found[5] == pytest.approx(np.abs(np.diff(x[0])).mean())
    assert found[6] == pytest.approx((off[1:] * off[:-1]).sum() / (off**2).sum())
    assert found[7:] == pytest.approx([-2.0, 0.0, 2.0])


def test_gaps_and_ends_do_not_count() -> None:
    x = RNG.normal(size=(5, 6, 2)).astype(np.float32)
    later = np.pad(x, ((0, 0), (2, 3), (0, 0)), constant_values=np.nan)
    np.testing.assert_allclose(summaries(later), summaries(x), atol=1e-6)
    nothing = summaries(np.full((2, 4, 1), np.nan, np.float32))
    assert np.isfinite(nothing).all()
    one = summaries(np.full((2, 1, 1), 3.0, np.float32))
    assert one[0, :5].tolist() == [3.0, 0.0, 3.0, 3.0, 0.0]


def test_a_convolution_is_one() -> None:
    x = RNG.normal(size=(4, 12, 1)).astype(np.float32)
    weights = np.array([[[1.0, 0.0, -1.0]]], np.float32)
    found = Convolutions(weights, np.array([2]), np.zeros(1, np.float32)).apply(x)
    padded = np.pad(x[..., 0], ((0, 0), (2, 2)))
    values = padded[:, :12] - padded[:, 4:]
    np.testing.assert_allclose(found[:, 0], (values > 0).mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found[:, 1], values.max(axis=1), atol=1e-5)


def test_steps_after_the_end_are_not_convolved() -> None:
    x = RNG.normal(size=(4, 12, 2)).astype(np.float32)
    drawn = Convolutions.drawn(x, 20, np.random.default_rng(1))
    short = x.copy()
    short[:, 9:] = np.nan
    longer = np.pad(short, ((0, 0), (0, 5), (0, 0)), constant_values=np.nan)
    np.testing.assert_allclose(drawn.apply(longer), drawn.apply(short), atol=1e-6)


@pytest.mark.parametrize("encoder", [fc.SummaryEncoder(), fc.RocketEncoder(kernels=20, width=6)])
@pytest.mark.parametrize("steps", [1, 2, 3, 9, 40])
def test_any_length(encoder: Any, steps: int) -> None:
    x = RNG.normal(size=(ROWS, steps, 1)) + YES[:, None, None]
    x[3], x[5, 1:], x[7] = np.nan, np.nan, 1e30
    table = series(x, colour=np.array(["red", "blue"])[np.arange(ROWS) % 2])
    h = encoder.fit(table, "yes").encode(table)
    assert np.isnan(h[3]).all() and np.isfinite(np.delete(h, 3, axis=0)).all()
    assert encoder.representation_width == h.shape[1]
    alone = encoder.predict_vector(table)
    assert alone.shape == (ROWS, 2) and np.isnan(alone[3]).all()
    assert encoder.encode(table.rows(slice(0, 0))).shape == (0, h.shape[1])


def test_units_do_not_matter() -> None:
    x = RNG.normal(size=(ROWS, 8, 1))
    for encoder in (fc.SummaryEncoder(), fc.RocketEncoder(kernels=20, width=6)):
        one = encoder.fit(series(x), "yes").encode(series(x))
        other = encoder.fit(series(1e3 * x + 5e4), "yes").encode(series(1e3 * x + 5e4))
        np.testing.assert_allclose(one, other, atol=0.05)


def test_columns_are_taken_as_they_are() -> None:
    table = fc.Table.of({"a": RNG.normal(5, 3, ROWS), "b": YES, "yes": YES})
    h = fc.SummaryEncoder().fit(table, "yes").encode(table)
    np.testing.assert_allclose(h.mean(axis=0), 0, atol=1e-6)
    assert h.shape == (ROWS, 2)
    with pytest.raises(TableError, match="RocketEncoder reads series"):
        fc.RocketEncoder().fit(table, "yes")


def test_many_numbers_become_principal_components() -> None:
    x = RNG.normal(size=(ROWS, 9, 5))
    wide = fc.SummaryEncoder(width=500).fit(series(x), "yes").encode(series(x))
    assert wide.shape == (ROWS, 5 * SUMMARIES)
    h = fc.SummaryEncoder(width=4).fit(series(x), "yes").encode(series(x))
    expected = np.sort(np.linalg.eigvalsh(np.cov(wide.T, bias=True)))[::-1][:4]
    np.testing.assert_allclose(h.var(axis=0), expected, rtol=1e-6)


def test_odd_rows() -> None:
    x = np.zeros((ROWS, 5, 1))
    constant = fc.SummaryEncoder().fit(series(x), "yes").encode(series(x))
    assert not constant.any()
    single = series(x[:1] + 2)
    assert np.isfinite(fc.RocketEncoder(kernels=3).fit(single, "yes").encode(single)).all()
    with pytest.raises(TableError, match="no row"):
        fc.SummaryEncoder().fit(series(np.full((3, 4, 1), np.nan)), "yes")
    with pytest.raises(NotFittedError):
        fc.SummaryEncoder().encode(series(x))
    with pytest.raises(ParameterError, match="width must be"):
        fc.SummaryEncoder(width=0).fit(series(x))
    with pytest.raises(ParameterError, match="no predictions"):
        fc.SummaryEncoder().fit(series(x + RNG.normal(size=x.shape))).predict_vector(series(x))

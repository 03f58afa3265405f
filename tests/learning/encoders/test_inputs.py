"""What encoders read: scales, ends of series, columns and categories that were not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import TableError
from fedcircuits.learning.encoders.inputs import REACH, InputReading

ROWS = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=ROWS)
ROAD = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]


def columns(**options: Any) -> fc.Table:
    return fc.Table.of({"x": X, "road": ROAD, **options})


@pytest.mark.parametrize("scale", [1e-12, 1e-7, 1.0, 1e9, 1e300])
def test_units_do_not_matter(scale: float) -> None:
    """Nothing is constant because its unit is large, and nothing overflows."""
    plain, _ = InputReading.of(fc.Table.of({"x": X}), None, False).read(fc.Table.of({"x": X}))
    other = fc.Table.of({"x": X * scale})
    found, _ = InputReading.of(other, None, False).read(other)
    assert np.allclose(found, plain, atol=1e-4) if scale < 1e30 else np.isfinite(found).all()


def test_what_is_constant() -> None:
    for value in (0.0, 3.0, -1e9):
        own = fc.Table.of({"x": np.full(ROWS, value)}, kinds={"x": "real"})
        found, known = InputReading.of(own, None, False).read(own)
        assert np.allclose(found, 0.0) and known.all()


def test_values_far_outside_are_cut_off() -> None:
    reading = InputReading.of(columns(), None, False)
    found, _ = reading.read(columns(x=np.where(np.arange(ROWS) == 3, 1e200, X)))
    assert found[3, 0] == np.float32(REACH) and np.isfinite(found).all()
    series = fc.Table.from_series({"s": X[:, None]})
    found, _ = InputReading.of(series, None, True).read(
        fc.Table.from_series({"s": np.full((2, 1), 3e38)})
    )
    assert (found[..., 0] == np.float32(REACH)).all()


@pytest.mark.parametrize("in_steps", [False, True])
def test_steps_that_nobody_has_may_be_there(in_steps: bool) -> None:
    series = RNG.normal(size=(ROWS, 4, 2))
    own = fc.Table.from_series({"s": series})
    longer = np.pad(series, ((0, 0), (0, 3), (0, 0)), constant_values=np.nan)
    reading = InputReading.of(own, None, in_steps)
    here, there = reading.read(own)[0], reading.read(fc.Table.from_series({"s": longer}))[0]
    assert np.array_equal(here, there)
    longer[0, 4] = 1.0
    with pytest.raises(TableError, match="at most 4 steps of 2 channels, as in training, got 5"):
        reading.read(fc.Table.from_series({"s": longer}))


@pytest.mark.parametrize("in_steps", [False, True])
def test_no_rows(in_steps: bool) -> None:
    own = fc.Table.from_series({"s": RNG.normal(size=(ROWS, 4, 2))}, {"road": ROAD})
    found, known = InputReading.of(own, None, in_steps).read(own.rows(slice(0, 0)))
    assert len(found) == len(known) == 0 and found.ndim == 2 + in_steps


def test_columns_and_categories_that_were_not_there() -> None:
    reading = InputReading.of(columns(), None, False)
    with pytest.raises(TableError, match=r"absent: 'road'; .* give them as missing"):
        reading.read(fc.Table.of({"x": X}))
    with pytest.raises(TableError, match=r"'road': a category that was not there .*'lane'"):
        reading.read(columns(road=np.where(X > 0, "lane", "a")))
    fewer = columns(road=np.where(X > 0, "c", "a"))
    assert np.array_equal(reading.read(fewer)[0][:, 1] > 0, X <= 0)  # "a", in the codes of training

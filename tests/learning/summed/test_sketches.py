"""Bins from counts: they add up, become finer, keep heavy values apart, and drawn rows fit them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcircuits.learning.summed.clusters import SummedCentres, SummedFeatures, drawn_rows
from fedcircuits.learning.summed.sketches import FINER, Sketch
from fedcircuits.tables.schema import Schema, Variable

LEAST = 5


def sketch_of(values: np.ndarray, schema: Schema, parts: int = 1) -> Sketch:
    sketch = Sketch.first(schema)
    for t in range(FINER + 1):
        sketch = sketch.finer(LEAST) if t else sketch
        total = sum(sketch.counted(values[i::parts]) for i in range(parts))
        sketch = sketch.with_counts(np.asarray(total))
    return sketch


def reals(count: int = 1) -> Schema:
    return Schema(tuple(Variable(f"x{i}") for i in range(count)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e17, 1e17), min_size=1, max_size=60), st.integers(1, 4))
def test_bins_of_parts_are_those_of_all_rows(numbers: list[float], parts: int) -> None:
    values = np.array(numbers)[:, None]
    whole, apart = sketch_of(values, reals()), sketch_of(values, reals(), parts)
    assert np.array_equal(whole.edges[0], apart.edges[0])
    assert np.array_equal(whole.counts[0], apart.counts[0])
    assert whole.counts[0].sum() == len(numbers)
    assert (np.diff(whole.edges[0]) > 0).all()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_scores_are_normal_whatever_the_scale(scale: float) -> None:
    x = scale * (1 + np.random.default_rng(0).gamma(2.0, size=(3000, 1)))
    scores = sketch_of(x, reals()).scores(0, x[:, 0])
    assert stats.kstest(scores, "norm").statistic < 0.03


def test_a_heavy_value_has_a_bin_of_its_own() -> None:
    rng = np.random.default_rng(0)
    zeros = np.where(rng.random(2000) < 0.6, 0.0, rng.gamma(2.0, 100.0, 2000))
    values = np.stack([zeros, rng.normal(size=2000), np.full(2000, 3.0)], axis=1)
    sketch = sketch_of(values, reals(3))
    assert [sketch.lumpy(i) for i in range(3)] == [True, False, True]
    drawn = sketch.numbers(0, rng.normal(size=4000))
    assert abs(float((np.abs(drawn) < 0.1).mean()) - 0.6) < 0.05


@pytest.mark.parametrize("rows", [30, 90, 300, 1500])
def test_bins_of_few_rows_are_not_divided(rows: int) -> None:
    """Totals are known to all: a narrow bin of one row would tell its value. Before, all of 90 rows
    stood in bins of fewer than five, about 3 % wide."""
    x = np.random.default_rng(rows).lognormal(3, 0.5, (rows, 1))
    x[0] = 3e5  # one that stands far out
    sketch = Sketch.first(reals())
    for t in range(FINER + 1):
        sketch = sketch.finer(LEAST) if t else sketch
        sketch = sketch.with_counts(sketch.counted(x))
        if not t:  # powers of two are bins of everybody
            continue
        edges, counts = sketch.edges[0], sketch.counts[0]
        assert len(counts) <= rows // (2 * LEAST) + 9  # powers of two that x lies between
        few = (counts > 0) & (counts < LEAST)
        width = np.diff(edges) / np.abs(edges[1:])
        assert counts[few].sum() <= 0.1 * rows + LEAST
        narrow = few & (width < 0.03)
        assert counts[narrow].sum() <= 0.02 * rows
    assert edges[-1] / x[0] > 1.05 or edges[-2] / x[0] < 0.5  # nor is the far one known closely


def test_rows_drawn_from_clusters_look_like_the_rows() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=900)
    values = np.stack([50 + 5 * kind + rng.normal(size=900), kind], axis=1)
    schema = Schema((Variable("x"), Variable("kind", "category", ("a", "b", "c"))))
    sketch = sketch_of(values, schema)
    features = SummedFeatures.of(sketch, 1)
    centres = SummedCentres.drawn(features, features.moments(values), 1, 1, rng)
    spread = centres.spread(values).reshape(3, -1)
    drawn, labels = drawn_rows(features, spread, rng)
    for k in range(3):
        own, real = drawn[labels == k], values[kind == k]
        assert (own[:, 1] == k).mean() > 0.99
        assert abs(own[:, 0].mean() - real[:, 0].mean()) < 0.3
        assert abs(own[:, 0].std() - real[:, 0].std()) < 0.8

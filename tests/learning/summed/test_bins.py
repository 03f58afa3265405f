"""Columns that circuits by sums describe by histograms, and rows that nothing else describes."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.summed.bins import binned_columns, histogram_start
from fedcircuits.learning.summed.sketches import FINER, Sketch
from fedcircuits.tables.schema import Schema, Variable

ROWS = 800


def sketched(column: Array, kind: str) -> Sketch:
    sketch = Sketch.first(Schema((Variable("x", kind),)))
    for t in range(FINER + 1):
        sketch = sketch.finer(5) if t else sketch
        sketch = sketch.with_counts(sketch.counted(column[:, None]))
    return sketch


def columns() -> dict[str, tuple[str, Array, bool]]:
    rng = np.random.default_rng(0)
    normal = rng.normal(50, 5, ROWS)
    return {
        "normal": ("real", normal, False),
        "two humps": ("real", normal + 40 * (rng.random(ROWS) < 0.5), False),
        "skewed": ("real", rng.gamma(2.0, size=ROWS), False),
        "zeros": ("real", np.where(rng.random(ROWS) < 0.6, 0.0, normal), True),
        "far values": ("real", np.where(rng.random(ROWS) < 0.02, 1e5, normal), True),
        "powers": ("real", np.exp(rng.normal(0, 3, ROWS)), True),
        "Poisson": ("count", rng.poisson(4.0, ROWS).astype(float), False),
        "rare": ("count", rng.poisson(0.1, ROWS).astype(float), False),
        "ages": ("count", rng.integers(18, 90, ROWS).astype(float), True),
        "98 is a code": ("count", np.where(rng.random(ROWS) < 0.02, 98.0, 0.0), True),
    }


@pytest.mark.parametrize("name", columns())
def test_columns_that_no_smooth_family_describes_take_histograms(name: str) -> None:
    kind, column, binned = columns()[name]
    found = binned_columns(sketched(column, kind))
    expected = {"real": "histogram", "count": "count_histogram"}[kind]
    assert found == ({0: expected} if binned else {})


@pytest.mark.parametrize("name", ["zeros", "ages", "98 is a code"])
def test_histograms_begin_with_what_clusters_hold(name: str) -> None:
    kind, column, _ = columns()[name]
    low = column <= np.median(column)
    start = histogram_start(sketched(column, kind), 0, column, np.stack([low, ~low], 1) * 1.0)
    edges, probability = start["edges"][0, 0], start["probability"][:, 0]
    assert (np.diff(edges) > 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    if kind == "count":
        assert (edges % 1 == 0.5).all() and edges[0] == -0.5
    inside = (column[low, None] >= edges[:-1]) & (column[low, None] < edges[1:])
    np.testing.assert_allclose(probability[0], inside.mean(axis=0), atol=0.01)


@pytest.mark.parametrize(
    "learner",
    [fc.MixtureOfNormals(2, random_state=0), fc.HiddenChowLiuTree(4, epochs=5, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_a_row_far_out_costs_tens_of_nats_and_not_thousands(
    learner: fc.MixtureOfNormals | fc.HiddenChowLiuTree,
) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 3)) + rng.normal(size=(300, 1))
    parties = fc.Federation({"a": fc.Table.of(rows[:150]), "b": fc.Table.of(rows[150:])})
    with pytest.warns(UserWarning, match="subtracting its own from the sum"):
        model = learner.fit(parties)
    shift = np.array([0, 0, 500.0])
    usual, far = model.score_samples(rows[:5]), model.score_samples(rows[:5] + shift)
    assert (far > usual - 60).all() and (far < usual - 5).all()


@pytest.mark.parametrize("rows", [60, 300])
@pytest.mark.parametrize(
    "learner",
    [fc.FedPC(random_state=0), fc.HiddenChowLiuTree(4, epochs=5, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_bins_that_reach_far_do_not_change_means_and_variances(
    learner: fc.FedPC | fc.HiddenChowLiuTree, rows: int
) -> None:
    rng = np.random.default_rng(2)
    age = rng.integers(20, 90, rows)
    columns: dict[str, Array] = {
        "age": age,
        "pressure": 100 + 0.5 * age + rng.normal(0, 8, rows),
        "paid": np.where(rng.random(rows) < 0.6, 0.0, rng.gamma(2.0, 1500.0, rows)),
        "children": rng.poisson(1.2, rows),
    }
    parts = {f"p{k}": {n: c[k::3] for n, c in columns.items()} for k in range(3)}
    model = learner.fit(fc.Federation({n: fc.Table.of(part) for n, part in parts.items()}))
    expected = model.expect(list(columns))
    for name, column in columns.items():
        mean, variance = expected.loc[name, ["mean", "variance"]]
        assert abs(mean - column.mean()) < 0.4 * column.std(), name
        assert 0.6 * column.std() < np.sqrt(variance) < 1.8 * column.std(), name
        assert (model.sample(2000, random_state=0)[name] < 10 * column.max()).all(), name


@pytest.mark.parametrize("name", ["far values", "98 is a code", "zeros"])
def test_no_number_is_impossible(name: str) -> None:
    kind, column, _ = columns()[name]
    start = histogram_start(sketched(column, kind), 0, column, np.ones((len(column), 1)))
    high = column.max() - column.min() + column.max()
    assert start["edges"][0, 0, -1] > 1000 * high and (start["probability"] > 0).all()
    assert (np.diff(start["edges"]) > 0).all()

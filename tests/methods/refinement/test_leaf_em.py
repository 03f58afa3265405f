"""A leaf in EM across parties: what its frame and the rows behind it do to the M-step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcircuits as fc
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.methods.refinement import leaf_em
from fedcircuits.methods.refinement.leaf_em import LEAST, EMLeaf, Moments
from tests.federation.cases import mixed_table

NAMES = ["age", "colour", "visits"]


@settings(max_examples=5)
@given(st.integers(0, 2**31))
def test_frames_do_not_change_what_is_learned(seed: int) -> None:
    """Counts in another frame lead to the same leaf: moments only say where bounds lie."""
    table = mixed_table(60, seed % 1000).select(NAMES)
    model = fc.MixtureOfProducts(2, max_iter=2, random_state=0).fit(table)
    moments = Moments.of(table)
    moved = replace(moments, mean=moments.mean + 1.0, deviation=moments.deviation * 1.5)
    posterior = np.random.default_rng(seed).random(60)
    found = []
    for own in (moments, moved):
        leaf = EMLeaf((model.circuit_, model.parameters_), table, own, table)
        leaf.maximise(leaf.nothing().like(leaf.counts(posterior).flat()))
        found.append(leaf.learned()[1])
    for name, arrays in found[0].values.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(found[1][name][key], array, rtol=1e-9, atol=1e-9)


def test_moments_of_columns_without_values() -> None:
    table = fc.Table.of({"a": [1.0, 3.0, np.nan], "b": [7.0, 7.0, 7.0]})
    empty = fc.Table(table.schema, np.array([[np.nan, 7.0]]))
    moments = Moments.of(table)
    assert moments.mean.tolist() == [2.0, 7.0] and moments.deviation.tolist() == [1.0, 1.0]
    assert Moments.of(empty).mean.tolist() == [0.0, 7.0]
    assert moments.select(["b"]).mean.tolist() == [7.0]


@pytest.mark.parametrize("begin", [25.0, 25e-6])
def test_variances_are_bounded_by_all_rows_or_by_where_they_begin(
    monkeypatch: pytest.MonkeyPatch, begin: float
) -> None:
    """One row is responsible for all: the leaf gets as narrow as the bound, and no narrower."""
    monkeypatch.setattr(leaf_em, "CAUTION", 0.0)
    rng = np.random.default_rng(0)
    table = fc.Table.of({"a": rng.normal(3, 5, 200)})
    model = fc.MixtureOfProducts(1, random_state=0).fit(table)
    moments = Moments.of(table)
    [leaf] = list(model.circuit_.leaves())
    start = {**model.parameters_[leaf.name], "variance": np.full((1, 1), begin)}
    values = Parameters({**model.parameters_.values, leaf.name: start})
    em = EMLeaf((model.circuit_, values), table, moments, None)
    posterior = np.zeros(200)
    posterior[0] = 1.0
    em.maximise(em.counts(posterior))
    found = em.learned()[1][leaf.name]["variance"][0, 0]
    assert found == pytest.approx(min(LEAST * moments.deviation[0] ** 2, begin), rel=1e-6)

"""Columns as features: the same as indicators made one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.learning.features import FeatureLayout, features_of
from fedcircuits.tables.schema import Schema, Variable

KINDS = [
    Variable("real"),
    Variable("yes", "boolean", (False, True)),
    Variable("colour", "category", ("red", "green", "blue")),
    Variable("letter", "category", tuple("abcde")),
]


@given(st.lists(st.sampled_from(range(4)), min_size=1, max_size=6), st.integers(0, 2**31))
def test_every_feature_is_what_it_says(picked: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    variables = [
        Variable(f"v{i}", KINDS[k].kind, KINDS[k].categories) for i, k in enumerate(picked)
    ]
    x = np.stack([rng.integers(v.size or 9, size=7) for v in variables], axis=1).astype(float)
    x[rng.random(x.shape) < 0.2] = np.nan
    layout = FeatureLayout.of(variables)
    found, at = layout.values(x), 0
    for i, variable in enumerate(variables):
        assert layout.starts[i] == at
        codes = [None] if variable.size <= 2 else list(range(variable.size))
        for code in codes:
            hot = np.where(np.isnan(x[:, i]), np.nan, x[:, i] == code)
            np.testing.assert_array_equal(found[:, at], x[:, i] if code is None else hot)
            at += 1
    assert found.shape[1] == len(layout) == layout.starts[-1] == at
    assert len(layout.names(Schema(tuple(variables)))) == at


def test_features_of_some_columns() -> None:
    layout = FeatureLayout.of(KINDS)
    at, starts = features_of(layout.starts, np.array([3, 0]))
    assert at.tolist() == [5, 6, 7, 8, 9, 0] and starts.tolist() == [0, 5, 6]
    every = FeatureLayout.of(KINDS[1:], lambda v: True)
    assert every.codes.tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3, 4]

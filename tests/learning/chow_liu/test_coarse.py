"""Mutual information of coarse columns: against tables counted by hand, in any block size."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from fedcircuits.learning.chow_liu.coarse import coarsened, information, levels_for
from fedcircuits.tables.schema import Schema, Variable


def mixed(rows: int = 700) -> tuple[np.ndarray, Schema]:
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 3, rows)
    columns = [
        hidden + rng.normal(size=rows), rng.integers(0, 256, rows), rng.poisson(4 * hidden),
        (rng.random(rows) < 0.2 + 0.3 * hidden), rng.integers(0, 40, rows),
    ]  # fmt: skip
    schema = Schema(
        (
            Variable("real"), Variable("level", "count", most=255), Variable("count", "count"),
            Variable("flag", "boolean"),
            Variable("code", "category", tuple(f"c{i}" for i in range(40))),
        )
    )  # fmt: skip
    values = np.stack(columns, axis=1).astype(float)
    values[rng.random(values.shape) < 0.1] = np.nan
    return values, schema


@pytest.mark.parametrize("memory", [1, 1 << 16, 1 << 30])
def test_information_is_that_of_the_tables(memory: int) -> None:
    values, schema = mixed()
    codes, sizes = coarsened(values, schema, 6)
    found = information(codes, sizes, memory=memory)
    for i in range(len(schema)):
        for j in range(i):
            both = (codes[:, i] >= 0) & (codes[:, j] >= 0)
            expected = mutual_info_score(codes[both, i], codes[both, j])
            assert [found[i, j], found[j, i]] == pytest.approx([expected] * 2, abs=1e-4)


def test_weights_count_as_repetitions() -> None:
    values, schema = mixed(120)
    codes, sizes = coarsened(values, schema, 6)
    times = np.random.default_rng(1).integers(0, 3, len(codes))
    weighted = information(codes, sizes, times.astype(float))
    repeated = information(np.repeat(codes, times, axis=0), sizes)
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)


def test_a_heavy_level_is_kept_and_the_rest_is_shared_out() -> None:
    """Black pixels stay apart from all others, which fill the other bins evenly."""
    x = np.concatenate([np.zeros(8_000), np.arange(1, 256).repeat(8)])[:, None]
    codes, [size] = coarsened(x, Schema((Variable("p", "count", most=255),)), 8)
    assert size == 8
    assert len(np.unique(codes[:8_000])) == 1 and codes[0, 0] not in codes[8_000:, 0]
    shares = np.unique(codes[8_000:, 0], return_counts=True)[1]
    assert len(shares) == 7 and shares.max() < 1.1 * shares.min()


def test_many_columns_get_fewer_levels() -> None:
    assert levels_for(5) == 12 and levels_for(784) == 10 and levels_for(10_000) == 3

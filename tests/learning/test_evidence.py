"""p-values of pairs: even under independence, small under dependence, of any kinds of columns."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits import Schema, Variable
from fedcircuits.learning.evidence import ScoredTable, dependent, p_values

MANY = tuple(f"c{i}" for i in range(200))
KINDS = Schema(
    (
        Variable("real", "real"),
        Variable("skewed", "real"),
        Variable("count", "count"),
        Variable("few", "category", ("a", "b", "c")),
        Variable("many", "category", MANY),
        Variable("rare", "boolean"),
    )
)
PAIR = Schema((Variable("x", "real"), Variable("y", "real")))


def drawn(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Independent columns of all kinds."""
    often = 1 / np.arange(1, len(MANY) + 1)
    columns = [
        rng.normal(size=rows),
        rng.lognormal(size=rows),
        rng.poisson(1.0, rows),
        rng.integers(0, 3, rows),
        rng.choice(len(MANY), rows, p=often / often.sum()),
        rng.random(rows) < 0.03,
    ]
    return np.stack(columns, axis=1).astype(float)


def found(x: np.ndarray, schema: Schema, weight: np.ndarray | None = None) -> np.ndarray:
    weight = np.ones(len(x)) if weight is None else weight
    return p_values(ScoredTable.of(x, schema), weight.astype(np.float32))


@pytest.mark.parametrize("rows", [40, 300, 3000])
def test_chance_is_called_chance(rows: int) -> None:
    rng = np.random.default_rng(rows)
    p = np.array([found(drawn(rng, rows), KINDS) for _ in range(100)])
    pairs = p[:, *np.triu_indices(len(KINDS), 1)]
    assert (pairs < 0.01).mean() < 0.02 and (pairs < 0.001).mean() < 0.005
    assert np.mean([dependent(each, 0.05).any() for each in p]) < 0.2


@pytest.mark.parametrize(("strength", "rows"), [(0.3, 400), (0.1, 4000), (0.03, 40_000)])
def test_power_grows_with_rows(strength: float, rows: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    x[:, 1] += strength * x[:, 0]
    assert found(x, PAIR)[0, 1] < 1e-4
    assert found(x[: rows // 40], PAIR)[0, 1] > 1e-4


@pytest.mark.parametrize("shape", ["circle", "spread", "wave", "square"])
def test_dependence_that_no_correlation_shows(shape: str) -> None:
    rng = np.random.default_rng(1)
    t, e = rng.uniform(-1, 1, 2000), rng.normal(size=2000)
    x, y = {
        "circle": (np.cos(np.pi * t) + 0.3 * e, np.sin(np.pi * t) + 0.3 * rng.normal(size=2000)),
        "spread": (t, e * (1 + 2 * (t > 0))),
        "wave": (t, np.sin(2 * np.pi * t) + e),
        "square": (t, t**2 + 0.5 * e),
    }[shape]
    assert found(np.stack([x, y], axis=1), PAIR)[0, 1] < 1e-6


def test_every_kind_beside_every_other() -> None:
    """All follow one hidden number."""
    rng = np.random.default_rng(2)
    hidden = rng.normal(size=3000)
    columns = [
        hidden + 2 * rng.normal(size=3000),
        np.exp(hidden / 2 + rng.normal(size=3000)),
        rng.poisson(np.exp(0.3 * hidden)),
        np.digitize(hidden + 2 * rng.normal(size=3000), [-1, 1]),
        (np.clip(hidden + 3, 0, 6) * 15 + rng.integers(0, 100, 3000)).astype(int),
        rng.random(3000) < 1 / (1 + np.exp(3 - hidden)),
    ]
    p = found(np.stack(columns, axis=1).astype(float), KINDS)
    assert p[np.triu_indices(len(KINDS), 1)].max() < 0.05
    assert dependent(p, 0.05).sum() == len(KINDS) * (len(KINDS) - 1)


def test_gaps_and_weights() -> None:
    rng = np.random.default_rng(3)
    x = drawn(rng, 500)
    x[:, 1] += 0.5 * x[:, 0]
    twice = found(np.repeat(x, 2, axis=0), KINDS)
    np.testing.assert_allclose(twice, found(x, KINDS, np.full(500, 2.0)), rtol=0.02, atol=1e-6)
    x[rng.random(x.shape) < 0.3] = np.nan
    x[:, 3] = np.nan
    p = found(x, KINDS)
    assert np.isfinite(p).all() and (p[3] == 1).all() and p[0, 1] < 1e-4


def test_columns_that_say_nothing() -> None:
    p = found(np.zeros((50, len(KINDS))), KINDS)
    assert (p == 1).all() and not dependent(p, 0.05).any()
    assert (found(drawn(np.random.default_rng(0), 3), KINDS) == 1).all()


def test_a_column_goes_with_the_target_at_a_lenient_level() -> None:
    p = np.ones((4, 4))
    p[0, 1:] = p[1:, 0] = [0.1, 0.2, 1e-9]
    p[1, 2] = p[2, 1] = 0.1
    strict, lenient = dependent(p, 0.05), dependent(p, 0.05, target=0)
    assert strict[0].tolist() == [False, False, False, True]
    assert lenient[0].tolist() == [False, True, False, True]
    assert not lenient[1, 2] and (lenient == lenient.T).all()

"""The family that fits is chosen, and no value that may come is impossible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits import Circuit, CircuitModel, Leaf, Parameters, Schema, Variable
from fedcircuits.learning.spn.fits import Grid, Scale, fitted
from fedcircuits.learning.spn.marginals import Marginals


def learned(
    values: np.ndarray, schema: Schema, weight: np.ndarray | None = None, rows: slice = slice(None)
) -> CircuitModel:
    weight = np.ones(len(values)) if weight is None else weight
    marginals = Marginals(values, schema, weight, np.random.default_rng(0))
    chosen = np.arange(len(values))[rows]
    nodes, arrays = marginals.nodes("m", chosen, np.arange(len(schema)))
    model = CircuitModel(Circuit(tuple(nodes), schema), Parameters(arrays))
    model.parameters_.check(model.circuit_)
    return model


def families(model: CircuitModel) -> set[str]:
    return {leaf.family for leaf in model.circuit_.leaves()}


REAL = Schema.real(["x"])
COUNT = Schema((Variable("n", "count"),))
DRAWS = {
    "gaussian": lambda rng: rng.normal(3, 2, 2000),
    "student_t": lambda rng: 5 + rng.standard_t(3, 2000),
    "gamma": lambda rng: rng.gamma(3, 2, 2000),
    "histogram": lambda rng: 9.0 * rng.integers(0, 2, 2000) + rng.random(2000),
}


@pytest.mark.parametrize("family", DRAWS)
def test_real_columns_take_the_family_they_come_from(family: str) -> None:
    x = DRAWS[family](np.random.default_rng(1))[:, None]
    found = families(learned(x, REAL))
    assert found == {family} if family in ("gaussian", "student_t") else family in found


def test_counts_are_poisson_or_a_histogram() -> None:
    rng = np.random.default_rng(2)
    assert families(learned(rng.poisson(4, (1000, 1)).astype(float), COUNT)) == {"poisson"}
    spiky = np.where(rng.random(1000) < 0.6, 40, rng.integers(0, 100, 1000))[:, None]
    assert "count_histogram" in families(learned(spiky.astype(float), COUNT))


@pytest.mark.parametrize("family", ["gamma", "histogram"])
@given(value=st.floats(-1e9, 1e9))
def test_no_real_value_is_impossible(family: str, value: float) -> None:
    model = _kept(family)
    assert model.score_samples(np.array([[value]]))[0] > -1e6


@given(value=st.integers(0, 10**7))
def test_no_count_is_impossible(value: int) -> None:
    assert np.isfinite(_kept("counts").score_samples(np.array([[float(value)]])))[0]


KEPT: dict[str, CircuitModel] = {}


def _kept(name: str) -> CircuitModel:
    if name not in KEPT:
        rng = np.random.default_rng(3)
        spiky = np.where(rng.random(500) < 0.6, 40, rng.integers(0, 100, 500)).astype(float)
        x = spiky if name == "counts" else DRAWS[name](rng)
        KEPT[name] = learned(x[:, None], COUNT if name == "counts" else REAL)
    return KEPT[name]


def test_a_histogram_is_better_than_the_simplest_on_new_rows() -> None:
    rng = np.random.default_rng(4)
    train, test = (DRAWS["histogram"](rng)[:, None] for _ in range(2))
    plain = -0.5 * np.log(2 * np.pi * np.e * train.var())
    assert learned(train, REAL).score_samples(test).mean() > plain + 1


def test_frequencies_are_smoothed_and_weighted() -> None:
    schema = Schema((Variable("b", "boolean"), Variable("c", "category", (0, 1, 2))))
    x = np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, 1.0]])
    model = learned(x, schema, np.array([2.0, 1.0, 1.0]))
    values = {leaf.family: model.parameters_[leaf.name] for leaf in model.circuit_.leaves()}
    assert values["bernoulli"]["probability"] == pytest.approx(np.array([[2.5 / 4]]), abs=1e-3)
    expected = np.array([[[2.5, 2.5, 0.5]]]) / 5.5
    assert values["categorical"]["probability"] == pytest.approx(expected, abs=1e-3)


def test_weights_count_as_repetitions() -> None:
    rng = np.random.default_rng(5)
    x, weight = rng.normal(size=(6, 1)), rng.integers(1, 4, 6)
    once = learned(x, REAL, weight.astype(float))
    again = learned(np.repeat(x, weight, axis=0), REAL)
    assert families(once) == families(again) == {"gaussian"}  # so few rows are not held back
    for name in ("mean", "variance"):
        assert once.parameters_["m"][name] == pytest.approx(again.parameters_["m"][name])


@pytest.mark.parametrize("rows", [1, 5, 300])
def test_constant_and_missing_columns(rows: int) -> None:
    kinds = (Variable("x"), Variable("n", "count"), Variable("c", "category", (0, 1)))
    schema = Schema((*kinds, Variable("y")))
    x = np.tile([7.0, 3.0, 1.0, np.nan], (rows, 1))
    model = learned(x, schema)
    assert np.isfinite(model.score_samples(x)).all()
    assert model.score_samples(np.full((1, 4), np.nan))[0] == pytest.approx(0, abs=1e-9)
    assert model.score_samples(np.array([[8.0, 9.0, 0.0, 100.0]]))[0] > -1e7


def test_a_part_without_seen_values_keeps_the_scale_of_the_table() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(100, 5, size=(200, 1))
    x[:10] = np.nan
    model = learned(x, REAL, rows=slice(0, 10))
    assert isinstance(model.circuit_.root, Leaf)
    assert model.parameters_["m"]["mean"] == pytest.approx(np.nanmean(x), abs=1e-9)
    assert model.parameters_["m"]["variance"] == pytest.approx(np.nanvar(x), rel=0.01)


def test_equal_values_in_a_part_do_not_make_a_spike() -> None:
    x = np.concatenate([np.full(10, 1.0), np.random.default_rng(7).normal(size=200)])[:, None]
    model = learned(x, REAL, rows=slice(0, 10))
    assert model.parameters_["m"]["variance"].item() > 1e-3


# ---------------------------------------------------------------------- grids


@given(st.integers(0, 10_000), st.booleans())
def test_bins_hold_all_values_and_heavy_values_alone(seed: int, count: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 200, 300).astype(float) if count else rng.gamma(1.0, size=300)
    x[:90] = 5.0
    grid = Grid.of(x, np.ones(300), count)
    assert (np.diff(grid.edges) > 0).all()
    assert (grid.edges[grid.codes] <= x).all() and (x <= grid.edges[grid.codes + 1]).all()
    assert set(x[grid.codes == grid.codes[0]]) == {5.0}
    assert grid.share.sum() == pytest.approx(1)
    counted = grid.counted(np.arange(300), np.ones(300))
    assert (counted == np.bincount(grid.codes, minlength=len(grid.share))).all()


@pytest.mark.parametrize("values", [[], [4.0], [4.0, 4.0], [4.0, 5.0]])
@pytest.mark.parametrize("count", [False, True])
def test_bins_of_few_values(values: list[float], count: bool) -> None:
    grid = Grid.of(np.array(values), np.ones(len(values)), count)
    assert (np.diff(grid.edges) > 0).all() and len(grid.edges) >= 3
    assert not count or (grid.edges % 1 == 0.5).all()


@pytest.mark.parametrize("rule", ["gaussian", "student_t", "gamma", "exponential", "poisson"])
def test_folds_are_fitted_together_as_they_are_alone(rule: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.poisson(4, (50, 3)) + 1.0
    others = rng.integers(0, 3, (50, 4, 3)).astype(float)  # (rows, folds, columns)
    others[:, 1, 2] = 0.0  # a column that a fold has no rows of
    scale = Scale.of(x, np.ones_like(x))
    together = fitted(rule, x[:, None], others, scale)
    for k in range(4):
        for name, alone in fitted(rule, x, others[:, k], scale).items():
            np.testing.assert_array_equal(together[name][k], alone)

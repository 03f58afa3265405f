"""Every query against sums over all completions, on random models of all structures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedcircuits.circuits.leaves  # noqa: F401
from fedcircuits.circuits.graph.circuit import Circuit, Fuse, Leaf, Product, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.events import parse_event
from fedcircuits.circuits.questions.regions import NOTHING, Event
from fedcircuits.errors import QueryError
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.reference import Completions, best_path, completions, probability
from tests.circuits.strategies import (
    STRUCTURES,
    Mask,
    Model,
    model_of,
    models,
    random_event,
    random_parameters,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)
NAN = np.nan


def log(p: float | Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


def close(found: Array, expected: Array, tolerance: float = 1e-7) -> None:
    """Equal log-values, −∞ included; the tolerance is that of the quadrature."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def joint(found: Distribution, x: Array, event: Event, expected: Array) -> Array:
    """log p(x, event); −∞, if that is expected, where the event leaves a density one float, which
    is 1e-16 wide. What is as improbable for other reasons stays."""
    logs = found.log_probability(x, event)
    one_float = np.isneginf(expected) & (logs < found.log_likelihood(x) - 30)
    return np.where(one_float, -np.inf, logs)


# ---------------------------------------------------------------------- probabilities


@settings(max_examples=40)
@given(models(), SEEDS)
def test_log_likelihood_sums_over_completions(model: Model, seed: int) -> None:
    x = random_rows(model[0].schema, np.random.default_rng(seed), 8)
    totals = [completions(*model, row).total() for row in x]
    close(Distribution(*model).log_likelihood(x), log(np.array(totals)))


@settings(max_examples=25)
@given(st.sampled_from([*STRUCTURES, "chow_liu"]), SEEDS)
def test_every_structure(structure: str, seed: int) -> None:
    model = model_of(structure, schema_of(("category", "boolean", "boolean", "category")), seed)
    x = random_rows(model[0].schema, np.random.default_rng(seed), 8)
    totals = [completions(*model, row).total() for row in x]
    close(Distribution(*model).log_likelihood(x), log(np.array(totals)), 1e-12)


@settings(max_examples=12)
@given(st.sampled_from([*STRUCTURES]), SEEDS)
def test_two_real_variables_at_once(structure: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = model_of(structure, schema_of(("real", "real")), seed)
    x = random_rows(model[0].schema, rng, 4)
    text, holds = random_event(model[0].schema, rng)
    event = parse_event(text, model[0].schema)
    found = Distribution(*model)
    cases = [completions(*model, row) for row in x]
    close(found.log_likelihood(x), log(np.array([c.total() for c in cases])), 1e-6)
    totals = [c.total(holds(c.points)) for c in cases]
    expected = log(np.array(totals))
    close(joint(found, x, event, expected), expected, 1e-5)  # scipy's joint masses


@settings(max_examples=40)
@given(models(), SEEDS)
def test_log_probability_of_events(model: Model, seed: int) -> None:
    """Rows of one batch see some of the event's variables and leave others open."""
    rng = np.random.default_rng(seed)
    text, holds = random_event(model[0].schema, rng)
    x = random_rows(model[0].schema, rng, 8)
    cases = [completions(*model, row) for row in x]
    expected = log(np.array([c.total(holds(c.points)) for c in cases]))
    event = parse_event(text, model[0].schema)
    close(joint(Distribution(*model), x, event, expected), expected)


def test_an_event_that_never_holds_is_impossible() -> None:
    model = model_of("random", schema_of(("boolean", "real")), 0)
    assert np.isneginf(Distribution(*model).log_probability(np.full((3, 2), NAN), NOTHING)).all()


# ---------------------------------------------------------------------- one variable


@settings(max_examples=40)
@given(models(), SEEDS)
def test_posterior(model: Model, seed: int) -> None:
    schema, rng = model[0].schema, np.random.default_rng(seed)
    text, holds = random_event(schema, rng)
    x = random_rows(schema, rng, 6)
    name = schema.names[0]
    ignored = np.where(np.arange(len(schema)) == 0, NAN, x)
    distribution, event = Distribution(*model), parse_event(text, schema)
    found, codes = distribution.posterior(x, name, event), range(schema[name].size)
    cases = [completions(*model, row) for row in ignored]
    expected = log(np.array([c.total(holds(c.points)) for c in cases]))
    found[np.isneginf(joint(distribution, ignored, event, expected))] = NAN
    for case, answer in zip(cases, found, strict=True):
        inside = holds(case.points)
        parts = np.array([case.total(inside & (case.column(name) == code)) for code in codes])
        if parts.sum() > 0:
            np.testing.assert_allclose(answer, parts / parts.sum(), atol=1e-7)
        else:
            assert np.isnan(answer).all()


@pytest.mark.parametrize("kind", ["real", "count"])
def test_posterior_needs_codes(kind: str) -> None:
    model = model_of("factorised", schema_of((kind,)), 0)
    with pytest.raises(QueryError, match=kind):
        Distribution(*model).posterior(np.full((2, 1), NAN), f"{kind}0")


def check_moments(case: Completions, inside: Mask, name: str, mean: float, variance: float) -> None:
    total = case.total(inside)
    if total == 0:
        assert np.isnan(mean) and np.isnan(variance)
        return
    x, mass = case.column(name)[inside], case.mass[inside] / total
    expected = float(mass @ x)
    assert mean == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert variance == pytest.approx(float(mass @ (x - expected) ** 2), rel=1e-5, abs=1e-6)


@given(models(), SEEDS)
def test_moments_inside_events(model: Model, seed: int) -> None:
    schema, rng = model[0].schema, np.random.default_rng(seed)
    text, holds = random_event(schema, rng)
    x = random_rows(schema, rng, 6)
    for name in schema.names[-2:]:
        distribution, event = Distribution(*model), parse_event(text, schema)
        found = np.stack(distribution.moments(x, name, event))
        cases = [completions(*model, row) for row in x]
        expected = log(np.array([c.total(holds(c.points)) for c in cases]))
        found[:, np.isneginf(joint(distribution, x, event, expected))] = NAN
        for case, mean, variance in zip(cases, *found, strict=True):
            check_moments(case, holds(case.points), name, mean, variance)


@settings(max_examples=10)
@given(SEEDS)
def test_moments_of_a_joint_family(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = schema_of(("real", "real"))
    leaf = Leaf("g", "multivariate_gaussian", schema.names, 2)
    circuit = Circuit((leaf, Sum("root", ("g",))), schema)
    model = (circuit, random_parameters(circuit, rng))
    x = random_rows(schema, rng, 4)
    text, holds = random_event(schema, rng, 1)
    found = Distribution(*model).moments(x, "real1", parse_event(text, schema))
    for row, mean, variance in zip(x, *found, strict=True):
        case = completions(*model, row)
        inside = holds(case.points)
        if case.total(inside) > 1e-6:
            p, values = case.mass[inside] / case.total(inside), case.column("real1")[inside]
            assert mean == pytest.approx(p @ values, abs=5e-3)  # 4096 points for two regions
            assert variance == pytest.approx(p @ (values - p @ values) ** 2, rel=5e-3, abs=5e-3)


def test_moments_far_from_zero_keep_their_variance() -> None:
    schema = Schema.real(["x"])
    circuit = Circuit((Leaf("a", "gaussian", ("x",), 2), Sum("root", ("a",))), schema)
    values = {
        "a": {"mean": np.array([[1e9], [1e9 + 3]]), "variance": np.array([[1.0], [4.0]])},
        "root": {"weight": np.array([[0.5, 0.5]])},
    }
    found = Distribution(circuit, Parameters(values))
    mean, variance = found.moments(np.full((1, 1), NAN), "x")
    assert mean[0] == pytest.approx(1e9 + 1.5, abs=1e-6)
    assert variance[0] == pytest.approx(2.5 + 2.25, rel=1e-6)
    above = parse_event("x > 1000000003", schema)
    half = stats.halfnorm.stats(scale=2.0)
    only = Distribution(circuit, Parameters({**values, "root": {"weight": np.array([[0.0, 1.0]])}}))
    mean, variance = only.moments(np.full((1, 1), NAN), "x", above)
    assert mean[0] - 1e9 - 3 == pytest.approx(float(half[0]), rel=1e-6)
    assert variance[0] == pytest.approx(float(half[1]), rel=1e-6)


def test_moments_that_do_not_exist() -> None:
    """A t with two degrees of freedom has no variance, one with one has no mean; a component that
    the evidence rules out changes nothing."""
    schema = Schema((Variable("x"), Variable("b", "boolean")))
    circuit = Circuit(
        (
            Leaf("t", "student_t", ("x",), 3),
            Leaf("i", "indicator", ("b",), 3),
            Product("p", ("t", "i")),
            Sum("root", ("p",)),
        ),
        schema,
    )
    ones = np.ones((3, 1))
    t = {"location": 0 * ones, "scale": ones, "degrees": np.array([[2.0], [5.0], [1.0]])}
    code = {"code": np.array([[0.0], [1.0], [0.0]])}
    heavy = {"t": t, "i": code, "root": {"weight": np.array([[0.5, 0.5, 0.0]])}}
    x = np.array([[NAN, 0.0], [NAN, 1.0], [NAN, NAN], [2.0, 0.0]])
    mean, variance = Distribution(circuit, Parameters(heavy)).moments(x, "x")
    np.testing.assert_allclose(mean, [0, 0, 0, 2], atol=1e-12)
    np.testing.assert_allclose(variance, [np.inf, 5 / 3, np.inf, 0])
    heavy["root"] = {"weight": np.array([[0.0, 0.5, 0.5]])}
    mean, _ = Distribution(circuit, Parameters(heavy)).moments(x, "x")
    np.testing.assert_allclose(mean, [NAN, 0, NAN, 2], atol=1e-12)


# ---------------------------------------------------------------------- draws

DRAWS = 20_000


def distance(drawn: Array, case: Completions, inside: Mask) -> float:
    """Total variation between the frequencies of draws and the enumerated conditional."""
    expected = np.where(inside, case.mass, 0.0) / case.total(inside)
    points = {tuple(p): i for i, p in enumerate(case.points)}
    counts = np.bincount([points[tuple(d)] for d in drawn], minlength=len(expected))
    return float(np.abs(counts / len(drawn) - expected).sum() / 2)


@settings(max_examples=8)
@given(models(big=("count",)), SEEDS)
def test_draws_have_the_frequencies_of_the_conditional(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = model[0].schema
    row = random_rows(schema, rng, 1, 0.7)[0]
    text, holds = random_event(schema, rng)
    case = completions(*model, row)
    x = np.tile(row, (DRAWS, 1))
    inside = holds(case.points)
    found, event = Distribution(*model), parse_event(text, schema)
    if case.total(inside) == 0:
        with pytest.raises(QueryError, match="probability zero"):
            found.sample(x, rng, event)
        return
    likely = int((case.mass[inside] / case.total(inside) > 1e-3).sum())
    drawn = found.sample(x, rng, event)
    assert holds(drawn).all()
    assert distance(drawn, case, inside) < 0.01 + np.sqrt(likely / DRAWS)


@settings(max_examples=10)
@given(models(big=("real",)), SEEDS)
def test_real_draws_follow_the_conditional(model: Model, seed: int) -> None:
    """Kolmogorov–Smirnov against the cumulated density of the reference, inside the event."""
    rng, schema = np.random.default_rng(seed), model[0].schema
    row = random_rows(schema, rng, 1, 0.3)[0]
    row[-1] = NAN
    text, holds = random_event(schema, rng)
    case = completions(*model, row)
    if schema.variables[-1].kind != "real" or case.total(holds(case.points)) < 1e-12:
        return
    drawn = Distribution(*model).sample(np.tile(row, (3000, 1)), rng, parse_event(text, schema))
    assert holds(drawn).all()
    line = np.linspace(-30, 30, 60_001)
    steps = np.zeros(len(line))
    for point in np.unique(case.points[:, :-1], axis=0):
        rows = np.column_stack([np.tile(point, (len(line), 1)), line])
        steps += probability(*model, rows) * holds(rows)
    cumulated = np.cumsum(steps) / steps.sum()
    assert stats.kstest(drawn[:, -1], lambda x: np.interp(x, line, cumulated)).pvalue > 1e-4


def test_rows_of_one_batch_are_drawn_by_their_own_evidence() -> None:
    model = model_of("chow_liu", schema_of(("category", "category")), 3)
    x = np.array([[0.0, NAN], [1.0, NAN], [NAN, 2.0], [NAN, NAN]]).repeat(5000, axis=0)
    drawn = Distribution(*model).sample(x, np.random.default_rng(0))
    seen = ~np.isnan(x)
    assert (drawn[seen] == x[seen]).all()
    for block in range(4):
        rows = slice(5000 * block, 5000 * (block + 1))
        case = completions(*model, x[rows][0])
        assert distance(drawn[rows], case, np.ones(len(case.mass), dtype=bool)) < 0.03


# ---------------------------------------------------------------------- most probable explanations


@settings(max_examples=40)
@given(models(big=("count",)), SEEDS)
def test_mpe_is_a_completion_at_least_as_good_as_the_best_path(model: Model, seed: int) -> None:
    x = random_rows(model[0].schema, np.random.default_rng(seed), 6)
    found = Distribution(*model).mpe(x)
    seen = ~np.isnan(x)
    assert not np.isnan(found.values).any() and (found.values[seen] == x[seen]).all()
    own = probability(*model, found.values)
    close(found.log_value, log(own), 1e-10)
    assert (own >= best_path(*model, x) * (1 - 1e-9)).all()
    best = np.array([completions(*model, row).mass.max() for row in x])
    assert (own <= best * (1 + 1e-9)).all()
    if found.exact:
        np.testing.assert_allclose(own, best, rtol=1e-9)


@settings(max_examples=20)
@given(st.sampled_from(["chow_liu", "factorised"]), SEEDS)
def test_mpe_is_exact_where_it_can_be(structure: str, seed: int) -> None:
    model = model_of(structure, schema_of(("category", "boolean", "category", "boolean")), seed)
    x = random_rows(model[0].schema, np.random.default_rng(seed), 6)
    found = Distribution(*model).mpe(x)
    assert found.exact
    best = np.array([completions(*model, row).mass.max() for row in x])
    close(found.log_value, log(best), 1e-10)


# ---------------------------------------------------------------------- what is refused


def test_a_root_of_several_units_is_refused() -> None:
    circuit = Circuit((Leaf("x", "gaussian", ("x0",), 2),), Schema.real(1))
    values = {"x": {"mean": np.zeros((2, 1)), "variance": np.ones((2, 1))}}
    with pytest.raises(QueryError, match="one unit"):
        Distribution(circuit, Parameters(values))


def test_fused_circuits_are_refused() -> None:
    leaves = (Leaf("a", "gaussian", ("x0",)), Leaf("b", "gaussian", ("x1",)))
    circuit = Circuit((*leaves, Fuse("f", ("a", "b"), "mean")), Schema.real(2))
    with pytest.raises(QueryError, match="fuse"):
        Distribution(circuit, Parameters({}))


@pytest.mark.parametrize("shape", [(2,), (4, 3), (4, 1), (1, 2, 2)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...]) -> None:
    model = model_of("random", schema_of(("boolean", "real")), 1)
    found, event = Distribution(*model), parse_event("real1 > 0", model[0].schema)
    for ask in (found.log_likelihood, found.mpe, lambda x: found.log_probability(x, event)):
        with pytest.raises(QueryError, match=r"\(rows, 2\)"):
            ask(np.zeros(shape))


def test_no_rows_are_no_problem() -> None:
    model = model_of("random", schema_of(("boolean", "real")), 1)
    found, nothing = Distribution(*model), np.empty((0, 2))
    event = parse_event("real1 > 0 or boolean0 = True", model[0].schema)
    assert found.log_likelihood(nothing).shape == (0,)
    assert found.log_probability(nothing, event).shape == (0,)
    assert found.posterior(nothing, "boolean0", event).shape == (0, 2)
    assert [m.shape for m in found.moments(nothing, "real1", event)] == [(0,), (0,)]
    assert found.sample(nothing, np.random.default_rng(0), event).shape == (0, 2)
    assert found.mpe(nothing).values.shape == (0, 2)

"""Divergences, entropies, information and contributions against sums over all completions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedcircuits as fc
from fedcircuits.circuits.graph import structures
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import QueryError
from tests.circuits.reference import completions
from tests.circuits.strategies import (
    Model,
    chow_liu_model,
    model_of,
    random_parameters,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)
SORTS = st.lists(st.sampled_from(["boolean", "category"]), min_size=1, max_size=4)
STRUCTURES = ["random", "mixture", "random_binary", "poon_domingos", "latent_tree", "chow_liu"]


def masses(model: Model) -> Array:
    """Of all completions of a row without values."""
    return completions(*model, np.full(len(model[0].schema), np.nan)).mass


def mean_log(p: Array, q: Array) -> float:
    with np.errstate(divide="ignore"):
        return float(np.sum(np.where(p > 0, p * np.log(np.where(p > 0, q, 1.0)), 0.0)))


def again(model: Model, seed: int) -> Model:
    """The same graph with other weights."""
    values = dict(model[1].values)
    other = random_parameters(model[0], np.random.default_rng(seed)).values
    sums = {n.name: other[n.name] for n in model[0].nodes if isinstance(n, Sum)}
    return model[0], Parameters({**values, **sums})


@settings(max_examples=40)
@given(SORTS, SEEDS)
def test_divergence_of_trees(sorts: list[str], seed: int) -> None:
    one = chow_liu_model(schema_of(tuple(sorts)), np.random.default_rng(seed))
    two = again(one, seed + 1)
    p, q = masses(one), masses(two)
    first, second = fc.CircuitModel(*one), fc.CircuitModel(*two)
    assert first.cross_entropy(second) == pytest.approx(-mean_log(p, q), rel=1e-9, abs=1e-9)
    expected = mean_log(p, p) - mean_log(p, q)
    assert first.kl_divergence(second) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=50)
@given(st.sampled_from(STRUCTURES), SORTS, SEEDS)
def test_cross_entropy_of_anything_and_a_product(
    structure: str, sorts: list[str], seed: int
) -> None:
    """Also told apart by a column: a mixture of products that is deterministic."""
    schema = schema_of(tuple(sorts))
    one = model_of(structure, schema, seed)
    products = structures.factorised(schema, leaf_family="categorical")
    two = (products, random_parameters(products, np.random.default_rng(seed)))
    p, q = masses(one), masses(two)
    found = fc.CircuitModel(*one).cross_entropy(fc.CircuitModel(*two))
    assert found == pytest.approx(-mean_log(p, q), rel=1e-9, abs=1e-9)


@settings(max_examples=40)
@given(SORTS, SEEDS)
def test_cross_entropy_of_a_mixture_that_is_told_apart(sorts: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    mark = schema_of((*sorts, "boolean")).variables[-1]
    parts = structures.mixture_of_products(schema_of(tuple(sorts)), 2, leaf_family="categorical")
    graph = structures.class_conditional(parts, mark)
    values = dict(random_parameters(graph, rng).values)
    [chooses] = [n.name for n in graph.nodes if isinstance(n, Sum) and n.units == 2]
    values[chooses] = {"weight": np.eye(2)}
    [leaf] = [n.name for n in graph.leaves() if n.scope == (mark.name,)]
    values[leaf] = {"code": np.array([[0.0], [1.0]])}
    two = (graph, Parameters(values))
    mixture = structures.mixture_of_products(graph.schema, 3, leaf_family="categorical")
    one = (mixture, random_parameters(mixture, rng))
    found = fc.CircuitModel(*one).cross_entropy(fc.CircuitModel(*two))
    assert found == pytest.approx(-mean_log(masses(one), masses(two)), rel=1e-9, abs=1e-9)


def gaussians(seed: int, units: int) -> Model:
    schema = schema_of(("real", "boolean"))
    rng = np.random.default_rng(seed)
    graph = structures.mixture_of_products(schema, units)
    return graph, random_parameters(graph, rng)


def test_real_columns() -> None:
    one, two = gaussians(0, 3), gaussians(1, 1)
    point = completions(*one, np.full(2, np.nan))
    logs = fc.Distribution(*two).log_likelihood(point.points)
    found = fc.CircuitModel(*one).cross_entropy(fc.CircuitModel(*two))
    assert found == pytest.approx(-float(point.mass @ logs), rel=1e-6)


@pytest.mark.parametrize("q", ["gaussian", "exponential", "gamma", "histogram", "poisson"])
def test_leaves_by_quadrature(q: str) -> None:
    """One leaf of p and one of q, each with other parameters."""
    schema = schema_of(("count",) if q == "poisson" else ("real",))
    p = {"poisson": "binomial", "histogram": "histogram", "gaussian": "exponential"}.get(q, "gamma")
    models = []
    for i, family in enumerate((p, q)):
        circuit = Circuit((Leaf("a", family, schema.names, 2), Sum("root", ("a",))), schema)
        values = dict(random_parameters(circuit, np.random.default_rng(i)).values)
        if i == 1:  # one leaf alone is deterministic
            values["root"] = {"weight": np.array([[1.0, 0.0]])}
        models.append((circuit, Parameters(values)))
    one, two = models
    point = completions(*one, np.full(1, np.nan))
    inside = point.mass > 0
    logs = fc.Distribution(*two).log_likelihood(point.points[inside])
    expected = -float(np.sum(point.mass[inside] * logs))
    found = fc.CircuitModel(*one).cross_entropy(fc.CircuitModel(*two))
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_is_impossible_is_infinitely_far() -> None:
    schema = schema_of(("boolean",))
    circuit = structures.factorised(schema, leaf_family="categorical")
    sure, open_ = (
        fc.CircuitModel(circuit, Parameters({circuit.root.name: {"probability": np.array([[p]])}}))
        for p in ([1.0, 0.0], [0.5, 0.5])
    )
    assert open_.kl_divergence(sure) == np.inf
    assert sure.kl_divergence(open_) == pytest.approx(np.log(2))


def test_what_theory_does_not_allow_is_refused() -> None:
    schema = schema_of(("boolean", "boolean", "boolean"))
    mixture = fc.CircuitModel(*model_of("mixture", schema, 0))
    chain = fc.CircuitModel(*chow_liu_model(schema, np.random.default_rng(0)))
    with pytest.raises(QueryError, match="deterministic"):
        chain.cross_entropy(mixture)
    with pytest.raises(QueryError, match="entropy_bounds"):
        mixture.kl_divergence(fc.CircuitModel(*model_of("factorised", schema, 0)))
    with pytest.raises(QueryError, match="same columns"):
        chain.cross_entropy(fc.CircuitModel(*model_of("factorised", schema_of(("real",)), 0)))
    wide = fc.CircuitModel(*_one_leaf("student_t"))
    with pytest.raises(QueryError, match="student_t"):
        wide.cross_entropy(wide)
    for question in (chain.cross_entropy, chain.kl_divergence):
        with pytest.raises(QueryError, match="another fitted model, got str"):
            question("chain")


def test_trees_of_other_shapes_are_compared_rightly_or_refused() -> None:
    schema = schema_of(("boolean",) * 4)
    models = [chow_liu_model(schema, np.random.default_rng(seed)) for seed in range(6)]
    refused = 0
    for one, two in itertools.permutations(models, 2):
        try:
            found = fc.CircuitModel(*one).cross_entropy(fc.CircuitModel(*two))
        except QueryError as error:
            assert "apart in different ways" in str(error)
            refused += 1
        else:
            expected = -mean_log(masses(one), masses(two))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert 0 < refused


def _one_leaf(family: str) -> Model:
    schema = schema_of(("real",))
    circuit = Circuit((Leaf("a", family, schema.names),), schema)
    return circuit, random_parameters(circuit, np.random.default_rng(0))


# ---------------------------------------------------------------------- entropies


@settings(max_examples=40)
@given(st.sampled_from(STRUCTURES), SORTS, SEEDS)
def test_the_entropy_lies_within_its_bounds(structure: str, sorts: list[str], seed: int) -> None:
    model = model_of(structure, schema_of(tuple(sorts)), seed)
    p = masses(model)
    least, most = fc.CircuitModel(*model).entropy_bounds()
    assert least - 1e-9 <= -mean_log(p, p) <= most + 1e-9
    if structure == "chow_liu":
        assert least == most == pytest.approx(-mean_log(p, p), abs=1e-9)


@pytest.mark.parametrize("family", ["gaussian", "gamma", "exponential", "student_t"])
def test_entropies_of_real_leaves(family: str) -> None:
    circuit, parameters = _one_leaf(family)
    p = {n: float(a[0, 0]) for n, a in parameters["a"].items()}
    expected = {
        "gaussian": lambda: stats.norm.entropy(p["mean"], np.sqrt(p["variance"])),
        "gamma": lambda: stats.gamma.entropy(p["shape"], scale=1 / p["rate"]),
        "exponential": lambda: stats.expon.entropy(scale=1 / p["rate"]),
        "student_t": lambda: stats.t.entropy(p["degrees"], p["location"], p["scale"]),
    }[family]()
    least, most = fc.CircuitModel(circuit, parameters).entropy_bounds()
    assert least == most == pytest.approx(float(expected), rel=1e-9)


# ---------------------------------------------------------------------- information


@settings(max_examples=30)
@given(st.sampled_from(STRUCTURES), SEEDS)
def test_mutual_information(structure: str, seed: int) -> None:
    model = model_of(structure, schema_of(("boolean", "category", "boolean")), seed)
    p = masses(model).reshape(2, 3, 2)
    found = fc.CircuitModel(*model).mutual_information().to_numpy()
    for i, j in itertools.combinations(range(3), 2):
        joint = p.sum(axis=3 - i - j)
        apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        expected = mean_log(joint, joint) - mean_log(joint, apart)
        assert found[i, j] == found[j, i] == pytest.approx(expected, abs=1e-9)
    for i in range(3):
        alone = p.sum(axis=tuple({0, 1, 2} - {i}))
        assert found[i, i] == pytest.approx(-mean_log(alone, alone), abs=1e-9)


def test_mutual_information_of_real_columns_grows_to_the_truth() -> None:
    rho = 0.8
    schema = schema_of(("real", "real"))
    circuit = Circuit((Leaf("g", "multivariate_gaussian", schema.names),), schema)
    values = {"g": {"mean": np.zeros((1, 2)), "covariance": np.array([[[1.0, rho], [rho, 1.0]]])}}
    model = fc.CircuitModel(circuit, Parameters(values))
    truth = -0.5 * np.log(1 - rho**2)
    found = [model.mutual_information(bins=b).iloc[0, 1] for b in (2, 8)]
    assert found[0] < found[1] < truth + 1e-3 and found[1] > 0.85 * truth
    with pytest.raises(QueryError, match="bins"):
        model.mutual_information(bins=1)


# ---------------------------------------------------------------------- contributions


@settings(max_examples=15)
@given(st.sampled_from(["mixture", "random_binary", "latent_tree"]), SEEDS)
def test_contributions_are_means_over_all_orders(structure: str, seed: int) -> None:
    schema = schema_of(("boolean", "category", "boolean", "real"))
    model = fc.CircuitModel(*model_of(structure, schema, seed))
    evidence = {"category1": "red", "boolean2": True, "real3": (0.0, 1.5)}
    try:
        found = model.contributions("boolean0", evidence)
    except QueryError as error:
        assert "probability zero" in str(error)
        return
    expected = dict.fromkeys(evidence, 0.0)
    orders = list(itertools.permutations(evidence))
    for order in orders:
        known: dict[str, object] = {}
        for piece in order:
            before = model.probability("boolean0", known)
            known = {**known, piece: evidence[piece]}
            change = model.probability("boolean0", known) - before
            expected[piece] += float(change) / len(orders)
    assert found.to_dict() == pytest.approx(expected, abs=1e-9)
    change = model.probability("boolean0", evidence) - model.probability("boolean0")
    assert found.sum() == pytest.approx(change, abs=1e-9)


def test_contributions_need_pieces() -> None:
    model = fc.CircuitModel(*model_of("mixture", schema_of(("boolean",) * 16), 0))
    with pytest.raises(QueryError, match="say what is given"):
        model.contributions("boolean0", "")
    with pytest.raises(QueryError, match="'or'"):
        model.contributions("boolean0", "boolean1 or boolean2")
    with pytest.raises(QueryError, match="at most 14"):
        model.contributions("boolean0", {f"boolean{i}": True for i in range(1, 16)})

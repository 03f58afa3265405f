"""What learning from samples must satisfy: gaps at random, weights, seeds, precision, bad input.

Facts are moments in units of their spread, and probabilities. EM over all rows and hidden trees
come within 0.004 of what they learn without gaps; einsum networks, which stop after six epochs of
batches, within 0.04. Tolerances are twice that or more.
"""

import warnings
from typing import Literal

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FedcircuitsError, TableError


def sample(rows: int, seed: int = 0) -> fc.Table:
    """Two groups that tell all columns apart."""
    rng = np.random.default_rng(seed)
    group = (rng.random(rows) < 0.4).astype(int)
    return fc.Table.of(
        pd.DataFrame(
            {
                "x": rng.normal(np.array([-2.0, 2.0])[group], 1.0),
                "n": rng.poisson(np.array([2.0, 9.0])[group]),
                "c": np.array(["u", "v", "w"])[(group + (rng.random(rows) < 0.3)) % 3],
                "b": rng.random(rows) < np.array([0.2, 0.8])[group],
            }
        )
    )


def with_gaps(table: fc.Table, share: float = 0.2, seed: int = 1) -> fc.Table:
    gaps = np.random.default_rng(seed).random(table.values.shape) < share
    return fc.Table(table.schema, np.where(gaps, np.nan, table.values))


EM_LEARNERS = [
    fc.MixtureOfProducts(2, random_state=0, tol=1e-7),
    fc.EinsumNetwork(2, depth=1, repetitions=1, epochs=6, random_state=0),
    fc.EinsumNetwork(2, depth=1, repetitions=1, epochs=6, training="gradient", random_state=0),
    fc.HiddenChowLiuTree(2, epochs=6, batch_size=256, random_state=0),
]
LEARNERS = [*EM_LEARNERS, fc.LearnSPN(random_state=0)]
DISCRETE = [*LEARNERS, fc.ChowLiuTree()]


def name(model: fc.Model) -> str:
    return f"{type(model).__name__} {getattr(model, 'training', '')}".strip()


each = pytest.mark.parametrize("learner", LEARNERS, ids=name)


# ---------------------------------------------------------------------- statistics


def facts(model: fc.Model) -> Array:
    """Moments and probabilities, of which the names of hidden states do not matter."""
    moments = model.expect(["x", "n", "b"])
    x, n = moments.loc["x"], moments.loc["n"]
    scaled = [x["mean"] / 2.2, x["variance"] / 4.8, n["mean"] / 4.8, n["variance"] / 16.6]
    asked = ("b", "c = u", "c = v", "x > 0 and b", "n > 5 and x > 0", "c = u and b")
    return np.array([*scaled, *(float(model.probability(q)) for q in asked)])


@pytest.mark.parametrize("learner", EM_LEARNERS, ids=name)
def test_gaps_at_random_change_nothing_in_expectation(learner: fc.Model) -> None:
    whole = sample(20_000)
    complete = facts(learner.fit(whole))
    holed = facts(learner.fit(with_gaps(whole)))
    close = 0.08 if isinstance(learner, fc.EinsumNetwork) else 0.012
    np.testing.assert_allclose(holed, complete, atol=close)


def test_parameters_of_a_mixture_survive_gaps() -> None:
    whole = sample(8_000)
    model = fc.MixtureOfProducts(2, random_state=0, tol=1e-8)
    found = []
    for table in (whole, with_gaps(whole)):
        parameters = model.fit(table).parameters_
        order = np.argsort(parameters["root"]["weight"][0])
        values = [parameters["root"]["weight"][0][order]]
        for leaf in model.circuit_.leaves():
            own = parameters[leaf.name]
            values += [own[k][order].ravel() for k in ("mean", "rate", "probability") if k in own]
        found.append(np.concatenate(values))
    np.testing.assert_allclose(found[1], found[0], atol=0.08, rtol=0.03)


# ---------------------------------------------------------------------- weights, seeds, precision


@pytest.mark.parametrize(
    "learner",
    [
        fc.MixtureOfProducts(1, random_state=0),
        fc.LearnSPN(random_state=0),
        fc.ChowLiuTree(),
    ],
    ids=name,
)
def test_weights_equal_repetition(learner: fc.Model) -> None:
    table = sample(200)
    if not isinstance(learner, fc.MixtureOfProducts):
        table = table.select(["c", "b"])  # leaves of other kinds are chosen by rows held back
    weight = np.random.default_rng(0).integers(0, 4, len(table))
    again = table.rows(np.repeat(np.arange(len(table)), weight))
    expected = learner.fit(again).score_samples(table)
    found = learner.fit(table, sample_weight=weight).score_samples(table)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "learner",
    [
        fc.EinsumNetwork(2, depth=1, repetitions=1, epochs=6, random_state=0),
        fc.EinsumNetwork(2, depth=1, repetitions=1, epochs=6, training="gradient", random_state=0),
        fc.HiddenChowLiuTree(2, epochs=6, batch_size=256, random_state=0),
    ],
    ids=name,
)
def test_weights_equal_repetition_over_batches(learner: fc.Model) -> None:
    """Up to which rows are held back, and to the order of the others."""
    table = sample(10_000)
    weight = np.where(table.values[:, 3] == 1, 3, 1)
    again = table.rows(np.repeat(np.arange(len(table)), weight))
    expected = facts(learner.fit(again))
    assert expected[4] > 0.6, "the weights have changed what is learned"
    np.testing.assert_allclose(facts(learner.fit(table, sample_weight=weight)), expected, atol=0.04)


@pytest.mark.parametrize("training", ["em", "gradient"])
def test_rows_held_back_count_by_weight(training: Literal["em", "gradient"]) -> None:
    """Two values, of which the heavy one is rare: the model learns and judges 0.9 of it."""
    x = pd.DataFrame({"b": np.arange(1000) % 10 == 0})
    weight = np.where(x["b"], 81.0, 1.0)
    model = fc.EinsumNetwork(1, training=training, epochs=20, random_state=0)
    model.fit(x, sample_weight=weight)
    assert model.probability("b") == pytest.approx(0.9, abs=0.02)
    entropy = -0.9 * np.log(0.9) - 0.1 * np.log(0.1)
    assert model.history_[-1] == pytest.approx(-entropy, abs=0.03)
    assert model.validation_history_[-1] == pytest.approx(-entropy, abs=0.06)


def test_rows_that_judge_a_mixture_of_trees_count_by_weight() -> None:
    x = pd.DataFrame({"b": np.arange(1000) % 10 == 0, "c": np.arange(1000) % 2 == 0})
    weight = np.where(x["b"], 81.0, 1.0)
    model = fc.MixtureOfChowLiuTrees(1, ensemble=1, smoothing=0, validation=0.2, random_state=0)
    model.fit(x, sample_weight=weight)
    assert model.probability("b") == pytest.approx(0.9, abs=0.02)
    assert model.validation_history_[-1] == pytest.approx(model.history_[-1], abs=0.08)


@pytest.mark.parametrize("learner", DISCRETE, ids=name)
def test_rows_without_weight_are_not_there(learner: fc.Model) -> None:
    table = sample(300).select(["c", "b"])
    weight = (np.arange(len(table)) % 3 > 0).astype(float)
    found = learner.fit(table, sample_weight=weight).score_samples(table)
    expected = learner.fit(table.rows(np.flatnonzero(weight))).score_samples(table)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(TableError, match="sample_weight is zero for every row"):
        learner.fit(table, sample_weight=np.zeros(len(table)))


@each
def test_one_seed_one_model_bit_for_bit(learner: fc.Model) -> None:
    table = sample(400)
    first = learner.fit(table).parameters_
    assert learner.fit(table).parameters_ == first


@each
def test_single_and_double_precision_input(learner: fc.Model) -> None:
    x = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    narrow = learner.fit(x).score_samples(x)
    np.testing.assert_array_equal(narrow, learner.fit(x.astype(np.float64)).score_samples(x))


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("learner", DISCRETE, ids=name)
def test_a_table_without_rows_is_refused(learner: fc.Model) -> None:
    with pytest.raises(TableError, match="expected a table with rows"):
        learner.fit(pd.DataFrame({"c": pd.Series([], dtype=str)}))


@pytest.mark.parametrize("learner", DISCRETE, ids=name)
@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"c": ["u"], "b": [True]}),
        pd.DataFrame({"c": ["u", "v"] * 20}),
        pd.DataFrame({"c": ["u"] * 40, "b": [True] * 40}),
        pd.DataFrame({"c": ["u"] * 39 + ["v"], "b": [True, False] * 20}),
        pd.DataFrame({"c": ["u", None] * 20, "b": [True, None] * 20}),
    ],
    ids=["one row", "one column", "constants", "a class with one example", "rows of gaps"],
)
def test_little_is_learned_and_asked(learner: fc.Model, frame: pd.DataFrame) -> None:
    model = learner.fit(frame)
    assert np.isfinite(model.score_samples(frame)).all()
    if len(frame.columns) == 1:
        with pytest.raises(TableError, match="none of the model's columns beside the target"):
            model.predict_proba(frame, "c")
    else:
        found = model.predict_proba(frame, "c")
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)


def test_a_class_with_one_example_as_the_target() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "c": ["u"] * 39 + ["v"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fc.EinsumNetwork(2, target="c", epochs=3, random_state=0).fit(frame)
    assert np.isfinite(model.score_samples(frame)).all()


@pytest.mark.parametrize("learner", DISCRETE, ids=name)
def test_categories_that_were_never_seen(learner: fc.Model) -> None:
    model = learner.fit(sample(300).select(["c", "b"]))
    strange = pd.DataFrame({"c": ["u", "z"], "b": [True, False]})
    with pytest.raises(FedcircuitsError, match="unknown category 'z' in row 1"):
        fc.Table.of(strange, schema=model.schema_, unseen="error")
    with pytest.warns(UserWarning, match="an unknown category"):
        assert np.isfinite(model.score_samples(strange)).all()
    with pytest.warns(UserWarning, match="an unknown category"):
        known = fc.Table.of(strange, schema=model.schema_, unseen="missing")
    assert np.isfinite(model.score_samples(known)).all()


@pytest.mark.parametrize("learner", DISCRETE, ids=name)
def test_rows_of_gaps_have_probability_one(learner: fc.Model) -> None:
    model = learner.fit(sample(300).select(["c", "b"]))
    nothing = fc.Table(model.schema_, np.full((2, 2), np.nan))
    np.testing.assert_allclose(model.score_samples(nothing), 0.0, atol=1e-6)

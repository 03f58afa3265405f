"""Predictions, samples and completions of a model, in the user's own values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import QueryError, TableError

RED = {"colour": "red"}


@pytest.fixture(scope="module")
def model() -> fc.CircuitModel:
    """Two states: (x around 0, n around 1, red, yes, 1) or (x around 9, n around 20, blue, no, 2).

    Colour and state exclude other values, so some rows are impossible.
    """
    schema = fc.Schema(
        (
            fc.Variable("x", unit="m"),
            fc.Variable("n", "count"),
            fc.Variable("colour", "category", ("red", "blue", "unseen")),
            fc.Variable("ok", "boolean", ("no", "yes")),
            fc.Variable("flag", "boolean"),
            fc.Variable("code", "category", (1, 2, 3)),
        )
    )
    nodes = (
        Leaf("x", "gaussian", ("x",), 2),
        Leaf("n", "poisson", ("n",), 2),
        Leaf("c", "categorical", ("colour", "code"), 2),
        Leaf("b", "categorical", ("ok", "flag"), 2),
        Product("p", ("x", "n", "c", "b")),
        Sum("root", ("p",)),
    )
    values = {
        "x": {"mean": np.array([[0.0], [9.0]]), "variance": np.ones((2, 1))},
        "n": {"rate": np.array([[1.0], [20.0]])},
        "c": {"probability": np.array([[[1.0, 0, 0], [1.0, 0, 0]], [[0, 1.0, 0], [0, 0.6, 0.4]]])},
        "b": {"probability": np.array([[[0.0, 1.0], [0.3, 0.7]], [[1.0, 0.0], [0.9, 0.1]]])},
        "root": {"weight": np.array([[0.25, 0.75]])},
    }
    return fc.CircuitModel(fc.Circuit(nodes, schema), Parameters(values))


def frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(columns)


# ---------------------------------------------------------------------- predictions


def test_classes_in_the_users_values(model: fc.Model) -> None:
    asked = frame(colour=["red", "blue", None])
    ok = model.predict(asked, "ok")
    assert list(ok) == ["yes", "no", "no"] and ok.dtype.kind == "U"
    flag = model.predict(asked, "flag")
    assert list(flag) == [True, False, False] and flag.dtype == bool
    code = model.predict(asked, "code")
    assert list(code) == [1, 2, 2] and code.dtype.kind == "i"
    assert model.classes("ok") == ("no", "yes")
    assert model.classes("code") == (1, 2, 3)


def test_classes_of_several_types_keep_them() -> None:
    schema = fc.Schema((fc.Variable("x"), fc.Variable("c", "category", (1, "two", 3.5))))
    nodes = (
        Leaf("x", "gaussian", ("x",), 3),
        Leaf("c", "indicator", ("c",), 3),
        Product("p", ("x", "c")),
        Sum("root", ("p",)),
    )
    values = {
        "x": {"mean": np.array([[0.0], [10.0], [20.0]]), "variance": np.ones((3, 1))},
        **fc.structures.indicator_codes(fc.Circuit(nodes, schema)),
        "root": {"weight": np.full((1, 3), 1 / 3)},
    }
    own = fc.CircuitModel(fc.Circuit(nodes, schema), Parameters(values))
    found = own.predict(frame(x=[0.0, 10.0, 20.0]), "c").tolist()
    assert found == [1, "two", 3.5] and [type(v) for v in found] == [int, str, float]


def test_probabilities_of_classes(model: fc.Model) -> None:
    found = model.predict_proba(frame(colour=["red", "blue", None]), "code")
    np.testing.assert_allclose(found, [[1, 0, 0], [0, 0.6, 0.4], [0.25, 0.45, 0.3]], atol=1e-12)
    flag = model.predict_proba(frame(x=[0.1, 4.5, 9.2]), "flag")
    np.testing.assert_allclose(flag.sum(axis=1), 1.0)
    for i, x in enumerate([0.1, 4.5, 9.2]):
        assert flag[i, 1] == pytest.approx(model.probability("flag", {"x": x}))


def test_means_of_numbers(model: fc.Model) -> None:
    asked = frame(colour=["red", "blue", None])
    np.testing.assert_allclose(model.predict(asked, "x"), [0.0, 9.0, 6.75], atol=1e-9)
    np.testing.assert_allclose(model.predict(asked, "n"), [1.0, 20.0, 15.25], atol=1e-9)


@pytest.mark.parametrize("target", ["x", "n", "colour", "ok", "flag", "code"])
def test_the_column_of_the_target_does_not_count(model: fc.Model, target: str) -> None:
    whole = model.sample(20, random_state=0)
    expected = model.predict(whole.drop(columns=target), target)
    np.testing.assert_array_equal(model.predict(whole, target), expected)
    np.testing.assert_array_equal(model.predict(whole.assign(**{target: "?!"}), target), expected)
    np.testing.assert_array_equal(model.predict(fc.Table.of(whole), target), expected)
    without = whole.drop(columns=target).to_numpy()
    np.testing.assert_array_equal(model.predict(without, target), expected)
    np.testing.assert_array_equal(model.predict(whole.to_numpy(), target), expected)
    before = whole.copy()
    model.predict(whole, target)
    pd.testing.assert_frame_equal(whole, before)


def test_arrays_of_numbers_with_and_without_the_target() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    x[:, 1] += 3 * x[:, 0]
    model = fc.MixtureOfProducts(5, random_state=0).fit(x)
    expected = model.predict(pd.DataFrame({"x0": x[:, 0], "x2": x[:, 2]}), "x1")
    np.testing.assert_array_equal(model.predict(x, "x1"), expected)
    np.testing.assert_array_equal(model.predict(np.delete(x, 1, axis=1), "x1"), expected)
    single = x.astype(np.float32)
    np.testing.assert_allclose(model.predict(single, "x1"), expected, rtol=1e-3)
    with pytest.raises(TableError, match=r"3 columns \(x0, x1, x2\), or 2 without 'x1', got 1"):
        model.predict(x[:, :1], "x1")


@pytest.mark.parametrize("target", ["x", "n", "ok"])
def test_impossible_rows_are_predicted_from_nothing(model: fc.Model, target: str) -> None:
    asked = frame(colour=["red", "red", "unseen"], code=[1, 2, None])
    with pytest.warns(UserWarning, match=r"2 of 3 rows .*probability zero.*row 1.*overall"):
        found = model.predict(asked, target)
    overall = model.predict(frame(colour=[None], code=[None]), target)
    np.testing.assert_array_equal(found[1:], np.repeat(overall, 2))
    np.testing.assert_array_equal(found[:1], model.predict(asked[:1], target))


def test_impossible_rows_get_the_overall_probabilities(model: fc.Model) -> None:
    with pytest.warns(UserWarning, match="1 of 1 rows .*overall probabilities of 'ok'"):
        found = model.predict_proba(frame(colour=["unseen"]), "ok")
    np.testing.assert_allclose(found, [[0.75, 0.25]])


def test_the_target_of_the_model_is_the_default(model: fc.CircuitModel) -> None:
    own = fc.CircuitModel(model.circuit_, model.parameters_, target="ok")
    assert list(own.predict(frame(x=[0.0]))) == ["yes"]
    assert own.predict_proba(frame(x=[0.0])).shape == (1, 2)
    assert list(own.predict(frame(x=[0.0]), "colour")) == ["red"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.predict(frame(x=[0.0])), "name the column to predict"),
        (lambda m: m.predict_proba(frame(x=[0.0])), "name the column to predict"),
        (lambda m: m.predict(frame(x=[0.0]), "color"), "'color'.*did you mean 'colour'"),
        (lambda m: m.predict_proba(frame(x=[0.0]), "n"), "'n' is a count: it has no classes"),
        (lambda m: m.classes("x"), "'x' is a real: it has no classes"),
    ],
)
def test_targets_that_are_none(model: fc.Model, ask: object, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        ask(model)  # type: ignore[operator]


def test_rows_with_nothing_but_the_target(model: fc.Model) -> None:
    for asked in (frame(ok=["yes"]), fc.Table.of(frame(ok=["yes"])), frame(ok=["yes"], id=[3])):
        with pytest.raises(TableError, match="none of the model's columns beside the target"):
            model.predict(asked, "ok")


# ---------------------------------------------------------------------- samples


def test_samples_come_in_the_users_values(model: fc.Model) -> None:
    drawn = model.sample(50, random_state=0)
    assert list(drawn.columns) == ["x", "n", "colour", "ok", "flag", "code"]
    kinds = {"x": "f", "n": "i", "flag": "b"}
    assert {c: drawn[c].dtype.kind for c in kinds} == kinds
    assert set(drawn["colour"]) == {"red", "blue"} and set(drawn["ok"]) == {"no", "yes"}
    assert list(drawn["colour"].cat.categories) == ["red", "blue", "unseen"]
    assert set(drawn["code"]) == {1, 2, 3}
    assert not drawn.isna().any().any()
    assert ((drawn["colour"] == "red") == (drawn["ok"] == "yes")).all()


def test_samples_are_repeatable(model: fc.Model) -> None:
    pd.testing.assert_frame_equal(model.sample(9, random_state=5), model.sample(9, random_state=5))
    assert not model.sample(9, random_state=5).equals(model.sample(9, random_state=6))
    assert not model.sample(9).equals(model.sample(9))
    assert len(model.sample()) == 1


@pytest.mark.parametrize("given", ["colour = red and x > 0.5", {**RED, "x": (0.5, None)}])
def test_samples_keep_to_the_evidence(model: fc.Model, given: object) -> None:
    drawn = model.sample(200, given, random_state=0)  # type: ignore[arg-type]
    assert (drawn["colour"] == "red").all() and (drawn["x"] > 0.5).all()
    assert drawn["x"].nunique() == 200


def test_samples_of_rows_come_in_their_order(model: fc.Model) -> None:
    asked = frame(colour=["red", "blue"], x=[0.25, None])
    drawn = model.sample(3, asked, random_state=0)
    assert list(drawn["colour"]) == ["red"] * 3 + ["blue"] * 3
    assert list(drawn["x"][:3]) == [0.25] * 3 and drawn["x"][3:].nunique() == 3
    assert len(model.sample(2, fc.Table.of(asked), random_state=0)) == 4


@pytest.mark.parametrize("n", [0, -3, 2.5, "7", None])
def test_numbers_of_samples_that_are_none(model: fc.Model, n: object) -> None:
    with pytest.raises(QueryError, match="n must be a whole number from 1, got"):
        model.sample(n)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- completions


def test_completed_frames_keep_all_they_have(model: fc.Model) -> None:
    asked = pd.DataFrame(
        {"id": ["a", "b", "c"], "ok": ["yes", None, None], "x": [0.125, 8.5, np.nan]},
        index=[5, 5, 7],
    )
    asked.attrs["source"] = "clinic"
    before = asked.copy()
    found = model.mpe(asked)
    assert list(found.columns) == ["id", "ok", "x", "n", "colour", "flag", "code"]
    assert list(found.index) == [5, 5, 7] and list(found["id"]) == ["a", "b", "c"]
    assert list(found["ok"]) == ["yes", "no", "yes"]
    assert list(found["x"]) == [0.125, 8.5, 0.0]
    assert list(found["colour"]) == ["red", "blue", "red"]
    assert found.attrs["source"] == "clinic"
    assert not found.isna().any().any()
    assert found.attrs["exact"] is model.explain(asked).exact
    pd.testing.assert_frame_equal(asked, before)


def test_completions_say_whether_they_are_exact(model: fc.Model) -> None:
    assert model.explain(frame(x=[1.0])).exact, "the states exclude each other by their colours"
    overlapping = {
        **model.parameters_.values,
        "c": {"probability": np.full((2, 2, 3), 1 / 3)},
        "b": {"probability": np.full((2, 2, 2), 1 / 2)},
    }
    vague = fc.CircuitModel(model.circuit_, Parameters(overlapping))
    found = vague.explain(frame(x=[1.0]))
    assert not found.exact
    assert found.log_value == pytest.approx(vague.score_samples(vague.mpe(frame(x=[1.0]))))


def test_completed_tables_and_arrays_keep_their_form(model: fc.Model) -> None:
    asked = frame(
        x=[0.125, None], n=[None, 20], colour=["red", None], ok=None, flag=None, code=None
    )
    expected = model.mpe(asked)
    table = fc.Table(
        model.schema_, fc.Table.of(asked, schema=model.schema_).values, np.array([3, 4])
    )
    found = model.mpe(table)
    assert isinstance(found, fc.Table) and list(found.row_ids) == [3, 4]
    for name in model.schema_.names:
        assert list(found.column(name)) == list(expected[name])
    array = model.mpe(asked.to_numpy())
    assert array.dtype == object and array.shape == (2, 6)
    assert array.tolist() == expected.to_numpy(dtype=object).tolist()
    other = model.mpe(polars.from_pandas(asked[["x", "colour"]]))  # type: ignore[type-var]
    assert list(other["colour"]) == ["red", "red"] and list(other["x"]) == [0.125, 0.0]


def test_an_array_of_numbers_may_be_completed_by_texts(model: fc.Model) -> None:
    gaps = np.full((1, 6), np.nan)
    gaps[0, 0] = 8.5
    assert model.mpe(gaps)[0].tolist() == [8.5, 20, "blue", "no", False, 2]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, object])
def test_arrays_of_models_of_numbers_stay_numbers(dtype: type) -> None:
    rng = np.random.default_rng(0)
    table = fc.Table.of({"x": rng.normal(size=60), "k": rng.poisson(3, 60), "b": [0, 1] * 30})
    model = fc.MixtureOfProducts(2, random_state=0).fit(table)
    asked = np.array([[0.5, np.nan, 1.0], [np.nan, 4.0, np.nan]]).astype(dtype)
    found = model.mpe(asked)
    assert found.dtype == (np.float64 if dtype is object else dtype)
    assert not np.isnan(found).any()
    given = ~pd.isna(asked)
    np.testing.assert_array_equal(found[given], asked[given].astype(float))

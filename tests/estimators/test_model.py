"""The face of every model, in the user's values: rows, events, predictions, completions, files."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FileError, QueryError, TableError

NAMES = ["age", "visits", "colour", "smoker", "plan"]


def people(rows: int, seed: int, gaps: bool = True) -> pd.DataFrame:
    """A table of all kinds, whose columns depend on each other; 'smoker' has own values."""
    rng = np.random.default_rng(seed)
    group = rng.random(rows) < 0.4
    frame = pd.DataFrame(
        {
            "age": rng.normal(40 + 25 * group, 6),
            "visits": rng.poisson(1 + 6 * group),
            "colour": np.where(rng.random(rows) < 0.2 + 0.6 * group, "red", "blue"),
            "smoker": rng.random(rows) < 0.1 + 0.5 * group,
            "plan": rng.choice([1, 2, 3], rows),
        }
    )
    if gaps:
        frame.loc[rng.random(rows) < 0.15, "age"] = np.nan
        frame.loc[rng.random(rows) < 0.15, "colour"] = None
    return frame


@pytest.fixture(scope="module")
def model() -> fc.MixtureOfProducts:
    table = fc.Table.of(people(500, 0), kinds={"plan": "category"})
    return fc.MixtureOfProducts(3, random_state=0).fit(table)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return people(40, 1)


def certain() -> fc.CircuitModel:
    """Two states that exclude each other: colour red with yes, blue with no; x around 0 or 9."""
    schema = fc.Schema(
        (
            fc.Variable("x"),
            fc.Variable("colour", "category", ("red", "blue")),
            fc.Variable("ok", "boolean", ("no", "yes")),
        )
    )
    nodes = (
        Leaf("x", "gaussian", ("x",), 2),
        Leaf("colour", "indicator", ("colour",), 2),
        Leaf("ok", "categorical", ("ok",), 2),
        Product("p", ("x", "colour", "ok")),
        Sum("root", ("p",)),
    )
    values = {
        "x": {"mean": np.array([[0.0], [9.0]]), "variance": np.ones((2, 1))},
        "colour": {"code": np.array([[0.0], [1.0]])},
        "ok": {"probability": np.array([[[0.0, 1.0]], [[1.0, 0.0]]])},
        "root": {"weight": np.array([[0.25, 0.75]])},
    }
    return fc.CircuitModel(fc.Circuit(nodes, schema), Parameters(values))


# ---------------------------------------------------------------------- rows in


def test_columns_are_found_by_name(model: fc.Model, rows: pd.DataFrame) -> None:
    expected = model.score_samples(rows)
    assert expected.shape == (40,) and np.isfinite(expected).all()
    np.testing.assert_array_equal(model.score_samples(rows[NAMES[::-1]]), expected)
    np.testing.assert_array_equal(model.score_samples(rows.assign(id=range(40))), expected)
    np.testing.assert_array_equal(model.score_samples(rows.set_index(np.ones(40))), expected)
    table = fc.Table.of(rows, schema=model.schema_)
    np.testing.assert_array_equal(model.score_samples(table), expected)
    np.testing.assert_array_equal(model.score_samples(rows.to_numpy()), expected)
    own = fc.Table.of(rows[NAMES[::-1]], kinds={"plan": "category"})
    np.testing.assert_array_equal(model.score_samples(own), expected)
    assert model.score(rows) == pytest.approx(expected.mean())


def test_absent_columns_are_summed_out(model: fc.Model, rows: pd.DataFrame) -> None:
    part = rows[["visits", "smoker"]]
    empty = rows.assign(age=np.nan, colour=None, plan=None)
    np.testing.assert_allclose(model.score_samples(part), model.score_samples(empty), rtol=1e-13)
    whole = [
        model.score_samples(part.assign(colour=colour, plan=plan))
        for colour, plan in itertools.product(["red", "blue"], [1, 2, 3])
    ]
    summed = np.logaddexp.reduce(whole, axis=0)
    np.testing.assert_allclose(summed, model.score_samples(part), rtol=1e-10)


def test_a_table_without_some_columns(model: fc.Model, rows: pd.DataFrame) -> None:
    part = fc.Table.of(rows[["visits", "smoker"]])
    found = model.score_samples(part)
    np.testing.assert_array_equal(found, model.score_samples(rows[["visits", "smoker"]]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.rename(columns={"visits": "visit"}), ["'visit'", "'visits'", "rename"]),
        (lambda f: f.rename(columns={"age": " Age"}), ["' Age'", "'age'", "rename"]),
        (lambda f: fc.Table.of(f.rename(columns={"age": "AGE"})), ["'AGE'", "'age'"]),
        (lambda f: f[["age"]].rename(columns={"age": "z"}), ["none of the model's", "age", "z"]),
        (lambda f: f.assign(visits=1.5), ["'visits'", "counts", "1.5"]),
        (lambda f: f.assign(visits=-1), ["'visits'", "counts", "-1"]),
        (lambda f: f.assign(age=np.inf), ["'age'", "infinite"]),
        (lambda f: f.assign(age="old"), ["'age'", "numbers", "'old'"]),
        (lambda f: f[:0], ["at least one row"]),
        (lambda f: f.to_numpy()[:0], ["at least one row"]),
        (lambda f: fc.Table.of(f).rows(slice(0, 0)), ["at least one row"]),
        (lambda f: f.to_numpy()[:, :3], ["5 columns", "age, visits", "got 3", "DataFrame"]),
        (lambda f: np.zeros(5), ["two dimensions", "(5,)"]),
        (lambda f: np.zeros((2, 5, 1)), ["two dimensions", "(2, 5, 1)"]),
        (lambda f: "people.csv", ["DataFrame", "Table.read"]),
        (lambda f: [[1, 2]], ["DataFrame", "list"]),
        (lambda f: None, ["DataFrame", "NoneType"]),
    ],
)
def test_rows_that_do_not_fit(
    model: fc.Model, rows: pd.DataFrame, change: object, words: list[str]
) -> None:
    with pytest.raises(TableError) as caught:
        model.score_samples(change(rows))  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("column", "value"), [("colour", "pink"), ("plan", 4)])
def test_categories_it_does_not_know_are_summed_out(
    model: fc.Model, rows: pd.DataFrame, column: str, value: object
) -> None:
    with pytest.warns(UserWarning, match=rf"'{column}'.*{value}.*(is|are) taken as missing"):
        strange = model.score_samples(rows.assign(**{column: value}))
    np.testing.assert_allclose(strange, model.score_samples(rows.drop(columns=column)))


def test_a_table_of_no_rows_that_has_the_models_own_schema() -> None:
    model = certain()
    nothing = fc.Table(model.schema_, np.empty((0, 3)))
    for question in (model.score, model.mpe, lambda x: model.predict(x, "ok")):
        with pytest.raises(TableError, match="at least one row"):
            question(nothing)


def test_extra_columns_that_resemble_present_ones_are_extras(model: fc.Model) -> None:
    frame = people(3, 2)
    expected = model.score_samples(frame)
    np.testing.assert_array_equal(model.score_samples(frame.assign(ages=1, Colour=2)), expected)


# ---------------------------------------------------------------------- probabilities


@pytest.mark.parametrize(
    ("event", "opposite"),
    [
        ("age > 50", "age <= 50"),
        ("visits < 3", "visits >= 3"),
        ("colour = red", "colour != red"),
        ("smoker", "not smoker"),
        ("plan in {1, 2}", "plan = 3"),
        ("age > 50 and smoker or visits = 2", "not (age > 50 and smoker or visits = 2)"),
        ({"age": (None, 40), "colour": {"red", "blue"}}, "age > 40"),
    ],
)
@pytest.mark.parametrize("given", [None, "smoker", {"age": 47.5}, {"age": (30, 60), "plan": 2}])
def test_complements_add_up(model: fc.Model, event: object, opposite: str, given: object) -> None:
    total = model.probability(event, given) + model.probability(opposite, given)  # type: ignore[arg-type, operator]
    assert total == pytest.approx(1.0, abs=1e-9)


def test_forms_of_events_and_evidence_agree(model: fc.Model) -> None:
    text = model.probability("visits = 2 and smoker", "colour = red and 40 <= age <= 60")
    mapping = model.probability(
        {"visits": 2, "smoker": True}, {"colour": "red", "age": (40, 60), "plan": None}
    )
    assert isinstance(text, float) and text == pytest.approx(mapping, rel=1e-12)
    frame = pd.DataFrame({"colour": ["red", "blue", None], "smoker": [True, None, False]})
    each = model.probability("visits > 2", frame)
    assert isinstance(each, np.ndarray) and each.shape == (3,)
    assert each[0] == pytest.approx(model.probability("visits > 2", "colour = red and smoker"))
    assert each[1] == pytest.approx(model.probability("visits > 2", {"colour": "blue"}))
    assert each[2] == pytest.approx(model.probability("visits > 2", {"smoker": False}))


def test_an_event_about_what_is_given(model: fc.Model) -> None:
    assert model.probability("age > 50", {"age": 60.0}) == pytest.approx(1.0)
    assert model.probability("age > 50", {"age": 40.0}) == 0.0
    frame = pd.DataFrame({"colour": ["red", "blue"]})
    np.testing.assert_allclose(model.probability("colour = red", frame), [1.0, 0.0])


@pytest.mark.parametrize("event", ["age > 50 and smoker", "visits in {0, 1} or colour = red"])
@pytest.mark.parametrize("given", [None, "visits > 1", {"age": (45, None)}])
def test_samples_have_the_probabilities(model: fc.Model, event: str, given: object) -> None:
    drawn = model.sample(20_000, given, random_state=0)  # type: ignore[arg-type]
    hit = {
        "age > 50 and smoker": (drawn["age"] > 50) & drawn["smoker"],
        "visits in {0, 1} or colour = red": drawn["visits"].isin([0, 1])
        | (drawn["colour"] == "red"),
    }[event]
    expected = model.probability(event, given)  # type: ignore[arg-type]
    assert hit.mean() == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 20_000))


@pytest.mark.parametrize(
    ("event", "given", "words"),
    [
        ("heigth > 3", None, ["'heigth'", "there are"]),
        ("colur = red", None, ["'colur'", "did you mean 'colour'?"]),
        ("colour = rd", None, ["'rd'", "did you mean 'red'?"]),
        ({"age": 40.0}, None, ["'age' is real", "(39.5, 40.5)"]),
        ("age = 40", None, ["'age'", "39.5 < age < 40.5"]),
        ("", None, ["expected a condition"]),
        (None, None, ["event must be text", "NoneType"]),
        (3, None, ["event must be text", "int"]),
        ("smoker", "visits < 0", ["contradicts itself", "'visits'"]),
        ("smoker", {"ages": 3}, ["'ages'", "did you mean 'age'?"]),
        ("smoker", 3, ["text", "mapping", "rows", "int"]),
        ("smoker", [{"age": 3}], ["text", "mapping", "rows", "list"]),
    ],
)
def test_questions_that_cannot_be_asked(
    model: fc.Model, event: object, given: object, words: list[str]
) -> None:
    with pytest.raises(QueryError) as caught:
        model.probability(event, given)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


def test_evidence_of_probability_zero() -> None:
    model = certain()
    both = pd.DataFrame({"colour": ["red", "red"], "ok": ["yes", "no"]})
    for question in (
        lambda: model.probability("x > 1", {"colour": "red", "ok": "no"}),
        lambda: model.probability("x > 1", both),
        lambda: model.expect("x", "colour = red and ok = no"),
        lambda: model.expect("x", both),
        lambda: model.sample(3, {"colour": "red", "ok": "no"}),
        lambda: model.sample(3, both),
    ):
        with pytest.raises(QueryError, match="probability zero"):
            question()
    with pytest.raises(QueryError, match="the evidence in row 1 has"):
        model.probability("x > 1", both)
    assert model.score_samples(both)[1] == -np.inf
    assert model.probability("colour = red and ok = no") == 0.0


# ---------------------------------------------------------------------- expectations


def test_expectations_of_one_and_of_many(model: fc.Model, rows: pd.DataFrame) -> None:
    one = model.expect(["age", "visits", "smoker"], {"colour": "red"})
    assert list(one.index) == ["age", "visits", "smoker"]
    assert list(one.columns) == ["mean", "variance"]
    assert model.expect("age", {"colour": "red"}).loc["age", "mean"] == one.loc["age", "mean"]
    many = model.expect(["age", "smoker"], pd.DataFrame({"colour": ["red", None]}, index=[7, 9]))
    assert list(many.index) == [7, 9]
    assert many["age", "mean"][7] == pytest.approx(one.loc["age", "mean"], rel=1e-12)
    assert many["smoker", "variance"][7] == pytest.approx(one.loc["smoker", "variance"], rel=1e-9)
    overall = model.expect("age").loc["age", "mean"]
    assert many["age", "mean"][9] == pytest.approx(overall, rel=1e-12)
    assert one.loc["smoker", "mean"] == pytest.approx(
        model.probability("smoker", {"colour": "red"}), rel=1e-9
    )


def test_expectations_agree_with_samples(model: fc.Model) -> None:
    given = "age > 50 and visits <= 4"
    drawn = model.sample(20_000, given, random_state=1)
    found = model.expect(["age", "visits"], given)
    assert drawn["age"].min() > 50 and drawn["visits"].max() <= 4
    for name in ("age", "visits"):
        mean, variance = found.loc[name]
        assert drawn[name].mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / 20_000))
        assert drawn[name].var() == pytest.approx(variance, rel=0.08)


def test_what_is_given_is_its_own_mean(model: fc.Model) -> None:
    found = model.expect("age", {"age": 51.25}).loc["age"]
    assert found["mean"] == 51.25 and found["variance"] == pytest.approx(0, abs=1e-9)


def test_categories_have_no_mean(model: fc.Model) -> None:
    with pytest.raises(QueryError, match=r"'colour' is a category.*predict_proba.*probability"):
        model.expect(["age", "colour"])


# ---------------------------------------------------------------------- files and state


@pytest.mark.parametrize("target", [None, "colour"])
def test_a_loaded_model_answers_bit_for_bit(
    model: fc.Model, rows: pd.DataFrame, tmp_path: Path, target: str | None
) -> None:
    own = fc.CircuitModel(model.circuit_, model.parameters_, target)
    own.save(tmp_path / "m.fc")
    loaded = fc.load(tmp_path / "m.fc")
    assert loaded.target == target and loaded.schema_ == model.schema_
    np.testing.assert_array_equal(loaded.score_samples(rows), model.score_samples(rows))
    assert loaded.probability("age > 50", "smoker") == model.probability("age > 50", "smoker")
    pd.testing.assert_frame_equal(loaded.expect("age"), model.expect("age"), check_exact=True)
    pd.testing.assert_frame_equal(
        loaded.sample(9, random_state=3), model.sample(9, random_state=3), check_exact=True
    )
    pd.testing.assert_frame_equal(loaded.mpe(rows), model.mpe(rows), check_exact=True)
    found = loaded.predict_proba(rows, "colour")
    np.testing.assert_array_equal(found, model.predict_proba(rows, "colour"))
    loaded.save(tmp_path / "again.fc")
    again = (tmp_path / "again.fc").read_bytes()
    assert again == (tmp_path / "m.fc").read_bytes()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        fc.load(tmp_path / "m.fc")
    with pytest.raises(FileError, match="there is no folder"):
        certain().save(tmp_path / "nowhere" / "m.fc")


def test_nothing_can_be_asked_before_fit(rows: pd.DataFrame, tmp_path: Path) -> None:
    model = fc.MixtureOfProducts()
    for question in (
        lambda: model.score_samples(rows),
        lambda: model.score(rows),
        lambda: model.probability("age > 3"),
        lambda: model.expect("age"),
        lambda: model.predict(rows, "age"),
        lambda: model.predict_proba(rows, "colour"),
        lambda: model.sample(),
        lambda: model.mpe(rows),
        lambda: model.classes("colour"),
        lambda: model.save(tmp_path / "m.fc"),
    ):
        with pytest.raises(NotFittedError, match="this MixtureOfProducts is not fitted"):
            question()
    assert not hasattr(model, "schema_") and not list(tmp_path.iterdir())


def test_pickled_without_what_can_be_made_again(model: fc.Model, rows: pd.DataFrame) -> None:
    expected = model.score_samples(rows)
    state = pickle.dumps(model)
    assert len(state) < 20_000
    np.testing.assert_array_equal(pickle.loads(state).score_samples(rows), expected)


def test_answers_follow_new_parameters_and_circuits() -> None:
    model = certain()
    before = model.probability("colour = red")
    assert before == pytest.approx(0.25)
    turned = {**model.parameters_.values, "root": {"weight": np.array([[0.75, 0.25]])}}
    model.parameters_ = Parameters(turned)
    assert model.probability("colour = red") == pytest.approx(0.75)
    swapped = model.circuit_.nodes[:-1]
    model.circuit_ = fc.Circuit((*swapped, Sum("root", ("p", "p"))), model.schema_)
    model.parameters_ = Parameters({**turned, "root": {"weight": np.array([[0.1, 0, 0.2, 0.7]])}})
    assert model.probability("colour = red") == pytest.approx(0.3)


def test_models_can_be_cloned() -> None:
    model = certain()
    copy = clone(model)
    assert copy is not model and copy.parameters == model.parameters
    assert copy.fit() is copy
    assert "<Circuit of 5 nodes over 3 variables>" in repr(model)


def test_a_model_checks_what_it_is_made_of() -> None:
    model = certain()
    with pytest.raises(fc.errors.ParameterError, match="'x' has no parameters"):
        fc.CircuitModel(model.circuit_, Parameters({}))

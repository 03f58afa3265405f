"""VerticalGaussianMixture: the API of scikit-learn and of every model, hard data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
from fedcircuits.federation.sums.summations import Hub, Tree
from tests.federation.cases import gaps, mixed_table
from tests.methods.vertical.mixtures import NAMES, blocks_of, clustered, federation, quiet

X = clustered()
BLOCKS = blocks_of(7, 3)
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(7)])


def mixed(**settings: Any) -> VerticalGaussianMixture:
    table = mixed_table()
    places = {"north": ["age", "colour"], "south": ["visits", "smoker"], "west": ["weight", "risk"]}
    parties = {p: table.select(n) for p, n in places.items()}
    model = VerticalGaussianMixture(3, random_state=0, tol=1e-5, **settings)
    return model.fit(fc.Federation(parties, allow_collect=True))


# ---------------------------------------------------------------------- the API of scikit-learn


def test_attributes() -> None:
    model = VerticalGaussianMixture(3, random_state=0)
    with pytest.raises(NotFittedError, match="call fit first"):
        model.predict(X)
    assert clone(model).get_params()["summation"] == Hub()
    assert model.fit(federation(X, BLOCKS)) is model
    assert model.converged_ and model.n_iter_ == len(model.lower_bounds_)
    assert model.weights_.shape == (3,) and model.means_.shape == (3, 7)
    assert {p: c.shape for p, c in model.covariances_.items()} == {
        "north": (3, 3, 3), "east": (3, 2, 2), "south": (3, 2, 2)
    }  # fmt: skip
    assert model.kind_ == "vertical" and model.notes_ == ()
    labels = pd.Series(model.predict(FRAME), 1000 + np.arange(len(X)))
    for party in federation(X, BLOCKS):
        assert np.array_equal(model.labels_[party.name], labels[party.table.row_ids])
    again = VerticalGaussianMixture(3, random_state=0).fit(federation(X, BLOCKS))
    np.testing.assert_allclose(again.means_, model.means_, atol=1e-10)  # another order of rows


def test_parameters_stay_unless_all_allow() -> None:
    parties = federation(X, BLOCKS, allow_collect=False)
    model = VerticalGaussianMixture(2, random_state=0).fit(parties)
    assert model.weights_.sum() == pytest.approx(1)
    for name in ("means_", "covariances_"):
        with pytest.raises(FederationError, match="allow_collect=True"):
            getattr(model, name)
    with pytest.raises(FederationError, match="did not allow"):
        model.collect()


def test_the_best_of_several_starts_is_kept() -> None:
    x = clustered(120, apart=2.5, seed=8)
    parties = federation(x, BLOCKS)
    settings: dict[str, Any] = {"init_params": "random_from_data", "tol": 1e-4}
    best = quiet(VerticalGaussianMixture(4, n_init=4, random_state=3, **settings), parties)
    one = quiet(VerticalGaussianMixture(4, n_init=1, random_state=3, **settings), parties)
    runs = {e.tag.split("/")[2] for e in best.ledger_ if e.tag.startswith("em/agreed")}
    assert runs == {"0", "1", "2", "3"}
    assert best.lower_bound_ >= one.lower_bound_ - 1e-12
    assert best.score(x) == pytest.approx(best.lower_bound_, abs=1e-9)


def test_warm_start_goes_on() -> None:
    parties = federation(X, BLOCKS)
    whole = quiet(VerticalGaussianMixture(3, tol=0.0, max_iter=12, random_state=0), parties)
    part = VerticalGaussianMixture(3, tol=0.0, max_iter=6, random_state=0, warm_start=True)
    first = list(quiet(part, parties).lower_bounds_)
    second = list(quiet(part, parties).lower_bounds_)
    np.testing.assert_allclose(first + second, whole.lower_bounds_, atol=1e-10)
    part.n_components = 2
    with pytest.raises(FederationError, match="continues with 3 components"):
        part.fit(parties)


def test_it_says_when_it_has_not_settled() -> None:
    model = VerticalGaussianMixture(3, tol=1e-9, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations.*raise max_iter or tol"):
        model.fit(federation(X, BLOCKS))
    assert not model.converged_


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n_components": 0}, "n_components must be 'auto' or a whole number from 1, got 0"),
        ({"batch_size": 0.5}, "batch_size must be None or a whole number from 1, got 0.5"),
        ({"tol": -1}, "tol must be a number from 0, got -1"),
        (
            {"init_params": "kmeans"},
            r"init_params must be one of 'k-means\+\+', 'random_from_data', got 'kmeans'",
        ),
        ({"on_lost": "cry"}, "on_lost must be one of 'stop', 'continue', got 'cry'"),
        ({"weights_init": [1.0]}, "need means_init"),
        ({"means_init": np.zeros((1, 3))}, r"means_init: expected .* \(1, 7\)"),
        ({"hops": 1}, "Hub has none"),
        ({"hops": -1}, "hops must be a whole number from 0, got -1"),
        ({"leaves": {"y": "gamma"}}, "leaves names 'y', which is not a column"),
        ({"leaves": {"x0": "poisson"}}, "'x0', a real, cannot be 'poisson', which models count"),
        ({"summation": Tree([("north", "east"), ("south", "south")])}, "is not connected"),
        (
            {"summation": "tree"},
            r"summation must be a way to add up, with brackets, such as Hub\(\)",
        ),
        ({"summation": Tree}, "with brackets"),
        ({"n_components": "3"}, "n_components must be 'auto' or a whole number from 1, got '3'"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be None or a whole number"),
        ({"random_state": -1}, "random_state must be None or a whole number from 0, got -1"),
        ({"leaves": ["x0"]}, r"leaves=\['x0'\]: expected a dict"),
        ({"means_init": "k-means"}, "means_init: expected numbers, got k-means"),
        (
            {"means_init": np.zeros((1, 7)), "precisions_init": np.zeros((1, 7, 7))},
            "precisions_init: expected positive definite matrices, that of component 0 is not",
        ),
        (
            {"means_init": np.zeros((1, 7)), "precisions_init": -np.ones((1, 7))},
            "precisions are inverse covariances",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(FederationError, match=text):
        VerticalGaussianMixture(**settings).fit(federation(X, BLOCKS))


def test_there_are_as_many_rows_as_components() -> None:
    with pytest.raises(PartyLostError, match="241 components and 240 rows: use at most"):
        VerticalGaussianMixture(241).fit(federation(X, BLOCKS))


def test_federations_that_cannot_be() -> None:
    with pytest.raises(FederationError, match="learns from a Federation"):
        VerticalGaussianMixture().fit(FRAME)
    shared = fc.Federation({"a": FRAME, "b": FRAME[["x0"]]})
    with pytest.raises(FederationError, match=r"a and b both have a column 'x0'.*use FedPC"):
        VerticalGaussianMixture().fit(shared)
    uneven = fc.Federation({"a": FRAME[["x0"]], "b": FRAME[["x1"]].head(9)})
    with pytest.raises(FederationError, match="rows cannot be matched: a has no row ids"):
        VerticalGaussianMixture().fit(uneven)


# ---------------------------------------------------------------------- rows


def test_rows_without_ids_are_taken_in_their_order() -> None:
    parts = {n: FRAME[[f"x{j}" for j in b]] for n, b in zip(NAMES, BLOCKS, strict=False)}
    with pytest.warns(UserWarning, match="assumed to be in the same order"):
        model = VerticalGaussianMixture(3, random_state=0).fit(fc.Federation(parts))
    assert np.array_equal(model.labels_["north"], model.predict(FRAME))


@pytest.mark.parametrize("summation", [Hub(), Tree("path")])
def test_without_ids_the_graph_is_still_the_leaders(summation: Any) -> None:
    parts = {n: FRAME[[f"x{j}" for j in b]] for n, b in zip(NAMES, BLOCKS, strict=False)}
    model = VerticalGaussianMixture(3, random_state=0, summation=summation)
    with pytest.warns(UserWarning, match="assumed to be in the same order"):
        model.fit(fc.Federation(parts, allow_collect=True))
    assert model.schema_.names == tuple(FRAME.columns)
    assert 0 < model.probability("x0 > 0 and x6 > 0") < 1


def test_without_ids_columns_move_into_hubs() -> None:
    parts = {f"p{j}": FRAME[[f"x{j}"]] for j in range(7)}
    model = VerticalGaussianMixture(2, random_state=0, summation=Tree("cycle"), hops=1)
    with pytest.warns(UserWarning, match="assumed to be in the same order"):
        model.fit(fc.Federation(parts))
    assert model.score(FRAME) == pytest.approx(model.lower_bound_, abs=1e-9)


def test_parties_without_common_rows_are_named() -> None:
    frame = FRAME.assign(id=np.arange(len(FRAME)))
    parts = {"a": frame[["id", "x0"]], "b": frame[["id", "x1"]]}
    parts["c"] = frame[["x2"]].assign(id=np.arange(len(frame)) + 1000)
    with pytest.warns(UserWarning, match="no row id of c is at any other party"):
        parties = fc.Federation(parts, row_id="id")
    with pytest.warns(
        UserWarning, match="c has no row in common with another party.*same way"
    ) as told:
        VerticalGaussianMixture(2, random_state=0).fit(parties)
    assert len(told) == 1


@pytest.mark.parametrize("weights", [["a"] * len(X), dict.fromkeys(range(len(X)), "a")])
def test_weights_that_are_no_numbers(weights: Any) -> None:
    with pytest.raises(FederationError, match=r"sample_weight: expected numbers, got \['a'"):
        VerticalGaussianMixture().fit(federation(X, BLOCKS), sample_weight=weights)


def test_two_parties_are_warned() -> None:
    with pytest.warns(UserWarning, match="two parties.*compute the other's terms"):
        VerticalGaussianMixture(2, random_state=0).fit(federation(X, blocks_of(7, 2)))


def test_weights_count_as_repetitions() -> None:
    times = np.random.default_rng(0).integers(3, size=len(X))
    times[:3] = 1
    start: dict[str, Any] = {"means_init": X[:3], "tol": 0.0, "max_iter": 8, "random_state": 0}
    weight = pd.Series(times.astype(float), index=1000 + np.arange(len(X)))
    parties = federation(X, BLOCKS)
    weighed = quiet(VerticalGaussianMixture(3, **start), parties, sample_weight=weight)
    often = np.repeat(X, times, axis=0)
    repeated = quiet(VerticalGaussianMixture(3, **start), federation(often, BLOCKS))
    np.testing.assert_allclose(weighed.means_, repeated.means_, atol=1e-10)
    np.testing.assert_allclose(weighed.lower_bounds_, repeated.lower_bounds_, atol=1e-10)
    order = parties["north"].table.row_ids
    assert order is not None
    by_order = weight[order].to_numpy()
    same = quiet(VerticalGaussianMixture(3, **start), parties, sample_weight=by_order)
    np.testing.assert_allclose(same.means_, weighed.means_, atol=1e-10)
    with pytest.raises(FederationError, match="expected one for each of the 240 rows of north"):
        VerticalGaussianMixture().fit(parties, sample_weight=[1.0])
    with pytest.raises(PartyLostError, match="lacks 239 of the rows of north"):
        VerticalGaussianMixture().fit(parties, sample_weight={"1000": 1.0})
    with pytest.raises(FederationError, match="must be numbers from 0"):
        VerticalGaussianMixture().fit(parties, sample_weight=-by_order)


def test_new_rows_at_parties_or_in_a_table() -> None:
    model = VerticalGaussianMixture(3, random_state=0).fit(federation(X, BLOCKS))
    new = clustered(50, seed=1)
    held = np.random.default_rng(2).random((50, 3)) < 0.7
    held[:, 0] = True
    parties = federation(new, BLOCKS, held)
    ids = parties["north"].table.row_ids
    assert ids is not None
    rows = new[ids.astype(int) - 1000]
    known = np.repeat(held[ids.astype(int) - 1000], [3, 2, 2], axis=1)
    table = np.where(known, rows, np.nan)
    np.testing.assert_allclose(model.score_samples(parties), model.score_samples(table), atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(parties), model.predict_proba(table), atol=1e-9)
    assert np.array_equal(model.predict(parties), model.predict(table))
    assert model.bic(parties) == pytest.approx(model.bic(table), abs=1e-6)
    alone = model.score_samples(parties.select(["south"]))  # others are summed out
    south = parties["south"].table
    np.testing.assert_allclose(alone, model.score_samples(south), atol=1e-9)
    with pytest.raises(QueryError, match="predicting a column needs rows of a table"):
        model.predict(parties, "x0")
    with pytest.raises(QueryError, match="south has 'x0', which the model has learned at north"):
        model.predict(fc.Federation({"south": FRAME[["x0"]]}))


# ---------------------------------------------------------------------- the API of every model


QUESTIONS: dict[str, Any] = {
    "density": lambda m, t: m.score_samples(t),
    "event": lambda m, t: m.probability("age > 40 and colour = 'red' or visits < 3", "smoker"),
    "moments": lambda m, t: m.expect(["age", "visits"], given="risk = 'high'").to_numpy(),
    "classes": lambda m, t: m.predict_proba(t, "risk"),
    "number": lambda m, t: m.predict(t, "weight"),
    "explanation": lambda m, t: m.explain(t).log_value,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_federated_equals_collected(question: str) -> None:
    model = mixed()
    rows = fc.Table(mixed_table().schema, gaps())
    rows = rows.select(model.schema_.names)
    found = QUESTIONS[question](model, rows)
    expected = QUESTIONS[question](model.collect(), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_draws_and_files(tmp_path: Any) -> None:
    model = mixed()
    drawn = model.sample(200, random_state=0)
    assert list(drawn.columns) == list(model.schema_.names)
    assert model.score(drawn) == pytest.approx(model.lower_bound_, abs=1.5)
    model.save(tmp_path / "mixture.fc")
    assert fc.load(tmp_path / "mixture.fc").score(drawn) == pytest.approx(model.score(drawn))


# ---------------------------------------------------------------------- mixed leaves


def test_leaves_follow_kinds() -> None:
    model = mixed()
    families = {
        n: [leaf.family for leaf in c.leaves()]
        for v in model.views_.values()
        for n, (c, _) in v.parameters.circuits.items()
    }
    assert families["north/0"] == ["gaussian", "categorical"]
    assert families["south/0"] == ["poisson", "bernoulli"]
    assert np.diff(model.lower_bounds_).min() > -1e-4  # smoothed frequencies
    rows = mixed_table()
    assert model.score(rows.select(model.schema_.names)) == pytest.approx(model.lower_bound_)


def test_leaves_by_column() -> None:
    model = mixed(leaves={"age": "gamma", "visits": "count_histogram"})
    _, parameters = model.views_["north"].parameters.circuits["north/0"]
    assert set(parameters["leaf age"]) == {"shape", "rate"}
    assert np.isfinite(model.lower_bound_)


def test_mixed_leaves_equal_a_mixture_of_products() -> None:
    """The same columns at one party or at three: leaves without covariance do not care."""
    table = mixed_table().select(["visits", "colour", "smoker", "risk"])
    parts = {n: table.select([c]) for n, c in zip(NAMES, table.names, strict=True)}
    settings: dict[str, Any] = {"max_iter": 5, "tol": 0.0, "random_state": 1}
    apart = quiet(VerticalGaussianMixture(3, **settings), fc.Federation(parts))
    whole = quiet(VerticalGaussianMixture(3, **settings), fc.Federation({"all": table}))
    np.testing.assert_allclose(apart.lower_bounds_, whole.lower_bounds_, atol=1e-10)
    np.testing.assert_allclose(apart.score_samples(table), whole.score_samples(table), atol=1e-9)

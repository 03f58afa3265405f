"""Estimators in the hands of scikit-learn: its own checks, and what its users do."""

from __future__ import annotations

import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedcircuits as fc
from fedcircuits.errors import ParameterError, QueryError

X, Y = load_iris(return_X_y=True, as_frame=True)
RNG = np.random.default_rng(0)
GAPS = X.mask(RNG.random(X.shape) < 0.2)
MIXED = GAPS.assign(size=np.where(X["sepal length (cm)"] > 6, "large", "small"))

OWN_WORDS = "refused with an error of ours, in other words"
NOT_FOR_DENSITIES = {
    "check_n_features_in_after_fitting": "arrays may come with or without the target's column",
    "check_sample_weights_not_an_array": OWN_WORDS,  # X of an unknown class
    "check_complex_data": OWN_WORDS,
    "check_estimators_empty_data_messages": OWN_WORDS,
    "check_estimator_sparse_array": OWN_WORDS,
    "check_estimator_sparse_matrix": OWN_WORDS,
    "check_sample_weight_equivalence_on_sparse_data": OWN_WORDS,  # of scikit-learn 1.6
    "check_fit2d_predict1d": OWN_WORDS,
    "check_dict_unchanged": "the program that answers is made with the first question and kept",
}
STARTS = {
    "check_sample_weight_equivalence_on_dense_data": "EM starts from clusters of rows, not weights",
    "check_parameters_default_constructible": "the default of ``summation`` is an object",
}


def passes(estimator: BaseEstimator, failing: dict[str, str]) -> None:
    """All checks but those, which must fail if there are such: else they are to be taken off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tables made to be odd
        found = check_estimator(estimator, expected_failed_checks=failing, on_fail=None)
    failed = {f["check_name"]: str(f["exception"])[:300] for f in found if f["status"] == "failed"}
    assert failed == {}
    expected = {f["check_name"] for f in found} & set(failing)
    assert {f["check_name"] for f in found if f["status"] == "xfail"} == expected


@pytest.mark.parametrize(
    "estimator", [fc.CircuitClassifier(), fc.CircuitRegressor(), fc.CircuitImputer()]
)
def test_the_checks_of_scikit_learn(estimator: BaseEstimator) -> None:
    passes(estimator, {})


@pytest.mark.parametrize(
    "estimator", [fc.MixtureOfProducts(2), fc.HiddenChowLiuTree(units=2, epochs=2)]
)
def test_its_checks_of_densities(estimator: BaseEstimator) -> None:
    passes(estimator, NOT_FOR_DENSITIES | STARTS)


def test_its_checks_of_learned_structures() -> None:
    passes(fc.LearnSPN(), NOT_FOR_DENSITIES)


def test_classifiers_in_a_search() -> None:
    learner = fc.MixtureOfProducts(random_state=0)
    search = GridSearchCV(
        fc.CircuitClassifier(learner), {"model__components": [1, 6]}, cv=3, error_score="raise"
    ).fit(MIXED, Y)
    assert search.best_params_ == {"model__components": 6} and search.best_score_ > 0.8
    best = search.best_estimator_
    assert list(best.classes_) == [0, 1, 2] and best.model_.target_ == best.target_ == "target"
    assert best.model_.probability("target = 2", given="size = large") > 0.3
    assert clone(best).get_params()["model__components"] == 6 and not hasattr(clone(best), "model_")
    assert learner.target is None and not hasattr(learner, "circuit_"), "learners are copied"


def test_densities_in_a_search() -> None:
    folds = KFold(3, shuffle=True, random_state=0)
    grid = {"components": [1, 4]}
    search = GridSearchCV(fc.MixtureOfProducts(random_state=0), grid, cv=folds).fit(X)
    assert search.best_params_ == {"components": 4}
    assert cross_val_score(fc.LearnSPN(random_state=0), X, Y, cv=folds).min() > 0.8


def test_gaps_are_filled_for_others() -> None:
    steps = fc.CircuitImputer(random_state=0), StandardScaler(), LogisticRegression()
    pipeline = make_pipeline(*steps).set_output(transform="pandas").fit(GAPS, Y)
    assert pipeline.score(GAPS, Y) > 0.8
    filled = pipeline[0].transform(GAPS)
    assert list(filled.columns) == list(X.columns) and (filled.index == X.index).all()
    seen = GAPS.notna().to_numpy()
    assert (filled.to_numpy()[seen] == X.to_numpy()[seen]).all()
    error, plain = (np.abs(f - X).to_numpy()[~seen].mean() for f in (filled, X * 0 + X.mean()))
    assert error < 0.6 * plain
    as_array = fc.CircuitImputer(random_state=0).fit(GAPS.to_numpy()).transform(GAPS.to_numpy())
    assert isinstance(as_array, np.ndarray) and not np.isnan(as_array).any()


@pytest.mark.parametrize("strategy", ["mean", "mpe", "sample"])
def test_ways_to_fill(strategy: str) -> None:
    holes = MIXED.astype({"size": object}).mask(RNG.random(MIXED.shape) < 0.1)
    imputer = fc.CircuitImputer(strategy=strategy, random_state=0).fit(holes)  # type: ignore[arg-type]
    filled = imputer.transform(holes)
    assert not filled.isna().any().any() and set(filled["size"]) == {"large", "small"}
    assert filled.equals(imputer.transform(holes)), "one seed, one answer"


def test_several_completions_differ_as_much_as_is_unknown() -> None:
    imputer = fc.CircuitImputer(random_state=0).fit(GAPS)
    drawn = np.stack([frame.to_numpy() for frame in imputer.multiple(GAPS, 20)])
    gaps = GAPS.isna().to_numpy()
    assert ((np.ptp(drawn, 0) > 0) == gaps).all()
    inside = (drawn.min(0) <= X.to_numpy()) & (X.to_numpy() <= drawn.max(0))
    assert inside[gaps].mean() > 0.8


def test_models_that_have_learned_are_used_as_they_are() -> None:
    rows = fc.Table.of(X.assign(kind=Y.map({0: "a", 1: "b", 2: "c"})))
    federation = fc.split(rows, 2, by="columns", target="kind", seed=0)
    model = fc.FedPC(target="kind", random_state=0).fit(federation)
    labels = rows.column("kind")
    classifier = make_pipeline(fc.CircuitClassifier(model)).fit(X, labels)
    assert (classifier.predict(X) == model.predict(X)).all() and classifier[-1].model_ is model
    frozen = fc.CircuitClassifier(FrozenEstimator(model.collect()))
    assert cross_val_score(frozen, X, labels, cv=3).mean() > 0.8
    with pytest.raises(QueryError, match="and y has 'd'"):
        fc.CircuitClassifier(model).fit(X, ["d", "a"] * 75)
    with pytest.raises(NotFittedError):
        fc.CircuitClassifier(fc.FedPC(target="kind")).fit(X, labels)
    with pytest.raises(ParameterError, match="model must be a learner"):
        fc.CircuitClassifier(LogisticRegression()).fit(X, labels)


def test_fitted_models_are_kept_by_joblib(tmp_path: Path) -> None:
    for name, model in {
        "density": fc.MixtureOfProducts(2, random_state=0).fit(MIXED, Y),
        "classifier": fc.CircuitClassifier(random_state=0).fit(MIXED, Y),
    }.items():
        before = model.predict_proba(MIXED)
        joblib.dump(model, tmp_path / name)
        assert (joblib.load(tmp_path / name).predict_proba(MIXED) == before).all()


def test_a_regressor_says_how_sure_it_is() -> None:
    inputs, y = X.iloc[:, :3], X.iloc[:, 3]
    model = fc.CircuitRegressor(random_state=0).fit(inputs, y, sample_weight=np.ones(len(y)))
    mean, deviation = model.predict(inputs, return_std=True)
    assert model.score(inputs, y) > 0.85 and (deviation > 0).all()
    assert 0.5 < (np.abs(mean - y) < deviation).mean() < 0.95
    assert isinstance(inputs, pd.DataFrame) and list(model.feature_names_in_) == list(inputs)

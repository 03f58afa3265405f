"""Simple baselines trained on the pooled training rows.

    independent columns    the product of the marginals
    most frequent class, or the mean
    logistic or ridge regression, and gradient boosting, of scikit-learn

Features of the regressions: numbers are standardised and missing ones replaced by the median,
with an indicator; classes are one-hot, with a level for missing values. All of that is learned
from training rows only. Gradient boosting takes numbers, codes and missing values directly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedcircuits.circuits.graph.family import Array
from fedcircuits.estimators.mixture import MixtureOfProducts
from fedcircuits.reports.measures import Forecast
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

MOST_CODES = 255  # that gradient boosting takes as categories


class PlainPredictor(Protocol):
    """The interface of scikit-learn that baselines need."""

    classes_: Array

    def fit(self, X: Array, y: Array) -> object: ...

    def predict(self, X: Array) -> Array: ...

    def predict_proba(self, X: Array) -> Array: ...


def independent(train: Table) -> MixtureOfProducts:
    """The product of the marginals of all columns."""
    return MixtureOfProducts(1, random_state=0).fit(train)


def constant(train: Array, rows: int, target: Variable) -> Forecast:
    """The most frequent class with the frequencies of all, or the mean, for every row."""
    if not target.size:
        return Forecast(np.full(rows, train.mean()))
    shares = np.bincount(train.astype(np.int64), minlength=target.size) / len(train)
    return Forecast(np.full(rows, float(shares.argmax())), np.tile(shares, (rows, 1)))


def regression(features: list[Variable], target: Variable) -> PlainPredictor:
    """Logistic regression of classes, ridge regression of numbers."""
    numbers = [i for i, v in enumerate(features) if not v.size]
    classes = [i for i, v in enumerate(features) if v.size]
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    prepared = ColumnTransformer([
        ("numbers", make_pipeline(filled, StandardScaler()), numbers),
        ("classes", OneHotEncoder(handle_unknown="ignore"), classes),
    ])  # fmt: skip
    last = LogisticRegression(max_iter=1000) if target.size else Ridge()
    pipeline: PlainPredictor = make_pipeline(prepared, last)
    return pipeline


def boosting(features: list[Variable], target: Variable) -> PlainPredictor:
    """Gradient boosting with scikit-learn's default settings."""
    codes = [0 < v.size <= MOST_CODES for v in features]
    kind = HistGradientBoostingClassifier if target.size else HistGradientBoostingRegressor
    estimator: PlainPredictor = kind(categorical_features=codes, random_state=0)
    return estimator


PREDICTORS: dict[str, Callable[[list[Variable], Variable], PlainPredictor]] = {
    "regression": regression,
    "gradient boosting": boosting,
}


def predicted(kind: str, train: Table, test: Table, target: Variable) -> Forecast | None:
    """The forecast of a baseline; None if training rows have only one class, or no other column."""
    at = train.schema.index(target.name)
    features = [i for i in range(len(train.schema)) if i != at and _known(train, i)]
    known = ~np.isnan(train.values[:, at])
    truth = train.values[known, at]
    if not features or (target.size and len(np.unique(truth)) < 2):
        return None
    model = PREDICTORS[kind]([train.schema.variables[i] for i in features], target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train.values[known][:, features], truth)
    x = test.values[:, features]
    if not target.size:
        return Forecast(np.asarray(model.predict(x), np.float64))
    p = np.zeros((len(x), target.size))
    p[:, model.classes_.astype(np.int64)] = model.predict_proba(x)
    return Forecast(np.asarray(p.argmax(axis=1), np.float64), p)


def name_of(kind: str, target: Variable) -> str:
    if kind != "regression":
        return kind
    return "logistic regression" if target.size else "ridge regression"


def _known(table: Table, column: int) -> bool:
    return not np.isnan(table.values[:, column]).all()

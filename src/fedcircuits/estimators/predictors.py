"""Circuits as classifiers and regressors of scikit-learn.

``fit(X, y)`` adds y as a column to those of X and learns their joint distribution; predictions are
conditionals of it. Rows may therefore have missing values, in training and in prediction.
``model_`` is the joint distribution, which supports all queries.

Arrays are numeric with real columns. The columns of a DataFrame have the kinds inferred by
``Table.of``, including categories, and need no encoding.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.learner import Learner
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.targets import named, with_target
from fedcircuits.tables.frames import columns_of, is_foreign
from fedcircuits.tables.table import Table

Values = npt.NDArray[np.generic]


def checked(estimator: BaseEstimator, X: object, reset: bool) -> pd.DataFrame | Array:
    """X unchanged if it is a frame, else as a numeric array. With ``reset`` its columns are
    recorded; otherwise they must be those of ``fit``."""
    if isinstance(X, Table):
        X = X.to_pandas()
    if is_foreign(X):
        X = pd.DataFrame(columns_of(X))
    if isinstance(X, pd.DataFrame) and len(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X
    rows = validate_data(
        estimator, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan",
        ensure_min_samples=2 if reset else 1,
    )  # fmt: skip
    return np.asarray(rows)


def as_table(X: pd.DataFrame | Array) -> Table:
    """X as a table; columns of an array are real."""
    if isinstance(X, pd.DataFrame):
        return Table.of(X)
    names = [f"x{i}" for i in range(X.shape[1])]
    return Table.of(X, names=names, kinds=dict.fromkeys(names, "real"))


def frozen(model: object) -> Model | None:
    """The fitted model if ``model`` is one to be used unchanged; None for a learner."""
    inner = getattr(model, "estimator", None) if _is_frozen(model) else model
    if isinstance(inner, Model) and (_is_frozen(model) or not isinstance(inner, Learner)):
        inner._check_fitted()
        return inner
    return None


def _is_frozen(model: object) -> bool:
    return type(model).__name__ == "FrozenEstimator"


def learner_of(model: object, seed: int | None, target: str | None = None) -> Learner:
    """A copy of the learner with the target, and with the seed if it has none."""
    learner = LearnSPN() if model is None else clone(model)
    if not isinstance(learner, Learner):
        raise ParameterError(
            "model must be a learner such as LearnSPN(), or a fitted model, got "
            f"{type(model).__name__}"
        )
    if learner.random_state is None:
        learner.set_params(random_state=seed)
    return learner.set_params(target=target)  # type: ignore[no-any-return]


class CircuitPredictor(BaseEstimator):  # type: ignore[misc]
    """Base class of ``CircuitClassifier`` and ``CircuitRegressor``."""

    model_: Model
    target_: str  # the name of y among the columns of ``model_``

    def __init__(
        self, model: object = None, *, target: str | None = None, random_state: int | None = None
    ) -> None:
        self.model = model
        self.target = target
        self.random_state = random_state

    def _fit(
        self, X: object, y: Values, sample_weight: npt.ArrayLike | None, **stated: Any
    ) -> None:
        rows = checked(self, X, reset=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
        if (ready := frozen(self.model)) is not None:
            self.model_, self.target_ = ready, ready._target(self.target)
            ready._values(rows[:1], ignore=self.target_)  # an error if its columns are others
            return
        table, self.target_ = with_target(as_table(rows), y, self.target, **stated)
        learner = learner_of(self.model, self.random_state, self.target_)
        self.model_ = learner.fit(table, sample_weight=sample_weight)

    def _rows(self, X: object) -> pd.DataFrame | Array:
        check_is_fitted(self, "model_")
        return checked(self, X, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


class CircuitClassifier(ClassifierMixin, CircuitPredictor):  # type: ignore[misc]
    """A classifier by P(class | row), for ``Pipeline``, ``GridSearchCV`` and the like.

    Parameters
    ----------
    model : learner or fitted model, default=None
        The learner of the joint distribution of X and y; None is ``LearnSPN()``. A fitted model
        (federated, loaded, or ``FrozenEstimator(model)``) is used unchanged, and ``fit`` checks
        that it matches X and y.
    target : str or None, default=None
        The name of y in the model; by default the name of the Series, or "target", or the target
        of a fitted model.
    random_state : int or None, default=None
        The seed, if the learner has none.

    Attributes
    ----------
    classes_ : array
        The classes, in the order of ``predict_proba``.
    model_ : Model
        The joint distribution of X and y.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> bool(cross_val_score(CircuitClassifier(random_state=0), X, y, cv=3).mean() > 0.9)
    True
    """

    def fit(self, X: object, y: object, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn P(X, y), or check that a fitted model matches X and y."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        name, labels = named(y), column_or_1d(y, warn=True)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError("y has one class only: expected at least two classes")
        if frozen(self.model) is None:
            stated = {"kind": "category", "categories": self.classes_.tolist()}
            self._fit(X, pd.Series(labels, name=name), sample_weight, **stated)
            return self
        self._fit(X, labels, sample_weight)
        self.classes_ = np.asarray(self.model_.classes(self.target_))
        if unknown := sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str):
            raise QueryError(
                f"the model knows {', '.join(map(repr, self.classes_.tolist()))} as classes of "
                f"{self.target_!r}, and y has {unknown[0]!r}"
            )
        return self

    def predict_proba(self, X: object) -> Array:
        """P(class | row), (rows, classes)."""
        rows = self._rows(X)
        return self.model_.predict_proba(rows, self.target_)

    def predict_log_proba(self, X: object) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: object) -> Values:
        """The most probable class of every row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


class CircuitRegressor(RegressorMixin, CircuitPredictor):  # type: ignore[misc]
    """A regressor by E[y | row], with standard deviations on request.

    Parameters
    ----------
    model, target, random_state
        See ``CircuitClassifier``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = CircuitRegressor(random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    >>> mean, deviation = model.predict(X[300:], return_std=True)
    """

    def fit(self, X: object, y: object, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn P(X, y), or check that a fitted model matches X and y."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        name, numbers = named(y), column_or_1d(y, dtype=np.float64, warn=True)
        if not np.isfinite(numbers).all():
            raise ValueError("y must be finite, got NaN or infinity")
        self._fit(X, pd.Series(numbers, name=name), sample_weight, kind="real")
        return self

    def predict(self, X: object, return_std: bool = False) -> Array | tuple[Array, Array]:
        """E[y | row], with ``return_std`` also the standard deviation."""
        rows = self._rows(X)
        means = np.asarray(self.model_.predict(rows, self.target_), dtype=np.float64)
        if not return_std:
            return means
        values = self.model_._values(rows, ignore=self.target_)
        return means, np.sqrt(self.model_._distribution.moments(values, self.target_)[1])

    def score(self, X: object, y: object, sample_weight: npt.ArrayLike | None = None) -> float:
        """R² of the predictions: 1 is perfect, 0 is no better than the mean of y."""
        return float(super().score(X, y, sample_weight))

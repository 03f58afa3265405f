"""Imputation from the joint distribution of all columns, single or multiple.

strategy="mean"    the conditional mean of reals and counts, the most probable value of categories
                   and booleans, for each missing value separately
strategy="mpe"     the most probable completion of the whole row
strategy="sample"  a draw from the conditional distribution, which preserves variance; several draws
                   (``multiple``) show how much an analysis depends on the missing values
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fedcircuits.arguments import SEED, Choice, Declared, Whole, check_arguments
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import QueryError
from fedcircuits.estimators.model import Model
from fedcircuits.estimators.predictors import as_table, checked, frozen, learner_of
from fedcircuits.estimators.questions import answered_like
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

Filled: TypeAlias = pd.DataFrame | npt.NDArray[np.generic]
Filling = Literal["mpe", "mean", "mode", "sample"]
CANDIDATES = 50  # samples, of which the densest is the mode of a number


class CircuitImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Imputes missing values from a joint distribution of the columns.

    Parameters
    ----------
    model : learner or fitted model, default=None
        The learner of the distribution from rows with missing values; None is ``LearnSPN()``. A
        fitted model is used unchanged (see ``CircuitClassifier``).
    strategy : {"mean", "mpe", "sample"}, default="mean"
        How ``transform`` imputes: by means and most probable values, by the most probable
        completion of the row, or by a draw.
    random_state : int or None, default=None
        The seed of draws, and of the learner if it has none.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> X.iloc[::3, 0] = np.nan
    >>> imputer = CircuitImputer(random_state=0).fit(X)
    >>> int(imputer.transform(X).isna().sum().sum())
    0
    >>> len(imputer.multiple(X, 5))
    5
    """

    allowed: ClassVar[Declared] = {
        "strategy": Choice("mean", "mpe", "sample"), "random_state": SEED,
    }  # fmt: skip
    model_: Model

    def __init__(
        self,
        model: object = None,
        *,
        strategy: Literal["mean", "mpe", "sample"] = "mean",
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.strategy = strategy
        self.random_state = random_state

    def fit(self, X: object, y: object = None, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn P(X) from rows that may have missing values. y is ignored: imputed values must not
        depend on what is later predicted from them."""
        check_arguments(self)
        rows = checked(self, X, reset=True)
        if (ready := frozen(self.model)) is not None:
            ready._values(rows[:1])
            self.model_ = ready
            return self
        learner = learner_of(self.model, self.random_state)
        self.model_ = learner.fit(as_table(rows), sample_weight=sample_weight)
        return self

    def transform(self, X: object) -> Filled:
        """X with missing values imputed, in the type of X."""
        rng = np.random.default_rng(self.random_state)
        return self._filled(X, rng)

    def multiple(self, X: object, number: int = 5) -> list[Filled]:
        """Multiple imputations of X by independent draws: analyse each, then combine."""
        Whole(1).check("number", number, QueryError)
        seeds = np.random.default_rng(self.random_state).spawn(number)
        return [self._filled(X, rng, "sample") for rng in seeds]

    def _filled(
        self, X: object, rng: np.random.Generator, strategy: Filling | None = None
    ) -> Filled:
        check_is_fitted(self, "model_")
        rows = checked(self, X, reset=False)
        x = self.model_._values(rows)
        done = completed(self.model_, x, strategy or self.strategy, rng)
        frame = Table(self.model_.schema_, done).to_pandas()
        if not isinstance(rows, pd.DataFrame):
            return frame.to_numpy(dtype=np.float64)
        filled = rows.copy()
        for name in rows.columns:
            if str(name) in self.model_.schema_ and (gaps := rows[name].isna()).any():
                whole = pd.Series(frame[str(name)].to_numpy(), rows.index)
                filled[name] = rows[name].where(~gaps, whole)
        return answered_like(X, filled)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = True
        return tags


def completed(model: Model, x: Array, by: Filling, rng: np.random.Generator) -> Array:
    """x (rows, variables) with missing values imputed in a way of reports/imputation.py."""
    if by == "mpe":
        return model._distribution.mpe(x).values
    if by == "sample":
        return model._distribution.sample(x, rng)
    done = x.copy()
    for at, variable in enumerate(model.schema_):
        gaps = np.flatnonzero(np.isnan(x[:, at]))
        if len(gaps):
            done[gaps, at] = _one_column(model, x[gaps], variable, by, rng)
    return done


def _one_column(
    model: Model, x: Array, variable: Variable, by: Filling, rng: np.random.Generator
) -> Array:
    """One variable (rows,) of rows that lack it; means of counts are rounded to counts."""
    asked = model._distribution
    if variable.size:
        return np.asarray(asked.posterior(x, variable.name).argmax(axis=1), np.float64)
    if by == "mean":
        means = asked.moments(x, variable.name)[0]
        return np.rint(means) if variable.kind == "count" else means
    at = model.schema_.index(variable.name)
    rows = np.repeat(x, CANDIDATES, axis=0)
    rows[:, at] = drawn = asked.sample(rows, rng)[:, at]
    logs = asked.log_likelihood(rows).reshape(len(x), CANDIDATES)
    best = drawn.reshape(len(x), CANDIDATES)[np.arange(len(x)), logs.argmax(axis=1)]
    return np.asarray(best, np.float64)

"""Encoders of other libraries: any object with ``encode``, a torch module, a transformer.

They give representations. What such an owner alone would predict, which baselines and pictures of
conflict ask for, is a logistic regression (of a number: ridge regression) on its representation.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

from fedcircuits.circuits.family import Array
from fedcircuits.circuits.schema import Variable
from fedcircuits.errors import ParameterError
from fedcircuits.learning.encoder_inputs import Reading
from fedcircuits.learning.table import Table


class ForeignEncoder(BaseEstimator):  # type: ignore[misc]
    """A model of another library: ``encode`` of a table, a torch module, or ``transform``.

    A module and a transformer get rows as arrays: (rows, steps, channels) of a table whose only
    columns are series, for a module, else (rows, inputs); both standardised. A module is taken as
    it is and never trained; a transformer is fitted, with labels if there are.

    >>> from sklearn.decomposition import PCA
    >>> from fedcircuits import datasets
    >>> table = datasets.load("breast_cancer")
    >>> ForeignEncoder(PCA(3)).fit(table, "diagnosis").encode(table).shape
    (569, 3)
    """

    target_: Variable | None

    def __init__(self, model: object) -> None:
        self.model = model

    def fit(self, X: Table, target: str | None = None) -> Self:
        others = X.select(n for n in (*X.names, *X.series) if n != target)
        self.model_: Any = self.model
        if not hasattr(self.model, "encode"):
            in_steps = is_module(self.model) and bool(others.series) and not len(others.schema)
            self.reading_ = Reading.of(others, None, in_steps)
        y = np.full(len(X), np.nan)
        if target is not None and target in X.schema:
            y = X.values[:, X.schema.index(target)]
        if hasattr(self.model, "encode"):
            if callable(getattr(self.model, "fit", None)):
                self.model_ = deepcopy(self.model)
                self.model_.fit(X, target)
        elif not is_module(self.model):
            self.model_ = self._fitted_transformer(others, y)
        self.target_ = None if np.isnan(y).all() else X.schema[str(target)]
        if self.target_ is not None:
            self._learn_to_predict(others, y)
        return self

    def _fitted_transformer(self, X: Table, y: Array) -> object:
        x, known = self.reading_.read(X)
        found: Any = clone(self.model)
        if np.isnan(y).all():
            return found.fit(x[known])
        known &= ~np.isnan(y)
        return found.fit(x[known], y[known])

    def _learn_to_predict(self, X: Table, y: Array) -> None:
        h = self.encode(X)
        known = ~np.isnan(h).any(axis=1) & ~np.isnan(y)
        self._mean = h[known].mean(axis=0)
        assert self.target_ is not None
        codes = np.unique(y[known])
        rule = LogisticRegression(max_iter=500) if self.target_.size and len(codes) > 1 else Ridge()
        self._rule = rule.fit(h[known], y[known])

    def encode(self, X: Table) -> Array:
        if not hasattr(self, "model_"):
            raise NotFittedError("this encoder has learned nothing yet: call fit")
        name = type(self.model).__name__
        if hasattr(self.model_, "encode"):
            return _checked(self.model_.encode(X), len(X), name)
        x, known = self.reading_.read(X)
        part = _checked(self._transformed(x[..., :-1] if x.ndim == 3 else x), len(X), name)
        return np.where(known[:, None], part, np.nan)

    def _transformed(self, x: npt.NDArray[np.float32]) -> npt.ArrayLike:
        if not is_module(self.model_):
            return cast(npt.ArrayLike, self.model_.transform(x))
        with torch.no_grad():
            found = cast(Callable[[torch.Tensor], Any], self.model_)(torch.from_numpy(x))
        first = found[0] if isinstance(found, tuple) else found
        return cast(npt.ArrayLike, first.detach().cpu().numpy())

    def predict_vector(self, X: Table) -> Array:
        """(rows, classes) probabilities or (rows, 1) numbers; NaN where nothing is known."""
        target = getattr(self, "target_", None)
        if target is None:
            raise ParameterError("this encoder learned without labels: it makes no predictions")
        h = self.encode(X)
        known = np.asarray(~np.isnan(h).any(axis=1))
        filled = np.where(known[:, None], h, self._mean)
        if isinstance(self._rule, LogisticRegression):
            found = np.zeros((len(h), target.size))
            found[:, self._rule.classes_.astype(np.int64)] = self._rule.predict_proba(filled)
        elif target.size:  # one class alone
            found = np.eye(target.size)[self._rule.predict(filled).round().astype(np.int64)]
        else:
            found = self._rule.predict(filled)[:, None]
        return np.where(known[:, None], found, np.nan)


def is_module(model: object) -> bool:
    return isinstance(model, torch.nn.Module)


def _checked(found: npt.ArrayLike, rows: int, name: str) -> Array:
    array = np.asarray(found, dtype=np.float64)
    array = array.reshape(rows, -1) if array.ndim > 2 and len(array) == rows else array
    if array.ndim != 2 or len(array) != rows or np.isinf(array).any():
        raise ParameterError(
            f"{name}: expected a vector of finite numbers for each of {rows} rows, got an array of "
            f"the shape {array.shape}"
        )
    return array

"""Encoders of other libraries: what an encoder must provide, and adapters for models.

``Frozen`` is an encoder that has learned already. ``ForeignEncoder`` is a model of another library:
any object with ``encode``, a torch module, a transformer. Such models give representations. The
owner's own prediction, which baselines and plots of conflict use, is a logistic regression (for a
number, ridge regression) on its representation. Modules run in evaluation mode and in the precision
of their weights. If such a model fails, the error names the model and the step; its own text, which
may contain data, stays with the owner.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FedcircuitsError, ParameterError, TableError
from fedcircuits.learning.encoders.inputs import InputReading
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table


@runtime_checkable
class Encoder(Protocol):
    """What an owner needs: rows to vectors. ``fit(table, target)`` is called if there is one."""

    def encode(self, X: Table, /) -> npt.ArrayLike:
        """(rows, width)"""
        ...


class Frozen:
    """An encoder that has learned already and is used as it is: ``Frozen(encoder)``.

    >>> from fedcircuits import TabularEncoder, datasets
    >>> table = datasets.load("breast_cancer")
    >>> Frozen(TabularEncoder(width=4, epochs=1).fit(table, "diagnosis")).encode(table).shape
    (569, 4)
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def encode(self, X: Table) -> Array:
        try:
            return np.asarray(self.encoder.encode(X), dtype=np.float64)
        except NotFittedError:
            name = type(self.encoder).__name__
            raise ParameterError(
                f"Frozen({name}) uses an encoder as it is, and this one is not fitted: fit it "
                f"first, or give the {name} without Frozen"
            ) from None

    def predict_vector(self, X: Table) -> Array:
        return np.asarray(self.encoder.predict_vector(X))  # type: ignore[attr-defined]

    @property
    def target_(self) -> Variable | None:
        return getattr(self.encoder, "target_", None)

    @property
    def reading_(self) -> InputReading | None:
        return getattr(self.encoder, "reading_", None)


class LabelsOnly:
    """The encoder of a party that only holds the target: labels to send, nothing to encode."""

    target_ = None

    def encode(self, X: Table) -> Array:
        return np.zeros((len(X), 0))

    predict_vector = encode


@dataclass(frozen=True, slots=True, eq=False)
class LinearRule:
    """A logistic regression, or one of numbers, that has learned."""

    coefficients: Array  # (outputs, width); two classes have one output
    intercept: Array  # (outputs,)
    classes: Array | None = None  # codes of its classes; None: a number, or a single class

    @classmethod
    def of(cls, rule: LogisticRegression | Ridge) -> Self:
        classes = getattr(rule, "classes_", None)
        codes = None if classes is None else np.asarray(classes, np.float64)
        return cls(np.atleast_2d(rule.coef_), np.atleast_1d(rule.intercept_), codes)

    def predictions(self, h: Array, size: int) -> Array:
        """(rows, classes) probabilities, or (rows, 1) numbers."""
        z = h @ self.coefficients.T + self.intercept
        if not size:
            return np.asarray(z)
        if self.classes is None:
            return np.asarray(np.eye(size)[z[:, 0].round().astype(np.int64)])
        z = np.concatenate([np.zeros_like(z), z], axis=1) if len(self.classes) == 2 else z
        likely = np.exp(z - z.max(axis=1, keepdims=True))
        predictions = np.zeros((len(h), size))
        predictions[:, self.classes.astype(np.int64)] = likely / likely.sum(axis=1, keepdims=True)
        return predictions


class RegressingEncoder(BaseEstimator):  # type: ignore[misc]
    """An encoder whose owner predicts by a regression on representations."""

    target_: Variable | None
    _mean: Array  # (width,): mean of representations, used for missing ones
    _rule: LinearRule

    @property
    def _model_name(self) -> str:
        return type(self).__name__

    def encode(self, X: Table) -> Array:
        raise NotImplementedError

    def _set_target(self, X: Table, target: str | None) -> None:
        """Learn to predict, where some row has a label."""
        y = labels(X, target)
        self.target_ = None if np.isnan(y).all() else X.schema[str(target)]
        if self.target_ is not None:
            self._learn_to_predict(X, y)

    def _learn_to_predict(self, X: Table, y: Array) -> None:
        h = self.encode(X)
        known = ~np.isnan(h).any(axis=1) & ~np.isnan(y)
        if not known.any():
            raise ParameterError(
                f"{self._model_name} returns nothing for any of the {len(X)} rows with a "
                "value to predict: expected finite numbers, got NaN"
            )
        self._mean = h[known].mean(axis=0)
        assert self.target_ is not None
        codes = np.unique(y[known])
        some = len(codes) > 1
        rule = LogisticRegression(max_iter=500) if self.target_.size and some else Ridge()
        self._rule = LinearRule.of(_learned(rule, h[known], y[known]))

    def predict_vector(self, X: Table) -> Array:
        """(rows, classes) probabilities or (rows, 1) numbers; NaN where nothing is known."""
        target = getattr(self, "target_", None)
        if target is None:
            raise ParameterError("this encoder learned without labels: it makes no predictions")
        h = self.encode(X)
        known = np.asarray(~np.isnan(h).any(axis=1))
        filled = np.where(known[:, None], h, self._mean)
        predictions = self._rule.predictions(filled, target.size)
        return np.where(known[:, None], predictions, np.nan)


class ForeignEncoder(RegressingEncoder):
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

    def __init__(self, model: object) -> None:
        self.model = model

    @property
    def _model_name(self) -> str:
        return type(self.model).__name__

    def fit(self, X: Table, target: str | None = None) -> Self:
        others = X.select(n for n in (*X.names, *X.series) if n != target)
        self.model_: Any = self.model
        if not hasattr(self.model, "encode"):
            in_steps = is_module(self.model) and bool(others.series) and not len(others.schema)
            self.reading_ = InputReading.of(others, None, in_steps)
        y = labels(X, target)
        if hasattr(self.model, "encode"):
            if callable(getattr(self.model, "fit", None)):
                self.model_ = deepcopy(self.model)
                with _explained(f"{type(self.model).__name__}.fit(table, target)", X):
                    self.model_.fit(X, target)
        elif not is_module(self.model):
            self.model_ = self._fitted_transformer(others, y)
        self.target_ = None if np.isnan(y).all() else X.schema[str(target)]
        if self.target_ is not None:
            self._learn_to_predict(others, y)
        return self

    def _fitted_transformer(self, X: Table, y: Array) -> object:
        x, known = self.reading_.read(X)
        model: Any = clone(self.model)
        if not np.isnan(y).all():
            known &= ~np.isnan(y)
        if not known.any():
            raise TableError("there is no row to learn an encoder from: all values are missing")
        with _explained(f"{type(self.model).__name__}.fit", x[known]):
            return model.fit(x[known]) if np.isnan(y).all() else model.fit(x[known], y[known])

    def encode(self, X: Table) -> Array:
        if not hasattr(self, "model_"):
            raise NotFittedError("this encoder is not fitted yet: call fit")
        if not len(X):  # many models refuse to be asked nothing
            return np.zeros((0, len(getattr(self, "_mean", "1"))))
        name = type(self.model).__name__
        if hasattr(self.model_, "encode"):
            with _explained(f"{name}.encode(table)", X):
                return _checked(self.model_.encode(X), len(X), name)
        x, known = self.reading_.read(X)
        x = x[..., :-1] if x.ndim == 3 else x
        with _explained(name, x):
            part = _checked(self._transformed(x), len(X), name)
        return np.where(known[:, None], part, np.nan)

    def _transformed(self, x: npt.NDArray[np.float32]) -> npt.ArrayLike:
        if not is_module(self.model_):
            return cast(npt.ArrayLike, self.model_.transform(x))
        given = torch.from_numpy(np.ascontiguousarray(x))
        for weights in self.model_.parameters():
            given = given.to(weights.device, weights.dtype)
            break
        with torch.no_grad(), _evaluating(self.model_):
            output = cast(Callable[[torch.Tensor], Any], self.model_)(given)
        return cast(npt.ArrayLike, output[0] if isinstance(output, tuple) else output)


def labels(table: Table, target: str | None) -> Array:
    """The target's numbers (rows,), NaN where it is not known."""
    if target is None or target not in table.schema:
        return np.full(len(table), np.nan)
    return table.values[:, table.schema.index(target)]


def is_module(model: object) -> bool:
    return isinstance(model, torch.nn.Module)


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """A module without dropout and with its own means; afterwards as it was."""
    parts = list(module.modules())
    before = [part.training for part in parts]
    module.eval()
    try:
        yield
    finally:
        for part, was in zip(parts, before, strict=True):
            part.training = was


@contextmanager
def _explained(what: str, given: Table | npt.NDArray[np.float32]) -> Iterator[None]:
    """Whatever goes wrong inside is that model's, and said without its text."""
    try:
        yield
    except FedcircuitsError:
        raise
    except Exception as error:
        shape = f"a table of {len(given)} rows" if isinstance(given, Table) else str(given.shape)
        raise ParameterError(
            f"{what} failed on {shape} with {type(error).__name__}: try it on the owner's rows"
        ) from error


def _learned(rule: LogisticRegression | Ridge, h: Array, y: Array) -> LogisticRegression | Ridge:
    """Learned from standardised numbers, said of them as they are."""
    mean, spread = h.mean(axis=0), h.std(axis=0)
    spread = np.where(spread > 1e-9 * (np.abs(mean) + 1e-300), spread, np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rule.fit((h - mean) / spread, y)
    rule.coef_ = rule.coef_ / spread
    rule.intercept_ = rule.intercept_ - rule.coef_ @ mean
    return rule


def _checked(output: npt.ArrayLike, rows: int, name: str) -> Array:
    plain: Any = output
    plain = plain.toarray() if hasattr(plain, "toarray") else plain  # sparse
    plain = plain.detach().cpu() if isinstance(plain, torch.Tensor) else plain
    array = np.asarray(plain, dtype=np.float64)
    if array.ndim > 2 and len(array) == rows:
        array = array.reshape(rows, int(np.prod(array.shape[1:])))
    if array.ndim != 2 or len(array) != rows or not array.shape[1]:
        raise ParameterError(
            f"{name}: expected a vector of finite numbers for each of {rows} rows, got an array of "
            f"the shape {array.shape}"
        )
    if np.isinf(array).any():
        raise ParameterError(
            f"{name}: expected finite numbers, or NaN in rows that it cannot encode"
        )
    return array

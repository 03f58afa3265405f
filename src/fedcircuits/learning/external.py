"""Density estimators of other libraries: what they must provide, and which queries they answer.

Anything with ``fit(X)``, ``score_samples(X)`` (log densities of rows) and ``sample(n)`` is one:
scikit-learn's KernelDensity and GaussianMixture, a normalising flow. Such an object answers no
other queries: marginals, conditionals, probabilities of events and explanations need integrals and
maxima that it does not offer. ``Outside`` answers what is possible and refuses the rest with an
error.

A Gaussian mixture equals a circuit: a sum over components, whose leaf has one Gaussian per column
where covariances are diagonal, or a multivariate Gaussian where they are not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from typing import NoReturn, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Sum
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.circuits.questions.queryable import Explanation, possible
from fedcircuits.circuits.questions.regions import EVERYTHING, Event
from fedcircuits.errors import ParameterError, QueryError, TableError
from fedcircuits.tables.schema import Schema

NEEDED = ("fit", "score_samples", "sample")


@runtime_checkable
class DensityEstimator(Protocol):
    """What an object of another library must have to learn here."""

    def fit(self, X: Array) -> object: ...

    def score_samples(self, X: Array) -> npt.ArrayLike: ...

    def sample(self, n: int, /) -> object: ...


def learned(
    learner: object,
    values: Array,
    schema: Schema,
    weight: Array | None = None,
    random_state: int | None = None,
) -> DensityEstimator:
    """A copy of the learner that has learned from values (rows, columns)."""
    ready = _copy(learner, random_state)
    _check_columns(ready, schema)
    _check_missing(ready, values, schema)
    name = type(ready).__name__
    options = {}
    if weight is not None:
        if "sample_weight" not in _arguments(ready.fit):
            raise TableError(
                f"{name} cannot learn from weighted rows: its fit has no sample_weight; "
                "leave the weights out, or draw rows by them"
            )
        options["sample_weight"] = weight
    try:
        cast(Callable[..., object], ready.fit)(values, **options)
    except ValueError as error:
        raise TableError(f"{name} could not learn from this table: {error}") from error
    return ready


def _copy(learner: object, random_state: int | None) -> DensityEstimator:
    absent = [n for n in NEEDED if not callable(getattr(learner, n, None))]
    if isinstance(learner, type) or absent:
        what = f"the class {learner.__name__}" if isinstance(learner, type) else repr(learner)
        lacks = f", which has no {' and no '.join(absent)}" if absent else ""
        raise ParameterError(
            f"External needs an object with {', '.join(NEEDED)}, such as KernelDensity(), "
            f"got {what}{lacks}"
        )
    ready = clone(learner, safe=False)
    if random_state is not None:
        _seed(ready, random_state)
    return cast(DensityEstimator, ready)


def _seed(learner: object, random_state: int) -> None:
    """Wherever the object, or a part of it, has such a parameter."""
    if hasattr(learner, "get_params") and hasattr(learner, "set_params"):
        names = (n for n in learner.get_params() if n.split("__")[-1] == "random_state")
        learner.set_params(**dict.fromkeys(names, random_state))
    elif hasattr(learner, "random_state"):
        learner.random_state = random_state


def _can(learner: object, tag: str) -> bool:
    """Properties of the input by scikit-learn's tags: ``categorical``, ``allow_nan``."""
    tags = getattr(learner, "__sklearn_tags__", None)
    return bool(tags is not None and getattr(tags().input_tags, tag, False))


def _check_columns(learner: object, schema: Schema) -> None:
    for variable in schema:
        if variable.kind != "real" and not _can(learner, "categorical"):
            raise TableError(
                f"{type(learner).__name__} learns real columns, but {variable.name!r} is "
                f"{variable.described()}: leave it out, or if it is a measure say so, "
                f"Table.of(X, kinds={{{variable.name!r}: 'real'}})"
            )


def _check_missing(learner: object, x: Array, schema: Schema) -> None:
    missing = np.isnan(x).sum(axis=0)
    if missing.any() and not _can(learner, "allow_nan"):
        at = int(missing.argmax())
        raise TableError(
            f"{type(learner).__name__} cannot learn from rows with missing values: "
            f"{schema.names[at]!r} has {missing[at]} of {len(x)}; fill them or leave the rows out"
        )


def _arguments(function: object) -> Sequence[str]:
    try:
        return tuple(inspect.signature(cast(Callable[..., object], function)).parameters)
    except (TypeError, ValueError):  # built-in functions may have none
        return ()


# ---------------------------------------------------------------------- questions


class Outside:
    """A fitted estimator of another library, asked as a ``Distribution`` is."""

    def __init__(self, learner: DensityEstimator, schema: Schema) -> None:
        self.learner, self.schema = learner, schema

    def log_likelihood(self, x: Array) -> Array:
        if not _can(self.learner, "allow_nan"):
            self._refuse_gaps(x, "marginals")
        log_values = _numbers(self.learner.score_samples(x))
        if log_values.shape != (len(x),):
            raise QueryError(
                f"{self.name}.score_samples must give a number for each of {len(x)} rows, got an "
                f"array of the shape {log_values.shape}"
            )
        return log_values

    def log_probability(self, x: Array, event: Event = EVERYTHING) -> Array:
        if event != EVERYTHING:
            self.refuse("answer probabilities of events")
        return np.zeros(len(x)) if np.isnan(x).all() else self.log_likelihood(x)

    def log_evidence(self, x: Array, event: Event = EVERYTHING) -> Array:
        return possible(self.log_probability(x, event))

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> NoReturn:
        self.refuse(f"answer the probabilities of {variable!r} given the remaining columns")

    def moments(self, x: Array, variable: str, given: Event = EVERYTHING) -> NoReturn:
        self.refuse(f"answer the mean of {variable!r}: it gives no expectations")

    def mpe(self, x: Array) -> Explanation:
        self._refuse_gaps(x, "the most probable explanation")
        return Explanation(x, self.log_likelihood(x), True)

    def sample(self, x: Array, rng: np.random.Generator, given: Event = EVERYTHING) -> Array:
        """Rows of which nothing is known; repeatable where the object takes a seed."""
        if given != EVERYTHING or not np.isnan(x).all():
            self.refuse("draw samples given evidence")
        seed = int(rng.integers(2**31 - 1))
        source, options = self.learner, {}
        if "random_state" in _arguments(self.learner.sample):
            options["random_state"] = seed
        elif hasattr(self.learner, "random_state"):
            source = _seeded(self.learner, seed)
        drawn = cast(Callable[..., object], source.sample)(len(x), **options)
        rows = _numbers(drawn[0] if isinstance(drawn, tuple) else drawn)  # some give labels too
        if rows.shape != x.shape or not np.isfinite(rows).all():
            raise QueryError(
                f"{self.name}.sample must give finite rows of the shape {x.shape}, got {rows.shape}"
            )
        return rows

    @property
    def name(self) -> str:
        return type(self.learner).__name__

    def refuse(self, what: str) -> NoReturn:
        raise QueryError(f"{self.name} cannot {what}; it offers score_samples and sample only")

    def _refuse_gaps(self, x: Array, what: str) -> None:
        missing = np.isnan(x).any(axis=0)
        if missing.any():
            column = self.schema.names[int(missing.argmax())]
            self.refuse(f"answer {what}: NaN in column {column!r}, or no such column")


def _seeded(learner: DensityEstimator, seed: int) -> DensityEstimator:
    """The same fitted object with another seed; the one that was learned stays as it is."""
    other = copy(learner)
    other.random_state = seed  # type: ignore[attr-defined]
    return other


def _numbers(values: object) -> Array:
    """Arrays, lists and tensors as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values, dtype=np.float64)


# ---------------------------------------------------------------------- conversion


def to_circuit(learner: object, schema: Schema) -> tuple[Circuit, Parameters] | None:
    """The circuit equal to a fitted object, or None if its kind is unknown.

    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> circuit, parameters = to_circuit(GaussianMixture(2).fit(x), Schema.real(2))
    >>> len(circuit)
    2
    """
    if not isinstance(learner, GaussianMixture) or type(learner) is not GaussianMixture:
        return None  # a subclass may mean something else
    family, leaf = _components(learner, len(schema))
    components = Leaf("components", family, schema.names, len(learner.weights_))
    circuit = Circuit((components, Sum("root", ("components",))), schema)
    weight = np.array(learner.weights_ / learner.weights_.sum(), dtype=np.float64)[None]
    return circuit, Parameters({"components": leaf, "root": {WEIGHT: weight}})


def _components(mixture: GaussianMixture, width: int) -> tuple[str, Arrays]:
    mean = np.array(mixture.means_, dtype=np.float64)  # (components, width)
    covariance = np.array(mixture.covariances_, dtype=np.float64)
    kind = mixture.covariance_type
    if kind == "spherical":
        covariance = np.repeat(covariance[:, None], width, axis=1)
    if kind == "tied":
        covariance = np.repeat(covariance[None], len(mean), axis=0)
    if kind in ("full", "tied") and width == 1:
        covariance = covariance[:, :, 0]
    if covariance.ndim == 2:
        return "gaussian", {"mean": mean, "variance": covariance}
    symmetric = (covariance + covariance.swapaxes(1, 2)) / 2
    return "multivariate_gaussian", {"mean": mean, "covariance": symmetric}

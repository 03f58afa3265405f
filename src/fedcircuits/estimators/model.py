"""The API of every fitted model: queries in the user's values, in the style of scikit-learn.

A fitted model has ``circuit_`` and ``parameters_``. X may be a DataFrame, Table or array; NaN and
absent columns are summed out. ``given`` is evidence: text ("age > 40 and sex = f"), a mapping
({"age": (40, None), "sex": "f"}), or rows (a DataFrame, Table or array), with one answer per row.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import Whole
from fedcircuits.circuits.evaluation.devices import device_of
from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters, inline
from fedcircuits.circuits.questions import comparing, information
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.circuits.questions.events import Evidence, parse_evidence
from fedcircuits.circuits.questions.queryable import Explanation
from fedcircuits.circuits.questions.regions import EVERYTHING, Event, conjunction
from fedcircuits.errors import QueryError
from fedcircuits.estimators import questions
from fedcircuits.estimators.in_notebooks import ShownInNotebooks
from fedcircuits.estimators.targets import accuracy_or_r2
from fedcircuits.tables.inference import values_of
from fedcircuits.tables.schema import Scalar, Schema
from fedcircuits.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import nn

Rows: TypeAlias = pd.DataFrame | Table | npt.NDArray[np.generic]
Given: TypeAlias = str | Mapping[str, object] | Evidence | Rows | None
AnyRows = TypeVar("AnyRows", pd.DataFrame, Table, npt.NDArray[np.generic])


class Model(ShownInNotebooks, BaseEstimator):  # type: ignore[misc]
    """Base class of fitted models. Learners set ``circuit_`` and ``parameters_`` in ``fit``."""

    circuit_: Circuit
    parameters_: Parameters
    device: str = "cpu"

    # ------------------------------------------------------------------ likelihood

    def score_samples(self, X: Rows) -> Array:
        """Log-likelihood of every row; NaN and absent columns are summed out."""
        return self._distribution.log_likelihood(self._values(X))

    def score(self, X: Rows, y: object = None) -> float:
        """Mean log-likelihood per row; with y, the score of predictions of the target: accuracy
        for classes, R² for numbers."""
        if y is None:
            return float(self.score_samples(X).mean())
        name = self._target(None)
        return accuracy_or_r2(self.predict(X, name), y, classes=bool(self.schema_[name].size))

    # ------------------------------------------------------------------ questions

    def probability(
        self, event: str | Mapping[str, object] | Event, given: Given = None
    ) -> float | Array:
        """P(event | given): one number, or one per row if ``given`` is rows.

        ``model.probability("age > 40 and income = '>50K'", given="sex = female")``
        """
        event = questions.event_of(event, self.schema_)
        x, known, evidence = self._possible(given)
        joint = self._distribution.log_probability(x, conjunction(event, known))
        answers = np.exp(np.minimum(joint - evidence, 0.0))
        return answers if questions.is_rows(given) else float(answers[0])

    def expect(self, columns: str | Sequence[str], given: Given = None) -> pd.DataFrame:
        """Conditional mean and variance of real, count or boolean columns.

        The result has one line per column or, if ``given`` is rows, one line per row and two
        columns per variable. The mean of a boolean is the probability of its second value, usually
        True.
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        questions.require_numbers(names, self.schema_)
        x, known, _ = self._possible(given)
        moments = {n: self._distribution.moments(x, n, known) for n in names}
        if questions.is_rows(given):
            wide = {
                (n, what): values
                for n, pair in moments.items()
                for what, values in zip(("mean", "variance"), pair, strict=True)
            }
            table = pd.DataFrame(wide, index=questions.index_of(given))
            return questions.answered_like(given, table)
        lines = {n: [float(m[0]), float(v[0])] for n, (m, v) in moments.items()}
        return pd.DataFrame.from_dict(lines, orient="index", columns=["mean", "variance"])

    def entropy_bounds(self) -> tuple[float, float]:
        """Lower and upper bound on the entropy in nats, equal for deterministic circuits such as
        Chow–Liu trees. For real columns this is the differential entropy."""
        return information.entropy_bounds(*self._whole())

    def cross_entropy(self, other: Model) -> float:
        """Cross-entropy −E[log q] of another model q under this distribution, in nats.

        The value is exact. QueryError is raised unless q is deterministic and both circuits
        decompose the columns compatibly. It is infinite if q gives possible rows probability zero.
        """
        return comparing.cross_entropy(self._whole(), questions.model_of(other, Model)._whole())

    def kl_divergence(self, other: Model) -> float:
        """KL(this model ‖ other) in nats, under the conditions of ``cross_entropy``."""
        return comparing.divergence(self._whole(), questions.model_of(other, Model)._whole())

    def mutual_information(
        self, columns: Sequence[str] | None = None, bins: int = 8
    ) -> pd.DataFrame:
        """Mutual information of every pair of columns in nats, with entropies on the diagonal.

        Real columns and unbounded counts are discretised into ``bins`` intervals of equal
        probability, which can only lower the value.
        """
        Whole(2).check("bins", bins, QueryError)
        names = list(self.schema_.names if columns is None else columns)
        matrix = information.mutual_information(self._distribution, names, bins)
        return pd.DataFrame(matrix, index=names, columns=names)

    def unrelated(self, column: str | None = None, below: float = 1e-3) -> dict[str, float]:
        """Columns whose mutual information with a column (by default the target) is below
        ``below`` nats, with its value. It is computed from the model alone, without any rows."""
        name = self._target(column)
        others = [n for n in self.schema_.names if n != name]
        information = {n: float(self.mutual_information([name, n]).loc[name, n]) for n in others}
        return {n: value for n, value in information.items() if value < below}

    def contributions(
        self, event: str | Mapping[str, object] | Event, given: str | Mapping[str, object]
    ) -> pd.Series:
        """Shapley value of every column of the evidence for P(event | given).

        The values sum to P(event | given) − P(event).
        """
        asked = questions.event_of(event, self.schema_)
        known = parse_evidence(given, self.schema_)
        contributions = information.contributions(self._distribution, asked, known)
        return pd.Series(contributions, name="contribution")

    def _whole(self) -> tuple[Circuit, Parameters]:
        """The circuit and its parameters, if they are held locally."""
        self._check_fitted()
        if not isinstance(self._distribution, Distribution):
            raise QueryError(
                "the parts of this circuit are held by several parties: call collect() first"
            )
        return self.circuit_, self.parameters_

    def _posterior(self, target: str, given: Given) -> Array:
        """(rows, classes): P(target = class | given)."""
        x, known, _ = self._possible(given)
        return self._distribution.posterior(x, target, known)

    # ------------------------------------------------------------------ prediction

    def classes(self, target: str) -> tuple[Scalar, ...]:
        """The values of the target, one per column of ``predict_proba``."""
        return questions.classes(target, self.schema_)

    def predict_proba(self, X: Rows, target: str | None = None) -> Array:
        """P(target = class | row), shape (rows, classes), in the order of ``classes(target)``.

        Rows with probability zero under the model get the marginal class probabilities, with a
        warning. A column of the target in X is ignored.
        """
        name = self._target(target)
        self.classes(name)
        x = self._values(X, ignore=name)
        probabilities = self._distribution.posterior(x, name)
        impossible = np.asarray(np.isnan(probabilities).any(axis=1))
        if impossible.any():
            _warn_impossible(impossible, f"the overall probabilities of {name!r}")
            probabilities[impossible] = self._distribution.posterior(self._nothing(), name)
        return probabilities

    def predict_log_proba(self, X: Rows, target: str | None = None) -> Array:
        """The logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X, target)))

    def predict(self, X: Rows, target: str | None = None) -> npt.NDArray[np.generic]:
        """The most probable class of every row, or the conditional mean of a real or count.

        Rows with probability zero under the model are predicted from the marginal distribution,
        with a warning. A column of the target in X is ignored.
        """
        name = self._target(target)
        if self.schema_[name].size:
            best = self.predict_proba(X, name).argmax(axis=1)
            return values_of(self.schema_[name], best.astype(np.float64))
        means = self._distribution.moments(self._values(X, ignore=name), name)[0]
        impossible = np.asarray(np.isnan(means))
        if impossible.any():
            _warn_impossible(impossible, f"the overall mean of {name!r}")
            means[impossible] = self._distribution.moments(self._nothing(), name)[0]
        return means

    def _target(self, target: str | None) -> str:
        self._check_fitted()
        name = target if target is not None else self._predicted
        if not isinstance(name, str):
            raise QueryError(
                "name the column to predict: predict(X, target='…'), or give the model a target, "
                "in its constructor or as fit(X, y)"
            )
        self.schema_.index(name)
        return name

    @property
    def _predicted(self) -> str | None:
        """The column that is predicted by default: y of ``fit``, or ``target``."""
        target = getattr(self, "target_", None)
        return getattr(self, "target", None) if target is None else target

    # ------------------------------------------------------------------ as scikit-learn names it

    @property
    def classes_(self) -> npt.NDArray[np.generic]:
        """The classes of the target, in the order of ``predict_proba``."""
        name = self._predicted
        if name is None or not self.schema_[name].size:
            raise AttributeError(f"this {type(self).__name__} has no target of classes")
        return values_of(self.schema_[name], np.arange(self.schema_[name].size, dtype=np.float64))

    @property
    def feature_names_in_(self) -> npt.NDArray[np.generic]:
        """The columns without the target."""
        return np.array([n for n in self.schema_.names if n != self._predicted], dtype=object)

    @property
    def n_features_in_(self) -> int:
        return len(self.feature_names_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    # ------------------------------------------------------------------ completions

    def sample(
        self, n: int = 1, given: Given = None, random_state: int | None = None
    ) -> pd.DataFrame:
        """n rows drawn from p(· | given). If ``given`` is rows, n rows are drawn for each of them,
        in order, and returned as the same type of frame (pandas, polars, pyarrow)."""
        Whole(1).check("sample: n", n, QueryError)
        x, known = self._given(given)
        rng = np.random.default_rng(random_state)
        drawn = self._distribution.sample(np.repeat(x, n, axis=0), rng, known)
        return questions.answered_like(given, Table(self.schema_, drawn).to_pandas())

    def mpe(self, X: AnyRows) -> AnyRows:
        """X with missing values filled by the most probable explanation, in the type of X.

        ``explain(X)`` also says whether it is exact or the max-product approximation; a DataFrame
        says so in ``.attrs["exact"]``.
        """
        return questions.like(X, self.explain(X), self.schema_)

    def explain(self, X: Rows) -> Explanation:
        """The most probable explanation with its log-probability, and whether it is exact."""
        return self._distribution.mpe(self._values(X))

    # ------------------------------------------------------------------ files and pictures

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one .fc file, whole or not at all."""
        self._check_fitted()
        files.write(path, self.circuit_, self.parameters_, self._metadata())

    def _metadata(self) -> dict[str, object]:
        return {"estimator": type(self).__name__, "target": self._predicted}

    def plot(
        self, given: Given = None, columns: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Figure:
        """Plot the circuit, and marginals of single variables before and after ``given``.

        ``columns`` names the variables to show, by default those that ``given`` changes most;
        ``ax`` are axes to draw in, as an image; by default the plot is a figure of its own.
        """
        from fedcircuits.pictures.drawing import beside, figure_of, within
        from fedcircuits.pictures.graph import graph_drawing
        from fedcircuits.pictures.marginals import Beliefs, marginals_drawing

        self._check_fitted()
        drawing = graph_drawing(self.circuit_, self.parameters_)
        if self.circuit_.is_density:
            beliefs = Beliefs(self._distribution, *self._given(given))
            drawing = beside(drawing, marginals_drawing(beliefs, columns))
        figure = figure_of(drawing, title=type(self).__name__)
        return figure if ax is None else within(ax, figure)

    # ------------------------------------------------------------------ inside

    @property
    def schema_(self) -> Schema:
        self._check_fitted()
        return self.circuit_.schema

    def to(self, device: str) -> Self:
        """Evaluate queries on "cpu", "cuda", "cuda:1" or another torch device from now on.

        Learners with an argument ``device`` learn there too. Files and ``parameters_`` do not
        change. No GPU has been tried: docs/circuits.md says what the tests do instead.
        """
        name = str(device_of(device))
        if hasattr(self, "circuit_"):
            self._whole()
        self.device = name
        return self

    def to_module(self, double: bool = False) -> nn.Module:
        """The circuit as a torch module from rows (rows, variables) to log-densities (rows,).

        It is differentiable with respect to all parameters and to the real values of the rows. NaN
        is summed out, and categories are codes. Train it with any optimiser, alone or as part of a
        larger network; ``CircuitModel.from_module`` converts it back. ``double`` selects double
        precision, and ``module.to(device)`` moves it like any module.
        """
        import torch

        from fedcircuits.circuits.evaluation.gradient import Differentiable
        from fedcircuits.circuits.evaluation.program import CircuitProgram

        circuit, parameters = inline(*self._whole())
        dtype = torch.float64 if double else torch.float32
        return Differentiable(CircuitProgram(circuit, dtype, device_of(self.device)), parameters)

    def _check_fitted(self) -> None:
        if not hasattr(self, "circuit_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    @property
    def _distribution(self) -> Distribution:
        self._check_fitted()
        here = device_of(self.device)
        circuit, parameters, ready = self.__dict__.get("_ready", (None, None, None))
        same = circuit is self.circuit_ and parameters is self.parameters_
        if not (same and isinstance(ready, Distribution) and ready.program.device == here):
            ready = Distribution(self.circuit_, self.parameters_, device=here)
            self.__dict__["_ready"] = self.circuit_, self.parameters_, ready
        return ready

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_ready"}

    def _values(self, X: Rows, ignore: str | None = None) -> Array:
        return questions.values_of(X, self.schema_, ignore, self._predicted)

    def _given(self, given: Given) -> tuple[Array, Event]:
        """Evidence as rows of exact values, and an event over the remaining variables."""
        if questions.is_rows(given):
            return self._values(given), EVERYTHING
        evidence = given if isinstance(given, Evidence) else parse_evidence(given, self.schema_)  # type: ignore[arg-type]
        return evidence.row(self.schema_), evidence.event

    def _possible(self, given: Given) -> tuple[Array, Event, Array]:
        """The same with its log-probability (rows,); QueryError if it is minus infinity."""
        x, known = self._given(given)
        return x, known, self._distribution.log_evidence(x, known)

    def _nothing(self) -> Array:
        """A row without any known value."""
        return np.full((1, len(self.schema_)), np.nan)


def _warn_impossible(rows: npt.NDArray[np.bool_], instead: str) -> None:
    warnings.warn(
        f"{int(rows.sum())} of {len(rows)} rows have probability zero under the model (the first "
        f"is row {int(np.flatnonzero(rows)[0])}); they get {instead}",
        UserWarning,
        stacklevel=3,
    )

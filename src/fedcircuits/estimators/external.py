"""Density estimators of other libraries as learners with the API of ``Model``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import COLUMN, SEED, Declared
from fedcircuits.circuits.questions.distribution import Distribution
from fedcircuits.estimators.circuit_model import CircuitModel
from fedcircuits.estimators.learner import Learner, in_memory
from fedcircuits.estimators.model import Given
from fedcircuits.learning.batches import Source
from fedcircuits.learning.external import DensityEstimator, Outside, learned, to_circuit
from fedcircuits.tables.schema import Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class External(Learner):
    """A density estimator of another library as a learner for real columns.

    A fitted ``GaussianMixture`` is converted to a circuit with exactly the same density, which
    supports every query. Any other estimator, such as a ``KernelDensity`` or a normalising flow,
    supports likelihoods of complete rows and samples; other queries raise QueryError.

    Parameters
    ----------
    learner : object
        An object with ``fit``, ``score_samples`` and ``sample``. ``fit`` works on a copy, which is
        kept as ``learner_``.
    target : str or None, default=None
        The column that ``predict`` predicts by default.
    random_state : int or None, default=None
        The seed passed to the copy, if it accepts one; None leaves it unchanged.

    Examples
    --------
    >>> from sklearn.mixture import GaussianMixture
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = External(GaussianMixture(3), random_state=0).fit(rows)
    >>> bool(np.allclose(model.score_samples(rows), model.learner_.score_samples(rows)))
    True
    >>> model.probability("x0 > 0", given="x1 < 1") > 0.3
    True
    """

    allowed: ClassVar[Declared] = {"target": COLUMN, "random_state": SEED}
    learner_: DensityEstimator

    def __init__(
        self, learner: object, *, target: str | None = None, random_state: int | None = None
    ) -> None:
        self.learner = learner
        self.target = target
        self.random_state = random_state

    def _learn(self, rows: Source, schema: Schema, rng: np.random.Generator) -> None:
        known = in_memory(rows, "External")
        fitted = learned(self.learner, known.values, schema, known.weights, self.random_state)
        for name in ("circuit_", "parameters_", "_ready"):
            self.__dict__.pop(name, None)
        self.learner_, self._schema = fitted, schema
        if (circuit := to_circuit(fitted, schema)) is not None:
            self.circuit_, self.parameters_ = circuit

    def to_circuit(self) -> CircuitModel:
        """The circuit alone, without the original estimator."""
        self._require_circuit("be converted to a circuit: only a GaussianMixture can")
        return CircuitModel(self.circuit_, self.parameters_, self.target)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the circuit as one .fc file; other estimators cannot be saved."""
        self._require_circuit("be saved: files hold circuits, not objects of other libraries")
        super().save(path)

    def plot(
        self, given: Given = None, columns: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Figure:
        """Plot the circuit and its marginals."""
        self._require_circuit("be drawn: a picture needs a circuit and its marginals")
        return super().plot(given, columns, ax)

    # ------------------------------------------------------------------ inside

    @property
    def schema_(self) -> Schema:
        self._check_fitted()
        return self._schema

    def _check_fitted(self) -> None:
        if not hasattr(self, "learner_"):
            raise NotFittedError("this External is not fitted yet: call fit first")

    def _require_circuit(self, what: str) -> None:
        self._check_fitted()
        if not hasattr(self, "circuit_"):
            Outside(self.learner_, self.schema_).refuse(what)

    @property
    def _distribution(self) -> Distribution:
        self._check_fitted()
        if hasattr(self, "circuit_"):
            return super()._distribution
        return cast(Distribution, Outside(self.learner_, self.schema_))  # asked like one

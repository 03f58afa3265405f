"""Questions to a vertical mixture: components of rows, and the face of every model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import QueryError
from fedcircuits.estimators.distribution import FederatedDistribution
from fedcircuits.estimators.model import CircuitModel, Given, Model, Rows
from fedcircuits.estimators.training import refuse_to_collect
from fedcircuits.estimators.vertical_setup import Setting, answers_of_parties, answers_of_table
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.placement import Joint, Placement, View
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.vertical.answers import Densities, Mixing
from fedcircuits.methods.vertical.blocks import Outside

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class VerticalModel(Model):
    """A fitted vertical mixture. Rows to ask about come as for every model, and are sent to the
    parties by columns, or as a federation of parties that hold them."""

    weights_: Array  # (components,)
    converged_: bool
    n_iter_: int
    lower_bound_: float  # log-likelihood a row of what was learned
    lower_bounds_: list[float]  # the same before every iteration
    labels_: dict[str, Labels]  # the component of every party's rows
    joint_: Joint  # the graph and the weights
    views_: dict[str, View]  # what every party holds
    placement_: Placement
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...]
    kind_: str
    _run: Engine
    _outside: dict[str, Outside]  # what every party has learned, by columns
    _free: int  # numbers that all columns have learned for one component

    def _setting(self, parties: Sequence[str]) -> Setting:
        """How these parties add up."""
        raise NotImplementedError

    # ------------------------------------------------------------------ components of rows

    def predict_proba(self, X: Rows | Federation, target: str | None = None) -> Array:
        """Responsibilities (rows, components); with ``target`` the probabilities of the classes of
        that column. Rows of a federation come in the order of its first party's, then rows that
        this one does not hold."""
        if target is not None:
            return super().predict_proba(_table(X), target)
        return self._answers(X)[:, :-1]

    def predict(self, X: Rows | Federation, target: str | None = None) -> npt.NDArray[np.generic]:
        """The most responsible component of every row; with ``target`` the value of that column."""
        if target is not None:
            return super().predict(_table(X), target)
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def score_samples(self, X: Rows | Federation) -> Array:
        """Log-likelihood of every row; NaN, absent columns and absent parties are summed out."""
        return self._answers(X)[:, -1] if isinstance(X, Federation) else super().score_samples(X)

    def score(self, X: Rows | Federation, y: object = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def bic(self, X: Rows | Federation) -> float:
        """The Bayesian information criterion of the rows: lower is better."""
        logs = self.score_samples(X)
        return float(-2 * logs.sum() + self._n_parameters() * np.log(len(logs)))

    def aic(self, X: Rows | Federation) -> float:
        """Akaike's information criterion of the rows: lower is better."""
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters())

    def _n_parameters(self) -> int:
        return len(self.weights_) * (self._free + 1) - 1

    def _answers(self, X: Rows | Federation) -> Array:
        """(rows, components + 1): responsibilities and the log-likelihood."""
        self._check_fitted()
        learned = {p: Densities(v) for p, v in self.views_.items() if v.leaves}
        mixing = Mixing(np.log(np.maximum(self.weights_, 1e-300)))
        if isinstance(X, Federation):
            about = (X, learned, self.schema_, len(self.weights_), mixing, self._run, self.queries_)
            found = answers_of_parties(self._setting(X.names), *about)
        else:
            rows = (self._values(X), self.schema_, learned, self._run, self.queries_)
            found = mixing(answers_of_table(*rows))
        first, logs = found[:-1], found[-1:]
        last = np.maximum(1 - first.sum(axis=0), 0.0)[None]
        return np.vstack([first, last, logs]).T

    # ------------------------------------------------------------------ what was learned

    @property
    def means_(self) -> Array:
        """(components, real columns in the order of ``schema_``), if all parties allow it."""
        found = {n: m for names, v in self._gaussians() for n, m in zip(names, v[0].T, strict=True)}
        return np.stack([found[n] for n in self.schema_.names if n in found], axis=1)

    @property
    def covariances_(self) -> dict[str, Array]:
        """By party (components, its real columns, its real columns), if all parties allow it."""
        held = {names: v[1] for names, v in self._gaussians()}
        own = {p: [n for n, _ in o] for p, o in self._outside.items()}
        return {p: held[n] for p, names in own.items() for n in names if n in held}

    def _gaussians(self) -> list[tuple[tuple[str, ...], tuple[Array, Array]]]:
        self._check_fitted()
        refuse_to_collect({n: v.allow_collect for n, v in self.views_.items()})
        return [
            (names, (values["mean"], values["covariance"]))
            for own in self._outside.values()
            for names, values in own
            if "covariance" in values
        ]

    @property
    def _distribution(self) -> FederatedDistribution:  # type: ignore[override]
        self._check_fitted()
        ready = self.__dict__.get("_ready")
        if ready is None or ready.views is not self.views_:
            ready = FederatedDistribution(self.joint_, self.views_, self._run, self.queries_)
            self.__dict__["_ready"] = ready
        found: FederatedDistribution = ready
        return found

    def collect(self) -> CircuitModel:
        """The whole circuit in one place, if every party has allowed it."""
        self._check_fitted()
        refuse_to_collect({n: v.allow_collect for n, v in self.views_.items()})
        inner = {n: c for v in self.views_.values() for n, c in v.parameters.circuits.items()}
        return CircuitModel(self.circuit_, Parameters(self.joint_.parameters.values, inner))

    def plot(self, given: Given = None, columns: Sequence[str] | None = None) -> Figure:
        """The picture of the collected circuit, if every party has allowed it."""
        return self.collect().plot(given, columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The collected circuit as one .fc file, if every party has allowed it."""
        self.collect().save(path)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_state"}


def _table(X: Rows | Federation) -> Rows:
    if isinstance(X, Federation):
        raise QueryError("a column is predicted for rows of a table, got a Federation")
    return X

"""VerticalKMeans: clusters of rows whose columns different parties hold."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError
from fedcircuits.estimators import questions
from fedcircuits.estimators.model import Rows
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.training import (
    Run,
    State,
    refuse_to_collect,
    run_training,
)
from fedcircuits.estimators.vertical_setup import (
    Setting,
    Weights,
    answers_of_parties,
    answers_of_table,
    vertical,
    weights_of,
)
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.vertical import kmeans as vertical_kmeans
from fedcircuits.methods.vertical.answers import Best, Nearness
from fedcircuits.methods.vertical.kmeans import Clustered, KMeansPlan
from fedcircuits.methods.vertical.rows import leader_of
from fedcircuits.tables.schema import Schema

HUB = Hub()


class VerticalKMeans(BaseEstimator):  # type: ignore[misc]
    """k-means over columns of different parties: the clusters of their columns together.

    ``n_clusters``    number of clusters
    ``n_init``        starts by k-means++, of which the best is kept
    ``max_iter``      rounds of Lloyd's rule at most
    ``tol``           stop when the sum of distances falls by a smaller share; 0: no row changes
    ``standardise``   each party divides its numbers by their deviation first
    ``summation``, ``hops``, ``random_state``  as of ``VerticalGaussianMixture``

    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(300, 6)) + 6 * rng.integers(2, size=(300, 1)))
    >>> model = VerticalKMeans(2, random_state=0).fit(fc.split(table, 3, by="columns"))
    >>> model.predict(table).tolist() == model.labels_["party 1"].tolist()
    True
    """

    labels_: dict[str, Labels]  # the cluster of every party's rows
    inertia_: float  # sum of squared distances from the centres
    n_iter_: int
    schema_: Schema
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        standardise: bool = False,
        summation: Summation = HUB,
        hops: int = 0,
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.standardise = standardise
        self.summation = summation
        self.hops = hops
        self.random_state = random_state

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine = "memory",
        sample_weight: Weights = None,
    ) -> Self:
        """Learn from a federation."""
        number = {"n_clusters": self.n_clusters}
        federation = vertical(X, "VerticalKMeans", self.summation, number)
        for name in ("n_init", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise FederationError(f"{name} must be a whole number from 1, got {value!r}")
        if not isinstance(self.tol, int | float | np.number) or not 0 <= self.tol < np.inf:
            raise FederationError(f"tol must be a number from 0, got {self.tol!r}")
        weights, state = weights_of(sample_weight, federation) or {}, State()
        self._parties = federation.names
        setting = self._setting(federation.names, state)
        plan = KMeansPlan(
            int(self.n_clusters), int(self.max_iter), float(self.tol), int(self.n_init),
            bool(self.standardise), setting.seed,
        )  # fmt: skip

        def programs(left: Federation) -> dict[str, Program[Clustered]]:
            def of(name: str) -> dict[str, object]:
                return {"plan": plan, "weight": weights.get(name), "hubs": setting.hubs}

            return setting.programs(vertical_kmeans.member, left, of)

        with Bar("VerticalKMeans"):
            run = run_training(federation, programs, engine, state, None)
        self._keep(run)
        return self

    def _setting(self, parties: tuple[str, ...], state: State | None = None) -> Setting:
        summation = self.summation.without_lost(self._parties, parties)
        return Setting.of(summation, self.hops, parties, state or State(), self.random_state)

    def _keep(self, run: Run[Clustered]) -> None:
        results = run.results
        first = results[leader_of(self.summation.members(run.federation.names))]
        parties = {n: results[n] for n in run.federation.names}
        self.schema_ = run.federation.schema
        self.labels_ = {n: m.labels for n, m in parties.items()}
        self._learned = {
            n: Nearness(m.space, m.centres) for n, m in parties.items() if m.space is not None
        }
        self._allowed = {p.name: p.allow_collect for p in run.federation}
        self.inertia_, self.n_iter_ = first.inertia, first.rounds
        self.ledger_, self.queries_, self._run = run.ledger, Ledger(), run.engine
        self.notes_ = first.notes
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=3)

    def predict(self, X: Rows | Federation) -> Labels:
        """The nearest centre of every row; rows of a federation come in the order of its first
        party's, then rows that this one does not hold."""
        self._check_fitted()
        if isinstance(X, Federation):
            setting, number = self._setting(X.names), int(self.n_clusters)
            about = (X, self._learned, self.schema_, number, Best(), self._run, self.queries_)
            return np.asarray(answers_of_parties(setting, *about)[0], np.int64)
        x = questions.values_of(X, self.schema_)
        terms = answers_of_table(x, self.schema_, self._learned, self._run, self.queries_)
        return np.asarray(terms.argmax(axis=0))

    def score(self, X: Rows, y: object = None) -> float:
        """The negative sum of squared distances of the rows from their centres."""
        self._check_fitted()
        x = questions.values_of(X, self.schema_)
        terms = answers_of_table(x, self.schema_, self._learned, self._run, self.queries_)
        return float(terms.max(axis=0).sum())

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """Of the columns of ``cluster_centers_``: numbers, and "column=category"."""
        self._check_fitted()
        return tuple(n for own in self._learned.values() for n in own.space.names)

    @property
    def cluster_centers_(self) -> Array:
        """(clusters, features) in the units of the data, if all parties allow it."""
        self._check_fitted()
        refuse_to_collect(self._allowed)
        return np.hstack([own.space.outside(own.centres) for own in self._learned.values()])

    def _check_fitted(self) -> None:
        if not hasattr(self, "inertia_"):
            raise NotFittedError("this VerticalKMeans has learned nothing yet: call fit first")

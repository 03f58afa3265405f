"""VerticalKMeans: k-means over columns held by different parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from fedcircuits.arguments import FLAG, SEED, Declared, Real, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.estimators.federated import (
    ROWS,
    SUMMATION,
    FederatedRun,
    MakePrograms,
    TrainingState,
)
from fedcircuits.estimators.model import Rows
from fedcircuits.estimators.vertical import HUB, VerticalEstimator, latest
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import blaming, require_shape
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.meeting.collecting import LearnedPart
from fedcircuits.methods.meeting.rows import SampleWeights
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.vertical import kmeans
from fedcircuits.methods.vertical.kmeans import KMeansResult, TrainedMeans
from fedcircuits.methods.vertical.points import (
    KMeansPlan,
    MeansProgress,
    PartyCentres,
    feature_names,
)
from fedcircuits.privacy.differential import no_privacy

Clusters = KMeansResult | TrainedMeans


class VerticalKMeans(VerticalEstimator[Clusters]):
    """k-means over the joined columns of different parties.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        The number of clusters. "auto" trains with 1, 2, … clusters and keeps the model with the
        lowest Bayesian information criterion (``criteria_``).
    n_init : int, default=1
        The number of k-means++ initialisations, the best of which is kept.
    max_iter : int, default=300
        The maximum number of iterations of Lloyd's algorithm.
    tol : float, default=0.0
        Stop when the inertia decreases by a smaller share; 0 stops when no assignment changes.
    standardise : bool, default=False
        Whether each party first divides its numbers by their standard deviation.
    summation, hops, rows, random_state, privacy
        See ``VerticalGaussianMixture``.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(300, 6)) + 6 * rng.integers(2, size=(300, 1)))
    >>> model = VerticalKMeans(2, random_state=0).fit(fc.split(table, 3, by="columns"))
    >>> model.predict(table).tolist() == model.labels_["party 1"].tolist()
    True
    """

    allowed: ClassVar[Declared] = {
        "n_clusters": Whole(1, or_=("auto",)),
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "tol": Real(least=0),
        "standardise": FLAG,
        "summation": SUMMATION,
        "hops": Whole(0),
        "rows": ROWS,
        "random_state": SEED,
        "privacy": no_privacy("messages about single rows have no noise"),
    }

    number_argument = "n_clusters"
    inertia_: float  # sum of squared distances from the centres
    n_iter_: int

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 8,
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 0.0,
        standardise: bool = False,
        summation: Summation = HUB,
        hops: int = 0,
        rows: RowRule = "tokens",
        random_state: int | None = None,
        privacy: None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.standardise = standardise
        self.summation = summation
        self.hops = hops
        self.rows = rows
        self.random_state = random_state
        self.privacy = privacy

    def _programs_for(
        self, federation: Federation, weights: Mapping[str, SampleWeights]
    ) -> MakePrograms[Clusters]:
        def programs(left: Federation, state: TrainingState) -> dict[str, Program[Clusters]]:
            plan = KMeansPlan(
                int(self.n_clusters), int(self.max_iter), float(self.tol), int(self.n_init),
                bool(self.standardise), self._hubs(left.names), state.seed, self.rows,
            )  # fmt: skip
            members = self._summation(left.names).members(left.names)
            state.kept, start = latest(state.kept, members, plan, MeansProgress)
            roles, arguments = (
                (kmeans.member, kmeans.coordinator),
                {"weight": weights, "start": start},
            )
            return self._members(
                *roles, left, state, plan, arguments, {"start": start.get(COORDINATOR)}
            )

        return programs

    def _keep(self, run: FederatedRun[Clusters]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedMeans)
        self._set_kept(run, trained.columns, int(self.n_clusters), "centres")
        self.schema_ = run.federation.schema
        self.inertia_, self.n_iter_ = trained.outcome.inertia, trained.outcome.rounds
        self._n_rows, self.notes_ = trained.outcome.rows, trained.notes

    def criterion(self) -> float:
        """The Bayesian information criterion of spherical clusters of equal size and weight."""
        rows, clusters, width = self._n_rows, self._components, len(self.feature_names_)
        spread = max(self.inertia_, 1e-12) / (width * max(rows - clusters, 1))
        fit = (
            rows * width * np.log(spread) + (rows - clusters) * width + 2 * rows * np.log(clusters)
        )
        return float(fit + (clusters * width + 1) * np.log(rows))

    def most_components(self) -> int:
        """Two rows per cluster."""
        return max(self._n_rows // 2, 1)

    def predict(self, X: Rows | Federation) -> Labels:
        """The nearest centre of every row. Rows of a federation are in the order of its first
        party, followed by rows it does not hold."""
        if isinstance(X, Federation):
            return np.asarray(self._party_answers(X)[0], np.int64)
        return np.asarray(self._table_terms(X).argmax(axis=0))

    def score(self, X: Rows, y: object = None) -> float:
        """The negative sum of squared distances of the rows from their centres."""
        return float(self._table_terms(X).max(axis=0).sum())

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """Names of the columns of ``cluster_centers_``: numbers, and "column=category"."""
        self._check_fitted()
        return tuple(n for schema in self._columns.values() for n in feature_names(schema))

    @property
    def cluster_centers_(self) -> Array:
        """(clusters, features) in the units of the data, if all parties allow it."""
        every = []
        for party, centres in self._parts("centres", PartyCentres).items():
            with blaming(party, LearnedPart, "part"):
                rows = centres.space.in_user_units(centres.centres)
            shape = self._components, len(feature_names(self._columns[party]))
            require_shape(rows, shape, party, LearnedPart, "part")
            every.append(rows)
        return np.hstack(every)

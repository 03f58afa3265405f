"""VerticalKMeans, and what it shares with VerticalGaussianMixture: one program per member, weights
of rows, questions about rows of a table or of parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.arguments import FLAG, SEED, Declared, Real, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators import questions
from fedcircuits.estimators.federated import (
    ROWS,
    SUMMATION,
    FederatedEstimator,
    FederatedRun,
    MakePrograms,
    TrainingState,
)
from fedcircuits.estimators.model import Rows
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import blaming, require_shape
from fedcircuits.federation.recipes import Held, part_of
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.sums.topology import Neighbourhood, hubs
from fedcircuits.federation.tokens import Labels, RowRule
from fedcircuits.methods.meeting.collecting import LearnedPart
from fedcircuits.methods.meeting.hello import Hello, check_rows
from fedcircuits.methods.meeting.rows import SampleWeights, check_matchable
from fedcircuits.methods.vertical import answers, kmeans
from fedcircuits.methods.vertical.answers import AnswersPlan, Learned
from fedcircuits.methods.vertical.kmeans import (
    KMeansPlan,
    KMeansResult,
    PartyCentres,
    feature_names,
)
from fedcircuits.methods.vertical.reports import TrainedMeans
from fedcircuits.methods.vertical.rows import check_holders
from fedcircuits.methods.vertical.training import EMResult
from fedcircuits.privacy.differential.noise import no_privacy
from fedcircuits.tables.schema import Schema

HUB = Hub()
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
Clusters = KMeansResult | TrainedMeans
Weights: TypeAlias = npt.ArrayLike | Mapping[str, float] | None  # or a pandas Series by row id


class VerticalEstimator(FederatedEstimator[R]):
    """Learns from parties that hold different columns of rows that can be matched."""

    summation: Summation
    hops: int
    rows: RowRule
    schema_: Schema
    labels_: dict[str, Labels | Held]  # by party: the component or cluster of each of its rows
    _parties: tuple[str, ...]  # who took part when training began
    _components: int  # or clusters
    _columns: Mapping[str, Schema]  # by party that has learned some
    _kept: Mapping[str, EMResult | KMeansResult | Held]  # by party: all that it has learned
    _learned: Mapping[str, Learned | Held]  # by party with columns: what gives terms of rows
    _at_sites: bool  # whether parties live elsewhere

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine | None = None,
        sample_weight: Weights = None,
        resume: bool | str = False,
        name: str | None = None,
    ) -> Self:
        """Learn from a federation.

        Parameters
        ----------
        X : Federation
            The parties and their tables.
        y : None
            Ignored; here for compatibility with scikit-learn.
        engine : {"memory", "process", "ray"} or callable, default="memory"
            Where the parties run.
        sample_weight : array-like, mapping or Series, optional
            Weights of rows: by row id, or in the order of the first party's rows.
        resume, name
            As for every federated estimator (``FedPC.fit``).
        """
        federation = self._checked(X)
        self._parties = federation.names
        programs = self._programs_for(federation, party_weights(sample_weight, federation))
        return self._train(federation, programs, engine, resume, name)

    def _programs_for(
        self, federation: Federation, weights: Mapping[str, SampleWeights]
    ) -> MakePrograms[R]:
        """How to make programs of those who still take part; ``weights``: of rows, by party."""
        raise NotImplementedError

    def _check_federation(self, federation: Federation) -> Federation:
        hellos = {p.name: Hello.of(p.table, kmeans.METHOD) for p in federation}
        for name, hello in hellos.items():
            check_rows(name, hello.rows)
        check_holders({name: hello.schema for name, hello in hellos.items()})
        check_matchable(hellos)
        return federation

    def _members(
        self,
        member: Callable[..., Flow[T]],
        coordinator: Callable[..., Flow[U]],
        federation: Federation,
        state: TrainingState,
        plan: object,
        own: Mapping[str, Mapping[str, object]],
        server: Mapping[str, object] = {},
    ) -> dict[str, Program[T | U]]:
        """One program per party and one of whoever asks, who adds up if the summation says so.
        ``own``: arguments of one party, by name and party; ``server``: of the coordinator."""
        secret = state.secrets_of(federation.names, self.rows)
        names, summation = federation.names, self._summation(federation.names)
        summation.members(names)  # an error where they cannot add up so
        same: dict[str, object] = {"parties": names, "plan": plan}
        programs: dict[str, Program[T | U]] = {
            COORDINATOR: Program(coordinator, {**same, "summation": summation, **server})
        }
        for party in federation:
            given = {argument: of.get(party.name) for argument, of in own.items()}
            given |= {"party": party, "secret": secret[party.name]}
            programs[party.name] = Program(
                member, {**same, "summation": summation.for_party(), **given}
            )
        return programs

    def _summation(self, parties: Sequence[str]) -> Summation:
        """How these parties, all of those trained or fewer, add up."""
        return self.summation.without_lost(self._parties, parties)

    def _hubs(self, parties: Sequence[str]) -> tuple[Neighbourhood, ...]:
        """Parties whose columns move to one of them."""
        topology = self._summation(parties).topology(parties) if self.hops else None
        if self.hops and topology is None:
            raise FederationError(
                f"hops={self.hops} moves columns to neighbours in a graph, and "
                f"{type(self.summation).__name__} has none: take a Tree, Chebyshev or Metropolis "
                "of a graph, or hops=0"
            )
        return () if topology is None else hubs(topology, int(self.hops))

    # ------------------------------------------------------------------ questions

    def _set_kept(
        self, run: FederatedRun[R], columns: Mapping[str, Schema], components: int, terms: str
    ) -> None:
        """What parties keep: here, or where they are; ``terms``: the part that gives those."""
        self._columns, self._components = columns, components
        self._kept = {n: run.results[n] for n in run.federation.names}  # type: ignore[misc]
        self.labels_ = {n: part_of(kept, "labels") for n, kept in self._kept.items()}
        self._learned = {n: part_of(self._kept[n], terms) for n in columns}
        self._at_sites = run.federation.engine is not None

    def _table_terms(self, X: Rows) -> Array:
        """Terms (components, rows) of rows of a table, as the parties tell them."""
        self._check_fitted()
        index, x = self.schema_.index, questions.values_of(X, self.schema_)
        evidence = {p: x[:, [index(n) for n in s.names]] for p, s in self._columns.items()}
        question: dict[str, object] = {"evidence": evidence, "components": self._components}
        programs: dict[str, Program[Array | None]] = {COORDINATOR: Program(answers.asker, question)}
        for party, learned in self._learned.items():
            programs[party] = Program(answers.answerer, {"learned": learned})
        terms = self._ask(programs)[COORDINATOR]
        assert terms is not None
        return terms

    def _party_answers(self, X: Federation, log_weights: Array | None = None) -> Array:
        """What parties find out of every row (…, rows): in the order of the first party's rows,
        then rows that it does not hold."""
        self._check_fitted()
        if (X.engine is not None) != self._at_sites:
            where = "at sites" if self._at_sites else "in this process"
            raise QueryError(
                f"the model has learned from parties {where}, and is asked about rows of others: "
                "ask about the federation it has learned from, or about rows of a table"
            )
        moved = self._hubs(X.names)
        _check_readable(X, self.schema_, self._columns, moved)
        plan = AnswersPlan(self._components, self.schema_, log_weights, moved, self.rows)
        roles, own = (answers.member, answers.coordinator), {"learned": self._learned}
        results = self._ask(self._members(*roles, X, TrainingState(), plan, own))
        found = results[COORDINATOR]
        assert found is not None
        return found

    def _parts(self, name: str, kind: type[T]) -> dict[str, T]:
        """By party with columns a part of what it has learned, if all allow it."""
        self._check_collect()
        return self._handed_over({p: part_of(self._kept[p], name) for p in self._columns}, kind)


def _check_readable(
    federation: Federation,
    schema: Schema,
    columns: Mapping[str, Schema],
    moved: Sequence[Neighbourhood],
) -> None:
    """QueryError unless every party has columns that it had in training, or that nobody had."""
    root = {m: hub.root for hub in moved for m in hub.members}
    for party in federation:
        home = columns.get(root.get(party.name, party.name), Schema(()))
        for name in party.table.names:
            if name in schema and name not in home:
                holder = next((p for p, own in columns.items() if name in own), "another")
                raise QueryError(
                    f"{party.name} has {name!r}, which the model has learned at {holder}: parties "
                    "need the columns they had in training; or ask with a table"
                )


def party_weights(given: Weights, federation: Federation) -> dict[str, SampleWeights]:
    """By party what it is told of weights: by row id, or in the order of the first party's rows;
    empty if none are given."""
    if given is None:
        return {}
    first, *others = federation
    if isinstance(given, Mapping | pd.Series):
        values = numbers("sample_weight", [weight for _, weight in given.items()])
        by_id = SampleWeights(values, tuple(str(key) for key, _ in given.items()))
        told = {p.name: by_id for p in federation}
    else:
        values = numbers("sample_weight", given)
        if values.shape != (len(first.table),):
            raise FederationError(
                f"sample_weight: expected one for each of the {len(first.table):,} rows of "
                f"{first.name}, got the shape {values.shape}; weights by row id are a Series"
            )
        same = SampleWeights(values)  # of others too, where rows are in one order at all
        matched = first.table.row_ids is not None
        told = {p.name: SampleWeights(np.zeros(0)) if matched else same for p in others}
        told[first.name] = same
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise FederationError("sample_weight must be numbers from 0, some are not")
    if not values.any():
        raise FederationError("sample_weight must be above 0 for some row, all are 0")
    return told


def numbers(name: str, given: object) -> Array:
    """What a user gave as numbers, in an array."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise FederationError(f"{name}: expected numbers, got {str(given)[:60]}") from None


class VerticalKMeans(VerticalEstimator[Clusters]):
    """k-means over columns of different parties: the clusters of their columns together.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_init : int, default=1
        Starts by k-means++, the best of which is kept.
    max_iter : int, default=300
        Rounds of Lloyd's rule at most.
    tol : float, default=0.0
        Stop when the sum of distances falls by a smaller share; 0: when no row changes.
    standardise : bool, default=False
        Whether each party divides its numbers by their standard deviation first.
    summation, hops, rows, random_state, privacy
        As for ``VerticalGaussianMixture``.

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
        "n_clusters": Whole(1),
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "tol": Real(least=0),
        "standardise": FLAG,
        "summation": SUMMATION,
        "hops": Whole(0),
        "rows": ROWS,
        "random_state": SEED,
        "privacy": no_privacy("parties tell each other of single rows without noise"),
    }

    inertia_: float  # sum of squared distances from the centres
    n_iter_: int

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
            roles, own = (kmeans.member, kmeans.coordinator), {"weight": weights}
            return self._members(*roles, left, state, plan, own)

        return programs

    def _keep(self, run: FederatedRun[Clusters]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedMeans)
        self._set_kept(run, trained.columns, int(self.n_clusters), "centres")
        self.schema_ = run.federation.schema
        self.inertia_, self.n_iter_ = trained.outcome.inertia, trained.outcome.rounds
        self.notes_ = trained.notes

    def predict(self, X: Rows | Federation) -> Labels:
        """The nearest centre of every row; rows of a federation come in the order of its first
        party's, then rows that this one does not hold."""
        if isinstance(X, Federation):
            return np.asarray(self._party_answers(X)[0], np.int64)
        return np.asarray(self._table_terms(X).argmax(axis=0))

    def score(self, X: Rows, y: object = None) -> float:
        """The negative sum of squared distances of the rows from their centres."""
        return float(self._table_terms(X).max(axis=0).sum())

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """Of the columns of ``cluster_centers_``: numbers, and "column=category"."""
        self._check_fitted()
        return tuple(n for schema in self._columns.values() for n in feature_names(schema))

    @property
    def cluster_centers_(self) -> Array:
        """(clusters, features) in the units of the data, if all parties allow it."""
        every = []
        for party, centres in self._parts("centres", PartyCentres).items():
            with blaming(party, LearnedPart, "part"):
                own = centres.space.in_user_units(centres.centres)
            shape = self._components, len(feature_names(self._columns[party]))
            require_shape(own, shape, party, LearnedPart, "part")
            every.append(own)
        return np.hstack(every)

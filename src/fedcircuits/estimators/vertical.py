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
from fedcircuits.federation.federation import COORDINATOR, Federation, Party
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.federation.sums.topology import Neighbourhood, hubs
from fedcircuits.federation.tokens import Labels, RowRule
from fedcircuits.methods.meeting.hello import Hello, check_rows, leader_of
from fedcircuits.methods.meeting.rows import check_matchable
from fedcircuits.methods.vertical import answers, kmeans
from fedcircuits.methods.vertical.answers import LearnedTerms
from fedcircuits.methods.vertical.kmeans import KMeansPlan, KMeansResult, PartyCentres
from fedcircuits.methods.vertical.rows import check_holders
from fedcircuits.privacy.differential.noise import no_privacy
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

HUB = Hub()
R = TypeVar("R")
T = TypeVar("T")
Weights: TypeAlias = npt.ArrayLike | Mapping[str, float] | None  # or a pandas Series by row id


class VerticalEstimator(FederatedEstimator[R]):
    """Learns from parties that hold different columns of rows that can be matched."""

    groups: ClassVar[str]  # the argument that needs at least as many rows
    summation: Summation
    hops: int
    rows: RowRule
    schema_: Schema
    labels_: dict[str, Labels]  # by party: the component or cluster of each of its rows
    _parties: tuple[str, ...]  # who took part when training began
    _learned: Mapping[str, LearnedTerms]  # by party with columns

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
        self, federation: Federation, weights: Mapping[str, Array]
    ) -> MakePrograms[R]:
        """How to make programs of those who still take part; ``weights``: of rows, by party."""
        raise NotImplementedError

    def _check_federation(self, federation: Federation) -> Federation:
        hellos = {p.name: Hello.of(p.table, kmeans.METHOD) for p in federation}
        for name, hello in hellos.items():
            check_rows(name, hello.rows)
        check_holders({name: hello.schema for name, hello in hellos.items()})
        check_matchable(hellos)
        name, number = self.groups, getattr(self, self.groups)
        if number > max(len(p.table) for p in federation):
            rows = len({i for p in federation for i in row_ids(p)})
            if number > rows:
                raise FederationError(
                    f"{name}={number} and {rows:,} rows: take at most as many as there are rows"
                )
        return federation

    def _members(
        self,
        role: Callable[..., Flow[T]],
        federation: Federation,
        state: TrainingState,
        arguments: Mapping[str, object],
        of_members: Mapping[str, Mapping[str, object]],
    ) -> dict[str, Program[T]]:
        """One program per member of the summation. Some arguments are the same for all, others a
        member's own."""
        secret = state.secrets_of(federation.names, self.rows)
        names, summation = federation.names, self._summation(federation.names)
        programs = {}
        for name in summation.members(names):
            given: dict[str, object] = {
                "me": name,
                "parties": names,
                "party": federation.parties.get(name),
                "summation": summation.for_party(),
                "secret": secret.get(name, b""),
                "rule": self.rows,
            }
            given |= {argument: of.get(name) for argument, of in of_members.items()}
            programs[name] = Program(role, {**arguments, **given})
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

    def _table_terms(self, X: Rows) -> Array:
        """Terms (components, rows) of rows of a table, as the parties tell them."""
        self._check_fitted()
        learned, index = self._learned, self.schema_.index
        x = questions.values_of(X, self.schema_)
        evidence = {p: x[:, [index(n) for n in t.schema.names]] for p, t in learned.items()}
        number = next(iter(learned.values())).components
        question: dict[str, object] = {"evidence": evidence, "components": number}
        programs: dict[str, Program[Array | None]] = {COORDINATOR: Program(answers.asker, question)}
        for party, terms_of in learned.items():
            programs[party] = Program(answers.answerer, {"learned": terms_of})
        terms = self._ask(programs)[COORDINATOR]
        assert terms is not None
        return terms

    def _party_answers(self, X: Federation, log_weights: Array | None = None) -> Array:
        """What parties find out of every row (…, rows): in the order of the first party's rows,
        then rows that it does not hold."""
        self._check_fitted()
        learned, moved = self._learned, self._hubs(X.names)
        known = _readable(X, self.schema_, learned, moved)
        number = next(iter(learned.values())).components
        same = {"components": number, "log_weights": log_weights, "hubs": moved}
        each, state = {"learned": learned}, TrainingState()
        results = self._ask(self._members(answers.member, known, state, same, each))
        parts = [pd.DataFrame(results[p.name].T, index=row_ids(p)) for p in known]
        rows = pd.concat(parts)
        return np.ascontiguousarray(rows[~rows.index.duplicated()].to_numpy().T)


def _readable(
    federation: Federation,
    schema: Schema,
    learned: Mapping[str, LearnedTerms],
    moved: Sequence[Neighbourhood],
) -> Federation:
    """The parties' columns that the model knows, in its codes; each with the party that has it."""
    root = {m: hub.root for hub in moved for m in hub.members}
    tables = {}
    for party in federation:
        home = learned.get(root.get(party.name, party.name))
        names = [n for n in party.table.names if n in schema]
        for name in names:
            if home is None or name not in home.schema:
                holder = next((p for p, t in learned.items() if name in t.schema), "another")
                raise QueryError(
                    f"{party.name} has {name!r}, which the model has learned at {holder}: parties "
                    "need the columns they had in training; or ask with a table"
                )
        table = Table.of(party.table.select(names), schema=schema.select(names))
        tables[party.name] = Table(table.schema, table.values, party.table.row_ids)
    return federation.with_tables(tables)


def party_weights(given: Weights, federation: Federation) -> dict[str, Array]:
    """Weights of every party's rows, from weights by row id, or in the order of the first party's
    rows; empty if none are given."""
    if given is None:
        return {}
    first, ids = next(iter(federation)), {p.name: row_ids(p) for p in federation}
    if isinstance(given, Mapping | pd.Series):
        keys = [str(key) for key, _ in given.items()]
        values = numbers("sample_weight", [weight for _, weight in given.items()])
    else:
        keys, values = ids[first.name], numbers("sample_weight", given)
        if values.shape != (len(first.table),):
            raise FederationError(
                f"sample_weight: expected one for each of the {len(first.table):,} rows of "
                f"{first.name}, got the shape {values.shape}; weights by row id are a Series"
            )
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise FederationError("sample_weight must be numbers from 0, some are not")
    known = dict(zip(keys, values, strict=True))
    for name, rows in ids.items():
        if absent := [i for i in rows if i not in known]:
            raise FederationError(
                f"sample_weight has none for row {absent[0]!r} of {name}: give a Series or "
                "mapping of row ids to weights that has all"
            )
    weights = {name: np.array([known[i] for i in rows]) for name, rows in ids.items()}
    if not any(w.sum() > 0 for w in weights.values()):
        raise FederationError("sample_weight must be above 0 for some row, all are 0")
    return weights


def row_ids(party: Party) -> list[str]:
    ids = party.table.row_ids
    return [str(i) for i in (np.arange(len(party.table)) if ids is None else ids).tolist()]


def numbers(name: str, given: object) -> Array:
    """What a user gave as numbers, in an array."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise FederationError(f"{name}: expected numbers, got {str(given)[:60]}") from None


class VerticalKMeans(VerticalEstimator[KMeansResult]):
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

    groups: ClassVar[str] = "n_clusters"
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
    _learned: dict[str, PartyCentres]

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
        self, federation: Federation, weights: Mapping[str, Array]
    ) -> MakePrograms[KMeansResult]:
        def programs(left: Federation, state: TrainingState) -> dict[str, Program[KMeansResult]]:
            plan = KMeansPlan(
                int(self.n_clusters), int(self.max_iter), float(self.tol), int(self.n_init),
                bool(self.standardise), self._hubs(left.names), state.seed,
            )  # fmt: skip
            same, each = {"plan": plan}, {"weight": weights}
            return self._members(kmeans.member, left, state, same, each)

        return programs

    def _keep(self, run: FederatedRun[KMeansResult]) -> None:
        leader = run.results[leader_of(self.summation.members(run.federation.names))]
        parties = {n: run.results[n] for n in run.federation.names}
        self.schema_ = run.federation.schema
        self.labels_ = {n: result.labels for n, result in parties.items()}
        self._learned = {n: r.centres for n, r in parties.items() if r.centres.schema.names}
        self.inertia_, self.n_iter_, self.notes_ = leader.inertia, leader.rounds, leader.notes

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
        return tuple(n for centres in self._learned.values() for n in centres.space.names)

    @property
    def cluster_centers_(self) -> Array:
        """(clusters, features) in the units of the data, if all parties allow it."""
        self._check_collect()
        return np.hstack([c.space.in_user_units(c.centres) for c in self._learned.values()])

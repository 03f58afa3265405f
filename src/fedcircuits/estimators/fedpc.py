"""FedPC: one circuit from data that stay with their parties, however they are split."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

import numpy as np

from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError
from fedcircuits.estimators.distribution import FederatedDistribution
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.model import CircuitModel, Given, Model
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.training import (
    Run,
    State,
    refuse_to_collect,
    require_federation,
    require_summation,
    run_training,
)
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.placement import Joint, Placement, View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.fedpc import training as one_pass
from fedcircuits.methods.fedpc.planning import HUB, Plan, Rule, Shared
from fedcircuits.methods.fedpc.training import Learner, Trained
from fedcircuits.privacy.secure_sum import Secret

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = View | Trained


@runtime_checkable
class Clustering(Protocol):
    """Clusters that parties have found together: a label for each of a party's rows."""

    labels_: dict[str, Labels]


class FedPC(Model):
    """One joint distribution over the variables of all parties.

    ``learner``       learns the leaves; one for all parties, or a dict by party
    ``clusters``      of every party's rows, where parties hold other columns: how many, or a
                      mixture that was learned from the same federation (VerticalGaussianMixture,
                      VerticalKMeans), whose clusters all parties then share
    ``products``      combinations of clusters to keep at most; "auto": all that occur
    ``weights``       of combinations: "cooccurrence" counts, the paper's "sizes", or "em"
    ``shared_leaves`` of columns that several parties hold: "divided" (each in turn models them
                      with its other columns), one a "cluster" and holder, or the paper's "pooled"
    ``ensemble``      circuits to mix where parties hold other columns; "auto": two, or four where
                      rows are few
    ``target``        the column to predict; its classes are clustered apart
    ``share_target``  whether its holders tell the others the class of shared rows
    ``share_clusters`` whether parties hear which of the shared rows are alike at others; "auto":
                      unless sums are secret
    ``refine``        rounds of EM over the whole circuit: on rows that all parties hold or, where
                      they hold other rows of the same columns, on all rows (needs allow_collect)
    ``validation``    the share of these rows that EM does not learn from: it ends with the best
                      round on them. Of fewer than 50 rows none are held back; 0.0: all rounds
    ``summation``     who adds up in EM over all rows: Hub(), Tree(…), Secret(). With Secret() where
                      clusters meet is counted on shares, and EM on shared rows goes by sums
    ``on_lost``       a party that is lost: "stop", or "continue" where others hold its columns

    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(200, 1)) + rng.normal(size=(200, 4)))
    >>> model = FedPC(random_state=0).fit(fc.split(table, 2, by="columns"))
    >>> model.kind_, model.score_samples(table).shape
    ('vertical', (200,))
    """

    joint_: Joint  # what the coordinator holds
    views_: dict[str, View]  # what every party holds
    placement_: Placement
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...]
    history_: tuple[float, ...]  # of rows of EM, mean log-likelihood before every round
    validation_history_: tuple[float, ...]  # of rows held back, before EM and after every round
    kind_: str

    def __init__(
        self,
        learner: Learner | Mapping[str, Learner] | None = None,
        *,
        clusters: int | Literal["auto"] | Clustering = "auto",
        products: int | Literal["auto"] = "auto",
        weights: Rule = "cooccurrence",
        shared_leaves: Shared = "divided",
        ensemble: int | Literal["auto"] = "auto",
        target: str | None = None,
        share_target: bool = False,
        share_clusters: bool | Literal["auto"] = "auto",
        refine: int = 0,
        validation: float = 0.1,
        summation: Summation = HUB,
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
    ) -> None:
        self.learner = learner
        self.clusters = clusters
        self.products = products
        self.weights = weights
        self.shared_leaves = shared_leaves
        self.ensemble = ensemble
        self.target = target
        self.share_target = share_target
        self.share_clusters = share_clusters
        self.refine = refine
        self.validation = validation
        self.summation = summation
        self.on_lost = on_lost
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        engine: str | Engine = "memory",
        resume: bool = False,
    ) -> Self:
        """Learn from a federation. ``resume`` takes up the work of a run that has failed."""
        federation = require_federation(X, "FedPC")
        self._check_settings(federation)
        self._state = state = State.of(self, resume)
        missed = _missed if self.on_lost == "continue" else None
        with Bar("FedPC"):
            run = run_training(
                federation,
                lambda f: self._programs(
                    f, state, self.summation.without_lost(federation.names, f.names)
                ),
                engine,
                state,
                missed,
            )
        self._keep(run)
        return self

    def _programs(
        self, federation: Federation, state: State, summation: Summation
    ) -> dict[str, Program[Result]]:
        seed = state.seed if self.random_state is None else self.random_state
        clusters, ensemble, found = self.clusters, self.ensemble, None
        share = self.share_clusters
        if share == "auto":
            share = not isinstance(summation, Secret)
        if isinstance(clusters, Clustering):  # one circuit of clusters that all have
            found, clusters, share = clusters.labels_, "auto", False
            ensemble = 1 if ensemble == "auto" else ensemble
        plan = Plan(
            clusters, self.products, self.weights, self.shared_leaves, ensemble, self.target,
            self.share_target, share, self.refine, float(self.validation), seed, summation,
        )  # fmt: skip
        told = {"members": federation.names, "plan": _at_one_party(plan)}
        programs: dict[str, Program[Result]] = {COORDINATOR: Program(one_pass.coordinator, told)}
        for party in federation:
            kept = _at_one_party(plan)
            own = {"party": party, "plan": kept, "learner": self._learner(party.name)}
            given = None if found is None else found[party.name]
            own |= {"secret": state.secret, "clusters": given}
            programs[party.name] = Program(one_pass.client, own)
        return programs

    def _learner(self, party: str) -> Learner:
        if isinstance(self.learner, Mapping):
            return self.learner[party]
        return LearnSPN() if self.learner is None else self.learner

    def _keep(self, run: Run[Result]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, Trained)
        self.joint_ = trained.joint
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, View)}
        self.notes_, self.history_ = trained.notes, trained.history
        self.validation_history_ = trained.validation
        self.circuit_, self.placement_ = trained.joint.circuit, trained.joint.placement
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self.kind_, self._run = run.federation.kind, run.engine
        for state in ("_state", "_ready"):
            self.__dict__.pop(state, None)
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=3)

    def _check_settings(self, federation: Federation) -> None:
        numbers: dict[str, object] = {"products": self.products, "ensemble": self.ensemble}
        if isinstance(self.clusters, Clustering):
            _check_labels(self.clusters.labels_, federation)
        else:
            numbers["clusters"] = self.clusters
        for name, value in numbers.items():
            if value != "auto" and (not isinstance(value, int | np.integer) or value < 1):
                raise FederationError(f"{name} must be 'auto' or a number from 1, got {value!r}")
        if not isinstance(self.refine, int | np.integer) or self.refine < 0:
            raise FederationError(f"refine must be a number of rounds from 0, got {self.refine!r}")
        number = isinstance(self.validation, float | int | np.number)
        if not number or not 0 <= self.validation < 1:
            raise FederationError(
                f"validation must be a share of rows from 0 to below 1, got {self.validation!r}"
            )
        for name, word, known in (
            ("weights", self.weights, ("cooccurrence", "sizes", "em")),
            ("shared_leaves", self.shared_leaves, ("divided", "cluster", "pooled")),
            ("on_lost", self.on_lost, ("stop", "continue")),
            ("share_clusters", self.share_clusters, ("auto", True, False)),
        ):
            if word not in known:
                expected = ", ".join(map(str, known))
                raise FederationError(f"{name} must be one of {expected}, got {word!r}")
        if isinstance(self.learner, Mapping):
            absent = [n for n in federation.names if n not in self.learner]
            if absent:
                raise FederationError(
                    f"learner has none for {absent[0]!r}: give one for each party"
                )
        if self.target is not None:
            federation.schema.index(self.target)
        require_summation("summation", self.summation)
        if self.refine and federation.kind == "horizontal":
            self.summation.members(federation.names)  # an error where they cannot add up so
        elif isinstance(self.summation, Secret) and federation.kind != "horizontal":
            self._check_secret(self.summation, federation)

    def _check_secret(self, summation: Secret, federation: Federation) -> None:
        """What parties with other columns can do on shares."""
        if summation.threshold != "majority":
            raise FederationError(
                f"summation=Secret(threshold={summation.threshold!r}) cannot count where clusters "
                "meet, which multiplies shares: take threshold='majority'"
            )
        if not self.refine and self.weights != "em":
            return
        summation.members(federation.names)  # an error of fewer than three
        if self.shared_leaves != "divided" and federation.kind == "hybrid":
            raise FederationError(
                f"shared_leaves={self.shared_leaves!r} mixes leaves of several parties, which EM "
                "on secret sums cannot: take shared_leaves='divided', or summation=Hub()"
            )

    # ------------------------------------------------------------------ questions

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
        weights = self.joint_.parameters.values
        return CircuitModel(self.circuit_, Parameters(weights, inner), self.target)

    def plot(self, given: Given = None, columns: Sequence[str] | None = None) -> Figure:
        """The picture of the collected circuit, if every party has allowed it."""
        return self.collect().plot(given, columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The collected circuit as one .fc file, if every party has allowed it."""
        self.collect().save(path)

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_state"}


def _at_one_party(plan: Plan) -> Plan:
    return replace(plan, summation=plan.summation.for_party())


def _check_labels(labels: Mapping[str, Labels], federation: Federation) -> None:
    for party in federation:
        own = labels.get(party.name)
        if own is None or len(own) != len(party.table):
            found = "none" if own is None else f"{len(own):,}"
            raise FederationError(
                f"clusters must have a label for each of {party.name}'s {len(party.table):,} rows, "
                f"got {found}: fit the mixture on the same federation"
            )


def _missed(federation: Federation, lost: str) -> str:
    """What a circuit cannot be without: variables that only the lost party holds."""
    others = {n for p in federation for n in p.table.names if p.name != lost}
    alone = [n for n in federation[lost].table.names if n not in others]
    return f"nobody else holds {', '.join(map(repr, alone[:4]))}" if alone else ""

"""FedPC: one circuit from data that stay with their parties, however they are split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

from fedcircuits.arguments import (
    COLUMN,
    FLAG,
    ROWS_HELD_BACK,
    SEED,
    Choice,
    Declared,
    Instance,
    Whole,
)
from fedcircuits.errors import FederationError
from fedcircuits.estimators.distribution import FederatedCircuit
from fedcircuits.estimators.federated import (
    ON_LOST,
    SUMMATION,
    FederatedRun,
    TrainingState,
    check_one_each,
)
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import Labels
from fedcircuits.methods.fedpc import training as one_pass
from fedcircuits.methods.fedpc.planning import HUB, FedPCPlan, Rule, Shared
from fedcircuits.methods.fedpc.training import LeafLearner, TrainedCircuit

Result = View | TrainedCircuit


@runtime_checkable
class Clustering(Protocol):
    """Clusters that parties have found together: a label for each of a party's rows."""

    labels_: dict[str, Labels]


class FedPC(FederatedCircuit[Result]):
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

    >>> import numpy as np
    >>> import fedcircuits as fc
    >>> rng = np.random.default_rng(0)
    >>> table = fc.Table.of(rng.normal(size=(200, 1)) + rng.normal(size=(200, 4)))
    >>> model = FedPC(random_state=0).fit(fc.split(table, 2, by="columns"))
    >>> model.kind_, model.score_samples(table).shape
    ('vertical', (200,))
    """

    history_: tuple[float, ...]  # of rows of EM, mean log-likelihood before every round
    validation_history_: tuple[float, ...]  # of rows held back, before EM and after every round

    allowed: ClassVar[Declared] = {
        "clusters": Whole(1, or_=("auto", Instance(Clustering, "a mixture of this federation"))),
        "products": Whole(1, or_=("auto",)),
        "weights": Choice(*get_args(Rule)),
        "shared_leaves": Choice(*get_args(Shared)),
        "ensemble": Whole(1, or_=("auto",)),
        "target": COLUMN,
        "share_target": FLAG,
        "share_clusters": Choice("auto", True, False),
        "refine": Whole(0),
        "validation": ROWS_HELD_BACK,
        "summation": SUMMATION,
        "on_lost": ON_LOST,
        "random_state": SEED,
    }

    def __init__(
        self,
        learner: LeafLearner | Mapping[str, LeafLearner] | None = None,
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

    def _programs(self, federation: Federation, state: TrainingState) -> dict[str, Program[Result]]:
        summation = self.summation.without_lost(state.parties, federation.names)
        seed = state.seed
        clusters, ensemble, labels = self.clusters, self.ensemble, None
        share = self.share_clusters
        if share == "auto":
            share = not summation.hides
        if isinstance(clusters, Clustering):  # one circuit of clusters that all have
            labels, clusters, share = clusters.labels_, "auto", False
            ensemble = 1 if ensemble == "auto" else ensemble
        plan = FedPCPlan(
            federation.names, clusters, self.products, self.weights, self.shared_leaves, ensemble,
            self.target, self.share_target, share, self.refine, float(self.validation), seed,
            summation,
        )  # fmt: skip
        programs: dict[str, Program[Result]] = {
            COORDINATOR: Program(one_pass.coordinator, {"plan": _at_one_party(plan)})
        }
        for party in federation:
            given = None if labels is None else labels[party.name]
            arguments = {"party": party, "plan": _at_one_party(plan), "secret": state.secret}
            arguments |= {"learner": self._learner(party.name), "given": given}
            programs[party.name] = Program(one_pass.client, arguments)
        return programs

    def _learner(self, party: str) -> LeafLearner:
        if isinstance(self.learner, Mapping):
            return self.learner[party]
        return LearnSPN() if self.learner is None else self.learner

    def _missing_without(self, federation: Federation, lost: str) -> str:
        """Variables that only the lost party holds."""
        others = {n for p in federation for n in p.table.names if p.name != lost}
        alone = [n for n in federation[lost].table.names if n not in others]
        return f"nobody else holds {', '.join(map(repr, alone[:4]))}" if alone else ""

    def _keep(self, run: FederatedRun[Result]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedCircuit)
        self.joint_ = trained.joint
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, View)}
        self.notes_, self.history_ = trained.notes, trained.history
        self.validation_history_ = trained.validation
        self.circuit_, self.placement_ = trained.joint.circuit, trained.joint.placement

    def _check_federation(self, federation: Federation) -> Federation:
        if isinstance(self.clusters, Clustering):
            _check_labels(self.clusters.labels_, federation)
        check_one_each("learner", self.learner, federation)
        if self.target is not None:
            federation.schema.index(self.target)
        if self.refine and federation.kind == "horizontal":
            self.summation.members(federation.names)  # an error where they cannot add up so
        elif federation.kind != "horizontal":
            self.summation.require_counts("summation")
            if self.summation.hides and (self.refine or self.weights == "em"):
                self._check_em_by_sums(federation)
        return federation

    def _check_em_by_sums(self, federation: Federation) -> None:
        self.summation.members(federation.names)  # an error of fewer than three
        if self.shared_leaves != "divided" and federation.kind == "hybrid":
            raise FederationError(
                f"shared_leaves={self.shared_leaves!r} mixes leaves of several parties, which EM "
                "on secret sums cannot: take shared_leaves='divided', or summation=Hub()"
            )


def _at_one_party(plan: FedPCPlan) -> FedPCPlan:
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

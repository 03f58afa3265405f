"""FedPC: one circuit from data that stay with their parties, however they are split."""

from __future__ import annotations

from collections.abc import Mapping
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
from fedcircuits.methods.fedpc import training
from fedcircuits.methods.fedpc.planning import HUB, FedPCPlan, Rule, Shared
from fedcircuits.methods.fedpc.training import LeafLearner, TrainedCircuit

Result = View | TrainedCircuit


@runtime_checkable
class Clustering(Protocol):
    """Clusters that parties have found together: a label for each of a party's rows."""

    labels_: dict[str, Labels]


class FedPC(FederatedCircuit[Result]):
    """One joint distribution over the variables of all parties, however the data are split.

    Parameters
    ----------
    learner : estimator or dict of str to estimator, optional
        Learns the leaves: one for all parties, or one for each by name. By default ``LearnSPN()``.
    clusters : int, "auto" or fitted mixture, default="auto"
        How many clusters each party forms of its rows, where parties hold different columns. Or a
        mixture that was learned from the same federation (``VerticalGaussianMixture``,
        ``VerticalKMeans``), whose clusters all parties then share.
    products : int or "auto", default="auto"
        How many combinations of clusters to keep at most; "auto" keeps all that occur.
    weights : {"cooccurrence", "sizes", "em"}, default="cooccurrence"
        Weights of combinations: how many rows have them, the paper's rule by sizes of clusters, or
        counts of rows refined by EM.
    shared_leaves : {"divided", "cluster", "pooled"}, default="divided"
        Columns that several parties hold: each party in turn models them with its other columns,
        or every holder has a leaf for every cluster, or, the paper's rule, one leaf for all rows.
    ensemble : int or "auto", default="auto"
        How many circuits to mix where parties hold different columns; "auto" is two, or four
        where rows are few.
    target : str, optional
        The column to predict; rows of different classes are in different clusters.
    share_target : bool, default=False
        Whether holders of the target tell the others the class of shared rows.
    share_clusters : bool or "auto", default="auto"
        Whether parties hear which of the shared rows are alike at other parties; "auto": unless
        sums are secret.
    refine : int, default=0
        Rounds of EM over the whole circuit: on rows that all parties hold or, where they hold
        different rows of the same columns, on all rows, which needs ``allow_collect``.
    validation : float, default=0.1
        The share of these rows that EM does not learn from: it ends with the best round on them.
        Of fewer than 50 rows none are held back. With 0.0 all rounds are made.
    summation : Summation, default=Hub()
        Who adds up in EM over all rows: ``Hub()``, ``Tree(…)`` or ``Secret()``. With ``Secret()``
        it is counted on shares where clusters meet, and EM on shared rows goes by sums.
    on_lost : {"stop", "continue"}, default="stop"
        What to do when a party is lost; "continue" is possible where others hold its columns.
    random_state : int, optional
        A seed gives the same model again.

    Examples
    --------
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
        share = not summation.hides if self.share_clusters == "auto" else self.share_clusters
        clusters, ensemble, labels = self.clusters, self.ensemble, {}
        if isinstance(clusters, Clustering):  # one circuit of clusters that all have
            labels, clusters, share = clusters.labels_, "auto", False
            ensemble = 1 if ensemble == "auto" else ensemble
        plan = FedPCPlan(
            federation.names, clusters, self.products, self.weights, self.shared_leaves, ensemble,
            self.target, self.share_target, share, self.refine, float(self.validation),
            state.seed, summation,
        )  # fmt: skip
        programs: dict[str, Program[Result]] = {
            COORDINATOR: Program(training.coordinator, {"plan": plan.for_party()})
        }
        for party in federation:
            arguments = {"party": party, "plan": plan.for_party(), "secret": state.secret}
            arguments |= {"learner": self._learner(party.name), "given": labels.get(party.name)}
            programs[party.name] = Program(training.client, arguments)
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
        self.joint_, self.notes_ = trained.refined.joint, trained.notes
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, View)}
        self.history_, self.validation_history_ = (
            trained.refined.history,
            trained.refined.validation,
        )
        self.circuit_, self.placement_ = self.joint_.circuit, self.joint_.placement

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
                self.summation.members(federation.names)  # an error with fewer than three
                self._check_leaves_of_one(federation)
        return federation

    def _check_leaves_of_one(self, federation: Federation) -> None:
        if self.shared_leaves != "divided" and federation.kind == "hybrid":
            raise FederationError(
                f"shared_leaves={self.shared_leaves!r} mixes leaves of several parties, which EM "
                "on secret sums cannot: take shared_leaves='divided', or summation=Hub()"
            )


def _check_labels(labels: Mapping[str, Labels], federation: Federation) -> None:
    for party in federation:
        given = labels.get(party.name)
        if given is None or len(given) != len(party.table):
            found = "none" if given is None else f"{len(given):,}"
            raise FederationError(
                f"clusters must have a label for each of {party.name}'s {len(party.table):,} rows, "
                f"got {found}: fit the mixture on the same federation"
            )

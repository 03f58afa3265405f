"""FedPC: one circuit from data that stay with their parties, however they are split."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, get_args, runtime_checkable

import numpy as np

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
    ROWS,
    SUMMATION,
    FederatedRun,
    TrainingState,
    check_one_each,
)
from fedcircuits.estimators.federated_learner import SharedByEM
from fedcircuits.estimators.hidden_tree import HiddenChowLiuTree
from fedcircuits.estimators.learn_spn import LearnSPN
from fedcircuits.estimators.normals import MixtureOfNormals
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import Answers, View
from fedcircuits.federation.recipes import Held
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.counting import Labels
from fedcircuits.methods.fedpc import training
from fedcircuits.methods.fedpc.clusters import MOST_CIRCUITS
from fedcircuits.methods.fedpc.leaves import LeafLearner
from fedcircuits.methods.fedpc.planning import HUB, Dependence, FedPCPlan, Rule, Shared
from fedcircuits.methods.fedpc.training import TrainedCircuit
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.shared.alone import FEW_ROWS
from fedcircuits.privacy.differential import no_privacy
from fedcircuits.privacy.hidden_sums import Masked
from fedcircuits.privacy.sharing.shares import threshold

Result = View | Held | TrainedCircuit
MASKED = Masked()
FEWEST_ROUNDS = 20  # of EM by sums
OF_CLUSTERS = (
    "learner", "clusters", "products", "weights", "shared_leaves", "ensemble", "share_target",
    "share_clusters", "refine",
)  # fmt: skip


@runtime_checkable
class Clustering(Protocol):
    """Clusters that parties have found together: a label for each of a party's rows."""

    labels_: dict[str, Labels | Held]  # or where the party keeps them


class FedPC(FederatedCircuit[Result]):
    """One joint distribution over the variables of all parties, however the data are split.

    Parameters
    ----------
    learner : estimator or dict of str to estimator, optional
        Learns the leaves: one for all parties, or one for each by name. By default ``LearnSPN()``.
    method : {"auto", "one_pass"} or estimator, default="auto"
        For parties that hold different rows of the same columns. "one_pass": the circuits that
        parties learn alone, mixed by their rows. An estimator that learns by EM
        (``MixtureOfNormals``, ``HiddenChowLiuTree``, ``MixtureOfProducts``, ``EinsumNetwork``): one
        circuit by sums, mixed with these by weights fitted on held-out rows. "auto": a mixture of a
        few such circuits if there are three or more parties, the median party has fewer than 2,000
        rows, and ``summation`` hides what a single party adds, as it does by default, unless
        ``learner`` or ``refine`` is given. If nothing can be hidden, as between two parties, each
        party with fewer than 2,000 rows learns and mixes such circuits by itself. With
        ``learner=HiddenChowLiuTree(…)`` that tree is learned by sums, in at least 20 rounds, if
        parties have fewer than 10,000 rows. ``notes_`` says what was chosen by sums and why.
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
        Columns that several parties hold: each party in turn models them with the rest of its
        columns, or every holder has a leaf for every cluster, or, the paper's rule, one leaf for
        all rows.
    ensemble : int or "auto", default="auto"
        How many circuits to mix where parties hold different columns, 16 at most: each shows the
        coordinator one more cluster of every row. "auto" is two, or four where rows are few.
    target : str, optional
        The column to predict; rows of different classes are in different clusters.
    share_target : bool, default=False
        Whether holders of the target send the others the class of shared rows.
    share_clusters : bool, default=False
        Whether parties learn which of their rows are similar in other parties' numbers, in at most
        four groups. This may reveal these numbers coarsely, for rows that the reader can identify.
    refine : int, default=0
        Rounds of EM over the whole circuit: on rows that all parties hold or, where they hold
        different rows of the same columns, on all rows, which needs ``allow_collect``.
    validation : float, default=0.1
        The fraction of these rows that is held out: EM returns the round that is best on them. Of
        fewer than 50 rows none are held out. With 0.0 all rounds are made.
    rows : {"tokens", "private"}, default="tokens"
        How rows are matched: by hashes of their ids under a key unknown to the coordinator, or by
        private set intersection (the extra ``psi``), which matches the rows that all parties hold.
    summation : Summation or "auto", default="auto"
        Who adds up: ``Hub()``, ``Tree(…)``, ``Masked()`` or ``Secret()``. With
        ``Secret()``, combinations of clusters are counted on shares, and EM on shared rows uses
        sums. "auto":
        ``Masked()`` for circuits by sums of three or more parties, else ``Hub()``.
    answers : {"leaves", "root"}, default="leaves"
        What the coordinator learns in a query: the likelihood of the evidence under each leaf, or
        only that of the whole circuit, which three or more parties add up on shares. "root"
        supports no means, samples or completions.
    dependence : {"auto", "pairs", "combinations"}, default="auto"
        What joins parties that hold different columns. With "pairs", a latent tree over the cells
        of all columns: the coordinator learns a table for every pair of columns, how many rows have
        which of at most 24 cells of both, by class of the target. A row has a different token for
        every pair, and at least ``least_count`` rows of a party share its cells. The more columns
        and the fewer rows, the coarser are cells in pairs, so that the tables of all pairs hold
        fewer bits than the rows. With
        "combinations", those of the parties' clusters that occur: for each sealed row token, the
        coordinator learns one cluster per party and circuit. "auto": pairs; combinations if
        ``summation`` hides or ``answers="root"``, and if an argument that shapes clusters is given
        (``learner``, ``clusters``, ``products``, ``weights``, ``shared_leaves``, ``ensemble``,
        ``share_target``, ``share_clusters``, ``refine``).
    on_lost : {"stop", "continue"}, default="stop"
        What to do when a party is lost; "continue" is possible where others hold its columns.
    random_state : int, optional
        A seed gives the same model again.
    privacy : None
        Differential privacy is refused: clusters and leaves are learned from rows without noise.

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
        "method": Instance(SharedByEM, "an estimator that learns by EM", or_=("auto", "one_pass")),
        "clusters": Whole(1, or_=("auto", Instance(Clustering, "a mixture of this federation"))),
        "products": Whole(1, or_=("auto",)),
        "weights": Choice(*get_args(Rule)),
        "shared_leaves": Choice(*get_args(Shared)),
        "ensemble": Whole(1, MOST_CIRCUITS, or_=("auto",)),
        "target": COLUMN,
        "share_target": FLAG,
        "share_clusters": FLAG,
        "refine": Whole(0),
        "validation": ROWS_HELD_BACK,
        "rows": ROWS,
        "summation": replace(SUMMATION, or_=("auto",)),
        "answers": Choice(*get_args(Answers)),
        "dependence": Choice("auto", *get_args(Dependence)),
        "on_lost": ON_LOST,
        "random_state": SEED,
        "privacy": no_privacy("clusters and leaves are learned from rows without noise"),
    }

    def __init__(
        self,
        learner: LeafLearner | Mapping[str, LeafLearner] | None = None,
        *,
        method: Literal["auto", "one_pass"] | SharedByEM = "auto",
        clusters: int | Literal["auto"] | Clustering = "auto",
        products: int | Literal["auto"] = "auto",
        weights: Rule = "cooccurrence",
        shared_leaves: Shared = "divided",
        ensemble: int | Literal["auto"] = "auto",
        target: str | None = None,
        share_target: bool = False,
        share_clusters: bool = False,
        refine: int = 0,
        validation: float = 0.1,
        rows: RowRule = "tokens",
        summation: Summation | Literal["auto"] = "auto",
        answers: Answers = "leaves",
        dependence: Dependence | Literal["auto"] = "auto",
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
        privacy: None = None,
    ) -> None:
        self.learner = learner
        self.method = method
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
        self.rows = rows
        self.summation = summation
        self.answers = answers
        self.dependence = dependence
        self.on_lost = on_lost
        self.random_state = random_state
        self.privacy = privacy

    # ------------------------------------------------------------------ training

    def _programs(self, federation: Federation, state: TrainingState) -> dict[str, Program[Result]]:
        summation = self._adding(federation).without_lost(state.parties, federation.names)
        clusters, ensemble, labels = self.clusters, self.ensemble, {}
        share = self.share_clusters
        if isinstance(clusters, Clustering):  # one circuit of clusters that all have
            labels, clusters, share = clusters.labels_, "auto", False
            ensemble = 1 if ensemble == "auto" else ensemble
        plan = FedPCPlan(
            federation.names, clusters, self.products, self.weights, self.shared_leaves, ensemble,
            self.target, self.share_target, share, self.refine, float(self.validation),
            state.seed, summation, self.rows, self.answers, self._joining(summation),
            max(party.least_count for party in federation),
        )  # fmt: skip
        secret, sharers = state.secrets_of(federation.names, self.rows), self._sharers(federation)
        mixed = self._mixed(federation)
        leads = replace(plan.for_party(), draws=b"")  # it has no rows to draw
        programs: dict[str, Program[Result]] = {
            COORDINATOR: Program(training.coordinator, {"plan": leads, "sharers": sharers})
        }
        for party in federation:
            arguments = {"party": party, "plan": plan.for_party(), "secret": secret[party.name]}
            arguments |= {"learner": self._learner(party.name), "given": labels.get(party.name)}
            arguments |= {"sharers": sharers, "mixed": mixed}
            programs[party.name] = Program(training.client, arguments)
        return programs

    def _adding(self, federation: Federation) -> Summation:
        """Who adds up. Circuits by sums hide what a single party adds; the rest needs no sums, or
        counts where clusters meet."""
        if isinstance(self.summation, Summation):
            return self.summation
        rows = federation.kind == "horizontal" and len(federation) > 2
        return MASKED if rows and not self.refine else HUB

    def _joining(self, summation: Summation) -> Dependence:
        """What joins parties that hold different columns."""
        if self.dependence != "auto":
            return self.dependence
        usual = inspect.signature(type(self)).parameters
        shaped = any(getattr(self, name) != usual[name].default for name in OF_CLUSTERS)
        hidden = summation.hides or self.answers == "root"
        return "combinations" if shaped or hidden else "pairs"

    def _sharers(self, federation: Federation) -> tuple[SharedByEM, ...]:
        """Circuits by sums in question."""
        if federation.kind != "horizontal" or len(federation) < 2 or self.refine:
            return ()
        if isinstance(self.method, SharedByEM):
            return (self.method.to_send(),)
        adding = self._adding(federation)
        hidden = adding.exact and adding.hides and len(federation) > 2
        if self.method == "one_pass" or self.answers == "root" or not hidden:
            return ()
        if isinstance(self.learner, HiddenChowLiuTree):
            rounds = max(self.learner.epochs, FEWEST_ROUNDS)  # one over all rows is one update
            return (self.learner.to_send().set_params(epochs=rounds, target=self.target),)
        return () if self.learner is not None else self._candidates(federation)

    def _mixed(self, federation: Federation) -> tuple[SharedByEM, ...]:
        """Circuits that parties of few rows learn alone and mix, where nothing is added up."""
        usual = self.method == "auto" and self.learner is None and not self.refine
        if federation.kind != "horizontal" or not usual or self._sharers(federation):
            return ()
        return self._candidates(federation)

    def _candidates(self, federation: Federation) -> tuple[SharedByEM, ...]:
        """Circuits that suit few rows."""
        classes = None if self.target is None else federation.schema[self.target].size
        rows = sum(len(party.table) for party in federation)
        several = min(4, max(2, rows // (30 * (classes or 1))))
        alike = 10.0 * len(federation.schema)  # one covariance for all classes, but for many rows
        learners: list[SharedByEM] = [
            MixtureOfNormals(1, target=self.target),
            MixtureOfNormals(1, target=self.target, pooled=alike),
            MixtureOfNormals(several, target=self.target, apart=True),
        ]
        if sum(v.kind != "real" for v in federation.schema) > 2:
            units = min(32, max(16, 2 * (classes or 1)))
            learners.append(HiddenChowLiuTree(units, epochs=20, target=self.target).to_send())
        return tuple(learners)

    def _by_sums(self, federation: Federation) -> bool:
        """Whether circuits by sums are learned, for which a column may be empty at a party."""
        rows = [len(party.table) for party in federation]
        few = isinstance(self.method, SharedByEM) or float(np.median(rows)) < FEW_ROWS
        return few and bool(self._sharers(federation))

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
        self._choices = (trained.choice,) if trained.choice else ()
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, View | Held)}
        self.history_, self.validation_history_ = (
            trained.refined.history,
            trained.refined.validation,
        )
        self.circuit_, self.placement_ = self.joint_.circuit, self.joint_.placement

    def _check_federation(self, federation: Federation) -> Federation:
        if not self._by_sums(federation):
            federation = federation.without_empty()
        summation = self._adding(federation)
        summation.prepare("summation")
        if isinstance(self.clusters, Clustering):
            _check_labels(self.clusters.labels_, federation)
        check_one_each("learner", self.learner, federation)
        if self.target is not None:
            federation.schema.index(self.target)
        if isinstance(self.method, SharedByEM) and self.method.privacy is not None:
            raise FederationError(
                f"{type(self.method).__name__}(privacy=…) is mixed with circuits that parties "
                "learn without noise, and chosen by likelihoods without noise, so that nothing is "
                f"guaranteed: fit {type(self.method).__name__} on the federation itself"
            )
        if self.dependence == "pairs" and (summation.hides or self.answers == "root"):
            raise FederationError(
                "dependence='pairs' needs tables of pairs and the values of leaves at the "
                "coordinator, which summation=Secret() and answers='root' hide: take "
                "dependence='combinations', or summation=Hub() and answers='leaves'"
            )
        if self.answers == "root":
            threshold(len(federation))  # an error with fewer than three
            self._check_leaves_of_one(federation, "answers='root'", "answers='leaves'")
        if self.refine and federation.kind == "horizontal":
            summation.members(federation.names)  # an error where they cannot add up so
        elif federation.kind != "horizontal":
            summation.require_counts("summation")
            if summation.hides and (self.refine or self.weights == "em"):
                summation.members(federation.names)  # an error with fewer than three
                self._check_leaves_of_one(federation, "EM on secret sums", "summation=Hub()")
        return federation

    def _check_leaves_of_one(self, federation: Federation, what: str, other: str) -> None:
        if self.shared_leaves != "divided" and federation.kind == "hybrid":
            raise FederationError(
                f"shared_leaves={self.shared_leaves!r} mixes leaves of several parties, which "
                f"{what} cannot: take shared_leaves='divided', or {other}"
            )


def _check_labels(labels: Mapping[str, Labels | Held], federation: Federation) -> None:
    absent = [name for name in federation.names if name not in labels]
    if absent:
        raise FederationError(
            f"clusters have no labels of {absent[0]}: fit the mixture on the same federation"
        )

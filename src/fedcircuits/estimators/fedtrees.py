"""FedTrees: decision trees held by their parties, and predictions from all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import COLUMN, FLAG, SEED, Choice, Declared, Real, Whole
from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators import questions, trees_file
from fedcircuits.estimators.federated import (
    ON_LOST,
    ROWS,
    SUMMATION,
    FederatedEstimator,
    FederatedRun,
    TrainingState,
    check_one_each,
)
from fedcircuits.estimators.in_notebooks import ShownInNotebooks
from fedcircuits.estimators.model import Rows
from fedcircuits.estimators.parts import refuse_to_collect
from fedcircuits.estimators.targets import Task, score_predictions, task_of_parties
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.messages import require
from fedcircuits.federation.placement import Placement, leaves_at
from fedcircuits.federation.recipes import Held
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.methods.meeting.collecting import LearnedPart
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.methods.trees import ensemble, noisy, training
from fedcircuits.methods.trees.decision_tree import DecisionTreeLeaf, Predictor
from fedcircuits.methods.trees.ensemble import TreeEnsemble, fused, party_vector
from fedcircuits.methods.trees.growing import Grow, Join, TreesPlan, Weights
from fedcircuits.methods.trees.training import TrainedTrees
from fedcircuits.privacy.differential import PRIVACY, DifferentialPrivacy
from fedcircuits.tables.inference import values_of
from fedcircuits.tables.schema import Scalar, Schema
from fedcircuits.tables.table import Table

Result = TreeEnsemble | TrainedTrees


class Predictions(ShownInNotebooks, BaseEstimator):  # type: ignore[misc]
    """Predictions of an ensemble of trees in the user's values."""

    target: str | None
    schema_: Schema  # of all parties
    circuit_: Circuit  # over the columns that some tree reads
    threshold_: float  # of two classes, on the probability of the second

    def classes(self, target: str | None = None) -> tuple[Scalar, ...]:
        """The classes, one per column of ``predict_proba``."""
        name = self._target(target)
        return questions.classes(name, self.schema_)

    def predict_proba(self, X: Rows, target: str | None = None) -> Array:
        """P(target = class | row), shape (rows, classes), in the order of ``classes()``.

        A party is skipped for rows that have none of its columns; a row without any known column
        gets the overall class frequencies. A column of the target in X is ignored.
        """
        self.classes(target)
        return self._vectors(X)

    def predict(self, X: Rows, target: str | None = None) -> npt.NDArray[np.generic]:
        """The most probable class of every row, or the mean of a real or count.

        With a ``threshold``, the second of two classes is predicted from that probability on.
        """
        name = self._target(target)
        variable, vectors = self.schema_[name], self._vectors(X)
        return values_of(variable, self._decided(vectors)) if variable.size else vectors[:, 0]

    def score(self, X: Rows, y: npt.ArrayLike | None = None) -> float:
        """Accuracy of classes, or R² of a real or count.

        ``y`` holds the true values, by default the column of the target in X; rows without a value
        are ignored.
        """
        name = self._target(None)
        variable = self.schema_[name]
        truth = X if y is None else pd.DataFrame({name: np.asarray(y)})
        only = Schema((variable,)) if y is not None else self.schema_
        wanted = Table.of(truth, schema=only, partial=True).values[:, only.index(name)]
        vectors = self._vectors(X)
        predicted = self._decided(vectors) if variable.size else vectors[:, 0]
        return score_predictions(variable, predicted, wanted)

    def _decided(self, vectors: Array) -> Array:
        """(rows,) codes of classes."""
        if self.threshold_ == 0.5:
            return np.asarray(vectors.argmax(axis=1), np.float64)
        return np.asarray(vectors[:, 1] >= self.threshold_, np.float64)

    def _target(self, target: str | None) -> str:
        if not hasattr(self, "circuit_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        if target not in (None, self.target):
            raise QueryError(f"these trees predict {self.target!r}, not {target!r}")
        return str(self.target)

    def _vectors(self, X: Rows) -> Array:
        name = self._target(None)
        x = questions.values_of(X, self.schema_, ignore=name)
        return self._answers(x[:, [self.schema_.index(n) for n in self.circuit_.schema.names]])

    def _answers(self, x: Array) -> Array:
        """(rows, outputs) of x (rows, variables of the circuit)."""
        raise NotImplementedError


class CollectedTrees(Predictions):
    """The trees of all parties as a local model (``FedTrees.collect``)."""

    def __init__(self, ensemble: TreeEnsemble, schema: Schema) -> None:
        self.ensemble = ensemble
        self.schema = schema
        self.schema_, self.circuit_, self.target = schema, ensemble.circuit, ensemble.target.name
        self.threshold_ = ensemble.threshold

    def fit(self, X: object = None, y: object = None) -> Self:
        """Does nothing; present for compatibility with scikit-learn."""
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all trees atomically as one .fc file."""
        trees_file.write(self.ensemble, self.schema, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load saved trees."""
        return cls(*trees_file.read(path))

    def _answers(self, x: Array) -> Array:
        vectors = self.ensemble.absent(len(x))
        for party, vector in vectors.items():
            sees = ~np.isnan(x[:, self.ensemble.columns(party)]).all(axis=1)
            if sees.any():
                vector[sees] = party_vector(self.ensemble, party, x[sees])
        return fused(self.ensemble, vectors)


class FedTrees(FederatedEstimator[Result], Predictions):
    """Predict one column by decision trees of all parties; trees stay with their parties.

    Parameters
    ----------
    leaf : Predictor or dict of str to Predictor, default=DecisionTreeLeaf()
        The learner of bagged trees: one for all parties, or one per party.
    grow : {"auto", "bagged", "together"}, default="auto"
        "auto": a party whose columns nobody else holds boosts its trees, others bag theirs.
        "bagged": all parties bag, as in the paper. "together": parties with the same columns boost
        trees on all their rows, if all of them allow collection. Numbers are always bagged.
    trees : int or "auto", default="auto"
        The number of trees per party, or per group that grows trees together. "auto": 50 boosted
        trees, or 20 bagged ones on random rows and columns.
    columns : float or "auto", default="auto"
        The share of a party's columns that a bagged tree reads. "auto": 0.8 for classes, all for
        numbers.
    target : str
        The column to predict: a class or a number.
    task : {"auto", "classes", "number"}, default="auto"
        What the target is. "auto": at most 20 distinct whole numbers are classes.
    share_target : bool, default=False
        Whether holders of the target send its values for shared rows to the others. Otherwise
        parties without it do not take part.
    weights : {"rows", "equal"}, default="rows"
        How parties with the same columns are weighted.
    fuse : {"auto", "mean"}, default="auto"
        How parties are combined: "auto" takes the mean over parties with the same columns and, for
        classes, the product over different columns; "mean" of all is the rule of the paper.
    threshold : float or "macro-f1", default=0.5
        For two classes, the probability from which on the second is predicted. "macro-f1" chooses
        it by macro-F1 on training rows (methods/trees/threshold.py says what this reveals).
    rows : {"tokens", "private"}, default="tokens"
        How rows are matched: by hashes of their ids under a key unknown to the coordinator, or by
        private set intersection (the extra ``psi``), which matches the rows that all parties hold.
    summation : Summation, default=Hub()
        How sums are computed if trees grow together; ``Tree(…)`` needs no server, ``Secret()``
        hides the contributions of single parties.
    privacy : DifferentialPrivacy or None, default=None
        Differential privacy for the rows of all parties; for classes, parties with the same columns
        and ``grow="together"``. The splits of trees are then drawn at random.
    on_lost : {"stop", "continue"}, default="stop"
        Whether to continue without a lost party, if others hold the target.
    random_state : int or None, default=None
        The seed; the same seed gives the same model. None draws one.

    Examples
    --------
    >>> import fedcircuits as fc
    >>> table = fc.datasets.load("breast_cancer")
    >>> clinics = fc.split(table, 2, by="columns", target="diagnosis")
    >>> model = FedTrees(target="diagnosis", share_target=True, trees=3, random_state=0)
    >>> model.fit(clinics).predict(table)[:2].tolist(), model.circuit_.root.operation
    (['malignant', 'malignant'], 'product')
    >>> hospitals = fc.split(table, 3, target="diagnosis")
    >>> model = FedTrees(target="diagnosis", grow="together", random_state=0).fit(hospitals)
    >>> model.circuit_.root.children, len(list(model.circuit_.leaves()))
    (('party 1/trees',), 50)
    """

    views_: dict[str, TreeEnsemble | Held]  # each role's part, or a handle to it
    placement_: Placement

    allowed: ClassVar[Declared] = {
        "grow": Choice(*get_args(Grow)),
        "trees": Whole(1, or_=("auto",)),
        "columns": Real(above=0, most=1, what="a share", or_=("auto",)),
        "target": COLUMN,
        "share_target": FLAG,
        "weights": Choice(*get_args(Weights)),
        "fuse": Choice(*get_args(Join)),
        "threshold": Real(above=0, below=1, what="a probability", or_=("macro-f1",)),
        "rows": ROWS,
        "summation": replace(SUMMATION, or_=(None,)),
        "privacy": PRIVACY,
        "on_lost": ON_LOST,
        "random_state": SEED,
    }

    def __init__(
        self,
        leaf: Predictor | Mapping[str, Predictor] | None = None,
        *,
        grow: Grow = "auto",
        trees: int | Literal["auto"] = "auto",
        columns: float | Literal["auto"] = "auto",
        target: str | None = None,
        task: Task = "auto",
        share_target: bool = False,
        weights: Weights = "rows",
        fuse: Join = "auto",
        threshold: float | Literal["macro-f1"] = 0.5,
        rows: RowRule = "tokens",
        summation: Summation | None = None,
        privacy: DifferentialPrivacy | None = None,
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
    ) -> None:
        self.leaf = leaf
        self.grow = grow
        self.trees = trees
        self.columns = columns
        self.target = target
        self.task: Task = task
        self.share_target = share_target
        self.weights = weights
        self.fuse = fuse
        self.threshold = threshold
        self.rows = rows
        self.summation = summation
        self.privacy = privacy
        self.on_lost = on_lost
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def _check_federation(self, federation: Federation) -> Federation:
        task_of_parties(federation.schema, self.target, self.task)  # an error if it cannot be
        if self.leaf is not None and self.grow == "together":
            raise FederationError(
                "leaf= applies to bagged trees: leave it out with grow='together'"
            )
        if self.summation is not None and not self.summation.exact:
            raise FederationError(
                f"{type(self.summation).__name__} adds up approximately, so parties could grow "
                "different trees: use Hub() or Tree(…)"
            )
        check_one_each("leaf", self.leaf, federation)
        if self.target is None:
            raise FederationError("name the column to predict: FedTrees(target='…')")
        federation.schema.index(self.target)
        tables = [p.table for p in federation if self.target in p.table.schema]
        if not self.share_target and all(len(t.schema) == 1 for t in tables):
            raise FederationError(training.NOBODY.format(self.target))
        if self.grow == "together":
            refuse_to_collect({p.name: p.allow_collect for p in federation})
        if self.privacy is not None:
            self._check_private(federation, str(self.target))
        return federation

    def _check_private(self, federation: Federation, target: str) -> None:
        """FederationError unless noise in everything sent about rows gives a guarantee."""
        assert self.privacy is not None
        for holds, why in (
            (self.grow == "together", "trees that parties grow alone have no noise: privacy needs "
                                      "grow='together'"),
            (federation.kind == "horizontal", "privacy needs parties with the same columns: "
                                              "messages about single rows between parties with "
                                              "different columns have no noise"),
            (federation.schema[target].size > 0 and self.task != "number", "privacy needs "
             f"declared classes, but {target!r} is a number: trees that predict numbers have no "
             "noise; if its numbers are classes, declare them as categories"),
            (self.threshold != "macro-f1", "threshold='macro-f1' counts rows without noise: with "
                                           "privacy, give a probability"),
            ({*self.privacy.ranges} <= {*federation.schema.names}, "privacy names ranges of "
                                                                   "columns that no party has"),
        ):  # fmt: skip
            if not holds:
                raise FederationError(why)
        (self.summation or Hub()).members(federation.names)  # an error where they cannot

    def _programs(self, federation: Federation, state: TrainingState) -> dict[str, Program[Result]]:
        summation = Hub() if self.summation is None else self.summation
        noise = None if self.privacy is None else self.privacy.noise(summation, federation.names)
        plan = TreesPlan(
            str(self.target), self.share_target, self.trees, self.columns, self.weights, self.fuse,
            state.seed, self.grow if self.leaf is None else "bagged", self.threshold == "macro-f1",
            summation, max(party.least_count for party in federation), noise,
            {} if self.privacy is None else self.privacy.ranges, self.rows,
            task_of_parties(federation.schema, self.target, self.task),
        )  # fmt: skip
        secret = state.secrets_of(federation.names, self.rows)
        arguments: dict[str, object] = {"members": federation.names, "plan": plan}
        programs: dict[str, Program[Result]] = {
            COORDINATOR: Program(training.coordinator, arguments)
        }
        for party in federation:
            adds = summation.for_party()
            leaf = self.leaf[party.name] if isinstance(self.leaf, Mapping) else self.leaf
            arguments = {
                "party": party, "leaf": DecisionTreeLeaf() if leaf is None else leaf,
                "secret": secret[party.name],
                "plan": replace(plan, summation=adds, noise=noise and noise.for_party()),
            }  # fmt: skip
            programs[party.name] = Program(training.client, arguments)
        return programs

    def _missing_without(self, federation: Federation, lost: str) -> str:
        held = any(self.target in p.table.schema for p in federation if p.name != lost)
        return "" if held else f"nobody else holds {self.target!r}"

    def _keep(self, run: FederatedRun[Result]) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, TrainedTrees)
        view = trained.view
        if self.threshold != "macro-f1":
            view = replace(view, threshold=float(self.threshold))
        clients = {n: v for n, v in run.results.items() if isinstance(v, TreeEnsemble | Held)}
        self.views_, self.threshold_ = {COORDINATOR: view, **clients}, view.threshold
        self.notes_, self.schema_ = trained.notes, trained.schema
        self.circuit_, self.placement_ = view.circuit, view.placement
        if self.privacy is not None:
            trees, ranges = len(list(view.circuit.leaves())), self.privacy.ranges
            self._spend(noisy.shares_of(trees, view.circuit.schema, ranges))

    # ------------------------------------------------------------------ questions

    def _answers(self, x: Array) -> Array:
        view = self._joined
        programs: dict[str, Program[object]] = {
            COORDINATOR: Program(ensemble.ask, {"view": view, "x": x})
        }
        for party in ensemble.involved(view, x):
            programs[party] = Program(ensemble.respond, {"view": self.views_[party]})
        return self._ask(programs)[COORDINATOR]  # type: ignore[return-value]

    @property
    def _joined(self) -> TreeEnsemble:
        """The coordinator's part: the graph without trees."""
        view = self.views_[COORDINATOR]
        assert isinstance(view, TreeEnsemble)
        return view

    def collect(self) -> CollectedTrees:
        """All trees as a local model, if every party allows it."""
        self._check_collect()
        joined = self._joined
        parts = {n: v for n, v in self.views_.items() if n != COORDINATOR}
        values, trees = dict(joined.parameters.values), dict[str, Predictor]()
        for party, view in self._handed_over(parts, TreeEnsemble).items():
            names = {leaf.name for leaf in leaves_at(joined.circuit, joined.placement, party)}
            fits = view.predictors.keys() == names
            require(fits, party, LearnedPart, "part", "expected its own trees of this model")
            values |= view.parameters.values
            trees |= view.predictors
        view = replace(joined, parameters=Parameters(values), predictors=trees)
        return CollectedTrees(view, self.schema_)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> CollectedTrees:
        """Load saved trees as a local model."""
        return CollectedTrees.load(path)

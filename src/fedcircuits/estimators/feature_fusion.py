"""FeatureFusion: owners train their own encoders apart, and one prediction is made from all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators import fusion_file, fusion_setup, questions
from fedcircuits.estimators.progress import Bar
from fedcircuits.estimators.task import Task, for_task
from fedcircuits.estimators.training import Run, State, require_federation, run_training
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.placement import Placement
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.federation.tokens import Labels
from fedcircuits.learning.encoders.apart import reporting_to
from fedcircuits.methods.fusion import query as fusion_query
from fedcircuits.methods.fusion import training as fusion
from fedcircuits.methods.fusion.consensus_graph import Reference
from fedcircuits.methods.fusion.fitting import Fusion, Gathered
from fedcircuits.methods.fusion.fused import FusionView, OwnerView
from fedcircuits.methods.fusion.heads import Align, Head
from fedcircuits.methods.fusion.rows import Traffic
from fedcircuits.methods.fusion.together import Together
from fedcircuits.methods.fusion.training import Trained
from fedcircuits.methods.fusion.votes import Vote
from fedcircuits.pictures import fusion as fusion_pictures
from fedcircuits.tables.inference import values_of
from fedcircuits.tables.schema import Scalar, Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result: TypeAlias = OwnerView | Trained
Graph: TypeAlias = Literal["learned", "expected", "complete", "knn"] | npt.ArrayLike | None


class FeatureFusion(BaseEstimator):  # type: ignore[misc]
    """One prediction from owners of different features, who train apart and meet once.

    ``encoder``        of all owners, or a dict by owner: SequenceEncoder(), TabularEncoder(), any
                       object with ``encode(table)``, a trained torch module, a scikit-learn
                       transformer. By default one of the first two, as the owner has series or not
    ``align``          "linear", "sinkhorn" (nearly a permutation) or None: owners' representations
                       have their numbers in any order, alignment finds the common one
    ``graph``          over which owners are mixed: "learned", "expected" (learned, not drawn),
                       "complete", "knn", None, or weights (owners, owners) that are given
    ``head``           "gcn", "mean", "concat", "transformer"; or owners' own predictions, for
                       comparison: "vote", "threshold" (tuned), "best" (owner)
    ``reference``, ``temperature``, ``graph_draws``   of a learned graph's edges; how many graphs a
                       prediction is the mean of
    ``owner_dropout``  with which probability an owner is left out of a row in training: more of it
                       where owners will be missing
    ``traffic``        representations cross as "float32", "float16" or "int8"
    ``clip``, ``noise``  largest norm of a representation, and noise as a share of it
    ``training``       "apart"; or, for comparison, "tied" (owners average all weights but those of
                       first layers), "averaged" (all weights), "joint" (the fusion's gradient goes
                       back to owners), "scratch" (joint, from encoders that have learned nothing)
    ``summation``        owners add representations up and show no other, ``Secret()`` on secret
                       shares; for align=None and graph="complete", which need sums alone
    ``task``           "classes", "number" or "auto": at most 20 different whole numbers are classes
    ``share_target``   whether holders of the target tell it to owners without it; these learn
                       from their rows alone otherwise
    ``validation``     share of rows that everybody stops by
    ``on_lost``        an owner that is lost: "stop", or "continue" without it

    >>> import fedcircuits as fc
    >>> clinics = fc.split(fc.datasets.load("breast_cancer"), 3, by="columns", target="diagnosis")
    >>> encoder = fc.TabularEncoder(epochs=5)
    >>> model = FeatureFusion(encoder, share_target=True, epochs=5, random_state=0)
    >>> model.fit(clinics, target="diagnosis").predict_proba(clinics).shape
    (569, 2)
    >>> model.circuit_.root.operation, model.score(clinics) > 0.8
    ('gcn', True)
    """

    views_: dict[str, OwnerView]
    fusion_: FusionView
    circuit_: Circuit
    placement_: Placement
    ledger_: Ledger  # of training
    queries_: Ledger  # of questions since
    notes_: tuple[str, ...]
    target_: str

    def __init__(
        self,
        encoder: object | Mapping[str, object] | None = None,
        *,
        align: Align = "linear",
        graph: Graph = "learned",
        head: Head | Vote = "gcn",
        reference: Reference = "logistic",
        temperature: float = 0.1,
        graph_draws: int = 10,
        owner_dropout: float = 0.3,
        hidden: int = 8,
        epochs: int = 500,
        patience: int = 50,
        learning_rate: float = 0.01,
        batch: int = 100,
        traffic: Traffic = "float32",
        clip: float | None = None,
        noise: float = 0.0,
        training: Literal["apart"] | Together = "apart",
        summation: Summation | None = None,
        target: str | None = None,
        task: Task = "auto",
        share_target: bool = False,
        validation: float = 0.125,
        on_lost: Literal["stop", "continue"] = "stop",
        random_state: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.align: Align = align
        self.graph = graph
        self.head: Head | Vote = head
        self.reference: Reference = reference
        self.temperature = temperature
        self.graph_draws = graph_draws
        self.owner_dropout = owner_dropout
        self.hidden = hidden
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.batch = batch
        self.traffic: Traffic = traffic
        self.clip = clip
        self.noise = noise
        self.training: Literal["apart"] | Together = training
        self.summation = summation
        self.target = target
        self.task: Task = task
        self.share_target = share_target
        self.validation = validation
        self.on_lost: Literal["stop", "continue"] = on_lost
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Federation,
        y: object = None,
        *,
        target: str | None = None,
        engine: str | Engine = "memory",
        resume: bool = False,
    ) -> Self:
        """Learn to predict a column. ``resume`` takes up the work of a run that has failed.

        In one process (the memory engine) owners whose encoders and rows have one shape are trained
        in one batched computation, which gives each what it would have learned alone.
        """
        federation = require_federation(X, "FeatureFusion", series=True)
        federation = for_task(federation, self.target if target is None else target, self.task)
        name = fusion_setup.checked(self, federation, target)
        self._state = state = State.of(self, resume)
        seed = state.seed if self.random_state is None else self.random_state
        missed = self._missed(name) if self.on_lost == "continue" else None
        with Bar("FeatureFusion") as bar, reporting_to(bar.tell):
            began = federation.names
            run = run_training(
                federation, lambda f: self._programs(f, began, name, state), engine, state, missed
            )
        self._keep(run, name, seed)
        return self

    def _programs(
        self, federation: Federation, began: tuple[str, ...], target: str, state: State
    ) -> dict[str, Program[Result]]:
        seed = state.seed if self.random_state is None else self.random_state
        plan = fusion_setup.plan_of(self, target, seed, federation, began)
        told: dict[str, object] = {"members": federation.names, "plan": plan}
        programs: dict[str, Program[Result]] = {COORDINATOR: Program(fusion.coordinator, told)}
        for party in federation:
            own: dict[str, object] = {
                "party": party, "plan": fusion_setup.at_owner(plan), "secret": state.secret,
                "encoder": fusion_setup.encoder_for(self.encoder, party),
            }  # fmt: skip
            programs[party.name] = Program(fusion.owner, own)
        return programs

    def _missed(self, target: str) -> fusion_setup.Missed:
        def missed(federation: Federation, lost: str) -> str:
            held = any(target in p.table.schema for p in federation if p.name != lost)
            return "" if held else f"nobody else holds {target!r}"

        return missed

    def _keep(self, run: Run[Result], target: str, seed: int) -> None:
        trained = run.results[COORDINATOR]
        assert isinstance(trained, Trained)
        self.views_ = {n: v for n, v in run.results.items() if isinstance(v, OwnerView)}
        self.fusion_, self.notes_, self.target_ = trained.view, trained.notes, target
        self.circuit_, self.placement_ = trained.view.circuit, trained.view.placement
        self.ledger_, self.queries_ = run.ledger, Ledger()
        self._run, self._seed = run.engine, seed
        self.__dict__.pop("_state", None)
        for note in self.notes_:
            warnings.warn(note, UserWarning, stacklevel=3)

    # ------------------------------------------------------------------ what was learned

    @property
    def graph_(self) -> pd.DataFrame | None:
        """Weights, or learned probabilities, of edges between owners; what helped prediction.

        It is no map of who depends on whom. None if there is no graph.
        """
        found = self._fitted().fusion_.fusion
        if not isinstance(found, Fusion) or found.graph is None:
            return None
        names = list(self.fusion_.owners)
        return pd.DataFrame(found.graph, names, names)

    @property
    def alignment_(self) -> dict[str, Array] | None:
        """By owner: its matrix P; a representation, standardised, times P is aligned.

        None without alignment.
        """
        found = self._fitted().fusion_.fusion
        matrices = found.alignment if isinstance(found, Fusion) else None
        if matrices is None:
            return None
        return dict(zip(self.fusion_.owners, matrices, strict=True))

    @property
    def history_(self) -> pd.DataFrame:
        """The fusion's loss in every epoch, in training and on rows held back."""
        found = self._fitted().fusion_.fusion
        return pd.DataFrame(found.history if isinstance(found, Fusion) else {})

    # ------------------------------------------------------------------ questions

    def classes(self) -> tuple[Scalar, ...]:
        """The values that ``predict_proba`` has a column for."""
        self._fitted()
        return questions.classes(self.target_, Schema((self.fusion_.target,)))

    def predict_proba(self, X: Federation) -> Array:
        """P(target = class | row), (rows, classes) in the order of ``classes()``.

        Rows are in the order of the first party, then those that only later ones have. Owners may
        be missing from the federation, and rows from owners.
        """
        self.classes()
        return self._answers(X)[1]

    def predict(self, X: Federation) -> npt.NDArray[np.generic]:
        """The most probable class of every row, or a number."""
        found = self._fitted()._answers(X)[1]
        variable = self.fusion_.target
        if not variable.size:
            return found[:, 0]
        return values_of(variable, np.asarray(found.argmax(axis=1), np.float64))

    def score(self, X: Federation, y: npt.ArrayLike | None = None) -> float:
        """The share of rows with the right class, or R² of a number.

        ``y`` is the truth in the order of predictions, or else what parties hold of the target.
        """
        ids, found = self._fitted()._answers(X)
        variable = self.fusion_.target
        truth = fusion_setup.truth_of(X, ids, variable, y)
        known = ~np.isnan(truth)
        if not known.any():
            raise QueryError(f"no row has a value of {variable.name!r} to compare with")
        found, truth = found[known], truth[known]
        if variable.size:
            return float((found.argmax(axis=1) == truth).mean())
        spread = np.square(truth - truth.mean()).sum()
        return float(1 - np.square(truth - found[:, 0]).sum() / spread) if spread else 0.0

    def opinions(self, X: Federation) -> npt.NDArray[np.float64]:
        """(owners, rows, outputs): what each owner alone predicts, NaN where it knows nothing.

        Owners' predictions of single rows cross for it.
        """
        federation = fusion_setup.askable(self._fitted(), X)
        views = {n: replace(self.views_[n], votes=True) for n in federation.names}
        silent = [n for n, v in views.items() if getattr(v.encoder, "target_", None) is None]
        if silent:
            raise QueryError(f"{silent[0]} learned without labels: alone it predicts nothing")
        programs = self._questions(federation, views, ())
        programs[COORDINATOR] = Program(
            fusion_query.opinions,
            {"members": federation.names, "width": max(1, self.fusion_.target.size)},
        )
        results = self._asked(programs)
        rows, where = cast(tuple[Gathered, Labels], results.pop(COORDINATOR))
        place, count = fusion_setup.in_order(federation, where, cast(dict[str, Labels], results))
        found = np.full((len(federation), count, rows.h.shape[2]), np.nan)
        found[:, place] = np.where(rows.there.T[..., None], rows.h, np.nan)
        return found

    def conflict(self, X: Federation) -> Array:
        """(rows,): entropy, in bits, of the classes that owners alone predict for a row."""
        self.classes()
        return fusion_pictures.entropies(self.opinions(X))

    def _answers(self, X: Federation) -> tuple[list[str], Array]:
        """Ids, and (rows, outputs)."""
        federation = fusion_setup.askable(self, X)
        ids, askers = fusion_setup.cover(federation)
        views = {n: self.views_[n] for n in federation.names}
        programs = self._questions(federation, views, tuple(askers))
        told = {
            "view": self.fusion_, "members": federation.names, "askers": tuple(askers),
            "plan": fusion_setup.plan_of(self, self.target_, self._seed, None),
        }  # fmt: skip
        programs[COORDINATOR] = Program(fusion_query.ask, told)
        results = self._asked(programs)
        found: dict[str, Array] = {}
        for party, own in askers.items():
            rows = results[party]
            assert isinstance(rows, np.ndarray)
            found |= dict(zip(own, rows, strict=True))
        return ids, np.stack([found[i] for i in ids])

    def _asked(self, programs: Mapping[str, Program[object]]) -> dict[str, object]:
        outcome = self._run(programs)
        self.queries_.add(outcome.ledger)
        for error in outcome.lost.values():
            raise FederationError(f"the question could not be answered: {error}") from error
        return outcome.results

    def _questions(
        self, federation: Federation, views: Mapping[str, OwnerView], askers: tuple[str, ...]
    ) -> dict[str, Program[object]]:
        secret = State().secret  # rows of other questions cannot be told to be the same
        plan = fusion_setup.plan_of(self, self.target_, self._seed, None)
        programs: dict[str, Program[object]] = {}
        for party in federation:
            own: dict[str, object] = {
                "view": views[party.name], "party": party, "members": federation.names,
                "plan": fusion_setup.at_owner(plan), "secret": secret, "asks": party.name in askers,
            }  # fmt: skip
            programs[party.name] = Program(fusion_query.respond, own)
        return programs

    # ------------------------------------------------------------------ pictures

    def plot_history(self) -> Figure:
        return fusion_pictures.history(self.history_)

    def plot_graph(self) -> Figure:
        if (found := self.graph_) is None:
            raise QueryError("this fusion has no graph to draw")
        return fusion_pictures.graph(found)

    def plot_alignment(self) -> Figure:
        if (found := self.alignment_) is None:
            raise QueryError("this fusion has no alignment to draw")
        return fusion_pictures.alignment(found)

    def plot_conflict(self, X: Federation) -> Figure:
        """How far owners disagree, as the paper's figure 3: rows by ``conflict``."""
        return fusion_pictures.conflict(self.conflict(X), len(self.classes()))

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write encoders and fusion as one .fc file, if every party has allowed it."""
        fusion_file.write(self._fitted(), path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], encoders: Mapping[str, object] | None = None, *,
        engine: str | Engine = "memory",
    ) -> Self:  # fmt: skip
        """A fusion that was saved. ``encoders``: by owner, models of other libraries that it was
        learned with, which no file holds. ``engine`` runs its questions."""
        return fusion_file.read(cls, path, encoders or {}, engine)

    def _fitted(self) -> Self:
        if not hasattr(self, "fusion_"):
            raise NotFittedError("this FeatureFusion has learned nothing yet: call fit first")
        return self

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in super().__getstate__().items() if k != "_state"}

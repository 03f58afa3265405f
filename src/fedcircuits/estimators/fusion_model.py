"""A fitted fusion: what it has learned, predictions, and plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import QueryError
from fedcircuits.estimators import questions
from fedcircuits.estimators.federated import FederatedEstimator, TrainingState
from fedcircuits.estimators.targets import score_predictions
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.flow import Program
from fedcircuits.federation.placement import Placement
from fedcircuits.federation.recipes import Held
from fedcircuits.federation.sums.collectives import Summation
from fedcircuits.methods.fusion import query
from fedcircuits.methods.fusion.fitting import Fusion
from fedcircuits.methods.fusion.gathering import Showing, Traffic
from fedcircuits.methods.fusion.query import FusionPredictions, FusionView, OwnerView
from fedcircuits.methods.fusion.training import TrainedFusion
from fedcircuits.methods.meeting.tokens import RowRule
from fedcircuits.tables.inference import values_of
from fedcircuits.tables.schema import Scalar, Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FusionResult: TypeAlias = OwnerView | Held | TrainedFusion


class FusionModel(FederatedEstimator[FusionResult]):
    """The part of ``FeatureFusion`` that predicts, once it is fitted or loaded."""

    traffic: Traffic
    clip: float | None
    noise: float
    summation: Summation | None
    rows: RowRule

    views_: dict[str, OwnerView | Held]  # each party's part, or a handle to it
    fusion_: FusionView
    circuit_: Circuit
    placement_: Placement
    target_: str
    _seed: int

    @property
    def _showing(self) -> Showing:
        clip = None if self.clip is None else float(self.clip)
        return Showing(self.traffic, clip, float(self.noise), self.summation)

    def _set_learned(
        self,
        views: Mapping[str, OwnerView | Held],
        view: FusionView,
        notes: tuple[str, ...],
        seed: int,
    ) -> None:
        self.views_, self.fusion_ = dict(views), view
        self.notes_, self._seed = notes, seed
        self.circuit_, self.placement_ = view.circuit, view.placement
        self.target_ = view.target.name

    # ------------------------------------------------------------------ what was learned

    @property
    def graph_(self) -> pd.DataFrame | None:
        """Weights, or learned probabilities, of edges between owners; None without a graph.

        The edges are those that helped prediction; they do not show dependence between owners.
        """
        fusion = self._fusion()
        if fusion is None or fusion.graph is None:
            return None
        names = list(self.fusion_.owners)
        return pd.DataFrame(fusion.graph, names, names)

    @property
    def alignment_(self) -> dict[str, Array] | None:
        """The alignment matrix P by owner; None without alignment.

        A standardised representation times P is aligned.
        """
        fusion = self._fusion()
        if fusion is None or (matrices := fusion.alignment) is None:
            return None
        return dict(zip(self.fusion_.owners, matrices, strict=True))

    @property
    def history_(self) -> pd.DataFrame:
        """The loss of the fusion per epoch, on training rows and on held-out rows."""
        fusion = self._fusion()
        return pd.DataFrame({} if fusion is None else fusion.history)

    def _fusion(self) -> Fusion | None:
        """The trained fusion; None if owners vote."""
        self._check_fitted()
        fusion = self.fusion_.fusion
        return fusion if isinstance(fusion, Fusion) else None

    # ------------------------------------------------------------------ questions

    def classes(self) -> tuple[Scalar, ...]:
        """The classes, one per column of ``predict_proba``."""
        self._check_fitted()
        return questions.classes(self.target_, Schema((self.fusion_.target,)))

    def predict_proba(self, X: Federation) -> Array:
        """P(target = class | row), shape (rows, classes), in the order of ``classes()``.

        Rows are in the order of the first party, followed by rows that only later ones hold. Owners
        may be absent from the federation, and rows from owners.
        """
        self.classes()
        return self._answers(X).values

    def predict(self, X: Federation) -> npt.NDArray[np.generic]:
        """The most probable class of every row, or a number."""
        self._check_fitted()
        answers, variable = self._answers(X).values, self.fusion_.target
        if not variable.size:
            return answers[:, 0]
        return values_of(variable, np.asarray(answers.argmax(axis=1), np.float64))

    def score(self, X: Federation, y: npt.ArrayLike | None = None) -> float:
        """Accuracy of classes, or R² of a number.

        ``y`` holds the true values in the order of predictions. Without it, the parties reveal the
        values of the target that they hold.
        """
        self._check_fitted()
        answers, variable = self._answers(X, truth=y is None), self.fusion_.target
        values, truth = answers.values, answers.truth
        if y is not None:
            truth = query.given_truth(variable, y, len(values))
        assert truth is not None, "it is given, or told"
        predicted = values.argmax(axis=1) if variable.size else values[:, 0]
        return score_predictions(variable, predicted, truth)

    def opinions(self, X: Federation) -> npt.NDArray[np.float64]:
        """Predictions of each owner alone, shape (owners, rows, outputs); NaN for unknown rows.

        Owners send their predictions of single rows for this.
        """
        self._check_fitted()
        federation = query.require_owners(X, self.fusion_.owners, self.target_)
        width = self.fusion_.target.size or 1
        coordinator = {"members": federation.names, "width": width, "showing": self._showing}
        programs = self._responses(federation, alone=True)
        programs[COORDINATOR] = Program(query.opinions, coordinator)
        return self._predicted(programs).values

    def conflict(self, X: Federation) -> Array:
        """Entropy (rows,) in bits of the classes predicted by the owners alone."""
        self.classes()
        return _entropies(self.opinions(X))

    def _answers(self, X: Federation, truth: bool = False) -> FusionPredictions:
        """Predictions (rows, outputs); with ``truth``, also the target values held by parties."""
        federation = query.require_owners(X, self.fusion_.owners, self.target_, truth)
        coordinator = {
            "view": self.fusion_, "members": federation.names, "showing": self._showing,
            "truth": truth,
        }  # fmt: skip
        programs = self._responses(federation, tells=truth)
        programs[COORDINATOR] = Program(query.ask, coordinator)
        answers = self._predicted(programs)
        if not np.isfinite(answers.values).all():
            raise QueryError(
                "the fusion predicts values that are not numbers: its parameters have an absurd "
                "scale; was its file altered?"
            )
        return answers

    def _predicted(
        self, programs: Mapping[str, Program[FusionPredictions | None]]
    ) -> FusionPredictions:
        answers = self._ask(programs)[COORDINATOR]
        assert answers is not None, "the coordinator predicts"
        return answers

    def _responses(
        self, federation: Federation, alone: bool = False, tells: bool = False
    ) -> dict[str, Program[FusionPredictions | None]]:
        """The owners' programs, with a fresh key, so that rows of two queries cannot be linked."""
        secret = TrainingState().secrets_of(federation.names, self.rows)
        programs: dict[str, Program[FusionPredictions | None]] = {}
        for party in federation:
            arguments: dict[str, object] = {
                "view": self.views_.get(party.name), "party": party, "members": federation.names,
                "target": self.fusion_.target, "showing": self._showing.for_owner(),
                "secret": secret[party.name], "rows": self.rows, "alone": alone, "tells": tells,
            }  # fmt: skip
            programs[party.name] = Program(query.respond, arguments)
        return programs

    # ------------------------------------------------------------------ pictures

    def plot_history(self) -> Figure:
        """Plot the losses of ``history_``."""
        from fedcircuits.pictures import fusion

        return fusion.history(self.history_)

    def plot_graph(self) -> Figure:
        """Plot the weights or probabilities of ``graph_``."""
        if (weights := self.graph_) is None:
            raise QueryError("this fusion has no graph to draw")
        from fedcircuits.pictures import fusion

        return fusion.graph(weights)

    def plot_alignment(self) -> Figure:
        """Plot the matrices of ``alignment_``."""
        if (matrices := self.alignment_) is None:
            raise QueryError("this fusion has no alignment to draw")
        from fedcircuits.pictures import fusion

        return fusion.alignment(matrices)

    def plot_conflict(self, X: Federation) -> Figure:
        """Plot how much owners disagree, as in figure 3 of the paper: rows by ``conflict``."""
        from fedcircuits.pictures import fusion

        return fusion.conflict(self.conflict(X), len(self.classes()))


def _entropies(opinions: npt.NDArray[np.float64]) -> Array:
    """Entropy (rows,) in bits of the classes predicted by owners, (owners, rows, classes)."""
    there = np.asarray(~np.isnan(opinions).any(axis=2))  # (owners, rows)
    classes = opinions.shape[2]
    chosen = np.eye(classes)[np.nan_to_num(opinions).argmax(axis=2)] * there[..., None]
    share = chosen.sum(axis=0) / np.maximum(there.sum(axis=0), 1)[:, None]
    logs = np.log2(np.where(share > 0, share, 1.0))
    return np.asarray(-(share * logs).sum(axis=1) + 0.0)

"""What a fusion has learned, questions to it, and pictures of it."""

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
from fedcircuits.federation.tokens import RowRule
from fedcircuits.methods.fusion import query
from fedcircuits.methods.fusion.fitting import Fusion
from fedcircuits.methods.fusion.gathering import Showing, Traffic
from fedcircuits.methods.fusion.query import FusionPredictions, FusionView, OwnerView
from fedcircuits.methods.fusion.training import TrainedFusion
from fedcircuits.tables.inference import values_of
from fedcircuits.tables.schema import Scalar, Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FusionResult: TypeAlias = OwnerView | Held | TrainedFusion


class FusionModel(FederatedEstimator[FusionResult]):
    """The part of ``FeatureFusion`` that answers, once it is fitted or loaded."""

    traffic: Traffic
    clip: float | None
    noise: float
    summation: Summation | None
    rows: RowRule

    views_: dict[str, OwnerView | Held]  # what every party holds, or where it does
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
        """Weights, or learned probabilities, of edges between owners; what helped prediction.

        It is no map of who depends on whom. None if there is no graph.
        """
        fusion = self._fusion()
        if fusion is None or fusion.graph is None:
            return None
        names = list(self.fusion_.owners)
        return pd.DataFrame(fusion.graph, names, names)

    @property
    def alignment_(self) -> dict[str, Array] | None:
        """By owner: its matrix P; a representation, standardised, times P is aligned.

        None without alignment.
        """
        fusion = self._fusion()
        if fusion is None or (matrices := fusion.alignment) is None:
            return None
        return dict(zip(self.fusion_.owners, matrices, strict=True))

    @property
    def history_(self) -> pd.DataFrame:
        """The fusion's loss in every epoch, in training and on rows held back."""
        fusion = self._fusion()
        return pd.DataFrame({} if fusion is None else fusion.history)

    def _fusion(self) -> Fusion | None:
        """None where owners vote."""
        self._check_fitted()
        fusion = self.fusion_.fusion
        return fusion if isinstance(fusion, Fusion) else None

    # ------------------------------------------------------------------ questions

    def classes(self) -> tuple[Scalar, ...]:
        """The values that ``predict_proba`` has a column for."""
        self._check_fitted()
        return questions.classes(self.target_, Schema((self.fusion_.target,)))

    def predict_proba(self, X: Federation) -> Array:
        """P(target = class | row), (rows, classes) in the order of ``classes()``.

        Rows are in the order of the first party, then those that only later ones have. Owners may
        be missing from the federation, and rows from owners.
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
        """The share of rows with the right class, or R² of a number.

        ``y`` is the truth in the order of predictions, or else what parties hold of the target,
        which they then tell.
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
        """(owners, rows, outputs): what each owner alone predicts, NaN where it knows nothing.

        Owners' predictions of single rows cross for it.
        """
        self._check_fitted()
        federation = query.require_owners(X, self.fusion_.owners, self.target_)
        width = self.fusion_.target.size or 1
        coordinator = {"members": federation.names, "width": width, "showing": self._showing}
        programs = self._responses(federation, alone=True)
        programs[COORDINATOR] = Program(query.opinions, coordinator)
        return self._predicted(programs).values

    def conflict(self, X: Federation) -> Array:
        """(rows,): entropy, in bits, of the classes that owners alone predict for a row."""
        self.classes()
        return _entropies(self.opinions(X))

    def _answers(self, X: Federation, truth: bool = False) -> FusionPredictions:
        """(rows, outputs); ``truth``: with what parties know of the target."""
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
                "the fusion predicts what is no number: its parameters are of absurd scale; was "
                "its file changed?"
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
        """The owners' programs; a fresh key, so that rows of two questions are not seen to be the
        same."""
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
        """The losses of ``history_``."""
        from fedcircuits.pictures import fusion

        return fusion.history(self.history_)

    def plot_graph(self) -> Figure:
        """The weights or probabilities of ``graph_``."""
        if (weights := self.graph_) is None:
            raise QueryError("this fusion has no graph to draw")
        from fedcircuits.pictures import fusion

        return fusion.graph(weights)

    def plot_alignment(self) -> Figure:
        """The matrices of ``alignment_``."""
        if (matrices := self.alignment_) is None:
            raise QueryError("this fusion has no alignment to draw")
        from fedcircuits.pictures import fusion

        return fusion.alignment(matrices)

    def plot_conflict(self, X: Federation) -> Figure:
        """How far owners disagree, as the paper's figure 3: rows by ``conflict``."""
        from fedcircuits.pictures import fusion

        return fusion.conflict(self.conflict(X), len(self.classes()))


def _entropies(opinions: npt.NDArray[np.float64]) -> Array:
    """(rows,): entropy in bits of the classes that owners predict, (owners, rows, classes)."""
    there = np.asarray(~np.isnan(opinions).any(axis=2))  # (owners, rows)
    classes = opinions.shape[2]
    chosen = np.eye(classes)[np.nan_to_num(opinions).argmax(axis=2)] * there[..., None]
    share = chosen.sum(axis=0) / np.maximum(there.sum(axis=0), 1)[:, None]
    logs = np.log2(np.where(share > 0, share, 1.0))
    return np.asarray(-(share * logs).sum(axis=1) + 0.0)

"""How good predictions are: of classes from their probabilities, of numbers from their means.

    accuracy, macro_f1   of the class that is predicted
    auc                  area under the ROC curve; of several classes the mean, one against the rest
    log_loss             −mean log P(true class), in nats
    calibration_error    classes: the expected calibration error, Σ_b (n_b / n) |accuracy_b −
                         confidence_b| over ten bins of the probability of the predicted class
                         numbers: mean over q = 0.1 … 0.9 of |share of truths below their predicted
                         q-quantile − q|, from draws of the predictive distribution
    r2, rmse             of means

A measure that cannot be had, such as the AUC of rows of one class, is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn import metrics

from fedcircuits.circuits.graph.family import Array

BINS = 10
LEAST = 1e-12  # probability, for logarithms
CLASS_MEASURES = ("accuracy", "macro_f1", "auc", "log_loss", "calibration_error")
NUMBER_MEASURES = ("r2", "rmse", "calibration_error")
Codes = npt.NDArray[np.int64]
Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction of one column of some rows."""

    predicted: Array  # (rows,) codes of classes, or means of numbers
    probabilities: Array | None = None  # (rows, classes)
    ranks: Array | None = None  # (some rows,) where truths lie among draws, in [0, 1]


def measures_of(forecast: Forecast, truth: Array, size: int) -> Measures:
    """All measures; ``truth`` (rows,) has no NaN, ``size`` is the number of classes, or 0 for a
    number."""
    return class_measures(forecast, truth, size) if size else number_measures(forecast, truth)


def class_measures(forecast: Forecast, truth: Array, size: int) -> Measures:
    codes, predicted = truth.astype(np.int64), forecast.predicted.astype(np.int64)
    measures = {
        "accuracy": float((predicted == codes).mean()),
        "macro_f1": float(
            metrics.f1_score(
                codes, predicted, labels=np.unique(codes), average="macro", zero_division=0.0
            )
        ),
    }
    p = forecast.probabilities
    if p is None:
        return {**measures, "auc": np.nan, "log_loss": np.nan, "calibration_error": np.nan}
    likely = np.clip(p[np.arange(len(codes)), codes], LEAST, 1)
    return {
        **measures,
        "auc": area(p, codes, size),
        "log_loss": float(-np.log(likely).mean()) + 0.0,
        "calibration_error": expected_calibration_error(p, codes),
    }


def area(p: Array, codes: Codes, size: int) -> float:
    """Area under the ROC curve; for several classes the mean over those that occur."""
    present = np.unique(codes)
    if len(present) < 2:
        return float("nan")
    classes = [1] if size == 2 else present.tolist()
    return float(np.mean([metrics.roc_auc_score(codes == c, p[:, c]) for c in classes]))


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Rows whose predicted class has about the same probability."""

    rows: int
    confidence: float  # mean probability of the predicted class
    accuracy: float


def reliability(p: Array, codes: Codes) -> list[ReliabilityBin]:
    """Bins of rows by the probability of their most probable class, without empty ones."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == codes
    at = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = []
    for b in range(BINS):
        inside = at == b
        if inside.any():
            means = float(confidence[inside].mean()), float(right[inside].mean())
            bins.append(ReliabilityBin(int(inside.sum()), *means))
    return bins


def expected_calibration_error(p: Array, codes: Codes) -> float:
    gaps = sum(b.rows * abs(b.confidence - b.accuracy) for b in reliability(p, codes))
    return float(gaps / len(codes))


def number_measures(forecast: Forecast, truth: Array) -> Measures:
    errors = np.square(truth - forecast.predicted)
    spread = np.square(truth - truth.mean()).sum()
    off = np.nan if forecast.ranks is None else rank_error(forecast.ranks)
    return {
        "r2": float(1 - errors.sum() / spread) if spread else float("nan"),
        "rmse": float(np.sqrt(errors.mean())),
        "calibration_error": off,
    }


def rank_error(ranks: Array) -> float:
    """How far the ranks of true values among samples are from uniform."""
    levels = np.arange(1, 10) / 10
    return float(np.mean([abs((ranks <= q).mean() - q) for q in levels]))

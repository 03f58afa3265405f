"""Predictions of owners combined without a trained fusion: what a fusion has to beat.

    vote        the class that most owners predict; of numbers the mean
    threshold   of two classes: the second if at least this share of owners predicts it, the share
                with the best F1 on the rows learned from
    best        the owner that is best on rows held back: F1 of the second of two classes, macro-F1
                of more, squared error of numbers. In rows that it does not know, the mean of the
                others' predictions

Instead of representations, ``Gathered.h`` has owners' predictions (owners, rows, outputs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.metrics import f1_score

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.methods.fusion.fitting import Gathered

Vote: TypeAlias = Literal["vote", "threshold", "best"]
VOTES: tuple[Vote, ...] = ("vote", "threshold", "best")


@dataclass(frozen=True, eq=False)
class Votes:
    kind: Vote
    classes: int  # 0: a number
    threshold: float = 0.5
    best: int = 0  # an owner

    def predict(self, rows: Gathered) -> Array:
        """(rows, outputs); a row that nobody knows gets equal shares, or NaN of a number."""
        there = rows.there.T[..., None].astype(np.float64)  # (owners, rows, 1)
        if self.kind == "best" or not self.classes:
            mean = np.asarray((rows.h * there).sum(axis=0) / np.maximum(there.sum(axis=0), 1))
            if self.kind == "best":
                mean = np.where(there[self.best] > 0, rows.h[self.best], mean)
            return mean.astype(np.float64)
        share = _shares(rows, self.classes)
        if self.kind == "vote":
            return share
        moved = _moved(share[:, 1], self.threshold)
        return np.stack([1 - moved, moved], axis=1)


def elect(
    kind: Vote,
    rows: Gathered,
    y: npt.NDArray[np.floating],
    held: npt.NDArray[np.bool_],
    classes: int,
) -> Votes:
    """What has to be learned of it: a threshold, or who is best."""
    if kind == "threshold":
        if classes != 2:
            raise ParameterError(f"a threshold is for two classes, got {classes}")
        share = _shares(rows, 2)[:, 1]
        shares = np.unique(share)
        scores = [f1_score(y, share >= t, zero_division=0.0) for t in shares]
        return Votes(kind, 2, float(shares[int(np.argmax(scores))]))
    if kind == "best":
        some = held if held.any() else ~held
        tried = [Votes(kind, classes, best=i) for i in range(len(rows.h))]
        judged = [_quality(own.predict(rows.rows(some)), y[some], classes) for own in tried]
        return tried[int(np.argmax(judged))]
    return Votes(kind, classes)


def _shares(rows: Gathered, classes: int) -> Array:
    """(rows, classes): shares of the owners that are there."""
    chosen = np.eye(classes)[rows.h.argmax(axis=2)] * rows.there.T[..., None]
    count = rows.there.sum(axis=1, keepdims=True)
    return np.where(count > 0, chosen.sum(axis=0) / np.maximum(count, 1), 1 / classes)


def _moved(share: Array, threshold: float) -> Array:
    """The share on a scale where the threshold is at one half."""
    low = np.minimum(0.5 * share / max(threshold, 1e-9), np.nextafter(0.5, 0))
    high = 0.5 + 0.5 * (share - threshold) / max(1 - threshold, 1e-9)
    return np.where(share >= threshold, np.clip(high, 0.5 + 1e-9, 1), low)


def _quality(h: Array, y: npt.NDArray[np.floating], classes: int) -> float:
    if not classes:
        return -float(np.square(h[:, 0] - y.reshape(-1)).mean())
    how = "binary" if classes == 2 else "macro"
    return float(f1_score(y, h.argmax(axis=1), average=how, zero_division=0.0))

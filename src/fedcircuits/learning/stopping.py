"""Early stopping, by rows that are not used for learning.

A share of the rows is held out and scored before the first round and after every round. Learning
ends when ``patience`` rounds have improved the score by nothing, or by less than ``tolerance``, and
keeps the parameters with the best score, which may be those at the start. With fewer than ``FEW``
rows none are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array

FEW = 50
IMPOSSIBLE = -1e6  # what a row without any likelihood counts: fewer of them are better

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """The rule, for scores of the held-out rows of which more is better.

    >>> rule, scores = EarlyStopping(patience=2), [-3.0, -2.0, -2.5, -2.1]
    >>> rule.best(scores), rule.ends(scores), rule.ends(scores[:3])
    (1, True, False)
    """

    patience: int
    tolerance: float = 0.0

    def best(self, scores: Sequence[float]) -> int:
        """The first round with the best score."""
        return int(np.argmax(scores))

    def ends(self, scores: Sequence[float]) -> bool:
        """Whether the last ``patience`` scores gain nothing, or less than the tolerance."""
        if len(scores) <= self.patience:
            return False
        recent, before = max(scores[-self.patience :]), max(scores[: -self.patience])
        return recent <= before or recent < before + self.tolerance


def held_share(rows: int, share: float) -> float:
    """The share of this many rows that is held out."""
    return share if rows >= FEW and round(share * rows) >= 1 else 0.0


def held_back(lots: Array, share: float) -> Mask:
    """Which rows are held out: those with the smallest lots, a share of them and never all."""
    number = min(round(held_share(len(lots), share) * len(lots)), len(lots) - 1)
    held = np.zeros(len(lots), np.bool_)
    held[np.argsort(lots)[: max(number, 0)]] = True
    return held


def mean_likelihood(possible: float, impossible: float, rows: float) -> float:
    """The mean, from the sum of log-likelihoods of possible rows and the number of impossible
    ones."""
    return float((possible + impossible * IMPOSSIBLE) / rows)


def mean_of_rows(logs: Array) -> float:
    """The same, from the log-likelihoods of all rows."""
    possible = np.isfinite(logs)
    return mean_likelihood(logs[possible].sum(), (~possible).sum(), len(logs))

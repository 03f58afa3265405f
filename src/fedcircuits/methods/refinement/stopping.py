"""When EM across parties stops: by rows that it does not learn from.

A share of its rows is held back. Their likelihood is judged before the first round and after every
one, and EM ends with the parameters that were best on them, those it began with among them, when
``PATIENCE`` rounds have brought nothing better. The leaves that it begins with were learned from
these rows, too, so that it rather stops early; leaves that do not see them are worse by more than
that (docs/results/federated.md). Of fewer than ``FEW`` rows none are held back.

Which rows are held follows from lots that a party draws for its rows in the order of its table: not
from the key of tokens, so that one seed gives one model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.placement import Joint
from fedcircuits.federation.sums.collectives import Collective

FEW = 50
PATIENCE = 2
IMPOSSIBLE = -1e6  # what a held row counts that has no likelihood: fewer of them are better
HELD = "which of the shared rows are held back to stop by"
JUDGED = "whether rows that are held back have become likelier, and whether EM ends"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Refined:
    """What the coordinator has after EM."""

    joint: Joint
    history: tuple[float, ...] = ()  # of rows learned from, before every round
    validation: tuple[float, ...] = ()  # of rows held back, before the first round and after each


def holding(rows: int, share: float) -> float:
    """The share that is held back of so many rows."""
    return share if rows >= FEW and round(share * rows) >= 1 else 0.0


def drawn(lots: Array, share: float) -> Mask:
    """Those with the smallest lots: a share of them, and never all."""
    number = min(round(holding(len(lots), share) * len(lots)), len(lots) - 1)
    found = np.zeros(len(lots), np.bool_)
    found[np.argsort(lots)[: max(number, 0)]] = True
    return found


def mean_of(possible: float, impossible: float, number: float) -> float:
    """By the sum of log-likelihoods of rows that are possible, and how many are not."""
    return float((possible + impossible * IMPOSSIBLE) / number)


def mean(logs: Array) -> float:
    possible = np.isfinite(logs)
    return mean_of(logs[possible].sum(), (~possible).sum(), len(logs))


class Judge:
    """Hears the mean log-likelihood of held rows, the first of what EM begins with."""

    def __init__(self) -> None:
        self.history: list[float] = []

    def verdict(self, likelihood: float) -> tuple[bool, bool]:
        """Whether these parameters are the best so far, and whether EM ends."""
        better = not self.history or likelihood > max(self.history)
        self.history.append(likelihood)
        return better, len(self.history) - 1 - int(np.argmax(self.history)) >= PATIENCE

    def agreed(self, tag: str, likelihood: float, summation: Collective) -> Flow[tuple[bool, bool]]:
        """The same, by one member for all: their last bits may differ."""
        own = np.array(self.verdict(likelihood))
        better, ends = yield from summation.agree(tag, own, JUDGED)
        return bool(better), bool(ends)

"""Sums over a group of parties, refused if no rows could have led to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.collectives import (
    Check,
    Collective,
    Summation,
    Then,
)

MOST_ROWS = 2.0**40


@dataclass(frozen=True, slots=True)
class CheckedSums:
    """One member's end of checked sums."""

    collective: Collective
    members: Sequence[str]

    @classmethod
    def of(cls, summation: Summation, me: str, parties: Sequence[str]) -> CheckedSums:
        members = summation.members(parties)
        return cls(summation.at(me, members), members)

    def add(
        self,
        tag: str,
        value: Array,
        reveals: str,
        problem: Check,
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        """``problem`` describes what is wrong with a sum, ``check`` with a result computed from
        it."""

        def checked(total: Array) -> Array:
            self.refuse(tag, problem(total))
            return total if then is None else then(total)

        if then is None:
            return checked((yield from self.collective.sum(tag, value, reveals)))
        return (yield from self.collective.sum(tag, value, reveals, checked, check))

    def refuse(self, tag: str, problem: str) -> None:
        """ProtocolError if there is a problem; the sum does not show who caused it."""
        if problem:
            raise ProtocolError(
                f"the sum under {tag!r} is invalid, {problem}: one of {', '.join(self.members)} "
                "sent wrong numbers"
            )


def counts_problem(counts: Array, most: Array, least: Array | float = 0.0) -> str:
    """What is wrong with whole numbers from ``least`` to ``most``, "" if nothing."""
    if counts.shape != most.shape:
        return f"expected numbers of the shape {most.shape}, got {counts.shape}"
    sound = (counts >= least).all() and (counts <= most).all() and (counts % 1 == 0).all()
    return "" if sound else f"expected whole numbers from {np.max(least):.0f} to {most.max():.0f}"


def noisy_problem(total: Array, most: Array | float, deviation: float) -> str:
    """What is wrong with sums of size ``most`` at most that have noise, "" if nothing.

    Noise of twenty deviations does not occur.
    """
    if np.ndim(most) and total.shape != np.shape(most):
        return f"expected numbers of the shape {np.shape(most)}, got {total.shape}"
    sound = (np.abs(total) <= most + 20 * deviation).all()
    return "" if sound else f"expected numbers up to {np.max(most):.0f}, and noise"

"""How many components or clusters: one training after the other, and what each is worth.

Numbers 1, 2, 3, … are tried until ``PATIENCE`` of them in a row are no better than the best, at
most ``MOST``. What a number is worth is the Bayesian information criterion of the rows learned
from, of a mixture its own, of clusters that of spheres of one size around the centres (Pelleg and
Moore, 2000). Whoever asked works it out from what every training tells it: the log-likelihood or
the sum of distances, how many rows there are, how many numbers a component has. Nothing else
crosses; but each number that is tried is a training of its own, in which everybody learns what
that one tells.

A mixture with a component that has collapsed, or that has no more rows than its widest block has
columns, is never taken: its likelihood is that of a few rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from sklearn.base import clone

from fedcircuits.errors import FederationError
from fedcircuits.federation.ledger import Ledger

MOST, PATIENCE = 20, 3


class Numbered(Protocol):
    """An estimator of so many components, or clusters."""

    ledger_: Ledger
    notes_: tuple[str, ...]

    def worth(self) -> float: ...

    def most(self) -> int: ...

    def set_params(self, **arguments: object) -> Self: ...


N = TypeVar("N", bound=Numbered)


@dataclass(slots=True)
class NumberSearch(Generic[N]):
    """Trainings so far; one that failed is the last, and may go on."""

    argument: str  # such as "n_components"
    tried: dict[int, tuple[N, list[warnings.WarningMessage]]]
    broken: N | None = None  # its training was broken off

    def run(self, model: N, fit: Callable[[N, bool], object]) -> N:
        """The best model of all; ``fit``: trains one, or lets it go on."""
        while not self._over():
            number, again = len(self.tried) + 1, self.broken is not None
            candidate = self.broken if self.broken is not None else clone(model)
            candidate.set_params(**{self.argument: number})
            self.broken = candidate
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                fit(candidate, again)
            self.tried[number], self.broken = (candidate, warned), None
        number = self.best
        best, warned = self.tried[number]
        for warning in warned:
            warnings.warn(warning.message, warning.category, stacklevel=4)
        best.ledger_ = self._ledger()
        best.notes_ = (*best.notes_, self._note(number))
        return best

    @property
    def worths(self) -> dict[int, float]:
        return {number: candidate.worth() for number, (candidate, _) in self.tried.items()}

    @property
    def best(self) -> int:
        worths = self.worths
        return min(worths, key=lambda number: (worths[number], number))

    def _over(self) -> bool:
        if not self.tried:
            return False
        last = max(self.tried)
        most = min(MOST, self.tried[last][0].most())
        return last >= most or last - self.best >= PATIENCE

    def _ledger(self) -> Ledger:
        ledger = Ledger()
        for candidate, _ in self.tried.values():
            ledger.add(candidate.ledger_)
        return ledger

    def _note(self, number: int) -> str:
        worths = ", ".join(f"{k}: {worth:.6g}" for k, worth in self.worths.items())
        what = self.argument.removeprefix("n_")
        what = what.removesuffix("s") if number == 1 else what
        return (
            f"{number} {what}, by the Bayesian information criterion of {len(self.tried)} "
            f"trainings, lower is better: {worths}"
        )


def refuse_with_auto(argument: str, given: dict[str, bool]) -> None:
    """FederationError for arguments that say how many there are already."""
    for name, says in given.items():
        if says:
            raise FederationError(f"{name} needs a number: {argument}=3, or leave {name} out")

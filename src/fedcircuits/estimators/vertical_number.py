"""The number of components or clusters, chosen by the Bayesian information criterion (BIC).

Numbers 1, 2, 3, …, at most ``MOST``, are tried until ``PATIENCE`` consecutive ones are no better
than the best. The criterion is the BIC of the training rows: of the mixture itself, or, for
k-means, of spherical clusters of equal size (Pelleg and Moore, 2000). The coordinator computes it
from the results of each training: the log-likelihood or sum of distances, the number of rows, and
the number of parameters per component. Nothing else is sent; but every number tried is a separate
training, with everything that training reveals.

A mixture with a collapsed component, or one with no more rows than its widest block has columns, is
never chosen: its likelihood is that of a few rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from sklearn.base import clone

from fedcircuits.errors import FederationError
from fedcircuits.federation.messages import Ledger

MOST, PATIENCE = 20, 3


class Numbered(Protocol):
    """An estimator with a number of components or clusters."""

    ledger_: Ledger
    notes_: tuple[str, ...]

    def criterion(self) -> float: ...

    def most_components(self) -> int: ...

    def set_params(self, **arguments: object) -> Self: ...


N = TypeVar("N", bound=Numbered)


@dataclass(slots=True)
class NumberSearch(Generic[N]):
    """A search over the number of components; a training that failed can be resumed."""

    argument: str  # such as "n_components"
    tried: dict[int, tuple[N, list[warnings.WarningMessage]]]
    broken: N | None = None  # the model whose training failed

    def run(self, model: N, fit: Callable[[N, bool], object]) -> N:
        """The best model; ``fit`` trains a model, or resumes its training."""
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
    def criteria(self) -> dict[int, float]:
        return {number: candidate.criterion() for number, (candidate, _) in self.tried.items()}

    @property
    def best(self) -> int:
        criteria = self.criteria
        return min(criteria, key=lambda number: (criteria[number], number))

    def _over(self) -> bool:
        if not self.tried:
            return False
        last = max(self.tried)
        most = min(MOST, self.tried[last][0].most_components())
        return last >= most or last - self.best >= PATIENCE

    def _ledger(self) -> Ledger:
        ledger = Ledger()
        for candidate, _ in self.tried.values():
            ledger.add(candidate.ledger_)
        return ledger

    def _note(self, number: int) -> str:
        criteria = ", ".join(f"{k}: {criterion:.6g}" for k, criterion in self.criteria.items())
        what = self.argument.removeprefix("n_")
        what = what.removesuffix("s") if number == 1 else what
        return (
            f"{number} {what}, by the Bayesian information criterion of {len(self.tried)} "
            f"trainings, lower is better: {criteria}"
        )


def refuse_with_auto(argument: str, given: dict[str, bool]) -> None:
    """FederationError for parameters that fix the number of components."""
    for name, says in given.items():
        if says:
            raise FederationError(f"{name} needs a number: {argument}=3, or leave {name} out")

"""What every step of a program can do: nodes of one kind and shape, evaluated together.

P is what a step holds of the parameters, D what one downward pass tells of them: derivatives of
the log-likelihood by weights, or the additive statistics of leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.arithmetic import LOG_SPACE, Arithmetic
from fedcircuits.circuits.evaluation.layout import Limits
from fedcircuits.circuits.evaluation.statistics import Frame, Inputs
from fedcircuits.circuits.graph.family import AnyFamily, Array, Arrays, Family, Region
from fedcircuits.circuits.graph.parameters import Parameters

P = TypeVar("P")
D = TypeVar("D")
Frames = Mapping[tuple[str, int], Frame]
Regions = Mapping[int, Region]
Rules = Mapping[str, AnyFamily]  # families with settings other than the registered ones
Functional = Callable[[Family, Arrays], Array]  # parameters (n, units, …) -> (D, n, units)


@dataclass(frozen=True, slots=True)
class BatchState:
    """One batch on its way up: what leaves read, and the value matrix."""

    inputs: Inputs
    values: Tensor  # (rows, batch)
    arithmetic: Arithmetic = LOG_SPACE


@dataclass(frozen=True, slots=True)
class Descent:
    """One batch on its way down: the unit of every slot that a row reaches, and the row itself."""

    chosen: Tensor  # (slots, batch), −1 is none
    out: Array  # (batch, variables), NaN is filled
    rng: np.random.Generator | None  # none: take the best

    def pick(self, scores: Tensor) -> Tensor:
        """(n,) of log scores (n, options): a draw, or the best."""
        if self.rng is not None:  # Gumbel noise makes the maximum a draw
            noise = self.rng.gumbel(size=tuple(scores.shape))
            scores = scores.double() + torch.as_tensor(noise)
        return scores.argmax(1)

    def active(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fold, column and unit wherever a slot of these was chosen."""
        mine = self.chosen[numbers]
        fold, column = torch.nonzero(mine >= 0, as_tuple=True)
        return fold, column, mine[fold, column].long()

    def set(self, numbers: Tensor, column: Tensor, unit: Tensor) -> None:
        self.chosen[numbers, column] = unit.to(self.chosen.dtype)


class Step(ABC, Generic[P, D]):
    folds: int
    units: int
    start: int  # first row of the value matrix that it writes
    limits = Limits()

    def within(self, limits: Limits) -> Self:
        """The same step under other limits."""
        vars(self)["limits"] = limits
        return self

    def chunks(self, folds: int, size: int) -> Iterator[tuple[int, int]]:
        """Spans of folds whose temporaries, ``size`` numbers a fold, stay in the cache."""
        step = max(1, self.limits.cache // max(1, size))
        return ((a, min(folds, a + step)) for a in range(0, folds, step))

    def rows_in(self, matrix: Tensor) -> Tensor:
        """This step's rows (folds, units, batch) of a matrix (rows, batch)."""
        rows = matrix.narrow(0, self.start, self.folds * self.units)
        return rows.view(self.folds, self.units, -1)

    @abstractmethod
    def pack(self, parameters: Parameters, frames: Frames, dtype: torch.dtype) -> P: ...

    @abstractmethod
    def unpack(self, p: P) -> dict[str, Arrays]:
        """Parameters by node name again."""

    def restrict(self, p: P, regions: Regions) -> P:
        """The same with variables restricted to regions: summed out inside them only."""
        return p

    @abstractmethod
    def upward(self, p: P, state: BatchState) -> None: ...

    @abstractmethod
    def downward(self, p: P, state: BatchState, gradient: Tensor) -> D:
        """Hand the gradient (rows, batch) on to the children."""

    def expected(self, d: D, p: P) -> D:
        """The additive statistics of EM from derivatives, in their place."""
        return d

    def maximise(self, counts: D, p: P, frames: Frames, rules: Rules) -> P:
        return p

    @abstractmethod
    def choose(self, p: P, state: BatchState, choice: Descent) -> None: ...

    def average(
        self, p: P, state: BatchState, gradient: Tensor, variable: int, functional: Functional
    ) -> Tensor | None:
        """Σ gradient · functional over the leaves of a variable, (D, batch)."""
        return None

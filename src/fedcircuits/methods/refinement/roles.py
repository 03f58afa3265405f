"""What the roles of EM across parties have in common: settings, the state in which a client starts,
a part in every round, and weights as messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.program import Packed
from fedcircuits.circuits.graph.family import Array, Arrays
from fedcircuits.circuits.graph.parameters import WEIGHT
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import (
    FiniteMatrix,
    Message,
    require,
    require_shape,
)
from fedcircuits.federation.placement import View
from fedcircuits.federation.sums.collectives import Collective, Summation
from fedcircuits.federation.sums.summations import Hub
from fedcircuits.learning.leaf_em import EMLeaf, MStep
from fedcircuits.learning.stopping import EarlyStopping
from fedcircuits.tables.table import Table

HUB, STOPPING, STEP = Hub(), EarlyStopping(patience=2), MStep()
JUDGED = "whether held-out rows have become more likely, and whether EM ends"
LARGEST = np.float64(1e150)  # of parameters and statistics: larger squares are infinite
NATS = 1000.0  # log-density of a row per column, at most: float64 knows no narrower distribution
A = TypeVar("A")
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Above: TypeAlias = tuple[dict[str, Arrays], tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class EMSettings:
    """What all roles of a run do alike."""

    rounds: int  # over weights and leaves
    validation: float = 0.0  # the share of rows to hold out from such rounds
    summation: Summation = HUB
    seed: int = 0  # of the lots by which rows are held out
    stopping: EarlyStopping = STOPPING
    step: MStep = STEP
    weight_rounds: int = 50  # over weights alone, at most

    @property
    def share(self) -> float:
        return self.validation if self.rounds else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EMSite:
    """What a client begins with."""

    view: View
    table: Table  # its rows, in an order that does not depend on the key of tokens
    listed: Table  # the same in the order of the tokens that it has sent
    lots: Array  # of the listed rows, from 0 to 1: the smallest are held out
    members: tuple[str, ...]  # all clients
    settings: EMSettings
    stamp: str = ""  # of what its leaves were learned from: work is kept for the same ones only
    least: int = 1  # rows that EM goes over, whatever the coordinator asks for

    @property
    def first(self) -> bool:
        return self.view.me == self.members[0]


class Role(ABC, Generic[A]):
    """A role's part in a round. It has leaves, if any, and parameters A of what is above them."""

    collective: Collective  # if there is one, its leader decides for all
    judges = False  # whether there are held-out rows to judge by

    def __init__(self, leaves: Mapping[str, EMLeaf], above: A) -> None:
        self.leaves, self.above = leaves, above
        self.history: list[float] = []  # mean log-likelihood of rows learned from, by rounds

    @abstractmethod
    def expect(self, t: int, last: bool) -> Flow[float | None]:
        """The E-step. Returns the mean log-likelihood of held-out rows, where it is known."""

    def agree(self, rounds: range, best: int, ends: bool) -> Flow[tuple[int, bool]]:
        """The best round and whether EM ends, as one member sees it: last bits may differ.
        ``rounds``: those whose parameters are still known, up to the present one."""
        if not self.judges:
            return best, ends
        tag, judged = f"em/judged/{rounds[-1]}", np.array([best, ends])
        verdict = yield from decided(
            self.collective, tag, judged, JUDGED, lambda v: int(v[0]) in rounds
        )
        return int(verdict[0]), bool(verdict[1])

    def maximise(self) -> None:
        """The M-step."""

    def finish(self, scores: Sequence[float]) -> Flow[None]:
        """What a client does after the last round; ``scores``: of held-out rows, by rounds."""
        yield from ()

    def state(self) -> tuple[A, list[Packed]]:
        """All that a round changes."""
        return self.above, [leaf.packed for leaf in self.leaves.values()]

    def restore(self, state: tuple[A, list[Packed]]) -> None:
        self.above = state[0]
        for leaf, packed in zip(self.leaves.values(), state[1], strict=True):
            leaf.packed = packed


class LearnedWeights(Message, frozen=True):
    """Client → coordinator, after the last round: weights of sums; the first client also tells the
    mean log-likelihood of rows before every round, and of held-out rows."""

    tag: ClassVar[str] = "em/learned"

    weights: dict[str, FiniteMatrix]
    history: list[float]
    validation: list[float]

    def above(self, shapes: Shapes, columns: int, sender: str) -> Above:
        """Weights of these nodes, and likelihoods of rows of so many columns."""
        values = checked_weights(self.weights, shapes, sender, LearnedWeights, "weights")
        for field in ("history", "validation"):
            sound = are_likelihoods(np.array(getattr(self, field)), columns)
            require(sound, sender, LearnedWeights, field, "expected log-likelihoods")
        return values, tuple(self.history), tuple(self.validation)


def checked_weights(
    weights: Mapping[str, Array], shapes: Shapes, sender: str, kind: type[Message], field: str
) -> dict[str, Arrays]:
    """The weights of these sums: each of its shape, not negative, adding up to one."""
    names = f"expected weights of {', '.join(shapes) or 'nothing'}"
    require(weights.keys() == shapes.keys(), sender, kind, field, names)
    for name, shape in shapes.items():
        weight = weights[name]
        require_shape(weight, shape, sender, kind, field)
        sound = ((weight >= 0) & (weight < 2)).all() and np.allclose(weight.sum(axis=1), 1.0)
        require(bool(sound), sender, kind, field, f"weights of {name!r} must add up to 1")
    return {name: {WEIGHT: np.array(weights[name], np.float64)} for name in shapes}


def are_likelihoods(values: Array, columns: int | npt.NDArray[np.int64]) -> bool:
    """Log-likelihoods of rows with so many columns are numbers or −∞, and not beyond all bounds."""
    return bool((values <= NATS * columns).all())  # NaN is not


def statistics_problem(values: Array) -> str:
    """What is wrong with statistics that are to be added up."""
    return "" if (np.abs(values) <= LARGEST).all() else f"expected numbers within ±{LARGEST}"


def decided(
    collective: Collective,
    tag: str,
    judged: npt.NDArray[np.generic],
    reveals: str,
    fits: Callable[[Array], bool] = lambda _: True,
) -> Flow[Array]:
    """The decision of one member for all: of the shape and type of everybody's own."""

    def problem(decision: Array) -> str:
        alike = decision.shape == judged.shape and decision.dtype == judged.dtype
        return "" if alike and fits(decision) else "it is not such a decision"

    return (yield from collective.agree(tag, judged, reveals, problem))  # type: ignore[arg-type]

"""Encoders that are networks: an owner's own model of its rows, for a fusion.

    fit(table, target)   learn from the owner's columns, series and labels; without a target or
                         labels, from the rows only
    encode(table)        (rows, width): the representation of each row; NaN for empty rows

``SequenceEncoder`` and ``TabularEncoder`` are networks with a linear layer on top. With labels that
layer predicts them; without, it reconstructs the inputs (an autoencoder). The representation is the
input of that layer. Owners may have different encoders, of different widths.

Other encoders are in fixed.py and foreign.py, and the choice for each owner is in choosing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import SEED, Choice, Declared, Real, Whole, check_arguments, is_whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.learning.encoders import apart
from fedcircuits.learning.encoders.apart import Goal, Learned, Schedule, TrainingJob
from fedcircuits.learning.encoders.foreign import labels
from fedcircuits.learning.encoders.inputs import InputReading, require_inputs
from fedcircuits.learning.encoders.networks import Cell, Network, Perceptron, Recurrent, Shapes
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

Held: TypeAlias = npt.NDArray[np.bool_]
HELD = 0.125  # share of rows that an encoder which learns alone stops by


@dataclass(frozen=True, slots=True)
class ReadyTraining:
    """A network's training that only has to be run."""

    reading: InputReading
    network: Network
    target: Variable | None  # None: there are no labels
    goal: Goal
    outputs: int
    job: TrainingJob
    scale: tuple[float, float]  # mean and deviation of a number that is predicted


class NetworkEncoder(BaseEstimator):  # type: ignore[misc]
    """What both networks share; ``SequenceEncoder`` and ``TabularEncoder`` define the network."""

    reading_: InputReading
    network_: Network
    target_: Variable | None  # None: learned without labels
    weights_: npt.NDArray[np.float32]
    history_: npt.NDArray[np.float32]  # losses on held-back rows

    allowed: ClassVar[Declared] = {
        **dict.fromkeys(("width", "epochs", "batch", "patience"), Whole(1)),
        "learning_rate": Real(above=0),
        "random_state": SEED,
    }

    def __init__(
        self,
        width: int,
        epochs: int,
        learning_rate: float,
        batch: int,
        patience: int,
        random_state: int | None,
    ) -> None:
        self.width = width
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch = batch
        self.patience = patience
        self.random_state = random_state

    def fit(self, X: Table, target: str | None = None) -> Self:
        """Learn from a table, stopping by an eighth of its rows."""
        check_arguments(self)
        seed = int(self.random_state or 0)
        held = np.random.default_rng(seed).random(len(X)) < HELD
        ready = self.ready(X, target, held, (seed,))
        (learned,) = run_all([ready], self.schedule())
        return self.keep(ready, learned)

    def encode(self, X: Table) -> Array:
        """(rows, width): what goes into the last layer."""
        return self._asked(X, 0)

    def predict_vector(self, X: Table) -> Array:
        """(rows, classes) probabilities or (rows, 1) numbers, as this owner alone predicts them."""
        if self._fitted().target_ is None:
            raise ParameterError(
                f"this {type(self).__name__} learned without labels and makes no predictions"
            )
        output = self._asked(X, 1)
        if not self.target_.size:  # type: ignore[union-attr]
            return output * self._scale[1] + self._scale[0]
        likely = np.exp(output - output.max(axis=1, keepdims=True))
        return np.asarray(likely / likely.sum(axis=1, keepdims=True))

    @property
    def tells(self) -> str:
        """What a representation is of a row, in the words of a ledger: nothing, if it is narrow."""
        inputs = len(self.reading_.schema) + sum(a * b for a, b in self.reading_.shapes.values())
        return "" if self.width < inputs else "its columns can be computed from these"

    def check(self, table: Table, target: str | None) -> None:
        """An error unless its settings are in range and the table has what it reads."""
        check_arguments(self)
        require_inputs(table, target, isinstance(self, SequenceEncoder))

    def _asked(self, X: Table, which: Literal[0, 1]) -> Array:
        x, known = self._fitted().reading_.read(X)
        values = apart.represented(self.network_, self.weights_, self._shapes, x)[which]
        return np.where(known[:, None], values, np.nan).astype(np.float64)

    def _fitted(self) -> Self:
        if not hasattr(self, "weights_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit")
        return self

    @property
    def _shapes(self) -> Shapes:
        return apart.shapes_with_head(self.network_, self._outputs)

    def ready(
        self, table: Table, target: str | None, held: Held, seed: tuple[int, ...]
    ) -> ReadyTraining:
        """Its training on a table; ``held``: rows to stop by."""
        check_arguments(self)
        y, variable = _target(table, target)
        some = np.ones(len(table), bool) if variable is None else ~np.isnan(y)
        learned = some & ~held
        rows = table.rows(learned) if learned.any() else table
        reading = InputReading.of(rows, target, isinstance(self, SequenceEncoder))
        x, known = reading.read(table)
        some &= known
        if not some.any():
            raise TableError("there is no row to learn an encoder from: all values are missing")
        held = held[some] if (~held[some]).any() else np.zeros(int(some.sum()), bool)
        network = self._network(x)
        goal: Goal = "classes" if variable is not None and variable.size else "numbers"
        scale = (0.0, 1.0)
        if variable is None:
            truth = x[some].reshape(int(some.sum()), -1)
        elif goal == "classes":
            truth = y[some].astype(np.float32)
        else:
            scale = float(y[some].mean()), float(y[some].std()) or 1.0
            truth = ((y[some] - scale[0]) / scale[1]).astype(np.float32)[:, None]
        outputs = variable.size if variable is not None and variable.size else truth.shape[-1]
        arrays = TrainingJob(x[some], truth, held, seed)
        return ReadyTraining(reading, network, variable, goal, outputs, arrays, scale)

    def keep(self, ready: ReadyTraining, learned: Learned) -> Self:
        """Store the learned state."""
        self.target_ = ready.target
        self.reading_, self.network_ = ready.reading, ready.network
        self.weights_, self.history_ = learned.weights, learned.history
        self._outputs, self._scale = ready.outputs, ready.scale
        return self

    def schedule(self) -> Schedule:
        return Schedule(self.epochs, self.learning_rate, self.batch, self.patience)

    def _network(self, x: npt.NDArray[np.float32]) -> Network:
        raise NotImplementedError


class SequenceEncoder(NetworkEncoder):
    """An LSTM or GRU over series, and a linear layer over its steps.

    Series of one row may have different lengths (NaN after the end) and gaps; ordinary columns go
    in as channels that do not change.

    Parameters
    ----------
    cell : {"lstm", "gru"}, default="lstm"
        The recurrent cell.
    width : int, default=16
        The width of representations.
    epochs : int, default=60
        The maximum number of passes over the rows.
    learning_rate : float, default=0.003
        The learning rate of Adam.
    batch : int, default=100
        Rows per step.
    patience : int, default=20
        Training ends after this many epochs without a lower loss on held-back rows.
    random_state : int, optional
        Seed of an encoder that is fitted alone; a fusion uses its own.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> series = np.random.default_rng(0).normal(size=(60, 12, 2))
    >>> table = Table.from_series({"speed": series}, {"event": series[:, :, 0].mean(axis=1) > 0})
    >>> SequenceEncoder(width=4, epochs=2).fit(table, "event").encode(table).shape
    (60, 4)
    """

    allowed: ClassVar[Declared] = {**NetworkEncoder.allowed, "cell": Choice("lstm", "gru")}

    def __init__(
        self,
        *,
        cell: Cell = "lstm",
        width: int = 16,
        epochs: int = 60,
        learning_rate: float = 0.003,
        batch: int = 100,
        patience: int = 20,
        random_state: int | None = None,
    ) -> None:
        self.cell: Cell = cell
        super().__init__(width, epochs, learning_rate, batch, patience, random_state)

    def _network(self, x: npt.NDArray[np.float32]) -> Network:
        return Recurrent(self.cell, x.shape[1], x.shape[2], self.width)


class TabularEncoder(NetworkEncoder):
    """A network with ReLU over ordinary columns; series, if there are any, end to end.

    Parameters
    ----------
    hidden : tuple of int, default=(32,)
        Widths of the layers before the representation.
    width : int, default=16
        The width of representations.
    epochs : int, default=60
        The maximum number of passes over the rows.
    learning_rate : float, default=0.003
        The learning rate of Adam.
    batch : int, default=100
        Rows per step.
    patience : int, default=20
        Training ends after this many epochs without a lower loss on held-back rows.
    random_state : int, optional
        Seed of an encoder that is fitted alone; a fusion uses its own.

    Examples
    --------
    >>> from fedcircuits import datasets
    >>> table = datasets.load("breast_cancer")
    >>> TabularEncoder(width=4, epochs=2).fit(table, "diagnosis").encode(table).shape
    (569, 4)
    """

    def __init__(
        self,
        *,
        hidden: tuple[int, ...] = (32,),
        width: int = 16,
        epochs: int = 60,
        learning_rate: float = 0.003,
        batch: int = 100,
        patience: int = 20,
        random_state: int | None = None,
    ) -> None:
        self.hidden = hidden
        super().__init__(width, epochs, learning_rate, batch, patience, random_state)

    def _network(self, x: npt.NDArray[np.float32]) -> Network:
        hidden: object = self.hidden
        if not isinstance(hidden, Iterable) or not all(map(is_whole, sizes := tuple(hidden))):
            raise ParameterError(
                "hidden must have the widths of layers, whole numbers from 1, such as (32,), got "
                f"{hidden!r}"
            )
        return Perceptron(x.shape[1], tuple(map(int, sizes)), self.width)


def _target(table: Table, target: str | None) -> tuple[Array, Variable | None]:
    """The target's numbers (rows,), and what it is; None if no row has it."""
    y = labels(table, target)
    return y, None if np.isnan(y).all() else table.schema[str(target)]


def run_all(ready: Sequence[ReadyTraining], schedule: Schedule) -> list[Learned]:
    """Train all; networks, rows and objectives must have one shape."""
    first = ready[0]
    jobs = [r.job for r in ready]
    return apart.learn(first.network, first.goal, first.outputs, jobs, schedule)

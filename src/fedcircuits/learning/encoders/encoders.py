"""Encoders: an owner's own model of its rows, whose representation goes into a fusion.

    fit(table, target)   learn from the owner's columns, series and labels; with no target, or no
                         label, from the rows alone
    encode(table)        (rows, width): what is known of each row; NaN where nothing is

``SequenceEncoder`` and ``TabularEncoder`` are networks with a linear layer on top. With labels that
layer predicts them; without, it gives back the inputs (an autoencoder). What is encoded is what
goes into that layer. Owners may have different encoders, of different widths.

Other encoders are welcome (``encoder_of``): any object with ``encode``, a torch module that is
trained already, a scikit-learn transformer. They are asked for rows as inputs.py reads them. A
party that holds the target alone has nothing to encode (``LabelsOnly``).

``fit_all`` trains many owners: those whose networks and rows have one shape in one batched
computation (apart.py), each as it would have been trained alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import SEED, Choice, Declared, Real, Whole, check_arguments, is_whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, TableError
from fedcircuits.learning.encoders import apart
from fedcircuits.learning.encoders.apart import Goal, Learned, Schedule, TrainingJob
from fedcircuits.learning.encoders.foreign import (
    Encoder,
    ForeignEncoder,
    Frozen,
    LabelsOnly,
    is_module,
)
from fedcircuits.learning.encoders.inputs import InputReading, require_inputs
from fedcircuits.learning.encoders.networks import Cell, Network, Perceptron, Recurrent, Shapes
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

Held: TypeAlias = npt.NDArray[np.bool_]
HELD = 0.125  # share of rows that an encoder which learns alone stops by


@dataclass(frozen=True, slots=True)
class EncoderJob:
    """One owner's training: its encoder, its rows, which of them to stop by.

    ``job()`` is a learned copy of the encoder, ``fit_all([job, …])`` those of many owners.
    """

    encoder: Encoder
    table: Table  # with the target, where it is known
    target: str | None
    held: Held
    seed: tuple[int, ...]

    def __call__(self) -> Encoder:
        (learned,) = fit_all([self])
        return learned


@dataclass(frozen=True, slots=True)
class _Ready:
    """A network's training that only has to be run."""

    reading: InputReading
    network: Network
    goal: Goal
    outputs: int
    job: TrainingJob
    scale: tuple[float, float]  # mean and deviation of a number that is predicted


class NetworkEncoder(BaseEstimator):  # type: ignore[misc]
    """What both networks share; ``SequenceEncoder`` and ``TabularEncoder`` say which one it is."""

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
        job = EncoderJob(self, X, target, held, (seed,))
        ready = self._ready(job)
        (learned,) = _run([ready], self._schedule())
        return self._keep(job, ready, learned)

    def encode(self, X: Table) -> Array:
        """(rows, width): what goes into the last layer."""
        return self._asked(X, 0)

    def predict_vector(self, X: Table) -> Array:
        """(rows, classes) probabilities or (rows, 1) numbers, as this owner alone predicts them."""
        if self._fitted().target_ is None:
            raise ParameterError(
                f"this {type(self).__name__} learned without labels: no predictions"
            )
        output = self._asked(X, 1)
        if not self.target_.size:  # type: ignore[union-attr]
            return output * self._scale[1] + self._scale[0]
        likely = np.exp(output - output.max(axis=1, keepdims=True))
        return np.asarray(likely / likely.sum(axis=1, keepdims=True))

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
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit")
        return self

    @property
    def _shapes(self) -> Shapes:
        return apart.shapes_with_head(self.network_, self._outputs)

    def _ready(self, job: EncoderJob) -> _Ready:
        check_arguments(self)
        table = job.table
        y, variable = _labels(job)
        some = np.ones(len(table), bool) if variable is None else ~np.isnan(y)
        learned = some & ~job.held
        rows = table.rows(learned) if learned.any() else table
        reading = InputReading.of(rows, job.target, isinstance(self, SequenceEncoder))
        x, known = reading.read(table)
        some &= known
        if not some.any():
            raise TableError("there is no row to learn an encoder from: all values are missing")
        held = job.held[some] if (~job.held[some]).any() else np.zeros(int(some.sum()), bool)
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
        arrays = TrainingJob(x[some], truth, held, job.seed)
        return _Ready(reading, network, goal, outputs, arrays, scale)

    def _keep(self, job: EncoderJob, ready: _Ready, learned: Learned) -> Self:
        _, self.target_ = _labels(job)
        self.reading_, self.network_ = ready.reading, ready.network
        self.weights_, self.history_ = learned.weights, learned.history
        self._outputs, self._scale = ready.outputs, ready.scale
        return self

    def _schedule(self) -> Schedule:
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
        What is repeated over the steps.
    width : int, default=16
        Numbers in a representation.
    epochs : int, default=60
        At most so many passes over the rows.
    learning_rate : float, default=0.003
        Of Adam.
    batch : int, default=100
        Rows per step.
    patience : int, default=20
        Training ends after so many epochs without a lower loss on the rows held back.
    random_state : int, optional
        Seed of an encoder that is fitted alone; a fusion has its own.

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
        Numbers in a representation.
    epochs : int, default=60
        At most so many passes over the rows.
    learning_rate : float, default=0.003
        Of Adam.
    batch : int, default=100
        Rows per step.
    patience : int, default=20
        Training ends after so many epochs without a lower loss on the rows held back.
    random_state : int, optional
        Seed of an encoder that is fitted alone; a fusion has its own.

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


def _labels(job: EncoderJob) -> tuple[Array, Variable | None]:
    """The target's numbers (rows,), and what it is; None if no row has it."""
    if job.target is None or job.target not in job.table.schema:
        return np.full(len(job.table), np.nan), None
    y = job.table.values[:, job.table.schema.index(job.target)]
    return y, None if np.isnan(y).all() else job.table.schema[job.target]


def _run(ready: Sequence[_Ready], schedule: Schedule) -> list[Learned]:
    first = ready[0]
    jobs = [r.job for r in ready]
    return apart.learn(first.network, first.goal, first.outputs, jobs, schedule)


def fit_all(jobs: Sequence[EncoderJob]) -> list[Encoder]:
    """A learned copy of every owner's encoder; owners of one shape learn in one computation."""
    learned: dict[int, Encoder] = {}
    groups: dict[tuple[object, ...], list[tuple[int, EncoderJob, NetworkEncoder, _Ready]]] = {}
    for i, job in enumerate(jobs):
        own = encoder_of(job.encoder)
        if nothing_to_read(job.table, job.target):
            learned[i] = LabelsOnly()
        elif isinstance(own, NetworkEncoder):
            own = clone(own)
            ready = own._ready(job)
            shapes = ready.job.x.shape, ready.job.y.shape, int(ready.job.held.sum())
            key = (ready.network, ready.goal, ready.outputs, own._schedule(), *shapes)
            groups.setdefault(key, []).append((i, job, own, ready))
        else:
            learned[i] = own if isinstance(own, Frozen | LabelsOnly) else _taught(own, job)
    for members in groups.values():
        results = _run([r for *_, r in members], members[0][2]._schedule())
        for (i, job, own, ready), result in zip(members, results, strict=True):
            learned[i] = own._keep(job, ready, result)
    return [learned[i] for i in range(len(jobs))]


# ---------------------------------------------------------------------- other encoders


def nothing_to_read(table: Table, target: str | None) -> bool:
    """Whether a table has no column but the target."""
    return not table.series and all(name == target for name in table.names)


def encoder_of(model: object) -> Encoder:
    """Whatever can encode rows, as an ``Encoder``."""
    if isinstance(model, Frozen) and not hasattr(model.encoder, "encode"):
        raise ParameterError(
            f"Frozen must have an encoder with encode(table), got {type(model.encoder).__name__}: "
            "a torch module is never trained and a transformer is fitted by its owner, so give "
            "them as they are"
        )
    if isinstance(model, NetworkEncoder | ForeignEncoder | Frozen | LabelsOnly):
        return model
    if isinstance(model, type):
        raise ParameterError(f"an encoder must be an object, got the class {model.__name__}")
    if isinstance(model, str | bytes):  # which have an encode of their own
        raise ParameterError(
            f"an encoder must be an object, such as TabularEncoder(), got {model!r}"
        )
    if hasattr(model, "encode") or hasattr(model, "transform") or is_module(model):
        return ForeignEncoder(model)
    raise ParameterError(
        "an encoder must have encode(table), be a torch module or a scikit-learn transformer, "
        f"got {type(model).__name__}"
    )


def encoder_for(given: object, owner: str, table: Table) -> Encoder:
    """An owner's encoder: one for all, its own of a dict by owner, or by default what suits it."""
    own = given.get(owner) if isinstance(given, Mapping) else given
    if own is None:
        own = SequenceEncoder() if table.series else TabularEncoder()
    return encoder_of(own)


def _taught(own: Encoder, job: EncoderJob) -> Encoder:
    fresh = ForeignEncoder(cast(ForeignEncoder, own).model)
    return fresh.fit(job.table.rows(~job.held) if (~job.held).any() else job.table, job.target)

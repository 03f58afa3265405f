"""The choice of every owner's encoder, and the training of many owners.

Anything that can encode rows is accepted (``encoder_of``): an encoder of this package or its name,
any object with ``encode``, a trained torch module, a scikit-learn transformer. A party that only
holds the target has nothing to encode (``LabelsOnly``).

``BestEncoder`` chooses on the owner's held-back rows: all candidates learn from the rest, and each
predicts the held-back ones. The first candidate, which needs the fewest rows, is taken unless the
loss of another one is lower by more than two standard errors of the difference per row: a network
has used these rows for early stopping and looks better on them than it is. An owner without labels,
or with fewer than ``FEWEST`` on held-back rows, also gets the first.

By default (``encoder_for``) an owner of series chooses this way. An owner of columns only gets a
network with half as many outputs as columns: its representations cannot be inverted into the
columns, unlike those of "summary", which passes them on.

``fit_all`` trains many owners: those whose networks and rows have one shape in one batched
computation (apart.py), each as it would have been trained alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias, cast

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.learning.encoders.encoders import (
    HELD,
    Held,
    NetworkEncoder,
    ReadyTraining,
    SequenceEncoder,
    TabularEncoder,
    run_all,
)
from fedcircuits.learning.encoders.fixed import FixedEncoder, RocketEncoder, SummaryEncoder
from fedcircuits.learning.encoders.foreign import (
    Encoder,
    ForeignEncoder,
    Frozen,
    LabelsOnly,
    is_module,
    labels,
)
from fedcircuits.tables.table import Table

COLUMNS, WIDEST = 2, 8  # by default: columns per number of a representation, numbers at most
FEWEST = 8  # labelled held-out rows that a choice can be made by
SURE = 2.0  # standard errors by which a later candidate must be better
Group: TypeAlias = list[tuple[int, NetworkEncoder, ReadyTraining]]


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


class BestEncoder(BaseEstimator):  # type: ignore[misc]
    """The encoder of several that best predicts an owner's held-back rows.

    Parameters
    ----------
    candidates : sequence of encoders or their names, optional
        In the order of how few rows they need: a later one is taken only where its loss is lower by
        more than chance. By default ``("summary", "rocket", "recurrent")`` for an owner with
        series, ``("summary", "network")`` for any other.
    random_state : int, optional
        Seed of an encoder that is fitted alone; a fusion has its own.

    Attributes
    ----------
    encoder_ : encoder
        The chosen encoder, fitted. In a fusion it is in the owner's view.
    losses_ : dict of str to float
        Mean loss of each candidate on held-back rows: cross-entropy, or squared error. Empty if
        there was nothing to choose by.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> series = np.random.default_rng(0).normal(size=(80, 12, 1))
    >>> table = Table.from_series({"speed": series}, {"event": series[:, :, 0].mean(axis=1) > 0})
    >>> best = BestEncoder(["summary", "rocket"]).fit(table, "event")
    >>> type(best.encoder_).__name__, best.encode(table).shape
    ('SummaryEncoder', (80, 10))
    """

    encoder_: Encoder
    losses_: dict[str, float]

    def __init__(
        self, candidates: Sequence[object] | None = None, *, random_state: int | None = None
    ) -> None:
        self.candidates = candidates
        self.random_state = random_state

    def fit(self, X: Table, target: str | None = None) -> Self:
        """Let all candidates learn, and keep the best."""
        seed = int(self.random_state or 0)
        held = np.random.default_rng(seed).random(len(X)) < HELD
        jobs = self.jobs(EncoderJob(self, X, target, held, (seed,)))
        return self.choose(jobs, fit_all(jobs))

    def encode(self, X: Table) -> Array:
        """The representation of the chosen encoder."""
        return np.asarray(self._fitted().encode(X), dtype=np.float64)

    def predict_vector(self, X: Table) -> Array:
        """(rows, classes) probabilities or (rows, 1) numbers, as this owner alone predicts them."""
        return np.asarray(self._fitted().predict_vector(X))  # type: ignore[attr-defined]

    def check(self, table: Table, target: str | None) -> None:
        """An error unless every candidate can read the table."""
        for candidate in self._candidates(table):
            if isinstance(candidate, NetworkEncoder | FixedEncoder):
                candidate.check(table, target)

    def jobs(self, job: EncoderJob) -> list[EncoderJob]:
        """One for each candidate."""
        return [replace(job, encoder=candidate) for candidate in self._candidates(job.table)]

    def choose(self, jobs: Sequence[EncoderJob], learned: Sequence[Encoder]) -> Self:
        """Keep the best of what the candidates have learned."""
        table, target, held = jobs[0].table, jobs[0].target, jobs[0].held
        y = labels(table, target)
        at = np.flatnonzero(held & ~np.isnan(y))
        self.encoder_, self.losses_ = learned[0], {}
        if len(learned) < 2 or len(at) < FEWEST or len(at) == int((~np.isnan(y)).sum()):
            return self
        rows, size = table.rows(at), table.schema[str(target)].size
        losses = [_losses(encoder, rows, y[at], size) for encoder in learned]
        self.encoder_ = learned[_best(losses)]
        for encoder, loss in zip(learned, losses, strict=True):
            self.losses_[type(encoder).__name__] = float(loss.mean())
        return self

    def _candidates(self, table: Table) -> list[Encoder]:
        given = self.candidates
        if given is None:
            given = ("summary", "rocket", "recurrent") if table.series else ("summary", "network")
        if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
            raise ParameterError(
                "candidates must be encoders or their names, such as ['summary', 'recurrent'], "
                f"got {given!r}"
            )
        encoders = [encoder_of(candidate) for candidate in given]
        for one in encoders:
            if isinstance(one, BestEncoder | LabelsOnly):
                raise ParameterError(f"a candidate cannot be {type(one).__name__}")
        return encoders

    def _fitted(self) -> Encoder:
        if not hasattr(self, "encoder_"):
            raise NotFittedError("this BestEncoder is not fitted yet: call fit")
        return self.encoder_


def _losses(encoder: Encoder, rows: Table, y: Array, size: int) -> Array:
    """(rows,): of what an encoder alone predicts; infinite where it predicts nothing."""
    if getattr(encoder, "target_", None) is None:
        return np.full(len(y), np.inf)
    predicted = np.asarray(encoder.predict_vector(rows), np.float64)  # type: ignore[attr-defined]
    if not size:
        return np.square(np.nan_to_num(predicted[:, 0], nan=float(np.mean(y))) - y)
    chance = np.nan_to_num(predicted[np.arange(len(y)), y.astype(np.int64)], nan=1 / size)
    return np.asarray(-np.log(np.maximum(chance, 1e-4)))


def _best(losses: Sequence[Array]) -> int:
    """The first, unless another one is better by more than chance."""
    chosen = 0
    for i, loss in enumerate(losses):
        if not np.isfinite(losses[chosen]).all():
            chosen = i
            continue
        gain = losses[chosen] - loss
        if np.isfinite(gain).all() and gain.mean() > SURE * gain.std() / np.sqrt(len(gain)):
            chosen = i
    return chosen


# ---------------------------------------------------------------------- training


def fit_all(jobs: Sequence[EncoderJob]) -> list[Encoder]:
    """A learned copy of every owner's encoder; owners of one shape learn in one computation."""
    single: list[EncoderJob] = []
    places: list[tuple[BestEncoder | None, slice]] = []
    for job in jobs:
        encoder = encoder_of(job.encoder)
        best = encoder if isinstance(encoder, BestEncoder) else None
        if best is None or nothing_to_read(job.table, job.target):
            best, each = None, [job]
        else:
            each = best.jobs(job)
        places.append((best, slice(len(single), len(single) + len(each))))
        single += each
    learned = _fit_single(single)
    return [
        learned[at][0] if best is None else clone(best).choose(single[at], learned[at]).encoder_
        for best, at in places
    ]


def _fit_single(jobs: Sequence[EncoderJob]) -> list[Encoder]:
    learned: dict[int, Encoder] = {}
    groups: dict[tuple[object, ...], Group] = {}
    for i, job in enumerate(jobs):
        encoder = encoder_of(job.encoder)
        if nothing_to_read(job.table, job.target):
            learned[i] = LabelsOnly()
        elif isinstance(encoder, NetworkEncoder):
            encoder = clone(encoder)
            ready = encoder.ready(job.table, job.target, job.held, job.seed)
            shapes = ready.job.x.shape, ready.job.y.shape, int(ready.job.held.sum())
            key = (ready.network, ready.goal, ready.outputs, encoder.schedule(), *shapes)
            groups.setdefault(key, []).append((i, encoder, ready))
        else:
            learned[i] = (
                encoder if isinstance(encoder, Frozen | LabelsOnly) else _taught(encoder, job)
            )
    for members in groups.values():
        results = run_all([ready for *_, ready in members], members[0][1].schedule())
        for (i, encoder, ready), result in zip(members, results, strict=True):
            learned[i] = encoder.keep(ready, result)
    return [learned[i] for i in range(len(jobs))]


def _taught(encoder: Encoder, job: EncoderJob) -> Encoder:
    fresh = clone(encoder) if isinstance(encoder, FixedEncoder) else None
    fresh = ForeignEncoder(cast(ForeignEncoder, encoder).model) if fresh is None else fresh
    return fresh.fit(job.table.rows(~job.held) if (~job.held).any() else job.table, job.target)


# ---------------------------------------------------------------------- which encoder


def nothing_to_read(table: Table, target: str | None) -> bool:
    """Whether a table has no column but the target."""
    return not table.series and all(name == target for name in table.names)


NAMED = {
    "auto": BestEncoder, "summary": SummaryEncoder, "rocket": RocketEncoder,
    "recurrent": SequenceEncoder, "network": TabularEncoder,
}  # fmt: skip


def encoder_of(model: object) -> Encoder:
    """Whatever can encode rows, as an ``Encoder``."""
    if isinstance(model, Frozen) and not hasattr(model.encoder, "encode"):
        raise ParameterError(
            f"Frozen must have an encoder with encode(table), got {type(model.encoder).__name__}: "
            "a torch module is never trained and a transformer is fitted by its owner, so give "
            "them as they are"
        )
    known = NetworkEncoder | FixedEncoder | ForeignEncoder | BestEncoder | Frozen | LabelsOnly
    if isinstance(model, known):
        return model
    if isinstance(model, type):
        raise ParameterError(f"an encoder must be an object, got the class {model.__name__}")
    if isinstance(model, str) and model in NAMED:
        return cast(Encoder, NAMED[model]())
    if isinstance(model, str | bytes):  # which have an encode of their own
        raise ParameterError(
            "an encoder must be an object, such as TabularEncoder(), or one of "
            f"{', '.join(map(repr, NAMED))}, got {model!r}"
        )
    if hasattr(model, "encode") or hasattr(model, "transform") or is_module(model):
        return ForeignEncoder(model)
    raise ParameterError(
        "an encoder must have encode(table), be a torch module or a scikit-learn transformer, "
        f"got {type(model).__name__}"
    )


def encoder_for(
    given: object, owner: str, table: Table, added: bool, target: str | None = None
) -> Encoder:
    """An owner's encoder: one for all, one per owner from a dict, or by default a suitable one; a
    network where representations are ``added`` up, since all must have the same width."""
    choice = given.get(owner) if isinstance(given, Mapping) else given
    if choice is None and added:
        choice = "recurrent" if table.series else "network"
    if choice is None and not table.series:
        columns = sum(name != target for name in table.names)
        choice = TabularEncoder(width=max(1, min(WIDEST, columns // COLUMNS)))
    return encoder_of("auto" if choice is None else choice)

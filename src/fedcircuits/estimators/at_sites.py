"""What a caller keeps of trainings and models whose parties are sites.

While it trains, the caller's store remembers what is trained and with which seed, so that a new
process can go on by the run's name. When training has come to its end, the store has the
coordinator's part of the model, and so has the file that ``save`` writes: an estimator as a recipe,
in which the parties' parts are handles. Engines without sites keep nothing, here and elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator, clone

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.records import read_from
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, FileError, ProtocolError
from fedcircuits.federation.described import Whereabouts
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.recipes import pack, unpack


@dataclass(frozen=True, slots=True)
class BegunTraining:
    """What is trained: by which estimator, unless it holds things of other libraries."""

    estimator: BaseEstimator | None
    seed: int
    parties: tuple[str, ...]


# ---------------------------------------------------------------------- trainings


def remember(
    engine: Engine, run: str, estimator: BaseEstimator, seed: int, parties: tuple[str, ...]
) -> None:
    """FederationError if the name is that of another training, which was broken off."""
    if (store := getattr(engine, "kept_here", None)) is None:
        return
    if store.recall(run) is not None:
        raise FederationError(
            f"a training {run!r} was broken off: fit(…, resume={run!r}) goes on with it; or forget "
            "it, or give the new one another name"
        )
    try:
        training = pack(BegunTraining(clone(estimator), seed, parties))
    except ProtocolError:
        training = pack(BegunTraining(None, seed, parties))
    store.remember(run, training)


def recall(engine: object, run: str) -> BegunTraining:
    """What was begun under that name and has not come to its end, or FederationError."""
    if (store := getattr(engine, "kept_here", None)) is None:
        raise FederationError(
            f"resume={run!r} goes on with a run on sites: the federation is not connected to any; "
            "fit(…, resume=True) goes on with what this process has begun"
        )
    if (training := store.recall(run)) is None:
        others = ", ".join(map(repr, store.trainings())) or "none"
        raise FederationError(f"no training {run!r} was broken off here; broken off: {others}")
    content = unpack(training)
    if not isinstance(content, BegunTraining):
        raise FederationError(f"what is kept of the training {run!r} is damaged: forget it")
    return content


def next_name(engine: Engine, run: str) -> str:
    """Of a run that goes on without a lost party: sites know the old one by its plan."""
    if not hasattr(engine, "named"):
        return run
    stem, _, number = run.rpartition(".")
    return f"{stem}.{int(number) + 1}" if stem and number.isdigit() else f"{run}.2"


def keep(engine: Engine, model: str, estimator: BaseEstimator) -> None:
    """The coordinator's part, in the caller's own store."""
    if getattr(engine, "where", None) is not None:
        with suppress(ProtocolError):  # arguments of other libraries: it is not kept
            engine.kept_here.keep(model, estimator)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- models


def write(
    path: str | os.PathLike[str], estimator: Any, where: Whereabouts, about: dict[str, object]
) -> None:
    """The coordinator's part and where the others are, as an .fc file."""
    try:
        part = pack(estimator)
    except ProtocolError as error:
        raise FileError(f"cannot write {path}: {error}") from error
    kind = {"estimator": type(estimator).__name__}
    files.write_members(path, {files.PART: part}, {**kind, **about, **asdict(where)})


def read(path: str | os.PathLike[str]) -> object | None:
    """What a file holds of a model whose other parts are at sites; None if it is no such file."""
    members, metadata = files.read_members(Path(path))
    if files.PART not in members:
        return None
    with read_from(path):
        part = unpack(members[files.PART])
        if type(part).__name__ != metadata.get("estimator"):
            raise FileError(f"expected {metadata.get('estimator')}, got {type(part).__name__}")
    return part  # type: ignore[no-any-return]


def engine_to(
    federation: Federation, where: Whereabouts | None, model: str, parties: Collection[str]
) -> Engine:
    """The engine that reaches the parts of a model, or FederationError."""
    if where is None:
        raise FederationError("all parts of this model are in this process: ask it")
    there = getattr(federation.engine, "where", None)
    if not isinstance(there, Whereabouts):
        kit = where.kit or "…"
        raise FederationError(
            f"the federation is not connected to sites: take Federation.connect({kit!r})"
        )
    if there.consortium != where.consortium:
        raise FederationError(
            f"the model is kept by sites of the consortium {where.consortium!r}, the federation is "
            f"connected to {there.consortium!r}"
        )
    if absent := [name for name in parties if name not in federation.parties]:
        raise FederationError(
            f"{', '.join(absent)} keeps a part of the model {model!r} and is not in the federation"
        )
    kept = federation.models().get(model, ())
    if forgotten := [name for name in parties if name not in kept]:
        raise FederationError(
            f"{', '.join(forgotten)} keeps no model {model!r}: it was forgotten there; train anew"
        )
    engine: Engine = federation.engine  # type: ignore[assignment]
    return engine

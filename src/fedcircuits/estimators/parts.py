"""A fitted model whose parts are held by its parties: where they are, saving, and reconnecting.

Every model has a name. Where parties are sites, each keeps what it has learned under this name, and
the estimator holds the coordinator's part and handles (``Held``). ``save`` writes only that, as a
recipe, and another process asks the model again with ``load(path, federation)`` or ``reconnect``.

During training, the caller's store remembers what is being trained and with which seed, so that a
new process can resume it by the name of the run. After training, the store keeps the coordinator's
part of the model. Engines without sites store nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from sklearn.base import BaseEstimator, clone

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.records import read_from
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, FileError, ProtocolError, QueryError
from fedcircuits.estimators.in_notebooks import ShownInNotebooks
from fedcircuits.federation.described import Whereabouts
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.federation.recipes import pack, unpack


class Savable(Protocol):
    def save(self, path: str | os.PathLike[str]) -> None: ...


class ModelInParts(ShownInNotebooks, BaseEstimator):  # type: ignore[misc]
    """Base class of federated estimators: what they do once fitted."""

    name_: str  # of the model
    where_: Whereabouts | None = None  # the sites that keep its parts, if parties are sites
    _allow_collect: dict[str, bool]  # by party that took part to the end

    @property
    def _engine(self) -> Engine:
        """Where the parties run."""
        engine: Engine | None = self.__dict__.get("_engine")
        if engine is not None:
            return engine
        kit = self.where_.kit if self.where_ else ""
        raise FederationError(
            f"the parts of this {type(self).__name__} are at {', '.join(self._allow_collect)}: "
            f"connect to them, federation = Federation.connect({kit or '…'!r}), then "
            "load(path, federation) or model.reconnect(federation)"
        )

    @_engine.setter
    def _engine(self, engine: Engine) -> None:
        self.__dict__["_engine"] = engine

    def _check_fitted(self) -> None:
        raise NotImplementedError

    def collect(self) -> Savable:
        """The whole model as a local object, if every party allows it."""
        raise QueryError(f"{type(self).__name__} cannot be collected in one place")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically as one .fc file.

        If the parties are sites, the file holds the coordinator's part and where the others are:
        ``load(path, federation)`` loads it again. Otherwise it holds the collected model, if every
        party allows that.
        """
        self._check_fitted()
        if self.where_ is None:
            self._save_collected(path)
        else:
            about: dict[str, object] = {
                "target": getattr(self, "target", None),
                "model": self.name_,
            }
            about |= {"parties": list(self._allow_collect)}
            write(path, self, self.where_, about)

    def _save_collected(self, path: str | os.PathLike[str]) -> None:
        self.collect().save(path)

    def reconnect(self, federation: Federation) -> Self:
        """Connect the model to the sites that hold its parts.

        ``model.reconnect(Federation.connect("kits/coordinator"))``. FederationError names a site
        that no longer keeps its part.
        """
        self._check_fitted()
        engine = engine_to(federation, self.where_, self.name_, self._allow_collect)
        self._engine, self.where_ = engine, getattr(engine, "where", None)
        self.__dict__.pop("_ready", None)
        return self

    def __getstate__(self) -> dict[str, object]:
        """Without the state of a failed run, cached distributions and connections."""
        away = ("_state", "_ready", *(("_engine",) if self.where_ else ()))
        return {n: value for n, value in super().__getstate__().items() if n not in away}


@dataclass(frozen=True, slots=True)
class BegunTraining:
    """A training in progress; the estimator is None if it holds objects of other libraries."""

    estimator: BaseEstimator | None
    seed: int
    parties: tuple[str, ...]


# ---------------------------------------------------------------------- trainings


def remember(
    engine: Engine, run: str, estimator: BaseEstimator, seed: int, parties: tuple[str, ...]
) -> None:
    """Record a training; FederationError if an interrupted one has the same name."""
    if (store := getattr(engine, "kept_here", None)) is None:
        return
    if store.recall(run) is not None:
        raise FederationError(
            f"a training {run!r} was interrupted: fit(…, resume={run!r}) continues it; or forget "
            "it, or choose another name"
        )
    try:
        training = pack(BegunTraining(clone(estimator), seed, parties))
    except ProtocolError:
        training = pack(BegunTraining(None, seed, parties))
    store.remember(run, training)


def recall(engine: object, run: str) -> BegunTraining:
    """The interrupted training of that name, or FederationError."""
    if (store := getattr(engine, "kept_here", None)) is None:
        raise FederationError(
            f"resume={run!r} continues a run on sites, but the federation is not connected to "
            "any; fit(…, resume=True) continues a run of this process"
        )
    if (training := store.recall(run)) is None:
        others = ", ".join(map(repr, store.trainings())) or "none"
        raise FederationError(f"no training {run!r} was interrupted here; interrupted: {others}")
    content = unpack(training)
    if not isinstance(content, BegunTraining):
        raise FederationError(f"the stored state of the training {run!r} is damaged: forget it")
    return content


def next_name(engine: Engine, run: str) -> str:
    """The name of a run that continues without a lost party: sites know the old one by its plan."""
    if not hasattr(engine, "named"):
        return run
    stem, _, number = run.rpartition(".")
    return f"{stem}.{int(number) + 1}" if stem and number.isdigit() else f"{run}.2"


def keep(engine: Engine, model: str, estimator: BaseEstimator) -> None:
    """Keep the coordinator's part in the caller's store."""
    if getattr(engine, "where", None) is not None:
        with suppress(ProtocolError):  # arguments of other libraries: it is not kept
            engine.kept_here.keep(model, estimator)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- models


def write(
    path: str | os.PathLike[str], estimator: Any, where: Whereabouts, about: dict[str, object]
) -> None:
    """Write the coordinator's part, and where the others are, as an .fc file."""
    try:
        part = pack(estimator)
    except ProtocolError as error:
        raise FileError(f"cannot write {path}: {error}") from error
    kind = {"estimator": type(estimator).__name__}
    files.write_members(path, {files.PART: part}, {**kind, **about, **asdict(where)})


def read(path: str | os.PathLike[str]) -> object | None:
    """The coordinator's part in a file of a model held by sites; None for any other file."""
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
        raise FederationError("all parts of this model are in this process: query it directly")
    there = getattr(federation.engine, "where", None)
    if not isinstance(there, Whereabouts):
        kit = where.kit or "…"
        raise FederationError(
            f"the federation is not connected to sites: use Federation.connect({kit!r})"
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
            f"{', '.join(forgotten)} has no model {model!r}: it was forgotten there; train again"
        )
    engine: Engine = federation.engine  # type: ignore[assignment]
    return engine


def refuse_to_collect(allowed: Mapping[str, bool]) -> None:
    """Raise unless every party allows what it has learned to be collected."""
    refused = [n for n, allows in allowed.items() if n != COORDINATOR and not allows]
    if refused:
        raise FederationError(
            f"{', '.join(refused)} did not allow learned parameters to leave them: use "
            "Federation(…, allow_collect=True), or query the model in place"
        )

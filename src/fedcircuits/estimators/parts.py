"""A fitted model whose parts its parties hold: where they are, saved and reached again.

A model has a name. Where parties are sites, each keeps what it has learned under this name, and the
estimator has the coordinator's part and handles (``Held``). It is saved without theirs, and asked
again from another process: ``load(path, federation)``, or ``reconnect``.
"""

from __future__ import annotations

import os
from typing import Protocol, Self

from sklearn.base import BaseEstimator

from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators import at_sites
from fedcircuits.estimators.in_notebooks import ShownInNotebooks
from fedcircuits.federation.described import Whereabouts
from fedcircuits.federation.federation import Federation


class Savable(Protocol):
    def save(self, path: str | os.PathLike[str]) -> None: ...


class ModelInParts(ShownInNotebooks, BaseEstimator):  # type: ignore[misc]
    """Every federated estimator, once it is fitted."""

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
        """The whole model in one place, if every party has allowed it."""
        raise QueryError(f"{type(self).__name__} has no form in one place")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one .fc file, whole or not at all.

        Where parties are sites, the file has the coordinator's part and says where the others are:
        ``load(path, federation)`` asks it again. Otherwise it has the collected model, if every
        party has allowed that.
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
            at_sites.write(path, self, self.where_, about)

    def _save_collected(self, path: str | os.PathLike[str]) -> None:
        self.collect().save(path)

    def reconnect(self, federation: Federation) -> Self:
        """The same model, asked from now on through a federation connected to its sites.

        ``model.reconnect(Federation.connect("kits/coordinator"))``. A site that no longer keeps its
        part is named.
        """
        self._check_fitted()
        engine = at_sites.engine_to(federation, self.where_, self.name_, self._allow_collect)
        self._engine, self.where_ = engine, getattr(engine, "where", None)
        self.__dict__.pop("_ready", None)
        return self

    def __getstate__(self) -> dict[str, object]:
        """Without what belongs to a run, the state of a failed one and distributions made ready,
        and without a connection."""
        away = ("_state", "_ready", *(("_engine",) if self.where_ else ()))
        return {n: value for n, value in super().__getstate__().items() if n not in away}

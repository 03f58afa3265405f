"""What a caller keeps in its own kit: trainings that were broken off, its parts of models."""

from __future__ import annotations

from fedcircuits.engines.sites.store import Store
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR


class CallerStore:
    """Nothing is kept without a store."""

    def __init__(self, store: Store | None) -> None:
        self.store = store

    def remember(self, run: str, training: bytes) -> None:
        """What is trained, until ``keep``: so that a new process can go on by the run's name."""
        if self.store is not None:
            self.store.remember(run, training)

    def recall(self, run: str) -> bytes | None:
        return None if self.store is None else self.store.recall(run)

    def trainings(self) -> list[str]:
        """Names of those that were broken off."""
        return [] if self.store is None else self.store.trainings()

    def keep(self, run: str, part: object) -> None:
        """The coordinator's part of a model whose training has come to its end."""
        if self.store is not None:
            self.store.keep_model(run, COORDINATOR, part)
            self.store.give_up(run)

    def forget(self, model: str) -> bool:
        """The caller's own part of a model, and of a training broken off."""
        return self.store is not None and self.store.forget(model)

    def kept(self, model: str) -> object:
        if self.store is None:
            raise FederationError(f"nothing is kept here of a model {model!r}")
        return self.store.model(model, COORDINATOR)

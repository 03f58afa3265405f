"""The parties that hold a private forest, as whoever asks reaches them.

Masks are for one process, one model and one use. They are made ahead or when they run out, and are
gone from the store before a question is sent. A pickle, a deep copy and a forked process of a model
have none and make their own: with one mask for two questions, whoever sees both learns how far
every component's log-likelihood differs. A shallow copy shares the one store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from threading import Lock
from typing import TypeVar

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.estimators.federated import ask
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.methods.private_forest import query
from fedcircuits.methods.private_forest.masks import MaskBatch, MaskStore, prepare
from fedcircuits.methods.private_forest.model import Forest, ModelShares
from fedcircuits.methods.private_forest.query import PrivateDistribution
from fedcircuits.privacy.compiling import compile_kernels
from fedcircuits.privacy.sharing.randomness import fresh_key

T = TypeVar("T")
ROOM = 1 << 27  # bytes of masks that one query takes at a party


class Holders:
    """The parties that hold a private forest: their shares, their masks, and how they are run.

    Masks are made ahead (``prepare``) or when they run out; the asker is an outsider, or a party.
    """

    def __init__(
        self,
        forest: Forest,
        views: Mapping[str, ModelShares],
        engine: Engine,
        ledger: Ledger,
    ) -> None:
        self.forest, self.views, self.engine, self.ledger = forest, views, engine, ledger
        self.asked: Counter[str] = Counter()  # rows by asker
        self.members = next(iter(views.values())).members
        self.name = next(iter(views.values())).run
        self._no_masks()

    def __getstate__(self) -> dict[str, object]:
        """Without masks: each is for one process and one use."""
        return {n: v for n, v in self.__dict__.items() if n not in ("masks", "lock", "process")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._no_masks()

    def _no_masks(self) -> None:
        self.masks = {name: MaskStore([]) for name in self.views}
        self.lock, self.process = Lock(), os.getpid()

    def prepare(self, rows: int) -> None:
        """Masks for so many more rows."""
        if self.process != os.getpid():
            self._no_masks()
        model = {"members": self.members, "forest": self.forest, "run": self.name}
        programs = {
            me: Program(prepare, {"me": me, **model, "rows": rows, "key": fresh_key()})
            for me in self.views
        }
        made = self.run(programs)
        with self.lock:
            for me, store in made.items():
                self.masks[me].add(store)

    def _taken(self, rows: int) -> dict[str, MaskBatch]:
        """Masks of all parties for one question, of which nobody else will ever have one."""
        if self.process != os.getpid():  # a fork: they are the other process's
            self._no_masks()
        while True:
            with self.lock:
                left = min(map(len, self.masks.values()))
                if left >= rows:
                    return {me: store.take(rows) for me, store in self.masks.items()}
            self.prepare(rows - left)

    def asked_by(self, asker: str) -> PrivateDistribution:
        return PrivateDistribution(self.forest, partial(self.likelihoods, asker))

    def likelihoods(self, asker: str, points: Array) -> Array:
        """Log-likelihoods (rows,) of points that only the asker sees."""
        row = self.forest.exponents * self.forest.ring(len(self.members)).limbs * 8  # bytes
        batch = max(1, ROOM // row)
        starts = range(0, len(points), batch)
        parts = [self._ask(asker, points[start : start + batch]) for start in starts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _ask(self, asker: str, points: Array) -> Array:
        query.one_hot(self.forest, points)  # an error before masks are spent
        batches = self._taken(len(points))
        programs: dict[str, Program[Array | None]] = {}
        for me, shares in self.views.items():
            held = {"me": me, "forest": self.forest, "shares": shares, "asker": asker}
            batch = {"batch": batches[me], "key": fresh_key()}
            asks = {"points": points} if me == asker else {}
            programs[me] = Program(query.party, {**held, **batch, **asks})
        if asker not in self.views:
            knows = {"me": asker, "members": self.members, "forest": self.forest}
            outside = {**knows, "points": points, "key": fresh_key()}
            programs[asker] = Program(query.outsider, outside)
        self.asked[asker] += len(points)
        answer = self.run(programs)[asker]
        assert answer is not None, "an asker gets an answer"
        return answer

    def run(self, programs: Mapping[str, Program[T]]) -> Mapping[str, T]:
        """Results of all, or FederationError."""
        compile_kernels()  # as in fit: the model may have been fitted elsewhere
        return ask(self.engine, programs, self.ledger)

"""The parties that hold a private forest, as whoever asks reaches them.

What they hold, shares and masks, is theirs: here are handles, where parties live elsewhere. Masks
are for one process, one model and one use. They are made ahead or when they run out. Whoever asks
says which rows of a preparation a question uses; a party hands each out once, and where it lives at
a site of its own, it has written that down before. A pickle, a deep copy and a forked process of a
model have no preparations and make their own: with one mask for two questions, whoever sees both
learns how far every component's log-likelihood differs. A shallow copy shares them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TypeAlias, TypeVar, cast

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import QueryError
from fedcircuits.estimators.federated import ask
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.federation.recipes import Held, Once, own_key
from fedcircuits.methods.private_forest import query
from fedcircuits.methods.private_forest.masks import MaskStore, prepare
from fedcircuits.methods.private_forest.model import Forest, ForestView
from fedcircuits.methods.private_forest.query import PrivateDistribution
from fedcircuits.privacy.operations.powers import compile_kernels

T = TypeVar("T")
Views: TypeAlias = Mapping[str, ForestView | Held]
ROOM = 1 << 27  # bytes of masks that one query takes at a party


@dataclass(slots=True, eq=False)
class Preparation:
    """Masks that parties have made together, and how many of their rows are used."""

    stores: Mapping[str, MaskStore | Held]  # by party
    rows: int
    used: int = 0

    def __len__(self) -> int:
        return self.rows - self.used

    def take(self, rows: int) -> dict[str, Once]:
        start, self.used = self.used, self.used + rows
        return {me: Once(store, start, self.used) for me, store in self.stores.items()}


class Holders:
    """The parties that hold a private forest: their shares, their masks, and how they are run.

    Masks are made ahead (``prepare``) or when they run out; the asker is an outsider, or a party.
    """

    engine: Engine  # both are given by the model whenever it is asked
    ledger: Ledger

    def __init__(self, forest: Forest, views: Views) -> None:
        self.forest, self.views = forest, views
        self.asked: Counter[str] = Counter()  # rows by asker
        self.members = tuple(views)
        self._no_masks()

    def __getstate__(self) -> dict[str, object]:
        """Without masks, each of which is for one process and one use, and without a connection."""
        away = ["masks", "lock", "process"]
        away += ["engine"] if hasattr(self.__dict__.get("engine"), "named") else []
        return {n: v for n, v in self.__dict__.items() if n not in away}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.asked = Counter(self.asked)
        self._no_masks()

    def _no_masks(self) -> None:
        self.masks: list[Preparation] = []
        self.lock, self.process = Lock(), os.getpid()

    def prepare(self, rows: int) -> None:
        """Masks for so many more rows."""
        if self.process != os.getpid():
            self._no_masks()
        programs: dict[str, Program[MaskStore | Held]] = {
            me: Program(prepare, {"view": view, "rows": rows, "key": own_key("shares")})
            for me, view in self.views.items()
        }
        made = Preparation(self.run(programs), rows)
        with self.lock:
            self.masks.append(made)

    @property
    def left(self) -> int:
        """How many rows masks are left for."""
        return sum(map(len, self.masks))

    def _taken(self, rows: int) -> dict[str, tuple[Once, ...]]:
        """Masks of all parties for one question, of which nobody else will ever have one."""
        if self.process != os.getpid():  # a fork: they are the other process's
            self._no_masks()
        while True:
            with self.lock:
                if (left := self.left) >= rows:
                    return self._next(rows)
            self.prepare(rows - left)

    def _next(self, rows: int) -> dict[str, tuple[Once, ...]]:
        taken: dict[str, tuple[Once, ...]] = dict.fromkeys(self.views, ())
        while rows:
            first = self.masks[0]
            count = min(rows, len(first))
            for me, part in first.take(count).items():
                taken[me] += (part,)
            rows -= count
            if not len(first):
                self.masks.pop(0)
        return taken

    def asked_by(self, asker: str) -> PrivateDistribution:
        return PrivateDistribution(self.forest, partial(self.likelihoods, asker))

    def likelihoods(self, asker: str, points: Array) -> Array:
        """Log-likelihoods (rows,) of points that only the asker sees."""
        if asker in getattr(self.engine, "sites", ()):
            raise QueryError(
                f"{asker} has a site of its own, and these points are here: ask under another "
                f"name, or about {asker}'s own rows there with score_party"
            )
        row = self.forest.exponents * self.forest.ring(len(self.members)).limbs * 8  # bytes
        batch = max(1, ROOM // row)
        starts = range(0, len(points), batch)
        parts = [self._asked(asker, points[start : start + batch]) for start in starts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _asked(self, asker: str, points: Array) -> Array:
        query.one_hot(self.forest, points)  # an error before masks are spent
        return cast(Array, self.ask(asker, points, len(points)))

    def ask(self, asker: str, points: Array | Party, rows: int) -> Array | Held:
        """What the asker hears of its points: here, or where it lives."""
        masks = self._taken(rows)
        programs: dict[str, Program[Array | Held | None]] = {}
        for me, view in self.views.items():
            held = {"view": view, "masks": masks[me], "asker": asker, "key": own_key("shares")}
            asks = {"points": points} if me == asker else {}
            programs[me] = Program(query.respond, {**held, **asks})
        if asker not in self.views:
            knows = {"me": asker, "members": self.members, "forest": self.forest}
            outside = {**knows, "points": points, "key": own_key("shares")}
            programs[asker] = Program(query.ask, outside)
        self.asked[asker] += rows
        answer = self.run(programs)[asker]
        assert answer is not None, "an asker gets an answer"
        return answer

    def run(self, programs: Mapping[str, Program[T]]) -> Mapping[str, T]:
        """Results of all, or FederationError."""
        compile_kernels()  # as in fit: the model may have been fitted elsewhere
        return ask(self.engine, programs, self.ledger)

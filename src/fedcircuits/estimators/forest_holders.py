"""The parties that hold a private forest, as reached by an asker.

Shares and masks stay with the parties; for remote parties there are handles here. Masks are for one
process, one model and one use. They are prepared in advance or when they run out. The asker says
which rows of a preparation a query uses; a party hands out each of them once, and a site records
that first. A pickled, deep-copied or forked model has no preparations and makes its own: if one
mask were used for two queries, whoever sees both would learn the difference of every component's
log-likelihood. A shallow copy shares them.
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
from fedcircuits.federation.messages import Ledger
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
    """Masks prepared jointly by the parties, and how many of their rows are used."""

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

    Masks are prepared in advance (``prepare``) or when they run out; the asker is an outsider or a
    party.
    """

    engine: Engine  # both are set by the model before every query
    ledger: Ledger

    def __init__(self, forest: Forest, views: Views) -> None:
        self.forest, self.views = forest, views
        self.asked: Counter[str] = Counter()  # rows by asker
        self.members = tuple(views)
        self._no_masks()

    def __getstate__(self) -> dict[str, object]:
        """Without masks, which are for one process and one use, and without a connection."""
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
        """Prepare masks for this many more rows."""
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
        """The number of rows for which masks are left."""
        return sum(map(len, self.masks))

    def _taken(self, rows: int) -> dict[str, tuple[Once, ...]]:
        """Masks of all parties for one query, never to be used again."""
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
        """Log-likelihoods (rows,) of points known only to the asker."""
        if asker in getattr(self.engine, "sites", ()):
            raise QueryError(
                f"{asker} has its own site, but these points are here: ask under another name, or "
                f"about {asker}'s rows at its site with score_party"
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
        """The asker's answers about its points: local, or a handle to them at its site."""
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
        """Results by role, or FederationError."""
        compile_kernels()  # as in fit: the model may have been fitted elsewhere
        return ask(self.engine, programs, self.ledger)

"""Answers of a forest whose parameters nobody sees: every question is a run on its parties' shares.

Masks are made ahead (``prepare``) or when they run out; the asker is an outsider, or a party.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from fedcircuits.circuits.graph.family import Array, Region
from fedcircuits.circuits.questions.queryable import Queryable, Regions
from fedcircuits.circuits.questions.regions import EVERYTHING, Event
from fedcircuits.engines.outcome import Engine
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.federation.flow import Program
from fedcircuits.federation.ledger import Ledger
from fedcircuits.methods.private_forest import query as private_query
from fedcircuits.methods.private_forest.masks import MaskStore, prepare
from fedcircuits.methods.private_forest.model import Forest, ModelShares
from fedcircuits.methods.private_forest.query import one_hot
from fedcircuits.privacy.arithmetic.compiling import compile_kernels
from fedcircuits.privacy.channels.identity import Identity
from fedcircuits.privacy.channels.sealing import sealed
from fedcircuits.privacy.sharing.randomness import fresh_key

T = TypeVar("T")
Seal = Callable[[Mapping[str, Program[T]]], Mapping[str, Program[T]]]
ROOM = 1 << 27  # bytes of masks that one query takes at a party


class Holders:
    """The parties that hold a private forest: their shares, their masks, and how they are run."""

    def __init__(
        self,
        forest: Forest,
        views: Mapping[str, ModelShares],
        run: Engine,
        seal: bool,
        ledger: Ledger,
    ) -> None:
        self.forest, self.views, self.run, self.ledger = forest, views, run, ledger
        self.masks: dict[str, MaskStore] = {name: MaskStore([]) for name in views}
        self.asked: Counter[str] = Counter()  # rows by asker
        self.identities = {name: Identity.fresh() for name in views} if seal else None
        self.members = next(iter(views.values())).members
        self.name = next(iter(views.values())).run

    @property
    def batch(self) -> int:
        """Rows of one query."""
        row = self.forest.exponents * self.forest.ring(len(self.members)).limbs * 8
        return max(1, ROOM // row)

    def prepare(self, rows: int) -> None:
        """Masks for so many more rows."""
        told = {"members": self.members, "forest": self.forest, "run": self.name, "rows": rows}
        programs = {
            me: Program(prepare, {"me": me, **told, "key": fresh_key()}) for me in self.views
        }
        for me, made in self.ran(programs).items():
            self.masks[me].add(made)

    def likelihoods(self, asker: str, points: Array) -> Array:
        """Log-likelihoods (rows,) of points that only the asker sees."""
        found = [
            self._asked(asker, points[start : start + self.batch])
            for start in range(0, len(points), self.batch)
        ]
        return np.concatenate(found) if found else np.zeros(0)

    def _asked(self, asker: str, points: Array) -> Array:
        one_hot(self.forest, points)  # an error before masks are spent
        left = min(map(len, self.masks.values()))
        if left < len(points):
            self.prepare(len(points) - left)
        programs: dict[str, Program[Array | None]] = {}
        for me, shares in self.views.items():
            own = {"me": me, "forest": self.forest, "shares": shares, "asker": asker}
            batch = {"batch": self.masks[me].take(len(points)), "key": fresh_key()}
            mine = {"points": points} if me == asker else {}
            programs[me] = Program(private_query.party, {**own, **batch, **mine})
        if asker not in self.views:
            told = {"me": asker, "members": self.members, "forest": self.forest}
            outside = {**told, "points": points, "key": fresh_key()}
            programs[asker] = Program(private_query.outsider, outside)
        self.asked[asker] += len(points)
        found = self.ran(programs)[asker]
        assert found is not None, "an asker gets an answer"
        return found

    def ran(self, programs: Mapping[str, Program[T]]) -> Mapping[str, T]:
        """Results of all, or FederationError."""
        compile_kernels()  # as in fit: the model may have been fitted elsewhere
        outcome = self.run(covered(programs, self.identities))
        self.ledger.add(outcome.ledger)
        for error in outcome.lost.values():
            raise FederationError(f"the question could not be answered: {error}") from error
        return outcome.results


def covered(
    programs: Mapping[str, Program[T]], identities: Mapping[str, Identity] | None
) -> Mapping[str, Program[T]]:
    """The same programs with messages sealed, for this run, if parties have identities.

    An outsider makes one for the occasion.
    """
    if identities is None:
        return programs
    every = {me: identities.get(me) or Identity.fresh() for me in programs}
    known, run = {me: own.public for me, own in every.items()}, fresh_key().hex()
    return {
        me: Program(
            sealed,
            {"program": program, "me": me, "identity": every[me], "known": known, "run": run},
        )
        for me, program in programs.items()
    }


class PrivateDistribution(Queryable):
    """Likelihoods and posteriors of classes; what else there is to ask would show parameters."""

    deterministic = False

    def __init__(self, holders: Holders, asker: str) -> None:
        self.holders, self.asker, self.circuit = holders, asker, holders.forest.circuit

    def log_values_within(self, x: Array, regions: Regions) -> Array:
        if regions:
            raise _unanswered("the probability of a range or of several values")
        return self.holders.likelihoods(self.asker, x)

    def posterior(self, x: Array, variable: str, given: Event = EVERYTHING) -> Array:
        """All classes in one question."""
        at, forest = self.circuit.schema.index(variable), self.holders.forest
        self._check(x, ignored=at)
        if given != EVERYTHING:
            raise _unanswered("a posterior given a range or several values")
        asked = private_query.joint_points(forest, x, variable)
        found = self.holders.likelihoods(self.asker, asked)
        return private_query.posterior(found, forest.codes[at])

    def moments_within(
        self, x: Array, regions: Regions, at: int, region: Region
    ) -> tuple[Array, Array]:
        raise _unanswered("means and variances")

    def completed_within(
        self, x: Array, regions: Regions, rng: np.random.Generator | None
    ) -> Array:
        raise _unanswered("draws and completions")


def _unanswered(what: str) -> QueryError:
    return QueryError(
        f"{what}: a private forest answers likelihoods of points and posteriors of classes; for "
        "all else its parties must open it, open_parameters()"
    )

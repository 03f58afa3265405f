"""Sums whose parts nobody sees: a summation for every method that adds up over parties.

Each member deals shares of its numbers to all, adds up the shares it gets, and sends its share of
the total to all. Two rounds, 2 N (N − 1) messages of 16 bytes per number, no server.

    tag/shares   member → member: shares, which say nothing together with fewer than the threshold
    tag/total    member → member: its share of the total; all learn the total

Numbers are fixed-point (fixed_point.py): the total is off by at most N·2^−(fraction + 1), and by
the rounding of float64. All members have the same bits. A member that is lost ends the sum; a
wrong share is found where there are more shares than the threshold needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import ClassVar, Literal

import numpy as np

from fedcircuits.arguments import Choice
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import (
    Check,
    Summation,
    Then,
    agreed,
    frozen,
    of_sum,
)
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.compiling import compile_kernels
from fedcircuits.privacy.secret_counts import SecretCounts
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.randomness import Stream, fresh_key
from fedcircuits.privacy.sharing.shares import threshold, threshold_of
from fedcircuits.privacy.sharing.sharing import opened, shared_mix

Coalition = Literal["majority", "all"]


@dataclass(frozen=True, slots=True)
class Secret(Summation):
    """Parties add up on secret shares: each learns the total and no other party's numbers.

    Any N − 1 parties can always take their own numbers off the total, which is why there must be
    three or more.

    Parameters
    ----------
    threshold : {"majority", "all"}, default="majority"
        "majority": fewer than half of the parties learn nothing more when they put together what
        they see, and wrong shares are found. "all": nor do all but one, but no wrong share is
        found.
    fraction : int, default=40
        Bits below the point: numbers are rounded to steps of 2^−fraction.
    magnitude : int, default=64
        Numbers beyond ±2^magnitude are refused before anything is shared.
    key : bytes, optional
        Of one party, for one run (``fresh_key()``); by default it is drawn when the flow begins.

    >>> Secret().members(["north", "east", "south"])
    ('north', 'east', 'south')
    """

    hides: ClassVar[bool] = True

    threshold: Coalition = "majority"
    fraction: int = 40
    magnitude: int = 64
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        Choice("majority", "all").check("threshold", self.threshold, FederationError)

    def prepare(self, name: str) -> None:
        """Keys are the parties' own; kernels are compiled here, before parties do it at once."""
        if self.key is not None:
            raise FederationError(
                f"{name}=Secret(key=…) would give all parties one key, and each could read the "
                "others' shares with it: leave the key out, every party then gets its own"
            )
        compile_kernels()

    def for_party(self) -> Secret:
        return replace(self, key=own_key("sums"))

    def counts(self, me: str, parties: Sequence[str]) -> SecretCounts:
        return SecretCounts(me, tuple(parties), self.key)

    def require_counts(self, name: str) -> None:
        if self.threshold != "majority":
            raise FederationError(
                f"{name}=Secret(threshold={self.threshold!r}) cannot count where clusters meet, "
                "which multiplies shares: take threshold='majority'"
            )

    def honest(self, parties: Sequence[str]) -> int:
        """Fewer than half put together what they see, or all but one."""
        most = threshold(len(parties))
        return len(parties) - most if self.threshold == "majority" else 1

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        threshold_of(parties)
        return tuple(parties)

    def at(self, me: str, members: Sequence[str]) -> SecretSum:
        """One end. With a key of its own it deals the same shares when it is run again."""
        if me not in members:
            raise FederationError(f"{me} is none of the members {', '.join(members)}")
        most, room = threshold_of(members), ceil(log2(len(members)))
        FixedPoint(self.fraction, self.magnitude + room, FIELD)  # the total, too, must fit
        return SecretSum(
            me,
            tuple(members),
            FixedPoint(self.fraction, self.magnitude, FIELD),
            most if self.threshold == "majority" else len(members) - 1,
            self.key or fresh_key(),
        )


def secret_sums(key: bytes) -> Summation:
    """One party's way to add up on shares, for methods that always do so."""
    return Secret(key=key)


@dataclass(frozen=True, slots=True)
class SecretSum:
    """One member's end of adding up on shares."""

    me: str
    members: tuple[str, ...]
    point: FixedPoint
    degree: int
    key: bytes = field(repr=False)
    used: Counter[str] = field(default_factory=Counter, repr=False)

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        group, plain = self._group(tag), np.asarray(value, dtype=np.float64)
        secret = self.point.encode(plain, f"values under {tag!r}")
        ones = [1] * len(self.members)
        share = yield from shared_mix(
            group, f"{tag}/shares", secret, plain.shape, ones, self.degree
        )
        learned = of_sum(reveals, None)  # the total itself, whatever is made of it
        opened_total = yield from opened(group, f"{tag}/total", share, learned, self.degree)
        total = self.point.decode(opened_total)
        return frozen(np.asarray(total if then is None else then(total), dtype=np.float64))

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        leader, *others = self.members
        return (yield from agreed(self.me, leader, others, tag, value, reveals, check))

    def _group(self, tag: str) -> Group:
        """Other shares for every sum, also of the same numbers under the same tag."""
        self.used[tag] += 1
        stream = Stream(self.key, f"sum/{self.me}/{self.used[tag]}/{tag}")
        return Group(self.me, self.members, stream)

"""Sums over parties in which nobody sees a single party's numbers. Two summations:

``Secret``: every member deals Shamir shares of its numbers to all, adds up the shares it receives,
and sends its share of the total to all. Two rounds, 2 N (N − 1) messages of 16 bytes per number, no
server. A wrong share is detected where there are more shares than the threshold needs.

    tag/shares   member → member: shares, which reveal nothing below the threshold
    tag/total    member → member: its share of the total; all learn the total

``Masked``: every two neighbours on a ring share a key and draw one mask from it for each sum; one
adds the mask to its numbers, the other subtracts it. The first member adds up what all send, and
the masks cancel. N − 1 masked messages and N − 1 totals per sum, so the cost is linear in N.

    tag/keys     once: member → each of the next h members of the ring, a key
    tag/masked   member → first member: its numbers plus its masks, 16 bytes per number
    tag/total    first member → all others: the total

A masked number is uniform to everybody who lacks one of its masks. Neighbours are the nearest h on
either side, so fewer than 2 h members who pool what they see, with or without the first member,
learn nothing about the others but the total: the ring stays connected without them. Members are
assumed to follow the protocol; a wrong total is not detected.

Numbers are fixed-point (arithmetic/fixed_point.py): the total is off by at most N·2^−(fraction + 1)
plus the rounding of float64. All members end up with the same bits. A lost member ends the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import ClassVar, Literal, Self

import numpy as np

from fedcircuits.arguments import Choice, Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import require_shape
from fedcircuits.federation.recipes import KEY, fresh_key, own_key
from fedcircuits.federation.sums.collectives import (
    AlongTree,
    Check,
    Summation,
    Then,
    frozen,
    of_sum,
)
from fedcircuits.federation.sums.topology import star
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.powers import compile_kernels
from fedcircuits.privacy.secret_counts import SecretCounts
from fedcircuits.privacy.sharing.group import Group, Lot, Shares, opened, shared_mix, unpacked_lots
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import threshold, threshold_of

Coalition = Literal["majority", "all"]
MASKED = "masked numbers, which reveal nothing on their own"
MASK_KEY = "a key from which both parties draw masks"
Auto = Literal["auto"]


class HiddenSummation(Summation):
    """What summations have in common that show nobody a single party's numbers."""

    __slots__ = ()
    hides: ClassVar[bool] = True
    misuse: ClassVar[str]  # what parties could do if all had one key

    fraction: int
    magnitude: int
    key: bytes | None

    def prepare(self, name: str) -> None:
        """Keys belong to single parties. Kernels are compiled once, before parties run at once."""
        if self.key is not None:
            raise FederationError(
                f"{name}={type(self).__name__}(key=…) would give all parties the same key, and "
                f"each could {self.misuse}: leave the key out, so that every party gets its own"
            )
        compile_kernels()

    def for_party(self) -> Self:
        return replace(self, key=own_key("sums"))  # type: ignore[type-var]

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        threshold_of(parties)  # an error with fewer than three
        return tuple(parties)

    def fixed_point(self, me: str, members: Sequence[str]) -> FixedPoint:
        """How numbers are encoded, or an error if the total would not fit."""
        if me not in members:
            raise FederationError(f"{me} is not one of the members {', '.join(members)}")
        threshold_of(members)
        FixedPoint(self.fraction, self.magnitude + ceil(log2(len(members))), FIELD)
        return FixedPoint(self.fraction, self.magnitude, FIELD)


@dataclass(frozen=True, slots=True)
class HiddenSum(AlongTree):
    """One member's end of such a summation; the tree is a star around the first member."""

    members: tuple[str, ...]
    key: bytes = field(repr=False)


# ---------------------------------------------------------------------- on shares


@dataclass(frozen=True, slots=True)
class Secret(HiddenSummation):
    """Parties add up on secret shares: each learns the total and no other party's numbers.

    There must be at least three parties, since N − 1 of them can always subtract their own numbers
    from the total.

    Parameters
    ----------
    threshold : {"majority", "all"}, default="majority"
        "majority": fewer than half of the parties learn nothing more by pooling what they see, and
        wrong shares are detected. "all": nor do all but one, but wrong shares are not detected.
    fraction : int, default=40
        Bits below the point: numbers are rounded to steps of 2^−fraction.
    magnitude : int, default=64
        Numbers beyond ±2^magnitude are refused before anything is shared.
    key : bytes, optional
        The key of one party for one run (``fresh_key()``); by default drawn when the flow starts.

    >>> Secret().members(["north", "east", "south"])
    ('north', 'east', 'south')
    """

    misuse: ClassVar[str] = "read the others' shares with it"

    threshold: Coalition = "majority"
    fraction: int = 40
    magnitude: int = 64
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        Choice("majority", "all").check("threshold", self.threshold, FederationError)

    def counts(self, me: str, parties: Sequence[str]) -> SecretCounts:
        return SecretCounts(me, tuple(parties), self.key)

    def require_counts(self, name: str) -> None:
        if self.threshold != "majority":
            raise FederationError(
                f"{name}=Secret(threshold={self.threshold!r}) cannot count co-occurring clusters, "
                "which needs products of shares: use threshold='majority'"
            )

    def honest(self, parties: Sequence[str]) -> int:
        """All but a coalition of fewer than half, or all but N − 1."""
        most = threshold(len(parties))
        return len(parties) - most if self.threshold == "majority" else 1

    def at(self, me: str, members: Sequence[str]) -> SecretSum:
        """One end. With the same key it deals the same shares again."""
        point, most = self.fixed_point(me, members), threshold_of(members)
        degree = most if self.threshold == "majority" else len(members) - 1
        tree, key = star(tuple(members), members[0]), self.key or fresh_key()
        return SecretSum(me, tree, tuple(members), key, point, degree)


def secret_sums(key: bytes) -> Summation:
    """One party's summation on shares, for methods that always use one."""
    return Secret(key=key)


@dataclass(frozen=True, slots=True)
class SecretSum(HiddenSum):
    """One member's end of adding up on shares."""

    point: FixedPoint
    degree: int
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
        learned = of_sum(reveals, None)  # the total itself, whatever follows from it
        opened_total = yield from opened(group, f"{tag}/total", share, learned, self.degree)
        total = self.point.decode(opened_total)
        return frozen(np.asarray(total if then is None else then(total), dtype=np.float64))

    def _group(self, tag: str) -> Group:
        """Fresh shares for every sum, even of the same numbers with the same tag."""
        self.used[tag] += 1
        stream = Stream(self.key, f"sum/{self.me}/{self.used[tag]}/{tag}")
        return Group(self.me, self.members, stream)


# ---------------------------------------------------------------------- under masks


@dataclass(frozen=True, slots=True)
class Masked(HiddenSummation):
    """Parties add up under masks that cancel: each learns the total and no other party's numbers.

    The cost is linear in the number of parties, for federations of ten to thousands. ``Secret()``
    detects wrong shares and counts where clusters meet, at a quadratic cost. There must be at least
    three parties, since N − 1 of them can always subtract their own numbers from the total.

    Parameters
    ----------
    neighbours : int or "auto", default="auto"
        The number of other parties with which a party shares masks. As long as fewer than that pool
        what they see, they learn nothing about the others but the total. "auto": all others up to
        12 parties, then about twice the binary logarithm of their number.
    fraction : int, default=40
        Bits below the point: numbers are rounded to steps of 2^−fraction.
    magnitude : int, default=64
        Numbers beyond ±2^magnitude are refused before anything is sent.
    key : bytes, optional
        The key of one party for one run (``fresh_key()``); by default drawn when the flow starts.

    >>> Masked().reach(5), Masked().reach(20), Masked().reach(1000)
    (4, 10, 20)
    """

    misuse: ClassVar[str] = "draw the others' masks"

    neighbours: int | Auto = "auto"
    fraction: int = 40
    magnitude: int = 64
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        Whole(2, or_=("auto",)).check("neighbours", self.neighbours, FederationError)

    def reach(self, members: int) -> int:
        """The number of neighbours of a party, for this many members."""
        if members <= 12 and self.neighbours == "auto":
            return members - 1
        wanted = 2 * ceil(log2(members)) if self.neighbours == "auto" else self.neighbours
        return min(members - 1, 2 * ceil(wanted / 2))

    def require_counts(self, name: str) -> None:
        raise FederationError(
            f"{name}=Masked() can only add and cannot count co-occurring clusters of parties: use "
            "Secret(), or 'auto'"
        )

    def honest(self, parties: Sequence[str]) -> int:
        """All but the largest coalition, which has fewer parties than there are neighbours."""
        return len(parties) - self.reach(len(parties)) + 1

    def at(self, me: str, members: Sequence[str]) -> MaskedSum:
        """One end. With the same key it draws the same masks again."""
        point, reach = self.fixed_point(me, members), self.reach(len(members))
        tree, key = star(tuple(members), members[0]), self.key or fresh_key()
        return MaskedSum(me, tree, tuple(members), key, point, reach)


@dataclass(frozen=True, slots=True)
class MaskedSum(HiddenSum):
    """One member's end of adding up under masks."""

    point: FixedPoint
    reach: int
    used: Counter[str] = field(default_factory=Counter, repr=False)
    keys: dict[str, tuple[bool, bytes]] = field(default_factory=dict, repr=False)  # whether I add

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        plain = np.asarray(value, dtype=np.float64)
        secret = self.point.encode(plain, f"values under {tag!r}")
        if not self.keys:
            yield from self._exchange_keys(f"{tag}/keys")
        masked = self._masked(tag, secret)
        leader, total = self.members[0], np.zeros(plain.shape)
        if self.me != leader:
            data = FIELD.packed(masked)
            yield from send(leader, Shares(data), f"{tag}/masked", MASKED)
        else:
            total = self.point.decode((yield from self._added(tag, masked, plain.shape)))
        spread = f"{tag}/total", total, of_sum(reveals, None)
        shape = plain.shape

        def problem(agreed_total: Array) -> str:
            if (
                agreed_total.shape != shape
                or agreed_total.dtype != np.float64
                or not np.isfinite(agreed_total).all()
            ):
                return f"expected a total of {shape} finite numbers"
            return check(agreed_total) if check is not None else ""

        agreed_total = yield from self.agree(*spread, problem)
        return frozen(
            np.asarray(agreed_total if then is None else then(agreed_total), dtype=np.float64)
        )

    # ------------------------------------------------------------------ masks

    def _after(self) -> list[str]:
        """Neighbours to whom this member deals a key; those before it deal theirs."""
        count, at = len(self.members), self.members.index(self.me)
        if self.reach == count - 1:  # everybody: each to those later in the list
            return list(self.members[at + 1 :])
        return [self.members[(at + i + 1) % count] for i in range(self.reach // 2)]

    def _before(self) -> list[str]:
        count, at = len(self.members), self.members.index(self.me)
        if self.reach == count - 1:
            return list(self.members[:at])
        return [self.members[(at - i - 1) % count] for i in range(self.reach // 2)]

    def _exchange_keys(self, tag: str) -> Flow[None]:
        stream = Stream(self.key, f"masks/{self.me}")
        for other in self._after():
            key = stream.key()
            self.keys[other] = True, key
            yield from send(other, Shares(np.frombuffer(key, np.uint8)), tag, MASK_KEY)
        for other in self._before():
            data = (yield from receive(other, Shares, tag)).data
            require_shape(data, (KEY,), other, tag, "data")
            self.keys[other] = False, data.tobytes()

    def _masked(self, tag: str, secret: Elements) -> Elements:
        """Fresh masks for every sum, even of the same numbers with the same tag."""
        self.used[tag] += 1
        for adds, key in self.keys.values():
            stream = Stream(key, f"mask/{self.used[tag]}/{tag}")
            mask = stream.elements(FIELD, secret.shape[:-1])
            secret = FIELD.add(secret, mask) if adds else FIELD.subtract(secret, mask)
        return secret

    def _added(self, tag: str, total: Elements, shape: tuple[int, ...]) -> Flow[Elements]:
        lot = Lot(FIELD, shape)
        for other in self.members[1:]:
            data = (yield from receive(other, Shares, f"{tag}/masked")).data
            require_shape(data, (lot.bytes,), other, f"{tag}/masked", "data")
            [theirs] = unpacked_lots(data, [lot], other, f"{tag}/masked")
            total = FIELD.add(total, theirs)
        return total

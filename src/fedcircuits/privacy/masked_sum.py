"""Sums of many parties whose parts nobody sees, at a cost that is linear in the parties.

Every two neighbours of a ring have a key of their own, and draw one mask from it for each sum:
one adds it to its numbers, the other takes it off. The first member adds up what all send, and the
masks are gone.

    tag/keys     once: member → each of the next h members of the ring, a key
    tag/masked   member → first member: its numbers and its masks, 16 bytes per number
    tag/total    first member → all others: the total

N − 1 masked messages and N − 1 totals per sum; with shares (secure_sum.py) they are 2 N (N − 1).
A masked number is uniform to everybody who lacks one of its masks. Neighbours are the nearest h on
either side, so that fewer than 2 h members who put together what they see, the first among them or
not, learn of the others nothing but the total (the ring stays in one piece without them).

Numbers are fixed-point (fixed_point.py), as on shares: the total is off by at most
N·2^−(fraction + 1), and by the rounding of float64. All members have the same bits. A member that
is lost ends the sum. Members are taken to follow the protocol: a wrong total is not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import ClassVar, Literal

import numpy as np

from fedcircuits.arguments import Whole
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import require_shape
from fedcircuits.federation.recipes import own_key
from fedcircuits.federation.sums.collectives import Check, Summation, Then, agreed, frozen, of_sum
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.compiling import compile_kernels
from fedcircuits.privacy.sharing.group import Lot, Shares, unpacked_lots
from fedcircuits.privacy.sharing.randomness import KEY, Stream, fresh_key
from fedcircuits.privacy.sharing.shares import threshold_of

MASKED = "numbers under masks, which say nothing"
MASK_KEY = "a key, from which both draw masks"
Auto = Literal["auto"]


@dataclass(frozen=True, slots=True)
class Masked(Summation):
    """Parties add up under masks that cancel: each learns the total and no other party's numbers.

    Its cost is linear in the parties, for federations of ten to thousands; ``Secret()`` finds wrong
    shares and counts where clusters meet, and its cost grows with the square. There must be three
    or more parties, as N − 1 can always take their own numbers off the total.

    Parameters
    ----------
    neighbours : int or "auto", default="auto"
        With how many others a party has masks in common. As long as fewer than so many put together
        what they see, nothing but the total is seen of the others. "auto": all others up to 12
        parties, then about twice the binary logarithm of their number.
    fraction : int, default=40
        Bits below the point: numbers are rounded to steps of 2^−fraction.
    magnitude : int, default=64
        Numbers beyond ±2^magnitude are refused before anything is sent.
    key : bytes, optional
        Of one party, for one run (``fresh_key()``); by default it is drawn when the flow begins.

    >>> Masked().reach(5), Masked().reach(20), Masked().reach(1000)
    (4, 10, 20)
    """

    hides: ClassVar[bool] = True

    neighbours: int | Auto = "auto"
    fraction: int = 40
    magnitude: int = 64
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        Whole(2, or_=("auto",)).check("neighbours", self.neighbours, FederationError)

    def prepare(self, name: str) -> None:
        """Keys are the parties' own; kernels are compiled here, before parties do it at once."""
        if self.key is not None:
            raise FederationError(
                f"{name}=Masked(key=…) would give all parties one key, and each could draw the "
                "others' masks: leave the key out, every party then gets its own"
            )
        compile_kernels()

    def for_party(self) -> Masked:
        return replace(self, key=own_key("sums"))

    def reach(self, members: int) -> int:
        """How many neighbours a party has, of so many members."""
        if members <= 12 and self.neighbours == "auto":
            return members - 1
        wanted = 2 * ceil(log2(members)) if self.neighbours == "auto" else self.neighbours
        return min(members - 1, 2 * ceil(wanted / 2))

    def require_counts(self, name: str) -> None:
        raise FederationError(
            f"{name}=Masked() adds up and cannot count where clusters of parties meet: take "
            "Secret(), or leave it to 'auto'"
        )

    def honest(self, parties: Sequence[str]) -> int:
        """All but those who may put together what they see, fewer than there are neighbours."""
        return len(parties) - self.reach(len(parties)) + 1

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        threshold_of(parties)  # an error with fewer than three
        return tuple(parties)

    def at(self, me: str, members: Sequence[str]) -> MaskedSum:
        """One end. With a key of its own it draws the same masks when it is run again."""
        if me not in members:
            raise FederationError(f"{me} is none of the members {', '.join(members)}")
        threshold_of(members)
        FixedPoint(self.fraction, self.magnitude + ceil(log2(len(members))), FIELD)
        point = FixedPoint(self.fraction, self.magnitude, FIELD)
        reach = self.reach(len(members))
        return MaskedSum(me, tuple(members), point, reach, self.key or fresh_key())


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """One member's end of adding up under masks."""

    me: str
    members: tuple[str, ...]
    point: FixedPoint
    reach: int
    key: bytes = field(repr=False)
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
        leader, *others = self.members
        total = np.zeros(plain.shape)
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

        agreed_total = yield from agreed(self.me, leader, others, *spread, problem)
        return frozen(
            np.asarray(agreed_total if then is None else then(agreed_total), dtype=np.float64)
        )

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        leader, *others = self.members
        return (yield from agreed(self.me, leader, others, tag, value, reveals, check))

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
        """Other masks for every sum, also of the same numbers under the same tag."""
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

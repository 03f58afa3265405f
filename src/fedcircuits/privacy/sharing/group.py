"""Who computes on secrets together, and one round of it: everybody sends, then everybody reads.

Members stand in one order at all of them: the i-th holds shares at the point i. Whoever asks or
deals without being a member takes part with a group of its own that names the same members. All
that one has for another in a round travels in one message: bytes of elements, (*shape, bytes), or
side by side where they are of several kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fedcircuits.errors import MessageError
from fedcircuits.federation.flow import Flow, broadcast, receive
from fedcircuits.federation.messages import Message, Octets, require_shape
from fedcircuits.privacy.arithmetic.field import FIELD, Bytes, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import pieces, threshold, threshold_of

SHARE = "a share, which says nothing alone"


class Shares(Message, frozen=True):
    """Bytes of shares, (*shape, bytes); the tag is the protocol's."""

    data: Octets


Fold = Callable[[Elements, slice], Elements]  # of rows (senders, n, limbs) and which they are
Fill = Callable[[int, slice, Elements], None]  # some elements of the i-th sender, (n, limbs)


@dataclass(frozen=True, slots=True)
class Lot:
    """Elements that a message holds."""

    ring: Ring
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.ring.bytes


@dataclass(frozen=True, slots=True)
class Group:
    """One party's end: ``Group.of("north", ("east", "north", "south"), key)``."""

    me: str
    members: tuple[str, ...]
    stream: Stream
    ring: Ring = FIELD

    @classmethod
    def of(cls, me: str, members: Sequence[str], key: bytes, label: str = "") -> Group:
        """``key``: of this party and this run; ``label``: what tells groups of one run apart."""
        threshold_of(members)
        return cls(me, tuple(members), Stream(key, f"shares/{label}/{me}"))

    def over(self, ring: Ring) -> Group:
        """The same parties and the same source of randomness, over another ring."""
        return replace(self, ring=ring)

    @property
    def threshold(self) -> int:
        return threshold(len(self.members))

    @property
    def inside(self) -> bool:
        return self.me in self.members


def exchange(
    group: Group,
    tag: str,
    parts: Mapping[str, Sequence[Elements]],
    senders: Sequence[str],
    lots: Sequence[Lot],
    reveals: str = SHARE,
) -> Flow[list[Elements]]:
    """One round: ``parts`` by receiver go out; of every lot (senders, *shape, limbs) comes in."""
    data = yield from passed(group, tag, packed(parts, lots), senders, shape_of(lots), reveals)
    if not senders:
        return [np.empty((0, *lot.shape, lot.ring.limbs), np.uint64) for lot in lots]
    rows = [
        unpacked_lots(row, lots, sender, tag) for sender, row in zip(senders, data, strict=True)
    ]
    return [np.stack(lot) for lot in zip(*rows, strict=True)]


def unpacked_lots(data: Bytes, lots: Sequence[Lot], sender: str, tag: str) -> list[Elements]:
    """Of every lot the elements (*shape, limbs) that a sender's flat bytes hold."""
    parts, start = [], 0
    for lot in lots:
        row = np.empty((*lot.shape, lot.ring.limbs), np.uint64)
        _unpacked(data[start : start + lot.bytes], lot.ring, sender, tag, row)
        parts.append(row)
        start += lot.bytes
    return parts


def folded(
    group: Group,
    tag: str,
    parts: Mapping[str, Elements],
    senders: Sequence[str],
    lot: Lot,
    fold: Fold,
    into: Ring | None = None,
    reveals: str = SHARE,
) -> Flow[Elements]:
    """One round of one lot, and what ``fold`` makes of it, (*shape, limbs) over ``into``."""
    shape = shape_of([lot])
    made = {id(part): lot.ring.packed(part).reshape(shape) for part in parts.values()}
    made_for = {member: made[id(part)] for member, part in parts.items()}
    data = yield from passed(group, tag, made_for, senders, shape, reveals)
    return fold_of(reading(data, senders, lot.ring, tag), len(senders), lot, fold, into)


def fold_of(fill: Fill, senders: int, lot: Lot, fold: Fold, into: Ring | None = None) -> Elements:
    """``fold`` of what every sender has for a lot, in pieces that a cache can hold."""
    limbs, count = (into or lot.ring).limbs, prod(lot.shape)
    folded_part = np.empty((count, limbs), np.uint64)
    for piece in pieces(count, lot.ring):
        rows = np.empty((senders, piece.stop - piece.start, lot.ring.limbs), np.uint64)
        for i in range(senders):
            fill(i, piece, rows[i])
        folded_part[piece] = fold(rows, piece)
    return folded_part.reshape(*lot.shape, limbs)


def passed(
    group: Group,
    tag: str,
    parts: Mapping[str, Bytes],
    senders: Sequence[str],
    shape: tuple[int, ...],
    reveals: str = SHARE,
) -> Flow[list[Bytes]]:
    """One round of bytes: ``parts`` by receiver go out, those of every sender come in, flat.

    The same array for several receivers is encoded once. ``shape``: of what comes in.
    """
    for receivers, part in _by_part(parts, group.me):
        yield from broadcast(receivers, Shares(part), tag, reveals)
    received = []
    for sender in senders:
        mine = parts.get(sender) if sender == group.me else None
        if mine is None:
            mine = (yield from receive(sender, Shares, tag)).data
            require_shape(mine, shape, sender, tag, "data")
        received.append(mine.reshape(-1))
    return received


def _by_part(parts: Mapping[str, Bytes], me: str) -> list[tuple[list[str], Bytes]]:
    """Every different array with its receivers, in the order of the first of them."""
    receivers_of: dict[int, tuple[list[str], Bytes]] = {}
    for receiver, part in parts.items():
        if receiver != me:
            receivers_of.setdefault(id(part), ([], part))[0].append(receiver)
    return list(receivers_of.values())


def packed(parts: Mapping[str, Sequence[Elements]], lots: Sequence[Lot]) -> dict[str, Bytes]:
    """The bytes for every receiver; one array where the sequences are one."""
    made: dict[int, Bytes] = {}
    for part in parts.values():
        if id(part) not in made:
            rows = [lot.ring.packed(row) for lot, row in zip(lots, part, strict=True)]
            whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
            made[id(part)] = whole.reshape(shape_of(lots))
    return {member: made[id(part)] for member, part in parts.items()}


def shape_of(lots: Sequence[Lot]) -> tuple[int, ...]:
    """Of a message that holds them."""
    if len(lots) == 1:
        return (*lots[0].shape, lots[0].ring.bytes)
    return (sum(lot.bytes for lot in lots),)


def reading(data: Sequence[Bytes], senders: Sequence[str], ring: Ring, tag: str) -> Fill:
    """From flat bytes of every sender."""

    def fill(i: int, span: slice, row: Elements) -> None:
        piece = data[i][span.start * ring.bytes : span.stop * ring.bytes]
        _unpacked(piece, ring, senders[i], tag, row)

    return fill


def _unpacked(data: Bytes, ring: Ring, sender: str, tag: str, row: Elements) -> None:
    try:
        ring.unpacked(data, row.shape[:-1], row)
    except ValueError as error:
        raise MessageError(sender, tag, "data", f"no shares: {error}") from None

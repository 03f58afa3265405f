"""The group of parties that compute on secrets together, and its rounds: everybody sends, then
everybody reads.

Members have the same order everywhere: the i-th holds the shares at the point i. An asker or
dealer that is not a member takes part with a group object that names the same members. All that
one party has for another in a round travels in one message: bytes of elements, (*shape, bytes), or
concatenated where they are of several kinds.

    shared       dealer → member: a share of every number; at most t of them reveal nothing
    shared_mix   the same, and each member adds up what it received, with whole-number weights
    opened       member → member: its share; all learn the numbers
    opened_to    member → one receiver: its share; only the receiver learns the numbers

Adding shares, and multiplying them by public numbers, is local (``group.ring``). Only what is meant
to be known may be opened, and ``reveals`` says what it is. Shares of degree 2t, such as those of
products, are not the values of a random polynomial: they may be opened only after a mask or a
shared zero of degree 2t is added, or they would reveal something about the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fedcircuits.errors import MessageError, ProtocolError
from fedcircuits.federation.flow import Flow, broadcast, receive
from fedcircuits.federation.messages import Message, Octets, require_shape
from fedcircuits.privacy.arithmetic.field import FIELD, Bytes, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, pieces, reconstruct, threshold, threshold_of

SHARE = "a share, which reveals nothing on its own"
Fold = Callable[[Elements, slice], Elements]  # of rows (senders, n, limbs) and which they are
Fill = Callable[[int, slice, Elements], None]  # some elements of the i-th sender, (n, limbs)


class Shares(Message, frozen=True):
    """Bytes of shares, (*shape, bytes); the tag is the protocol's."""

    data: Octets


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
        """``key``: of this party for this run; ``label`` distinguishes groups of one run."""
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
    """One round: sends ``parts`` by receiver; returns (senders, *shape, limbs) for every lot."""
    data = yield from passed(group, tag, packed(parts, lots), senders, shape_of(lots), reveals)
    if not senders:
        return [np.empty((0, *lot.shape, lot.ring.limbs), np.uint64) for lot in lots]
    rows = [
        unpacked_lots(row, lots, sender, tag) for sender, row in zip(senders, data, strict=True)
    ]
    return [np.stack(lot) for lot in zip(*rows, strict=True)]


def unpacked_lots(data: Bytes, lots: Sequence[Lot], sender: str, tag: str) -> list[Elements]:
    """For every lot, the elements (*shape, limbs) in a sender's flat bytes."""
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
    """One round of one lot, and ``fold`` applied to it, (*shape, limbs) over ``into``."""
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
    """The shape of a message that holds these lots."""
    if len(lots) == 1:
        return (*lots[0].shape, lots[0].ring.bytes)
    return (sum(lot.bytes for lot in lots),)


def reading(data: Sequence[Bytes], senders: Sequence[str], ring: Ring, tag: str) -> Fill:
    """A function that reads elements from the flat bytes of every sender."""

    def fill(i: int, span: slice, row: Elements) -> None:
        piece = data[i][span.start * ring.bytes : span.stop * ring.bytes]
        _unpacked(piece, ring, senders[i], tag, row)

    return fill


def _unpacked(data: Bytes, ring: Ring, sender: str, tag: str, row: Elements) -> None:
    try:
        ring.unpacked(data, row.shape[:-1], row)
    except ValueError as error:
        raise MessageError(sender, tag, "data", f"invalid shares: {error}") from None


# ---------------------------------------------------------------------- sharing and opening


def shared(
    group: Group,
    tag: str,
    secret: Elements | None,
    shape: tuple[int, ...],
    *,
    dealers: Sequence[str] | None = None,
    degree: int | None = None,
) -> Flow[Elements]:
    """My shares of what each dealer deals: (dealers, *shape, limbs).

    All members deal if no ``dealers`` are named, at degree t if none is given. A dealer gives its
    ``secret`` (*shape, limbs). A dealer that is not a member gets nothing, (0, *shape, limbs).
    """
    every = group.members if dealers is None else tuple(dealers)
    dealt = _dealt(group, tag, secret, shape, every, degree)
    senders = every if group.inside else ()
    parts = {member: [part] for member, part in dealt.items()}
    [received] = yield from exchange(group, tag, parts, senders, [Lot(group.ring, shape)])
    return received


def shared_mix(
    group: Group,
    tag: str,
    secret: Elements | None,
    shape: tuple[int, ...],
    weights: Sequence[int],
    degree: int | None = None,
) -> Flow[Elements]:
    """My share of Σ_i weights[i]·(what the i-th member deals), (*shape, limbs)."""
    ring, dealers, whole = group.ring, group.members[: len(weights)], [tuple(weights)]
    dealt = _dealt(group, tag, secret, shape, dealers, degree)
    plain = all(weight == 1 for weight in weights)

    def fold(rows: Elements, _: slice) -> Elements:
        total: Elements = ring.sum(rows) if plain else ring.mix(whole, rows)[0]
        return total

    return (yield from folded(group, tag, dealt, dealers, Lot(ring, shape), fold))


def _dealt(
    group: Group,
    tag: str,
    secret: Elements | None,
    shape: tuple[int, ...],
    dealers: Sequence[str],
    degree: int | None,
) -> dict[str, Elements]:
    """Every member's share of my secret; nothing if I deal none."""
    if group.me not in dealers:
        return {}
    if secret is None or secret.shape != (*shape, group.ring.limbs):
        got = "nothing" if secret is None else str(secret.shape)
        raise ProtocolError(
            f"{group.me} deals {got} under {tag!r}, expected {(*shape, group.ring.limbs)}"
        )
    level = group.threshold if degree is None else degree
    dealt = deal(group.ring, secret, level, len(group.members), group.stream)
    return dict(zip(group.members, dealt, strict=True))


def opened(
    group: Group, tag: str, shares: Elements, reveals: str, degree: int | None = None
) -> Flow[Elements]:
    """The numbers behind shares (..., limbs), at every member."""
    return (yield from opened_and(group, tag, shares, reveals, lambda seen, _: seen, None, degree))


def opened_and(
    group: Group,
    tag: str,
    shares: Elements,
    reveals: str,
    then: Fold,
    into: Ring | None = None,
    degree: int | None = None,
) -> Flow[Elements]:
    """``then`` applied to the opened numbers, (n, limbs) at a time, over ``into``."""
    ring, members = group.ring, group.members
    level = group.threshold if degree is None else degree

    def fold(rows: Elements, span: slice) -> Elements:
        return then(reconstruct(ring, rows, level, members), span)

    parts, lot = dict.fromkeys(members, shares), Lot(ring, shares.shape[:-1])
    return (yield from folded(group, tag, parts, members, lot, fold, into, reveals))


def opened_to(
    group: Group,
    tag: str,
    receiver: str,
    shares: Elements | None,
    shape: tuple[int, ...],
    reveals: str,
) -> Flow[Elements | None]:
    """The numbers at the receiver, who need not be a member; None everywhere else."""
    parts: dict[str, list[Elements]] = {}
    if group.inside:
        assert shares is not None, "a member has shares"
        parts = {receiver: [shares]}
    senders = group.members if group.me == receiver else ()
    lots = [Lot(group.ring, shape)]
    [received] = yield from exchange(group, tag, parts, senders, lots, reveals)
    if group.me != receiver:
        return None
    return reconstruct(group.ring, received, group.threshold, group.members)


def summed(group: Group, tag: str, secret: Elements) -> Flow[Elements]:
    """A share of the sum of all members' secrets, (*shape, limbs)."""
    ones = [1] * len(group.members)
    return (yield from shared_mix(group, tag, secret, secret.shape[:-1], ones))

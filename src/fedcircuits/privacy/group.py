"""Who computes on secrets together, and one round of it: everybody sends, then everybody reads.

Members stand in one order at all of them: the i-th holds shares at the point i. Whoever asks or
deals without being a member takes part with a group of its own that names the same members. All
that one has for another in a round travels in one message: bytes of elements, (*shape, bytes), or
side by side where they are of several kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.flow import Flow, expect, recv, send
from fedcircuits.privacy.field import FIELD, Ring
from fedcircuits.privacy.limbs import Elements
from fedcircuits.privacy.randomness import Stream
from fedcircuits.privacy.shares import threshold

SHARE = "a share, which says nothing alone"


@dataclass(frozen=True, slots=True)
class Lot:
    """Elements that a message holds."""

    ring: Ring
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.ring.bytes


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
        threshold(len(members))
        if len(set(members)) < len(members):
            raise FederationError(f"a member is named twice: {', '.join(members)}")
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
    for receiver, part in parts.items():
        if receiver != group.me:
            yield from send(receiver, tag, _packed(part, lots), reveals)
    found = [np.empty((len(senders), *lot.shape, lot.ring.limbs), np.uint64) for lot in lots]
    for i, sender in enumerate(senders):
        own = parts.get(sender) if sender == group.me else None
        if own is None:
            own = _unpacked((yield from recv(sender, tag)), lots, sender, tag)
        for rows, elements in zip(found, own, strict=True):
            rows[i] = elements
    return found


def _packed(part: Sequence[Elements], lots: Sequence[Lot]) -> np.typing.NDArray[np.uint8]:
    rows = [lot.ring.packed(elements) for lot, elements in zip(lots, part, strict=True)]
    return np.concatenate(rows).reshape(_shape(lots))


def _shape(lots: Sequence[Lot]) -> tuple[int, ...]:
    if len(lots) == 1:
        return (*lots[0].shape, lots[0].ring.bytes)
    return (sum(lot.bytes for lot in lots),)


def _unpacked(payload: object, lots: Sequence[Lot], sender: str, tag: str) -> list[Elements]:
    data = expect(payload, np.ndarray, sender, tag)  # type: ignore[arg-type]
    if data.dtype != np.uint8 or data.shape != _shape(lots):
        raise ProtocolError(
            f"{sender} sent {data.dtype} of shape {data.shape} under {tag!r}, expected bytes of "
            f"shares, {_shape(lots)}: it has values of another shape, or another version"
        )
    ends = np.cumsum([lot.bytes for lot in lots])[:-1]
    try:
        return [
            lot.ring.unpacked(own, lot.shape)
            for lot, own in zip(lots, np.split(data.reshape(-1), ends), strict=True)
        ]
    except ValueError as error:
        raise ProtocolError(f"{sender} sent no shares under {tag!r}: {error}") from None

"""Sharing and opening, one round each.

    shared       dealer → member: a share of every number; whoever has at most t of them learns
                 nothing
    opened       member → member: its share; all learn the numbers
    opened_to    member → one receiver: its share; the receiver alone learns the numbers

Adding shares, and multiplying them by public numbers, is each member's own affair
(``group.ring``). What is opened must be meant to be known, and ``reveals`` says what it is. Shares
of degree 2t, as products are, are not the values of a random polynomial: only with a mask or a
shared zero of degree 2t added may they be opened, or they tell about the factors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.group import Group, Lot, exchange
from fedcircuits.privacy.limbs import Elements
from fedcircuits.privacy.shares import deal, reconstruct


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
    ``secret`` (*shape, limbs). One that is no member ends up with nothing, (0, *shape, limbs).
    """
    every = group.members if dealers is None else tuple(dealers)
    level = group.threshold if degree is None else degree
    parts: dict[str, list[Elements]] = {}
    if group.me in every:
        if secret is None or secret.shape != (*shape, group.ring.limbs):
            got = "nothing" if secret is None else str(secret.shape)
            raise ProtocolError(
                f"{group.me} deals {got} under {tag!r}, expected {(*shape, group.ring.limbs)}"
            )
        dealt = deal(group.ring, secret, level, len(group.members), group.stream)
        parts = {member: [own] for member, own in zip(group.members, dealt, strict=True)}
    senders = every if group.inside else ()
    [found] = yield from exchange(group, tag, parts, senders, [Lot(group.ring, shape)])
    return found


def opened(
    group: Group, tag: str, shares: Elements, reveals: str, degree: int | None = None
) -> Flow[Elements]:
    """The numbers behind shares (..., limbs), at every member."""
    parts = {member: [shares] for member in group.members}
    lots = [Lot(group.ring, shares.shape[:-1])]
    [found] = yield from exchange(group, tag, parts, group.members, lots, reveals)
    level = group.threshold if degree is None else degree
    return reconstruct(group.ring, found, level, group.members)


def opened_to(
    group: Group,
    tag: str,
    receiver: str,
    shares: Elements | None,
    shape: tuple[int, ...],
    reveals: str,
    degree: int | None = None,
) -> Flow[Elements | None]:
    """The numbers at the receiver, who may be no member; None at everybody else."""
    parts: dict[str, list[Elements]] = {}
    if group.inside:
        assert shares is not None, "a member has shares"
        parts = {receiver: [shares]}
    senders = group.members if group.me == receiver else ()
    lots = [Lot(group.ring, shape)]
    [found] = yield from exchange(group, tag, parts, senders, lots, reveals)
    if group.me != receiver:
        return None
    level = group.threshold if degree is None else degree
    return reconstruct(group.ring, found, level, group.members)


def summed(group: Group, tag: str, secret: Elements) -> Flow[Elements]:
    """A share of the sum of all members' secrets, (*shape, limbs)."""
    dealt = yield from shared(group, tag, secret, secret.shape[:-1])
    return np.asarray(group.ring.sum(dealt))

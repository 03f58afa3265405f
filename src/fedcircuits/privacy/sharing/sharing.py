"""Sharing and opening, one round each.

    shared       dealer → member: a share of every number; whoever has at most t of them learns
                 nothing
    shared_mix   the same, and each adds up what it got, with whole-number weights
    opened       member → member: its share; all learn the numbers
    opened_to    member → one receiver: its share; the receiver alone learns the numbers

Adding shares, and multiplying them by public numbers, is each member's own affair
(``group.ring``). What is opened must be meant to be known, and ``reveals`` says what it is. Shares
of degree 2t, as products are, are not the values of a random polynomial: only with a mask or a
shared zero of degree 2t added may they be opened, or they tell about the factors.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Fold, Group, Lot, exchange, folded
from fedcircuits.privacy.sharing.shares import deal, reconstruct


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
    """What ``then`` makes of the numbers behind shares, (n, limbs) at a time, over ``into``."""
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
    degree: int | None = None,
) -> Flow[Elements | None]:
    """The numbers at the receiver, who may be no member; None at everybody else."""
    parts: dict[str, list[Elements]] = {}
    if group.inside:
        assert shares is not None, "a member has shares"
        parts = {receiver: [shares]}
    senders = group.members if group.me == receiver else ()
    lots = [Lot(group.ring, shape)]
    [received] = yield from exchange(group, tag, parts, senders, lots, reveals)
    if group.me != receiver:
        return None
    level = group.threshold if degree is None else degree
    return reconstruct(group.ring, received, level, group.members)


def summed(group: Group, tag: str, secret: Elements) -> Flow[Elements]:
    """A share of the sum of all members' secrets, (*shape, limbs)."""
    ones = [1] * len(group.members)
    return (yield from shared_mix(group, tag, secret, secret.shape[:-1], ones))

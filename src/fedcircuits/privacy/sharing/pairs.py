"""Random numbers dealt by pairs of members, of whom one watches the other.

Both of a pair draw the same numbers and the same shares from one key. The first deals them, the
second tells every member a digest of what the first must have sent it. So a single member that
deals other shares, or numbers that do not belong together, is noticed by whoever got them.

Pairs are chosen so that of any t members one pair is left that they know nothing of: t + 1 pairs
side by side for N = 2t + 2, and for N = 2t + 1 three pairs of the first three members and t − 1 of
the others. If both members of a pair deceive together, which takes two, nothing is noticed.

    …/keys      first of a pair → second: a key
    …           first of a pair → member: shares of what both have drawn
    …/digests   second of a pair → member: a digest of that message
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import require_shape
from fedcircuits.privacy.arithmetic.field import Bytes
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import SHARE, Group, Lot, Shares, packed, unpacked_lots
from fedcircuits.privacy.sharing.randomness import KEY, Stream
from fedcircuits.privacy.sharing.shares import deal

Dealing = Callable[[Stream], list[Elements]]  # what a pair deals, from its common source
DIGEST = "a digest of shares that it got from another: nothing"
PAIR_KEY = "a key, from which both draw random numbers"


def pair_places(members: int) -> tuple[tuple[int, int], ...]:
    """Which members make pairs.

    >>> pair_places(3), pair_places(4), pair_places(5)
    (((0, 1), (1, 2), (2, 0)), ((0, 1), (2, 3)), ((0, 1), (1, 2), (2, 0), (3, 4)))
    """
    odd = ((0, 1), (1, 2), (2, 0)) if members % 2 else ()
    return (*odd, *((i, i + 1) for i in range(len(odd), members - 1, 2)))


def dealt_by_pairs(
    group: Group, tag: str, lots: Sequence[tuple[Lot, int]], draw: Dealing
) -> Flow[list[Elements]]:
    """Two rounds: of every lot and degree my shares of what each pair deals, (pairs, *shape, …)."""
    pairs = [(group.members[a], group.members[b]) for a, b in pair_places(len(group.members))]
    keys = yield from _keys(group, f"{tag}/keys", pairs)
    plain, shares = [lot for lot, _ in lots], []
    made = {
        pair: packed(_parts(group, Stream.of_key(key), lots, draw), plain)
        for pair, key in keys.items()
    }
    for pair, parts in made.items():
        yield from _told(group, tag, pair, parts)
    for pair in pairs:
        part = made[pair][group.me] if pair in made else None
        data = yield from _heard(group, tag, pair, sum(lot.bytes for lot in plain), part)
        shares.append(unpacked_lots(data, plain, pair[0], tag))
    return [np.stack(rows) for rows in zip(*shares, strict=True)]


def _keys(
    group: Group, tag: str, pairs: Sequence[tuple[str, str]]
) -> Flow[dict[tuple[str, str], bytes]]:
    """Those of the pairs that I am of."""
    keys = {pair: group.stream.key() for pair in pairs if pair[0] == group.me}
    for (_, second), key in keys.items():
        yield from send(second, Shares(np.frombuffer(key, np.uint8)), tag, PAIR_KEY)
    for pair in pairs:
        if pair[1] == group.me:
            data = (yield from receive(pair[0], Shares, tag)).data
            require_shape(data, (KEY,), pair[0], tag, "data")
            keys[pair] = data.tobytes()
    return keys


def _parts(
    group: Group, stream: Stream, lots: Sequence[tuple[Lot, int]], draw: Dealing
) -> dict[str, list[Elements]]:
    count = len(group.members)
    rows = [
        deal(lot.ring, secret, degree, count, stream)
        for (lot, degree), secret in zip(lots, draw(stream), strict=True)
    ]
    return {m: [row[i] for row in rows] for i, m in enumerate(group.members)}


def _told(group: Group, tag: str, pair: tuple[str, str], parts: dict[str, Bytes]) -> Flow[None]:
    """As the first of a pair the shares, as the second their digests."""
    for member, data in parts.items():
        if group.me == pair[0] and member not in pair:
            yield from send(member, Shares(data.reshape(-1)), tag, SHARE)
        elif group.me == pair[1] and member not in pair:
            digest = np.frombuffer(sha256(data.tobytes()).digest(), np.uint8)
            yield from send(member, Shares(digest), f"{tag}/digests", DIGEST)


def _heard(
    group: Group, tag: str, pair: tuple[str, str], size: int, part: Bytes | None
) -> Flow[Bytes]:
    """My shares, as both of the pair have made them."""
    if part is not None:
        return part.reshape(-1)
    data = (yield from receive(pair[0], Shares, tag)).data
    require_shape(data, (size,), pair[0], tag, "data")
    digest = (yield from receive(pair[1], Shares, f"{tag}/digests")).data
    if sha256(data.tobytes()).digest() != digest.tobytes():
        raise ProtocolError(
            f"shares that {pair[0]} has dealt to {group.me} are not those that {pair[1]} has drawn "
            "from the same key: one of the two deceives; nothing is used, start again without it"
        )
    return data

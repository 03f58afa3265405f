"""Dealing shares of random numbers that nobody knows, in two ways.

**By pairs**, in which one member watches the other. Both of a pair draw the same numbers and the
same shares from one key. The first deals them; the second sends every member a digest of what the
first must have sent it. A single member that deals other shares, or inconsistent numbers, is
therefore noticed by those who received them. Pairs are chosen so that, for any t members, one pair
is left of which they know nothing: t + 1 disjoint pairs for N = 2t + 2; for N = 2t + 1, three pairs
of the first three members and t − 1 of the others. If both members of a pair cheat together,
nothing is noticed.

    …/keys      first of a pair → second: a key
    …           first of a pair → member: shares of what both have drawn
    …/digests   second of a pair → member: a digest of that message

**From seeds**, in few bytes. A sharing of degree d is determined by its secret and d shares, which
are uniform, so the first d members draw theirs from a key that the dealer sends them, and only the
others are sent numbers: one or two members where the degree is 2t. The values at d + 1, … follow
from those at 0 to d with whole-number weights.

    dealer → member   a key for every lot, then its shares of the lots that it cannot draw
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise

import numpy as np

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow, receive, send
from fedcircuits.federation.messages import require_shape
from fedcircuits.federation.recipes import KEY
from fedcircuits.privacy.arithmetic.field import Bytes, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import (
    SHARE,
    Fill,
    Fold,
    Group,
    Lot,
    Shares,
    fold_of,
    packed,
    passed,
    reading,
    unpacked_lots,
)
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, weights

Dealing = Callable[[Stream], list[Elements]]  # what a pair deals, from its common source
DIGEST = "a digest of shares that it received from another party, which reveals nothing"
PAIR_KEY = "a key from which both parties draw random numbers"
Dealt = tuple[Lot, int]  # what is dealt, (count,), and its degree


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
    """Two rounds: for every lot and degree, my shares of what each pair deals, (pairs, *shape,
    …)."""
    pairs = [(group.members[a], group.members[b]) for a, b in pair_places(len(group.members))]
    keys = yield from _keys(group, f"{tag}/keys", pairs)
    plain, shares = [lot for lot, _ in lots], []
    made = {
        pair: packed(_parts(group, Stream.of_key(key), lots, draw), plain)
        for pair, key in keys.items()
    }
    for pair, parts in made.items():
        yield from _send_part(group, tag, pair, parts)
    for pair in pairs:
        part = made[pair][group.me] if pair in made else None
        data = yield from _received_part(group, tag, pair, sum(lot.bytes for lot in plain), part)
        shares.append(unpacked_lots(data, plain, pair[0], tag))
    return [np.stack(rows) for rows in zip(*shares, strict=True)]


def _keys(
    group: Group, tag: str, pairs: Sequence[tuple[str, str]]
) -> Flow[dict[tuple[str, str], bytes]]:
    """The keys of the pairs that this member belongs to."""
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


def _send_part(
    group: Group, tag: str, pair: tuple[str, str], parts: dict[str, Bytes]
) -> Flow[None]:
    """Send the shares as the first of a pair, their digests as the second."""
    for member, data in parts.items():
        if group.me == pair[0] and member not in pair:
            yield from send(member, Shares(data.reshape(-1)), tag, SHARE)
        elif group.me == pair[1] and member not in pair:
            digest = np.frombuffer(sha256(data.tobytes()).digest(), np.uint8)
            yield from send(member, Shares(digest), f"{tag}/digests", DIGEST)


def _received_part(
    group: Group, tag: str, pair: tuple[str, str], size: int, part: Bytes | None
) -> Flow[Bytes]:
    """This member's shares, on which both of the pair agree."""
    if part is not None:
        return part.reshape(-1)
    data = (yield from receive(pair[0], Shares, tag)).data
    require_shape(data, (size,), pair[0], tag, "data")
    digest = (yield from receive(pair[1], Shares, f"{tag}/digests")).data
    if sha256(data.tobytes()).digest() != digest.tobytes():
        raise ProtocolError(
            f"shares that {pair[0]} has dealt to {group.me} are not those that {pair[1]} has drawn "
            "from the same key: one of the two is dishonest; nothing is used: start again without "
            "it"
        )
    return data


# ---------------------------------------------------------------------- from seeds


class Dealer:
    """The messages of one dealer to all members, filled piece by piece."""

    def __init__(self, group: Group, lots: Sequence[Dealt]) -> None:
        self.lots, self.members = lots, len(group.members)
        self._starts = [_starts(lots, x) for x in range(1, self.members + 1)]
        ends = [0, *accumulate(starts[-1] for starts in self._starts)]
        whole = np.empty(ends[-1], np.uint8)  # large ones come faster than many
        self.parts = [whole[a:b] for a, b in pairwise(ends)]
        self._streams: list[list[Stream]] = []  # of every lot, those of members that draw
        for i, (_, degree) in enumerate(lots):
            keys = [group.stream.key() for _ in range(self.members)]
            for part, key in zip(self.parts, keys, strict=True):
                part[i * KEY : (i + 1) * KEY] = np.frombuffer(key, np.uint8)
            self._streams.append([Stream.of_key(key) for key in keys[:degree]])

    def put(self, i: int, span: slice, secret: Elements) -> None:
        """Shares of the i-th lot; ``secret`` (n, limbs) follows what was put before."""
        lot, degree = self.lots[i]
        rows = np.empty((degree + 1, *secret.shape), np.uint64)
        rows[0] = secret
        for row, stream in zip(rows[1:], self._streams[i], strict=True):
            stream.elements(lot.ring, (len(secret),), row)
        size, beyond = lot.ring.bytes, range(degree + 1, self.members + 1)
        if degree == 1:  # a line is extrapolated
            step = lot.ring.subtract(rows[1], rows[0])
            sent = lot.ring.values(rows[1], step[None], self.members - 1)
        else:
            sent = lot.ring.mix([weights(degree + 1, x + 1) for x in beyond], rows)
        for x, shares in zip(beyond, sent, strict=True):
            start = self._starts[x - 1][i]
            to = slice(start + span.start * size, start + span.stop * size)
            self.parts[x - 1][to] = lot.ring.packed(shares)


def seeded(
    group: Group,
    tag: str,
    dealers: Sequence[str],
    lots: Sequence[Dealt],
    dealer: Dealer | None,
    folds: Sequence[Fold],
) -> Flow[list[Elements]]:
    """One round: ``folds`` applied to every lot that all dealers deal, (count, limbs) each."""
    point = group.members.index(group.me) + 1
    starts = _starts(lots, point)
    parts = {} if dealer is None else dict(zip(group.members, dealer.parts, strict=True))
    data = yield from passed(group, tag, parts, dealers, (starts[-1],))
    dealt = []
    for i, ((lot, degree), fold) in enumerate(zip(lots, folds, strict=True)):
        if point <= degree:
            keys = [part[i * KEY : (i + 1) * KEY].tobytes() for part in data]
            fill = _drawing(keys, lot.ring)
        else:
            sent = [part[starts[i] : starts[i + 1]] for part in data]
            fill = reading(sent, dealers, lot.ring, tag)
        dealt.append(fold_of(fill, len(dealers), lot, fold))
    return dealt


def _drawing(keys: Sequence[bytes], ring: Ring) -> Fill:
    streams = [Stream.of_key(key) for key in keys]

    def fill(i: int, _: slice, row: Elements) -> None:
        streams[i].elements(ring, row.shape[:-1], row)

    return fill


def _starts(lots: Sequence[Dealt], point: int) -> list[int]:
    """Where the shares of every lot begin in a member's message, and its end."""
    sizes = [lot.bytes if point > degree else 0 for lot, degree in lots]
    return list(accumulate(sizes, initial=KEY * len(lots)))

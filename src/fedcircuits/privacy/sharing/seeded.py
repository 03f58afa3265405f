"""Sharings of random numbers in few bytes: a share that may be anything is drawn from a key.

A sharing of degree d is given by its secret and d shares, which are uniform. So the first d members
draw theirs from a key that the dealer sends them, and only the others are sent numbers: one or two
of them where the degree is 2t. From values at 0 to d those at d + 1, … have whole weights.

    dealer → member   a key for every lot, then its shares of the lots that it cannot draw
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Fill, Fold, Group, Lot, fold_of, passed, reading
from fedcircuits.privacy.sharing.randomness import KEY, Stream
from fedcircuits.privacy.sharing.shares import weights

Dealt = tuple[Lot, int]  # what is dealt, (count,), and its degree


class Dealer:
    """What one dealer has for all members, filled piece by piece."""

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
        if degree == 1:  # a line goes on
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
    """One round: what ``folds`` make of every lot that all dealers deal, (count, limbs) each."""
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

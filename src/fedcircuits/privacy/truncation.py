"""Product and truncation in one round, and change of ring, by opening masked values.

A product of two fixed-point numbers has twice the fractional bits. To cut off ``shift`` of them,
members open v + 2^(width − 1) + R, where v is the value, −2^(width − 1) ≤ v < 2^(width − 1), and
R = Σ r_i a random number that nobody knows. They shift the opened number, and take off the share of
Σ ⌊r_i / 2^shift⌋. That share may be over another ring, so that the result is.

Masks are made ahead, without data, in one round: each of the first t + 1 members draws an r_i of
width + 40 bits and deals it twice, whole at degree 2t (which v may have) and shifted at degree t.
Of any t members one r_i is unknown: what they see opened for one v and for another differs by a
statistical distance below 2^−40 a number. The result is off by less than ⌈t/2⌉ + 1 units of its
last place, and exact if shift is 0. A mask is used once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcircuits.errors import ParameterError, ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.field import Ring
from fedcircuits.privacy.group import Group, Lot, exchange
from fedcircuits.privacy.limbs import Elements, shifted_right
from fedcircuits.privacy.shares import deal
from fedcircuits.privacy.sharing import opened

HIDING = 40  # bits
MASKED = "numbers under a random mask: nothing"


@dataclass(frozen=True, slots=True)
class Cut:
    """What masks are for: values of ``width`` bits with their sign, ``shift`` bits cut off.

    ``landing`` is the ring of the result, the group's own if none.
    """

    width: int
    shift: int
    landing: Ring | None = None

    def needs(self, members: int) -> int:
        """Bits of the least ring that holds value and masks."""
        contributors = (members - 1) // 2 + 1
        return ((contributors << (self.width + HIDING)) + (1 << self.width)).bit_length()


class Masks:
    """A member's shares of masks, taken one after the other and never twice."""

    def __init__(self, cut: Cut, covers: Elements, rests: Elements) -> None:
        self.cut, self._covers, self._rests, self._used = cut, covers, rests, 0

    def __len__(self) -> int:
        """Those that are left."""
        return len(self._covers) - self._used

    def take(self, count: int, tag: str) -> tuple[Elements, Elements]:
        if count > len(self):
            raise ProtocolError(
                f"{tag!r} needs {count} masks and {len(self)} are left: none is used twice, make "
                "more of them ahead"
            )
        own = slice(self._used, self._used + count)
        self._used += count
        return self._covers[own], self._rests[own]


def masks_made(group: Group, tag: str, plans: Sequence[tuple[int, Cut]]) -> Flow[list[Masks]]:
    """Masks for every (number of them, cut), all in one round."""
    for _, cut in plans:
        _check(group, cut)
    members, rings = len(group.members), [cut.landing or group.ring for _, cut in plans]
    contributors = group.members[: group.threshold + 1]
    lots = [
        Lot(ring, (count,))
        for (count, _), landing in zip(plans, rings, strict=True)
        for ring in (group.ring, landing)
    ]
    dealt: list[Elements] = []
    if group.me in contributors:
        for (count, cut), landing in zip(plans, rings, strict=True):
            drawn = group.stream.bits((count,), cut.width + HIDING)
            whole, rest = group.ring.reduced(drawn), shifted_right(drawn, cut.shift)
            level = group.threshold
            dealt.append(deal(group.ring, whole, 2 * level, members, group.stream))
            dealt.append(deal(landing, landing.reduced(rest), level, members, group.stream))
    parts = {m: [d[i] for d in dealt] for i, m in enumerate(group.members)} if dealt else {}
    found = yield from exchange(group, tag, parts, contributors, lots)
    totals = [lot.ring.sum(rows) for lot, rows in zip(lots, found, strict=True)]
    pairs = zip(totals[::2], totals[1::2], strict=True)
    return [Masks(cut, *pair) for (_, cut), pair in zip(plans, pairs, strict=True)]


def truncated(group: Group, tag: str, values: Elements, masks: Masks) -> Flow[Elements]:
    """⌊values / 2^shift⌉ at degree t over the landing ring, from shares of degree t or 2t."""
    cut, flat = masks.cut, values.reshape(-1, group.ring.limbs)
    landing = cut.landing or group.ring
    cover, rest = masks.take(len(flat), tag)
    half = 1 << (cut.width - 1)
    hidden = group.ring.add(group.ring.add(flat, cover), group.ring.elements(half))
    level = 2 * group.threshold
    seen = yield from opened(group, tag, hidden, MASKED, level)
    if shifted_right(seen, cut.needs(len(group.members))).any():
        raise ProtocolError(
            f"a number under {tag!r} is beyond the {cut.width} bits that were stated for it: check "
            "the ranges of what is shared"
        )
    centre = (half >> cut.shift) + (group.threshold // 2 if cut.shift else 0)
    public = landing.subtract(
        landing.reduced(shifted_right(seen, cut.shift)), landing.elements(centre)
    )
    found: Elements = landing.subtract(public, rest)
    return found.reshape(*values.shape[:-1], landing.limbs)


def _check(group: Group, cut: Cut) -> None:
    need, landing = cut.needs(len(group.members)), cut.landing or group.ring
    if not 0 <= cut.shift < cut.width:
        raise ParameterError(f"{cut.shift} bits cut off {cut.width}: expected from 0 to width − 1")
    if need > group.ring.bits or cut.width - cut.shift > landing.bits - 1:
        raise ParameterError(
            f"values of {cut.width} bits under masks among {len(group.members)} parties need a "
            f"ring of {need} bits, and {cut.width - cut.shift + 1} where they land; got "
            f"{group.ring.bits} and {landing.bits}: take a larger ring or fewer fractional bits"
        )

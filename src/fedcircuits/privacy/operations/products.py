"""Products of secrets, one round each: exact, or cut back to their fractional bits.

**Exact** (Gennaro, Rabin and Rabin 1998). A member's product of two shares is its share of the
product, of degree 2t. The first 2t + 1 members deal theirs again at degree t; the sum of what they
dealt, with the whole-number weights of the value at 0, is a share of the product of degree t. Any
sum of products takes the same one round.

**Truncated.** A product of two fixed-point numbers has twice the fractional bits. To cut off
``shift`` of them, members open v + 2^(width − 1) + R, where v is the value, −2^(width − 1) ≤ v <
2^(width − 1), and R = Σ r_i a random number that nobody knows. They shift the opened number and
subtract the share of Σ ⌊r_i / 2^shift⌋. That share may be over another ring, and so is the result.

Masks are made ahead, without data, in one round: each of the last t + 1 members draws an r_i of
width + 40 bits and deals it twice, unshifted at degree 2t (which v may have) and shifted at degree
t (sharing/dealing.py). Of any t members one r_i is unknown: what they see opened for one v and for
another differs by a statistical distance below 2^−40 per number. The result is off by less than
⌈t/2⌉ + 1 units of its last place, and exact if shift is 0. A mask is used once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fedcircuits.errors import ParameterError, ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.dealing import Dealer, seeded
from fedcircuits.privacy.sharing.group import Fold, Group, Lot, opened_and, shared_mix
from fedcircuits.privacy.sharing.shares import pieces, weights

HIDING = 40  # bits
MASKED = "masked numbers, which reveal nothing"


def reduced(group: Group, tag: str, products: Elements) -> Flow[Elements]:
    """Shares of degree 2t, such as ``group.ring.multiply(a, b)``, as shares of degree t."""
    needed = 2 * group.threshold + 1
    secret = products if group.me in group.members[:needed] else None
    return (yield from shared_mix(group, tag, secret, products.shape[:-1], weights(needed, 0)))


# ---------------------------------------------------------------------- truncation


@dataclass(frozen=True, slots=True)
class Cut:
    """The purpose of masks: values of ``width`` bits with their sign, ``shift`` bits cut off.

    ``landing`` is the ring of the result, the group's own if none.
    """

    width: int
    shift: int
    landing: Ring | None = None

    @property
    def half(self) -> int:
        """The addend that keeps values from going below zero."""
        return 1 << (self.width - 1)

    def needs(self, members: int) -> int:
        """Bits of the least ring that holds value and masks."""
        contributors = (members - 1) // 2 + 1
        return ((contributors << (self.width + HIDING)) + (1 << self.width)).bit_length()


class Masks:
    """A member's shares of masks, taken one after the other and never twice.

    covers   shares of R + half, of degree 2t, which are added to a value
    rests    shares of Σ ⌊r_i / 2^shift⌋, of degree t, which are subtracted again
    """

    def __init__(self, cut: Cut, covers: Elements, rests: Elements) -> None:
        self.cut, self._covers, self._rests, self._used = cut, covers, rests, 0

    def __len__(self) -> int:
        """How many are left."""
        return len(self._covers) - self._used

    def take(self, count: int, tag: str) -> tuple[Elements, Elements]:
        if count > len(self):
            raise ProtocolError(
                f"{tag!r} needs {count} masks, but {len(self)} are left: a mask is used only "
                "once, so prepare more"
            )
        taken = slice(self._used, self._used + count)
        self._used += count
        return self._covers[taken], self._rests[taken]


def masks_made(group: Group, tag: str, plans: Sequence[tuple[int, Cut]]) -> Flow[list[Masks]]:
    """Masks for every (number of them, cut), all in one round."""
    for _, cut in plans:
        _check(group, cut)
    level, contributors = group.threshold, group.members[-group.threshold - 1 :]
    lots: list[tuple[Lot, int]] = []
    folds: list[Fold] = []
    for count, cut in plans:
        landing = cut.landing or group.ring
        lots += [(Lot(group.ring, (count,)), 2 * level), (Lot(landing, (count,)), level)]
        folds += [partial(_total, group.ring, cut.half), partial(_total, landing, 0)]
    dealer = _drawn(group, plans, lots) if group.me in contributors else None
    shares = yield from seeded(group, tag, contributors, lots, dealer, folds)
    pairs = zip(shares[::2], shares[1::2], strict=True)
    return [Masks(cut, *pair) for (_, cut), pair in zip(plans, pairs, strict=True)]


def _total(ring: Ring, start: int, rows: Elements, _: slice) -> Elements:
    return ring.sum(rows, start)


def _drawn(
    group: Group, plans: Sequence[tuple[int, Cut]], lots: Sequence[tuple[Lot, int]]
) -> Dealer:
    """This member's contribution, piece by piece."""
    dealer = Dealer(group, lots)
    for i, (count, cut) in enumerate(plans):
        for piece in pieces(count, group.ring):
            drawn = group.stream.bits((piece.stop - piece.start,), cut.width + HIDING)
            for k, shift in ((2 * i, 0), (2 * i + 1, cut.shift)):
                secret = lots[k][0].ring.shifted(drawn, shift, cut.width + HIDING)
                dealer.put(k, piece, secret)
    return dealer


def truncated(group: Group, tag: str, values: Elements, masks: Masks) -> Flow[Elements]:
    """⌊values / 2^shift⌉ at degree t over the landing ring, from shares of degree t or 2t."""
    cut, flat = masks.cut, values.reshape(-1, group.ring.limbs)
    landing = cut.landing or group.ring
    cover, rest = masks.take(len(flat), tag)
    centre = (cut.half >> cut.shift) + (group.threshold // 2 if cut.shift else 0)
    size = cut.needs(len(group.members))

    def shortened(seen: Elements, piece: slice) -> Elements:
        shares, fits = landing.cut(seen, size, cut.shift, centre, rest[piece])
        if not fits:
            raise ProtocolError(
                f"a number under {tag!r} exceeds the {cut.width} bits declared for it: one of "
                f"{', '.join(group.members)} sent a wrong share, or shared a number out of range"
            )
        return shares

    hidden, level = group.ring.add(flat, cover), 2 * group.threshold
    result = yield from opened_and(group, tag, hidden, MASKED, shortened, landing, level)
    return result.reshape(*values.shape[:-1], landing.limbs)


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

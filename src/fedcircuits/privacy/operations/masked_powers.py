"""Masks for secret exponents: r that nobody knows, and shares of 2^(−r).

Each of the first t + 1 members draws an r_i and deals it over the field, at degree 2t, and 2^(−r_i)
over a ring, at degree t. r = Σ r_i and 2^(−r) = Π 2^(−r_i), by a tree of products. Of any t members
one r_i is unknown, of 126 − ⌈log2(t + 1)⌉ bits: an opened l + r tells nothing about an l of w
bits up to a distance of 2^(w − 125)·(t + 1). One mask is for one exponent.

Powers of two from t + 2 mantissas of 63 bits: l must be t + 1 or more (exponents.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import numpy as np

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.exponents import MANTISSA, inverse_powers, weighted_powers
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.shares import deal

Dealt = tuple[Lot, int, Elements | None]  # what a contributor deals, at which degree


def mask_bits(group: Group) -> int:
    """Of one contributor's mask: the sum stays below 2^126."""
    return 126 - ceil(log2(group.threshold + 1))


def mantissas(threshold: int) -> int:
    """Bits below the point of a power."""
    return MANTISSA * (threshold + 2)


def contributors(group: Group) -> tuple[str, ...]:
    return group.members[: group.threshold + 1]


def power_masks(group: Group, ring: Ring, shape: tuple[int, ...]) -> list[Dealt]:
    """What a contributor deals of masks: r_i (*shape, 2) and 2^(−r_i) (*shape, limbs)."""
    drawn: Elements | None = None
    power: Elements | None = None
    if group.me in contributors(group):
        drawn = group.stream.bits(shape, mask_bits(group))
        power = inverse_powers(ring, drawn)
    level = group.threshold
    return [(Lot(FIELD, shape), 2 * level, drawn), (Lot(ring, shape), level, power)]


def contributed(group: Group, tag: str, dealt: Sequence[Dealt]) -> Flow[list[Elements]]:
    """One round: shares of what every contributor deals, (contributors, *shape, limbs) each."""
    dealers, parts = contributors(group), {}
    if group.me in dealers:
        count, rows = len(group.members), []
        for lot, degree, secret in dealt:
            assert secret is not None, "a contributor deals all of it"
            rows.append(deal(lot.ring, secret, degree, count, group.stream))
        parts = {m: [row[i] for row in rows] for i, m in enumerate(group.members)}
    return (yield from exchange(group, tag, parts, dealers, [lot for lot, *_ in dealt]))


def multiplied(group: Group, tag: str, factors: Elements) -> Flow[Elements]:
    """Shares of the product over the first axis, in ⌈log2⌉ rounds; ``group`` is over their ring."""
    level = 0
    while len(factors) > 1:
        pairs = len(factors) // 2
        both = group.ring.multiply(factors[: 2 * pairs : 2], factors[1 : 2 * pairs : 2])
        done = yield from reduced(group, f"{tag}/{level}", both)
        factors, level = np.concatenate([done, factors[2 * pairs :]]), level + 1
    found: Elements = factors[0]
    return found


def power(ring: Ring, opened: Elements, inverse: Elements) -> Elements:
    """Shares of 2^l (..., limbs), ``mantissas`` bits below the point; opened: l + r (..., 2)."""
    flat = opened.reshape(-1, 1, 2), inverse.reshape(-1, 1, ring.limbs)
    return weighted_powers(ring, *flat).reshape(inverse.shape)

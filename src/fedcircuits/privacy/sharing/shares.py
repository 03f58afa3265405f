"""Shamir's secret sharing: values of a random polynomial whose value at 0 is the secret.

Member i of N holds the value at i, i = 1 to N. Any d shares of a polynomial of degree d are uniform
and independent of the secret, and any d + 1 determine it. Sums of shares are shares of sums;
products of shares are shares of products, with the sum of their degrees. With the threshold t = ⌊(N
− 1)/2⌋ a product of two degree-t sharings still has enough shares.

At 1, 2, … all weights are whole numbers: those of dealing are powers, those of finding the value at
0 from m shares are ±(m choose i). Shares beyond the d + 1 needed show whether all fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.randomness import Stream

PIECE = 32_768  # words processed at a time, to fit the cache


def threshold(parties: int) -> int:
    """The largest coalition that learns nothing: fewer than half."""
    if parties < 3:
        raise FederationError(
            f"secret sharing needs at least 3 parties, got {parties}: of two, each can compute "
            "the other's value from whatever is opened; add a party, or use another summation"
        )
    return (parties - 1) // 2


def threshold_of(parties: Sequence[str]) -> int:
    """The same for parties by name, which must be distinct."""
    if len(set(parties)) < len(parties):
        raise FederationError(f"a member is named twice: {', '.join(parties)}")
    return threshold(len(parties))


def deal(ring: Ring, secret: Elements, degree: int, parties: int, stream: Stream) -> Elements:
    """(..., limbs) as (parties, ..., limbs): a share of every number for each."""
    flat = secret.reshape(-1, ring.limbs)
    dealt = np.empty((parties, *flat.shape), np.uint64)
    for span in pieces(len(flat), ring):
        others = stream.elements(ring, (degree, span.stop - span.start))
        dealt[:, span] = ring.values(flat[span], others, parties)
    return dealt.reshape(parties, *secret.shape)


def pieces(count: int, ring: Ring) -> list[slice]:
    """Slices of this many elements that fit the cache."""
    size = max(1, PIECE // ring.limbs)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def reconstruct(ring: Ring, shares: Elements, degree: int, names: Sequence[str]) -> Elements:
    """The secrets of (parties, ..., limbs), shares of the first ``len(shares)`` members.

    Every share counts: those beyond degree + 1 must lie on the polynomial of the others.
    """
    needed = degree + 1
    if len(shares) < needed:
        raise ProtocolError(
            f"{len(shares)} shares of {', '.join(names)} are too few: a sharing of degree {degree} "
            f"needs {needed}"
        )
    beyond = range(needed + 1, len(shares) + 1)
    if beyond:
        expected = ring.mix([weights(needed, x) for x in beyond], shares[:needed])
        off = (expected != shares[needed:]).any(axis=(0, -1))
        if off.any():
            raise _inconsistent(ring, shares, degree, names, off)
    secret: Elements = ring.mix([weights(needed, 0)], shares[:needed])[0]
    return secret


@cache
def weights(points: int, at: int) -> tuple[int, ...]:
    """Lagrange weights of the values at 1 to ``points`` in the value at another whole number."""
    every = range(1, points + 1)
    return tuple(
        prod(at - j for j in every if j != i) // prod(i - j for j in every if j != i) for i in every
    )


# ---------------------------------------------------------------------- whose share is wrong


def _inconsistent(
    ring: Ring,
    shares: Elements,
    degree: int,
    names: Sequence[str],
    off: np.typing.NDArray[np.bool_],
) -> ProtocolError:
    first = shares.reshape(len(shares), -1, ring.limbs)[:, int(np.argmax(off))]
    values = [int(v) for v in ring.integers(first)]
    wrong = _suspects(ring, values, degree)
    who = names[wrong[0]] if len(wrong) == 1 else f"one of {', '.join(names)}"
    return ProtocolError(
        f"{int(off.sum())} opened values have inconsistent shares: {who} sent or dealt a wrong "
        "share; the result is discarded: start again without that party"
    )


def _suspects(ring: Ring, values: Sequence[int], degree: int) -> list[int]:
    """Positions without which the others lie on one polynomial, if there are enough shares."""
    suspects = []
    for left_out in range(len(values)):
        kept = [i for i in range(len(values)) if i != left_out]
        base, rest = kept[: degree + 1], kept[degree + 1 :]
        if rest and all(_value(ring, values, base, i) == values[i] for i in rest):
            suspects.append(left_out)
    return suspects


def _value(ring: Ring, values: Sequence[int], base: Sequence[int], at: int) -> int:
    total = 0
    for i in base:
        above = prod(at - j for j in base if j != i)
        below = prod(i - j for j in base if j != i)
        total += values[i] * above * pow(below, -1, ring.modulus)
    return total % ring.modulus

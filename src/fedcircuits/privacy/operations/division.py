"""Quotients of secrets by scaled Goldschmidt steps and one correction: about bound/2 + 6 rounds.

Denominators b are whole numbers from 1 to 2^bound, numerators a from 0 to b. d = b/2^bound and
y = 1/2^bound are multiplied by one factor in every step, so that d/y stays b while d goes to 1:

    d ← d (2√s − s d),  y ← y (2√s − s d)

With s = 1 that is Goldschmidt's step, which doubles a small d. 2√s is the largest slope for which d
stays below 1: with s near 4 a small d grows almost fourfold, and a d near 1 falls to 2√s − s. From
[ℓ, 1] a step leads to [ℓ', 1], ℓ' = min(ℓ (2√s − s ℓ), 2√s − s). s is chosen for the largest ℓ'
(``scales``), in quarters and not above 3.5. In the end s is 1, and 1 − d is squared in every step.

Now y = (1 − ε)/b, where ε is what d lacks, and rounding. With the whole number b itself, u = a y
and w = 2 − b y have u w = (a/b)(1 − ε²): so y needs half the digits, and numbers fit the field
(a bound of 14 for up to 14 parties, 15 for up to 6). More numerators of a denominator take one
product and one truncation each.

Errors. A step rounds d and y by at most off = ⌈t/2⌉ + 1 last places. For d that is off/ℓ' of it.
As d never falls below min(d₀, 2√3.5 − 3.5), y never falls below 0.24/2^bound. Fractional bits
(``coarse`` of d, ``fraction`` of y) keep all of it below 2^(1 − precision/2), whose square is four
units of 2^−precision. Landing adds off of them (``error``).

A denominator of 0 cannot be seen on shares. As numerators are no larger, they are 0 too and the
quotient comes out as 0, up to the same error; there is room for y, which is at most 32 then. Counts
are checked by their owners, before they are shared, with ``Division.check``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, isqrt, log2, sqrt

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.operations.truncation import Cut, Masks, masks_made, truncated
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import threshold

Counts = npt.NDArray[np.int64]
QUARTERS = range(4, 15)  # s from 1 to 3.5
FALL = 2 * sqrt(3.5) - 3.5  # how far a d of 1 may fall


@dataclass(frozen=True, slots=True)
class Division:
    """How to divide among so many members: 0 ≤ a ≤ b ≤ 2^bound, b not 0.

    Quotients land in ``landing`` with ``precision`` fractional bits.

    >>> division = Division(members=3, bound=14)
    >>> division.rounds, division.ring.bits
    (13, 127)
    """

    members: int
    bound: int
    precision: int = 40
    landing: Ring = FIELD

    def __post_init__(self) -> None:
        if self.bound < 1 or self.precision < 4:
            raise ParameterError(
                f"a division with a bound of 2^{self.bound} and {self.precision} fractional bits: "
                "expected a bound from 1 and a precision from 4"
            )

    @property
    def error(self) -> float:
        """What a quotient is off by, at most."""
        return float(np.ldexp(self._off + 4, -self.precision))

    @property
    def rounds(self) -> int:
        """Beside one for masks."""
        return len(self._scales[0]) + 2

    @property
    def ring(self) -> Ring:
        """The field if it holds it; numerators and denominators are shared over it."""
        need = max(cut.needs(self.members) for cut in (self._step, self._last))
        return Ring(next_prime(max(need, FIELD.bits)))

    @property
    def _off(self) -> int:
        """Units of the last place that a truncation is off by."""
        return -(-threshold(self.members) // 2) + 1

    @property
    def _most(self) -> float:
        """What 1 − b y may be at the end."""
        return float(2.0 ** (1 - self.precision / 2))

    @property
    def _scales(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return scales(self.bound, self._most / 8)

    @property
    def coarse(self) -> int:
        """Fractional bits of d: its rounding takes a quarter of what is allowed."""
        worst = sum(1 / least for least in self._scales[1][:-1])
        return max(self.bound, ceil(log2(4 * self._off * worst / self._most)))

    @property
    def fraction(self) -> int:
        """Fractional bits of y: its rounding takes what is left."""
        every, least = self._scales
        by_d = self._off * sum(1 / own for own in least[:-1]) / 2**self.coarse
        left = self._most - by_d - (1 - least[-1])
        return self.bound + ceil(log2(self._off * len(every) / FALL / left))

    @property
    def _step(self) -> Cut:
        grown = sum(1 + log2(scale / 4) / 2 for scale in self._scales[0]) - self.bound  # b = 0
        shift = self.coarse + 2
        return Cut(self.fraction + shift + max(1, ceil(grown)) + 1, shift)

    @property
    def _last(self) -> Cut:
        return Cut(2 * self.fraction + 2, 2 * self.fraction - self.precision, self.landing)

    def plans(self, numerators: int, denominators: int) -> list[tuple[int, Cut]]:
        """Masks that one division takes, for ``masks_made``."""
        every = (2 * len(self._scales[0]) - 1) * denominators
        return [(every, self._step), (numerators, self._last)]

    def check(self, numerators: Counts, denominators: Counts) -> None:
        """ParameterError unless a member's own counts keep sums in range whatever others have."""
        most = (1 << self.bound) // self.members
        inside = (numerators >= 0) & (numerators <= denominators) & (denominators <= most)
        if not inside.all():
            raise ParameterError(
                f"counts to divide must be 0 ≤ numerator ≤ denominator ≤ {most:,} at each of "
                f"{self.members} parties (a bound of 2^{self.bound} together), "
                f"{int((~inside).sum()):,} are not: take a larger bound, or check the counts"
            )


@cache
def scales(bound: int, missing: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """4 s of every step until 1 − d is at most ``missing``, and the least d after each of them."""
    least, found, after = 2.0**-bound, [], []
    while 1 - least > missing:
        results = {
            q: min(least * (sqrt(q) - q / 4 * least), sqrt(q) - q / 4) for q in QUARTERS
        }  # √q = 2√s
        best = max(results, key=lambda q: results[q])
        least = results[best]
        found.append(best)
        after.append(least)
    return tuple(found), tuple(after)


def divided(
    group: Group,
    tag: str,
    numerators: Elements,
    denominators: Elements,
    division: Division,
    masks: Sequence[Masks] | None = None,
) -> Flow[Elements]:
    """Shares of numerators / denominators, which broadcast to them.

    ``group`` is over ``division.ring``. Without ``masks`` they are made first, in one more round.
    """
    ring, limbs = group.ring, group.ring.limbs
    count, parts = numerators.size // limbs, denominators.size // limbs
    if masks is None:
        masks = yield from masks_made(group, f"{tag}/masks", division.plans(count, parts))
    step, last = masks
    y = yield from _inverses(group, tag, denominators.reshape(-1, limbs), division, step)
    y = y.reshape(denominators.shape)
    both = [ring.multiply(v, y).reshape(-1, limbs) for v in (numerators, denominators)]
    exact = yield from reduced(group, f"{tag}/{division.rounds - 2}", np.concatenate(both))
    u, by = exact[:count].reshape(numerators.shape), exact[count:].reshape(denominators.shape)
    end = ring.multiply(u, ring.affine(by, -1, 2 << division.fraction))
    return (yield from truncated(group, f"{tag}/{division.rounds - 1}", end, last))


def _inverses(
    group: Group, tag: str, denominators: Elements, division: Division, masks: Masks
) -> Flow[Elements]:
    """Shares of 1 / denominators (parts, limbs), to half the digits."""
    ring, coarse = group.ring, division.coarse
    every, _ = division._scales
    both = np.empty((2, *denominators.shape), np.uint64)  # y and d
    both[0] = ring.constant(1 << (division.fraction - division.bound))
    both[1] = ring.rotate(denominators, coarse - division.bound)
    for i, quarters in enumerate(every):
        slope = isqrt(quarters << (2 * coarse + 4))
        factor = ring.affine(both[1], -quarters, slope)
        wanted = both if i + 1 < len(every) else both[:1]
        both = yield from truncated(group, f"{tag}/{i}", ring.multiply(wanted, factor), masks)
    found: Elements = both[0]
    return found

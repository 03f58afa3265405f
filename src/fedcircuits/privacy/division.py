"""Quotients of secrets by Goldschmidt's iteration: log2 of the bound and about 5 rounds, any batch.

Denominators b are whole numbers from 1 to 2^bound, numerators a from 0 to b. d = b / 2^bound and
x = a / 2^bound are both multiplied by 2 − d in every round. x / d stays a / b while d goes to 1:
what is missing, 1 − d, is squared. After bound + ⌈log2(0.7 (precision + 1))⌉ rounds x is a / b.

Rounding of x and d by δ in a round moves their quotient by 2δ/d, and d doubles at first, so in all
by less than 4δ·2^bound / b. Enough fractional bits (``fraction``) keep that below 2^−precision for
every b; the ring follows from them. Landing adds ⌈t/2⌉ + 1 units of 2^−precision (``error``).

A denominator of 0 cannot be seen on shares. As numerators are no larger, they are 0 too and
the quotient comes out as 0, up to the same error. Counts are checked by their owners, before they
are shared, with ``Division.check``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.field import FIELD, Ring, next_prime
from fedcircuits.privacy.group import Group
from fedcircuits.privacy.limbs import Elements
from fedcircuits.privacy.shares import threshold
from fedcircuits.privacy.truncation import Cut, Masks, masks_made, truncated

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Division:
    """How to divide among so many members: 0 ≤ a ≤ b ≤ 2^bound, b not 0.

    Quotients land in ``landing`` with ``precision`` fractional bits.

    >>> division = Division(members=3, bound=14)
    >>> division.rounds, division.ring.bits
    (19, 163)
    """

    members: int
    bound: int
    precision: int = 40
    landing: Ring = FIELD

    @property
    def fraction(self) -> int:
        """Fractional bits on the way."""
        return self.precision + self.bound + 4 + ceil(log2(self._off))

    @property
    def error(self) -> float:
        """What a quotient is off by, at most."""
        return float(np.ldexp(self._off + 1, -self.precision))

    @property
    def _off(self) -> int:
        """Units of the last place that a truncation is off by."""
        return -(-threshold(self.members) // 2) + 1

    @property
    def rounds(self) -> int:
        return self.bound + ceil(log2(0.7 * (self.precision + 1)))

    @property
    def ring(self) -> Ring:
        """The least one that holds it; numerators and denominators are shared over it."""
        return Ring(next_prime(self._step.needs(self.members)))

    @property
    def _step(self) -> Cut:
        return Cut(2 * self.fraction + 3, self.fraction)

    @property
    def _last(self) -> Cut:
        return Cut(2 * self.fraction + 3, 2 * self.fraction - self.precision, self.landing)

    def plans(self, numerators: int, denominators: int) -> list[tuple[int, Cut]]:
        """Masks that one division takes, for ``masks_made``."""
        every = (self.rounds - 1) * (numerators + denominators)
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


def divided(
    group: Group,
    tag: str,
    numerators: Elements,
    denominators: Elements,
    division: Division,
    masks: Sequence[Masks] | None = None,
) -> Flow[Elements]:
    """Shares of numerators / denominators, whose shapes broadcast; each denominator is used once.

    ``group`` is over ``division.ring``. Without ``masks`` they are made first, in one more round.
    """
    limbs = group.ring.limbs
    count, parts = numerators.size // limbs, denominators.size // limbs
    if masks is None:
        masks = yield from masks_made(group, f"{tag}/masks", division.plans(count, parts))
    step, last = masks
    ring, scale = group.ring, division.fraction - division.bound
    two = ring.elements(2 << division.fraction)
    x, d = ring.rotate(numerators, scale), ring.rotate(denominators, scale)
    for i in range(division.rounds - 1):
        factor = ring.subtract(two, d)
        both = [ring.multiply(v, factor).reshape(-1, limbs) for v in (x, d)]
        done = yield from truncated(group, f"{tag}/{i}", np.concatenate(both), step)
        x, d = done[:count].reshape(x.shape), done[count:].reshape(d.shape)
    end = ring.multiply(x, ring.subtract(two, d))
    return (yield from truncated(group, f"{tag}/{division.rounds - 1}", end, last))

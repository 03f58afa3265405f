"""log2 of secret probabilities by Newton's iteration: two rounds an iteration, any batch.

    y ← y + (p·2^(−y) − 1)·log2 e,  y = 0 at first

finds the zero of 2^y − p. y comes down by at most 1.44 bits an iteration and never passes log2 p;
from there the error is squared. So p ≥ 2^−least takes ⌈least / 1.44⌉ + 6 iterations.

2^(−y) is a masked power (masked_powers.py), over a ring in which p has least + 38 fractional bits.
The product with p is cut to the 36 bits of y, over the field, in one opening (truncation.py).
Nothing is opened but under a mask. The error of a logarithm is below (⌈t/2⌉ + 3)·2^−36.

A p below 2^−least cannot be seen on shares and would come out too large: owners check theirs before
they are shared (``Logarithm.check``), and a mean of such numbers is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, e, log2

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.exponents import FRACTION
from fedcircuits.privacy.operations.masked_powers import (
    contributed,
    mantissas,
    multiplied,
    power,
    power_masks,
)
from fedcircuits.privacy.operations.truncation import MASKED, Cut, Masks, masks_made, truncated
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import threshold
from fedcircuits.privacy.sharing.sharing import opened

STEP = 20  # fractional bits of log2 e
SLOPE = round(log2(e) * (1 << STEP))


@dataclass(frozen=True, slots=True)
class Logarithm:
    """How to take logarithms among so many members, of 2^−least ≤ p ≤ 1.

    ``ring``: where p is shared, with ``precision`` fractional bits.

    >>> Logarithm(members=3).rounds
    26
    """

    members: int
    least: int = 10

    @property
    def precision(self) -> int:
        """Fractional bits of p: the least is rounded by less than an error of its logarithm."""
        return self.least + FRACTION + 2

    @property
    def iterations(self) -> int:
        return ceil(self.least / log2(e)) + 6

    @property
    def rounds(self) -> int:
        return 2 * self.iterations

    @property
    def guard(self) -> int:
        """Added to exponents, whose least value is 0 but for rounding."""
        return threshold(self.members) + 2

    @property
    def error(self) -> float:
        return float(np.ldexp(-(-threshold(self.members) // 2) + 3, -FRACTION))

    @property
    def cut(self) -> Cut:
        """p·2^(−y)·log2 e ≤ 1.45, to the bits of y."""
        below = self.precision + mantissas(threshold(self.members)) + self.guard + STEP
        return Cut(below + 3, below - FRACTION, FIELD)

    @property
    def ring(self) -> Ring:
        return Ring(next_prime(self.cut.needs(self.members)))

    def check(self, p: Array) -> None:
        """ParameterError unless an owner's own numbers are in range."""
        inside = (p >= 2.0**-self.least) & (p <= 1)
        if not inside.all():
            raise ParameterError(
                f"logarithms are taken of numbers from 2^−{self.least} to 1, of {p.size:,} "
                f"{int((~inside).sum()):,} are not: smooth them, or take a larger least"
            )


@dataclass(frozen=True, slots=True)
class LogMasks:
    """Of all iterations: masks of exponents (iterations, count, …), and those of products."""

    covers: Elements
    inverses: Elements
    cuts: Masks


def log_masks(group: Group, tag: str, count: int, logarithm: Logarithm) -> Flow[LogMasks]:
    """Masks for ``count`` logarithms, ahead; ``group`` is over ``logarithm.ring``."""
    shape = (logarithm.iterations, count)
    dealt = power_masks(group, group.ring, shape)
    covers, powers = yield from contributed(group, f"{tag}/powers", dealt)
    inverses = yield from multiplied(group, f"{tag}/products", powers)
    plan = [(logarithm.iterations * count, logarithm.cut)]
    [cuts] = yield from masks_made(group, f"{tag}/cuts", plan)
    return LogMasks(FIELD.sum(covers), inverses, cuts)


def logs_of(
    group: Group,
    tag: str,
    p: Elements,
    logarithm: Logarithm,
    masks: LogMasks | None = None,
) -> Flow[Elements]:
    """Shares of log2 p (..., 2) over the field with 36 fractional bits, of degree t.

    ``p``: shares (..., limbs) over ``logarithm.ring``, as ``group`` is. Without ``masks`` they are
    made first, in 2 + ⌈log2(t + 1)⌉ more rounds.
    """
    ring, flat = group.ring, p.reshape(-1, group.ring.limbs)
    if masks is None:
        masks = yield from log_masks(group, f"{tag}/masks", len(flat), logarithm)
    slope = ring.multiply(flat, ring.elements(SLOPE))
    one = FIELD.elements(SLOPE << (FRACTION - STEP))
    guard = FIELD.elements(logarithm.guard << FRACTION)
    found = FIELD.zeros((len(flat),))
    for i in range(logarithm.iterations):
        hidden = FIELD.add(FIELD.subtract(guard, found), masks.covers[i])
        field = group.over(FIELD)
        seen = yield from opened(field, f"{tag}/exponent/{i}", hidden, MASKED, 2 * group.threshold)
        terms = ring.multiply(power(ring, seen, masks.inverses[i]), slope)
        ratio = yield from truncated(group, f"{tag}/product/{i}", terms, masks.cuts)
        found = FIELD.add(found, FIELD.subtract(ratio, one))
    return found.reshape(*p.shape[:-1], FIELD.limbs)

"""2^l of secret exponents −low ≤ l ≤ 0, as fixed-point numbers: what undoes secure_log.py.

Members open l + r with a mask r that nobody knows and multiply by shares of 2^(−r)
(masked_powers.py), which gives 2^l with many fractional bits; these are cut to ``fraction``, over
the ring where the result is wanted, by another masked opening (truncation.py). Two rounds for any
batch, after 2 + ⌈log2(t + 1)⌉ for the masks. The error is below (⌈t/2⌉ + 2)·2^−fraction.

A quotient of secrets is a power of a difference of logarithms, so it needs no division.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from fedcircuits.privacy.operations.truncation import MASKED, Cut, masks_made, truncated
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.shares import threshold
from fedcircuits.privacy.sharing.sharing import opened


@dataclass(frozen=True, slots=True)
class Power:
    """How to take powers among so many members; they land over ``landing``.

    >>> Power(members=3, low=16).ring.bits
    257
    """

    members: int
    low: int
    fraction: int = 40
    landing: Ring = FIELD

    @property
    def guard(self) -> int:
        """Added to exponents, so that none is below t + 1."""
        return self.low + threshold(self.members) + 2

    @property
    def cut(self) -> Cut:
        below = mantissas(threshold(self.members)) + self.guard
        return Cut(below + 3, below - self.fraction, self.landing)

    @property
    def ring(self) -> Ring:
        return Ring(next_prime(self.cut.needs(self.members)))


def powers_of(group: Group, tag: str, exponents: Elements, rule: Power) -> Flow[Elements]:
    """Shares of 2^l (..., limbs) of degree t, from shares of l (..., 2) over the field."""
    wide, flat = group.over(rule.ring), exponents.reshape(-1, FIELD.limbs)
    dealt = power_masks(wide, wide.ring, (len(flat),))
    covers, parts = yield from contributed(wide, f"{tag}/masks", dealt)
    inverses = yield from multiplied(wide, f"{tag}/products", parts)
    [cuts] = yield from masks_made(wide, f"{tag}/cuts", [(len(flat), rule.cut)])
    raised = FIELD.add(flat, FIELD.elements(rule.guard << FRACTION))
    hidden = FIELD.add(raised, FIELD.sum(covers))
    level = 2 * group.threshold
    seen = yield from opened(group.over(FIELD), f"{tag}/exponent", hidden, MASKED, level)
    values = power(wide.ring, seen, inverses)
    found = yield from truncated(wide, f"{tag}/result", values, cuts)
    return found.reshape(*exponents.shape[:-1], rule.landing.limbs)

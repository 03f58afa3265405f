"""Powers and logarithms of secrets, by masked exponents.

**Masks**: r that nobody knows, and shares of 2^(−r). Each of the first t + 1 members draws an r_i
and deals it over the field, at degree 2t, and 2^(−r_i) over a ring, at degree t. r = Σ r_i and
2^(−r) = Π 2^(−r_i), by a tree of products. For any t members, one r_i of 126 − ⌈log2(t + 1)⌉ bits
is unknown: an opened l + r reveals nothing about an l of w bits, up to a statistical distance of
2^(w − 125)·(t + 1). One mask is for one exponent. Powers of two are made from t + 2 mantissas of 63
bits: l must be t + 1 or more (see the end).

**Powers** 2^l of secret exponents −low ≤ l ≤ 0, as fixed-point numbers. Members open l + r and
multiply by shares of 2^(−r), which gives 2^l with many fractional bits; these are cut to
``fraction``, over the ring where the result is wanted, by another masked opening (products.py). Two
rounds for any batch, after 2 + ⌈log2(t + 1)⌉ for the masks. The error is below
(⌈t/2⌉ + 2)·2^−fraction.

**Logarithms** log2 p of secret probabilities by Newton's iteration,

    y ← y + (p·2^(−y) − 1)·log2 e,  y = 0 at first

which finds the zero of 2^y − p. y comes down by at most 1.44 bits per iteration and never passes
log2 p; from there the error is squared. So p ≥ 2^−least takes ⌈least / 1.44⌉ + 6 iterations of two
rounds. 2^(−y) is a masked power, over a ring in which p has least + 38 fractional bits. The product
with p is cut to the 36 bits of y, over the field, in one opening. Nothing is opened but under a
mask. The error of a logarithm is below (⌈t/2⌉ + 3)·2^−36. A p below 2^−least cannot be seen on
shares and would come out too large: owners check theirs before they are shared
(``Logarithm.check``), and so the mean of such numbers is in range too.

A quotient of secrets is a power of a difference of logarithms: there is no division.

**Powers of two in a ring.** 2^h is a rotation in Z/(2^q − 1), so the whole part of an exponent
counts modulo q: 2^(l + r)·2^(−r) is 2^l however large r is. Exponents are whole numbers in units of
2^−36. Their fractional part gives a mantissa of 63 fractional bits (relative error below 2^−61),
from three tables of 4096 powers. 2^(l + r)·[2^(−r)] is computed locally and has the weight
2^MANTISSA of every factor. Fractional parts of k factors may carry k − 1 from the whole part, so l
must be at least k − 1, or it would wrap around the ring: a constant is added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from math import ceil, e, log2

import numba as nb
import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic import ring_kernels
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.limbs import FULL, NONE, ONE, Elements, multiply_add, plain
from fedcircuits.privacy.operations.checks import Claim
from fedcircuits.privacy.operations.products import (
    MASKED,
    Cut,
    Masks,
    masks_made,
    reduced,
    truncated,
)
from fedcircuits.privacy.sharing.group import Group, Lot, exchange, opened
from fedcircuits.privacy.sharing.shares import deal, threshold

Turns = npt.NDArray[np.int64]
FRACTION = 36  # bits of an exponent below the point
MANTISSA = 63  # bits of a power below the point
PRECISE = 160  # bits of the tables while they are made
UNIT = np.uint64(1 << FRACTION)
TWELVE, LOW = np.uint64(12), np.uint64(4095)
STEP = 20  # fractional bits of log2 e
SLOPE = round(log2(e) * (1 << STEP))
Dealt = tuple[Lot, int, Elements | None]  # what a contributor deals, at which degree


# ---------------------------------------------------------------------- powers of two in a ring


def inverse_powers(ring: Ring, exponents: Elements) -> Elements:
    """2^(MANTISSA − exponent) of (..., 2), whole numbers below 2^128: (..., limbs)."""
    mantissa, turns = _powers(exponents, True, ring)
    out = np.empty((len(turns), ring.limbs), np.uint64)
    ring_kernels.place(mantissa, turns, ring.bits, out)
    return out.reshape(*exponents.shape[:-1], ring.limbs)


def weighted_powers(ring: Ring, exponents: Elements, factors: Elements) -> Elements:
    """Σ_j 2^(MANTISSA + exponents[r, j])·factors[r, j]: (rows, limbs).

    exponents (rows, units, 2), factors (rows, units, limbs).
    """
    shape = exponents.shape[:2]
    mantissa, turns = (v.reshape(shape) for v in _powers(exponents, False, ring))
    out = ring.zeros(shape[:1])
    ring_kernels.add_turned(mantissa, turns, plain(factors), ring.bits, out)
    return out


def _powers(exponents: Elements, inverse: bool, ring: Ring) -> tuple[Elements, Turns]:
    flat = plain(exponents).reshape(-1, 2)
    mantissa, turns = np.empty(len(flat), np.uint64), np.empty(len(flat), np.int64)
    _split(flat, inverse, ring.bits, _tables(), mantissa, turns)
    return mantissa, turns


@cache
def _tables() -> Elements:
    """(3, 4096): 2^(i / 4096^(k + 1)) with 63 bits below the point."""
    tables = np.empty((3, 4096), np.uint64)
    for k in range(3):
        with localcontext(prec=PRECISE):
            step = int(Decimal(2) ** (1 / Decimal(4096) ** (k + 1)) * (1 << PRECISE))
        power = 1 << PRECISE
        for i in range(4096):
            tables[k, i] = (power + (1 << (PRECISE - 64))) >> (PRECISE - 63)
            power = power * step >> PRECISE
    return tables


@nb.njit(cache=True, nogil=True)
def _split(exponents, inverse, q, tables, mantissa, turns):  # type: ignore[no-untyped-def]
    """The mantissa of every power in [2^63, 2^64), and its rotation."""
    ring = np.uint64(q)
    word = (FULL % ring + ONE) % ring  # 2^64 modulo q
    for i in range(len(exponents)):
        low, high = exponents[i, 0], exponents[i, 1]
        part = low & (UNIT - ONE)
        whole = (low >> np.uint64(36)) | (high << np.uint64(28))
        whole = ((high >> np.uint64(36)) % ring * word + whole % ring) % ring
        if inverse:
            whole = (ring - whole) % ring
            if part != NONE:
                part, whole = UNIT - part, (whole + ring - ONE) % ring
        turns[i] = np.int64(whole)
        m = tables[0, part >> np.uint64(24)]
        for factor in (tables[1, (part >> TWELVE) & LOW], tables[2, part & LOW]):
            below, above = multiply_add(m, factor, NONE, NONE)
            m = (above << ONE) | (below >> np.uint64(63))
        mantissa[i] = m


@cache
def compile_kernels() -> None:
    """Compile every loop of the field and of the rings, on one number, before it is needed.

    Numba writes the index of its cache and the entries one after the other, so processes that
    compile at the same time may corrupt them: call this before starting processes.
    """
    for ring in (FIELD, Ring(131)):
        one = ring.elements([[1]])
        ring.inner(one, ring.multiply(one, ring.add(one, ring.affine(one, -1, 1))))
        ring.sum(ring.values(one, ring.unpacked(ring.packed(one), (1, 1))[None], 1))
        ring.subtract(one, one)
        ring.cropped(ring.shifted(ring.zeros((1,)), 1, ring.bits))
        ring.cut(one[0], 2, 1, 1, one[0])
        ring.rotate(ring.reduced(ring.mix([[1]], one)), 1)
        exponents = FIELD.elements([[1]])
        weighted_powers(ring, exponents, inverse_powers(ring, exponents))


# ---------------------------------------------------------------------- masks


def mask_bits(group: Group) -> int:
    """Bits of one contributor's mask: the sum stays below 2^126."""
    return 126 - ceil(log2(group.threshold + 1))


def mantissas(threshold: int) -> int:
    """Bits below the point of a power."""
    return MANTISSA * (threshold + 2)


def contributors(group: Group) -> tuple[str, ...]:
    return group.members[: group.threshold + 1]


def power_masks(group: Group, ring: Ring, shape: tuple[int, ...]) -> list[Dealt]:
    """A contributor's masks to deal: r_i (*shape, 2) and 2^(−r_i) (*shape, limbs)."""
    drawn: Elements | None = None
    inverse: Elements | None = None
    if group.me in contributors(group):
        drawn = group.stream.bits(shape, mask_bits(group))
        inverse = inverse_powers(ring, drawn)
    level = group.threshold
    return [(Lot(FIELD, shape), 2 * level, drawn), (Lot(ring, shape), level, inverse)]


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


def multiplied(
    group: Group, tag: str, factors: Elements, claims: list[Claim] | None = None
) -> Flow[Elements]:
    """Shares of the product over the first axis, in ⌈log2⌉ rounds; ``group`` is over their ring.

    ``claims``: a list to which all products are added, to be checked.
    """
    level, ring = 0, group.ring
    while len(factors) > 1:
        pairs = len(factors) // 2
        a, b = factors[: 2 * pairs : 2], factors[1 : 2 * pairs : 2]
        fresh = yield from reduced(group, f"{tag}/{level}", ring.multiply(a, b))
        if claims is not None:
            claims.append(Claim.of(ring, a, b, fresh))
        factors, level = np.concatenate([fresh, factors[2 * pairs :]]), level + 1
    product: Elements = factors[0]
    return product


def _masks(
    group: Group, tags: tuple[str, str, str], shape: tuple[int, ...], cut: Cut
) -> Flow[tuple[Elements, Elements, Masks]]:
    """Masks of exponents, powers of them, and masks to cut the results; over the group's ring."""
    dealt = power_masks(group, group.ring, shape)
    covers, powers = yield from contributed(group, tags[0], dealt)
    inverses = yield from multiplied(group, tags[1], powers)
    [cuts] = yield from masks_made(group, tags[2], [(int(np.prod(shape)), cut)])
    return FIELD.sum(covers), inverses, cuts


def power(ring: Ring, opened: Elements, inverse: Elements) -> Elements:
    """Shares of 2^l (..., limbs), ``mantissas`` bits below the point; opened: l + r (..., 2)."""
    flat = opened.reshape(-1, 1, 2), inverse.reshape(-1, 1, ring.limbs)
    return weighted_powers(ring, *flat).reshape(inverse.shape)


# ---------------------------------------------------------------------- powers


@dataclass(frozen=True, slots=True)
class Power:
    """How this many members compute powers; the results are over ``landing``.

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
    tags = f"{tag}/masks", f"{tag}/products", f"{tag}/cuts"
    covers, inverses, cuts = yield from _masks(wide, tags, (len(flat),), rule.cut)
    raised = FIELD.add(flat, FIELD.elements(rule.guard << FRACTION))
    hidden, level = FIELD.add(raised, covers), 2 * group.threshold
    seen = yield from opened(group.over(FIELD), f"{tag}/exponent", hidden, MASKED, level)
    values = power(wide.ring, seen, inverses)
    result = yield from truncated(wide, f"{tag}/result", values, cuts)
    return result.reshape(*exponents.shape[:-1], rule.landing.limbs)


# ---------------------------------------------------------------------- logarithms


@dataclass(frozen=True, slots=True)
class Logarithm:
    """How this many members compute logarithms of 2^−least ≤ p ≤ 1.

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
                f"logarithms need numbers from 2^−{self.least} to 1, but {int((~inside).sum()):,} "
                f"of {p.size:,} are not: smooth them, or increase least"
            )


def logs_of(group: Group, tag: str, p: Elements, rule: Logarithm) -> Flow[Elements]:
    """Shares of log2 p (..., 2) over the field with 36 fractional bits, of degree t.

    ``p``: shares (..., limbs) over ``rule.ring``, as ``group`` is. Masks are made first, in
    2 + ⌈log2(t + 1)⌉ rounds.
    """
    ring, field, flat = group.ring, group.over(FIELD), p.reshape(-1, group.ring.limbs)
    tags = f"{tag}/masks/powers", f"{tag}/masks/products", f"{tag}/masks/cuts"
    shape = (rule.iterations, len(flat))
    covers, inverses, cuts = yield from _masks(group, tags, shape, rule.cut)
    slope = ring.multiply(flat, ring.elements(SLOPE))
    one = FIELD.elements(SLOPE << (FRACTION - STEP))
    guard = FIELD.elements(rule.guard << FRACTION)
    logs, level = FIELD.zeros((len(flat),)), 2 * group.threshold
    for i in range(rule.iterations):
        hidden = FIELD.add(FIELD.subtract(guard, logs), covers[i])
        seen = yield from opened(field, f"{tag}/exponent/{i}", hidden, MASKED, level)
        terms = ring.multiply(power(ring, seen, inverses[i]), slope)
        ratio = yield from truncated(group, f"{tag}/product/{i}", terms, cuts)
        logs = FIELD.add(logs, FIELD.subtract(ratio, one))
    return logs.reshape(*p.shape[:-1], FIELD.limbs)

"""Powers of two with real exponents, in a ring: what is added in the exponent is multiplied here.

2^h is a rotation in Z/(2^q − 1), so the whole part of an exponent counts modulo q:
2^(l + r)·2^(−r) is 2^l however large r is. Exponents are whole numbers of units of 2^−36. Their
fractional part gives a mantissa of 63 bits below the point (relative error below 2^−61), from three
tables of 4096 powers.

To raise 2 to a secret l that is shared over the field, members hold masks r and shares of 2^(−r)
made ahead, open l + r, and multiply: 2^(l + r)·[2^(−r)] is each member's own affair. The result has
the weight 2^MANTISSA of every factor. Fractional parts of k factors may carry k − 1 from the whole
part, so l must be at least k − 1: a smaller one would wrap round the ring. Add a constant to it.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numba as nb
import numpy as np
import numpy.typing as npt

from fedcircuits.privacy.arithmetic import ring_kernels
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import FULL, NONE, ONE, Elements, multiply_add, plain

Turns = npt.NDArray[np.int64]
FRACTION = 36  # bits of an exponent below the point
MANTISSA = 63  # bits of a power below the point
PRECISE = 160  # bits of the tables while they are made
UNIT = np.uint64(1 << FRACTION)
TWELVE, LOW = np.uint64(12), np.uint64(4095)


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

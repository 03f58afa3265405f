"""All kernels compiled, or read from the disk, before they are needed.

Numba writes the index of its cache and the entries one after the other, so processes that compile
at once may mix them up: whoever starts processes calls this first.
"""

from __future__ import annotations

from functools import cache

from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.operations.exponents import inverse_powers, weighted_powers


@cache
def compile_kernels() -> None:
    """Every loop of the field and of the rings, on one number."""
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

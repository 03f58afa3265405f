"""Compiled loops of the prime field of 2^127 − 1: two limbs in registers, one fold a result.

2^127 ≡ 1, so a number of many bits is reduced by adding what stands above bit 127 to what stands
below. Results are in [0, 2^127 − 1). Sums of products are collected unreduced and folded once.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from fedcircuits.privacy.limbs import FULL, NONE, ONE, multiply_add

TOP = np.uint64((1 << 63) - 1)  # the high limb of 2^127 − 1
B63 = np.uint64(63)


@nb.njit(cache=True, nogil=True, inline="always")
def _reduce(low, high):  # type: ignore[no-untyped-def]
    """Any two limbs, reduced."""
    carry = high >> B63
    low2 = low + carry
    high = (high & TOP) + (ONE if low2 < low else NONE)
    if high > TOP or (high == TOP and low2 == FULL):  # 2^127 − 1 or 2^127
        return low2 + ONE, NONE
    return low2, high


@nb.njit(cache=True, nogil=True, inline="always")
def _add(a0, a1, b0, b1):  # type: ignore[no-untyped-def]
    low = a0 + b0
    return _reduce(low, a1 + b1 + (ONE if low < a0 else NONE))


@nb.njit(cache=True, nogil=True, inline="always")
def _product(a0, a1, b0, b1):  # type: ignore[no-untyped-def]
    """All four limbs."""
    w0, carry = multiply_add(a0, b0, NONE, NONE)
    w1, high = multiply_add(a0, b1, carry, NONE)
    w1, carry = multiply_add(a1, b0, w1, NONE)
    w2, w3 = multiply_add(a1, b1, high, carry)
    return w0, w1, w2, w3


@nb.njit(cache=True, nogil=True)
def add(a, b, out):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        out[i, 0], out[i, 1] = _add(a[i, 0], a[i, 1], b[i, 0], b[i, 1])


@nb.njit(cache=True, nogil=True)
def multiply(a, b, out):  # type: ignore[no-untyped-def]
    for i in range(len(a)):
        w0, w1, w2, w3 = _product(a[i, 0], a[i, 1], b[i, 0], b[i, 1])
        h0, h1 = (w1 >> B63) | (w2 << ONE), (w2 >> B63) | (w3 << ONE)
        out[i, 0], out[i, 1] = _add(w0, w1 & TOP, h0, h1)


@nb.njit(cache=True, nogil=True)
def mix(weights, negative, rows, out):  # type: ignore[no-untyped-def]
    """out[p] = Σ_k ± weights[p, k] rows[k]; weights of a p add up to less than 2^63.

    rows (terms, n, 2), out (results, n, 2).
    """
    for i in range(rows.shape[1]):
        for p in range(len(weights)):
            s0, s1, s2 = NONE, NONE, NONE
            for k in range(len(rows)):
                x0, x1 = rows[k, i, 0], rows[k, i, 1]
                if negative[p, k]:
                    x0, x1 = ~x0, x1 ^ TOP
                s0, carry = multiply_add(weights[p, k], x0, s0, NONE)
                s1, carry = multiply_add(weights[p, k], x1, s1, carry)
                s2 += carry
            h0 = (s1 >> B63) | (s2 << ONE)
            out[p, i, 0], out[p, i, 1] = _add(s0, s1 & TOP, h0, NONE)


@nb.njit(cache=True, nogil=True)
def inner(a, b, out):  # type: ignore[no-untyped-def]
    """out[r, j] = Σ_k a[r, k] b[j, k]; a (rows, terms, 2), b (units, terms, 2)."""
    for r in range(len(a)):
        for j in range(len(b)):
            s0, s1, s2, s3, s4 = NONE, NONE, NONE, NONE, NONE
            for k in range(a.shape[1]):
                w0, w1, w2, w3 = _product(a[r, k, 0], a[r, k, 1], b[j, k, 0], b[j, k, 1])
                s0, carry = multiply_add(ONE, w0, s0, NONE)
                s1, carry = multiply_add(ONE, w1, s1, carry)
                s2, carry = multiply_add(ONE, w2, s2, carry)
                s3, carry = multiply_add(ONE, w3, s3, carry)
                s4 += carry
            h0, h1 = (s1 >> B63) | (s2 << ONE), (s2 >> B63) | (s3 << ONE)
            high = (s3 >> B63) | (s4 << ONE)  # bits 255 and above
            low, top = _add(s0, s1 & TOP, h0, h1 & TOP)
            # h1's bit 63 is bit 254 of the sum, which is bit 0 of the third piece
            third = (h1 >> B63) | (high << ONE)
            out[r, j, 0], out[r, j, 1] = _add(low, top, third, high >> B63)

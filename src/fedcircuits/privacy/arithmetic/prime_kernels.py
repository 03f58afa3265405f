"""Compiled loops of the prime field of 2^127 − 1: two limbs in registers, one fold a result.

2^127 ≡ 1, so a number of many bits is reduced by adding the part above bit 127 to the part below.
Results are in [0, 2^127 − 1). Sums of products are collected unreduced and folded once.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from fedcircuits.privacy.arithmetic.limbs import FULL, NONE, ONE, multiply_add

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


@nb.njit(cache=True, nogil=True, inline="always")
def _scale_add(x, s0, s1, c0, c1):  # type: ignore[no-untyped-def]
    """x·s + c in two limbs, below 2^127 + 2 x: x and c are below 2^62 and 2^127, s below 2^128."""
    low, carry = multiply_add(x, s0, c0, NONE)
    high, top = multiply_add(x, s1, c1, carry)
    low2 = low + ((top << ONE) | (high >> B63))
    return low2, (high & TOP) + (ONE if low2 < low else NONE)


@nb.njit(cache=True, nogil=True)
def add(a, b, out):  # type: ignore[no-untyped-def]
    """What has fewer rows is gone through again."""
    j, k = 0, 0
    for i in range(len(out)):
        out[i, 0], out[i, 1] = _add(a[j, 0], a[j, 1], b[k, 0], b[k, 1])
        j, k = (j + 1 if j + 1 < len(a) else 0), (k + 1 if k + 1 < len(b) else 0)


@nb.njit(cache=True, nogil=True)
def subtract(a, b, out):  # type: ignore[no-untyped-def]
    j, k = 0, 0
    for i in range(len(out)):
        out[i, 0], out[i, 1] = _add(a[j, 0], a[j, 1], ~b[k, 0], b[k, 1] ^ TOP)
        j, k = (j + 1 if j + 1 < len(a) else 0), (k + 1 if k + 1 < len(b) else 0)


@nb.njit(cache=True, nogil=True)
def multiply(a, b, out):  # type: ignore[no-untyped-def]
    j, k = 0, 0
    for i in range(len(out)):
        w0, w1, w2, w3 = _product(a[j, 0], a[j, 1], b[k, 0], b[k, 1])
        h0, h1 = (w1 >> B63) | (w2 << ONE), (w2 >> B63) | (w3 << ONE)
        out[i, 0], out[i, 1] = _add(w0, w1 & TOP, h0, h1)
        j, k = (j + 1 if j + 1 < len(a) else 0), (k + 1 if k + 1 < len(b) else 0)


@nb.njit(cache=True, nogil=True)
def affine(a, flip, by, start, out):  # type: ignore[no-untyped-def]
    """out = start ± by·a, minus where flip is all ones; start (2,), by below 2^62."""
    for i in range(len(a)):
        x0, x1 = a[i, 0] ^ flip, a[i, 1] ^ (flip & TOP)
        s0, s1 = _scale_add(by, x0, x1, start[0], start[1])
        out[i, 0], out[i, 1] = _reduce(s0, s1)


@nb.njit(cache=True, nogil=True)
def inside(a):  # type: ignore[no-untyped-def]
    """Whether all are below 2^127 − 1."""
    wrong = NONE
    for i in range(len(a)):
        all_ones = a[i, 1] == TOP and a[i, 0] == FULL
        wrong |= (a[i, 1] >> B63) | (ONE if all_ones else NONE)
    return wrong == NONE


@nb.njit(cache=True, nogil=True)
def crop(a):  # type: ignore[no-untyped-def]
    """Words of 128 bits to 127; whether all are below 2^127 − 1."""
    wrong = NONE
    for i in range(len(a)):
        a[i, 1] >>= ONE
        wrong |= ONE if a[i, 1] == TOP and a[i, 0] == FULL else NONE
    return wrong == NONE


@nb.njit(cache=True, nogil=True)
def evaluate(first, others, out):  # type: ignore[no-untyped-def]
    """out[p] = first + Σ_k others[k] (p + 1)^(k + 1): first (n, 2), others (degree, n, 2).

    Lines and parabolas, which three and four parties deal, by differences: additions only.
    """
    degree = len(others)
    if degree == 1 or degree == 2:
        _evaluate_low(first, others[0], others[degree - 1], degree, out)
        return
    for i in range(len(first)):
        f0, f1 = first[i, 0], first[i, 1]
        for p in range(len(out)):
            x, s0, s1 = np.uint64(p + 1), NONE, NONE
            for k in range(degree - 1, -1, -1):
                s0, s1 = _scale_add(x, s0, s1, others[k, i, 0], others[k, i, 1])
            s0, s1 = _scale_add(x, s0, s1, f0, f1)
            out[p, i, 0], out[p, i, 1] = _reduce(s0, s1)


@nb.njit(cache=True, nogil=True)
def _evaluate_low(first, second, third, degree, out):  # type: ignore[no-untyped-def]
    for i in range(len(first)):
        s0, s1, d0, d1 = first[i, 0], first[i, 1], second[i, 0], second[i, 1]
        if degree == 1:
            for p in range(len(out)):
                s0, s1 = _add(s0, s1, d0, d1)
                out[p, i, 0], out[p, i, 1] = s0, s1
        else:
            c0, c1 = third[i, 0], third[i, 1]
            d0, d1 = _add(d0, d1, c0, c1)
            c0, c1 = _add(c0, c1, c0, c1)
            for p in range(len(out)):
                s0, s1 = _add(s0, s1, d0, d1)
                out[p, i, 0], out[p, i, 1] = s0, s1
                d0, d1 = _add(d0, d1, c0, c1)


@nb.njit(cache=True, nogil=True)
def total(rows, start, out):  # type: ignore[no-untyped-def]
    """out = start + Σ_k rows[k]; rows (terms, n, 2), start (2,)."""
    first = 1 if len(rows) and start[0] == NONE and start[1] == NONE else 0
    for i in range(len(out)):
        s0, s1 = start[0], start[1]
        if first:
            s0, s1 = rows[0, i, 0], rows[0, i, 1]
        for k in range(first, len(rows)):
            s0, s1 = _add(s0, s1, rows[k, i, 0], rows[k, i, 1])
        out[i, 0], out[i, 1] = s0, s1


@nb.njit(cache=True, nogil=True)
def mix(weights, negative, rows, out):  # type: ignore[no-untyped-def]
    """out[p] = Σ_k ± weights[p, k] rows[k]; weights of a p add up to less than 2^63.

    rows (terms, n, 2), out (results, n, 2).
    """
    if len(rows) == 3 or len(rows) == 2:  # as three and four parties have them
        for p in range(len(weights)):
            _mix_few(weights[p], negative[p], rows, out[p])
        return
    for i in range(rows.shape[1]):
        for p in range(len(weights)):
            s0, s1, s2 = NONE, NONE, NONE
            for k in range(len(rows)):
                flip = negative[p, k]  # all bits or none
                x0, x1 = rows[k, i, 0] ^ flip, rows[k, i, 1] ^ (flip & TOP)
                s0, carry = multiply_add(weights[p, k], x0, s0, NONE)
                s1, carry = multiply_add(weights[p, k], x1, s1, carry)
                s2 += carry
            h0 = (s1 >> B63) | (s2 << ONE)
            out[p, i, 0], out[p, i, 1] = _add(s0, s1 & TOP, h0, NONE)


@nb.njit(cache=True, nogil=True)
def _mix_few(weights, negative, rows, out):  # type: ignore[no-untyped-def]
    """For two or three rows, without a loop over them."""
    last = len(rows) - 1
    a, b, c = weights[0], weights[1], weights[last] if last == 2 else NONE
    f, g, h = negative[0], negative[1], negative[last]
    x, y, z = rows[0], rows[1], rows[last]
    for i in range(len(out)):
        s0, carry = multiply_add(a, x[i, 0] ^ f, NONE, NONE)
        s1, s2 = multiply_add(a, x[i, 1] ^ (f & TOP), carry, NONE)
        s0, carry = multiply_add(b, y[i, 0] ^ g, s0, NONE)
        s1, carry = multiply_add(b, y[i, 1] ^ (g & TOP), s1, carry)
        s2 += carry
        s0, carry = multiply_add(c, z[i, 0] ^ h, s0, NONE)
        s1, carry = multiply_add(c, z[i, 1] ^ (h & TOP), s1, carry)
        s2 += carry
        out[i, 0], out[i, 1] = _add(s0, s1 & TOP, (s1 >> B63) | (s2 << ONE), NONE)


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


@nb.njit(cache=True, nogil=True)
def shift(a, bits, out):  # type: ignore[no-untyped-def]
    """out = ⌊a / 2^bits⌋ of two limbs, bits from 0 to 127."""
    skip, rest = bits // 64, np.uint64(bits % 64)
    left = np.uint64(63) - rest
    for i in range(len(a)):
        low, high = a[i, 0], a[i, 1]
        if skip:
            low, high = high, NONE
        out[i, 0], out[i, 1] = (low >> rest) | ((high << ONE) << left), high >> rest


@nb.njit(cache=True, nogil=True)
def cut(seen, rest, shift, limit, centre, out):  # type: ignore[no-untyped-def]
    """out = ⌊seen / 2^shift⌋ − centre − rest; whether all that was seen is below 2^limit.

    ``centre`` (2,); shift and limit are from 0 to 127.
    """
    skip, bits = shift // 64, np.uint64(shift % 64)
    left, whole = np.uint64(63) - bits, limit // 64
    above = np.uint64(limit % 64)
    c0, c1 = ~centre[0], centre[1] ^ TOP
    beyond = NONE
    for i in range(len(seen)):
        low, high = seen[i, 0], seen[i, 1]
        beyond |= (high >> above) if whole else (high | (low >> above))
        if skip:
            low, high = high, NONE
        low = (low >> bits) | ((high << ONE) << left)
        s0, s1 = _add(low, high >> bits, c0, c1)
        out[i, 0], out[i, 1] = _add(s0, s1, ~rest[i, 0], rest[i, 1] ^ TOP)
    return beyond == NONE

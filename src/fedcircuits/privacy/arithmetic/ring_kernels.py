"""Compiled loops of the rings Z/(2^q − 1), q any prime: one set of loops for every q.

2^q ≡ 1, so reduction adds the part above bit q to the part below, and multiplication by a
power of two is a rotation of q bits. Results are in [0, 2^q − 1). Elements have ⌈q/64⌉ limbs.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from fedcircuits.privacy.arithmetic.limbs import FULL, NONE, ONE, multiply_add


@nb.njit(cache=True, nogil=True)
def _fold(w, n, q, out):  # type: ignore[no-untyped-def]
    """The first n words of w, reduced into out; w is used up."""
    whole, bits = q // 64, np.uint64(q % 64)
    size, mask = whole + 1, (ONE << bits) - ONE
    while n > size:
        _fold_once(w, n, whole, bits, mask)
        n = max(size, n - whole)
        while n > size and w[n - 1] == NONE:
            n -= 1
    carry = w[size - 1] >> bits
    while carry != NONE:
        w[size - 1] &= mask
        k = 0
        while carry != NONE and k < size:
            w[k], carry = multiply_add(ONE, w[k], carry, NONE)
            k += 1
        carry = w[size - 1] >> bits
    zero = w[size - 1] == mask
    for k in range(size):
        out[k] = w[k]
        if zero and k < whole and w[k] != FULL:
            zero = False
    if zero:
        for k in range(size):
            out[k] = NONE


@nb.njit(cache=True, nogil=True, inline="always")
def _fold_once(w, n, whole, bits, mask):  # type: ignore[no-untyped-def]
    """w = w mod 2^q + ⌊w / 2^q⌋, which has max(whole + 1, n − whole) words and no carry."""
    carry, left = NONE, np.uint64(64) - bits
    for k in range(max(whole + 1, n - whole)):
        low = w[k] if k < whole else (w[k] & mask if k == whole else NONE)
        high = NONE
        if whole + k < n:
            high = w[whole + k] >> bits
        if whole + k + 1 < n:
            high |= w[whole + k + 1] << left
        w[k], carry = multiply_add(ONE, low, high, carry)


@nb.njit(cache=True, nogil=True)
def reduce(a, q, out):  # type: ignore[no-untyped-def]
    """Numbers of any size, (n, words) to (n, limbs)."""
    words = max(a.shape[1], out.shape[1])
    w = np.zeros(words, np.uint64)
    for i in range(len(a)):
        w[:] = NONE
        for k in range(a.shape[1]):
            w[k] = a[i, k]
        _fold(w, words, q, out[i])


@nb.njit(cache=True, nogil=True)
def inside(a, q):  # type: ignore[no-untyped-def]
    """Whether all are below 2^q − 1."""
    last, top = a.shape[1] - 1, (ONE << np.uint64(q % 64)) - ONE
    for i in range(len(a)):
        if a[i, last] > top:
            return False
        if a[i, last] == top:
            k = 0
            while k < last and a[i, k] == FULL:
                k += 1
            if k == last:
                return False
    return True


@nb.njit(cache=True, nogil=True)
def below(a, bits):  # type: ignore[no-untyped-def]
    """Whether all are below 2^bits."""
    skip, rest, any_below = bits // 64, np.uint64(bits % 64), NONE
    for i in range(len(a)):
        for k in range(skip, a.shape[1]):
            any_below |= a[i, k] >> rest if k == skip else a[i, k]
    return any_below == NONE


@nb.njit(cache=True, nogil=True)
def shift(a, bits, out):  # type: ignore[no-untyped-def]
    """out = ⌊a / 2^bits⌋, as much of it as there are limbs."""
    skip, rest = bits // 64, np.uint64(bits % 64)
    left = np.uint64(63) - rest
    for i in range(len(a)):
        for k in range(out.shape[1]):
            low = a[i, k + skip] if k + skip < a.shape[1] else NONE
            high = a[i, k + skip + 1] if k + skip + 1 < a.shape[1] else NONE
            out[i, k] = (low >> rest) | ((high << ONE) << left)


@nb.njit(cache=True, nogil=True)
def add(a, b, q, minus, out):  # type: ignore[no-untyped-def]
    """a ± b; what has fewer rows is gone through again."""
    size, flip, last = a.shape[1], FULL if minus else NONE, (ONE << np.uint64(q % 64)) - ONE
    w = np.zeros(size, np.uint64)
    for i in range(len(out)):
        x, y, carry = a[i % len(a)], b[i % len(b)], NONE
        for k in range(size - 1):  # q + 1 bits: no carry leaves the last limb
            w[k], carry = multiply_add(ONE, x[k], y[k] ^ flip, carry)
        w[size - 1] = x[size - 1] + (y[size - 1] ^ (flip & last)) + carry
        _fold(w, size, q, out[i])


@nb.njit(cache=True, nogil=True, inline="always")
def _add_product(a, b, w):  # type: ignore[no-untyped-def]
    """w += a·b; w has words for the carries of all that is added to it."""
    size = len(a)
    for i in range(size):
        x, carry = a[i], NONE
        for k in range(size):
            w[i + k], carry = multiply_add(x, b[k], w[i + k], carry)
        k = i + size
        while carry != NONE:
            w[k], carry = multiply_add(ONE, w[k], carry, NONE)
            k += 1


@nb.njit(cache=True, nogil=True)
def multiply(a, b, q, out):  # type: ignore[no-untyped-def]
    size = a.shape[1]
    w = np.zeros(2 * size, np.uint64)
    for i in range(len(out)):
        x_row, y = a[i % len(a)], b[i % len(b)]
        for k in range(size):
            w[k] = NONE
        for j in range(size):
            x, carry = x_row[j], NONE
            for k in range(size):
                w[j + k], carry = multiply_add(x, y[k], w[j + k], carry)
            w[j + size] = carry
        _fold(w, 2 * size, q, out[i])


@nb.njit(cache=True, nogil=True)
def inner(a, b, q, out):  # type: ignore[no-untyped-def]
    """out[r, j] = Σ_k a[r, k] b[j, k]; a (rows, terms, limbs), b (units, terms, limbs)."""
    words = 2 * a.shape[2] + 1
    w = np.zeros(words, np.uint64)
    for r in range(len(a)):
        for j in range(len(b)):
            w[:] = NONE
            for k in range(a.shape[1]):
                _add_product(a[r, k], b[j, k], w)
            _fold(w, words, q, out[r, j])


@nb.njit(cache=True, nogil=True)
def mix(weights, negative, rows, q, out):  # type: ignore[no-untyped-def]
    """out[p] = Σ_k ± weights[p, k] rows[k]; weights of a p add up to less than 2^63.

    rows (terms, n, limbs), out (results, n, limbs).
    """
    size, mask = rows.shape[2], (ONE << np.uint64(q % 64)) - ONE
    w = np.zeros(size + 1, np.uint64)
    for i in range(rows.shape[1]):
        for p in range(len(weights)):
            plain = weights[p, 0] == ONE and negative[p, 0] == NONE  # as in every polynomial
            for m in range(size):
                w[m] = rows[0, i, m] if plain else NONE
            w[size] = NONE
            for k in range(1 if plain else 0, len(rows)):
                by, flip, carry = weights[p, k], negative[p, k], NONE  # flip: all bits or none
                for m in range(size - 1):
                    w[m], carry = multiply_add(by, rows[k, i, m] ^ flip, w[m], carry)
                m = size - 1
                w[m], carry = multiply_add(by, rows[k, i, m] ^ (flip & mask), w[m], carry)
                w[size] += carry
            _fold(w, size + 1, q, out[p, i])


@nb.njit(cache=True, nogil=True)
def rotate(a, powers, q, out):  # type: ignore[no-untyped-def]
    """out[i] = a[i]·2^powers[i], powers from 0 to q − 1."""
    size = a.shape[1]
    w = np.zeros(2 * size + 1, np.uint64)
    for i in range(len(a)):
        w[:] = NONE
        start, bits = powers[i] // 64, np.uint64(powers[i] % 64)
        for k in range(size):
            w[start + k] |= a[i, k] << bits
            if bits != NONE:
                w[start + k + 1] = a[i, k] >> (np.uint64(64) - bits)
        _fold(w, 2 * size + 1, q, out[i])


@nb.njit(cache=True, nogil=True)
def add_turned(numbers, powers, a, q, out):  # type: ignore[no-untyped-def]
    """out[r] = Σ_j numbers[r, j]·2^powers[r, j]·a[r, j]; numbers of one word.

    a (rows, units, limbs), the others (rows, units).
    """
    size = a.shape[2]
    w, total = np.zeros(2 * size + 2, np.uint64), np.zeros(size + 1, np.uint64)
    term = np.zeros(size, np.uint64)
    for r in range(len(a)):
        total[:] = NONE
        for j in range(a.shape[1]):
            start, bits = powers[r, j] // 64, np.uint64(powers[r, j] % 64)
            low = numbers[r, j] << bits
            high = numbers[r, j] >> (np.uint64(64) - bits) if bits != NONE else NONE
            w[:] = NONE
            carry, next_word, over = NONE, NONE, NONE  # of low, and of high one word above
            for k in range(size):
                w[start + k], carry = multiply_add(low, a[r, j, k], next_word, carry)
                next_word, over = multiply_add(high, a[r, j, k], over, NONE)
            w[start + size], carry = multiply_add(ONE, next_word, carry, NONE)
            w[start + size + 1] = over + carry
            _fold(w, 2 * size + 2, q, term)
            carry = NONE
            for k in range(size):
                total[k], carry = multiply_add(ONE, total[k], term[k], carry)
            total[size] += carry
        _fold(total, size + 1, q, out[r])


@nb.njit(cache=True, nogil=True)
def place(numbers, powers, q, out):  # type: ignore[no-untyped-def]
    """out[i] = numbers[i]·2^powers[i] of numbers of one word, powers from 0 to q − 1."""
    words = out.shape[1] + 1
    w = np.zeros(words, np.uint64)
    for i in range(len(out)):
        w[:] = NONE
        start, bits = powers[i] // 64, np.uint64(powers[i] % 64)
        w[start] = numbers[i] << bits
        if bits != NONE:
            w[start + 1] = numbers[i] >> (np.uint64(64) - bits)
        _fold(w, words, q, out[i])

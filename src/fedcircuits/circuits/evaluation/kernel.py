"""A second executor for irregular circuits of few units: one compiled loop over indexed segments.

The steps of a program are written out as one list of rows (compressed: pointers, indices, values).
Kind LEAF adds coefficients times rows of the statistics T, PRODUCT adds rows, SUM mixes rows by
weights, FOREST adds what its branches look up (forests.py). Rows stand in depth-first order and
give their place free after the last reader, so that the working set of BLOCK data rows stays in the
first-level cache whatever the size of the circuit.

Exponential and logarithm are polynomials that compilers turn into vector instructions, exact to
the last digits of the type. They end where linear space does: a sum with a weight below TINY, whose
largest child may be all but lost in it, is an EXACT one, added up by log-sum-exp.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numba import types
from numba.extending import overload

from fedcircuits.circuits.graph.family import IMPOSSIBLE

BLOCK = 64
LEAF, PRODUCT, SUM, EXACT, FOREST = 0, 1, 2, 3, 4
TINY = {np.dtype(np.float32): 1e-28, np.dtype(np.float64): 1e-280}  # far above exp(−87), exp(−700)


def exp_row(values, r, bits, whole):  # type: ignore[no-untyped-def]
    """values[r] = exp(values[r]), for at most 700 (80 in single precision); far below it is 0-like.

    ``whole`` is ``bits`` seen as floating point: adding a magic number leaves the rounded exponent
    in the low bits, shifting them makes the power of two.
    """
    raise NotImplementedError("compiled only")


@overload(exp_row, inline="always")
def _exp_row(values, r, bits, whole):  # type: ignore[no-untyped-def]
    if values.dtype == types.float32:
        magic, unit = np.float32(12582912.0), np.int32(0x3F800000)
        per, high, low = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)

        def single(values, r, bits, whole):  # type: ignore[no-untyped-def]
            for j in range(BLOCK):
                y = max(values[r, j], np.float32(-87.0))
                t = y * per + magic
                whole[j] = t
                n = t - magic
                values[r, j] = (y - n * high) - n * low
            for j in range(BLOCK):
                bits[j] = (bits[j] << np.int32(23)) + unit
            for j in range(BLOCK):
                x = values[r, j]
                p = np.float32(1.9875691500e-4)
                p = p * x + np.float32(1.3981999507e-3)
                p = p * x + np.float32(8.3334519073e-3)
                p = p * x + np.float32(4.1665795894e-2)
                p = p * x + np.float32(1.6666665459e-1)
                p = p * x + np.float32(5.0000001201e-1)
                values[r, j] = (p * x * x + x + np.float32(1.0)) * whole[j]

        return single
    magic64, unit64 = 6755399441055744.0, np.int64(0x3FF0000000000000)

    def double(values, r, bits, whole):  # type: ignore[no-untyped-def]
        for j in range(BLOCK):
            y = max(values[r, j], -700.0)
            t = y * 1.4426950408889634 + magic64
            whole[j] = t
            n = t - magic64
            values[r, j] = (y - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
        for j in range(BLOCK):
            bits[j] = (bits[j] << np.int64(52)) + unit64
        for j in range(BLOCK):
            x = values[r, j]
            p = 1.0 / 6227020800.0
            p = p * x + 1.0 / 479001600.0
            p = p * x + 1.0 / 39916800.0
            p = p * x + 1.0 / 3628800.0
            p = p * x + 1.0 / 362880.0
            p = p * x + 1.0 / 40320.0
            p = p * x + 1.0 / 5040.0
            p = p * x + 1.0 / 720.0
            p = p * x + 1.0 / 120.0
            p = p * x + 1.0 / 24.0
            p = p * x + 1.0 / 6.0
            p = p * x + 0.5
            p = p * x + 1.0
            values[r, j] = (p * x + 1.0) * whole[j]

    return double


def log_row(values, r, bits, whole):  # type: ignore[no-untyped-def]
    """values[r] = log(values[r]) for positive normal numbers."""
    raise NotImplementedError("compiled only")


@overload(log_row, inline="always")
def _log_row(values, r, bits, whole):  # type: ignore[no-untyped-def]
    if values.dtype == types.float32:

        def single(values, r, bits, whole):  # type: ignore[no-untyped-def]
            for j in range(BLOCK):
                whole[j] = values[r, j]
            for j in range(BLOCK):
                k = (bits[j] - np.int32(0x3F3504F3)) >> np.int32(23)
                bits[j] = bits[j] - (k << np.int32(23))
                values[r, j] = np.float32(k)
            for j in range(BLOCK):
                f = whole[j] - np.float32(1.0)
                s = f / (np.float32(2.0) + f)
                z = s * s
                p = np.float32(2.0 / 9.0)
                p = p * z + np.float32(2.0 / 7.0)
                p = p * z + np.float32(0.4)
                p = p * z + np.float32(2.0 / 3.0)
                p = p * z + np.float32(2.0)
                values[r, j] = values[r, j] * np.float32(0.69314718) + p * s

        return single

    def double(values, r, bits, whole):  # type: ignore[no-untyped-def]
        for j in range(BLOCK):
            whole[j] = values[r, j]
        for j in range(BLOCK):
            k = (bits[j] - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
            bits[j] = bits[j] - (k << np.int64(52))
            values[r, j] = np.float64(k)
        for j in range(BLOCK):
            f = whole[j] - 1.0
            s = f / (2.0 + f)
            z = s * s
            p = 2.0 / 21.0
            p = p * z + 2.0 / 19.0
            p = p * z + 2.0 / 17.0
            p = p * z + 2.0 / 15.0
            p = p * z + 2.0 / 13.0
            p = p * z + 2.0 / 11.0
            p = p * z + 2.0 / 9.0
            p = p * z + 2.0 / 7.0
            p = p * z + 0.4
            p = p * z + 2.0 / 3.0
            p = p * z + 2.0
            values[r, j] = values[r, j] * 0.6931471805599453 + p * s

    return double


TOP, TOTAL, TERM = 0, 1, 2  # rows of the scratch space


@nb.njit(cache=True, nogil=True)
def _log_sum_exp(a, z, idx, val, rows, o):  # type: ignore[no-untyped-def]
    """The same of a sum that linear space would lose; weights as small as the type has them."""
    for j in range(BLOCK):
        top = -np.inf
        for e in range(a, z):
            top = max(top, np.log(np.float64(val[e])) + rows[idx[e], j])
        total = 0.0
        for e in range(a, z):
            total += np.exp(np.log(np.float64(val[e])) + rows[idx[e], j] - top)
        rows[o, j] = max(top + np.log(total), IMPOSSIBLE)


@nb.njit(cache=True, nogil=True)
def _look_up(a, z, idx, lookup, rows, o):  # type: ignore[no-untyped-def]
    branches, table, codes = lookup
    for j in range(BLOCK):
        rows[o, j] = 0
    for e in range(a, z):
        state, above = branches[idx[e], 0], branches[idx[e], 1]
        start, width = branches[idx[e], 2], branches[idx[e], 3]
        for j in range(BLOCK):
            rows[o, j] += table[start + width * codes[above, j] + codes[state, j]]


@nb.njit(cache=True, nogil=True, fastmath={"contract"}, inline="always")
def _row(kind, a, z, idx, val, const, rows, stats, o, scratch, bits, whole, lookup):  # type: ignore[no-untyped-def]
    """Row o of the values for a block of data rows."""
    if kind == SUM and z - a == 2:  # log(w exp(x) + v exp(y)) by one exponential
        c, d, w, v = idx[a], idx[a + 1], val[a], val[a + 1]
        for j in range(BLOCK):
            scratch[TERM, j] = -abs(rows[c, j] - rows[d, j])
        exp_row(scratch, TERM, bits, whole)  # type: ignore[no-untyped-call]
        for j in range(BLOCK):
            larger, e = rows[c, j] > rows[d, j], scratch[TERM, j]
            scratch[TOTAL, j] = w + v * e if larger else w * e + v
        log_row(scratch, TOTAL, bits, whole)  # type: ignore[no-untyped-call]
        for j in range(BLOCK):
            rows[o, j] = max(rows[c, j], rows[d, j]) + scratch[TOTAL, j]
    elif kind == SUM:
        c = idx[a]
        for j in range(BLOCK):
            scratch[TOP, j] = rows[c, j]
            scratch[TOTAL, j] = 0
        for e in range(a + 1, z):
            c = idx[e]
            for j in range(BLOCK):
                scratch[TOP, j] = max(scratch[TOP, j], rows[c, j])
        for e in range(a, z):
            c, w = idx[e], val[e]
            for j in range(BLOCK):
                scratch[TERM, j] = rows[c, j] - scratch[TOP, j]
            exp_row(scratch, TERM, bits, whole)  # type: ignore[no-untyped-call]
            for j in range(BLOCK):
                scratch[TOTAL, j] += w * scratch[TERM, j]
        log_row(scratch, TOTAL, bits, whole)  # type: ignore[no-untyped-call]
        for j in range(BLOCK):
            rows[o, j] = scratch[TOP, j] + scratch[TOTAL, j]
    elif kind == EXACT:
        _log_sum_exp(a, z, idx, val, rows, o)
    elif kind == FOREST:
        _look_up(a, z, idx, lookup, rows, o)
    elif kind == LEAF:
        for j in range(BLOCK):
            rows[o, j] = const
        for e in range(a, z - 3, 4):  # four at a time: fewer reads and writes of the row itself
            c0, c1, c2, c3 = idx[e], idx[e + 1], idx[e + 2], idx[e + 3]
            w0, w1, w2, w3 = val[e], val[e + 1], val[e + 2], val[e + 3]
            for j in range(BLOCK):
                pair = w0 * stats[c0, j] + w1 * stats[c1, j]
                rows[o, j] += pair + (w2 * stats[c2, j] + w3 * stats[c3, j])
        for e in range(z - (z - a) % 4, z):
            c, w = idx[e], val[e]
            for j in range(BLOCK):
                rows[o, j] += w * stats[c, j]
    else:
        for j in range(BLOCK):
            rows[o, j] = 0
        for e in range(a, z):
            c = idx[e]
            for j in range(BLOCK):
                rows[o, j] += rows[c, j]


@nb.njit(cache=True, nogil=True, fastmath={"contract"})
def upward(kind, place, places, ptr, idx, val, const, matrix, bits, whole, lookup, out):  # type: ignore[no-untyped-def]
    """Values of the last row for every column of matrix (statistics, batch).

    Children are given by place (reused memory), leaves by rows of the matrix, trees by branches,
    which look codes (columns, batch) up in a table.
    """
    branches, table, codes = lookup
    block = np.zeros((codes.shape[0], BLOCK), codes.dtype)
    rows = np.zeros((places, BLOCK), matrix.dtype)
    stats = np.zeros((matrix.shape[0], BLOCK), matrix.dtype)
    scratch = np.empty((3, BLOCK), matrix.dtype)
    batch = matrix.shape[1]
    for start in range(0, batch, BLOCK):
        n = min(BLOCK, batch - start)
        for i in range(matrix.shape[0]):
            for j in range(n):
                stats[i, j] = matrix[i, start + j]
        for i in range(codes.shape[0]):
            for j in range(n):
                block[i, j] = codes[i, start + j]
        for r in range(len(kind)):
            _row(kind[r], ptr[r], ptr[r + 1], idx, val, const[r], rows, stats, place[r],
                 scratch, bits, whole, (branches, table, block))  # fmt: skip
        last = place[len(kind) - 1]
        for j in range(n):
            out[start + j] = rows[last, j]


@nb.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _total(x, r):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(BLOCK):
        total += np.float64(x[r, j])
    return total


@nb.njit(cache=True, nogil=True, fastmath={"contract"})
def downward(kind, ptr, idx, val, const, matrix, weight, bits, whole, d_val, d_const):  # type: ignore[no-untyped-def]
    """The same with all rows kept, then derivatives from the last row down.

    Adds d objective / d val of every entry and the sum of every row's derivative; returns the
    weighted sum of log-values. Children are given by row here.
    """
    size, batch = len(kind), matrix.shape[1]
    rows, pulled = np.zeros((size, BLOCK), matrix.dtype), np.zeros((size, BLOCK), matrix.dtype)
    stats = np.zeros((matrix.shape[0], BLOCK), matrix.dtype)
    scratch = np.empty((3, BLOCK), matrix.dtype)
    nowhere = (np.zeros((0, 4), np.int64), np.zeros(0, matrix.dtype), np.zeros((0, 1), np.int32))
    most = np.full(1, 80 if matrix.itemsize == 4 else 600, matrix.dtype)[0]  # 1 / least weight
    objective = 0.0
    for start in range(0, batch, BLOCK):
        n = min(BLOCK, batch - start)
        for i in range(matrix.shape[0]):
            for j in range(n):
                stats[i, j] = matrix[i, start + j]
        for r in range(size):
            _row(kind[r], ptr[r], ptr[r + 1], idx, val, const[r], rows, stats, r,
                 scratch, bits, whole, nowhere)  # fmt: skip
        pulled[:] = 0
        for j in range(n):
            if rows[size - 1, j] > IMPOSSIBLE / 2:
                pulled[size - 1, j] = weight[start + j]
                objective += weight[start + j] * np.float64(rows[size - 1, j])
            elif weight[start + j] > 0:
                objective = -np.inf
        for r in range(size - 1, -1, -1):
            d_const[r] += _total(pulled, r)
            for e in range(ptr[r], ptr[r + 1]):
                c, w = idx[e], val[e]
                if kind[r] == PRODUCT:
                    for j in range(BLOCK):
                        pulled[c, j] += pulled[r, j]
                    continue
                if kind[r] == LEAF:
                    for j in range(BLOCK):
                        scratch[TERM, j] = pulled[r, j] * stats[c, j]
                else:
                    for j in range(BLOCK):
                        scratch[TERM, j] = min(rows[c, j] - rows[r, j], most)
                    exp_row(scratch, TERM, bits, whole)  # type: ignore[no-untyped-call]
                    for j in range(BLOCK):
                        scratch[TERM, j] *= pulled[r, j]
                        pulled[c, j] += w * scratch[TERM, j]
                d_val[e] += _total(scratch, TERM)
    return objective


@nb.njit(cache=True)
def depth_first(kind, ptr, idx, root):  # type: ignore[no-untyped-def]
    """Rows under the root, children before parents, each as late as it is needed."""
    order = np.empty(len(kind), np.int64)
    state = np.zeros(len(kind), np.int8)  # 0 new, 1 children pushed, 2 done
    stack = np.empty(len(idx) + len(kind) + 1, np.int64)
    stack[0], height, done = root, 1, 0
    while height:
        r = stack[height - 1]
        if state[r] == 0 and kind[r] != LEAF and kind[r] != FOREST:
            state[r] = 1
            for e in range(ptr[r + 1] - 1, ptr[r] - 1, -1):
                if state[idx[e]] == 0:
                    stack[height] = idx[e]
                    height += 1
            continue
        height -= 1
        if state[r] != 2:
            state[r] = 2
            order[done] = r
            done += 1
    return order[:done]


@nb.njit(cache=True)
def assign_places(kind, ptr, idx):  # type: ignore[no-untyped-def]
    """Places for rows in order, given free after their last reader; and how many there are."""
    last = np.full(len(kind), -1, np.int64)
    for r in range(len(kind)):
        if kind[r] != LEAF and kind[r] != FOREST:
            for e in range(ptr[r], ptr[r + 1]):
                last[idx[e]] = r
    place = np.empty(len(kind), np.int64)
    free = np.empty(len(kind), np.int64)
    waiting, places = 0, 0
    for r in range(len(kind)):
        if waiting:
            waiting -= 1
            place[r] = free[waiting]
        else:
            place[r] = places
            places += 1
        if kind[r] != LEAF and kind[r] != FOREST:
            for e in range(ptr[r], ptr[r + 1]):
                if last[idx[e]] == r:
                    free[waiting] = place[idx[e]]
                    waiting += 1
                    last[idx[e]] = -1
    return place, places

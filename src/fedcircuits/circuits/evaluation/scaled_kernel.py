"""Compiled loops of the executor for many units (scaled.py): no logarithm, no exponential.

Values are (rows, batch), plain numbers; the largest of a node lies between 1 and 2, and the power
of two that it was divided by stands apart, in ``powers`` (slots, batch). Batches lie side by side,
so that every inner loop runs over rows of data and is vectorised. A row of data in which a node has
nothing that the type can hold is marked as lost, and evaluated elsewhere.
"""

from __future__ import annotations

import numba as nb
import numpy as np

FAST = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}
NEAR = 30  # powers of two between which products need not be divided
ALONE = 1 << 18  # numbers multiplied in a product of matrices that stays on one thread
compiled = nb.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@compiled
def _set_powers(exponents, top, room, form):  # type: ignore[no-untyped-def]
    """room: 2 to the power of (exponents − top), 0 where that is too small."""
    bits, shift, bias = room[1], form[0], form[1]
    for r in range(len(exponents)):
        bits[r] = max(exponents[r] - top[r] + bias, 0) << shift


@compiled
def look_up(values, start, table, places):  # type: ignore[no-untyped-def]
    """Units of leaves: lines ``places`` (leaves, batch) of a table (lines, units)."""
    units = table.shape[1]
    for n in range(places.shape[0]):
        first = start + n * units
        for r in range(places.shape[1]):
            line = table[places[n, r]]
            for u in range(units):
                values[first + u, r] = line[u]


@compiled
def add_up(gradient, start, places, table, count):  # type: ignore[no-untyped-def]
    """The other way: what comes down to units is added to the lines of a table, and to the counts
    of leaves (leaves, units)."""
    units = table.shape[1]
    for n in range(places.shape[0]):
        first, total = start + n * units, count[n]
        for r in range(places.shape[1]):
            line = table[places[n, r]]
            for u in range(units):
                flow = gradient[first + u, r]
                line[u] += flow
                total[u] += flow


@compiled
def frequencies(counts, added, old, out):  # type: ignore[no-untyped-def]
    """Tables (leaves, levels, units) of frequencies from counts, with ``added`` (leaves, levels)
    for every unit; the old ones where nothing was counted. The least count is returned."""
    total = np.empty(counts.shape[2], counts.dtype)
    least = counts[0, 0, 0]
    for n in range(counts.shape[0]):
        total[:] = 0
        for i in range(counts.shape[1]):
            more = added[n, i]
            for u in range(len(total)):
                now = counts[n, i, u] + more
                least = min(least, now)
                total[u] += now
        void = False
        for u in range(len(total)):
            void |= not total[u] > 0
            total[u] = 1 / total[u] if total[u] > 0 else 0
        for i in range(counts.shape[1]):
            more = added[n, i]
            for u in range(len(total)):
                out[n, i, u] = (counts[n, i, u] + more) * total[u]
        if void:
            for i in range(counts.shape[1]):
                for u in range(len(total)):
                    if total[u] == 0:
                        out[n, i, u] = old[n, i, u]
    return least


@compiled
def _product(values, powers, rows, slots, size, out, power, lost, room, form):  # type: ignore[no-untyped-def]
    """out (units, batch): a child, or the product of some; ``power`` is set. Products are divided
    by a power of two only if their largest has come far from 1."""
    line = out.ravel()  # rows of a node lie side by side: one loop goes over all of them
    left = values[rows[0] : rows[0] + size].ravel()
    power[:] = powers[slots[0]]
    if len(rows) == 1 or rows[1] < 0:
        for i in range(len(line)):
            line[i] = left[i]
        return
    bits = room[1]
    for j in range(1, len(rows)):
        if rows[j] < 0:
            break
        right, more = values[rows[j] : rows[j] + size].ravel(), powers[slots[j]]
        if j == 1:
            for i in range(len(line)):
                line[i] = left[i] * right[i]
        else:
            for i in range(len(line)):
                line[i] *= right[i]
        _largest(out, room)
        far = 0
        for r in range(len(power)):
            power[r] += more[r]
            e = (bits[r] >> form[0]) - form[1]
            lost[r] |= e < form[2]
            far = max(far, abs(e))
        if far > NEAR:
            _divide(out, power, room, form)


@compiled
def _largest(matrix, room):  # type: ignore[no-untyped-def]
    """room: the largest number of every column."""
    number = room[0]
    first = matrix[0]
    for r in range(len(number)):
        number[r] = first[r]
    whole = 1 + (len(matrix) - 1) // 4 * 4
    for u in range(1, whole, 4):
        a, b, c, d = matrix[u], matrix[u + 1], matrix[u + 2], matrix[u + 3]
        for r in range(len(number)):
            number[r] = max(number[r], max(max(a[r], b[r]), max(c[r], d[r])))
    for u in range(whole, len(matrix)):
        a = matrix[u]
        for r in range(len(number)):
            number[r] = max(number[r], a[r])


@compiled
def _times(matrix, number):  # type: ignore[no-untyped-def]
    """Every row times the same numbers (batch,)."""
    whole = len(matrix) // 4 * 4
    for u in range(0, whole, 4):
        a, b, c, d = matrix[u], matrix[u + 1], matrix[u + 2], matrix[u + 3]
        for r in range(len(number)):
            factor = number[r]
            a[r] *= factor
            b[r] *= factor
            c[r] *= factor
            d[r] *= factor
    for u in range(whole, len(matrix)):
        a = matrix[u]
        for r in range(len(number)):
            a[r] *= number[r]


@compiled
def _divide(out, power, room, form):  # type: ignore[no-untyped-def]
    """Divide rows by the power of two of their largest, which is in ``room``."""
    number, bits = room
    shift, bias, least = form
    for r in range(len(number)):
        e = (bits[r] >> shift) - bias
        e = e if e >= least else 0
        power[r] += e
        bits[r] = (bias - e) << shift
    _times(out, number)


@compiled
def _normalise(out, power, lost, room, form):  # type: ignore[no-untyped-def]
    """Divide the rows of a node by a power of two, which ``power`` takes in."""
    bits = room[1]
    _largest(out, room)
    for r in range(len(power)):
        lost[r] |= (bits[r] >> form[0]) - form[1] < form[2]
    _divide(out, power, room, form)


@compiled
def multiply(values, powers, lost, start, units, numbers, rows, slots, room, form):  # type: ignore[no-untyped-def]
    """Elementwise products: ``rows`` (folds, 1, factors) are first rows of children, −1 is none."""
    for f in range(len(rows)):
        out = values[start + f * units : start + (f + 1) * units]
        power = powers[numbers[f]]
        _product(values, powers, rows[f, 0], slots[f, 0], units, out, power, lost, room, form)


@compiled
def _inputs(values, powers, rows, slots, sizes, out, top, apart, lost, room, form):  # type: ignore[no-untyped-def]
    """Inputs of one sum, all by the same power of two, ``top``; a single child as it is. Inputs
    that only other sums of the step have are zero."""
    if sizes[0] == len(out) and (rows.shape[1] == 1 or rows[0, 1] < 0):
        top[:] = powers[slots[0, 0]]
        return values[rows[0, 0] : rows[0, 0] + sizes[0]]
    at, parts = 0, 0
    while parts < len(sizes) and sizes[parts] > 0:
        size, part = sizes[parts], out[at : at + sizes[parts]]
        _product(
            values, powers, rows[parts], slots[parts], size, part, apart[parts], lost, room, form
        )
        at += size
        parts += 1
    out[at:] = 0
    top[:] = apart[0]
    if parts == 1:
        return out
    for p in range(1, parts):
        for r in range(len(top)):
            top[r] = max(top[r], apart[p, r])
    at = 0
    for p in range(parts):
        _set_powers(apart[p], top, room, form)
        _times(out[at : at + sizes[p]], room[0])
        at += sizes[p]
    return out


@compiled
def _transpose(matrix, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        for u in range(len(matrix)):
            out[i, u] = matrix[u, i]


@compiled
def _dot(left, right, out):  # type: ignore[no-untyped-def]
    """out = left · right, by pieces that a BLAS does not spread over threads."""
    step = max(1, ALONE // (right.shape[0] * right.shape[1]))
    for a in range(0, len(left), step):
        np.dot(left[a : a + step], right, out[a : a + step])


@compiled
def mix(values, powers, lost, start, numbers, reads, weight, room, form):  # type: ignore[no-untyped-def]
    """Sums: ``reads`` are their parts (scaled.py), weight is (folds, units, inputs)."""
    rows, slots, sizes, _ = reads
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    matrix = np.empty((inputs, batch), values.dtype)
    apart = np.empty((sizes.shape[1], batch), powers.dtype)
    for f in range(len(rows)):
        out, power = values[start + f * units : start + (f + 1) * units], powers[numbers[f]]
        below = _inputs(
            values, powers, rows[f], slots[f], sizes[f], matrix, power, apart, lost, room, form
        )
        _dot(weight[f], below, out)
        _normalise(out, power, lost, room, form)


@compiled
def unmix(values, powers, lost, start, numbers, reads, weight, gradient, shares, room, form):  # type: ignore[no-untyped-def]
    """Downwards: derivatives by the weights (folds, units, inputs) are written to ``shares``, and
    every child is given its part of the gradient."""
    rows, slots, sizes, fresh = reads
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    matrix = np.empty((inputs, batch), values.dtype)
    pull = np.empty((units, batch), values.dtype)
    back = np.empty((inputs, batch), values.dtype)
    turned = np.empty((inputs, units), values.dtype)
    apart = np.empty((sizes.shape[1], batch), powers.dtype)
    top = np.empty(batch, powers.dtype)
    number, _ = room
    for f in range(len(rows)):
        first, last = start + f * units, start + (f + 1) * units
        below = _inputs(
            values, powers, rows[f], slots[f], sizes[f], matrix, top, apart, lost, room, form
        )
        _set_powers(top, powers[numbers[f]], room, form)
        out, flow, line = values[first:last].ravel(), gradient[first:last].ravel(), pull.ravel()
        for i in range(len(line)):
            line[i] = flow[i] / out[i] if out[i] > 0 else 0
        _times(pull, number)
        _dot(pull, below.T, shares[f])
        _transpose(weight[f], turned)
        _dot(turned, pull, back)
        shared, child = back.ravel(), below.ravel()
        for i in range(len(child)):
            shared[i] *= child[i]
        at = 0
        for p in range(sizes.shape[1]):
            _hand_down(gradient, back[at : at + sizes[f, p]], rows[f, p], fresh[f, p])
            at += sizes[f, p]


@compiled
def _hand_down(gradient, flows, rows, fresh):  # type: ignore[no-untyped-def]
    """The same flows (units, batch) to children that begin at these rows."""
    for j in range(len(rows)):
        if rows[j] < 0:
            break
        down, flow = gradient[rows[j] : rows[j] + len(flows)].ravel(), flows.ravel()
        if fresh[j]:
            for i in range(len(flow)):
                down[i] = flow[i]
        else:
            for i in range(len(flow)):
                down[i] += flow[i]


@compiled
def unmultiply(gradient, start, units, rows, fresh):  # type: ignore[no-untyped-def]
    """Downwards: every child is given the gradient of the product."""
    for f in range(len(rows)):
        flows = gradient[start + f * units : start + (f + 1) * units]
        _hand_down(gradient, flows, rows[f, 0], fresh[f, 0])

"""Compiled loops of the executor for many units (scaled.py): no logarithm, no exponential.

Values are (rows, batch), plain numbers; the largest of a node lies between 1 and 2, and the power
of two that it was divided by stands apart, in ``powers`` (slots, batch). Batches lie side by side,
so that every inner loop runs over rows of data and is vectorised. A row of data in which a node has
nothing that the type can hold is marked as lost, and evaluated elsewhere.

The inputs of a sum are at first products as they come. The largest unit of a sum is at most the
largest input, so that inputs were large enough wherever it is. Where it is not, they are multiplied
again with care, and divided by powers of two on the way.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.evaluation.small_products import compiled, correlate
from fedcircuits.circuits.evaluation.small_products import multiply as multiply_matrices

NEAR = 30  # powers of two between which products need not be divided


@compiled
def _set_powers(exponents, top, room, form):  # type: ignore[no-untyped-def]
    """room: 2 to the power of (exponents − top), 0 where that is too small."""
    bits, shift, bias = room[1], form[0], form[1]
    for r in range(len(exponents)):
        bits[r] = max(exponents[r] - top[r] + bias, 0) << shift


@compiled
def _product(values, powers, rows, slots, size, out, power, careful, lost, room, form):  # type: ignore[no-untyped-def]
    """out (units, batch): a child, or the product of some; ``power`` is set. With care products are
    divided by a power of two, but only if their largest has come far from 1."""
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
        for r in range(len(power)):
            power[r] += more[r]
        if careful:
            _largest(out, room)
            far = 0
            for r in range(len(power)):
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
    for u in range(len(matrix)):
        a = matrix[u]
        for r in range(len(number)):
            a[r] *= number[r]


@compiled
def _divide(out, power, room, form):  # type: ignore[no-untyped-def]
    """Divide rows by the power of two of their largest, which is in ``room``."""
    number, bits = room
    shift, bias, least, _ = form
    for r in range(len(number)):
        e = (bits[r] >> shift) - bias
        e = e if e >= least else 0
        power[r] += e
        bits[r] = (bias - e) << shift
    _times(out, number)


@compiled
def _least_power(bits, form):  # type: ignore[no-untyped-def]
    """Of numbers, as their bits."""
    least = bits[0]
    for r in range(len(bits)):
        least = min(least, bits[r])
    return (least >> form[0]) - form[1]


@compiled
def multiply(values, powers, lost, start, units, numbers, rows, slots, room, form):  # type: ignore[no-untyped-def]
    """Elementwise products: ``rows`` (folds, 1, factors) are first rows of children, −1 is none."""
    for f in range(len(rows)):
        out = values[start + f * units : start + (f + 1) * units]
        power = powers[numbers[f]]
        _product(values, powers, rows[f, 0], slots[f, 0], units, out, power, True, lost, room, form)


@compiled
def _inputs(values, powers, rows, slots, sizes, out, top, apart, careful, lost, room, form):  # type: ignore[no-untyped-def]
    """Inputs of one sum, all by the same power of two, ``top``; a single child as it is. Inputs
    that only other sums of the step have are zero."""
    if sizes[0] == len(out) and (rows.shape[1] == 1 or rows[0, 1] < 0):
        top[:] = powers[slots[0, 0]]
        return values[rows[0, 0] : rows[0, 0] + sizes[0]]
    at, parts = 0, 0
    while parts < len(sizes) and sizes[parts] > 0:
        size, part = sizes[parts], out[at : at + sizes[parts]]
        _product(
            values, powers, rows[parts], slots[parts], size, part, apart[parts], careful, lost,
            room, form,
        )  # fmt: skip
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
def mix(values, powers, lost, start, numbers, reads, weight, room, form):  # type: ignore[no-untyped-def]
    """Sums: ``reads`` are their parts (scaled.py), weight is (folds, units, inputs)."""
    rows, slots, sizes, _ = reads
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    matrix = np.empty((inputs, batch), values.dtype)
    apart = np.empty((sizes.shape[1], batch), powers.dtype)
    bits = room[1]
    for f in range(len(rows)):
        out, power = values[start + f * units : start + (f + 1) * units], powers[numbers[f]]
        for careful in (False, True):
            below = _inputs(
                values, powers, rows[f], slots[f], sizes[f], matrix, power, apart, careful, lost,
                room, form,
            )  # fmt: skip
            multiply_matrices(weight[f], below, out)
            _largest(out, room)
            if _least_power(bits, form) >= form[3]:
                break
        for r in range(batch):
            lost[r] |= (bits[r] >> form[0]) - form[1] < form[2]
        _divide(out, power, room, form)


@compiled
def unmix(values, powers, lost, start, numbers, reads, weight, gradient, shares, room, form):  # type: ignore[no-untyped-def]
    """Downwards: derivatives by the weights (folds, units, inputs) are written to ``shares``, and
    every child is given its part of the gradient."""
    rows, slots, sizes, fresh = reads
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    matrix = np.empty((inputs, batch), values.dtype)
    pull = np.empty((units, batch), values.dtype)
    back = np.empty((inputs, batch), values.dtype)
    apart = np.empty((sizes.shape[1], batch), powers.dtype)
    top = np.empty(batch, powers.dtype)
    for f in range(len(rows)):
        first, last, power = start + f * units, start + (f + 1) * units, powers[numbers[f]]
        for careful in (False, True):
            below = _inputs(
                values, powers, rows[f], slots[f], sizes[f], matrix, top, apart, careful, lost,
                room, form,
            )  # fmt: skip
            if _least_difference(power, top) >= form[3]:
                break
        _set_powers(top, power, room, form)
        _pull(gradient[first:last], values[first:last], room[0], pull)
        correlate(pull, below, shares[f])
        multiply_matrices(weight[f].T, pull, back)
        at = 0
        for p in range(sizes.shape[1]):
            end = at + sizes[f, p]
            _hand_down(gradient, back[at:end], below[at:end], rows[f, p], fresh[f, p])
            at = end


@compiled
def _least_difference(power, top):  # type: ignore[no-untyped-def]
    least = power[0] - top[0]
    for r in range(len(power)):
        least = min(least, power[r] - top[r])
    return least


@compiled
def _pull(flow, out, number, pull):  # type: ignore[no-untyped-def]
    """The flow of every unit by its value (units, batch), times numbers (batch,)."""
    for u in range(len(pull)):
        f, o, p = flow[u], out[u], pull[u]
        for r in range(len(p)):
            p[r] = f[r] * number[r] / o[r] if o[r] > 0 else 0


@compiled
def _hand_down(gradient, back, below, rows, fresh):  # type: ignore[no-untyped-def]
    """Flows back · below (units, batch), the same to all children, which begin at these rows."""
    share, child = back.ravel(), below.ravel()
    for j in range(len(rows)):
        if rows[j] < 0:
            break
        down = gradient[rows[j] : rows[j] + len(back)].ravel()
        if fresh[j]:
            for i in range(len(down)):
                down[i] = share[i] * child[i]
        else:
            for i in range(len(down)):
                down[i] += share[i] * child[i]


@compiled
def unmultiply(gradient, start, units, rows, fresh):  # type: ignore[no-untyped-def]
    """Downwards: every child is given the gradient of the product."""
    for f in range(len(rows)):
        flow = gradient[start + f * units : start + (f + 1) * units].ravel()
        for j in range(rows.shape[2]):
            if rows[f, 0, j] < 0:
                break
            first = rows[f, 0, j]
            down = gradient[first : first + units].ravel()
            if fresh[f, 0, j]:
                for i in range(len(flow)):
                    down[i] = flow[i]
            else:
                for i in range(len(flow)):
                    down[i] += flow[i]

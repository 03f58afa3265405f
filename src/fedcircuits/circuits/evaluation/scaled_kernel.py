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
compiled = nb.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@compiled
def _set_powers(exponents, top, room, form):  # type: ignore[no-untyped-def]
    """room: 2 to the power of (exponents − top), 0 where that is too small."""
    bits, shift, bias = room[1], form[0], form[1]
    for r in range(len(exponents)):
        bits[r] = max(exponents[r] - top[r] + bias, 0) << shift


@compiled
def _normalise(values, first, units, power, lost, room, form):  # type: ignore[no-untyped-def]
    """Divide the rows of a node by a power of two, which ``power`` takes in."""
    number, bits = room
    shift, bias, least = form
    for r in range(values.shape[1]):
        number[r] = values[first, r]
    for u in range(1, units):
        for r in range(values.shape[1]):
            number[r] = max(number[r], values[first + u, r])
    for r in range(values.shape[1]):
        e = (bits[r] >> shift) - bias
        lost[r] |= e < least
        e = e if e >= least else 0
        power[r] += e
        bits[r] = (bias - e) << shift
    for u in range(units):
        for r in range(values.shape[1]):
            values[first + u, r] *= number[r]


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
def multiply(values, powers, lost, start, units, numbers, rows, slots, room, form):  # type: ignore[no-untyped-def]
    """Elementwise products: ``rows`` (folds, arity) are first rows of children, −1 is none."""
    batch = values.shape[1]
    for f in range(rows.shape[0]):
        first, power = start + f * units, powers[numbers[f]]
        power[:] = powers[slots[f, 0]]
        for u in range(units):
            values[first + u] = values[rows[f, 0] + u]
        for j in range(1, rows.shape[1]):
            child = rows[f, j]
            if child < 0:
                continue
            more = powers[slots[f, j]]
            for r in range(batch):
                power[r] += more[r]
            for u in range(units):
                for r in range(batch):
                    values[first + u, r] *= values[child + u, r]
            _normalise(values, first, units, power, lost, room, form)


@compiled
def _scaled(values, powers, rows, slots, top, scaled, room, form):  # type: ignore[no-untyped-def]
    """Children of one sum, all by the same power of two, ``top``; a single child as it is."""
    top[:] = powers[slots[0]]
    last = len(rows) - 1
    if slots[last] == slots[0] and rows[last] == rows[0] + last:
        return values[rows[0] : rows[0] + last + 1]
    for i in range(1, len(slots)):
        if slots[i] != slots[i - 1]:
            more = powers[slots[i]]
            for r in range(len(top)):
                top[r] = max(top[r], more[r])
    number, _ = room
    for i in range(len(rows)):
        if i == 0 or slots[i] != slots[i - 1]:
            _set_powers(powers[slots[i]], top, room, form)
        child, out = values[rows[i]], scaled[i]
        for r in range(len(top)):
            out[r] = child[r] * number[r]
    return scaled


@compiled
def _combine(weight, matrix, out):  # type: ignore[no-untyped-def]
    """out (m, batch) = weight (m, n) · matrix (n, batch), by blocks of 2 × 4 that share what they
    read."""
    outputs, inputs = weight.shape
    whole = inputs // 4 * 4
    out[:] = 0
    for u in range(0, outputs - 1, 2):
        first, second, w, v = out[u], out[u + 1], weight[u], weight[u + 1]
        for i in range(0, whole, 4):
            a, b, c, d = w[i], w[i + 1], w[i + 2], w[i + 3]
            e, f, g, h = v[i], v[i + 1], v[i + 2], v[i + 3]
            p, q, s, t = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
            for r in range(out.shape[1]):
                first[r] += a * p[r] + b * q[r] + c * s[r] + d * t[r]
                second[r] += e * p[r] + f * q[r] + g * s[r] + h * t[r]
    for u in range(outputs):
        paired = u < outputs // 2 * 2
        for i in range(whole if paired else 0, inputs):
            a, p, line = weight[u, i], matrix[i], out[u]
            for r in range(out.shape[1]):
                line[r] += a * p[r]


@compiled
def _products(left, right, out):  # type: ignore[no-untyped-def]
    """out (m, n) = left (m, batch) · right (n, batch)ᵀ."""
    whole = len(right) // 4 * 4
    for u in range(len(left)):
        p, zero = left[u], left[0, 0] * 0
        for i in range(0, whole, 4):
            q, s, t, v = right[i], right[i + 1], right[i + 2], right[i + 3]
            a, b, c, d = zero, zero, zero, zero
            for r in range(len(p)):
                a += p[r] * q[r]
                b += p[r] * s[r]
                c += p[r] * t[r]
                d += p[r] * v[r]
            out[u, i] = a
            out[u, i + 1] = b
            out[u, i + 2] = c
            out[u, i + 3] = d
        for i in range(whole, len(right)):
            a, q = zero, right[i]
            for r in range(len(p)):
                a += p[r] * q[r]
            out[u, i] = a


@compiled
def mix(values, powers, lost, start, numbers, rows, slots, weight, room, form):  # type: ignore[no-untyped-def]
    """Sums: ``rows`` (folds, inputs) are rows of children, weight is (folds, units, inputs)."""
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    scaled = np.empty((inputs, batch), values.dtype)
    for f in range(rows.shape[0]):
        first, power = start + f * units, powers[numbers[f]]
        below = _scaled(values, powers, rows[f], slots[f], power, scaled, room, form)
        _combine(weight[f], below, values[first : first + units])
        _normalise(values, first, units, power, lost, room, form)


@compiled
def unmix(values, powers, start, numbers, reads, weights, gradient, shares, room, form):  # type: ignore[no-untyped-def]
    """Downwards: the derivatives by the weights, and to every child its part of the gradient.

    ``weights`` are (folds, units, inputs) and (folds, inputs, units); ``shares`` are written, and
    shares of children go to rows ``targets`` (folds, inputs, targets), where the first is written.
    """
    rows, slots, targets, fresh = reads
    weight, turned = weights
    batch, units, inputs = values.shape[1], weight.shape[1], weight.shape[2]
    scaled = np.empty((inputs, batch), values.dtype)
    pull = np.empty((units, batch), values.dtype)
    back = np.empty((inputs, batch), values.dtype)
    top = np.empty(batch, powers.dtype)
    number, _ = room
    for f in range(rows.shape[0]):
        first = start + f * units
        below = _scaled(values, powers, rows[f], slots[f], top, scaled, room, form)
        _set_powers(top, powers[numbers[f]], room, form)
        for u in range(units):
            out, flow, p = values[first + u], gradient[first + u], pull[u]
            for r in range(batch):
                p[r] = flow[r] * number[r] / out[r] if out[r] > 0 else 0
        _products(pull, below, shares[f])
        _combine(turned[f], pull, back)
        for i in range(inputs):
            part, child = back[i], below[i]
            for t in range(targets.shape[2]):
                if targets[f, i, t] >= 0:
                    down = gradient[targets[f, i, t]]
                    if fresh[f, i, t]:
                        for r in range(batch):
                            down[r] = part[r] * child[r]
                    else:
                        for r in range(batch):
                            down[r] += part[r] * child[r]


@compiled
def unmultiply(gradient, start, units, targets, fresh):  # type: ignore[no-untyped-def]
    """Downwards: every child is given the gradient of the product."""
    for f in range(targets.shape[0]):
        for j in range(targets.shape[1]):
            child = targets[f, j, 0]
            if child < 0:
                continue
            for u in range(units):
                flow, down = gradient[start + f * units + u], gradient[child + u]
                if fresh[f, j, 0]:
                    down[:] = flow
                else:
                    for r in range(gradient.shape[1]):
                        down[r] += flow[r]

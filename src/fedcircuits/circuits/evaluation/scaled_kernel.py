"""Compiled loops of the executor for many units (scaled.py): no logarithm, no exponential.

Values are (rows, batch), plain numbers; the largest of a node lies between 1 and 2, and the power
of two that it was divided by stands apart, in ``powers`` (slots, batch). Batches lie side by side,
so that every inner loop runs over rows of data and is vectorised. A row of data in which a node has
nothing that the type can hold is marked as lost, and evaluated elsewhere.

The inputs of a sum are at first products as they come. The largest unit of a sum is at most the
largest input, so that inputs were large enough wherever it is. Where it is not, they are multiplied
again with care, and divided by powers of two on the way.

A plan (scaled_plan.py) says which nodes come one after the other, and what they read.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.evaluation import table_kernel as tables
from fedcircuits.circuits.evaluation.small_products import compiled, correlate, multiply

LOOKUP, PRODUCT, SUM = 0, 1, 2
FLOW_OF_NODE, FLOW_OF_CHILD = 8, 3  # columns of the plan: with leaves looked up, and without

NEAR = 30  # powers of two between which products need not be divided
FEW = 32  # children: what is below 2 each does not overflow


@compiled
def _set_powers(exponents, top, room, form):  # type: ignore[no-untyped-def]
    """room: 2 to the power of (exponents − top), 0 where that is too small."""
    bits, shift, bias = room[1], form[0], form[1]
    for r in range(len(exponents)):
        bits[r] = max(exponents[r] - top[r] + bias, 0) << shift


@compiled
def _product(values, powers, children, size, out, power, careful, lost, room, form):  # type: ignore[no-untyped-def]
    """out (units, batch): a child, or the product of some; ``power`` is set. With care, and of
    many children, products are divided by a power of two, but only if their largest has come far
    from 1."""
    careful |= len(children) > FEW
    line = out.ravel()  # rows of a node lie side by side: one loop goes over all of them
    row = children[0, 0]
    left = values[row : row + size].ravel()
    power[:] = powers[children[0, 1]]
    if len(children) == 1:
        for i in range(len(line)):
            line[i] = left[i]
        return
    for j in range(1, len(children)):
        row = children[j, 0]
        right, more = values[row : row + size].ravel(), powers[children[j, 1]]
        if j == 1:
            for i in range(len(line)):
                line[i] = left[i] * right[i]
        else:
            for i in range(len(line)):
                line[i] *= right[i]
        for r in range(len(power)):
            power[r] += more[r]
        if careful:
            _come_near(out, power, lost, room, form)


@compiled
def _come_near(out, power, lost, room, form):  # type: ignore[no-untyped-def]
    bits, far = room[1], 0
    _largest(out, room)
    for r in range(len(power)):
        e = (bits[r] >> form[0]) - form[1]
        lost[r] |= e < form[2]
        far = max(far, abs(e))
    if far > NEAR:
        _divide(out, out, power, room, form)


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
def _times(matrix, number, out):  # type: ignore[no-untyped-def]
    """Every row times the same numbers (batch,)."""
    for u in range(len(matrix)):
        a, b = matrix[u], out[u]
        for r in range(len(number)):
            b[r] = a[r] * number[r]


@compiled
def _divide(matrix, out, power, room, form):  # type: ignore[no-untyped-def]
    """Divide rows by the power of two of their largest, which is in ``room``."""
    number, bits = room
    shift, bias, least, _ = form
    for r in range(len(number)):
        e = (bits[r] >> shift) - bias
        e = e if e >= least else 0
        power[r] += e
        bits[r] = (bias - e) << shift
    _times(matrix, number, out)


@compiled
def _least_power(bits, form):  # type: ignore[no-untyped-def]
    """Of numbers, as their bits."""
    least = bits[0]
    for r in range(len(bits)):
        least = min(least, bits[r])
    return (least >> form[0]) - form[1]


@compiled
def _inputs(values, powers, parts, children, out, top, apart, careful, lost, room, form):  # type: ignore[no-untyped-def]
    """Inputs of one sum, all by the same power of two, ``top``; a single child as it is. Inputs
    that only other sums of its step have are zero."""
    size, a, b = parts[0, 0], parts[0, 1], parts[0, 2]
    if size == len(out) and b - a == 1:
        top[:] = powers[children[a, 1]]
        return values[children[a, 0] : children[a, 0] + size]
    at = 0
    for p in range(len(parts)):
        size, a, b = parts[p, 0], parts[p, 1], parts[p, 2]
        part = out[at : at + size]
        _product(values, powers, children[a:b], size, part, apart[p], careful, lost, room, form)
        at += size
    out[at:] = 0
    top[:] = apart[0]
    if len(parts) == 1:
        return out
    for p in range(1, len(parts)):
        for r in range(len(top)):
            top[r] = max(top[r], apart[p, r])
    at = 0
    for p in range(len(parts)):
        size = parts[p, 0]
        _set_powers(apart[p], top, room, form)
        _times(out[at : at + size], room[0], out[at : at + size])
        at += size
    return out


@compiled
def _fields(node):  # type: ignore[no-untyped-def]
    return node[0], node[1], node[2], node[3], node[4], node[5], node[6], node[7]


@compiled
def upward(plan, values, powers, lost, weights, table, places, widest, room, form):  # type: ignore[no-untyped-def]
    """All nodes of a plan. ``weights`` are those of all sums, end to end; ``table`` and ``places``
    are those of leaves (table_kernel.py), none of which may be given."""
    nodes, parts, children = plan
    batch = values.shape[1]
    matrix = np.empty((widest[1], batch), values.dtype)
    mixed = np.empty((widest[0], batch), values.dtype)
    apart = np.empty((widest[2], batch), powers.dtype)
    for n in range(len(nodes)):
        kind, row, slot, units, inputs, at, first, last = _fields(nodes[n])
        out, power = values[row : row + units], powers[slot]
        if kind == LOOKUP:
            if len(places):
                tables.look_up(out, table, places[at])
        elif kind == PRODUCT:
            below = children[parts[first, 1] : parts[first, 2]]
            _product(values, powers, below, units, out, power, True, lost, room, form)
        else:
            weight = weights[at : at + units * inputs].reshape(units, inputs)
            _sum(
                values, powers, parts[first:last], children, weight,
                (matrix[:inputs], mixed[:units], apart), out, power, lost, room, form,
            )  # fmt: skip


@compiled
def _sum(values, powers, parts, children, weight, work, out, power, lost, room, form):  # type: ignore[no-untyped-def]
    """One sum; its values are divided on their way from a small matrix to the large one."""
    matrix, mixed, apart = work
    bits = room[1]
    for careful in (False, True):
        below = _inputs(
            values, powers, parts, children, matrix, power, apart, careful, lost, room, form
        )
        multiply(weight, below, mixed)
        _largest(mixed, room)
        if _least_power(bits, form) >= form[3]:
            break
    for r in range(len(power)):
        lost[r] |= (bits[r] >> form[0]) - form[1] < form[2]
    _divide(mixed, out, power, room, form)


@compiled
def downward(  # type: ignore[no-untyped-def]
    plan, values, powers, lost, weights, counted, widest, way, gradient, shares, room, form
):
    """The other way: every child is given its part of the gradient, in the rows of this ``way``.
    ``shares``, laid out as weights, may hold anything; they become expected counts or, by
    ``free`` numbers, derivatives. So does the table of leaves that ``counted`` names, with their
    counts and old frequencies (table_kernel.py)."""
    nodes, parts, children = plan
    places, free, table, count, old = counted
    units, inputs, batch = widest[0], widest[1], values.shape[1]
    matrix = np.empty((inputs, batch), values.dtype)
    back = np.empty((inputs, batch), values.dtype)
    pull = np.empty((units, batch), values.dtype)
    apart = np.empty((widest[2] + 1, batch), powers.dtype)
    for n in range(len(nodes) - 1, -1, -1):
        kind, row, slot, units, inputs, at, first, last = _fields(nodes[n])
        own = nodes[n, FLOW_OF_NODE + way]
        flow = gradient[own : own + units]
        if kind == LOOKUP:
            if len(places):
                tables.add_up(flow, at, places[at], len(places), free, table, count, old)
        elif kind == PRODUCT:
            _pass_on(gradient, flow, children[parts[first, 1] : parts[first, 2]], way)
        else:
            span = slice(at, at + units * inputs)
            _share(
                values, powers, parts[first:last], children,
                weights[span].reshape(units, inputs), shares[span].reshape(units, inputs),
                (matrix[:inputs], back[:inputs], pull[:units], apart), free,
                values[row : row + units], powers[slot], way, gradient, flow, lost, room, form,
            )  # fmt: skip


@compiled
def _share(  # type: ignore[no-untyped-def]
    values, powers, parts, children, weight, share, work, free, out, power, way, gradient, flow,
    lost, room, form,
):  # fmt: skip
    """One sum on the way down."""
    matrix, back, pull, apart = work
    top = apart[len(apart) - 1]
    for careful in (False, True):
        below = _inputs(
            values, powers, parts, children, matrix, top, apart, careful, lost, room, form
        )
        if _least_difference(power, top) >= form[3]:
            break
    _set_powers(top, power, room, form)
    _pull(flow, out, room[0], pull)
    correlate(pull, below, share)
    _finish(share, weight, free)
    multiply(weight.T, pull, back)
    at = 0
    for p in range(len(parts)):
        size, a, b = parts[p, 0], parts[p, 1], parts[p, 2]
        _hand_down(gradient, back[at : at + size], below[at : at + size], children[a:b], way)
        at += size


@compiled
def _finish(share, weight, free):  # type: ignore[no-untyped-def]
    """Expected counts from derivatives by the weights; or derivatives by their free numbers, which
    softmax makes the weights: the counts, less the weights times all counts of the unit."""
    for u in range(len(share)):
        line, old = share[u], weight[u]
        for i in range(len(line)):
            line[i] *= old[i]
        if free:
            total = line[0]
            for i in range(1, len(line)):
                total += line[i]
            for i in range(len(line)):
                line[i] -= total * old[i]


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
def _hand_down(gradient, back, below, children, way):  # type: ignore[no-untyped-def]
    """Flows back · below (units, batch), the same to all children."""
    share, child = back.ravel(), below.ravel()
    for j in range(len(children)):
        row, fresh = children[j, FLOW_OF_CHILD + way], children[j, 2]
        down = gradient[row : row + len(back)].ravel()
        if fresh:
            for i in range(len(down)):
                down[i] = share[i] * child[i]
        else:
            for i in range(len(down)):
                down[i] += share[i] * child[i]


@compiled
def _pass_on(gradient, flows, children, way):  # type: ignore[no-untyped-def]
    """Every child is given the gradient of the product."""
    flow = flows.ravel()
    for j in range(len(children)):
        row, fresh = children[j, FLOW_OF_CHILD + way], children[j, 2]
        down = gradient[row : row + len(flows)].ravel()
        if fresh:
            for i in range(len(flow)):
                down[i] = flow[i]
        else:
            for i in range(len(flow)):
                down[i] += flow[i]

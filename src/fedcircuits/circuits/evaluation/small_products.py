"""Products of small matrices in compiled loops, for sums of at most some hundred units.

A BLAS packs its operands before it multiplies them. With 16 × 16 weights that takes as long as the
product itself. Here the columns, which are rows of data, lie side by side in memory, so that the
innermost loops run over them and are vectorised; weights are numbers that stay in registers.
"""

from __future__ import annotations

import numba as nb

FAST = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}
HIGH, WIDE = 8, 4  # rows and terms that go through together
compiled = nb.njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
written_out = nb.njit(inline="always", error_model="numpy")  # where it is called: half the time


@compiled
def multiply(left, right, out):  # type: ignore[no-untyped-def]
    """out (units, batch) = left (units, inputs) · right (inputs, batch)."""
    units, inputs = left.shape
    high, wide = units // HIGH * HIGH, inputs // WIDE * WIDE
    for u in range(0, high, HIGH):
        for i in range(0, wide, WIDE):
            _add_eight(left, right, out, u, i)
        for i in range(wide, inputs):
            for j in range(u, u + HIGH):
                _add_one(left, right, out, j, i)
    for u in range(high, units):
        for i in range(0, wide, WIDE):
            _add_four(left, right, out, u, i)
        for i in range(wide, inputs):
            _add_one(left, right, out, u, i)


@written_out
def _terms(left, u, i):  # type: ignore[no-untyped-def]
    return left[u, i], left[u, i + 1], left[u, i + 2], left[u, i + 3]


@written_out
def _rows(matrix, i):  # type: ignore[no-untyped-def]
    return matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]


@written_out
def _add_eight(left, right, out, u, i):  # type: ignore[no-untyped-def]
    """Four terms of eight rows from u; those from i = 0 are the first, and written."""
    a, b, c, d = (
        _terms(left, u, i), _terms(left, u + 1, i), _terms(left, u + 2, i), _terms(left, u + 3, i)
    )  # fmt: skip
    e, f, g, h = (
        _terms(left, u + 4, i), _terms(left, u + 5, i), _terms(left, u + 6, i),
        _terms(left, u + 7, i),
    )  # fmt: skip
    x0, x1, x2, x3 = _rows(right, i)
    y0, y1, y2, y3 = _rows(out, u)
    y4, y5, y6, y7 = _rows(out, u + 4)
    if i == 0:
        for r in range(len(x0)):
            p, q, s, t = x0[r], x1[r], x2[r], x3[r]
            y0[r] = a[0] * p + a[1] * q + a[2] * s + a[3] * t
            y1[r] = b[0] * p + b[1] * q + b[2] * s + b[3] * t
            y2[r] = c[0] * p + c[1] * q + c[2] * s + c[3] * t
            y3[r] = d[0] * p + d[1] * q + d[2] * s + d[3] * t
            y4[r] = e[0] * p + e[1] * q + e[2] * s + e[3] * t
            y5[r] = f[0] * p + f[1] * q + f[2] * s + f[3] * t
            y6[r] = g[0] * p + g[1] * q + g[2] * s + g[3] * t
            y7[r] = h[0] * p + h[1] * q + h[2] * s + h[3] * t
        return
    for r in range(len(x0)):
        p, q, s, t = x0[r], x1[r], x2[r], x3[r]
        y0[r] += a[0] * p + a[1] * q + a[2] * s + a[3] * t
        y1[r] += b[0] * p + b[1] * q + b[2] * s + b[3] * t
        y2[r] += c[0] * p + c[1] * q + c[2] * s + c[3] * t
        y3[r] += d[0] * p + d[1] * q + d[2] * s + d[3] * t
        y4[r] += e[0] * p + e[1] * q + e[2] * s + e[3] * t
        y5[r] += f[0] * p + f[1] * q + f[2] * s + f[3] * t
        y6[r] += g[0] * p + g[1] * q + g[2] * s + g[3] * t
        y7[r] += h[0] * p + h[1] * q + h[2] * s + h[3] * t


@written_out
def _add_four(left, right, out, u, i):  # type: ignore[no-untyped-def]
    """Four terms of one row."""
    a, y = _terms(left, u, i), out[u]
    x0, x1, x2, x3 = _rows(right, i)
    if i == 0:
        for r in range(len(x0)):
            y[r] = a[0] * x0[r] + a[1] * x1[r] + a[2] * x2[r] + a[3] * x3[r]
        return
    for r in range(len(x0)):
        y[r] += a[0] * x0[r] + a[1] * x1[r] + a[2] * x2[r] + a[3] * x3[r]


@written_out
def _add_one(left, right, out, u, i):  # type: ignore[no-untyped-def]
    a, x, y = left[u, i], right[i], out[u]
    if i == 0:
        for r in range(len(x)):
            y[r] = a * x[r]
        return
    for r in range(len(x)):
        y[r] += a * x[r]


@compiled
def correlate(left, right, out):  # type: ignore[no-untyped-def]
    """out (units, inputs) = left (units, batch) · right (inputs, batch) transposed."""
    units, inputs = len(left), len(right)
    high, wide = units // WIDE * WIDE, inputs // WIDE * WIDE
    for u in range(0, high, WIDE):
        for i in range(0, wide, WIDE):
            _sixteen(left, right, out, u, i)
        for i in range(wide, inputs):
            for j in range(u, u + WIDE):
                _single(left, right, out, j, i)
    for u in range(high, units):
        for i in range(inputs):
            _single(left, right, out, u, i)


@compiled
def _sixteen(left, right, out, u, i):  # type: ignore[no-untyped-def]
    """Four by four numbers of the product, from u and i."""
    a, b, c, d = _rows(left, u)
    x, y, z, w = _rows(right, i)
    zero = left.dtype.type(0)
    ax = ay = az = aw = bx = by = bz = bw = zero
    cx = cy = cz = cw = dx = dy = dz = dw = zero
    for r in range(len(a)):
        p, q, s, t = x[r], y[r], z[r], w[r]
        k, m, n, o = a[r], b[r], c[r], d[r]
        ax, ay, az, aw = ax + k * p, ay + k * q, az + k * s, aw + k * t
        bx, by, bz, bw = bx + m * p, by + m * q, bz + m * s, bw + m * t
        cx, cy, cz, cw = cx + n * p, cy + n * q, cz + n * s, cw + n * t
        dx, dy, dz, dw = dx + o * p, dy + o * q, dz + o * s, dw + o * t
    out[u, i], out[u, i + 1], out[u, i + 2], out[u, i + 3] = ax, ay, az, aw
    out[u + 1, i], out[u + 1, i + 1], out[u + 1, i + 2], out[u + 1, i + 3] = bx, by, bz, bw
    out[u + 2, i], out[u + 2, i + 1], out[u + 2, i + 2], out[u + 2, i + 3] = cx, cy, cz, cw
    out[u + 3, i], out[u + 3, i + 1], out[u + 3, i + 2], out[u + 3, i + 3] = dx, dy, dz, dw


@compiled
def _single(left, right, out, u, i):  # type: ignore[no-untyped-def]
    a, x = left[u], right[i]
    total = left.dtype.type(0)
    for r in range(len(a)):
        total += a[r] * x[r]
    out[u, i] = total

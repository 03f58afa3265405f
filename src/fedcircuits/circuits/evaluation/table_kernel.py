"""Compiled loops of leaves that are looked up in tables: what they say, and what is counted there.

A table is (lines, units), all levels of a leaf one after the other; ``places`` (leaves, batch) are
the lines that rows of data look up.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.evaluation.small_products import compiled


@compiled
def look_up(out, table, at):  # type: ignore[no-untyped-def]
    """Units of a leaf (units, batch): lines ``at`` (batch,) of the table."""
    for u in range(len(out)):
        values = out[u]
        for r in range(len(at)):
            values[r] = table[at[r], u]


@compiled
def look_up_all(values, table, places):  # type: ignore[no-untyped-def]
    """The same of all leaves of a step, (leaves, units, batch)."""
    for n in range(len(places)):
        look_up(values[n], table, places[n])


@compiled
def add_up(flow, n, at, leaves, free, table, count, old):  # type: ignore[no-untyped-def]
    """The other way: what comes down to leaf ``n`` of so many (units, batch) is added to its lines
    of the table, which may hold anything beforehand, and written to ``count`` (leaves, units). If
    ``free``, lines become derivatives by the free numbers that softmax makes the old frequencies:
    counts of levels, less the frequency times the count of all levels."""
    units, levels = len(flow), len(table) // leaves
    total = np.empty(units, table.dtype)
    for u in range(units):
        values = flow[u]
        whole = values[0]
        for r in range(1, len(values)):
            whole += values[r]
        total[u] = whole
    for i in range(n * levels, (n + 1) * levels):
        line = table[i]
        if free:
            before = old[i]
            for u in range(units):
                line[u] = -before[u] * total[u]
        else:
            line[:] = 0
    if not free:
        count[n] = total
    for r in range(len(at)):
        line = table[at[r]]
        for u in range(units):
            line[u] += flow[u, r]


@compiled
def add_up_all(flow, places, free, table, count, old):  # type: ignore[no-untyped-def]
    """The same of all leaves of a step, (leaves, units, batch)."""
    for n in range(len(places)):
        add_up(flow[n], n, places[n], len(places), free, table, count, old)


@compiled
def frequencies(counts, added, old, out):  # type: ignore[no-untyped-def]
    """Tables (leaves, levels, units) of frequencies from counts, with ``added`` (leaves, levels)
    for every unit; the old ones where nothing was counted. The least count is returned."""
    levels, units = counts.shape[1], counts.shape[2]
    total = np.empty(units, counts.dtype)
    least = counts[0, 0, 0]
    whole = levels // 4 * 4
    for n in range(counts.shape[0]):
        table, more = counts[n], added[n]
        total[:] = 0
        for i in range(0, whole, 4):
            a, b, c, d = table[i], table[i + 1], table[i + 2], table[i + 3]
            for u in range(units):
                p, q = a[u] + more[i], b[u] + more[i + 1]
                r, s = c[u] + more[i + 2], d[u] + more[i + 3]
                least = min(least, min(min(p, q), min(r, s)))
                total[u] += (p + q) + (r + s)
        for i in range(whole, levels):
            for u in range(units):
                now = table[i, u] + more[i]
                least = min(least, now)
                total[u] += now
        void = False
        for u in range(units):
            void |= not total[u] > 0
            total[u] = 1 / total[u] if total[u] > 0 else 0
        for i in range(levels):
            line, new = table[i], out[n, i]
            for u in range(units):
                new[u] = (line[u] + more[i]) * total[u]
        if void:
            _keep(total, old[n], out[n])
    return least


@compiled
def _keep(total, old, out):  # type: ignore[no-untyped-def]
    """Old frequencies (levels, units) of units without any count."""
    for i in range(len(old)):
        for u in range(len(total)):
            if total[u] == 0:
                out[i, u] = old[i, u]

"""Compiled loops of leaves that are looked up in tables: what they say, and what is counted there.

A table is (lines, units), all levels of a leaf one after the other; ``places`` (leaves, batch) are
the lines that rows of data look up.
"""

from __future__ import annotations

import numpy as np

from fedcircuits.circuits.evaluation.small_products import compiled


@compiled
def look_up(values, start, table, places):  # type: ignore[no-untyped-def]
    """Units of leaves: lines ``places`` (leaves, batch) of a table (lines, units)."""
    units = table.shape[1]
    for n in range(places.shape[0]):
        at, first = places[n], start + n * units
        for u in range(units):
            out = values[first + u]
            for r in range(len(at)):
                out[r] = table[at[r], u]


@compiled
def add_up(gradient, start, places, table, count):  # type: ignore[no-untyped-def]
    """The other way: what comes down to units is added to the lines of a table, and to the counts
    of leaves (leaves, units)."""
    for n in range(places.shape[0]):
        first = start + n * table.shape[1]
        _add_rows(gradient, first, count[n])
        _add_lines(gradient, first, places[n], table)


@compiled
def add_up_free(gradient, start, places, old, table):  # type: ignore[no-untyped-def]
    """The same for the free numbers of old frequencies, by softmax: counts of levels, less the
    frequency times the count of all levels. ``table`` may hold anything."""
    units = table.shape[1]
    levels = len(table) // len(places)
    total = np.empty(units, table.dtype)
    for n in range(places.shape[0]):
        first = start + n * units
        total[:] = 0
        _add_rows(gradient, first, total)
        for i in range(n * levels, (n + 1) * levels):
            line, before = table[i], old[i]
            for u in range(units):
                line[u] = -before[u] * total[u]
        _add_lines(gradient, first, places[n], table)


@compiled
def _add_rows(gradient, first, total):  # type: ignore[no-untyped-def]
    for u in range(len(total)):
        flow = gradient[first + u]
        for r in range(len(flow)):
            total[u] += flow[r]


@compiled
def _add_lines(gradient, first, at, table):  # type: ignore[no-untyped-def]
    for r in range(len(at)):
        line = table[at[r]]
        for u in range(len(line)):
            line[u] += gradient[first + u, r]


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

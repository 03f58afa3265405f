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
def add_up(flow, at, table, count):  # type: ignore[no-untyped-def]
    """The other way: what comes down to units (units, batch) is added to the lines of the table,
    and written to the counts of the leaf (units,)."""
    _add_rows(flow, count)
    _add_lines(flow, at, table)


@compiled
def add_up_free(flow, n, at, leaves, old, table):  # type: ignore[no-untyped-def]
    """The same for the free numbers of old frequencies, by softmax: counts of levels, less the
    frequency times the count of all levels. ``table`` may hold anything at leaf ``n``."""
    total = np.empty(len(flow), table.dtype)
    _add_rows(flow, total)
    levels = len(table) // leaves
    for i in range(n * levels, (n + 1) * levels):
        line, before = table[i], old[i]
        for u in range(len(total)):
            line[u] = -before[u] * total[u]
    _add_lines(flow, at, table)


@compiled
def add_up_all(flow, places, free, table, count, old):  # type: ignore[no-untyped-def]
    """What either adds up, of all leaves of a step."""
    for n in range(len(places)):
        if free:
            add_up_free(flow[n], n, places[n], len(places), old, table)
        else:
            add_up(flow[n], places[n], table, count[n])


@compiled
def _add_rows(flow, total):  # type: ignore[no-untyped-def]
    for u in range(len(total)):
        values = flow[u]
        whole = values[0]
        for r in range(1, len(values)):
            whole += values[r]
        total[u] = whole


@compiled
def _add_lines(flow, at, table):  # type: ignore[no-untyped-def]
    for r in range(len(at)):
        line = table[at[r]]
        for u in range(len(line)):
            line[u] += flow[u, r]


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

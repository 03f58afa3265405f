"""Compiled loops of the weights of sums: shares from expected counts."""

from __future__ import annotations

import numba as nb
import numpy as np

EXACT = {"nsz", "contract", "reassoc"}  # there may be numbers that are not finite


@nb.njit(cache=True, nogil=True, fastmath=EXACT, error_model="numpy")
def normalise(counts, old, out):  # type: ignore[no-untyped-def]
    """Weights (folds, units, inputs) that every unit's counts make; the old ones where nothing was
    counted. Whether they are sound: finite, not negative, not all zero."""
    sound = True
    for f in range(counts.shape[0]):
        for u in range(counts.shape[1]):
            line, new = counts[f, u], out[f, u]
            total, least = line[0], line[0]
            for i in range(1, len(line)):
                total += line[i]
                least = min(least, line[i])
            if total > 0:
                for i in range(len(line)):
                    new[i] = line[i] / total
            else:
                new[:] = old[f, u]
            sound &= (least >= 0) & (total >= 0) & (total < np.inf)
    return sound

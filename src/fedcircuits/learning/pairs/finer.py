"""Tables over coarse states of an ordered column, for finer states of it.

What is learned of a column from few states, such as cells that rows may be told by, also says how
its finer states are distributed: these lie between the ends of the coarse ones, whose normal
quantiles in a line of a table are a nearly linear function of those in all rows (exactly so where
both are normal). Every coarse state keeps its probability in the line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.states import Index

LEAST = 1e-9  # of a probability whose quantile is taken
SLOPES = 0.2, 20.0  # of quantiles beyond the outer ends
RESIDUE = 1e-6  # of a coarse state, which its finer states have as they have in all rows


@dataclass(frozen=True, slots=True)
class FinerStates:
    """Finer states of a column in rising order: their rows, and the coarse state of each."""

    rows: Array  # (finer states,)
    coarse: Index

    @property
    def within(self) -> Array:
        """Their shares of each coarse state (coarse states, finer states)."""
        inside = (self.coarse == np.arange(self.coarse.max() + 1)[:, None]) * self.rows
        return np.asarray(inside / inside.sum(axis=1, keepdims=True))

    def lines(self, table: Array) -> Array:
        """(lines, coarse states) to (lines, finer states)."""
        within = self.within
        if len(within) == len(self.rows):
            return table
        rows = np.bincount(self.coarse, self.rows).astype(np.float64)
        ends, finer = _ends(rows), _ends(self.rows)
        own = ndtri(np.clip(np.cumsum(table, axis=1)[:, :-1], LEAST, 1 - LEAST))
        quantiles = _interpolated(ends, own, finer)
        edges = np.pad(ndtr(quantiles), ((0, 0), (1, 1)), constant_values=(0.0, 1.0))
        mass = np.maximum(np.diff(edges, axis=1), 0.0)
        inside = mass @ (within > 0).T  # (lines, coarse states)
        part = mass / np.maximum(inside, 1e-300)[:, self.coarse]
        part = np.where(inside[:, self.coarse] > 1e-12, part, within.sum(axis=0))
        part = (1 - RESIDUE) * part + RESIDUE * within.sum(axis=0)
        found = part * table[:, self.coarse]
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def _ends(rows: Array) -> Array:
    """Normal quantiles of the ends between states."""
    return np.asarray(ndtri(np.clip(np.cumsum(rows)[:-1] / rows.sum(), LEAST, 1 - LEAST)))


def _interpolated(at: Array, values: Array, wanted: Array) -> Array:
    """Lines (lines, points) through points, at others; beyond them they go on."""
    if not len(at):
        return np.repeat(wanted[None], len(values), axis=0)
    steps = np.maximum(np.diff(at), 1e-9)
    slopes = np.diff(values, axis=1) / steps if len(at) > 1 else np.ones((len(values), 1))
    inner = np.clip(np.searchsorted(at, wanted) - 1, 0, slopes.shape[1] - 1)
    slope, beyond = slopes[:, inner], (wanted < at[0]) | (wanted > at[-1])
    slope = np.where(beyond, np.clip(slope, *SLOPES), slope)
    start = np.where(wanted > at[-1], len(at) - 1, np.minimum(inner, len(at) - 1))
    return np.asarray(values[:, start] + slope * (wanted - at[start]))

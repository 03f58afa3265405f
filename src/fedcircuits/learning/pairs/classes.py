"""Tables of pairs by class, where pairs were counted without classes.

How many rows of each class have which states of either column is known, and how many rows have
which states of both. Of all tables by class that agree with this, the one of most entropy is taken:
what the class says of one column does not depend on the other. Proportional fitting finds it
(Deming and Stephan 1940).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.tables import StateCounts, regrouped

ROUNDS = 30


def by_classes(pair: StateCounts, first: StateCounts, second: StateCounts) -> StateCounts:
    """The same rows by class; ``first`` and ``second``: columns by themselves, by class."""
    both = pair.rows.sum(axis=0)  # (groups, groups)
    ways = [regrouped(own, g) for own, g in zip((first, second), pair.groups, strict=True)]
    table = np.broadcast_to(both, pair.rows.shape) / len(pair.rows)
    for _ in range(ROUNDS):
        for axis, own in zip((2, 1), ways, strict=True):
            table = table * np.expand_dims(_ratio(own, table.sum(axis=axis)), axis)
        table = table * _ratio(both, table.sum(axis=0))
    whole = np.cumsum(table.reshape(-1))
    counts = np.diff(np.round(whole), prepend=0.0)
    return replace(pair, rows=counts.reshape(pair.rows.shape))


def _ratio(wanted: Array, there: Array) -> Array:
    return np.divide(wanted, there, out=np.zeros_like(there), where=there > 0)

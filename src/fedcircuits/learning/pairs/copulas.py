"""Normal copulas: two ordered columns as normal variables that are cut into states.

Their correlation alone determines the table of every pair of states, however fine these are. Where
it is strong, normal scores of coarse states say little of it, and it is found by likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.pairs.finer import FinerStates
from fedcircuits.learning.pairs.states import (
    MOST_CORRELATED,
    Index,
    correlation_of,
    grouped,
    normal_scores,
)

POINTS = 8  # of a state at which a copula is evaluated, at most
ALL_POINTS = 64  # of a column, or two of each state
STRONG = 0.6  # correlation
SEARCHED = 4  # rounds
COMMON = 50.0  # rows by which correlations are drawn towards their average
LEAST = 1e-12


@dataclass(frozen=True)
class States:
    """The states of a column in a component, and the groups that its rows are counted in."""

    shares: Array  # (states,)
    groups: Index
    ordered: bool

    @cached_property
    def whole(self) -> Array:
        """Shares of groups."""
        return np.maximum(grouped(self.shares, self.groups), LEAST)

    def spread(self, joint: Array) -> Array:
        """Probabilities (lines, groups) to (lines, states)."""
        lines = joint.sum(axis=1, keepdims=True)
        return np.asarray(lines * FinerStates(self.shares, self.groups).lines(joint / lines))


def correlations(rows: Array, states: Sequence[tuple[States, States]]) -> list[float]:
    """Of two columns in every component, drawn towards their average within components."""
    if not all(own.ordered for own in states[0]):
        return [0.0] * len(rows)
    each = [correlation(counts, a.whole, b.whole)
            for counts, (a, b) in zip(rows, states, strict=True)]  # fmt: skip
    z, number = np.arctanh(each), rows.sum(axis=(1, 2))
    average = (z @ number) / max(float(number.sum()), 1e-9)
    return list(np.tanh((number * z + COMMON * average) / (number + COMMON)))


def correlation(counts: Array, above: Array, below: Array) -> float:
    """Of the normal variables behind two ordered columns: by normal scores and, where it is strong,
    the likeliest, since the scores of groups say little of strong ones."""
    a, b, total = normal_scores(above), normal_scores(below), max(float(counts.sum()), 1e-9)
    p = counts / total
    cross = a @ p @ b - (a @ p.sum(axis=1)) * (b @ p.sum(axis=0))
    left = max(float(np.sqrt((a**2 @ above) * (b**2 @ below))), 1e-9)
    few = total / (total + 3)  # of few rows a correlation may be chance
    r = float(correlation_of(few * cross / left, min(left, 1.0)))
    if abs(r) < STRONG:
        return r
    drawn = counts + above[:, None] * below  # a row as if they were independent
    centre, reach = np.arctanh(r), 1.0
    for _ in range(SEARCHED):
        tried = np.tanh(np.linspace(centre - reach, centre + reach, 7))
        tried = np.clip(tried, -MOST_CORRELATED, MOST_CORRELATED)
        logs = np.log(np.maximum(copulas(tried, above, below), LEAST))
        centre = np.arctanh(tried[int((drawn * logs).sum(axis=(1, 2)).argmax())])
        reach /= 3
    return float(np.tanh(centre))


def copula(r: float, above: Array, child: Array) -> Array:
    """P(state | parent's state) of two normal variables with this correlation."""
    return np.asarray(copulas(np.array([r]), above, child)[0])


def copulas(r: Array, above: Array, child: Array) -> Array:
    """The same for every one of some correlations (correlations, parent's states, states)."""
    starts = np.cumsum(above) - above
    points = int(np.clip(ALL_POINTS // len(above), 2, POINTS))
    steps = (np.arange(points) + 0.5) / points
    z = ndtri(np.clip(starts[:, None] + above[:, None] * steps, 1e-9, 1 - 1e-9))
    ends = ndtri(np.cumsum(child)[:-1].clip(0, 1))
    r = r[:, None, None, None]
    below = ndtr((ends - r * z[:, :, None]) / np.sqrt(1 - r * r)).mean(axis=2)
    edges = np.pad(below, ((0, 0), (0, 0), (1, 1)), constant_values=(0.0, 1.0))
    table = np.maximum(np.diff(edges, axis=2), 0.0)
    return np.asarray(table / table.sum(axis=2, keepdims=True))


def copula_left(r: float, above: States, below: States) -> float:
    """Nats that a strong correlation says of finer states beyond what it says of their groups."""
    fine = all(len(own.whole) < len(own.shares) for own in (above, below))
    if not fine or abs(r) < STRONG:
        return 0.0
    table = copula(r, above.whole, below.whole)
    grouped_nats = above.whole[:, None] * table * np.log(np.maximum(table, LEAST) / below.whole)
    return float(-0.5 * np.log1p(-(r**2)) - grouped_nats.sum())

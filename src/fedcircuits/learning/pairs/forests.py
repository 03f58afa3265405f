"""Forests over states of columns, from tables of pairs.

A forest joins columns by edges with tables P(state | parent's state). The weight of an edge is its
gain on the rows that have both columns, minus the cost of its parameters (BIC), so columns that do
not depend, or that too few rows join, are in different trees: independent. Tables are shrunk, by
the amount that maximises the likelihood of the counts, towards a model of few parameters:

    two ordered columns   a normal copula: their correlation determines the joint distribution, so
                          that fine states of few rows have smooth tables
    others                the frequencies of the states

With classes every class has tables of its own, for the same edges. A forest leaves out most pairs
of columns, so a second one avoids the edges of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.chow_liu.trees import spanning_tree
from fedcircuits.learning.pairs.copulas import (
    LEAST,
    States,
    copula,
    copula_left,
    correlation,
    correlations,
)
from fedcircuits.learning.pairs.states import (
    RESIDUE,
    evidence,
    grouped,
    information_left,
    normal_information_left,
)
from fedcircuits.learning.pairs.tables import StateCounts, TablesOfPairs

PULLS = (10.0, 100.0, 1000.0)  # rows by which tables are drawn towards a normal copula
MIXED_PULLS = (0.5, 5.0, 50.0, 500.0)  # and others towards the shares of states
COLLINEAR = 0.8  # correlation from which states are divided
APART = 1e-3  # of states within groups that do not hang together
AVOIDED = 0.5  # factor on the weight of an edge that an earlier forest has
OWN_CLASS = 0.25  # rows of other classes in the component of a class
Edges = Sequence[tuple[int, int]]  # (column, parent), parents first, −1 for a root
Tables = list[Array]  # by edge P(state | parent's state), (parent's states or 1, states)


@dataclass(frozen=True, slots=True)
class MixedForests:
    """A mixture: weights, and for each component a forest with its tables."""

    weights: Array
    forests: list[tuple[Edges, Tables]]


# ---------------------------------------------------------------------- tables


def joint_of(counts: Array, parent: States, child: States, r: float) -> Array:
    """P(parent's state, state) from counts of pairs of groups. Within groups two ordered columns
    have a normal copula of correlation ``r``, and one beside states without order normal quantiles
    (finer.py)."""
    ordered = parent.ordered and child.ordered
    few = copula(r, parent.whole, child.whole) if ordered else child.whole[None]
    table = parent.whole[:, None] * table_of(counts, few, child.whole, ordered)
    if ordered:
        fine = (1 - APART) * copula(r, parent.shares, child.shares) + APART * child.shares
        fine *= parent.shares[:, None]
        coarse = grouped(grouped(fine, child.groups).T, parent.groups).T
        ratio = table / np.maximum(coarse, LEAST)
        joint = fine * ratio[parent.groups][:, child.groups]
    else:
        joint = child.spread(parent.spread(table.T).T)
    return np.asarray(np.maximum(joint, LEAST**2))


def table_of(counts: Array, few: Array, below: Array, ordered: bool) -> Array:
    """P(group | parent's group) from counts of pairs, what ``few`` parameters say of it, and the
    shares of the column's groups; ``ordered``: whether both columns are."""
    few = np.broadcast_to(few, counts.shape)
    pull = max(PULLS if ordered else MIXED_PULLS, key=lambda rows: evidence(counts, rows * few))
    drawn = counts + RESIDUE * below + pull * few
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------------- forests


def strongly_joined(tables: TablesOfPairs) -> set[int]:
    """Ordered columns that another one tells so well that their states are too coarse for it."""
    joined: set[int] = set()
    for i, j in tables.pairs:
        counted = tables.pair(i, j, False)
        if tables.columns[i].ordered and tables.columns[j].ordered:
            wholes = [grouped(tables.columns[c].shares, g)
                      for c, g in zip((i, j), counted.groups, strict=True)]  # fmt: skip
            if abs(correlation(counted.rows[0], *wholes)) >= COLLINEAR:
                joined |= {i, j}
    return joined


def worth_of_edges(tables: TablesOfPairs, by_class: bool) -> Array:
    """What edges gain (columns, columns): nats per row that has both columns, less their cost. By
    class, the class itself has none."""
    number = len(tables.columns)
    worth = np.full((number, number), -1.0)
    for i in range(number):
        for j in range(i):
            if by_class and tables.known in (i, j):
                continue
            counted = tables.pair(i, j, by_class).rows
            ordered = tables.columns[i].ordered and tables.columns[j].ordered
            gains = [_worth(rows, ordered) * rows.sum() for rows in counted]
            worth[i, j] = worth[j, i] = sum(gains) / max(float(counted.sum()), 1.0)
    return worth


def _worth(rows: Array, ordered: bool) -> float:
    gain = information_left(rows)
    return max(gain, normal_information_left(rows)) if ordered else gain


def differing_forests(worth: Array, number: int) -> list[Edges]:
    """The best forest, and others that avoid edges of those before."""
    forests: list[Edges] = []
    left = worth.copy()
    for _ in range(number):
        forests.append(spanning_tree(left, 0.0))
        for column, parent in forests[-1]:
            if parent >= 0:
                left[column, parent] *= AVOIDED
                left[parent, column] *= AVOIDED
    return forests


class ForestModel:
    """A forest with its tables, of all rows or by class."""

    def __init__(self, tables: TablesOfPairs, edges: Edges, by_class: bool) -> None:
        self.tables, self.edges, self.by_class = tables, edges, by_class
        self.shares = [class_shares(tables, c, by_class) for c in range(len(tables.columns))]
        self.within = 0.0  # nats per row that copulas gain within groups, if they are right
        every = [self._tables(column, parent) for column, parent in edges]
        self.components = [list(own) for own in zip(*every, strict=True)]

    def _tables(self, column: int, parent: int) -> list[Array]:
        """Of an edge, for every component."""
        if parent < 0:
            return [line[None] for line in self.shares[column]]
        counted = self.tables.pair(parent, column, self.by_class)
        ordered = [self.tables.columns[c].ordered for c in (parent, column)]
        first, second = counted.groups
        states = [
            (States(above, first, ordered[0]), States(below, second, ordered[1]))
            for above, below in zip(self.shares[parent], self.shares[column], strict=True)
        ]
        rs = correlations(counted.rows, states)
        weights = component_weights(self.tables, self.by_class)
        self.within += sum(
            weight * copula_left(r, above, below)
            for weight, (above, below), r in zip(weights, states, rs, strict=True)
        )
        joints = [
            joint_of(rows, above, below, r)
            for rows, (above, below), r in zip(counted.rows, states, rs, strict=True)
        ]
        return [joint / joint.sum(axis=1, keepdims=True) for joint in joints]

    def mixed(self) -> MixedForests:
        weights = component_weights(self.tables, self.by_class)
        return MixedForests(weights, [(self.edges, own) for own in self.components])

    def gain(self, held: TablesOfPairs) -> float:
        """Nats per row that rows held back gain over independent columns."""
        roots = [column for column, parent in self.edges if parent < 0]
        gained = class_gain(held, self.shares, roots, self.by_class)
        for at, (column, parent) in enumerate(self.edges):
            if parent >= 0:
                counted = held.pair(parent, column, self.by_class)
                whole = self.tables.columns[column].shares
                logs = [self._logs(at, q, counted, whole) for q in range(len(counted.rows))]
                gained += _per_row(counted.rows, np.stack(logs))
        return gained

    def _logs(self, at: int, component: int, counted: StateCounts, share: Array) -> Array:
        """What an edge says of rows with states of these groups, nats (groups, groups)."""
        above = self.shares[self.edges[at][1]][component]
        joint, apart = above[:, None] * self.components[component][at], above[:, None] * share
        wholes = [np.maximum(grouped(grouped(own, counted.groups[1]).T, counted.groups[0]).T, LEAST)
                  for own in (joint, apart)]  # fmt: skip
        return np.asarray(np.log(wholes[0] / wholes[1]))


def component_weights(tables: TablesOfPairs, by_class: bool) -> Array:
    if not by_class:
        return np.ones(1)
    return np.asarray((tables.of_classes + 1) / (tables.of_classes + 1).sum())


def class_shares(tables: TablesOfPairs, column: int, by_class: bool) -> Array:
    """Shares of states (components, states): of the class, in the component of a class, itself."""
    if not by_class or column != tables.known:
        return tables.shares(column, by_class)
    rows = tables.columns[column].rows
    own = np.eye(len(rows)) + OWN_CLASS * rows / max(rows.sum(), 1.0) ** 2
    return np.asarray(own / own.sum(axis=1, keepdims=True))


def class_gain(
    held: TablesOfPairs, shares: Sequence[Array], columns: Sequence[int], by_class: bool
) -> float:
    """What rows held back gain by what a class says of these columns."""
    gained = 0.0
    for column in columns:
        if not by_class or column == held.known:
            continue
        rows, groups = held.singles[column].rows[:-1], held.singles[column].groups[0]
        whole = grouped(held.columns[column].shares, groups)
        gained += _per_row(rows, np.log(np.maximum(grouped(shares[column], groups), LEAST) / whole))
    return gained


def _per_row(rows: Array, logs: Array) -> float:
    return float((rows * logs).sum()) / max(float(rows.sum()), 1.0)

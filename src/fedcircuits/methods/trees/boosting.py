"""Boosted trees of one party, or of several that hold the same columns and decide every split
together: the trees are those of all their rows in one place, to the last bit.

All members add up (Collective) and hear what follows; a hub's server is a member without rows.

    boost/classes     how many of a party's rows have which class. To all: the sums.
    boost/known/q     how many of its rows have a value of each number. To all: the sums.
    boost/below/q/b   how many of these are below each edge, at bit b of the edge. To all: whether
                      edges are to rise. At the end all know quantiles of every number over all
                      rows (q: all of them, or those beside frequent values), each of which is the
                      value of some row.
    boost/sums/t/d    sums of gradients and curvatures of its rows (learning/gradient_trees.py) for
                      each node of level d of tree t and each cell of each column. To all: the
                      question of every node, and these sums over the rows of its two children.

No row crosses. Whoever adds up learns sums of every party for cells that may hold one row; under a
summation that hides its inputs nobody does. Members learn the trees, and sums over all their rows,
which of two parties are the other's; no child has less curvature than 1, that is at least four rows
of weight 1. A party alone sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.collectives import Check, Collective, Then
from fedcircuits.methods.trees.flat_tree import FlatTree
from fedcircuits.methods.trees.gradient_trees import (
    Cells,
    Sapling,
    Whole,
    best_splits,
    gradients,
    outputs_of,
    single,
)
from fedcircuits.tables.schema import Schema

BINS, ROWS_OF_A_BIN = 128, 16  # at most, at least
DEPTH = 4
PACE = 10.0  # rate × trees: fewer trees take longer steps
BITS = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """What one member brings in."""

    schema: Schema  # of the columns that trees read
    x: Array  # (rows, columns)
    y: Whole  # (rows,): classes
    weight: Array  # (rows,)

    @classmethod
    def none(cls, schema: Schema) -> Rows:
        return cls(schema, np.zeros((0, len(schema))), np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Alone:
    """The summation of one member."""

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        yield from ()
        return value if then is None else then(value)

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        yield from ()
        return value


def grow(rows: Rows, base: Array, trees: int, summation: Collective) -> Flow[list[FlatTree]]:
    """``base`` (classes,): their shares in the weighted rows of all members."""
    edges = yield from _edges(rows, summation)
    cells = Cells.of(rows.schema, edges)
    codes = cells.codes(rows.x)
    scores = np.zeros((len(rows.x), outputs_of(len(base))))
    grown: list[FlatTree] = []
    for t in range(trees):
        terms = gradients(scores, base, rows.y, rows.weight)
        sapling = Sapling.planted(cells, codes)
        for depth in range(DEPTH):
            tag, told = f"boost/sums/{t}/{depth}", "sums of gradients in nodes and cells"
            total = sapling.histogram(terms)
            chosen = yield from summation.sum(tag, total, told, lambda s: best_splits(s, cells))
            sapling.split(chosen)
            if not sapling.level:
                break
        tree, moved = sapling.grown(min(1.0, PACE / trees), base)
        scores += moved[sapling.place]
        grown.append(tree)
    return grown


def grow_alone(rows: Rows, base: Array, trees: int) -> list[FlatTree]:
    try:
        next(grow(rows, base, trees, Alone()))
    except StopIteration as stop:
        found: list[FlatTree] = stop.value
        return found
    raise AssertionError("a party alone has nothing to wait for")


# ---------------------------------------------------------------------- quantiles of all rows


def _edges(rows: Rows, summation: Collective) -> Flow[list[Array]]:
    """Values that cut every number into cells.

    Half of them are quantiles of all rows, and half of the rows beside values so frequent that they
    are several of these: nine in ten capital gains are 0, and what matters is how much the others
    are.
    """
    numbers = [rows.x[:, i] for i, v in enumerate(rows.schema) if not v.size]
    own = [np.sort(_keys(x[~np.isnan(x)])) for x in numbers]
    if not own:
        return []
    every = yield from _quantiles(own, summation, "all")
    often = [e[:-1][np.diff(e) == 0] for e in every]
    rest = [k[~np.isin(k, o)] for k, o in zip(own, often, strict=True)]
    others = yield from _quantiles(rest, summation, "others")
    return [_values(np.unique(e[e > 0])) for e in np.hstack([every, others])]  # 0: of no rows


def _quantiles(own: list[Whole], summation: Collective, of: str) -> Flow[Whole]:
    """(numbers, edges): the least key that a share of the rows does not exceed, bit by bit."""
    count = np.array([len(k) for k in own], float)
    told = "how many rows have a value of each number"
    known = yield from summation.sum(f"boost/known/{of}", count, told)
    edges = max(1, min(BINS // 2, int(known.max() / ROWS_OF_A_BIN)))
    wanted = known[:, None] * (np.arange(edges) + 0.5) / edges
    edge = np.zeros(wanted.shape, np.int64)
    told = "how many rows are below each edge"
    for bit in reversed(range(BITS)):
        tried = edge + (1 << bit) - 1
        below = np.array([np.searchsorted(k, e, "right") for k, e in zip(own, tried, strict=True)])
        rise = yield from summation.sum(
            f"boost/below/{of}/{bit}",
            below.astype(float),
            told,
            lambda s: np.asarray(s < wanted, np.float64),
        )
        edge += (rise > 0).astype(np.int64) << bit
    return edge


def _keys(x: Array) -> Whole:
    """Whole numbers from 0 to 2³² − 1 in the order of x in single precision."""
    bits = (single(x) + 0.0).astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -1 - bits - (1 << 31), bits) + (1 << 31)


def _values(keys: Whole) -> Array:
    """What ``_keys`` came from."""
    bits = keys - (1 << 31)
    bits = np.where(bits < 0, -1 - bits - (1 << 31), bits)
    return bits.astype(np.int32).view(np.float32).astype(np.float64)

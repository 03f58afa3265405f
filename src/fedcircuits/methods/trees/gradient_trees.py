"""Trees of gradient boosting from sums over cells: splits are chosen without access to rows.

A tree corrects the errors of the trees before it. With scores f (rows, outputs), the gradient
g = y − P(y | f) and the curvature h = P (1 − P) of every row, a node with the sums G and H over its
rows moves its scores by the Newton step G / (H + SMOOTH), and gains Σ G² / (H + SMOOTH). Two
classes have one score, the log-odds of the second; more have one each, moved by one tree.

Every column is cut into cells: a number at edges (edges.py), a category by its codes, and a cell
for what is missing. Sums of g and h over the rows of a node in every cell are all that a split is
chosen by:

    number        x ≤ edge: cells up to it against those above; so also codes of two categories, and
                  of more than MOST_CODES
    category      one code against all others

and missing values go where the gain is larger. Gradients are rounded to multiples of GRID, so that
sums are exact in float64 up to 2²⁹ rows: the tree is the same to the last bit, no matter who holds
the rows and in which order they are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.methods.trees.decision_tree import MOST_CODES, FlatTree, Integers, Truths, single
from fedcircuits.tables.schema import Schema

GRID = 2.0**-24
SMOOTH = 1.0
LEAST = 1.0  # curvature of a child, or more: a row has at most 1/4
LARGEST = 4.0  # step of a score, before it is scaled by the rate


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of all columns, one after the other; a column's last one is of missing values."""

    edges: tuple[Array | None, ...]  # of every column: a number's cells end there; None: codes
    column: Integers  # (cells,)
    category: Integers  # (cells,): the code that a cell asks for, −1 for numbers
    threshold: Array  # (cells,): the number that a cell ends at
    asks: Truths  # (cells,): whether there is a question of it
    first: Integers  # (columns,)
    missing: Integers  # (columns,)

    @classmethod
    def of(cls, schema: Schema, numbers: Sequence[Array]) -> Cells:
        """``numbers``: the rising edges of each number."""
        left, edges = iter(numbers), []
        for v in schema:
            codes = None if 2 < v.size <= MOST_CODES else np.arange(v.size - 1.0)
            edges.append(codes if v.size else next(left))
        sizes = [v.size if e is None else len(e) + 1 for v, e in zip(schema, edges, strict=True)]
        ends = np.cumsum([s + 1 for s in sizes])
        column = np.repeat(np.arange(len(sizes)), [s + 1 for s in sizes])
        category, threshold = np.full(len(column), -1), np.zeros(len(column))
        asks = np.ones(len(column), np.bool_)
        for e, size, end in zip(edges, sizes, ends.tolist(), strict=True):
            cells = slice(end - size - 1, end - 1)
            if e is None:
                category[cells] = np.arange(size)
            else:
                threshold[cells] = [*e, 0.0]
                asks[end - 2] = False  # all that is known is in its cells
        asks[ends - 1] = False
        first = np.asarray(ends - sizes - 1, np.int64)
        return cls(tuple(edges), column, category, threshold, asks, first, ends - 1)

    def codes(self, x: Array) -> Integers:
        """The cell of every value of x (rows, columns)."""
        codes = np.empty(x.shape, np.int64)
        for i, edges in enumerate(self.edges):
            value = x[:, i]
            known = np.where(np.isnan(value), 0.0, value)
            if edges is not None:
                known = np.searchsorted(edges, single(known), side="left")
            at = self.first[i] + known.astype(np.int64)
            codes[:, i] = np.where(np.isnan(value), self.missing[i], at)
        return codes


# ---------------------------------------------------------------------- gradients


def probabilities(scores: Array, base: Array) -> Array:
    """(rows, classes) from scores (rows, outputs); ``base``: shares of the classes at score 0."""
    possible = base > 0
    logits = np.tile(np.log(np.where(possible, base, 1.0)), (len(scores), 1))
    logits[:, -scores.shape[1] :] += scores
    logits = np.where(possible, logits, -np.inf)
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(likely / likely.sum(axis=1, keepdims=True))


def outputs_of(classes: int) -> int:
    return 1 if classes == 2 else classes


def gradients(scores: Array, base: Array, y: Integers, weight: Array) -> Array:
    """g and h of every row side by side, (rows, 2 outputs)."""
    outputs = scores.shape[1]
    p = probabilities(scores, base)[:, -outputs:]
    truth = np.eye(len(base))[y][:, -outputs:]
    both = np.hstack([truth - p, p * (1 - p)]) * weight[:, None]
    return np.asarray(np.round(both / GRID) * GRID)


# ---------------------------------------------------------------------- splits


def best_splits(total: Array, cells: Cells, least: float = LEAST) -> Array:
    """(nodes, 2 + 2 terms) of a histogram: the cell asked for or −1, whether missing values go
    first, and the terms of both children, whose curvature is at least ``least``."""
    node = total[:, cells.first[0] : cells.missing[0] + 1].sum(axis=1)[:, None]
    missing = total[:, cells.missing[cells.column]]  # (nodes, cells, terms)
    first = _below(total, cells)
    first = np.where((cells.category >= 0)[None, :, None], node - missing - total, first)
    options = np.stack([first, first + missing])  # missing values second, first
    gain = _gain(options) + _gain(node - options) - _gain(node)
    enough = np.minimum(_curvature(options), _curvature(node - options)) >= least
    gain = np.where(enough & cells.asks, gain, -np.inf)
    # where nothing is missing both are the same, and missing values go to the larger side
    larger = _curvature(first) > _curvature(node - first)
    gain[1] = np.where((missing == 0).all(axis=2) & ~larger, -np.inf, gain[1])
    gain[0] = np.where((missing == 0).all(axis=2) & larger, -np.inf, gain[0])
    nodes = np.arange(len(total))
    side, cell = np.divmod(gain.transpose(1, 0, 2).reshape(len(total), -1).argmax(1), gain.shape[2])
    good = gain[side, nodes, cell] > 0
    chosen = options[side, nodes, cell]
    return np.column_stack([np.where(good, cell, -1), side, chosen, node[:, 0] - chosen])


def sums_problem(total: Array, rows: float) -> str:
    """What is wrong with terms (…, terms) summed over this many rows, "" if nothing."""
    g, h = np.split(total, 2, axis=-1)
    most = 1.01 * rows + 1  # weights of rows add up to no more than their number
    sound = (np.abs(g) <= most).all() and (h > -SMOOTH / 2).all() and (h <= most).all()
    return "" if sound else f"expected sums of gradients and curvatures of {rows:.0f} rows"


def splits_problem(chosen: Array, shape: tuple[int, int], cells: Cells, rows: float) -> str:
    """What is wrong with splits that somebody else has chosen, "" if nothing."""
    if chosen.shape != shape:
        return f"expected splits of the shape {shape}, got {chosen.shape}"
    cell, side = chosen[:, 0], chosen[:, 1]
    known = (cell >= -1) & (cell < len(cells.asks)) & ((side == 0) | (side == 1))
    at = np.where(known, cell, -1).astype(np.int64)
    if not (known & (at == cell) & (cells.asks[at] | (at < 0))).all():
        return "expected questions that columns can be asked"
    return sums_problem(chosen[:, 2:].reshape(len(chosen), 2, -1), rows)


def _below(total: Array, cells: Cells) -> Array:
    """Sums over a column's cells up to each one."""
    running = np.cumsum(total, axis=1)
    before = running[:, cells.first] - total[:, cells.first]
    return np.asarray(running - before[:, cells.column])


def _curvature(terms: Array) -> Array:
    return np.asarray(terms[..., terms.shape[-1] // 2 :].max(axis=-1))


def _gain(terms: Array) -> Array:
    g, h = np.split(terms, 2, axis=-1)
    return np.asarray((g**2 / (h + SMOOTH)).sum(axis=-1))


def steps(terms: Array, rate: float) -> Array:
    """Newton steps of scores (nodes, outputs) from terms of nodes."""
    g, h = np.split(terms, 2, axis=-1)
    return np.asarray(rate * np.clip(g / (h + SMOOTH), -LARGEST, LARGEST))


# ---------------------------------------------------------------------- a tree that grows


@dataclass(slots=True)
class GrowingTree:
    """A tree in growth, level by level, and where the rows of one party are in it."""

    cells: Cells
    codes: Integers  # (rows, columns)
    node: Integers  # (rows,): of the last level, −1 for rows that have arrived
    place: Integers  # (rows,): of the whole tree
    level: list[int]  # nodes of the last level, by their places in the tree
    children: list[list[int]]
    question: list[tuple[int, bool]]  # cell, and whether missing values go first
    terms: list[Array]

    @classmethod
    def planted(cls, cells: Cells, codes: Integers) -> GrowingTree:
        rows = np.zeros(len(codes), np.int64)
        return cls(cells, codes, rows, rows.copy(), [0], [[-1, -1]], [(-1, False)], [])

    def histogram(self, terms: Array) -> Array:
        """Sums of terms (rows, terms) by node of the last level and cell, (nodes, cells, terms)."""
        active, nodes, cells = self.node >= 0, len(self.level), len(self.cells.column)
        at = (self.node[active, None] * cells + self.codes[active]).ravel()
        columns = self.codes.shape[1]
        sums = [
            np.bincount(at, np.repeat(term, columns), nodes * cells).reshape(nodes, cells)
            for term in terms[active].T
        ]
        return np.stack(sums, axis=2)

    def sums(self, terms: Array) -> Array:
        """Sums of terms (rows, terms) by the current node of rows, (nodes, terms)."""
        nodes = len(self.children)
        return np.stack([np.bincount(self.place, term, nodes) for term in terms.T], axis=1)

    def split(self, chosen: Array) -> None:
        """Split the last level as ``best_splits`` has chosen."""
        width = (chosen.shape[1] - 2) // 2
        if not self.terms:
            self.terms.append(chosen[0, 2 : 2 + width] + chosen[0, 2 + width :])
        new = np.full((len(self.level), 2), -1)  # places of children
        for i, row in enumerate(chosen):
            if row[0] < 0:
                continue
            at = self.level[i]
            self.question[at] = (int(row[0]), bool(row[1]))
            new[i] = self.children[at] = [len(self.children), len(self.children) + 1]
            self.children += [[-1, -1], [-1, -1]]
            self.question += [(-1, False)] * 2
            self.terms += [row[2 : 2 + width], row[2 + width :]]
        self._move(chosen[:, :2].astype(np.int64), new)

    def _move(self, chosen: Integers, new: Integers) -> None:
        """Rows of the last level to the children of their nodes."""
        rows = np.flatnonzero(self.node >= 0)
        at = self.node[rows]
        cell, missing_first = chosen[at, 0], chosen[at, 1] > 0
        column = self.cells.column[cell]  # of a cell −1 it does not matter
        code = self.codes[rows, column]
        yes = np.where(self.cells.category[cell] < 0, code <= cell, code != cell)
        first = np.where(code == self.cells.missing[column], missing_first, yes)
        child = new[at, np.where(first, 0, 1)]
        stays = child < 0
        self.place[rows] = np.where(stays, self.place[rows], child)
        self.level = [int(n) for pair in new for n in pair if n >= 0]
        begin = self.level[0] if self.level else 0
        self.node[rows] = np.where(stays, -1, child - begin)

    def grown(self, rate: float, base: Array) -> tuple[FlatTree, Array]:
        """The tree, whose values are probabilities at score 0, and steps of all nodes."""
        cell = np.maximum([c for c, _ in self.question], 0)
        moved = steps(np.array(self.terms), rate)
        tree = FlatTree(
            children=np.array(self.children),
            column=self.cells.column[cell],
            category=self.cells.category[cell],
            threshold=self.cells.threshold[cell],
            missing_first=np.array([m for _, m in self.question]),
            value=probabilities(moved, base),
        )
        return tree, moved

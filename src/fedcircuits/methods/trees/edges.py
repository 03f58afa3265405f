"""Cutting numeric columns into cells, at numbers of a public grid, none of which is a row's value.

The grid is the ordered set of single-precision numbers, each written as eight digits to the base
16: sign and exponent first, so that the first digits separate powers of two and later ones halve
intervals. Blocks of the grid, those (a, b] whose numbers begin with the same digits, end at round
numbers. A block that holds many rows is divided by its next digit, one that holds few never is:

    boost/known      its number of observed values in each numeric column. To all: the sums.
    boost/blocks/d   how many rows lie in each of the 16 parts of every block that is divided at
                     digit d. To all: which parts are divided further, and after which a cell
                     may end.
    boost/cells      how many rows lie between any two such ends. To all: which ends are edges.

A block is divided if it holds 1/256 of the rows that have the number, and twice the least number
of rows of a cell. A number that this many rows share ends up as a separate block. Cells hold 1/64
of the remaining rows, if there are enough, and never fewer than 16 or than ``least``. The rule
depends only on sums over all rows: the edges do not depend on who holds the rows. The ends of the
range are never sent; cells below the first edge and above the last are open.

With noise (differential privacy) the same is done with noisy counts, for half of the digits. A row
has one position in every column, so each of these releases has the sensitivity √columns. Cells hold
at least three deviations of the noise, and divided blocks twice that.

The member that adds up learns the counts of every party, which may be of single rows. With a
summation that hides its inputs, all learn the sums of counts and nobody those of a single party.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, sqrt

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.sums.checked import CheckedSums, counts_problem, noisy_problem
from fedcircuits.federation.sums.collectives import Check, Then
from fedcircuits.methods.trees.decision_tree import Integers, Truths, single
from fedcircuits.privacy.differential import Noise
from fedcircuits.tables.table import Table

BITS, DIGIT = 32, 4  # of a number of the grid, and of one of its digits
PARTS = 1 << DIGIT
BLOCKS, CELLS, FREQUENT = 256, 64, 32  # of the rows of a number: 1/256 …
LEAST_ROWS = 16  # of a cell, of all parties
NOISY_DIGITS = 4  # sign, exponent and seven bits
INTERVALS = "its number of rows in each interval of a public grid"
NOTHING, ENDS, DIVIDES = 0.0, 1.0, 2.0  # what becomes of a part


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of the grid that begin with the same number of digits."""

    column: Integers  # (blocks,): of the numbers
    start: Integers  # (blocks,): the first place of the grid
    shift: int  # they are 2^shift places long

    @property
    def ends(self) -> Integers:
        """(blocks, 16): the place after the last one of every part."""
        length = 1 << (self.shift - DIGIT)
        return np.asarray(self.start[:, None] + length * np.arange(1, PARTS + 1))

    def counts(self, places: Sequence[Integers]) -> Array:
        """(blocks, 16): how many of the places, which rise in every column, lie in every part."""
        bounds = np.column_stack([self.start, self.ends])
        counts = [
            np.diff(np.searchsorted(places[c], b)) for c, b in zip(self.column, bounds, strict=True)
        ]
        return np.array(counts, np.float64).reshape(len(bounds), PARTS)

    def divided(self, what: Array) -> Blocks:
        """The parts of which it was said (blocks, 16) that they are divided."""
        block, part = np.nonzero(what == DIVIDES)
        shift = self.shift - DIGIT
        return Blocks(self.column[block], self.start[block] + (part << shift), shift)


def edges_of(
    x: Table,
    sums: CheckedSums,
    rows: float,
    least: int,
    noise: Noise | None = None,
    share: float = 1.0,
) -> Flow[list[Array]]:
    """The edges of every number, rising; ``rows``: of all parties, ``least``: of a cell; ``share``
    of the privacy budget."""
    numbers = [x.values[:, i] for i, v in enumerate(x.schema) if not v.size]
    places = [np.sort(places_of(n[~np.isnan(n)])) for n in numbers]
    if not places:
        return []
    digits = BITS // DIGIT if noise is None else NOISY_DIGITS
    counts = RowCounts(sums, noise, sqrt(len(places)), share / (digits + 2))
    sizes = np.array([len(p) for p in places], np.float64)
    about = "its number of observed values in each numeric column"
    known = yield from counts.add("boost/known", sizes, about, np.full(len(places), rows))
    least = ceil(max(least, LEAST_ROWS, 3 * counts.deviation))
    many = np.maximum(2 * least, known / BLOCKS)
    blocks = Blocks(np.arange(len(places)), np.zeros(len(places), np.int64), BITS)
    blocks = _some(blocks, known >= many)
    ends: list[set[int]] = [set() for _ in places]
    for digit in range(digits):
        if not len(blocks.start):
            break
        what = yield from _divided(blocks, places, counts, digit, known, many, least)
        for c, stops, parts in zip(blocks.column, blocks.ends, what, strict=True):
            before = np.append(parts[1:] == DIVIDES, False)
            ends[c].update(stops[(parts > NOTHING) | before].tolist())
        blocks = blocks.divided(what)
    tried = [np.array(sorted(e - {1 << BITS}), np.int64) for e in ends]
    kept = yield from _kept(tried, places, counts, known, least)
    edges = [_numbers(t[k]) for t, k in zip(tried, kept, strict=True)]
    finite = all(np.isfinite(e).all() for e in edges)
    if noise is None:
        sums.refuse("boost/blocks", "" if finite else "expected rows in blocks of numbers")
    return [e[np.isfinite(e)] for e in edges]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of rows that are added up, perhaps with noise."""

    sums: CheckedSums
    noise: Noise | None
    sensitivity: float
    share: float  # of the privacy budget, of each release

    @property
    def deviation(self) -> float:
        """The deviation of the noise of the sums."""
        return self.noise.total_deviation(self.sensitivity, self.share) if self.noise else 0.0

    def add(
        self, tag: str, counts: Array, reveals: str, most: Array,
        then: Then | None = None, check: Check | None = None,
    ) -> Flow[Array]:  # fmt: skip
        """``most``: what a sum can be at most."""
        if self.noise is None:
            fits = partial(counts_problem, most=most)
            return (yield from self.sums.add(tag, counts, reveals, fits, then, check))
        counts = self.noise.added(tag, counts, self.sensitivity, self.share)
        fits = partial(noisy_problem, most=most, deviation=self.deviation)
        return (yield from self.sums.add(tag, counts, f"noisy {reveals}", fits, then, check))


def _some(blocks: Blocks, chosen: Truths) -> Blocks:
    return Blocks(blocks.column[chosen], blocks.start[chosen], blocks.shift)


# ---------------------------------------------------------------------- blocks


def _divided(
    blocks: Blocks,
    places: Sequence[Integers],
    counts: RowCounts,
    digit: int,
    known: Array,
    many: Array,
    least: int,
) -> Flow[Array]:
    """(blocks, 16): what becomes of every part."""
    held = blocks.counts(places)
    most, enough = known[blocks.column, None], many[blocks.column, None]
    then = partial(_parts, enough=enough, least=least)
    said = partial(_said_problem, surely=(held >= enough) & (counts.noise is None))
    most = np.repeat(most, PARTS, axis=1)
    return (yield from counts.add(f"boost/blocks/{digit}", held, INTERVALS, most, then, said))


def _parts(total: Array, enough: Array, least: int) -> Array:
    """A part with enough rows is divided; between such parts a cell may end once it has some."""
    what = np.where(total >= enough, DIVIDES, NOTHING)
    for counts, parts in zip(total, what, strict=True):
        rows = 0.0
        for i in range(PARTS):
            rows = rows + counts[i] if parts[i] == NOTHING else 0.0
            if parts[i] == NOTHING and rows >= least:
                parts[i], rows = ENDS, 0.0
    return what


def _said_problem(what: Array, surely: Truths) -> str:
    if what.shape != surely.shape:
        return f"expected words on {surely.shape} parts, got {what.shape}"
    sound = np.isin(what, (NOTHING, ENDS, DIVIDES)).all() and (what[surely] == DIVIDES).all()
    return "" if sound else "expected parts with many rows to be divided"


# ---------------------------------------------------------------------- cells


def _kept(
    tried: Sequence[Integers],
    places: Sequence[Integers],
    counts: RowCounts,
    known: Array,
    least: int,
) -> Flow[list[Truths]]:
    """Which of the ends of every number are edges."""
    stops = np.cumsum([len(t) + 1 for t in tried])[:-1]
    whole = (np.concatenate([[0], t, [1 << BITS]]) for t in tried)
    held = [np.diff(np.searchsorted(p, w)) for p, w in zip(places, whole, strict=True)]
    most = np.repeat(known, [len(o) for o in held])

    def then(total: Array) -> Array:
        cells = zip(np.split(total, stops), known, strict=True)
        return np.concatenate([chosen_ends(c, float(k), least) for c, k in cells]).astype(float)

    chosen = partial(counts_problem, most=np.ones(len(most)))
    rows = np.concatenate(held).astype(np.float64)
    flags = yield from counts.add("boost/cells", rows, INTERVALS, most, then, chosen)
    return [f[:-1] > 0 for f in np.split(flags, stops)]


def chosen_ends(counts: Array, rows: float, least: float) -> Truths:
    """After which intervals (intervals,) a cell ends: each cell has at least ``least`` rows.

    Frequent intervals are cells of their own; the others are joined until they hold their share.
    """
    frequent = counts >= max(rows / FREQUENT, least)
    enough = max(least, counts[~frequent].sum() / CELLS)
    ends, begun = np.zeros(len(counts), np.bool_), 0.0
    for i, count in enumerate(counts):
        if frequent[i] and begun >= least:
            ends[i - 1], begun = True, 0.0
        begun += count
        if begun >= enough:
            ends[i], begun = True, 0.0
    if len(last := np.flatnonzero(ends)) and begun < least:  # too few for a cell
        ends[last[-1]] = False
    return ends


# ---------------------------------------------------------------------- the grid


def places_of(x: Array) -> Integers:
    """Places of the grid from 0 to 2³² − 1 in the order of x in single precision.

    Places are those of −x backwards, so that blocks end with a round number and do not begin with
    it: trees ask for x ≤ edge.
    """
    bits = (single(-x) + np.float32(0)).view(np.int32).astype(np.int64)
    return (1 << 31) - 1 - np.where(bits < 0, -bits - (1 << 31), bits)


def _numbers(ends: Integers) -> Array:
    """The last number before each of these places."""
    bits = (1 << 31) - ends
    bits = np.where(bits < 0, -bits - (1 << 31), bits)
    return np.asarray(0.0 - bits.astype(np.int32).view(np.float32).astype(np.float64))

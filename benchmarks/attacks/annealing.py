"""A table whose counts are within bounds, by simulated annealing (Kirkpatrick et al. 1983).

A state is a whole table of cells. A step exchanges the cells of two rows in one column, so that
every column keeps its cells. The cost is how far counts are from their bounds, squared; worse
tables are accepted the less often the cooler it is. At cost 0 nothing received contradicts the
table. Where tables of pairs leave several possible, every start ends at another one.
"""

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np

from benchmarks.attacks.received import Bounds

WITHIN = 0.9  # of the exchanges: between rows of one class


@dataclass(frozen=True)
class Compiled:
    """Bounds as arrays. ``only``: pairs of which every count is known alone."""

    sizes: Any
    starts: Any
    only: Any  # (columns, columns) of booleans
    counts: Any  # (codes,) of pairs that are known so
    first: Any  # (codes + 1,) of the sets of each code
    sets: Any
    low: Any
    high: Any


def compiled(found: Bounds) -> Compiled:
    sizes = np.array([len(column.rows) for column in found.columns])
    counts = np.full(found.codes, -1, np.int64)
    for codes, low, high in zip(found.sets, found.low, found.high, strict=True):
        if len(codes) == 1 and low == high:
            counts[codes[0]] = low
    width, only = len(found.classes), np.zeros(found.starts.shape, bool)
    single = np.zeros(found.codes, bool)
    for i in range(len(sizes)):
        for j in range(i + 1, len(sizes)):
            of = slice(found.starts[i, j], found.starts[i, j] + width * sizes[i] * sizes[j])
            only[i, j] = single[of] = (counts[of] >= 0).all()
    others = [n for n, codes in enumerate(found.sets) if not single[codes].all()]
    code = np.concatenate([np.zeros(0, np.int64), *(found.sets[n] for n in others)])
    number = np.repeat(np.arange(len(others)), [len(found.sets[n]) for n in others])
    first = np.searchsorted(np.sort(code), np.arange(found.codes + 1))
    low = np.array([found.low[n] for n in others], np.int64)
    high = np.array([found.high[n] for n in others], np.int64)
    order = np.argsort(code, kind="stable")
    return Compiled(sizes, found.starts, only, counts, first, number[order], low, high)


def started(found: Bounds, rng: np.random.Generator) -> tuple[Any, Any]:
    """Classes of rows, and a table with the cells of each column in random order."""
    classes = np.repeat(np.arange(len(found.classes)), found.classes)
    table = np.stack([_dealt(found, at, rng) for at in range(len(found.columns))], axis=1)
    return classes, table


def _dealt(found: Bounds, at: int, rng: np.random.Generator) -> Any:
    """What is said of a class where it is, and what is left anywhere."""
    left, cells = found.columns[at].rows.copy(), []
    for rows, number in zip(found.shares[at], found.classes, strict=True):
        own = np.repeat(np.arange(len(rows)), rows)[:number]
        cells.append(rng.permutation(np.append(own, np.full(number - len(own), -1))))
    dealt = np.concatenate(cells)
    have = np.bincount(dealt[dealt >= 0], minlength=len(left))
    for state in np.flatnonzero(have > left):
        dealt[rng.permutation(np.flatnonzero(dealt == state))[: have[state] - left[state]]] = -1
    gaps = np.flatnonzero(dealt < 0)
    have = np.bincount(dealt[dealt >= 0], minlength=len(left))
    rest = np.repeat(np.arange(len(left)), np.maximum(left - have, 0))
    dealt[gaps] = rng.permutation(rest)[: len(gaps)]
    return dealt


def cost_of(bounds: Compiled, classes: Any, table: Any) -> int:
    """How far the table is from what was received."""
    return int(_cost(*_counted(bounds, classes, table), bounds.low, bounds.high))


def annealed(
    bounds: Compiled, classes: Any, table: Any, steps: int, hot: float, cold: float, seed: int
) -> tuple[int, Any]:
    """The cost and the table that it ends with; it begins with this one."""
    table = table.copy()
    lacks, held = _counted(bounds, classes, table)
    state = np.random.default_rng(seed).integers(1, 1 << 63, 1).astype(np.uint64)
    ends = np.searchsorted(classes, np.arange(classes[-1] + 2))
    cost = _anneal(
        table, classes, ends, bounds.sizes, bounds.starts, bounds.only, lacks, bounds.first,
        bounds.sets, held, bounds.low, bounds.high, steps, hot, cold, state,
    )  # fmt: skip
    return int(cost), table


def _counted(bounds: Compiled, classes: Any, table: Any) -> tuple[Any, Any]:
    """What counts lack of those that are known alone, and how many rows are in every set."""
    codes, width = [], table.shape[1]
    for i in range(width):
        for j in range(i + 1, width):
            pair = (classes * bounds.sizes[i] + table[:, i]) * bounds.sizes[j] + table[:, j]
            codes.append(bounds.starts[i, j] + pair)
    rows = np.bincount(np.concatenate(codes), minlength=len(bounds.counts))
    held = np.zeros(len(bounds.low), np.int64)
    of_code = np.repeat(rows, np.diff(bounds.first))
    np.add.at(held, bounds.sets, of_code)
    return np.where(_alone(bounds), rows - bounds.counts, 0), held


def _alone(bounds: Compiled) -> Any:
    """Codes whose counts are known; of those of some pairs nothing is."""
    return (np.diff(bounds.first) == 0) & (bounds.counts >= 0)


@nb.njit(cache=True)  # type: ignore[misc]
def _cost(lacks: Any, held: Any, low: Any, high: Any) -> int:
    cost = 0
    for lack in lacks:
        cost += lack * lack
    for s in range(len(held)):
        cost += _off(held[s], low[s], high[s])
    return cost


@nb.njit(inline="always")  # type: ignore[misc]
def _off(number: int, low: int, high: int) -> int:
    away = max(low - number, number - high, 0)
    return away * away


@nb.njit(cache=True)  # type: ignore[misc]
def _moved(code: int, by: int, first: Any, sets: Any, held: Any, low: Any, high: Any) -> int:
    """What the cost gains by so many rows more of a code."""
    gained = 0
    for at in range(first[code], first[code + 1]):
        s = sets[at]
        before = _off(held[s], low[s], high[s])
        held[s] += by
        gained += _off(held[s], low[s], high[s]) - before
    return gained


@nb.njit(inline="always")  # type: ignore[misc]
def _drawn(state: Any) -> float:
    """Uniform from 0 to 1 (xorshift64*, Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) / 9007199254740992.0


@nb.njit(cache=True)  # type: ignore[misc]
def _anneal(
    table, classes, ends, sizes, starts, only, lacks, first, sets, held, low, high, steps, hot,
    cold, state,
):  # type: ignore[no-untyped-def]  # fmt: skip
    rows, width = table.shape
    cost = _cost(lacks, held, low, high)
    alone, bounded = np.empty((width, 4), np.int64), np.empty((width, 4), np.int64)
    cooled, heat = (cold / hot) ** (1.0 / steps), hot
    for _ in range(steps):
        if cost == 0:
            break
        heat *= cooled
        j, r = int(_drawn(state) * width), int(_drawn(state) * rows)
        begin, end = 0, rows
        if _drawn(state) < WITHIN:
            begin, end = ends[classes[r]], ends[classes[r] + 1]
        s = begin + int(_drawn(state) * (end - begin))
        a, b = table[r, j], table[s, j]
        if a == b:
            continue
        gained, few, many = 0, 0, 0
        for i in range(width):
            p, q = table[r, i], table[s, i]
            if i == j or (p == q and classes[r] == classes[s]):
                continue
            one, other, each = min(i, j), max(i, j), 1 if i < j else sizes[i]
            scale, start = sizes[one] * sizes[other], starts[one, other]
            place = sizes[j] if i < j else 1
            above = start + classes[r] * scale + p * place
            below = start + classes[s] * scale + q * place
            moved = alone[few] if only[one, other] else bounded[many]
            moved[0], moved[1] = above + a * each, above + b * each
            moved[2], moved[3] = below + b * each, below + a * each
            if only[one, other]:
                few += 1
                lost = lacks[moved[0]] + lacks[moved[2]]
                gained += 4 + 2 * (lacks[moved[1]] + lacks[moved[3]] - lost)
            else:
                many += 1
                for k in range(4):
                    gained += _moved(moved[k], 2 * (k % 2) - 1, first, sets, held, low, high)
        if gained <= 0 or _drawn(state) < np.exp(-gained / heat):
            for codes in alone[:few]:
                for k in range(4):
                    lacks[codes[k]] += 2 * (k % 2) - 1
            table[r, j], table[s, j] = b, a
            cost += gained
        else:
            for codes in bounded[:many]:
                for k in range(4):
                    _moved(codes[k], 1 - 2 * (k % 2), first, sets, held, low, high)
    return cost

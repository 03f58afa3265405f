"""Which rows the loops of scaled.py read on the way up and write on the way down, found beforehand.

The inputs of a sum come in parts, one for each of its children. A product that nobody but one sum
reads is never written down: the sum multiplies its children as it goes, and on the way down gives
each of them its share. The first share that a node is given is written and later ones are added to
it, so that the matrix need not be zero beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.inner_nodes import ProductStep, SumStep
from fedcircuits.circuits.evaluation.step import Step

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1


@dataclass(frozen=True, slots=True)
class Reads:
    """What the slots of an inner step read. Products have one part, which is multiplied."""

    rows: Ints  # (folds, parts, factors) first rows, −1 for none
    slots: Ints  # the same shape, 0 for none
    sizes: Ints  # (folds, parts) units, 0 for none
    fresh: Bools  # as rows: nothing has been written there before, on the way down
    passed: bool = False  # products that are never written down

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints, Bools]:
        return self.rows, self.slots, self.sizes, self.fresh


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Reads | None, ...]
    unread: Ints  # rows of leaves that nobody writes on the way down


def plan(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], root: int) -> Plan:
    """For every step, whose slots have these numbers; ``root`` is the slot of the root."""
    read = [_read(step) for step in steps]
    size = 1 + max(int(n.max()) for n in numbers)
    times = np.zeros(size, np.int64)  # every slot is read by sums, or by products
    by_sums = np.zeros(size, bool)
    for step, reads in zip(steps, read, strict=True):
        if reads is not None:
            np.add.at(times, reads.slots, 1)
            by_sums[reads.slots] = isinstance(step, SumStep)
    single = (times == 1) & by_sums
    pairs = zip(steps, numbers, strict=True)
    passed = [isinstance(s, ProductStep) and bool(single[n].all()) for s, n in pairs]
    products = {
        int(number): (reads.rows[f, 0], reads.slots[f, 0])
        for reads, over, slots in zip(read, passed, numbers, strict=True)
        if over and reads is not None
        for f, number in enumerate(slots)
    }
    written = np.zeros(size, bool)
    written[root] = True
    planned: list[Reads | None] = []
    for reads, over in reversed(list(zip(read, passed, strict=True))):
        if reads is not None and over:
            reads = replace(reads, passed=True)
        elif reads is not None:
            reads = _with_products(reads, products)
            reads = replace(reads, fresh=_first(reads.slots, written))
            written[reads.slots] = True
        planned.append(reads)
    return Plan(tuple(reversed(planned)), _unread(steps, numbers, written))


def _read(step: Step[Any, Any]) -> Reads | None:
    if isinstance(step, ProductStep):
        rows = step.rows.index.view(step.arity, step.folds, step.units)[:, :, 0].t().numpy()
        slots = step.children.contiguous().numpy()[:, None]
        rows = np.where(slots > 0, rows[:, None], NONE)
        return Reads(rows, slots, np.full((step.folds, 1), step.units), np.zeros(rows.shape, bool))
    if not isinstance(step, SumStep):
        return None
    rows = step.rows.index.view(step.folds, step.inputs).numpy()
    used = np.arange(step.inputs) < np.array(step.used)[:, None]
    begins = used & (step.child_units.numpy() == 0)
    parts = int(begins.sum(1).max())
    at = np.repeat(np.array(step.used)[:, None], parts + 1, axis=1)  # where parts begin and end
    for f in range(step.folds):
        starts = np.flatnonzero(begins[f])
        at[f, : len(starts)] = starts
    sizes, first = np.diff(at), np.minimum(at[:, :-1], step.inputs - 1)
    there = sizes > 0
    first_rows = np.where(there, np.take_along_axis(rows, first, 1), NONE)[:, :, None]
    slots = np.where(there, np.take_along_axis(step.children.numpy(), first, 1), 0)[:, :, None]
    return Reads(first_rows, slots, sizes, np.zeros(slots.shape, bool))


def _with_products(reads: Reads, products: dict[int, tuple[Ints, Ints]]) -> Reads:
    """The children of products that are passed over, in place of these."""
    if reads.rows.shape[2] > 1:
        return reads
    inside = [products.get(int(slot)) for slot in reads.slots.ravel()]
    factors = max((len(p[0]) for p in inside if p is not None), default=1)
    rows = np.full((*reads.sizes.shape, factors), NONE)
    slots = np.zeros(rows.shape, np.int64)
    rows[:, :, 0], slots[:, :, 0] = reads.rows[:, :, 0], reads.slots[:, :, 0]
    flat_rows, flat_slots = rows.reshape(-1, factors), slots.reshape(-1, factors)
    for i, product in enumerate(inside):
        if product is not None:
            flat_rows[i, : len(product[0])], flat_slots[i, : len(product[1])] = product
    return Reads(rows, slots, reads.sizes, reads.fresh)


def _first(slots: Ints, written: Bools) -> Bools:
    """Which of the writes are the first to their slots."""
    fresh = np.zeros(slots.size, bool)
    named, place = np.unique(slots, return_index=True)
    fresh[place[(named > 0) & ~written[named]]] = True
    return fresh.reshape(slots.shape)


def _unread(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], written: Bools) -> Ints:
    rows = [
        np.arange(step.folds * step.units)[np.repeat(~written[n], step.units)] + step.start
        for step, n in zip(steps, numbers, strict=True)
        if not isinstance(step, ProductStep)
    ]
    return np.concatenate(rows)

"""Which rows the loops of plain numbers read on the way up, and which they write on the way down.

On the way down a sum passes the share of an input on to the row that it was read from. A product
that only one sum reads would merely copy its share to its own children, so that the sum writes to
these at once and the product is passed over. The first share that a row is given is written and
later ones are added to it: the matrix need not be zero beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.products import ProductStep
from fedcircuits.circuits.evaluation.sums import SumStep

Ints = npt.NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, slots=True)
class Reads:
    """What the slots of an inner step read, and where their shares go."""

    rows: Ints  # products: (folds, arity) first rows, −1 for none; sums: (folds, inputs) rows
    slots: Ints  # the same shape
    targets: Ints  # (folds, arity, 1) first rows, or (folds, inputs, targets); −1 for none
    fresh: npt.NDArray[np.bool_]  # the same shape: nothing has been written there before
    passed: bool  # a step of products whose shares its readers write


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Reads | None, ...]
    unread: Ints  # rows that nobody writes on the way down


def plan(steps: Sequence[object], root: int, rows: int) -> Plan:
    """For every step; ``root`` is the row where the way down begins, of so many rows."""
    read = [_read(step) for step in steps]
    times = np.zeros(rows, np.int64)  # every row is read by sums, or by products as ROWS
    by_sums = np.zeros(rows, bool)
    for step, found in zip(steps, read, strict=True):
        if found is not None:
            at = _written(step, found[0], found[0][:, :, None])
            np.add.at(times, at[at >= 0], 1)
            by_sums[at[at >= 0]] = isinstance(step, SumStep)
    passed = [isinstance(s, ProductStep) and _single(s, times, by_sums) for s in steps]
    children = np.full((rows, 1), NONE)
    for step, found, over in zip(steps, read, passed, strict=True):
        if over and isinstance(step, ProductStep) and found is not None:
            children = _with_children(children, step, found[0])
    written = np.zeros(rows, bool)
    written[root] = True
    planned: list[Reads | None] = []
    for step, found, over in reversed(list(zip(steps, read, passed, strict=True))):
        if found is None:
            planned.append(None)
            continue
        targets = found[0][:, :, None]
        if isinstance(step, SumStep):
            targets = np.ascontiguousarray(_onward(step, found[0], children))
        at = _written(step, found[0], targets)
        fresh = np.zeros(targets.shape, bool) if over else _first(at, written, targets.shape)
        if not over:
            written[at[at >= 0]] = True
        planned.append(Reads(*found, targets, fresh, over))
    return Plan(tuple(reversed(planned)), np.flatnonzero(~written))


def _read(step: object) -> tuple[Ints, Ints] | None:
    """Rows and slots."""
    if isinstance(step, ProductStep):
        rows = step.rows.index.view(step.arity, step.folds, step.units)[:, :, 0].t().numpy()
        slots = step.children.contiguous().numpy()
        return np.ascontiguousarray(np.where(slots > 0, rows, NONE)), slots
    if isinstance(step, SumStep):
        rows = step.rows.index.view(step.folds, step.inputs).contiguous().numpy()
        return rows, step.children.contiguous().numpy()
    return None


def _written(step: object, rows: Ints, targets: Ints) -> Ints:
    """All rows that shares go to, in the order of the loops; −1 for none."""
    if isinstance(step, ProductStep):
        each = np.arange(step.units)
        return np.where(targets >= 0, targets + each, NONE)  # (folds, arity, units)
    assert isinstance(step, SumStep)
    used = np.arange(step.inputs) < np.array(step.used)[:, None]
    return np.where(used[:, :, None], targets, NONE)


def _single(step: ProductStep, times: Ints, by_sums: npt.NDArray[np.bool_]) -> bool:
    """Whether each of these products is read once, and by a sum."""
    span = slice(step.start, step.start + step.folds * step.units)
    return bool((times[span] == 1).all() and by_sums[span].all())


def _with_children(children: Ints, step: ProductStep, rows: Ints) -> Ints:
    """For every row of these products the rows that they multiply."""
    width = max(children.shape[1], step.arity)
    wider = np.full((len(children), width), NONE)
    wider[:, : children.shape[1]] = children
    below = np.where(rows >= 0, rows, NONE)[:, None]  # (folds, 1, arity)
    each = np.where(below >= 0, below + np.arange(step.units)[:, None], NONE)
    span = slice(step.start, step.start + step.folds * step.units)
    wider[span, : step.arity] = each.reshape(-1, step.arity)
    return wider


def _onward(step: SumStep, rows: Ints, children: Ints) -> Ints:
    """Where the shares of a sum go, (folds, inputs, targets)."""
    targets = children[rows]
    direct = (targets < 0).all(2)
    targets[:, :, 0] = np.where(direct, rows, targets[:, :, 0])
    used = np.arange(step.inputs) < np.array(step.used)[:, None]
    targets = np.where(used[:, :, None], targets, NONE)
    width = int((targets >= 0).sum(2).max())
    return np.take_along_axis(targets, np.argsort(targets < 0, axis=2, kind="stable"), 2)[
        :, :, :width
    ]


def _first(
    at: Ints, written: npt.NDArray[np.bool_], shape: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """Which of the writes are the first to their rows; those of a product's units go together."""
    flat = at.reshape(-1)
    fresh = np.zeros(len(flat), bool)
    rows, place = np.unique(flat, return_index=True)
    new = (rows >= 0) & ~written[rows]
    fresh[place[new]] = True
    return np.ascontiguousarray(fresh.reshape(*shape[:2], -1)[:, :, : shape[2]])

"""The order in which the loops of scaled_kernel.py take the nodes of a circuit, and what they read.

Nodes stand in depth-first order, each as late as it is needed and soon before what reads it: going
up, children are still in the cache when they are read, and going down, flows are read there soon
after they have been written. Leaves that are looked up in a table stand among them; values of other
leaves are there beforehand.

The inputs of a sum come in parts, one for each of its children. A product that nobody but one sum
reads is never written down: the sum multiplies its children as it goes, and on the way down gives
each of them its share. The first share that a node is given is written and later ones are added to
it, so that the matrix need not be zero beforehand. Flows that have been read give their rows free
to other nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.evaluation.inner_nodes import ProductStep, SumStep
from fedcircuits.circuits.evaluation.lookup import LookupStep
from fedcircuits.circuits.evaluation.scaled_kernel import LOOKUP, PRODUCT, SUM
from fedcircuits.circuits.evaluation.step import Step

Ints = npt.NDArray[np.int64]
Child = tuple[int, int]  # its first row and its slot
Part = tuple[int, tuple[Child, ...]]  # units, and children, which are multiplied


@dataclass(frozen=True, slots=True)
class Node:
    kind: int
    row: int  # the first of its values
    slot: int
    units: int
    inputs: int  # of a sum
    at: int  # of its first weight, or which leaf of the table it is
    parts: tuple[Part, ...] = ()

    @property
    def children(self) -> Iterator[Child]:
        return (child for _, children in self.parts for child in children)


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes with children before parents, in the shape that the loops read."""

    nodes: Ints  # (nodes, 10) kind, row, slot, units, inputs, at, first and last part; flow's rows
    parts: Ints  # (parts, 3) units, first and last child
    children: Ints  # (children, 5) row, slot, whether this is its first share; flow's rows
    weights: tuple[int, ...]  # of every step: where its weights begin among those of all sums
    number: int  # of weights
    looked_up: int | None  # the step whose leaves stand among the nodes
    unread: Ints  # rows of leaves that nobody writes on the way down
    widest: tuple[int, int, int]  # units and inputs of a sum, and parts

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints]:
        return self.nodes, self.parts, self.children


def plan(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], root: int) -> Plan:
    """For every step, whose slots have these numbers; ``root`` is the slot of the root."""
    looked_up = _largest_table(steps)
    sizes = [s.folds * s.units * s.inputs if isinstance(s, SumStep) else 0 for s in steps]
    weights = np.cumsum([0, *sizes])
    found: dict[int, Node] = {}
    for i, (step, slots) in enumerate(zip(steps, numbers, strict=True)):
        if isinstance(step, ProductStep):
            found.update((n.slot, n) for n in _products(step, slots))
        elif isinstance(step, SumStep):
            found.update((n.slot, n) for n in _sums(step, slots, int(weights[i])))
        elif i == looked_up:
            lines = zip(slots.tolist(), range(step.folds), strict=True)
            found.update((slot, _leaf(step, slot, f)) for slot, f in lines)
    ordered = depth_first(_with_products_inside(found), root)
    nodes, parts, children = _arrays(ordered)
    written = {slot for node in ordered for _, slot in node.children} | {root}
    widest = [(n.units, n.inputs, len(n.parts)) for n in ordered if n.kind == SUM]
    most = np.max([*widest, (1, 1, 1)], axis=0).tolist()
    return Plan(
        nodes, parts, children, tuple(weights[:-1].tolist()), int(weights[-1]), looked_up,
        _unread(steps, numbers, written), (most[0], most[1], most[2]),
    )  # fmt: skip


def _largest_table(steps: Sequence[Step[Any, Any]]) -> int | None:
    sizes = {
        i: step.folds * step.units * step.levels
        for i, step in enumerate(steps)
        if isinstance(step, LookupStep)
    }
    return max(sizes, key=lambda i: sizes[i], default=None)


def _leaf(step: Step[Any, Any], slot: int, fold: int) -> Node:
    return Node(LOOKUP, step.start + fold * step.units, slot, step.units, 0, fold)


def _products(step: ProductStep, slots: Ints) -> Iterator[Node]:
    rows = step.rows.index.view(step.arity, step.folds, step.units)[:, :, 0].t().tolist()
    for f, (first, below) in enumerate(zip(rows, step.children.tolist(), strict=True)):
        pairs = zip(first, below, strict=True)
        children = tuple((row, slot) for row, slot in pairs if slot > 0)
        row, parts = step.start + f * step.units, ((step.units, children),)
        yield Node(PRODUCT, row, int(slots[f]), step.units, 0, 0, parts)


def _sums(step: SumStep, slots: Ints, at: int) -> Iterator[Node]:
    rows = step.rows.index.view(step.folds, step.inputs).numpy()
    below, child_units = step.children.numpy(), step.child_units.numpy()
    for f, used in enumerate(step.used):
        starts = [*np.flatnonzero(child_units[f, :used] == 0).tolist(), used]
        parts = tuple((b - a, ((int(rows[f, a]), int(below[f, a])),)) for a, b in pairwise(starts))
        row, weights = step.start + f * step.units, at + f * step.units * step.inputs
        yield Node(SUM, row, int(slots[f]), step.units, step.inputs, weights, parts)


def _with_products_inside(nodes: dict[int, Node]) -> dict[int, Node]:
    """Sums with the children of products that nobody else reads, in place of these."""
    times = Counter(slot for node in nodes.values() for _, slot in node.children)

    def inside(part: Part) -> Part:
        units, children = part
        below = nodes.get(children[0][1])
        if below is None or below.kind != PRODUCT or times[below.slot] > 1:
            return part
        return units, below.parts[0][1]

    return {
        slot: node
        if node.kind != SUM
        else Node(
            SUM, node.row, slot, node.units, node.inputs, node.at,
            tuple(inside(part) for part in node.parts),
        )
        for slot, node in nodes.items()
    }  # fmt: skip


def depth_first(nodes: dict[int, Node], root: int) -> list[Node]:
    """What the root reads, children before parents, each as late as it is needed."""
    ordered, begun, stack = [], set(), [root]
    done = set()
    while stack:
        slot = stack[-1]
        node = nodes.get(slot)
        if node is None or slot in done:
            stack.pop()
        elif slot in begun:
            done.add(slot)
            ordered.append(node)
            stack.pop()
        else:
            begun.add(slot)
            stack.extend(child for _, child in reversed(list(node.children)))
    return ordered


def _arrays(ordered: Sequence[Node]) -> tuple[Ints, Ints, Ints]:
    nodes: list[tuple[int, ...]] = []
    parts: list[tuple[int, int, int]] = []
    children: list[Child] = []
    for n in ordered:
        first = len(parts)
        for units, below in n.parts:
            parts.append((units, len(children), len(children) + len(below)))
            children += below
        about = n.kind, n.row, n.slot, n.units, n.inputs, n.at
        nodes.append((*about, first, len(parts)))
    written: set[int] = set()
    fresh: list[list[bool]] = []
    for node in reversed(ordered):
        fresh.append([])
        for _, slot in node.children:
            fresh[-1].append(slot not in written)
            written.add(slot)
    first_shares = [first for flags in reversed(fresh) for first in flags]
    ways = [_flow_rows(ordered, looked_up) for looked_up in (True, False)]
    flows = [[way[slot] for way in ways] for _, slot in children]
    own = [[way[n.slot] for way in ways] for n in ordered]
    return (
        np.hstack([_table(nodes, 8), _table(own, 2)]), _table(parts, 3),
        np.hstack([_table(children, 2), _table(first_shares, 1), _table(flows, 2)]),
    )  # fmt: skip


def _table(values: Sequence[Any], columns: int) -> Ints:
    return np.array(values, np.int64).reshape(-1, columns)


def _flow_rows(ordered: Sequence[Node], looked_up: bool) -> dict[int, int]:
    """Where every slot has its flow: where an earlier one has been read, so that few rows are
    written again and again. Flows of leaves stand in their own rows, to be read in the end, unless
    they are looked up."""
    units = {n.slot: n.units for n in ordered if looked_up or n.kind != LOOKUP}
    free: dict[int, list[int]] = defaultdict(list)
    row = {ordered[-1].slot: ordered[-1].row} if ordered else {}
    for node in reversed(ordered):
        for own, slot in node.children:
            if slot not in row:
                left = free[units[slot]] if slot in units else []
                row[slot] = left.pop() if left else own
        if node.slot in units:
            free[node.units].append(row[node.slot])
        row.setdefault(node.slot, node.row)
    return row


def _unread(steps: Sequence[Step[Any, Any]], numbers: Sequence[Ints], written: set[int]) -> Ints:
    rows = [
        np.arange(step.start + f * step.units, step.start + (f + 1) * step.units)
        for step, slots in zip(steps, numbers, strict=True)
        if not isinstance(step, ProductStep)
        for f, slot in enumerate(slots.tolist())
        if slot not in written
    ]
    return np.concatenate([np.zeros(0, np.int64), *rows])

"""How a graph becomes a few batched operations: which nodes go together, and in which rows.

All values of a batch are ONE matrix (rows, batch). A node of K units is K consecutive rows, so
laying children end to end is a list of row numbers, and nodes fold together by shape alone:

slot     what is evaluated as one thing. Mostly a node; but leaves of linear families under an
         elementwise product melt into one slot (they are one matrix product), and outer products
         read by sums only melt into these sums and are never written down.
group    slots of equal shape at equal level (longest way to a leaf): one step of the program.
order    inside a group slots stand as their first reader wants them, so that most reads are views.

Row 0 is the constant 0 = log 1: products of fewer children are filled up with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit, Leaf, Node, Product, Sum
from fedcircuits.circuits.graph.family import Family, LinearFamily, TabledFamily, family

Key = tuple[int | str, ...]  # level, kind, shape…
MANY_UNITS = 4  # from which on categories are looked up
NUMBERS = 1 << 20  # in the value matrix of one batch
MOST_NUMBERS = 1 << 27  # the same of an update of EM, where nodes have many units
WIDE = 8  # units of a node on average
LARGEST = 4096  # rows of one batch


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes from which on a program goes about it another way, with the same results."""

    levels: int = 16  # from which on categories are looked up
    dense: int = 1 << 22  # largest coefficient matrix of leaves that is written out
    cache: int = 1 << 18  # numbers in a temporary: about a megabyte, so that it stays in the cache


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    kind: str  # linear, lookup, direct, joint, given, product, outer, sum, outer_sum
    units: int
    reads: tuple[str, ...] = ()  # outer_sum: all left children, then all right ones
    leaves: tuple[Leaf, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    groups: list[tuple[Key, list[Slot]]]  # in the order of evaluation
    row: dict[str, int]  # first row of every slot
    number: dict[str, int]  # of every slot; 0 is nobody
    rows: int


def lay_out(circuit: Circuit, limits: Limits) -> Layout:
    slots = _slots(circuit, limits)
    groups: dict[Key, list[Slot]] = defaultdict(list)
    level: dict[str, int] = {}
    for slot in slots.values():
        level[slot.name] = 1 + max((level[r] for r in slot.reads), default=-1)
        groups[level[slot.name], *_shape(slot, circuit, slots)].append(slot)
    ordered = sorted(groups, key=lambda key: key[0])
    _order(groups, ordered, circuit.root.name)
    row: dict[str, int] = {}
    number: dict[str, int] = {}
    rows = 1
    for key in ordered:
        for slot in groups[key]:
            row[slot.name], number[slot.name] = rows, len(number) + 1
            rows += slot.units
    return Layout([(key, groups[key]) for key in ordered], row, number, rows)


# ---------------------------------------------------------------------- slots


def _slots(circuit: Circuit, limits: Limits) -> dict[str, Slot]:
    """Every slot the root needs, children before parents."""
    readers: dict[str, list[Node]] = defaultdict(list)
    for node in circuit.nodes:
        for child in node.children:
            readers[child].append(node)
    melting = {n.name for n in circuit.nodes if _melts(n, circuit, readers[n.name], limits)}
    made: dict[str, Slot] = {}
    for node in circuit.nodes:
        if node.name not in melting:
            made.update((s.name, s) for s in _slots_of(node, circuit, melting, limits))
    return _needed(made, circuit.root.name)


def _melts(node: Node, circuit: Circuit, readers: list[Node], limits: Limits) -> bool:
    """Whether a node is evaluated inside its reader rather than in rows of its own."""
    if isinstance(node, Leaf) and node.family == CIRCUIT:
        return False
    if isinstance(node, Leaf):
        [reader] = readers if len(readers) == 1 else [None]
        linear = isinstance(family(node.family), LinearFamily)
        melts = linear and isinstance(reader, Product) and not reader.outer
        return melts and not looked_up(node, circuit, limits)
    if isinstance(node, Product) and node.outer and readers:
        return all(isinstance(r, Sum) and _sums_outer_products(r, circuit) for r in readers)
    return False


def _sums_outer_products(node: Sum, circuit: Circuit) -> bool:
    children = [circuit[c] for c in node.children]
    shapes = {
        tuple(circuit.units[g] for g in c.children) if isinstance(c, Product) and c.outer else None
        for c in children
    }
    return len(shapes) == 1 and None not in shapes


def _slots_of(node: Node, circuit: Circuit, melting: set[str], limits: Limits) -> Iterator[Slot]:
    name, units = node.name, circuit.units[node.name]
    if isinstance(node, Leaf) and node.family == CIRCUIT:
        yield Slot(name, "given", units, leaves=(node,))
    elif isinstance(node, Leaf):
        rule = family(node.family)
        linear = "linear" if isinstance(rule, LinearFamily) else "direct"
        linear = "lookup" if looked_up(node, circuit, limits) else linear
        yield Slot(name, linear if isinstance(rule, Family) else "joint", units, leaves=(node,))
    elif isinstance(node, Product) and node.outer:
        yield Slot(name, "outer", units, node.children)
    elif isinstance(node, Product):
        melted = tuple(
            n for c in node.children if c in melting and isinstance(n := circuit[c], Leaf)
        )
        rest = tuple(c for c in node.children if c not in melting)
        if not rest:
            yield Slot(name, "linear", units, leaves=melted)
        elif not melted:
            yield Slot(name, "product", units, rest)
        else:
            yield Slot(f"{name}/leaves", "linear", units, leaves=melted)
            yield Slot(name, "product", units, (*rest, f"{name}/leaves"))
    elif any(c in melting for c in node.children):  # then all are outer products of one shape
        pairs = [circuit[c].children for c in node.children]
        yield Slot(name, "outer_sum", units, tuple(p[i] for i in (0, 1) for p in pairs))
    else:
        yield Slot(name, "sum", units, node.children)


def _needed(slots: dict[str, Slot], root: str) -> dict[str, Slot]:
    needed, stack = set(), [root]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack.extend(slots[name].reads)
    return {name: slot for name, slot in slots.items() if name in needed}


# ---------------------------------------------------------------------- groups


def bucket(n: int) -> int:
    """Arities are filled up to 1, 2, 3, 4, 6, 8, 12, …, so that irregular trees need few steps."""
    if n <= 4:
        return n
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if n <= power * 3 // 4 else power


def _shape(slot: Slot, circuit: Circuit, slots: dict[str, Slot]) -> tuple[int | str, ...]:
    """What must be equal for two slots to be one batched operation."""
    if slot.kind == "linear":
        entries, pairs = linear_size(slot, circuit)
        blocks = slot.units >= 4 and entries >= 4
        return ("linear", slot.units, entries, pairs) if blocks else ("linear", slot.units, 0, 0)
    if slot.kind == "lookup":
        [leaf] = slot.leaves
        levels = circuit.schema[leaf.scope[0]].levels
        return "lookup", leaf.family, levels, slot.units, len(leaf.scope)
    if slot.kind == "direct":
        return "direct", slot.leaves[0].family, slot.units, len(slot.leaves[0].scope)
    if slot.kind == "joint":
        return "joint", slot.name
    if slot.kind == "given":
        return "given", slot.units
    units = [slots[r].units for r in slot.reads]
    if slot.kind == "product":
        return "product", slot.units, bucket(len(units))
    if slot.kind == "sum":
        return "sum", slot.units, bucket(sum(units))
    return slot.kind, slot.units, units[0], units[-1], len(units) // 2


def looked_up(leaf: Leaf, circuit: Circuit, limits: Limits) -> bool:
    """Whether a leaf is a table to look up, rather than a product with one-hot statistics."""
    levels = circuit.schema[leaf.scope[0]].levels
    if leaf.family == CIRCUIT or levels < limits.levels or leaf.units < MANY_UNITS:
        return False
    return isinstance(family(leaf.family), TabledFamily)


def linear_size(slot: Slot, circuit: Circuit) -> tuple[int, int]:
    """Numbers of statistics and of variables of a linear slot."""
    entries = pairs = 0
    for leaf in slot.leaves:
        rule = family(leaf.family)
        assert isinstance(rule, LinearFamily)
        entries += rule.width(circuit.schema[leaf.scope[0]]) * len(leaf.scope)
        pairs += len(leaf.scope)
    return entries, pairs


# ---------------------------------------------------------------------- order


def _order(groups: dict[Key, list[Slot]], ordered: list[Key], root: str) -> None:
    place = {root: 0}
    for key in reversed(ordered):
        groups[key].sort(key=lambda slot: place[slot.name])
        for name in _reading_order(key, groups[key]):
            place.setdefault(name, len(place))


def _reading_order(key: Key, members: list[Slot]) -> Iterator[str]:
    if key[1] == "sum":
        return (name for slot in members for name in slot.reads)
    if key[1] == "outer_sum":
        half = len(members[0].reads) // 2
        spans = (slice(0, half), slice(half, None))
        return (name for span in spans for slot in members for name in slot.reads[span])
    longest = max(len(slot.reads) for slot in members)
    return (s.reads[i] for i in range(longest) for s in members if i < len(s.reads))


# ---------------------------------------------------------------------- rows
#
# Row numbers of the value matrix. Consecutive rows are read as a view, others are gathered.


class ValueRows:
    __slots__ = ("first", "index")

    def __init__(self, index: Tensor, first: int | None) -> None:
        self.index = index
        self.first = first  # of consecutive rows, else None

    @classmethod
    def of(cls, numbers: Sequence[int]) -> ValueRows:
        index = torch.tensor(numbers, dtype=torch.long)
        step = index[1:] - index[:-1]
        consecutive = len(index) > 0 and bool((step == 1).all())
        return cls(index, int(index[0]) if consecutive else None)

    def part(self, start: int, stop: int) -> ValueRows:
        first = None if self.first is None else self.first + start
        return ValueRows(self.index[start:stop], first)

    def read(self, values: Tensor, *shape: int) -> Tensor:
        """(shape…, batch) of the value matrix (rows, batch)."""
        if self.first is None:
            selected = values.index_select(0, self.index)
        else:
            selected = values.narrow(0, self.first, len(self.index))
        return selected.view(*shape, values.shape[1])

    def add(self, gradient: Tensor, change: Tensor) -> None:
        """gradient[rows] += change, where a row may occur several times."""
        change = change.reshape(-1, gradient.shape[1])
        if self.first is None:
            gradient.index_add_(0, self.index, change)
        else:
            gradient.narrow(0, self.first, len(self.index)).add_(change)


def batch_rows(rows: int) -> int:
    """Rows of data that go through together: 256 for most circuits, more for small ones, fewer
    where the value matrix would leave the cache far behind."""
    return max(64, min(int(np.clip(NUMBERS // rows, 256, LARGEST)), 4 * NUMBERS // rows))


def update_rows(rows: int, slots: int) -> int:
    """The same where weights are wide: they are read once for all of these rows, from memory."""
    wide = rows >= WIDE * slots
    return max(batch_rows(rows), min(256, MOST_NUMBERS // rows)) if wide else batch_rows(rows)


# ---------------------------------------------------------------------- parallel
#
# Batches on all cores: one thread a core, each operation inside it on one thread.
#
# Splitting rows scales better than splitting every small operation; torch and numba kernels let go
# of the interpreter lock while they compute. ``torch.set_num_threads`` says how many threads to
# use.


S = TypeVar("S")
T = TypeVar("T")


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Kept for good: new threads would have to set up their memory and libraries every time."""
    return ThreadPoolExecutor(threads, "rows", torch.set_num_threads, (1,))


def in_threads(function: Callable[[S], T], items: Sequence[S], several: bool = True) -> Iterator[T]:
    """function of every item, in order; one after another unless ``several`` threads may run."""
    threads = min(torch.get_num_threads(), len(items)) if several else 1
    if threads <= 1:
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # also for libraries whose number of threads is one for all
    try:
        yield from _pool(threads).map(function, items)
    finally:
        torch.set_num_threads(before)

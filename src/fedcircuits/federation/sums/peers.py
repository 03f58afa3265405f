"""One member's end of adding up without a server: along a tree, or by gossip.

A tree's root adds up sums of branches and sends the result down. Gossiping members exchange running
averages (consensus.py); the average times their number is the sum. Arrays are worked on in place: a
message has been encoded by the time ``send`` returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, broadcast, send
from fedcircuits.federation.sums.collectives import (
    Addend,
    Check,
    Decision,
    Then,
    Traffic,
    addend,
    decision,
    frozen,
    of_sum,
    packed,
    result_from,
    settled,
)
from fedcircuits.federation.sums.consensus import Step
from fedcircuits.federation.sums.topology import SpanningTree


@dataclass(frozen=True, slots=True)
class TreeSum:
    """Sums of branches go up, the result goes down."""

    me: str
    tree: SpanningTree
    dtype: Traffic = "float64"

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        total, shape = np.array(value, dtype=np.float64), np.shape(value)
        children = self.tree.children[self.me]
        for child in children:
            total += yield from addend(child, shape, tag, check=None if then else check)
        if self.me == self.tree.root:
            result = packed(total if then is None else then(total), self.dtype, tag)
        else:
            revealed = f"sums of a branch, of {reveals}" if children and reveals else reveals
            parent = self.tree.parents[self.me]
            yield from send(parent, Addend(packed(total, self.dtype, tag)), tag, revealed)
            result = yield from result_from(parent, None if then else shape, tag, check)
        yield from broadcast(children, Addend(result), tag, of_sum(reveals, then))
        return settled(result)

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        return (yield from flood(self.me, self.tree, tag, value, reveals, check))


@dataclass(frozen=True, slots=True)
class GossipSum:
    """Neighbours exchange running averages; the average times the number of members is the sum."""

    me: str
    size: int
    weights: tuple[tuple[str, float], ...]  # of every neighbour
    steps: tuple[Step, ...]
    tree: SpanningTree  # from the first member, for what is told
    dtype: Traffic = "float64"

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        x = np.array(value, dtype=np.float64)
        if not np.isfinite(x).all():
            raise FederationError(
                f"{self.me} has infinite or missing numbers under {tag!r}: gossip averages finite "
                "ones; add up with Hub or Tree"
            )
        change, heard, scratch = np.zeros_like(x), np.zeros_like(x), np.empty_like(x)
        away = sum(share for _, share in self.weights)
        known = np.zeros_like(x)  # what neighbours know of x
        later = f"running averages of {reveals}" if reveals else ""
        for step, momentum in self.steps:
            yield from self._exchange(tag, x, known, heard, scratch, reveals)
            np.multiply(known, -away, out=scratch)
            scratch += heard  # (W − I) x
            scratch *= step
            change *= momentum
            change += scratch
            x += change
            reveals = later
        x *= self.size
        return frozen(np.asarray(x if then is None else then(x), dtype=np.float64))

    def _exchange(
        self, tag: str, x: Array, known: Array, heard: Array, scratch: Array, reveals: str
    ) -> Flow[None]:
        """What neighbours know of x, and the weighted sum of what they let know, made in place."""
        if self.dtype == "float64":
            known[...] = 0.0
            heard[...] = 0.0
        np.subtract(x, known, out=scratch)
        sent = packed(scratch, self.dtype, tag)
        yield from broadcast([n for n, _ in self.weights], Addend(sent), tag, reveals)
        known += sent
        for neighbour, share in self.weights:
            values = yield from addend(neighbour, x.shape, tag, finite=True)
            np.multiply(values, share, out=scratch)
            heard += scratch

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        return (yield from flood(self.me, self.tree, tag, value, reveals, check))


def flood(
    me: str, tree: SpanningTree, tag: str, value: Array, reveals: str, check: Check | None
) -> Flow[Array]:
    """The root's array from parent to child, unchanged."""
    array = np.asarray(value)
    if me != tree.root:
        array = yield from decision(tree.parents[me], tag, check)
    yield from broadcast(tree.children[me], Decision(array), tag, reveals)
    return frozen(array)

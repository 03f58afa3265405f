"""Sums of arrays over parties. A protocol asks for a sum; the summation decides how it is computed,
and therefore who learns what.

A ``Summation`` is the user's choice, a value that is part of programs: ``Hub()``,
``Tree("cycle")``, ``Secret()``. Its ``at`` returns one member's end of it, a ``Collective``, which
protocols use without knowing which one it is:

    total = yield from collective.sum("em/terms/3", terms, "terms of rows", then=normalised)
    stop = yield from collective.agree("em/stop/3", decision)

Its ``counts`` returns one end of counting in how many rows the labels of parties co-occur
(counting.py).

Two collectives are here. In a tree, sums of branches go up to the root and the result comes down;
at a hub, the tree is a star. In gossip, neighbours exchange running averages (consensus.py); the
average times the number of members is the sum. Arrays are modified in place: a message has been
encoded by the time ``send`` returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, broadcast, receive, send
from fedcircuits.federation.messages import AnyNumbers, Message, Reals, require, require_shape
from fedcircuits.federation.sums.consensus import Step
from fedcircuits.federation.sums.counting import Counting, PlainCounts
from fedcircuits.federation.sums.topology import SpanningTree, Topology

Traffic: TypeAlias = Literal["float64", "float32"]
Then: TypeAlias = Callable[[Array], Array]
Check: TypeAlias = Callable[[Array], str]  # what is wrong with an array, "" if nothing
FINITE = float(np.finfo(np.float64).max)
LARGEST = 1e300  # of an addend: sums of many, and times weights, are still numbers


class Addend(Message, frozen=True):
    """Numbers to add up, or the result; the tag is the protocol's."""

    values: Reals


class Decision(Message, frozen=True):
    """The leader's decision, for everybody; the tag is the protocol's."""

    values: AnyNumbers


class Collective(Protocol):
    """One member's end of adding up. What it returns is read-only, and float64 after a sum."""

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        """Every member contributes an array of one shape and ends up with ``then(total)``.

        ``then`` is the same at all members, and its result may have another shape. The member that
        adds up applies it once and sends the result; without such a member, every one applies it.
        ``check`` describes what is wrong with a received result; its sender is blamed. Without
        ``then``, it must also hold for sums of some members, and addends are checked by it, too.
        """
        ...

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        """Every member ends up with the leader's array, bit for bit: one agreed decision.

        The others' values do not matter, and the leader's is never rounded. ``check`` describes
        what is wrong with a received decision; its sender is blamed.
        """
        ...


class Summation(ABC):
    """How parties add up: a frozen dataclass that makes each member's end of it."""

    hides: ClassVar[bool] = False  # whether nobody sees the array of a single party
    exact: ClassVar[bool] = True  # whether all members end up with the same bits

    @abstractmethod
    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        """Those who run a flow. A member that is not a party contributes zeros."""

    @abstractmethod
    def at(self, me: str, members: Sequence[str]) -> Collective:
        """One member's end."""

    def honest(self, parties: Sequence[str]) -> int:
        """The number of parties of which a coalition sees only the sum: 1 unless arrays are hidden.
        Noise is shared among that many."""
        return 1

    def topology(self, parties: Sequence[str]) -> Topology | None:
        """The graph along whose links parties talk, if there is one."""
        return None

    def counts(self, me: str, parties: Sequence[str]) -> Counting:
        """One end of counting how often labels of the parties meet in a row."""
        return PlainCounts(me, tuple(parties))

    def require_counts(self, name: str) -> None:  # noqa: B027  (most can)
        """An error if labels cannot be counted with this value of the argument ``name``."""

    def prepare(self, name: str) -> None:  # noqa: B027  (most have nothing to check)
        """Check this value of the argument ``name``, before parties start."""

    def for_party(self) -> Summation:
        """One party's summation: with its own key for this run, if it deals shares."""
        return self

    def without_lost(self, parties: Sequence[str], remaining: Sequence[str]) -> Summation:
        """The same without some parties; an error if the others cannot add up without them."""
        return self


def addend(
    sender: str,
    shape: tuple[int, ...],
    tag: str,
    finite: bool = False,
    check: Check | None = None,
) -> Flow[Array]:
    """The sender's numbers as float64, finite except for minus infinity as a logarithm."""
    values = (yield from receive(sender, Addend, tag)).values
    require_shape(values, shape, sender, tag, "values")
    numbers = settled(values)
    most = numbers.max(initial=-np.inf)  # NaN if one is
    fits = most <= LARGEST and (not finite or numbers.min(initial=np.inf) > -np.inf)
    problem = f"expected numbers up to {LARGEST:g}, some are larger, infinite or NaN"
    require(bool(fits), sender, tag, "values", problem)
    require_fine(numbers, check, sender, tag)
    return numbers


def result_from(
    sender: str, shape: tuple[int, ...] | None, tag: str, check: Check | None
) -> Flow[Array]:
    """The result as it was sent; of the shape, if there is one."""
    values = (yield from receive(sender, Addend, tag)).values
    if shape is not None:
        require_shape(values, shape, sender, tag, "values")
    require_fine(values, check, sender, tag)
    return values


def decision(sender: str, tag: str, check: Check | None = None) -> Flow[Array]:
    """The sender's decision, unchanged."""
    values = (yield from receive(sender, Decision, tag)).values
    require_fine(values, check, sender, tag)
    return frozen(values)


def require_fine(values: Array, check: Check | None, sender: str, tag: str) -> None:
    """MessageError that blames the sender if ``check`` finds something wrong."""
    if check is not None and (problem := check(values)):
        require(False, sender, tag, "values", problem)


def of_sum(reveals: str, then: Then | None) -> str:
    """What the reader of a result learns, for the ledger."""
    if not reveals:
        return ""
    return ("" if then is None else "a result computed from ") + f"the sum of {reveals}"


def packed(value: Array, dtype: Traffic, tag: str) -> Array:
    """The array as it is sent; numbers that float32 cannot hold are refused."""
    plain = np.asarray(value, dtype=np.float64)
    if dtype == "float64":
        return plain
    with np.errstate(over="ignore"):
        small = plain.astype(np.float32)
    if np.isinf(small).sum() > np.isinf(plain).sum():
        raise FederationError(
            f"{tag!r} has numbers up to {np.abs(plain[np.isfinite(plain)]).max():.3g}, float32 "
            "ends at 3.4e38: add up with dtype='float64', or scale them"
        )
    return small  # type: ignore[return-value]


def settled(result: Array) -> Array:
    """The read-only result, from the array that was sent."""
    return frozen(result.astype(np.float64, copy=False))


def frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True)
class AlongTree:
    """A member that agrees with the others along a spanning tree."""

    me: str
    tree: SpanningTree

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        """The root's array from parent to child, unchanged."""
        array = np.asarray(value)
        if self.me != self.tree.root:
            array = yield from decision(self.tree.parents[self.me], tag, check)
        yield from broadcast(self.tree.children[self.me], Decision(array), tag, reveals)
        return frozen(array)


@dataclass(frozen=True, slots=True)
class TreeSum(AlongTree):
    """Sums of branches go up, the result goes down."""

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
            revealed = f"the sum over a branch of {reveals}" if children and reveals else reveals
            parent = self.tree.parents[self.me]
            yield from send(parent, Addend(packed(total, self.dtype, tag)), tag, revealed)
            result = yield from result_from(parent, None if then else shape, tag, check)
        yield from broadcast(children, Addend(result), tag, of_sum(reveals, then))
        return settled(result)


@dataclass(frozen=True, slots=True)
class GossipSum(AlongTree):
    """Neighbours exchange running averages; the average times the number of members is the sum.
    The first member is the root of the tree along which members agree."""

    size: int
    weights: tuple[tuple[str, float], ...]  # of every neighbour
    steps: tuple[Step, ...]
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
                f"{self.me} has infinite or missing numbers under {tag!r}: gossip can average "
                "only finite numbers; use Hub() or Tree(…)"
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
        """Update in place what neighbours know of x, and the weighted sum of what they sent."""
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


class Span(NamedTuple):
    """The length of a run of numbers, and their range."""

    size: int
    least: float
    most: float
    whole: bool = False


def expected(shape: tuple[int, ...], *spans: Span) -> Check:
    """A check of received numbers: of this shape, in these consecutive spans."""

    def problem(values: Array) -> str:
        if values.shape != shape:
            return f"expected numbers of the shape {shape}, got {values.shape}"
        first, flat = 0, values.reshape(-1).astype(np.float64, copy=False)
        for size, least, most, whole in spans:
            x = flat[first : first + size]
            fits = x.min(initial=most) >= least and x.max(initial=least) <= most  # not if NaN
            if not fits or (whole and (x != np.floor(x)).any()):
                return f"expected {'whole ' if whole else ''}numbers from {least:g} to {most:g}"
            first += size
        return ""

    return problem

"""Adding up arrays over parties. A protocol asks for a sum; the summation decides how it is made,
and so who learns what.

``Summation`` is the user's choice, a value that travels in programs: ``Hub()``, ``Tree("cycle")``,
``Secret()``. Its ``at`` gives one member's end of it, a ``Collective``, which protocols use without
knowing which one it is:

    total = yield from collective.sum("em/terms/3", terms, "terms of rows", then=normalised)
    stop = yield from collective.agree("em/stop/3", decision)

Its ``counts`` gives one end of counting in how many rows labels of different parties meet
(counting.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, broadcast, receive, send
from fedcircuits.federation.messages import AnyNumbers, Message, Reals, require, require_shape
from fedcircuits.federation.sums.counting import Counting, PlainCounts
from fedcircuits.federation.sums.topology import Topology

Traffic: TypeAlias = Literal["float64", "float32"]
Floats: TypeAlias = npt.NDArray[np.floating]
Then: TypeAlias = Callable[[Array], Array]
Check: TypeAlias = Callable[[Array], str]  # what is wrong with an array, "" if nothing
LARGEST = 1e300  # of an addend: sums of many, and times weights, are still numbers


class Addend(Message, frozen=True):
    """Numbers to add up, or what came of adding up; the tag is the protocol's."""

    values: Reals


class Decision(Message, frozen=True):
    """What the leader has decided, for everybody; the tag is the protocol's."""

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

        ``then`` is the same at all members, and its result may have another shape. Whoever adds up
        applies it once and sends the result; where nobody does, every member applies it itself.
        ``check`` says what is wrong with a result that arrived: its sender is blamed. Without
        ``then`` it holds for the sum of some members too, and what they add is checked likewise.
        """
        ...

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        """Every member ends up with the leader's array, bit for bit: one agreed decision.

        The others' values do not matter, and the leader's is never rounded. ``check`` says what is
        wrong with a decision that arrived: its sender is blamed.
        """
        ...


class Summation(ABC):
    """How parties add up: a frozen dataclass that makes each member's end of it."""

    hides: ClassVar[bool] = False  # whether nobody sees the array of a single party
    exact: ClassVar[bool] = True  # whether all members end up with the same bits

    @abstractmethod
    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        """Who runs a flow. A member that is no party contributes zeros."""

    @abstractmethod
    def at(self, me: str, members: Sequence[str]) -> Collective:
        """One member's end."""

    def honest(self, parties: Sequence[str]) -> int:
        """Of how many parties only the sum is seen by those who may put together what they see: of
        one, unless arrays are hidden. Noise is shared between so many."""
        return 1

    def topology(self, parties: Sequence[str]) -> Topology | None:
        """The graph along whose links parties talk, if there is one."""
        return None

    def counts(self, me: str, parties: Sequence[str]) -> Counting:
        """One end of counting how often labels of the parties meet in a row."""
        return PlainCounts(me, tuple(parties))

    def require_counts(self, name: str) -> None:  # noqa: B027  (most can)
        """An error if labels cannot be counted with what a user gave as the argument ``name``."""

    def prepare(self, name: str) -> None:  # noqa: B027  (most have nothing to check)
        """Check what a user gave as the argument ``name``, before parties start."""

    def for_party(self) -> Summation:
        """What one party gets: with a key of its own for this run, if it deals shares."""
        return self

    def without_lost(self, parties: Sequence[str], remaining: Sequence[str]) -> Summation:
        """The same without some parties; an error if the others cannot add up without them."""
        return self


@dataclass(frozen=True, slots=True)
class HubSum:
    """One member adds up: it sees every member's array, the others see the result."""

    me: str
    members: tuple[str, ...]
    hub: str
    dtype: Traffic = "float64"

    def sum(
        self,
        tag: str,
        value: Array,
        reveals: str = "",
        then: Then | None = None,
        check: Check | None = None,
    ) -> Flow[Array]:
        shape = np.shape(value)
        if self.me != self.hub:
            yield from send(self.hub, Addend(packed(value, self.dtype, tag)), tag, reveals)
            return settled((yield from result_from(self.hub, None if then else shape, tag, check)))
        total = np.array(value, dtype=np.float64)
        for other in self._others:
            total += yield from addend(other, shape, tag, check=None if then else check)
        result = packed(total if then is None else then(total), self.dtype, tag)
        yield from broadcast(self._others, Addend(result), tag, of_sum(reveals, then))
        return settled(result)

    def agree(
        self, tag: str, value: Array, reveals: str = "", check: Check | None = None
    ) -> Flow[Array]:
        return (yield from agreed(self.me, self.hub, self._others, tag, value, reveals, check))

    @property
    def _others(self) -> list[str]:
        return [m for m in self.members if m != self.hub]


def agreed(
    me: str,
    leader: str,
    others: Sequence[str],
    tag: str,
    value: Array,
    reveals: str,
    check: Check | None,
) -> Flow[Array]:
    """The leader's value, which it sends to all others."""
    if me != leader:
        return (yield from decision(leader, tag, check))
    yield from broadcast(others, Decision(np.asarray(value)), tag, reveals)
    return frozen(np.asarray(value))


def addend(
    sender: str,
    shape: tuple[int, ...],
    tag: str,
    finite: bool = False,
    check: Check | None = None,
) -> Flow[Array]:
    """The sender's numbers as float64; only minus infinity may be among them, as a logarithm."""
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
    """What came of adding up, as it travelled; of the shape, if there is one."""
    values = (yield from receive(sender, Addend, tag)).values
    if shape is not None:
        require_shape(values, shape, sender, tag, "values")
    require_fine(values, check, sender, tag)
    return values


def decision(sender: str, tag: str, check: Check | None = None) -> Flow[Array]:
    """What the sender has decided, as it is."""
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
    return f"the sum of {reveals}" if then is None else f"what follows from the sum of {reveals}"


def packed(value: Array, dtype: Traffic, tag: str) -> Array:
    """As it travels; numbers that float32 cannot hold are refused."""
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
    """What everybody has, from what travelled."""
    return frozen(result.astype(np.float64, copy=False))


def frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view

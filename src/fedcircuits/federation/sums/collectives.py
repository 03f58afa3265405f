"""What a group of parties does together: gather, broadcast, and adding up arrays.

A protocol asks for a sum; a ``Summation`` decides how it is made, and so who learns what. The user
chooses with a ``Summing``, a recipe that travels in programs: ``Hub()``, ``Tree("cycle")``.

    total = yield from summation.sum("em/terms/3", own, "terms of rows", then=normalised)
    stop = yield from summation.told("em/stop/3", decision)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.federation.flow import Flow, expect, recv_payload, send_payload
from fedcircuits.federation.wire import Encoded, Payload, encode

Traffic: TypeAlias = Literal["float64", "float32"]
Floats: TypeAlias = npt.NDArray[np.floating]
Then: TypeAlias = Callable[[Array], Array]


def gather_payloads(members: Sequence[str], tag: str) -> Flow[dict[str, Payload]]:
    """At one party: what every member has sent it under the tag."""
    found: dict[str, Payload] = {}
    for member in members:
        found[member] = yield from recv_payload(member, tag)
    return found


def broadcast_payload(
    members: Sequence[str], tag: str, payload: Payload, reveals: str = ""
) -> Flow[None]:
    """From one party: the same to every member."""
    once = Encoded(encode(payload)) if len(members) > 1 else payload
    for member in members:
        yield from send_payload(member, tag, once, reveals)


class Summation(Protocol):
    """One member's end of adding up. What it returns is read-only, and float64 after a sum."""

    def sum(
        self, tag: str, value: Array, reveals: str = "", then: Then | None = None
    ) -> Flow[Array]:
        """Every member contributes an array of one shape and ends up with ``then(total)``.

        ``then`` is the same at all members, and its result may have another shape. Whoever adds up
        applies it once and sends the result; where nobody does, every member applies it itself.
        """
        ...

    def told(self, tag: str, value: Array, reveals: str = "") -> Flow[Array]:
        """Every member ends up with the leader's array, bit for bit: one agreed decision.

        The others' values do not matter, and the leader's is never rounded.
        """
        ...


@runtime_checkable
class Summing(Protocol):
    """The choice of a way to add up: a frozen dataclass that makes each member's end of it."""

    def members(self, parties: Sequence[str]) -> tuple[str, ...]:
        """Who runs a flow. A member that is no party contributes zeros."""
        ...

    def at(self, me: str, members: Sequence[str]) -> Summation: ...


@dataclass(frozen=True, slots=True)
class HubSum:
    """One member adds up: it sees every member's array, the others see the result."""

    me: str
    members: tuple[str, ...]
    hub: str
    dtype: Traffic = "float64"

    def sum(
        self, tag: str, value: Array, reveals: str = "", then: Then | None = None
    ) -> Flow[Array]:
        shape = np.shape(value)
        if self.me != self.hub:
            yield from send_payload(self.hub, tag, packed(value, self.dtype, tag), reveals)
            result = yield from recv_payload(self.hub, tag)
            return numbers(result, None if then else shape, self.hub, tag)
        total = np.array(value, dtype=np.float64)
        for other in self._others:
            total += numbers((yield from recv_payload(other, tag)), shape, other, tag)
        result = packed(total if then is None else then(total), self.dtype, tag)
        yield from broadcast_payload(self._others, tag, result, of_sum(reveals, then))
        return settled(result)

    def told(self, tag: str, value: Array, reveals: str = "") -> Flow[Array]:
        if self.me != self.hub:
            return numbers((yield from recv_payload(self.hub, tag)), None, self.hub, tag, keep=True)
        yield from broadcast_payload(self._others, tag, np.asarray(value), reveals)
        return frozen(np.asarray(value))

    @property
    def _others(self) -> list[str]:
        return [m for m in self.members if m != self.hub]


def of_sum(reveals: str, then: Then | None) -> str:
    """What the reader of a result learns, for the ledger."""
    if not reveals:
        return ""
    return f"the sum of {reveals}" if then is None else f"what follows from the sum of {reveals}"


def packed(value: Array, dtype: Traffic, tag: str) -> Floats:
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
    return small


def settled(result: Floats) -> Array:
    """What everybody has, from what travelled."""
    return frozen(result.astype(np.float64, copy=False))


def frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def numbers(
    found: Payload, shape: tuple[int, ...] | None, sender: str, tag: str, keep: bool = False
) -> Array:
    """The sender's numbers, as float64 unless kept as they are; of the shape, if there is one."""
    array = expect(found, np.ndarray, sender, tag)
    if array.dtype.kind not in "biuf":
        raise ProtocolError(
            f"{sender} sent an array of {array.dtype} under {tag!r}, expected numbers"
        )
    if shape is not None and array.shape != shape:
        raise ProtocolError(
            f"{sender} added an array of shape {array.shape} under {tag!r}, expected {shape}"
        )
    return array if keep else settled(array)

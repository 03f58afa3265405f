"""What a group of parties does together: gather, broadcast, and adding up arrays.

A protocol asks for a sum; a ``Summation`` decides how it is made, and so who learns what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcircuits.circuits.family import Array
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Flow, expect, recv, send
from fedcircuits.federation.wire import Payload


def gather(members: Sequence[str], tag: str) -> Flow[dict[str, Payload]]:
    """At one party: what every member has sent it under the tag."""
    found: dict[str, Payload] = {}
    for member in members:
        found[member] = yield from recv(member, tag)
    return found


def broadcast(members: Sequence[str], tag: str, payload: Payload, reveals: str = "") -> Flow[None]:
    """From one party: the same to every member."""
    for member in members:
        yield from send(member, tag, payload, reveals)


class Summation(Protocol):
    """Every member contributes an array of one shape and ends up with the sum over members."""

    def sum(self, tag: str, value: Array, reveals: str = "") -> Flow[Array]: ...


@dataclass(frozen=True, slots=True)
class HubSum:
    """One member adds up: it sees every member's array, the others see the sum."""

    me: str
    members: tuple[str, ...]
    hub: str

    def sum(self, tag: str, value: Array, reveals: str = "") -> Flow[Array]:
        if self.me != self.hub:
            yield from send(self.hub, tag, value, reveals)
            return _array((yield from recv(self.hub, tag)), value, self.hub, tag)
        total = np.array(value, dtype=np.float64)
        others = [m for m in self.members if m != self.hub]
        for other in others:
            total += _array((yield from recv(other, tag)), value, other, tag)
        yield from broadcast(others, tag, total, f"the sum of {reveals}" if reveals else "")
        return total


def _array(found: Payload, like: Array, sender: str, tag: str) -> Array:
    array = expect(found, np.ndarray, sender, tag)
    if array.shape != np.shape(like):
        raise ProtocolError(
            f"{sender} added an array of shape {array.shape} under {tag!r}, expected "
            f"{np.shape(like)}"
        )
    return array

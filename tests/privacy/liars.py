"""Parties that lie in one message: flipped, replayed, swapped, withheld, chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedcircuits.federation.flow import Effect, Envelope, Flow, Program, Send, through
from fedcircuits.federation.messages import encode_fields
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from tests.methods.watched import read
from tests.privacy.parties import messages

Made = Callable[[str], dict[str, Program[Any]]]  # programs with fresh masks, by a label of keys
KINDS = ("flip", "replay", "swap", "withhold")


def lies(made: Made, liar: str, kind: str) -> Iterator[tuple[str, dict[str, Program[Any]]]]:
    """The programs with one message of the liar changed, for each of its messages; its tag."""
    sent = messages(made("one"))[1][liar]
    old = messages(made("another"))[1][liar]
    for at, message in enumerate(sent):
        data = _changed(kind, at, sent, old)
        if data is None or data != message.data:
            programs = made("one")
            told = {"program": programs[liar], "at": at, "data": data}
            yield message.tag, {**programs, liar: Program(lying, told)}


def _changed(kind: str, at: int, sent: list[Envelope], old: list[Envelope]) -> bytes | None:
    message = sent[at]
    if kind == "withhold":
        return None
    if kind == "flip":
        payload = np.array(read(message.data)["data"])
        payload.reshape(-1)[payload.size // 2] ^= 1
        return encode_fields({"data": payload})
    if kind == "replay":
        return bytes(old[at].data)
    others = [m for m in sent if m.tag == message.tag and m.party != message.party]
    return bytes(others[0].data if others else message.data)


def lying(program: Program[Any], at: int, data: bytes | None) -> Flow[Any]:
    """The same flow, but its ``at``-th message holds other bytes, or is not sent."""
    count = -1

    def say(effect: Effect) -> Flow[object]:
        nonlocal count
        if isinstance(effect, Send):
            count += 1
            if count == at:
                if data is None:
                    return None
                effect = replace(effect, data=data)
        return (yield effect)

    return (yield from through(program.start(), say))


def adding(program: Program[Any], tag: str, amount: Callable[[str], int], ring: Ring) -> Flow[Any]:
    """The same flow, but to the first number that it sends each under a tag, something is added.

    With ``amount`` a polynomial that is 0 at the liar's own point, what it deals stays consistent.
    """

    def say(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send) and effect.tag == tag:
            payload = np.array(read(effect.data)["data"])
            first = payload.reshape(-1)[: ring.bytes]
            shares = ring.unpacked(first.copy(), (1,))
            first[:] = ring.packed(ring.add(shares, ring.elements([amount(effect.receiver)])))
            effect = replace(effect, data=encode_fields({"data": payload}))
        return (yield effect)

    return (yield from through(program.start(), say))


def line(ring: Ring, members: tuple[str, ...], liar: str, value: int) -> Callable[[str], int]:
    """Of degree 1, ``value`` at 0 and nothing at the liar's own point."""
    own = members.index(liar) + 1
    slope = -value * pow(own, -1, ring.modulus)
    return lambda member: (value + slope * (members.index(member) + 1)) % ring.modulus


def bent(bits: Elements, at: tuple[int, ...], value: int, ring: Ring) -> Elements:
    """Points, one number of which is another."""
    changed = bits.copy()
    changed[at] = ring.elements(value)
    return changed

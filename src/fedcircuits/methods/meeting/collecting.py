"""Collecting the parts of a model in one place: the only way in which a whole model leaves parties.

Roles: the parties that hold a part of a model, and the coordinator that asks for it.

    collect/part   party → coordinator: its whole part of this model.

The coordinator learns every part, and whatever the parts reveal about rows; parties learn nothing.
A party whose owner has not allowed it fails, and nothing leaves it. At a site the line ``collect``
of the policy allows it, which the site itself checks before the role starts and before the message
leaves.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from fedcircuits.errors import SiteError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Flow, gather, send
from fedcircuits.federation.messages import Message, blaming, require
from fedcircuits.federation.recipes import pack, unpack

T = TypeVar("T")


class LearnedPart(Message, frozen=True):
    tag: ClassVar[str] = "collect/part"
    reveals: ClassVar[str] = "all parameters that it learned for the model"
    needs: ClassVar[str] = "collect"

    part: bytes  # a recipe


def hand_over(me: str, part: object, allow: bool) -> Flow[None]:
    """``allow``: whether its owner lets what it has learned leave it."""
    if allow is not True:
        raise SiteError(f"{me} does not allow its learned parameters to leave it")
    yield from send(COORDINATOR, LearnedPart(pack(part)))


def take_over(parties: tuple[str, ...], kind: type[T]) -> Flow[dict[str, T]]:
    """By party its part, which must be of this kind."""
    messages = yield from gather(parties, LearnedPart)
    parts: dict[str, T] = {}
    for party, message in messages.items():
        with blaming(party, LearnedPart, "part"):
            part = unpack(message.part)
        right = isinstance(part, kind)
        require(right, party, LearnedPart, "part", f"expected {kind.__name__} of this model")
        parts[party] = part
    return parts

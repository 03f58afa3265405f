"""Laws of messages: how they are called, what they hold and reveal, and that they are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np

from fedcircuits.federation.flow import Envelope
from fedcircuits.federation.messages import fields_of
from fedcircuits.testing.protocols.trial import Trial

T = TypeVar("T")
TAG = re.compile(r"[^\W\d][^/]*(/[^/\s][^/]*)+")  # a phase is a word


def reveals(trial: Trial[T]) -> Iterator[str]:
    for sender, message, words in trial.messages():
        if words or _among(message.tag, trial.settings.silent):
            continue
        if _holds(fields_of(message.data)):
            yield f"{message.tag!r} from {sender} to {message.party} holds data and reveals nothing"


def _among(tag: str, named: frozenset[str]) -> bool:
    """Whether the tag is named, or all its rounds are."""
    return tag in named or "/".join(tag.split("/")[:2]) in named


def _holds(payload: object) -> bool:
    """Whether there is any value in it."""
    if isinstance(payload, np.ndarray):
        return payload.size > 0
    if isinstance(payload, Mapping):
        return any(map(_holds, payload.values()))
    if isinstance(payload, list):
        return any(map(_holds, payload))
    return payload is not None and payload != ""


def tags(trial: Trial[T]) -> Iterator[str]:
    for sender, message, _ in trial.messages():
        if not TAG.fullmatch(message.tag):
            yield f"{sender} sends {message.tag!r}: expected phase/what or phase/what/round"


def kinds(trial: Trial[T]) -> Iterator[str]:
    seen: dict[tuple[str, str, str], str] = {}
    for sender, message, _ in trial.messages():
        kind = _kind(fields_of(message.data))
        before = seen.setdefault((sender, message.party, message.tag), kind)
        if before != kind:
            yield f"{sender} sends {message.party} {before}, then {kind}, under {message.tag!r}"


def _kind(payload: object) -> str:
    if isinstance(payload, np.ndarray):
        kind = payload.dtype.kind.replace("u", "i")
        return f"an array of kind {kind!r} with {payload.ndim} axes"
    if isinstance(payload, Mapping):
        return f"({', '.join(f'{n}: {_kind(v)}' for n, v in payload.items())})"
    number = isinstance(payload, int | float) and not isinstance(payload, bool)
    return "a number" if number else f"a value of kind {type(payload).__name__}"


def unread(trial: Trial[T]) -> Iterator[str]:
    left = Counter((sender, m.party, m.tag) for sender, m, _ in trial.messages())
    for name, record in trial.records.items():
        left.subtract((m.party, name, m.tag) for m in record.inbox if isinstance(m, Envelope))
    for (sender, receiver, tag), number in left.items():
        if number and not _among(tag, trial.settings.unread):
            yield f"{receiver} leaves {number} messages {tag!r} from {sender} unread"

"""An audit from the bytes: what every role received, beside what the ledger says it learned.

A protocol is run in memory once, with every message recorded. Of each message:

    declared     a ``Message`` class stands under its tag whose fields are exactly those on the wire
    nothing else its bytes are what this class makes of its fields, to the last one
    counted      the ledger has sender, receiver, tag and number of bytes as they were
    in words     the ledger says what its reader learns
    received     its reader has got it, and nothing that is not in the ledger
    needed       its reader notices if an array, bytes or a list of numbers in it end earlier: it
                 refuses them or does something else. Numbers behind those that the plan asks for
                 are read by nobody, and are found like this (first and last message of a kind)

Secrets within what the plan asks for (in the last bits of a float, say) are not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np

from fedcircuits.engines.outcome import Kept
from fedcircuits.errors import MessageError, PartyLostError, ProtocolError
from fedcircuits.federation.flow import (
    Compute,
    Effect,
    Envelope,
    Flow,
    Program,
    Received,
    Record,
    Recv,
    Send,
    Tell,
    through,
)
from fedcircuits.federation.messages import (
    Ledger,
    Message,
    decode_message,
    encode_fields,
    encode_message,
    fields_of,
)
from fedcircuits.testing.protocols.trial import Programs, difference, recorded

T = TypeVar("T")


def check_ledger(
    programs: Programs[T] | Callable[[], Programs[T]],
    *,
    silent: Collection[str] = (),
    spare: Collection[str] = (),
) -> list[str]:
    """Raise AssertionError unless what roles received is what the ledger says.

    Parameters
    ----------
    programs : mapping of str to Program, or callable
        Of all parties by name, or a function that makes equal ones each time.
    silent : collection of str
        Tags, without rounds, of messages that reveal nothing: shares of secrets.
    spare : collection of str
        Tags, without rounds, of messages whose end its reader need not notice.

    Returns
    -------
    list of str
        What crossed, for review: sender, receiver, tag, class of the message and its fields.
    """
    fresh = partial(deepcopy, programs) if isinstance(programs, Mapping) else programs
    try:
        results, records, outcome = recorded(fresh())
    except ProtocolError as error:
        raise AssertionError(f"the run does not end: {error}") from error
    crossed: dict[str, None] = {}
    problems = [*_counted(records, outcome.ledger), *_received(records, outcome.ledger)]
    for entry, data in _messages(records, outcome.ledger):
        name = f"{entry.tag!r} from {entry.sender} to {entry.receiver}"
        kind = _kind(entry.tag, data, entry.sender)
        if isinstance(kind, str):
            problems.append(f"{name} {kind}")
        else:
            what = f"{kind.__name__}({', '.join(kind.__struct_fields__)})"
            crossed[f"{entry.sender} → {entry.receiver} {_short(entry.tag)} {what}"] = None
        if not entry.reveals and _short(entry.tag) not in silent:
            problems.append(f"{name} reveals nothing according to the ledger")
    for name, program in fresh().items():
        reader = _Reader(name, program, records[name], outcome.kept, results[name])
        problems += reader.unneeded(spare)
    if problems:
        shown = "\n  ".join(list(dict.fromkeys(problems))[:20])
        raise AssertionError(f"the ledger does not say what crossed\n  {shown}")
    return list(crossed)


def _short(tag: str) -> str:
    return "/".join(tag.split("/")[:2])


# ---------------------------------------------------------------------- bytes and the ledger


def _messages(records: Mapping[str, Record], ledger: Ledger) -> Iterator[tuple[Any, bytes]]:
    left = {name: iter(record.sent) for name, record in records.items()}
    for entry in ledger:
        message = next(left[entry.sender], None)
        if message is not None:
            yield entry, message.data


def _counted(records: Mapping[str, Record], ledger: Ledger) -> Iterator[str]:
    for name, record in records.items():
        sent = [(m.party, m.tag, len(m.data)) for m in record.sent]
        if sent != [(e.receiver, e.tag, e.bytes) for e in ledger if e.sender == name]:
            yield f"{name} sends other messages, or other bytes, than are in the ledger"


def _received(records: Mapping[str, Record], ledger: Ledger) -> Iterator[str]:
    for name, record in records.items():
        stated = Counter((e.sender, e.tag, e.bytes) for e in ledger if e.receiver == name)
        heard = [m for m in record.inbox if isinstance(m, Envelope)]
        got = Counter((m.party, m.tag, len(m.data)) for m in heard)
        for sender, tag, _ in got - stated:
            yield f"{name} got {tag!r} from {sender}, which is not in the ledger"
        for sender, tag, _ in stated - got:
            yield f"{name} never got {tag!r} from {sender}, by which it learned something"


def _kind(tag: str, data: bytes, sender: str) -> type[Message] | str:
    """The message class of these bytes, or what is wrong with them."""
    names = tuple(_fields(data))
    declared = [k for k in set(_below(Message)) if not k.tag or f"{tag}/".startswith(f"{k.tag}/")]
    declared.sort(key=lambda k: (not k.tag, k.__name__))  # those of the tag first
    for kind in declared:
        if {*names} == {*kind.__struct_fields__}:
            try:
                message = decode_message(kind, data, sender, tag)
            except MessageError:
                continue
            if encode_message(message) == data:
                return kind
            return f"has more bytes than {kind.__name__} needs for its fields"
    kinds = sorted(k.__name__ for k in declared if k.tag)
    known = f" of {', '.join(kinds)}" if kinds else ""
    return f"has the fields {', '.join(names)}, which are not those{known}"


def _fields(data: bytes) -> dict[str, object]:
    try:
        return fields_of(data)
    except (msgspec.DecodeError, ValueError):
        return {"bytes that are no record": None}


def _below(kind: type[Message]) -> Iterator[type[Message]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


# ---------------------------------------------------------------------- what is needed


@dataclass(frozen=True, slots=True)
class _Reader:
    """A role, which is run again with one message truncated in its inbox."""

    name: str
    program: Program[Any]
    record: Record
    kept: Kept
    result: object

    def unneeded(self, spare: Collection[str]) -> Iterator[str]:
        places: dict[tuple[str, str], list[tuple[int, Envelope]]] = {}
        for at, message in enumerate(self.record.inbox):
            if isinstance(message, Envelope) and _short(message.tag) not in spare:
                places.setdefault((message.party, _short(message.tag)), []).append((at, message))
        for readings in places.values():
            for at, message in dict((readings[0], readings[-1])).items():
                for path, fields in _shortened(_fields(message.data)):
                    inbox = list(self.record.inbox)
                    inbox[at] = replace(message, data=encode_fields(fields))
                    if not self.notices(inbox):
                        yield (
                            f"{message.tag!r} from {message.party} to {self.name} holds more than "
                            f"is read: nobody notices if {path} ends earlier"
                        )

    def notices(self, inbox: list[Received]) -> bool:
        left, sent = iter(inbox), list[Envelope]()

        def answer(effect: Effect) -> Flow[object]:
            yield from ()
            if isinstance(effect, Send):
                sent.append(Envelope(effect.receiver, effect.tag, effect.data))
                return None
            if isinstance(effect, Compute):
                at = self.name, effect.name  # kept for the same messages only if it has a key
                known = effect.key and at in self.kept
                return deepcopy(self.kept[at]) if known else effect.work()
            return None if isinstance(effect, Tell) else self._next(left, effect)

        try:
            flow = through(deepcopy(self.program).start(), answer)
            next(flow)
        except StopIteration as stop:
            return sent != self.record.sent or bool(difference(self.result, stop.value))
        except Exception:
            return True
        return True

    def _next(self, left: Iterator[Received], wanted: Recv) -> bytes:
        news = next(left, None)
        if isinstance(news, PartyLostError):
            raise news
        if news is None or (news.party, news.tag) != (wanted.sender, wanted.tag):
            raise ProtocolError("it goes another way")
        return news.data


def _shortened(fields: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """The fields, with one array, list of numbers or byte string shortened by one."""
    for name, value in fields.items():
        for path, other in _shorter(value):
            yield f"{name}{path}", {**fields, name: other}


def _shorter(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, np.ndarray):
        for axis in range(value.ndim):
            if value.size:
                yield "", np.take(value, range(value.shape[axis] - 1), axis)
    elif isinstance(value, bytes) and value:
        yield "", value[:-1]
    elif isinstance(value, list) and value:
        if isinstance(value[-1], int | float):
            yield "", value[:-1]
        yield from ((f"[-1]{p}", [*value[:-1], v]) for p, v in _shorter(value[-1]))
    elif isinstance(value, dict) and value:
        for key, part in value.items():
            yield from ((f"[{key!r}]{p}", {**value, key: v}) for p, v in _shorter(part))

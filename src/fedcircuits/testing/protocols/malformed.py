"""Malformed messages: every field of every message of a protocol is corrupted in turn.

A protocol is run in memory once. Then one message at a time is changed in transit: its reader is
run again from its inbox, and if it does not reject the message at once, the whole run is
repeated with all computations kept. A change concerns either the form of a message (a field is
missing, unknown, of another type, or an array has another type or number of axes) or its meaning
(an array is a row shorter or longer, has NaN, infinite, negative or huge numbers, or a list has
another length). A message of wrong form must be rejected by its reader, which blames the sender
and names the message and the field. One with another meaning is rejected likewise, or is
harmless, or, where its reader alone cannot know (shares of secrets), ends in an error of the
library that names its sender among the possible ones; the same holds for a sender that is
answered about something it has not sent. Nobody fails with an error of Python or numpy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome, as_one_of, failure
from fedcircuits.errors import FedcircuitsError, MessageError, PartyLostError
from fedcircuits.federation.flow import (
    Compute,
    Effect,
    Envelope,
    Flow,
    Program,
    Record,
    Recv,
    Send,
    through,
)
from fedcircuits.federation.messages import encode_fields, fields_of
from fedcircuits.testing.protocols.trial import Programs, recorded

T = TypeVar("T")
EXTRA = "a field that nobody knows"


@dataclass(frozen=True, slots=True)
class Change:
    """One message, and one way to corrupt it."""

    sender: str
    receiver: str
    tag: str
    number: int  # of the messages from that sender to that receiver under the tag
    field: str
    what: str
    fields: Mapping[str, object]
    form: bool  # whether the form is wrong, so that it must be refused

    def concerns(self, effect: Send) -> bool:
        return (effect.receiver, effect.tag) == (self.receiver, self.tag)

    def arrives(self, news: Envelope) -> bool:
        return (news.party, news.tag) == (self.sender, self.tag)

    def __str__(self) -> str:
        return f"{self.tag!r} from {self.sender} to {self.receiver}, {self.field!r} {self.what}"


def check_messages(
    programs: Programs[T] | Callable[[], Programs[T]],
    *,
    most: int = 400,
    rng: np.random.Generator | None = None,
) -> int:
    """Raise AssertionError unless every malformed message is refused and its sender blamed.

    Parameters
    ----------
    programs : mapping of str to Program, or callable
        Of all parties by name, or a function that makes equal ones each time.
    most : int, default=400
        How many changes to try at most. If there are more they are drawn at random: one of every
        kind of message, field and change, before a second of any.
    rng : numpy.random.Generator, optional
        Draws them.

    Returns
    -------
    int
        How many changes were tried.
    """
    fresh = partial(deepcopy, programs) if isinstance(programs, Mapping) else programs
    _, records, outcome = recorded(fresh())
    changes = list(_changes({name: record.sent for name, record in records.items()}))
    if len(changes) > most:
        changes = _drawn(changes, most, np.random.default_rng(0) if rng is None else rng)
    problems = []
    for change in changes:
        name, record = change.receiver, records[change.receiver]
        reader = deepcopy(programs[name]) if isinstance(programs, Mapping) else fresh()[name]
        with as_one_of(len(records)):
            answer = _read_alone(change, reader, record, outcome.kept)
        if answer is None:
            answer = _repeated(change, fresh(), outcome.kept)
        if problem := _problem(change, answer):
            problems.append(f"{change}: {problem}")
    if problems:
        shown = "\n  ".join(problems[:20])
        raise AssertionError(f"{len(problems)} of {len(changes)} malformed messages\n  {shown}")
    return len(changes)


def _drawn(changes: list[Change], most: int, rng: np.random.Generator) -> list[Change]:
    """One of every kind before a second of any, in their order."""
    met: Counter[tuple[str, str, str]] = Counter()
    places: list[tuple[int, int]] = []  # how many of its kind come before, and which it is
    for at in rng.permutation(len(changes)).tolist():
        change = changes[at]
        kind = re.sub(r"\d+", "", change.tag), change.field, change.what
        places.append((met[kind], at))
        met[kind] += 1
    first = sorted(places, key=lambda place: place[0])[:most]
    return [changes[at] for at in sorted(at for _, at in first)]


def _read_alone(
    change: Change, program: Program[Any], record: Record, kept: Kept
) -> Outcome[Any] | None:
    """The reaction of the reader to the message, before anybody else can notice; None if it goes
    on.

    Until the reader sends something different, all messages to it are those of the first run.
    """
    left, outcome, numbers = iter(record.inbox), Outcome[Any](kept={}), count()
    sent = iter(record.sent)
    changed = False

    def answer(effect: Effect) -> Flow[object]:
        nonlocal changed
        if isinstance(effect, Compute):
            key = change.receiver, effect.name
            if key not in outcome.kept:
                outcome.kept[key] = deepcopy(kept[key]) if key in kept else effect.work()
            return outcome.kept[key]
        if isinstance(effect, Recv):
            news = next(left, None)
            if not isinstance(news, Envelope) or (news.party, news.tag) != (
                effect.sender,
                effect.tag,
            ):
                return (yield effect)
            if change.arrives(news) and next(numbers) == change.number:
                changed, news = True, replace(news, data=encode_fields(change.fields))
            return news.data
        if isinstance(effect, Send):
            original = Envelope(effect.receiver, effect.tag, bytes(effect.data))
            return (yield effect) if changed or original != next(sent, None) else None
        return None

    try:
        for _ in through(program.start(), answer):
            return None
    except Exception as error:
        lost = failure(change.receiver, "reading its messages", error)
        if isinstance(lost.__cause__, PartyLostError):
            return None
        outcome.lost[change.receiver] = lost
    return outcome


def _repeated(change: Change, programs: Programs[T], kept: Kept) -> Outcome[T]:
    """The whole run again, with the message changed in transit."""
    spoiled = dict(programs)
    spoiled[change.sender] = Program(
        changing, {"program": spoiled[change.sender], "change": change}
    )
    return memory.run(spoiled, deepcopy(kept))


def changing(program: Program[T], change: Change) -> Flow[T]:
    """The same flow with one of its messages replaced."""
    numbers = count()

    def spoil(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send) and change.concerns(effect) and next(numbers) == change.number:
            effect = replace(effect, data=encode_fields(change.fields))
        return (yield effect)

    return (yield from through(program.start(), spoil))


def _problem(change: Change, outcome: Outcome[Any]) -> str:
    for party, lost in outcome.lost.items():
        cause = lost.__cause__
        if isinstance(cause, MessageError):
            named = change.tag in f"{cause.tag} {cause}"
            named = named and change.field.split("[")[0] in cause.field
            named = named or not change.form  # two messages of a sender may contradict each other
            blamed = cause.sender == change.sender == lost.party
            answered = party == change.sender and not change.form and party in cause.problem
            return "" if (named and blamed) or answered else f"{party} says: {lost}"
        if party != change.sender and not isinstance(cause, PartyLostError):
            error = cause or lost  # an engine sees that nobody sends, and names who waits for whom
            known = isinstance(error, FedcircuitsError) and change.sender in str(error)
            return "" if known and not change.form else f"{party} says: {lost}"
    if change.form and not outcome.lost:
        return "it was not refused"
    return "" if not outcome.lost else f"nobody refuses it: {next(iter(outcome.lost.values()))}"


# ---------------------------------------------------------------------- what can be wrong


def _changes(sent: Mapping[str, list[Any]]) -> Iterator[Change]:
    """All changes of the first and last message of every sender, receiver and kind."""
    for sender, messages in sent.items():
        places: dict[tuple[str, str], list[tuple[str, int, bytes]]] = {}
        numbers: dict[tuple[str, str], int] = {}
        for message in messages:
            way = message.party, message.tag
            numbers[way] = numbers.get(way, -1) + 1
            kind = message.party, "/".join(message.tag.split("/")[:2])
            places.setdefault(kind, []).append((message.tag, numbers[way], message.data))
        for (receiver, _), messages_sent in places.items():
            for tag, number, data in {
                p[:2]: p for p in (messages_sent[0], messages_sent[-1])
            }.values():
                fields = fields_of(data)
                for field, what, spoiled, form in _spoiled(fields):
                    yield Change(sender, receiver, tag, number, field, what, spoiled, form)


def _spoiled(fields: dict[str, object]) -> Iterator[tuple[str, str, dict[str, object], bool]]:
    yield EXTRA, "is added", fields | {EXTRA: 1}, True
    for name, value in fields.items():
        left = {n: v for n, v in fields.items() if n != name}
        yield name, "is missing", left, False  # it may have a default
        for what, other, form in _others(value):
            yield name, what, fields | {name: other}, form


def _others(value: object) -> Iterator[tuple[str, object, bool]]:
    yield "is a list of a mapping", [{"odd": 1}], True
    if isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, bool):
        yield "is a number", 7, True
    elif isinstance(value, int):
        yield "is text", "seven", True
        yield "is negative", -1 - abs(value), False
        yield "is huge", 2**61, False
    elif isinstance(value, str):
        yield "is a number", 7, True
        yield "is another text", f"{value}?", False
    elif isinstance(value, list) and value:
        yield "is shorter", value[:-1], False
        yield "is longer", [*value, value[0]], False
        yield from ((f"has a first that {w}", [v, *value[1:]], f) for w, v, f in _others(value[0]))
    elif isinstance(value, dict) and value:
        first = next(iter(value))
        yield "has an entry less", {k: v for k, v in value.items() if k != first}, False
        yield from (
            (f"has a first that {w}", value | {first: v}, f) for w, v, f in _others(value[first])
        )


def _arrays(array: np.ndarray) -> Iterator[tuple[str, object, bool]]:
    yield "is a number", 7, True
    yield "is of another kind", np.full(array.shape, "x" if array.dtype.kind != "U" else 1), True
    yield "has an axis more", array[None], False
    if array.ndim:
        yield "is shorter", array[:-1], False
        yield "is longer", np.concatenate([array, array[:1]]) if len(array) else array, False
        yield "has no element", array[:0], False
    if array.ndim > 1:
        yield "is narrower", array[:, :-1], False
        yield "is wider", np.concatenate([array, array[:, :1]], axis=1), False
    if array.size and array.dtype.kind == "f":
        for what, number in {"NaN": np.nan, "infinity": np.inf, "1e308": 1e308}.items():
            with np.errstate(over="ignore"):
                yield f"has {what}", _with(array, number), False
    if array.size and array.dtype.kind in "iu":
        ends = np.iinfo(array.dtype)
        yield "has the smallest number", _with(array, ends.min), False
        yield "has the largest number", _with(array, ends.max), False


def _with(array: np.ndarray, number: float) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[0] = number
    return changed

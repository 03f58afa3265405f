"""The flows by which testing/engines.py checks engines. They are module-level so that they can
be sent.

Each does one thing that an engine may get wrong, and returns what shows whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError, TableError
from fedcircuits.federation.flow import Flow, compute, receive, send
from fedcircuits.federation.messages import Message
from fedcircuits.federation.sums.collectives import Collective, TreeSum
from fedcircuits.federation.sums.topology import star

SECRET = "4711"  # in texts of errors that must not leave a party
ERRORS = {e.__name__: e for e in (ValueError, TableError, FederationError, ProtocolError)}


class Anything(Message, frozen=True):
    """Any content of a message: a JSON value, an array, or several of them."""

    value: Any


def say(to: str, tag: str, value: object, reveals: str = "") -> Flow[None]:
    yield from send(to, Anything(value), tag, reveals)


def hear(sender: str, tag: str) -> Flow[Any]:
    return (yield from receive(sender, Anything, tag)).value


def give(to: str, messages: Sequence[tuple[str, Any]], reveals: str = "") -> Flow[str]:
    for tag, payload in messages:
        yield from say(to, tag, payload, reveals)
    return "given"


def give_unsendable(to: str, what: str) -> Flow[None]:
    """Creates the payload itself: a program that holds it could not be sent either."""
    strange = {"an object": object(), "an array of objects": np.array([object(), "x"], object)}
    yield from say(to, "refused/payload", strange[what])


def take(sender: str, tags: Sequence[str]) -> Flow[list[Any]]:
    received = []
    for tag in tags:
        received.append((yield from hear(sender, tag)))
    return received


def weigh(sender: str, tag: str) -> Flow[int]:
    """The number of bytes of an array, which is not returned."""
    return int((yield from hear(sender, tag)).nbytes)


def swap(other: str, payload: Any, rounds: int = 1) -> Flow[list[Any]]:
    """Everybody sends before anybody reads, under one tag in all rounds."""
    received = []
    for _ in range(rounds):
        yield from say(other, "swap/payload", payload)
        received.append((yield from hear(other, "swap/payload")))
    return received


def give_and_change(to: str, size: int) -> Flow[None]:
    """The receiver must get the array as it was when it was sent."""
    array = np.arange(float(size))
    yield from say(to, "copy/array", array)
    array[:] = -1.0


def keep(table: Array) -> Flow[Array]:
    """No message at all: returns the argument of the program as received."""
    yield from ()
    return table


def finish_early(to: str) -> Flow[str]:
    yield from say(to, "early/word", "done")
    return "finished"


def read_late(sender: str) -> Flow[tuple[Any, str]]:
    """Reads from a party that has ended, writes to it, and waits for a message that never comes."""
    yield from compute("taking its time", partial(_busy, 200_000))
    word = yield from hear(sender, "early/word")
    yield from say(sender, "early/answer", "too late")
    blamed = yield from blame(sender, "early/never")
    return word, blamed


def _busy(terms: int) -> float:
    return float(np.log1p(np.arange(1.0, terms)).sum())


def fail(to: str, words: int, kind: str = "ValueError") -> Flow[None]:
    """Some messages, then an error whose text contains data."""
    for i in range(words):
        yield from say(to, "fail/word", i)
    yield from compute("learning from rows", partial(_raise, kind), key=SECRET)


def _raise(kind: str) -> None:
    raise ERRORS[kind](f"row {SECRET} is strange")


def blame(sender: str, tag: str) -> Flow[str]:
    """The party that the engine reports as lost, and the text."""
    try:
        yield from hear(sender, tag)
    except PartyLostError as lost:
        return f"{lost.party}|{lost}"
    return "nobody|a message came"


def hear_until_lost(sender: str, tell: str) -> Flow[tuple[int, str]]:
    """Counts messages, and continues with another party when the sender is lost."""
    heard = 0
    try:
        while True:
            yield from hear(sender, "fail/word")
            heard += 1
    except PartyLostError as lost:
        yield from say(tell, "fail/heard", heard)
        return heard, f"{lost.party}|{lost}"


def steps(me: str, value: float, fails: bool) -> Flow[float]:
    """Two steps whose results are kept, then an error."""
    first = yield from compute("first step", partial(float, value))
    second = yield from compute("second step", partial(float, 10 * first))
    if fails:
        raise ValueError(f"{me} fails at {SECRET}")
    return second


def averaging(me: str, members: tuple[str, ...], table: Array, rounds: int) -> Flow[Array]:
    """Sums of functions of local rows over several rounds: every digit depends on the order."""
    hub = TreeSum(me, star(members, members[0]))
    centre = np.zeros(table.shape[1])
    for i in range(rounds):
        weight = np.exp(-((table - centre) ** 2).sum(1))  # (rows,)
        sums = np.concatenate([weight @ table, [weight.sum()]])
        total = yield from hub.sum(f"average/sums/{i}", sums, "weighted sums of rows")
        centre = total[:-1] / total[-1]
    return centre


Make = Callable[[str, tuple[str, ...]], Collective]


@dataclass(frozen=True, slots=True)
class SumsFound:
    """The results of one member, per value."""

    totals: list[Array] = field(default_factory=list)
    then: list[Array] = field(default_factory=list)
    again: list[Array] = field(default_factory=list)
    single: list[Array] = field(default_factory=list)
    agreed: list[Array] = field(default_factory=list)
    after: list[Array] = field(default_factory=list)  # the own values, when all is over


def outlined(total: Array) -> Array:
    """A function of a sum, with another shape."""
    return np.append(np.ravel(total), float(np.size(total)))


def offer(place: int) -> list[Array]:
    """A value that a member would announce: of its own size, with bits that arithmetic would
    lose."""
    odd = np.array([1 / 3, -0.0, np.nan, -np.inf])
    return [np.full(place + 1, place / 7), odd + place, np.array(2**53 + 1 + place)]


def summation(
    me: str,
    members: tuple[str, ...],
    make: Make,
    values: Sequence[Array],
    offer: Sequence[Array],
) -> Flow[dict[str, list[Array]]]:
    """Every sum separately, then again under one tag, between announcements of the leader."""
    summation, sums = make(me, members), SumsFound(after=list(values))
    for i, value in enumerate(values):
        tag = f"sum/{i}"
        sums.totals.append((yield from summation.sum(tag, value, "a value")))
        sums.then.append((yield from summation.sum(f"{tag}/then", value, "a value", outlined)))
        small = value.astype(np.float32)
        sums.single.append((yield from summation.sum(f"{tag}/single", small)))  # type: ignore[arg-type]
    for i, value in enumerate(values):
        if i < len(offer):
            sums.agreed.append((yield from summation.agree("sum/again", offer[i], "an offer")))
        twice = np.asarray(2.0 * value)
        sums.again.append((yield from summation.sum("sum/again", twice, "twice a value")))
    return asdict(sums)

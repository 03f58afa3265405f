"""A flow is one party's side of a protocol: a generator that asks for what it cannot do itself.

    yield Send(receiver, tag, data, reveals)   a message; ``reveals`` says what its reader learns
    data = yield Recv(sender, tag)             the next message of that sender under that tag
    result = yield Compute(step, work)         a long computation of the party's own
    yield Tell(phase, round, rounds)           how far a loop is, for whoever watches the run

A flow knows no socket, process, clock or global randomness, so an engine may run it anywhere, and
the same messages make it send the same bytes again: a flow is resumed by replaying its inbox.
``Compute`` names a step, in words that every party may read. Its result is kept when a run fails,
so that a resumed run need not compute it again, and an engine may do it wherever it does not hold
up others. What the result depends on, the party's rows above all, is told apart by ``key``
(``digest``), which the party keeps to itself. Where equal work of several parties takes less time
at once, ``batch`` says how: ``batch([work, …])`` is the list of their results, up to rounding. An
engine that has such parties in one place may use it.

``Tell`` goes to no other party: between owners, what a party tells stays at its site.

Tags read "phase/what", and in loops "phase/what/round"; messages of one sender under one tag
arrive in the order they were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, TypeAlias, TypeVar

from fedcircuits.errors import PartyLostError
from fedcircuits.federation.messages import (
    AnyArray,
    M,
    Message,
    decode_message,
    encode_message,
)

T = TypeVar("T")
Batch: TypeAlias = Callable[[Sequence[Any]], Sequence[object]]  # works of parties to their results


@dataclass(frozen=True, slots=True)
class Send:
    receiver: str
    tag: str
    data: bytes = field(repr=False)
    reveals: str = ""
    needs: str = ""  # what the sender's owner must allow


@dataclass(frozen=True, slots=True)
class Recv:
    sender: str
    tag: str


@dataclass(frozen=True, slots=True)
class Compute(Generic[T]):
    step: str
    work: Callable[[], T]
    batch: Batch | None = None
    key: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """By which its result is kept; never told to others."""
        return f"{self.step} ({self.key})" if self.key else self.step


@dataclass(frozen=True, slots=True)
class Tell:
    phase: str
    round: int  # so many are done
    rounds: int = 0  # of at most so many; 0 if that is not known
    likelihood: float = math.nan  # mean log-likelihood per row; NaN if it is not known


Effect: TypeAlias = Send | Recv | Compute[object] | Tell
Flow: TypeAlias = Generator[Effect, object, T]


@dataclass(frozen=True, slots=True, repr=False)
class Program(Generic[T]):
    """The recipe of a flow: ``Program(client, {"me": "north", "table": table})``.

    Engines that run parties elsewhere send the recipe; a generator cannot be sent.
    """

    function: Callable[..., Flow[T]]
    arguments: dict[str, object]

    def start(self) -> Flow[T]:
        return self.function(**self.arguments)

    def __repr__(self) -> str:
        """Without what its arguments are: keys and tables among them."""
        function = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"<Program {function}({', '.join(self.arguments)})>"


def compute(step: str, work: Callable[[], T], batch: Batch | None = None, key: str = "") -> Flow[T]:
    return (yield Compute(step, work, batch, key))  # type: ignore[return-value]


def tell(phase: str, round: int, rounds: int = 0, likelihood: float = math.nan) -> Flow[None]:
    """How far a loop is."""
    yield Tell(phase, round, rounds, likelihood)


def digest(*parts: str | bytes | AnyArray) -> str:
    """A key of work that depends on all of these. It tells of values: nobody else may see it."""
    whole = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        data = data.tobytes() if not isinstance(data, bytes) else data
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()


def through(flow: Flow[T], handle: Callable[[Effect], Flow[object]]) -> Flow[T]:
    """The same flow, each effect of which is answered by ``handle``: to record, seal or change it.

    A party that is lost while an effect is answered is lost for the flow.
    """
    answer: object = None
    trouble: PartyLostError | None = None
    while True:
        try:
            effect = flow.send(answer) if trouble is None else flow.throw(trouble)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = trouble = None
        try:
            answer = yield from handle(effect)
        except PartyLostError as lost:
            trouble = lost


def driven(flow: Flow[T], act: Callable[[Effect], object]) -> T:
    """What the flow returns once ``act`` has answered all its effects, here and now."""

    def handle(effect: Effect) -> Flow[object]:
        yield from ()  # a flow, though it asks for nothing
        return act(effect)

    try:
        next(through(flow, handle))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a flow whose effects are all answered has ended")


# ---------------------------------------------------------------------- typed messages


def send(receiver: str, message: Message, tag: str = "", reveals: str | None = None) -> Flow[None]:
    """A message to one party; ``tag`` where one kind of message travels under several."""
    yield from broadcast((receiver,), message, tag, reveals)


def broadcast(
    receivers: Sequence[str], message: Message, tag: str = "", reveals: str | None = None
) -> Flow[None]:
    """The same message to several parties, encoded once."""
    data = encode_message(message)
    revealed = message.reveals if reveals is None else reveals
    for receiver in receivers:
        yield Send(receiver, tag or message.tag, data, revealed, message.needs)


def receive(sender: str, kind: type[M], tag: str = "") -> Flow[M]:
    """The next message of that kind, checked; a wrong one blames its sender."""
    data = yield from receive_record(sender, kind, tag)
    return decode_message(kind, data, sender, tag or kind.tag)


def receive_record(sender: str, kind: type[Message], tag: str = "") -> Flow[memoryview]:
    """The next message of that kind as it has travelled, for whoever reads it in steps."""
    return memoryview((yield Recv(sender, tag or kind.tag)))  # type: ignore[arg-type]


def gather(senders: Sequence[str], kind: type[M], tag: str = "") -> Flow[dict[str, M]]:
    """One message of that kind from every sender."""
    messages: dict[str, M] = {}
    for sender in senders:
        messages[sender] = yield from receive(sender, kind, tag)
    return messages

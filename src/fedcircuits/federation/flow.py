"""A flow is one party's side of a protocol: a generator that asks for what it cannot do itself.

    yield Send(receiver, tag, data, reveals)   a message; ``reveals`` says what its reader learns
    data = yield Recv(sender, tag)             the next message of that sender with that tag
    result = yield Compute(step, work)         a long local computation
    yield Tell(phase, round, rounds)           progress of a loop, for whoever watches the run

A flow uses no socket, process, clock or global randomness, so any engine can run it, and the same
messages make it send the same bytes again: a flow is resumed by replaying its inbox. A recorded
inbox therefore shows what a party did and why, checks whether a changed protocol still sends the
same, and brings a restarted party back to where it was.

``Compute`` names a step, in words that every party may read. Its result is kept when a run fails,
so a resumed run need not compute it again, and an engine may run it wherever it does not block
others. Results that depend on different inputs, above all on the party's rows, have different keys
(``digest``), which the party keeps to itself. Where equal work of several parties is faster
together, ``batch`` says how: ``batch([work, …])`` is the list of their results, up to rounding. An
engine that runs such parties in one place may use it.

``Tell`` goes to no other party: between owners, progress stays at the site.

Tags read "phase/what", and in loops "phase/what/round"; messages of one sender with one tag arrive
in the order in which they were sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, TypeAlias, TypeVar

from fedcircuits.errors import PartyLostError, ProtocolError
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
        """The name under which its result is kept; never sent to others."""
        return f"{self.step} ({self.key})" if self.key else self.step


@dataclass(frozen=True, slots=True)
class Tell:
    phase: str
    round: int  # rounds done
    rounds: int = 0  # at most; 0 if unknown
    likelihood: float = math.nan  # mean log-likelihood per row; NaN if unknown


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
        """Without the values of its arguments, which include keys and tables."""
        function = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"<Program {function}({', '.join(self.arguments)})>"


def compute(step: str, work: Callable[[], T], batch: Batch | None = None, key: str = "") -> Flow[T]:
    return (yield Compute(step, work, batch, key))  # type: ignore[return-value]


def tell(phase: str, round: int, rounds: int = 0, likelihood: float = math.nan) -> Flow[None]:
    """Report the progress of a loop."""
    yield Tell(phase, round, rounds, likelihood)


def digest(*parts: str | bytes | AnyArray) -> str:
    """A key for work that depends on all of these. It depends on values, so it stays private."""
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
    raise AssertionError("the flow has ended: all its effects are answered")


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
    """The next message of that kind as raw bytes, to be decoded in steps."""
    return memoryview((yield Recv(sender, tag or kind.tag)))  # type: ignore[arg-type]


def gather(senders: Sequence[str], kind: type[M], tag: str = "") -> Flow[dict[str, M]]:
    """One message of that kind from every sender."""
    messages: dict[str, M] = {}
    for sender in senders:
        messages[sender] = yield from receive(sender, kind, tag)
    return messages


# ---------------------------------------------------------------------- recording and replaying


@dataclass(frozen=True, slots=True)
class Envelope:
    party: str  # the other end
    tag: str
    data: bytes = field(repr=False)


Received = Envelope | PartyLostError  # a loss is news like any other


@dataclass(frozen=True, slots=True)
class Record:
    inbox: list[Received] = field(default_factory=list)
    sent: list[Envelope] = field(default_factory=list)


def recording(program: Program[T]) -> Flow[tuple[T, Record]]:
    """The same flow, whose result has its record: ``Program(recording, {"program": program})``."""
    record = Record()

    def note(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send):
            record.sent.append(_sent(effect))
        elif isinstance(effect, Compute):  # alone, as a replay computes it
            effect = replace(effect, batch=None)
        try:
            answer = yield effect
        except PartyLostError as lost:
            record.inbox.append(lost)
            raise
        if isinstance(effect, Recv):
            assert isinstance(answer, bytes | memoryview)
            record.inbox.append(Envelope(effect.sender, effect.tag, bytes(answer)))
        return answer

    result = yield from through(program.start(), note)
    return result, record


def replay(program: Program[T], inbox: Iterable[Received]) -> list[Envelope]:
    """What the program sends when it receives this inbox; its result is ignored."""
    left, sent = iter(inbox), list[Envelope]()

    def answer(effect: Effect) -> Flow[object]:
        yield from ()
        if isinstance(effect, Send):
            sent.append(_sent(effect))
            return None
        if isinstance(effect, Tell):
            return None
        return effect.work() if isinstance(effect, Compute) else _next(left, effect)

    for effect in through(program.start(), answer):
        raise AssertionError(f"nothing here can answer {effect}")
    return sent


def _sent(effect: Send) -> Envelope:
    return Envelope(effect.receiver, effect.tag, effect.data)


def _next(left: Iterator[Received], wanted: Recv) -> bytes:
    news = next(left, None)
    if isinstance(news, PartyLostError):
        raise news
    if news is None or (news.party, news.tag) != (wanted.sender, wanted.tag):
        message = f"{news.tag!r} from {news.party}" if news else "nothing more"
        raise ProtocolError(
            f"the flow waits for {wanted.tag!r} from {wanted.sender}, the inbox has {message}: "
            "the record is from another program, or the flow depends on more than its messages"
        )
    return news.data

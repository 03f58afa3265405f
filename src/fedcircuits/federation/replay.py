"""A flow run again from its recorded inbox, without engine or other parties.

The same messages make a flow send the same bytes again. A record therefore shows what a party did
and why, tells whether a changed protocol still says the same, and brings a restarted party back to
where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import Compute, Effect, Flow, Program, Recv, Send, Tell, through

T = TypeVar("T")


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
    """What the program sends when it hears that, in that order; its result is left aside."""
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
        raise AssertionError(f"nobody is there to answer {effect}")
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
            f"the flow waits for {wanted.tag!r} from {wanted.sender}, the inbox has {message}: it "
            "was recorded from another program, or the flow depends on more than its messages"
        )
    return news.data

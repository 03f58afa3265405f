"""The outcome of a run: results, lost parties, what crossed, and work that need not be repeated.

An engine runs programs, one per party, and answers the effects of their flows. It never raises for
a party: the caller decides whether the results that are there are enough.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, Protocol, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from fedcircuits.deferred import torch
from fedcircuits.engines.watching import Watch, current_watch
from fedcircuits.errors import FedcircuitsError, MessageError, PartyLostError, ProtocolError
from fedcircuits.federation.flow import Program, Recv, Send, Tell
from fedcircuits.federation.messages import Entry, Ledger

T = TypeVar("T")
LOG = logging.getLogger("fedcircuits.party")
WAITING = re.compile(r"waiting for '(.*)' from (.*)")
Kept = Mapping[tuple[str, str], object]  # results of computations, by party and Compute.name


@dataclass(slots=True)
class Outcome(Generic[T]):
    """Engines record here what happens, which also notifies the watch of the run."""

    results: dict[str, T] = field(default_factory=dict)
    lost: dict[str, PartyLostError] = field(default_factory=dict)  # in the order they were lost
    ledger: Ledger = field(default_factory=Ledger)
    kept: dict[tuple[str, str], object] = field(default_factory=dict)
    watch: Watch | None = field(default_factory=current_watch, repr=False, compare=False)

    def begin(self, parties: Iterable[str]) -> None:
        if self.watch is not None:
            self.watch.begin(tuple(parties))

    def send(self, entry: Entry) -> None:
        """A message has been sent."""
        self.ledger.entries.append(entry)
        if self.watch is not None:
            self.watch.sent(entry)

    def step(self, party: str, step: str) -> None:
        """A party computes, or waits or sends, as described by ``step``."""
        if self.watch is not None:
            waits = WAITING.fullmatch(step)
            if waits is not None:
                self.watch.wait(party, Recv(waits[2], waits[1]))
            else:
                self.watch.step(party, step)

    def tell(self, party: str, news: Tell) -> None:
        if self.watch is not None:
            self.watch.report(party, news)

    def lose(self, party: str, error: PartyLostError) -> None:
        self.lost[party] = error
        if self.watch is not None:
            self.watch.lost(party, str(error))

    def end(self, party: str, result: T) -> None:
        self.results[party] = result
        if self.watch is not None:
            self.watch.done(party)


class Engine(Protocol):
    """Runs programs. One whose messages pass somebody that they are not for, on their way from
    party to party, has an attribute ``relays`` that is True: they are sealed (choice.py)."""

    def __call__(
        self, programs: Mapping[str, Program[T]], kept: Kept | None = None
    ) -> Outcome[T]: ...


def failure(party: str, at: str, error: BaseException) -> PartyLostError:
    """Who failed at which step. Its text is for the owner of the party, ``safe_text`` for others.

    A party that was lost because another one was, or because of another one's message, blames
    that one. The party's log has the whole error.
    """
    if isinstance(error, PartyLostError):
        return error
    LOG.info("%s failed while %s", party, at, exc_info=error)
    safe = error.safe_text if isinstance(error, FedcircuitsError) else type(error).__name__
    text = str(error) if isinstance(error, FedcircuitsError) else safe
    if isinstance(error, MessageError):
        lost = PartyLostError(error.sender, text, safe)
    else:
        begin = f"{party} failed while {at}: "
        lost = PartyLostError(party, begin + text, begin + safe)
    lost.__cause__ = error
    return lost


def failure_report(lost: PartyLostError, error: BaseException) -> tuple[str, str, str, list[str]]:
    """Who is to blame, the text for the owner, the text for others, and places in the code."""
    lines = traceback.extract_tb(error.__traceback__)
    places = [f"{f.filename}:{f.lineno} in {f.name}" for f in lines]
    return lost.party, str(lost), lost.safe_text, places


def waiting_for(effect: Recv) -> str:
    """What a party does that waits, in words that ``Outcome.step`` knows."""
    return f"waiting for {effect.tag!r} from {effect.sender}"


def waits(me: str, effect: Recv, reason: str) -> str:
    """The error text of a flow whose message will not come."""
    return f"{me} waits for {effect.tag!r} from {effect.sender}: {reason}"


def check_other_party(me: str, effect: Send | Recv, members: frozenset[str]) -> None:
    """ProtocolError unless the other end of a message is another party of the run."""
    sends = isinstance(effect, Send)
    other = effect.receiver if isinstance(effect, Send) else effect.sender
    if other in members and other != me:
        return
    raise ProtocolError(
        f"{me} {'sends' if sends else 'waits for'} {effect.tag!r} {'to' if sends else 'from'} "
        f"{other!r}, which is not another party of this run: {', '.join(sorted(members - {me}))}"
    )


# ---------------------------------------------------------------------- threads
#
# How many threads a party's libraries get.
#
# Sums of floating-point numbers depend on how they are cut for threads. So all engines give a
# party as many as it has where all parties compute at once, and results are the same to the last
# bit.


def threads_each(parties: int) -> int:
    """Threads of a party where all compute at once."""
    return max(1, torch.get_num_threads() // max(1, parties))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def as_one_of(parties: int) -> AbstractContextManager[None]:
    """Compute as one of this many parties."""
    return with_threads(threads_each(parties))


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=count):
            yield
    finally:
        torch.set_num_threads(before)

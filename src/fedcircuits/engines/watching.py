"""The progress of a run, for a progress bar, a page, a user's function or a log.

Engines record what happens in their ``Outcome``, in the caller's process; the outcome notifies the
watch under which it was created. A watch counts events and passes each on as a ``Progress``, one at
a time, whatever thread it came from.

The remaining time is known in loops with a known number of rounds (``Tell``): the mean time per
round so far times the remaining rounds. Parties that have not started theirs are assumed to have as
many as the others. Loops may end early, so it is an upper bound.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Literal, TypeAlias

from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Recv, Tell
from fedcircuits.federation.messages import Entry

LOG = logging.getLogger("fedcircuits.training")
Kind: TypeAlias = Literal["begin", "step", "wait", "message", "round", "lost", "done", "end"]
NUMBER = re.compile(r"^[^/]+/[^/]+/(\d+)")  # the round in "phase/what/round"


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened in a training, and how far it is: the argument of ``fit(…, callback=…)``::

        kind        "begin", "step" (a party computes), "wait" (a party waits for other),
                    "message" (from party to other), "round", "lost", "done" (a party has ended),
                    "end"
        party       whom it is about; all of them, with commas, when training begins
        phase       the first word of the tags of messages
        text        the step; the message's tag; why a party is lost
        round       of the phase, and of how many at most (rounds, 0 if that is not known)
        likelihood  mean log-likelihood per row, as last reported
        messages, bytes, seconds   since training began
        left        seconds that this phase may still take, None if that is not known

    >>> import numpy as np
    >>> import fedcircuits as fc
    >>> def show(progress):
    ...     if progress.kind == "round":
    ...         print(progress.phase, progress.party, progress.round, "of", progress.rounds)
    >>> table = fc.Table.of(np.random.default_rng(0).normal(size=(60, 2)))
    >>> federation = fc.split(table, ["north", "south"], by="rows")
    >>> model = fc.FedPC(clusters=1, random_state=0).fit(federation, callback=show)
    learn north 0 of 1
    learn north 1 of 1
    learn south 0 of 1
    learn south 1 of 1
    """

    kind: Kind
    party: str = ""
    other: str = ""
    phase: str = ""
    text: str = ""
    round: int = 0
    rounds: int = 0
    likelihood: float | None = None
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    left: float | None = None

    def words(self) -> str:
        """In one line: phase, round, party, likelihood, bytes."""
        of = f" of {self.rounds}" if self.rounds else ""
        parts = [
            self.phase and (f"{self.phase}, round {self.round}{of}" if self.round else self.phase),
            self.party if self.kind in ("step", "wait", "round", "message") else "",
            self.text if self.kind == "step" else "",
            "" if self.likelihood is None else f"log-likelihood {self.likelihood:.4f}",
            f"{size_words(self.bytes)} crossed" if self.bytes else "",
        ]
        return " · ".join(filter(None, parts)) or "beginning"


Callback: TypeAlias = Callable[[Progress], object]


def size_words(size: int) -> str:
    """Bytes as people say them."""
    number, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "bytes" else f"{number:.3g} {units[0]}"


@dataclass(slots=True)
class _Loop:
    """Rounds of one phase by party, and when it began with how many done."""

    begun: float
    already: int = 0
    done: dict[str, tuple[int, int]] = field(default_factory=dict)  # rounds done, and of how many

    def take(self, party: str, news: Tell) -> None:
        if not self.done:
            self.already = news.round
        self.done[party] = news.round, max(news.rounds, news.round)

    def left(self, now: float, clients: Sequence[str]) -> float | None:
        rounds = dict(self.done)
        if rounds.keys() & set(clients):  # what one of them does, all do
            mean = round(sum(of for _, of in rounds.values()) / len(rounds))
            rounds = {**dict.fromkeys(clients, (0, mean)), **rounds}
        done = sum(d for d, _ in rounds.values()) - self.already
        remaining = sum(of - d for d, of in rounds.values())
        return (now - self.begun) * remaining / done if done > 0 else None


class Watch:
    """Counts what happens and hands it on. One that raises an error is not called again."""

    def __init__(
        self, callbacks: Sequence[Callback], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.callbacks, self.clock = list(callbacks), clock
        self.trouble: list[str] = []  # of callbacks
        self._begun = clock()
        self._messages = self._bytes = 0
        self._phase = ""
        self._rounds: dict[str, int] = {}  # by phase, from tags of messages
        self._loops: dict[str, _Loop] = {}
        self._parties: list[str] = []
        self._lock = RLock()
        self._likelihood: float | None = None

    # ------------------------------------------------------------------ what engines say

    def begin(self, parties: Sequence[str]) -> None:
        with self._lock:
            self._parties = list(parties)
            self._hand_on("begin", ", ".join(parties))

    def step(self, party: str, step: str) -> None:
        self._hand_on("step", party, text=step)

    def wait(self, party: str, wanted: Recv) -> None:
        self._hand_on("wait", party, wanted.sender, wanted.tag)

    def sent(self, entry: Entry) -> None:
        with self._lock:
            self._messages, self._bytes = self._messages + 1, self._bytes + entry.bytes
            self._phase = entry.phase
            if (number := NUMBER.match(entry.tag)) is not None:
                self._rounds[entry.phase] = max(self._rounds.get(entry.phase, 0), int(number[1]))
            self._hand_on("message", entry.sender, entry.receiver, entry.tag)

    def report(self, party: str, news: Tell) -> None:
        with self._lock:
            loop = self._loops.get(news.phase)
            if loop is None or (news.round == 0 and party in loop.done):
                loop = self._loops[news.phase] = _Loop(self.clock())
            loop.take(party, news)
            self._phase = news.phase
            if not math.isnan(news.likelihood):
                self._likelihood = news.likelihood
            self._hand_on("round", party)

    def lost(self, party: str, why: str) -> None:
        self._hand_on("lost", party, text=why)

    def done(self, party: str) -> None:
        self._hand_on("done", party)

    def end(self) -> None:
        self._hand_on("end")

    # ------------------------------------------------------------------ notifications

    def _hand_on(self, kind: Kind, party: str = "", other: str = "", text: str = "") -> None:
        with self._lock:
            now, phase = self.clock(), self._phase
            at, of, left = self._rounds.get(phase, 0), 0, None
            if (loop := self._loops.get(phase)) is not None:
                pairs = loop.done.values() if party not in loop.done else [loop.done[party]]
                at, of = max(d for d, _ in pairs), max(o for _, o in pairs)
                left = loop.left(now, [p for p in self._parties if p != COORDINATOR])
            progress = Progress(
                kind, party, other, phase, text, at, of, self._likelihood, self._messages,
                self._bytes, now - self._begun, left,
            )  # fmt: skip
            _log(progress)
            for callback in tuple(self.callbacks):
                try:
                    callback(progress)
                except Exception as error:
                    self.callbacks.remove(callback)
                    self.trouble.append(
                        f"the callback failed at {progress.words()!r} and was not called again: "
                        f"{type(error).__name__}: {error}"
                    )


def _log(progress: Progress) -> None:
    level = logging.DEBUG if progress.kind in ("message", "wait") else logging.INFO
    if LOG.isEnabledFor(level):
        text = f": {progress.text}" if progress.text else ""
        LOG.log(level, "%s %s%s (%s)", progress.kind, progress.party, text, progress.words())


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def current_watch() -> Watch | None:
    """The watch of the current training, if there is one."""
    return _WATCH.get()


@contextmanager
def watched(callbacks: Sequence[Callback]) -> Iterator[Watch | None]:
    """Watch the runs within, if there is somebody to notify."""
    watch = Watch(callbacks) if callbacks or LOG.isEnabledFor(logging.INFO) else None
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)
        if watch is not None:
            watch.end()

"""All parties in one thread, stepped in a fixed order: the reference for other engines.

Messages are encoded as on a real wire, so that bytes are exact and no party can change what
another one holds. A party whose flow raises is lost: parties that wait for it get PartyLostError at
that point, and continue if their protocol allows it.

Parties that reach equal work with a ``batch`` function (``Compute``) wait there until nobody else
can proceed. Their work is then done together, on all threads, since everybody else waits. If that
fails, each does its own, so that the right party is blamed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedcircuits.engines.outcome import (
    Kept,
    Outcome,
    as_one_of,
    check_other_party,
    failure,
    threads_each,
    waiting_for,
    waits,
    with_threads,
)
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import Batch, Compute, Effect, Flow, Program, Recv, Send, Tell
from fedcircuits.federation.messages import Entry

T = TypeVar("T")
Mail = dict[tuple[str, str, str], deque[bytes]]  # by sender, receiver and tag


def run(programs: Mapping[str, Program[T]], kept: Kept | None = None) -> Outcome[T]:
    """Every party's result; ``kept`` is the work of an earlier run that failed."""
    outcome: Outcome[T] = Outcome(kept=dict(kept or {}))
    outcome.begin(programs)
    post = _Post(frozenset(programs), outcome)
    parties = {name: _Member(name, program, post) for name, program in programs.items()}
    threads = threads_each(1)
    with as_one_of(len(programs)):
        while any(not p.over for p in parties.values()):
            moved = [p.step() for p in parties.values() if not p.over]
            if not any(moved) and not _compute_at_once(parties, threads):
                _break_the_wait(parties)
    done = outcome.results
    outcome.results = {name: done[name] for name in programs if name in done}
    return outcome


@dataclass(slots=True)
class _Post:
    members: frozenset[str]
    outcome: Outcome[Any]
    mail: Mail = field(default_factory=lambda: defaultdict(deque))

    def send(self, me: str, effect: Send) -> None:
        check_other_party(me, effect, self.members)
        size = len(effect.data)
        self.outcome.send(Entry(me, effect.receiver, effect.tag, size, effect.reveals))
        self.mail[me, effect.receiver, effect.tag].append(effect.data)


class _Member:
    def __init__(self, name: str, program: Program[Any], post: _Post) -> None:
        self.name, self.program, self.post = name, program, post
        self.flow: Flow[Any] | None = None
        self.waiting: Recv | Compute[object] | None = None
        self.over = False
        self.at = "its first step"

    def step(self) -> bool:
        """Run as far as possible; returns whether there was any progress."""
        if self.waiting is None:
            self._advance(None)
            return True
        if isinstance(self.waiting, Compute):
            return False
        box = self.post.mail[self.waiting.sender, self.name, self.waiting.tag]
        if box:
            self._advance(box.popleft())
            return True
        if self.waiting.sender in self.post.outcome.lost:
            self.lose(self.waiting.sender)
            return True
        return False

    def lose(self, party: str, why: str = "") -> None:
        assert isinstance(self.waiting, Recv)
        reason = why or f"{party} is lost ({self.post.outcome.lost[party].safe_text})"
        self._advance(None, PartyLostError(party, waits(self.name, self.waiting, reason)))

    def compute(self) -> None:
        """Continue with the result of the batch, or do the work alone."""
        effect, self.waiting = self.waiting, None
        self._advance(None, effect=effect)

    def _advance(
        self, answer: object, trouble: Exception | None = None, effect: Effect | None = None
    ) -> None:
        self.waiting = None
        try:
            flow = self.flow = self.flow or self.program.start()
            while True:
                if effect is None:
                    effect = flow.send(answer) if trouble is None else flow.throw(trouble)
                    answer = trouble = None
                    if self._waits(effect):
                        return
                answer, effect = self._do(effect), None
        except StopIteration as stop:
            self.over = True
            self.post.outcome.end(self.name, stop.value)
        except Exception as error:
            self.over = True
            self.post.outcome.lose(self.name, failure(self.name, self.at, error))

    def _waits(self, effect: Effect) -> bool:
        if isinstance(effect, Recv):
            self.at = waiting_for(effect)
            check_other_party(self.name, effect, self.post.members)
            self.waiting = effect
            if not self.post.mail[effect.sender, self.name, effect.tag]:
                self.post.outcome.step(self.name, self.at)
        elif isinstance(effect, Compute) and effect.batch is not None:
            if (self.name, effect.name) not in self.post.outcome.kept:
                self.waiting = effect
        return self.waiting is not None

    def _do(self, effect: Effect) -> object:
        if isinstance(effect, Send):
            self.at = f"sending {effect.tag!r} to {effect.receiver}"
            self.post.send(self.name, effect)
            return None
        if isinstance(effect, Tell):
            self.post.outcome.tell(self.name, effect)
            return None
        assert isinstance(effect, Compute)
        self.at, key = effect.step, (self.name, effect.name)
        if key not in self.post.outcome.kept:
            self.post.outcome.step(self.name, effect.step)
            self.post.outcome.kept[key] = effect.work()
        return self.post.outcome.kept[key]


def _compute_at_once(parties: Mapping[str, _Member], threads: int) -> bool:
    """Do the work that parties wait for, one batch function at a time; whether there is any."""
    groups: dict[Batch, list[tuple[_Member, Compute[object]]]] = {}
    for party in parties.values():
        if isinstance(effect := party.waiting, Compute) and effect.batch is not None:
            groups.setdefault(effect.batch, []).append((party, effect))
    for batch, group in groups.items():
        for party, effect in group:
            party.post.outcome.step(party.name, effect.step)
        try:
            with with_threads(threads):
                results = batch([effect.work for _, effect in group])
        except Exception:  # each does its own then, and fails if it must
            results = []
        for (party, effect), result in zip(group, results, strict=False):
            party.post.outcome.kept[party.name, effect.name] = result
        for party, _ in group:
            party.compute()
    return bool(groups)


def _break_the_wait(parties: Mapping[str, _Member]) -> None:
    """Deadlock: the first party gets an error, because its message will never arrive."""
    stuck = [(p, p.waiting) for p in parties.values() if isinstance(p.waiting, Recv)]
    waits = "; ".join(f"{p.name} for {w.tag!r} from {w.sender}" for p, w in stuck)
    first, waiting = stuck[0]
    first.lose(waiting.sender, f"deadlock, every party waits and none sends: {waits}")

"""What a run takes where every message is under way for a while: computed, and measured.

``Computed`` is the memory engine with a clock at every party. A party's clock goes on by its CPU
time, encoding of messages included; a message is there ``latency`` seconds after it was sent, and
whoever waits for it goes on then. The last clock is what the run would take where every party has
a core of its own and bandwidth is no matter. Rounds are counted alike: messages that had to wait
for each other. Local learning (``Compute``) stands still on that clock and is counted apart.

``Slept`` is the process engine: messages carry the time at which they were sent, and whoever reads
one sleeps until ``latency`` seconds have passed since. Time runs from the last party's first step
to the last one's end, so that starting processes is no part of it. With more parties than cores it
is a bound from above of what parties with cores of their own would take.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcircuits.engines import memory, process
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Compute, Flow, Program, Recv, Send
from fedcircuits.privacy.operations.powers import compile_kernels

LATENCY = 0.010  # seconds


@dataclass(slots=True)
class Computed:
    """An engine; its figures are those of the last run."""

    latency: float = LATENCY
    seconds: float = 0.0
    rounds: int = 0
    busiest: float = 0.0  # CPU seconds of the party that computes most, without local learning
    learning: float = 0.0  # CPU seconds of local learning, the slowest party's
    sent: dict[str, int] = field(default_factory=dict)  # bytes by sender
    kept: Kept = field(default_factory=dict)

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        wire: dict[tuple[str, str, str], deque[tuple[float, int]]] = defaultdict(deque)
        parties = {name: _Clock(name, self.latency, wire) for name in programs}
        timed = {
            name: Program(parties[name].run, {"program": program})
            for name, program in programs.items()
        }
        outcome = memory.run(timed, kept)
        every = parties.values()
        self.seconds, self.rounds = max(p.now for p in every), max(p.round for p in every)
        self.busiest, self.learning = max(p.cpu for p in every), max(p.apart for p in every)
        self.sent = dict.fromkeys(programs, 0)
        for entry in outcome.ledger:
            self.sent[entry.sender] += entry.bytes
        self.kept = outcome.kept
        return outcome


@dataclass(slots=True)
class _Clock:
    name: str
    latency: float
    wire: dict[tuple[str, str, str], deque[tuple[float, int]]]
    now: float = 0.0
    cpu: float = 0.0
    apart: float = 0.0
    round: int = 0

    def run(self, program: Program[Any]) -> Flow[Any]:
        flow, answer = program.start(), None
        while True:
            begin = time.process_time()
            try:
                effect = flow.send(answer)
            except StopIteration as stop:
                return stop.value
            finally:
                spent = time.process_time() - begin
                self.now, self.cpu = self.now + spent, self.cpu + spent
            answer = yield self._noted(effect)
            if isinstance(effect, Recv):
                there, found = self.wire[effect.sender, self.name, effect.tag].popleft()
                self.now, self.round = max(self.now, there), max(self.round, found)

    def _noted(self, effect: Any) -> Any:
        if isinstance(effect, Send):
            letter = (self.now + self.latency, self.round + 1)
            self.wire[self.name, effect.receiver, effect.tag].append(letter)
        if isinstance(effect, Compute):
            return replace(effect, work=self._apart(effect.work))
        return effect

    def _apart(self, work: Callable[[], object]) -> Callable[[], object]:
        def timed() -> object:
            begin = time.process_time()
            try:
                return work()
            finally:
                self.apart += time.process_time() - begin

        return timed


# ---------------------------------------------------------------------- measured


@dataclass(slots=True)
class Slept:
    """An engine; ``kept`` is local learning that was done before and is not done again."""

    latency: float = LATENCY
    kept: Kept = field(default_factory=dict)
    seconds: float = 0.0

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        slow = {
            name: Program(sleeping, {"program": program, "latency": self.latency})
            for name, program in programs.items()
        }
        outcome = process.run(slow, {**self.kept, **(kept or {})}, timeout=300.0)
        spans = [(began, ended) for _, began, ended in outcome.results.values()]
        self.seconds = max(e for _, e in spans) - max(b for b, _ in spans) if spans else 0.0
        outcome.results = {name: own[0] for name, own in outcome.results.items()}
        return outcome


def sleeping(program: Program[Any], latency: float) -> Flow[tuple[Any, float, float]]:
    """A program whose messages are under way for so long, and when it began and ended."""
    compile_kernels()  # read from the disk: part of starting a process
    began = time.monotonic()  # one clock for all processes of a machine
    flow, answer = program.start(), None
    while True:
        try:
            effect = flow.send(answer)
        except StopIteration as stop:
            return stop.value, began, time.monotonic()
        if isinstance(effect, Send):
            data = np.float64(time.monotonic()).tobytes() + effect.data
            answer = yield replace(effect, data=data)
        elif isinstance(effect, Recv):
            read = bytes((yield effect))  # type: ignore[arg-type]
            left = float(np.frombuffer(read[:8], np.float64)[0]) + latency - time.monotonic()
            time.sleep(max(0.0, left))
            answer = read[8:]
        else:
            answer = yield effect

"""CPU seconds of every party in a run, and wall time of a run with a process a party.

A machine with fewer cores than parties cannot show how long parties on machines of their own would
take. ``Stopwatch`` is the memory engine with a clock at every party: the slowest one plus the
coordinator is a bound from below of what the parties take where each has a core.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Compute, Flow, Program

T = TypeVar("T")


@dataclass(slots=True)
class Stopwatch:
    """An engine: ``FedPC().fit(federation, engine=stopwatch)``."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __call__(self, programs: Mapping[str, Program[T]], kept: Kept | None = None) -> Outcome[T]:
        timed = {
            name: Program(self._timed, {"name": name, "program": program})
            for name, program in programs.items()
        }
        return memory.run(timed, kept)

    def _timed(self, name: str, program: Program[T]) -> Flow[T]:
        flow, answer = program.start(), None
        while True:
            begin = time.process_time()
            try:
                effect = flow.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                self.seconds[name] += time.process_time() - begin
            if isinstance(effect, Compute):
                effect = replace(effect, work=self._work(name, effect.work), batch=None)
            answer = yield effect

    def _work(self, name: str, work: Callable[[], object]) -> Callable[[], object]:
        def timed() -> object:
            begin = time.process_time()
            try:
                return work()
            finally:
                self.seconds[name] += time.process_time() - begin

        return timed

    @property
    def slowest(self) -> float:
        """Seconds of the party that takes longest, and the coordinator's."""
        parties = [s for name, s in self.seconds.items() if name != COORDINATOR]
        return max(parties) + self.seconds[COORDINATOR]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

"""A protocol under test: its first run in memory, with which all other runs are compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import Envelope, Program, Record, recording
from fedcircuits.testing.protocols.equality import difference

T = TypeVar("T")
Programs = Mapping[str, Program[T]]


@dataclass(frozen=True, slots=True)
class TrialSettings(Generic[T]):
    equal: Callable[[T, T], bool] | None
    silent: frozenset[str]
    unread: frozenset[str]
    goes_on: bool
    run: Engine


@dataclass(frozen=True, slots=True)
class Trial(Generic[T]):
    fresh: Callable[[], Programs[T]]  # programs that nobody has run
    settings: TrialSettings[T]
    results: Mapping[str, T]
    records: Mapping[str, Record]
    outcome: Outcome[Any]
    spent: tuple[str, ...]  # global sources of randomness that were used
    changed: str  # the first argument of a program that is another than before

    @classmethod
    def of(cls, fresh: Callable[[], Programs[T]], settings: TrialSettings[T]) -> Trial[T]:
        programs = fresh()
        before, sources = _copied(programs), _sources()
        results, records, outcome = recorded(programs)
        spent = [n for n, state in _sources().items() if difference(sources[n], state)]
        changed = before if isinstance(before, str) else _changed(before, programs)
        return cls(fresh, settings, results, records, outcome, tuple(spent), changed)

    def same(self, results: Mapping[str, T], run: str) -> Iterator[str]:
        """Differences in the results of another run."""
        for name, expected in self.results.items():
            if name not in results:
                yield f"{name} has no result {run}"
            elif self.settings.equal is not None:
                if not self.settings.equal(expected, results[name]):
                    yield f"the result of {name} is another one {run}"
            elif where := difference(expected, results[name]):
                yield f"the result of {name} is another one {run}: result{where}"

    def sends(self, sent: Mapping[str, list[Envelope]], run: str) -> Iterator[str]:
        """Differences in the messages of another run, in the order of the first."""
        left = {name: list(reversed(sends)) for name, sends in sent.items()}
        for name, message, _ in self.messages():
            if name in left and (not left[name] or left[name].pop() != message):
                what = f"{message.tag!r} to {message.party}"
                yield f"{name} sends other bytes {run}, or nothing, as {what}"
        for name, more in left.items():
            if more:
                yield f"{name} sends {len(more)} more messages {run}"

    def messages(self) -> Iterator[tuple[str, Envelope, str]]:
        """Sender, message, and what it is said to reveal, in the order of sending."""
        left = {name: iter(record.sent) for name, record in self.records.items()}
        for entry in self.outcome.ledger:
            yield entry.sender, next(left[entry.sender]), entry.reveals


def recorded(
    programs: Programs[T], kept: Kept | None = None
) -> tuple[dict[str, T], dict[str, Record], Outcome[Any]]:
    """Results and records of all parties of a run in memory, or a ProtocolError."""
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in programs.items()}, kept)
    require_all(outcome)
    results = {name: result for name, (result, _) in outcome.results.items()}
    return results, {name: record for name, (_, record) in outcome.results.items()}, outcome


def require_all(outcome: Outcome[Any]) -> None:
    if outcome.lost:
        raise ProtocolError(f"lost parties: {'; '.join(map(str, outcome.lost.values()))}")


def _sources() -> dict[str, object]:
    legacy = np.random.get_state(legacy=False)  # noqa: NPY002
    return {"random": random.getstate(), "numpy.random": legacy, "torch": torch.get_rng_state()}


def _copied(programs: Programs[T]) -> Programs[T] | str:
    try:
        return deepcopy(programs)
    except Exception as error:
        return f"they cannot be copied to be compared ({type(error).__name__}: {error})"


def _changed(before: Programs[T], after: Programs[T]) -> str:
    for name, program in after.items():
        if where := difference(before[name].arguments, program.arguments):
            return f"{name} has changed an argument: arguments{where}"
    return ""

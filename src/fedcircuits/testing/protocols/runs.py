"""Laws of runs: the same again, in whatever engine, and nothing touched that is not the run's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

from fedcircuits.engines.outcome import Kept, Outcome, as_one_of
from fedcircuits.federation.flow import replay
from fedcircuits.testing.protocols.trial import Trial, recorded, require_all

T = TypeVar("T")
Ways = dict[tuple[str, str], list[tuple[str, int, str]]]  # messages of every sender and reader


def in_other_engine(trial: Trial[T]) -> Iterator[str]:
    outcome = trial.settings.run(trial.fresh())
    require_all(outcome)
    yield from trial.same(outcome.results, "in the other engine")
    expected, result = _by_way(trial.outcome), _by_way(outcome)
    for sender, reader in sorted(expected.keys() | result.keys()):
        if expected[sender, reader] != result[sender, reader]:
            yield f"other messages in the other engine from {sender} to {reader}"


def _by_way(outcome: Outcome[Any]) -> Ways:
    ways: Ways = defaultdict(list)
    for e in outcome.ledger:
        ways[e.sender, e.receiver].append((e.tag, e.bytes, e.reveals))
    return ways


def determinism(trial: Trial[T]) -> Iterator[str]:
    return _again(trial, None, "when run again")


def kept_work(trial: Trial[T]) -> Iterator[str]:
    return _again(trial, trial.outcome.kept, "when all work is kept")


def _again(trial: Trial[T], kept: Kept | None, run: str) -> Iterator[str]:
    results, records, _ = recorded(trial.fresh(), deepcopy(kept))
    yield from trial.sends({name: record.sent for name, record in records.items()}, run)
    yield from trial.same(results, run)


def replays(trial: Trial[T]) -> Iterator[str]:
    programs = trial.fresh()
    with as_one_of(len(programs)):
        sent = {n: replay(programs[n], record.inbox) for n, record in trial.records.items()}
    yield from trial.sends(sent, "when replayed")


def randomness(trial: Trial[T]) -> Iterator[str]:
    for name in trial.spent:
        yield f"the global generator of {name} was used: take a Generator or a seed as argument"


def arguments(trial: Trial[T]) -> Iterator[str]:
    if trial.changed:
        yield trial.changed

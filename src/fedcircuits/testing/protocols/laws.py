"""The laws of protocols: messages, repeated runs, and losses.

Messages: how they are tagged, what they hold and reveal, and that they are read. Runs: the same
results and bytes again, in any engine, and nothing touched that does not belong to the run.

Losses: every party in turn fails at its first, middle and last message. The run must end. Whoever
is lost by it must blame the party that failed, directly or through another. Whoever read, in the
first run, a message that was never sent now must not return as if nothing had happened: it is lost,
or, where the protocol goes on without lost parties, has a result different from that of all parties
if the failed one had sent nothing yet. Computations are kept from the first run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import Any, TypeVar

import numpy as np

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome, as_one_of
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import (
    Compute,
    Effect,
    Envelope,
    Flow,
    Program,
    Record,
    replay,
    through,
)
from fedcircuits.federation.messages import fields_of
from fedcircuits.testing.protocols.trial import Programs, Trial, recorded, require_all

T = TypeVar("T")
TAG = re.compile(r"[^\W\d][^/]*(/[^/\s][^/]*)+")  # a phase is a word


def reveals(trial: Trial[T]) -> Iterator[str]:
    for sender, message, words in trial.messages():
        if words or _among(message.tag, trial.settings.silent):
            continue
        if _holds(fields_of(message.data)):
            yield f"{message.tag!r} from {sender} to {message.party} holds data and reveals nothing"


def _among(tag: str, named: frozenset[str]) -> bool:
    """Whether the tag, or the tag without its round, is named."""
    return tag in named or "/".join(tag.split("/")[:2]) in named


def _holds(payload: object) -> bool:
    """Whether the payload contains any value."""
    if isinstance(payload, np.ndarray):
        return payload.size > 0
    if isinstance(payload, Mapping):
        return any(map(_holds, payload.values()))
    if isinstance(payload, list):
        return any(map(_holds, payload))
    return payload is not None and payload != ""


def tags(trial: Trial[T]) -> Iterator[str]:
    for sender, message, _ in trial.messages():
        if not TAG.fullmatch(message.tag):
            yield f"{sender} sends {message.tag!r}: expected phase/what or phase/what/round"


def kinds(trial: Trial[T]) -> Iterator[str]:
    seen: dict[tuple[str, str, str], str] = {}
    for sender, message, _ in trial.messages():
        kind = _kind(fields_of(message.data))
        before = seen.setdefault((sender, message.party, message.tag), kind)
        if before != kind:
            yield f"{sender} sends {message.party} {before}, then {kind}, under {message.tag!r}"


def _kind(payload: object) -> str:
    if isinstance(payload, np.ndarray):
        kind = payload.dtype.kind.replace("u", "i")
        return f"an array of kind {kind!r} with {payload.ndim} axes"
    if isinstance(payload, Mapping):
        return f"({', '.join(f'{n}: {_kind(v)}' for n, v in payload.items())})"
    number = isinstance(payload, int | float) and not isinstance(payload, bool)
    return "a number" if number else f"a value of kind {type(payload).__name__}"


def unread(trial: Trial[T]) -> Iterator[str]:
    left = Counter((sender, m.party, m.tag) for sender, m, _ in trial.messages())
    for name, record in trial.records.items():
        left.subtract((m.party, name, m.tag) for m in record.inbox if isinstance(m, Envelope))
    for (sender, receiver, tag), number in left.items():
        if number and not _among(tag, trial.settings.unread):
            yield f"{receiver} leaves {number} messages {tag!r} from {sender} unread"


Ways = dict[tuple[str, str], list[tuple[str, int, str]]]  # messages of every sender and reader


def in_other_engine(trial: Trial[T]) -> Iterator[str]:
    outcome = trial.settings.run(trial.fresh())
    require_all(outcome)
    yield from trial.same(outcome.results, "in the other engine")
    expected, result = by_way(trial.outcome), by_way(outcome)
    for sender, reader in sorted(expected.keys() | result.keys()):
        if expected[sender, reader] != result[sender, reader]:
            yield f"other messages in the other engine from {sender} to {reader}"


def by_way(outcome: Outcome[Any]) -> Ways:
    """Messages by sender and receiver, in order; between different pairs there is no order."""
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


def losses(trial: Trial[T]) -> Iterator[str]:
    lengths = {name: len(r.sent) + len(r.inbox) for name, r in trial.records.items()}
    for party, length in lengths.items():
        for at in sorted({0, length // 2, length - 1} if length else ()):
            programs = _with_failure(trial.fresh(), lengths, party, at)
            outcome = memory.run(programs, deepcopy(trial.outcome.kept))
            for problem in _problems(trial, party, at, outcome):
                yield f"{party} fails at message {at + 1} of {length}: {problem}"


def _with_failure(
    programs: Programs[T], lengths: Mapping[str, int], party: str, at: int
) -> Programs[T]:
    """``party`` fails before message ``at``, and others if they never end."""
    failures = {}
    for name, program in programs.items():
        most = 10 * lengths[name] + 100
        fails = {"at": at if name == party else None, "most": most}
        failures[name] = Program(_failing, {"program": program, **fails})
    return failures


def _failing(program: Program[T], at: int | None, most: int) -> Flow[T]:
    messages = count()

    def fail(effect: Effect) -> Flow[object]:
        if not isinstance(effect, Compute):
            number = next(messages)
            if number == at:
                raise RuntimeError("a failure on purpose")
            if number == most:
                raise ProtocolError(f"it still goes on after {most} messages")
        return (yield effect)

    return (yield from through(program.start(), fail))


def _problems(trial: Trial[T], party: str, at: int, outcome: Outcome[T]) -> Iterator[str]:
    for name, error in outcome.lost.items():
        if _to_blame(name, outcome.lost) != party:
            yield f"{name} does not blame it: {error}"
    sent = sum(e.sender == party for e in outcome.ledger)
    for message in trial.records[party].sent[sent:]:
        name = message.party
        if name not in outcome.results or not _reads(trial.records[name], party, message.tag):
            continue
        full = not any(trial.same({**trial.results, name: outcome.results[name]}, "then"))
        if not trial.settings.goes_on or (full and not at):
            what = "the full result" if full else "a result"
            yield f"{name} ends with {what} although it never heard {message.tag!r}"


def _reads(record: Record, sender: str, tag: str) -> bool:
    return any(isinstance(m, Envelope) and (m.party, m.tag) == (sender, tag) for m in record.inbox)


def _to_blame(name: str, lost: Mapping[str, PartyLostError]) -> str:
    """The party at the end of a chain of parties that wait for each other."""
    seen: list[str] = []
    while name in lost and name not in seen:
        seen.append(name)
        name = lost[name].party
    return name

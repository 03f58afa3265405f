"""The law of losses: every party in turn fails at its first, middle and last message.

The run must end. Whoever is lost by it must blame the party that failed, or one that does. Whoever
read, in the first run, a message that now was never sent must not return as if nothing had
happened: it is lost, or, where the protocol goes on without lost parties, has another result than
that of all if the party had said nothing yet. Computations are kept from the first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import TypeVar

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import Compute, Effect, Envelope, Flow, Program, Record, through
from fedcircuits.testing.protocols.trial import Programs, Trial

T = TypeVar("T")


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
    """``party`` fails before message ``at``, the others if they never come to an end."""
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
    """Whoever waits for a party that waits for another one blames that one."""
    seen: list[str] = []
    while name in lost and name not in seen:
        seen.append(name)
        name = lost[name].party
    return name

"""The memory engine, with every message it has seen, and flows that say something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Kept, Outcome
from fedcircuits.federation.flow import Effect, Flow, Program, Send, through
from fedcircuits.federation.messages import encode_fields, fields_of
from fedcircuits.federation.replay import Envelope, Record, recording

KEY = bytes(range(32))  # of row tokens


class Watched:
    """An engine that records all parties of its runs."""

    def __init__(self, changes: Mapping[tuple[str, str], Callable[[Any], Any]] = {}) -> None:
        self.changes = changes  # by party and tag: what it says instead
        self.programs: list[dict[str, Program[Any]]] = []
        self.records: list[dict[str, Record]] = []
        self.kept: Kept = {}

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.programs.append(dict(programs))
        for (party, tag), change in self.changes.items():
            told = {"program": programs[party], "tag": tag, "change": change}
            programs = {**programs, party: Program(saying, told)}
        outcome = memory.run(
            {n: Program(recording, {"program": p}) for n, p in programs.items()}, kept
        )
        self.records.append({n: record for n, (_, record) in outcome.results.items()})
        outcome.results = {n: result for n, (result, _) in outcome.results.items()}
        self.kept = outcome.kept
        return outcome

    @property
    def messages(self) -> list[tuple[str, Envelope]]:
        """Sender and message, of all runs."""
        return [(n, m) for run in self.records for n, record in run.items() for m in record.sent]


def saying(program: Program[Any], tag: str, change: Callable[[Any], Any]) -> Flow[Any]:
    """The same flow, but what it sends under a tag is changed; of a record its fields, a dict."""

    def say(effect: Effect) -> Flow[object]:
        if isinstance(effect, Send) and effect.tag == tag:
            effect = replace(effect, data=encode_fields(change(read(effect.data))))
        return (yield effect)

    return (yield from through(program.start(), say))


def read(data: bytes | memoryview) -> Any:
    """The fields of a message by name, unchecked."""
    return fields_of(data)

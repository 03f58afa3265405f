"""The memory engine, with every message it has seen, and flows that say something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Engine, Kept, Outcome
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.federation.flow import (
    Effect,
    Envelope,
    Flow,
    Program,
    Record,
    Recv,
    Send,
    recording,
    through,
)
from fedcircuits.federation.messages import encode_fields, fields_of

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


def dying(program: Program[Any], tag: str, after: int) -> Flow[Any]:
    """Fails when it has sent so many messages under a tag and would send another."""
    flow, reply, sent = program.start(), None, 0
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        if isinstance(effect, Send) and effect.tag == tag:
            if sent == after:
                raise RuntimeError("killed")
            sent += 1
        reply = yield effect


def flipped(at: int, bit: int) -> Callable[[Any], Any]:
    """A change of one bit in a message of shares."""

    def change(fields: Any) -> Any:
        data = np.array(fields["data"])
        data.reshape(-1)[at] ^= 1 << bit
        return {"data": data}

    return change


def keyed(engine: str) -> Engine:
    """The engine, with one key in all runs: the order of rows in EM depends on it, and so do the
    last bits."""

    def run(programs: Mapping[str, Program[Any]], kept: Kept | None = None) -> Outcome[Any]:
        alike = {n: p.arguments for n, p in programs.items()}
        alike = {n: a | {"secret": KEY} if "secret" in a else a for n, a in alike.items()}
        same = {n: Program(p.function, alike[n]) for n, p in programs.items()}
        return engine_of(engine, False)(same, kept)

    return run


def breaking(party: str, tag: str) -> Engine:
    """An engine in which a party breaks down before it sends that."""

    def broken(payload: object) -> Any:
        raise RuntimeError("the patient is called Quixote")

    def run(programs: Any, kept: Kept | None = None) -> Outcome[Any]:
        told = {"program": programs[party], "tag": tag, "change": broken}
        return memory.run({**programs, party: Program(saying, told)}, kept)

    return run


def failing_at(program: Program[Any], tag: str) -> Flow[Any]:
    """The same flow, that breaks where it would wait for a tag."""
    flow, answer = program.start(), None
    while True:
        try:
            effect = flow.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(effect, Recv) and effect.tag == tag:
            raise RuntimeError("out of memory")
        answer = yield effect


class Broken:
    """An engine in which a party fails once at a tag; it counts the work it was given."""

    def __init__(self, party: str, tag: str, engine: str = "memory") -> None:
        self.party, self.tag, self.fails, self.engine = party, tag, True, engine
        self.kept: list[Kept] = []

    def __call__(
        self, programs: Mapping[str, Program[Any]], kept: Kept | None = None
    ) -> Outcome[Any]:
        self.kept.append(dict(kept or {}))
        if self.fails:
            self.fails = False
            told = {"program": programs[self.party], "tag": self.tag}
            programs = {**programs, self.party: Program(failing_at, told)}
        return engine_of(self.engine, False)(programs, kept)

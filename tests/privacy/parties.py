"""Parties that compute together in memory, with keys that are the same in every run of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.flow import Envelope, Program, recording


def names(count: int) -> tuple[str, ...]:
    return tuple(f"party{i}" for i in range(count))


def key(name: str) -> bytes:
    return sha256(name.encode()).digest()


def programs(flow: Callable[..., Any], given: dict[str, Any], **common: Any) -> dict[str, Any]:
    """``given``: what each party has of its own, as the flow's argument ``own``."""
    members = tuple(given)
    return {
        me: Program(flow, {"me": me, "members": members, "key": key(me), "own": own, **common})
        for me, own in given.items()
    }


def together(flow: Callable[..., Any], given: dict[str, Any], **common: Any) -> Outcome[Any]:
    return memory.run(programs(flow, given, **common))


def answers(flow: Callable[..., Any], given: dict[str, Any], **common: Any) -> dict[str, Any]:
    outcome = together(flow, given, **common)
    assert not outcome.lost, "; ".join(map(str, outcome.lost.values()))
    return outcome.results


def messages(made: dict[str, Any]) -> tuple[Outcome[Any], dict[str, list[Envelope]]]:
    """A run, and what every party has sent in it."""
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in made.items()})
    assert not outcome.lost, "; ".join(map(str, outcome.lost.values()))
    sent = {n: record.sent for n, (_, record) in outcome.results.items()}
    outcome.results = {n: result for n, (result, _) in outcome.results.items()}
    return outcome, sent


def by_round(outcome: Outcome[Any]) -> dict[str, int]:
    """Messages under every tag: one tag a round."""
    found: dict[str, int] = {}
    for entry in outcome.ledger:
        found[entry.tag] = found.get(entry.tag, 0) + 1
    return found


def numbers(values: Iterable[int]) -> list[int]:
    return [int(v) for v in values]

"""Recording changes nothing; a replay sends the same bytes, also after a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import PartyLostError, ProtocolError
from fedcircuits.federation.flow import Envelope, Flow, Program, Record, compute, recording, replay
from fedcircuits.federation.messages import decode_message, encode_message
from fedcircuits.federation.sums.collectives import Addend
from fedcircuits.testing import trials
from fedcircuits.testing.trials import say


def said(value: object) -> bytes:
    return encode_message(trials.Anything(value))


def averaging() -> dict[str, Program[Array]]:
    members, rng = ("a", "b", "c"), np.random.default_rng(0)
    return {
        me: Program(
            trials.averaging,
            {"me": me, "members": members, "table": rng.normal(size=(20, 3)), "rounds": 4},
        )
        for me in members
    }


def recorded(programs: dict[str, Program[Any]]) -> dict[str, Program[Any]]:
    return {name: Program(recording, {"program": p}) for name, p in programs.items()}


def test_recording_changes_nothing() -> None:
    programs = averaging()
    plain, watched = memory.run(programs), memory.run(recorded(programs))
    assert plain.ledger.entries == watched.ledger.entries
    for name, (result, record) in watched.results.items():
        np.testing.assert_array_equal(result, plain.results[name])
        sent = [len(m.data) for m in record.sent]
        assert sent == [e.bytes for e in plain.ledger if e.sender == name]


def test_every_byte_is_sent_again() -> None:
    programs = averaging()
    for name, (_, record) in memory.run(recorded(programs)).results.items():
        assert record.sent and replay(programs[name], record.inbox) == record.sent


def test_a_changed_message_changes_what_is_sent() -> None:
    programs = averaging()
    _, record = memory.run(recorded(programs)).results["b"]
    first = record.inbox[0]
    values = decode_message(Addend, first.data, "a", first.tag).values
    changed = Envelope(first.party, first.tag, encode_message(Addend(values + 1.5)))
    again = replay(programs["b"], [changed, *record.inbox[1:]])
    assert again[0] == record.sent[0] and again[1] != record.sent[1]


def test_a_loss_is_replayed() -> None:
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.fail, {"to": "b", "words": 3}),
        "b": Program(trials.hear_until_lost, {"sender": "a", "tell": "c"}),
        "c": Program(trials.take, {"sender": "b", "tags": ["fail/heard"]}),
    }
    (heard, _), record = memory.run(recorded(programs)).results["b"]
    assert heard == 3 and isinstance(record.inbox[-1], PartyLostError)
    assert (
        replay(programs["b"], record.inbox) == record.sent == [Envelope("c", "fail/heard", said(3))]
    )


def test_steps_are_computed_again() -> None:
    def flow() -> Flow[None]:
        number = yield from compute("counting", lambda: 5)
        yield from say("b", "count/number", number)

    assert replay(Program(flow, {}), Record().inbox) == [Envelope("b", "count/number", said(5))]


@pytest.mark.parametrize(
    ("inbox", "found"),
    [([], "nothing more"), ([Envelope("a", "x/other", b"")], "'x/other' from a")],
)
def test_an_inbox_of_another_program(inbox: list[Any], found: str) -> None:
    program = Program(trials.take, {"sender": "a", "tags": ["x/y"]})
    with pytest.raises(ProtocolError, match=f"waits for 'x/y' from a, the inbox has {found}"):
        replay(program, inbox)

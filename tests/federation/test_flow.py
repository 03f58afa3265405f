"""Flows and their small parts, driven by hand."""

from __future__ import annotations

import pytest

from fedcircuits.errors import MessageError
from fedcircuits.federation.flow import (
    Compute,
    Flow,
    Program,
    Recv,
    Send,
    compute,
    receive,
)
from fedcircuits.federation.messages import encode_fields, encode_message
from fedcircuits.testing.trials import Anything, hear, say


def said(value: object) -> bytes:
    return encode_message(Anything(value))


def double(other: str, factor: int) -> Flow[int]:
    yield from say(other, "double/ask", 1, "a number")
    found = yield from hear(other, "double/answer")
    return (yield from compute("doubling", lambda: factor * found))


def test_a_flow_asks_for_what_it_cannot_do() -> None:
    flow = Program(double, {"other": "south", "factor": 2}).start()
    assert flow.send(None) == Send("south", "double/ask", said(1), "a number")
    assert flow.send(None) == Recv("south", "double/answer")
    effect = flow.send(said(21))
    assert isinstance(effect, Compute) and effect.step == "doubling" and effect.work() == 42
    with pytest.raises(StopIteration) as stop:
        flow.send(42)
    assert stop.value.value == 42


def test_a_program_starts_anew() -> None:
    program = Program(double, {"other": "south", "factor": 2})
    first, second = program.start(), program.start()
    assert first is not second and first.send(None) == second.send(None)


def test_a_message_of_another_kind() -> None:
    flow = receive("south", Anything, "x/y")
    assert flow.send(None) == Recv("south", "x/y")
    with pytest.raises(MessageError, match=r"south sent 'x/y' .*unknown field `other`"):
        flow.send(encode_fields({"value": 1, "other": 2}))

"""Flows and their small parts, driven by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.errors import ProtocolError
from fedcircuits.federation.flow import (
    Compute,
    Flow,
    Program,
    Recv,
    Send,
    compute,
    expect,
    recv_payload,
    send_payload,
)


def double(other: str, factor: int) -> Flow[int]:
    yield from send_payload(other, "double/ask", 1, "a number")
    found = expect((yield from recv_payload(other, "double/answer")), int, other, "double/answer")
    return (yield from compute("doubling", lambda: factor * found))


def test_a_flow_asks_for_what_it_cannot_do() -> None:
    flow = Program(double, {"other": "south", "factor": 2}).start()
    assert flow.send(None) == Send("south", "double/ask", 1, "a number")
    assert flow.send(None) == Recv("south", "double/answer")
    effect = flow.send(21)
    assert isinstance(effect, Compute) and effect.step == "doubling" and effect.work() == 42
    with pytest.raises(StopIteration) as stop:
        flow.send(42)
    assert stop.value.value == 42


def test_a_program_starts_anew() -> None:
    program = Program(double, {"other": "south", "factor": 2})
    first, second = program.start(), program.start()
    assert first is not second and first.send(None) == second.send(None)


def test_a_payload_of_another_kind() -> None:
    assert expect([1], list, "south", "x/y") == [1]
    words = "south sent ndarray under 'x/y', expected dict: it runs another protocol"
    with pytest.raises(ProtocolError, match=words):
        expect(np.ones(2), dict, "south", "x/y")

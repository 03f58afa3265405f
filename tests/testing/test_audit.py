"""The audit of bytes finds whatever crosses and is not said to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcircuits.federation.flow import Effect, Flow, Program, Recv, Send, receive, send, through
from fedcircuits.federation.messages import (
    Count,
    FiniteVector,
    Message,
    encode_fields,
    encode_message,
    fields_of,
    require_shape,
)
from fedcircuits.testing import check_ledger

ROWS = np.arange(12.0).reshape(4, 3)


class ColumnSums(Message, frozen=True):
    tag: ClassVar[str] = "sum/columns"
    reveals: ClassVar[str] = "sums of its columns"

    sums: FiniteVector
    rows: Count


def client(table: Any) -> Flow[None]:
    yield from send("hub", ColumnSums(table.sum(axis=0), len(table)))


def hub(checks: bool) -> Flow[list[float]]:
    told = yield from receive("north", ColumnSums)
    if checks:
        require_shape(told.sums, (3,), "north", ColumnSums, "sums")
    return [float(s) for s in told.sums[:3] / told.rows]


def raw() -> Flow[object]:
    """A reader who keeps whatever comes."""
    data = yield Recv("north", "sum/columns")
    assert isinstance(data, bytes)
    return data


def programs(reader: Program[Any], planted: Any = None) -> dict[str, Program[Any]]:
    north: Program[Any] = Program(client, {"table": ROWS})
    if planted is not None:
        north = Program(smuggling, {"program": north, "planted": planted})
    return {"north": north, "hub": reader}


def smuggling(program: Program[Any], planted: Any) -> Flow[Any]:
    """The same flow, whose messages hold something more."""

    def hide(effect: Effect) -> Flow[object]:
        return (yield planted(effect) if isinstance(effect, Send) else effect)

    return (yield from through(program.start(), hide))


def extra_field(effect: Send) -> Send:
    return replace(effect, data=encode_fields({**fields_of(effect.data), "first": ROWS[0]}))


def longer(effect: Send) -> Send:
    sums = np.concatenate([ROWS.sum(axis=0), ROWS[0]])
    return replace(effect, data=encode_message(ColumnSums(sums, 4)))


def another_field(effect: Send) -> Send:
    """A field twice, of which readers see the last one."""
    first, *rest = effect.data
    name = b"\xa4rows" + b"\x07"
    return replace(effect, data=bytes([first + 1]) + name + bytes(rest))


def no_words(effect: Send) -> Send:
    return replace(effect, reveals="")


def no_record(effect: Send) -> Send:
    return replace(effect, data=effect.data + ROWS.tobytes())


def test_an_honest_protocol() -> None:
    found = check_ledger(programs(Program(hub, {"checks": True})))
    assert found == ["north → hub sum/columns ColumnSums(sums, rows)"]


@pytest.mark.parametrize(
    ("reader", "planted", "problem"),
    [
        (Program(raw, {}), extra_field, "has the fields sums, rows, first, which are not those of"),
        (Program(hub, {"checks": True}), extra_field, "unknown field"),
        (Program(hub, {"checks": False}), longer, "nobody notices if sums ends earlier"),
        (Program(hub, {"checks": True}), longer, "expected shape 3, got 6"),
        (Program(hub, {"checks": True}), another_field, "more bytes than ColumnSums needs"),
        (Program(hub, {"checks": True}), no_words, "reveals nothing according to the ledger"),
        (Program(raw, {}), no_record, "bytes that are no record"),
    ],
)
def test_what_is_planted_is_found(reader: Program[Any], planted: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_ledger(programs(reader, planted))


def test_messages_without_words_may_be_named() -> None:
    planted = programs(Program(hub, {"checks": True}), no_words)
    assert check_ledger(planted, silent=["sum/columns"])

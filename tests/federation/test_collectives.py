"""Gather, broadcast and the sum at a hub: results, and exactly what crosses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.circuits.family import Array
from fedcircuits.engines import memory
from fedcircuits.federation.collectives import HubSum, broadcast, gather
from fedcircuits.federation.flow import Flow, Program, recv, send
from fedcircuits.federation.wire import Payload, encode
from fedcircuits.testing import check_summation


def ask(members: list[str]) -> Flow[dict[str, Payload]]:
    yield from broadcast(members, "ask/factor", 3, "the factor")
    return (yield from gather(members, "ask/answer"))


def answer(number: int) -> Flow[None]:
    factor = yield from recv("hub", "ask/factor")
    assert isinstance(factor, int)
    yield from send("hub", "ask/answer", factor * number)


def adds(me: str, value: Array) -> Flow[Array]:
    return (yield from HubSum(me, ("a", "b", "c"), "b").sum("add/up", value, "own sums"))


def added(values: dict[str, Any]) -> Any:
    return memory.run({me: Program(adds, {"me": me, "value": v}) for me, v in values.items()})


def test_broadcast_and_gather() -> None:
    members = ["c", "a", "b"]
    programs: dict[str, Program[Any]] = {"hub": Program(ask, {"members": members})}
    programs |= {m: Program(answer, {"number": i}) for i, m in enumerate(members)}
    outcome = memory.run(programs)
    assert outcome.results["hub"] == {"c": 0, "a": 3, "b": 6}
    assert list(outcome.results["hub"]) == members
    assert {e.reveals for e in outcome.ledger if e.sender == "hub"} == {"the factor"}


@pytest.mark.parametrize("place", [0, -1])
def test_any_member_is_the_hub(place: int) -> None:
    check_summation(lambda me, members: HubSum(me, members, members[place]), tolerance=1e-10)


@given(hnp.arrays(np.float64, (3, 2, 4), elements=st.floats(-1e6, 1e6)))
def test_all_members_have_the_same_bits(values: Array) -> None:
    found = added(dict(zip("abc", values, strict=True))).results
    np.testing.assert_array_equal(found["a"], values[1] + values[0] + values[2])
    assert found["a"].tobytes() == found["b"].tobytes() == found["c"].tobytes()


def test_what_crosses() -> None:
    """One array from every member, one back; the hub learns the parts, the others the sum."""
    ledger = added({me: np.ones(10) for me in "abc"}).ledger
    size = len(encode(np.ones(10)))
    assert sorted((e.sender, e.receiver, e.bytes, e.reveals) for e in ledger) == [
        ("a", "b", size, "own sums"),
        ("b", "a", size, "the sum of own sums"),
        ("b", "c", size, "the sum of own sums"),
        ("c", "b", size, "own sums"),
    ]


def test_arrays_of_other_shapes() -> None:
    lost = added({"a": np.ones(3), "b": np.ones(3), "c": np.ones(4)}).lost
    words = r"c added an array of shape (4,) under 'add/up', expected (3,)"
    assert words in str(lost["b"]) and lost["a"].party == "b"

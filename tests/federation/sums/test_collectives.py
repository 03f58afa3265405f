"""Gather, broadcast and the sum at a hub: results, and exactly what crosses."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow, Program, broadcast, gather, receive, send
from fedcircuits.federation.messages import Message, encode_message
from fedcircuits.federation.sums.collectives import (
    Addend,
    Then,
    Traffic,
    TreeSum,
)
from fedcircuits.federation.sums.topology import star
from fedcircuits.testing import check_summation
from fedcircuits.testing.trials import Anything


class Number(Message, frozen=True):
    tag: ClassVar[str] = "ask/answer"
    reveals: ClassVar[str] = "an answer"

    value: int


def ask(members: list[str]) -> Flow[dict[str, int]]:
    yield from broadcast(members, Number(3), "ask/factor", "the factor")
    found = yield from gather(members, Number)
    return {name: message.value for name, message in found.items()}


def answer(number: int) -> Flow[None]:
    factor = yield from receive("hub", Number, "ask/factor")
    yield from send("hub", Number(factor.value * number))


def adds(
    me: str, value: Array, then: Then | None = None, dtype: Traffic = "float64"
) -> Flow[Array]:
    hub = TreeSum(me, star(("a", "b", "c"), "b"), dtype)
    return (yield from hub.sum("add/up", value, "own sums", then))


def tells(me: str, value: Array) -> Flow[Array]:
    hub = TreeSum(me, star(("a", "b", "c"), "b"), "float32")
    return (yield from hub.agree("tell/all", value, "a decision"))


def added(values: dict[str, Any], **how: Any) -> Any:
    programs = {me: Program(adds, {"me": me, "value": v} | how) for me, v in values.items()}
    return memory.run(programs)


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
    check_summation(lambda me, members: TreeSum(me, star(members, members[place])), tolerance=1e-10)


@given(hnp.arrays(np.float64, (3, 2, 4), elements=st.floats(-1e6, 1e6)))
def test_all_members_have_the_same_bits(values: Array) -> None:
    found = added(dict(zip("abc", values, strict=True))).results
    np.testing.assert_array_equal(found["a"], values[1] + values[0] + values[2])
    assert found["a"].tobytes() == found["b"].tobytes() == found["c"].tobytes()


def test_nobody_can_change_the_result() -> None:
    """Whoever added up would else be the only one whose flow may."""
    for found in added({me: np.ones(3) for me in "abc"}).results.values():
        with pytest.raises(ValueError, match="read-only"):
            found += 1.0


def test_what_crosses() -> None:
    """One array from every member, one back; the hub learns the parts, the others the sum."""
    ledger = added({me: np.ones(10) for me in "abc"}).ledger
    size = len(encode_message(Addend(np.ones(10))))
    assert sorted((e.sender, e.receiver, e.bytes, e.reveals) for e in ledger) == [
        ("a", "b", size, "own sums"),
        ("b", "a", size, "the sum of own sums"),
        ("b", "c", size, "the sum of own sums"),
        ("c", "b", size, "own sums"),
    ]


def test_only_what_follows_from_the_sum_goes_back() -> None:
    calls = []

    def largest(total: Array) -> Array:
        calls.append(total.tolist())
        return np.array(total.max())

    outcome = added({me: np.arange(4.0) for me in "abc"}, then=largest)
    assert {float(v) for v in outcome.results.values()} == {9.0}
    assert calls == [[0.0, 3.0, 6.0, 9.0]]
    back = {(e.bytes, e.reveals) for e in outcome.ledger if e.sender == "b"}
    assert back == {
        (len(encode_message(Addend(np.array(9.0)))), "a result computed from the sum of own sums")
    }


def test_single_precision_on_the_way() -> None:
    """Half the bytes; numbers are added in double precision, and all end up with the same."""
    third, small = np.full(100, 1 / 3), np.full(100, 1e-9)
    outcome = added({"a": third, "b": small, "c": small}, dtype="float32")
    expected = np.float32(np.float64(np.float32(1 / 3)) + 1e-9 + np.float64(np.float32(1e-9)))
    for found in outcome.results.values():
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.float64(expected))
    assert {e.bytes for e in outcome.ledger} == {
        len(encode_message(Addend(third.astype(np.float32))))
    }


def test_numbers_too_large_for_single_precision() -> None:
    values = {"a": np.array([1.0, -1e39]), "b": np.ones(2), "c": np.ones(2)}
    lost = added(values, dtype="float32").lost
    assert "'add/up' has numbers up to 1e+39, float32 ends at 3.4e38" in str(lost["a"])
    fine = added(dict.fromkeys("abc", np.array([-np.inf, 1.0])), dtype="float32")
    np.testing.assert_array_equal(fine.results["a"], [-np.inf, 3.0])


@pytest.mark.parametrize("word", [np.array([1 / 3, -0.0]), np.arange(3), np.array(2**60 + 1)])
def test_a_decision_is_told_as_it_is(word: Array) -> None:
    """Also where sums travel in single precision."""
    values = {"a": np.zeros(5), "b": word, "c": np.ones((2, 2))}
    outcome = memory.run({m: Program(tells, {"me": m, "value": v}) for m, v in values.items()})
    said = {encode_message(Anything(found)) for found in outcome.results.values()}
    assert said == {encode_message(Anything(word))}
    crossed = [(e.sender, e.receiver, e.reveals) for e in outcome.ledger]
    assert crossed == [("b", "a", "a decision"), ("b", "c", "a decision")]


def test_arrays_of_other_shapes() -> None:
    lost = added({"a": np.ones(3), "b": np.ones(3), "c": np.ones(4)}).lost
    words = "c sent 'add/up' that does not fit, field 'values': expected shape 3, got 4"
    assert words in str(lost["b"]) and lost["b"].party == "c" and lost["a"].party == "b"


def test_arrays_of_no_numbers() -> None:
    programs: dict[str, Program[Any]] = {
        "a": Program(say, {}),
        "b": Program(adds, {"me": "b", "value": np.ones(1)}),
    }
    lost = memory.run(programs).lost
    words = "a sent 'add/up' that does not fit, field 'values': expected an array of real numbers"
    assert words in str(lost["b"]) and lost["b"].party == "a"


def say() -> Flow[None]:
    yield from send("b", Addend(np.array(["one"])), "add/up")

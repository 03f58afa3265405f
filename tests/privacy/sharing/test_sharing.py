"""Sharing and opening between parties: who ends up with what, and exactly what crosses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.federation.messages import encode_message
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.sharing.group import (
    SHARE,
    Group,
    Shares,
    opened,
    opened_to,
    shared,
    summed,
)
from fedcircuits.testing import check_protocol
from tests.methods.watched import read, saying
from tests.privacy.parties import (
    answers,
    by_round,
    key,
    messages,
    names,
    numbers,
    programs,
    together,
)


def adds(me: str, members: tuple[str, ...], key: bytes, own: Any, bits: int = 127) -> Flow[Any]:
    group = Group.of(me, members, key).over(Ring(bits))
    share = yield from summed(group, "add/shares", group.ring.elements(own))
    total = yield from opened(group, "add/total", share, "the sum")
    return numbers(group.ring.signed(total).ravel())


def asks(me: str, members: tuple[str, ...], key: bytes, own: Any, asker: str) -> Flow[Any]:
    """The asker deals two numbers and alone learns ten times each."""
    group = Group.of(me, members, key)
    secret = group.ring.elements(own) if me == asker else None
    dealt = yield from shared(group, "ask/numbers", secret, (2,), dealers=[asker])
    share = group.ring.multiply(dealt[0], group.ring.elements(10)) if group.inside else None
    found = yield from opened_to(group, "ask/answer", asker, share, (2,), "tenfold")
    return None if found is None else numbers(group.ring.integers(found))


@pytest.mark.parametrize("count", range(3, 13))
@pytest.mark.parametrize("bits", [127, 607])
def test_sums(count: int, bits: int) -> None:
    given = {name: [[i, -(10**30)], [2**i, 7]] for i, name in enumerate(names(count))}
    found = answers(adds, given, bits=bits)
    total = [sum(range(count)), -count * 10**30, 2**count - 1, 7 * count]
    assert found == dict.fromkeys(given, total)


@pytest.mark.parametrize("asker", ["party1", "outside"])
def test_one_deals_and_one_learns(asker: str) -> None:
    members = names(4)
    made = {
        me: Program(asks, {"me": me, "members": members, "key": key(me), "own": [4, 5],
                           "asker": asker})
        for me in {*members, asker}
    }  # fmt: skip
    outcome = memory.run(made)
    assert not outcome.lost and outcome.results.pop(asker) == [40, 50]
    assert set(outcome.results.values()) == {None}
    others = 3 if asker in members else 4
    assert by_round(outcome) == {"ask/numbers": others, "ask/answer": others}
    assert {e.reveals for e in outcome.ledger if e.tag == "ask/numbers"} == {SHARE}


@pytest.mark.parametrize(("bits", "size"), [(127, 16), (607, 76)])
def test_what_crosses(bits: int, size: int) -> None:
    """Two rounds of N (N − 1) messages of 16 bytes a number of the field."""
    outcome = together(adds, {name: [[1, 2, 3]] * 5 for name in names(4)}, bits=bits)
    assert by_round(outcome) == {"add/shares": 12, "add/total": 12}
    expected = len(encode_message(Shares(np.zeros((5, 3, size), np.uint8))))
    assert {e.bytes for e in outcome.ledger} == {expected}
    assert expected < 15 * size + 60


def test_plain_numbers_never_cross() -> None:
    """Neither a number nor its fixed bytes are in any message, and messages of two runs with other
    secrets and other keys are equally long."""
    secret = 0x1234567890ABCDEF1234567890
    _, sent = messages(programs(adds, {name: [secret, 0] for name in names(3)}))
    shares = b"".join(m.data for own in sent.values() for m in own if m.tag == "add/shares")
    data = FIELD.packed(FIELD.elements([secret])).tobytes()
    assert data not in shares and data[:8] not in shares and bytes(8) not in shares[200:]
    assert str(secret).encode() not in shares


def test_a_flipped_share_is_caught() -> None:
    """Of party2's share of the total, in a run of five: two shares to spare tell whose it is."""

    def flipped(fields: Any) -> Any:
        changed = np.array(fields["data"])
        changed[0, 3] ^= 64
        return {"data": changed}

    made = programs(adds, {name: [1, 2] for name in names(5)})
    told = {"program": made["party2"], "tag": "add/total", "change": flipped}
    outcome = memory.run(made | {"party2": Program(saying, told)})
    assert set(outcome.lost) == {"party0", "party1", "party3", "party4"}
    for error in outcome.lost.values():
        assert "party2 sent or dealt a wrong share" in str(error)


def test_a_wrongly_dealt_share_is_caught() -> None:
    def other(fields: Any) -> Any:
        return {"data": np.zeros_like(fields["data"])}

    made = programs(adds, {name: [1, 2] for name in names(5)})
    told = {"program": made["party2"], "tag": "add/shares", "change": other}
    outcome = memory.run(made | {"party2": Program(saying, told)})
    assert set(outcome.lost) == set(names(5)) and not outcome.results


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: np.full_like(p, 255), "invalid shares: a number is not below"),
        (lambda p: p[:1], "expected shape 2 × 16, got 1 × 16"),
        (lambda p: p.astype(np.int16), "expected an array of bytes, got int16"),
        (lambda p: "hello", "expected an array of bytes, got str"),
    ],
)
def test_messages_that_are_no_shares(change: Any, words: str) -> None:
    made = programs(adds, {name: [1, 2] for name in names(3)})
    told = {"program": made["party1"], "tag": "add/total"}
    told["change"] = lambda fields: {"data": change(fields["data"])}
    outcome = memory.run(made | {"party1": Program(saying, told)})
    lost = outcome.lost["party0"]
    assert lost.party == "party1" and "party0" not in outcome.results
    assert f"party1 sent 'add/total' that does not fit, field 'data': {words}" in str(lost)


def test_other_shapes_are_refused() -> None:
    outcome = together(adds, {"a": [[1, 2]], "b": [[1, 2]], "c": [[1], [2]]})
    assert not outcome.results
    assert "field 'data': expected shape 1 × 2 × 16" in str(outcome.lost["a"])


def test_groups() -> None:
    with pytest.raises(FederationError, match="at least 3 parties, got 2"):
        Group.of("a", ("a", "b"), key("a"))
    with pytest.raises(FederationError, match="a member is named twice: a, b, a"):
        Group.of("a", ("a", "b", "a"), key("a"))


def test_laws_of_protocols() -> None:
    check_protocol(programs(adds, {name: [1, 2] for name in names(3)}), run=memory.run)


def test_shares_of_one_run_are_fresh() -> None:
    """The same secret dealt twice in a run has other shares."""
    _, sent = messages(programs(adds, {name: [9, 9] for name in names(3)}))
    dealt = read(sent["party0"][0].data)["data"]
    assert not np.array_equal(dealt[0], dealt[1])

"""Private set intersection: the right rows, and what crosses says nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from secrets import token_bytes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.engines import memory
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.federation import Federation
from fedcircuits.federation.flow import Flow, Program, Record, recording, replay, send
from fedcircuits.federation.messages import Message
from fedcircuits.methods.meeting import intersection
from fedcircuits.methods.meeting.alignment import id_texts
from fedcircuits.methods.meeting.intersection import (
    SealedIds,
    SealedTwice,
    SharedIds,
    common,
    positions,
    shared_rows,
)
from fedcircuits.testing import check_messages
from tests.methods.watched import read

try:
    intersection.openmined()
except ExtraMissingError as missing:
    pytest.skip(str(missing), allow_module_level=True)

POINT = 35  # bytes of a point in a message: two of its frame, and 33


def federation(ids: list[list[str]]) -> Federation:
    parties = {f"p{i}": {"id": own, "x": range(len(own))} for i, own in enumerate(ids)}
    return Federation(parties, row_id="id")


def programs(parties: Federation) -> dict[str, Program[Any]]:
    return {p.name: Program(shared_rows, role(p.name, id_texts(p), parties.names)) for p in parties}


def role(me: str, ids: Sequence[str], parties: Sequence[str] = ("p0", "p1")) -> dict[str, object]:
    return {"me": me, "ids": ids, "parties": parties, "key": new_key()}


def new_key() -> bytes:
    return intersection.key_from(token_bytes(32))


def records(parties: Federation) -> tuple[dict[str, Program[Any]], dict[str, Record]]:
    flows = programs(parties)
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in flows.items()})
    assert not outcome.lost
    return flows, {n: record for n, (_, record) in outcome.results.items()}


IDS = st.lists(st.text("abcé1", max_size=4), min_size=1, max_size=8, unique=True)


@settings(max_examples=15)
@given(st.lists(IDS, min_size=2, max_size=3))
def test_finds_the_rows_of_all(ids: list[list[str]]) -> None:
    parties = federation(ids)
    outcome = memory.run(programs(parties))
    assert not outcome.lost
    held = {party.name: id_texts(party) for party in parties}
    shared = common(held.values())
    for name, own in held.items():
        assert np.array_equal(outcome.results[name], positions(own, shared))


def test_what_crosses() -> None:
    """Three sets of a few hundred: ids in the clear are those that all hold, and nothing else."""
    rng = np.random.default_rng(0)
    names = [f"patient-{n:05d}" for n in rng.choice(100_000, 400, replace=False)]
    held = [names[:300], names[100:400], names[50:250]]
    held = [[own[i] for i in rng.permutation(len(own))] for own in held]
    shared = set(names[100:250])
    _, found = records(federation(held))
    crossed = [m for r in found.values() for m in r.sent]
    assert [(m.party, m.tag) for m in found["p0"].sent] == [
        (p, tag) for tag in ("psi/request", "psi/shared") for p in ("p1", "p2")
    ]
    for message in crossed:
        clear = set(re.findall(r"patient-\d{5}", message.data.decode("latin-1")))
        assert clear == (shared if message.tag == "psi/shared" else set())
    for name, own in zip(("p1", "p2"), held[1:], strict=True):
        (answer,) = found[name].sent
        parts = read(answer.data)
        assert abs(len(parts["setup"]) - POINT * len(own)) < 10  # the size is all it shows
        assert len(parts["response"]) == POINT * len(held[0])
        assert set(parts) == {"setup", "response"}


def test_points_depend_on_the_key_and_not_on_rows_order() -> None:
    ids = [f"id {i}" for i in range(20)]
    key, other = new_key(), new_key()
    assert len(key) == 32 and key != other
    setup = intersection._setup(ids, key)
    assert setup == intersection._setup(ids[::-1], key)  # points are sorted
    assert setup != intersection._setup(ids, other)
    assert intersection._request(ids, key) != intersection._request(ids, other)


def test_a_flow_replayed_sends_the_same_bytes() -> None:
    flows, found = records(federation([["a", "b", "c"], ["c", "b"], ["b", "x"]]))
    for name, program in flows.items():
        assert replay(program, found[name].inbox) == found[name].sent


def test_the_ledger_says_who_learned_what() -> None:
    ledger = memory.run(programs(federation([["a", "b"], ["b"], ["b", "c"]]))).ledger
    assert len(ledger) == 2 * 3
    assert ledger.revealed("p1")["what"].tolist() == [
        "its number of rows",
        "the ids of the rows that all parties hold",
    ]
    assert set(ledger.revealed("p0")["what"]) == {
        "its number of rows, and which of the reader's rows it holds too"
    }


# ---------------------------------------------------------------------- parties that do otherwise


def test_malformed_messages_blame_their_sender() -> None:
    flows = programs(federation([["a", "b", "c"], ["c", "b"], ["b", "x"]]))
    assert check_messages(flows) > 30


def speak(to: str, messages: list[Message]) -> Flow[None]:
    for message in messages:
        yield from send(to, message)


NONE = "that does not fit, field {!r}: it is not a message of private set intersection"


@pytest.mark.parametrize("points", [bytes(range(9)), b""])
def test_a_request_that_is_none(points: bytes) -> None:
    own = role("p1", ["a"])
    asks = {"to": "p1", "messages": [SealedIds(points)]}
    outcome = memory.run({"p0": Program(speak, asks), "p1": Program(shared_rows, own)})
    assert f"p0 sent 'psi/request' {NONE.format('points')}" in str(outcome.lost["p1"])


@pytest.mark.parametrize("field", ["setup", "response"])
def test_an_answer_that_is_none(field: str) -> None:
    own = role("p0", ["a"])
    key = new_key()
    request, setup = intersection._request(["a"], key), intersection._setup(["a"], key)
    sound = {"setup": setup, "response": intersection._response(key, SealedIds(request), "p0")}
    says = {"to": "p0", "messages": [SealedTwice(**sound | {field: bytes(range(9))})]}
    flows = {"p0": Program(shared_rows, own), "p1": Program(speak, says)}
    assert f"p1 sent 'psi/answer' {NONE.format(field)}" in str(memory.run(flows).lost["p0"])


@pytest.mark.parametrize("ids", [["a", "b"], []])
def test_an_answer_with_points_that_nobody_sent(ids: list[str]) -> None:
    """One too many, or none where one was sent."""
    key, other = new_key(), new_key()
    request = SealedIds(intersection._request(ids, key))
    setup = intersection._setup(["a", "b"], other)
    answer = SealedTwice(setup, intersection._response(other, request, "p0"))
    own = {**role("p0", ["a"]), "key": key}
    says = {"to": "p0", "messages": [answer]}
    outcome = memory.run({"p0": Program(shared_rows, own), "p1": Program(speak, says)})
    lost = outcome.lost["p0"]
    assert lost.party == "p1" and "'psi/answer' that does not fit, field 'response'" in str(lost)


@pytest.mark.parametrize("ids", [["b"], ["a", "a"]])
def test_a_first_party_that_invents_ids(ids: list[str]) -> None:
    own = role("p1", ["a"])
    request = SealedIds(intersection._request(["a"], new_key()))
    asks = {"to": "p1", "messages": [request, SharedIds(ids)]}
    outcome = memory.run({"p0": Program(speak, asks), "p1": Program(shared_rows, own)})
    text = "p0 sent 'psi/shared' that does not fit, field 'ids': expected different ids"
    assert text in str(outcome.lost["p1"])

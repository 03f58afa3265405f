"""Private set intersection: the right rows, and what crosses says nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.engines import memory
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.alignment import align
from fedcircuits.federation.federation import Federation, Party
from fedcircuits.federation.flow import Flow, Program, send_payload
from fedcircuits.federation.replay import Record, recording, replay
from fedcircuits.federation.wire import decode
from fedcircuits.methods.meeting import intersection

try:
    intersection.openmined()
except ExtraMissingError as missing:
    pytest.skip(str(missing), allow_module_level=True)

POINT = 35  # bytes of a point in a message: two of its frame, and 33


def federation(ids: list[list[str]]) -> Federation:
    parties = {f"p{i}": {"id": own, "x": range(len(own))} for i, own in enumerate(ids)}
    return Federation(parties, row_id="id")


def programs(parties: Federation) -> dict[str, Program[Any]]:
    first, *others = parties
    asked = {"party": first, "others": [p.name for p in others], "key": intersection.new_key()}
    found: dict[str, Program[Any]] = {first.name: Program(intersection.first, asked)}
    for party in others:
        own = {"party": party, "first": first.name, "key": intersection.new_key()}
        found[party.name] = Program(intersection.other, own)
    return found


def records(parties: Federation) -> tuple[dict[str, Program[Any]], dict[str, Record]]:
    flows = programs(parties)
    outcome = memory.run({n: Program(recording, {"program": p}) for n, p in flows.items()})
    assert not outcome.lost
    return flows, {n: record for n, (_, record) in outcome.results.items()}


IDS = st.lists(st.text("abcé1", max_size=4), min_size=1, max_size=8, unique=True)


@settings(max_examples=15)
@given(st.lists(IDS, min_size=2, max_size=3))
def test_finds_what_the_clear_way_finds(ids: list[list[str]]) -> None:
    parties = federation(ids)
    outcome = memory.run(programs(parties))
    assert not outcome.lost
    for name, rows in align(parties).items():
        assert np.array_equal(outcome.results[name], rows)


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
        parts: Any = decode(answer.data)
        assert abs(len(parts["setup"]) - POINT * len(own)) < 10  # the size is all it shows
        assert len(parts["response"]) == POINT * len(held[0])
        assert set(parts) == {"setup", "response"}


def test_points_depend_on_the_key_and_not_on_rows_order() -> None:
    ids = [f"id {i}" for i in range(20)]
    key, other = intersection.new_key(), intersection.new_key()
    assert len(key) == 32 and key != other
    setup = intersection._setup(ids, key).tobytes()
    assert setup == intersection._setup(ids[::-1], key).tobytes()  # points are sorted
    assert setup != intersection._setup(ids, other).tobytes()
    request = intersection._request(ids, key)
    assert not np.array_equal(request, intersection._request(ids, other))


def test_a_flow_replayed_sends_the_same_bytes() -> None:
    flows, found = records(federation([["a", "b", "c"], ["c", "b"], ["b", "x"]]))
    for name, program in flows.items():
        assert replay(program, found[name].inbox) == found[name].sent


def test_the_ledger_says_who_learned_what() -> None:
    ledger = memory.run(programs(federation([["a", "b"], ["b"], ["b", "c"]]))).ledger
    assert len(ledger) == 2 * 3
    assert ledger.revealed("p1")["what"].tolist() == [
        "how many rows it holds",
        "row ids that all parties hold",
    ]
    assert set(ledger.revealed("p0")["what"]) == {
        "how many rows it holds, and which of the reader's it holds as well"
    }


# ---------------------------------------------------------------------- parties that do otherwise


def speak(to: str, messages: list[tuple[str, Any]]) -> Flow[None]:
    for tag, payload in messages:
        yield from send_payload(to, tag, payload)


@pytest.mark.parametrize("payload", [np.arange(9, dtype=np.uint8), np.zeros(0, np.uint8), 3])
def test_a_request_that_is_none(payload: Any) -> None:
    own = {"party": party(["a"]), "first": "p0", "key": intersection.new_key()}
    asks = {"to": "p1", "messages": [("psi/request", payload)]}
    outcome = memory.run({"p0": Program(speak, asks), "p1": Program(intersection.other, own)})
    text = "what p0 sent under 'psi/request' is no message of private set intersection"
    assert text in str(outcome.lost["p1"])


@pytest.mark.parametrize("name", ["setup", "response"])
def test_an_answer_that_is_none(name: str) -> None:
    own = {"party": party(["a"]), "others": ["p1"], "key": intersection.new_key()}
    key = intersection.new_key()
    request, setup = intersection._request(["a"], key), intersection._setup(["a"], key)
    sound = {"setup": setup, "response": intersection._response(key, request, "p0")}
    for wrong in (np.arange(9, dtype=np.uint8), np.zeros(3)):
        says = {"to": "p0", "messages": [("psi/answer", {**sound, name: wrong})]}
        flows = {"p0": Program(intersection.first, own), "p1": Program(speak, says)}
        text = str(memory.run(flows).lost["p0"])
        assert "what p1 sent under 'psi/answer' is no message of private set intersection" in text


def test_an_answer_with_too_many_points() -> None:
    key, other = intersection.new_key(), intersection.new_key()
    request = intersection._request(["a", "b"], key)
    answer = {
        "setup": intersection._setup(["a", "b"], other),
        "response": intersection._response(other, request, "p0"),
    }
    own = {"party": party(["a"]), "others": ["p1"], "key": key}
    says = {"to": "p0", "messages": [("psi/answer", answer)]}
    outcome = memory.run({"p0": Program(intersection.first, own), "p1": Program(speak, says)})
    assert "is no message of private set intersection" in str(outcome.lost["p0"])


def test_a_first_party_that_invents_ids() -> None:
    own = {"party": party(["a"]), "first": "p0", "key": intersection.new_key()}
    request = intersection._request(["a"], intersection.new_key())
    asks = {"to": "p1", "messages": [("psi/request", request), ("psi/shared", ["b"])]}
    outcome = memory.run({"p0": Program(speak, asks), "p1": Program(intersection.other, own)})
    assert "p0 says that p1 holds row ids that it does not" in str(outcome.lost["p1"])


def party(ids: list[str]) -> Party:
    (found,) = Federation({"p1": {"id": ids, "x": range(len(ids))}}, row_id="id")
    return found

"""What a site writes down agrees with what the coordinator counts, and what passes between them
tells whoever carries it nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.engines.sites.station import Head
from fedcircuits.engines.sites.store import Store, audit_entries
from tests.engines.sites.links import Relay
from tests.engines.sites.local import LocalSites
from tests.engines.sites.relays import NatsRelay, nats_server, needs_server

RNG = np.random.default_rng(0)
INCOME = RNG.normal(51234.5, 17.25, 90).round(2)
TABLE = fc.Table.of(
    {
        "income": INCOME,
        "visits": RNG.poisson(30, 90) * 1000 + 7,
        "town": np.where(INCOME + RNG.normal(0, 9, 90) > 51234, "Zweibrücken", "Xanten"),
    }
)
SETTINGS: dict[str, Any] = {"random_state": 0, "clusters": 2, "ensemble": 1}
LEAST = 16  # bytes in a row that would be no accident


def audit(folder: Path, site: str) -> list[dict[str, Any]]:
    lines = (folder / site / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("method", [{}, {"summation": fc.Secret()}, {"refine": 2}])
def test_the_audit_of_a_site_is_the_ledger_of_the_coordinator(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    local = fc.split(TABLE, 3, by="columns")
    federation = LocalSites({p.name: p for p in local}, tmp_path, policy=Policy()).federation()
    model = fc.FedPC(**SETTINGS, **method).fit(federation)
    model.probability("town = Xanten", given="income > 51234")
    counted = [*model.ledger_.entries, *model.queries_.entries]
    for site in local.names:
        lines = audit(tmp_path, site)
        sent = [line for line in lines if line["event"] == "sent"]
        noted = Counter((s["to"], s["tag"], s["bytes"], s["reveals"]) for s in sent)
        ledger = Counter(
            (e.receiver, e.tag, e.bytes, e.reveals) for e in counted if e.sender == site
        )
        assert noted == ledger and noted
        for run in {line["run"] for line in sent}:
            for to in {line["to"] for line in sent if line["run"] == run}:
                numbers = [s["number"] for s in sent if (s["run"], s["to"]) == (run, to)]
                assert numbers == list(range(len(numbers)))
        begun = [line["role"] for line in lines if line["event"] == "begun"]
        assert begun[0] == "fedpc.training:client"
        assert set(begun[1:]) <= {"fedpc.query:respond"}
        assert {"asked", "begun", "sent", "ended"} <= {line["event"] for line in lines}


def test_no_value_is_written_down(tmp_path: Path) -> None:
    local = fc.split(TABLE, 3, by="columns")
    sites = LocalSites({p.name: p for p in local}, tmp_path, policy=Policy(most_questions=3))
    model = fc.FedPC(**SETTINGS).fit(sites.federation())
    for question in ("income > 51230.75", "town = Xanten"):
        model.probability(question)
    with pytest.raises(fc.errors.FederationError):
        model.score_samples(TABLE)  # more rows than are answered
    text = "".join((tmp_path / p.name / "audit.jsonl").read_text() for p in local)
    values = [str(v) for column in ("income", "visits") for v in TABLE.to_pandas()[column]]
    assert not [v for v in ("Zweibr", "Xanten", "51230", *values) if v in text]


def test_a_line_that_was_torn_spoils_no_other(tmp_path: Path) -> None:
    store, path = Store(tmp_path), tmp_path / "audit.jsonl"
    store.audit("started", site="north")
    with path.open("a") as file:
        file.write('{"event": "sent", "run": "ri')  # then the disk was full
    store.audit("stopped", site="north")
    assert [line["event"] for line in store.audited()] == ["started", "stopped"]
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "line", [b"\xff\xfe", b"[" * 100_000, b"[]", '{"event": "a\u2028b"'.encode()]
)
def test_a_line_that_is_damaged_spoils_no_other(tmp_path: Path, line: bytes) -> None:
    """Nor does a character at which some readers end a line."""
    store, path = Store(tmp_path), tmp_path / "audit.jsonl"
    store.audit("refused", why="a\u2028b\x85c")
    path.write_bytes(path.read_bytes() + line + b"\n")
    store.audit("stopped", site="north")
    assert [e and e["event"] for e in audit_entries(path)] == ["refused", None, "stopped"]
    assert [e["event"] for e in store.audited()] == ["refused", "stopped"]


@needs_server
def test_a_real_server_reads_nothing(tmp_path: Path) -> None:
    """It writes down all that passes it while FedPC learns with secret sums, and is asked."""
    local = fc.split(TABLE, ["x", "y", "z"], by="columns")
    with nats_server(tmp_path / "server", [*local.names, "coordinator"], traced=True) as server:
        relay: Any = NatsRelay(server)
        parties = {p.name: p for p in local}
        sites = LocalSites(parties, tmp_path, policy=Policy(), relay=relay)
        model = fc.FedPC(summation=fc.Secret(), **SETTINGS).fit(sites.federation())
        model.probability("town = Xanten", given="income > 51234")
        marked = bytes(range(7, 256)) + "Zweibrücken".encode()  # what is not sealed is seen
        relay.links[0].send(local.names[1], marked)
        until = time.monotonic() + 20
        while marked not in server.seen() and time.monotonic() < until:
            time.sleep(0.1)
        seen = server.seen()
        for link in relay.links:
            link.close()
    assert marked in seen and len(seen) > 20_000
    seen = seen.replace(marked, b"")
    words = {entry.tag for entry in (*model.ledger_.entries, *model.queries_.entries)}
    for word in ("town", "income", "Xanten", "Zweibr", *words):
        assert word.encode() not in seen, word
    bodies = [body for body in sites.bodies if len(body) >= LEAST]
    secret = {b[at : at + LEAST] for b in bodies for at in range(0, len(b) - LEAST + 1, LEAST)}
    assert not {seen[at : at + LEAST] for at in range(len(seen) - LEAST + 1)} & secret


def test_who_carries_packets_reads_nothing_of_them(tmp_path: Path) -> None:
    relay, heads = Relay(), list[Head]()
    sites = LocalSites(
        {p.name: p for p in fc.split(TABLE, 3, by="columns")},
        tmp_path,
        policy=Policy(),
        relay=relay,
        watch=lambda site, head: heads.append(head),
    )
    model = fc.FedPC(summation=fc.Secret(), **SETTINGS).fit(sites.federation())
    model.probability("town = Xanten", given="income > 51234")
    bodies = [body for body in sites.bodies if len(body) >= LEAST]
    assert len(bodies) > 30 and any("count/" in str(head) for head in heads)
    secret = {b[at : at + LEAST] for b in bodies for at in range(0, len(b) - LEAST + 1, LEAST)}
    tags = {str(head[5]).encode() for head in heads if head[0] == "mail"}
    for _, _, packet in relay.seen:
        assert not any(tag in packet for tag in tags)
        windows = {packet[at : at + LEAST] for at in range(len(packet) - LEAST + 1)}
        assert not windows & secret
    plain = b"".join(bodies)  # the search finds what is there
    assert {plain[at : at + LEAST] for at in range(len(plain) - LEAST + 1)} & secret

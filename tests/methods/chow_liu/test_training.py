"""Pairwise counts that add up: what crosses, what does not, what is refused, losses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program
from fedcircuits.learning.independence import OneHot, pair_tables
from fedcircuits.methods.chow_liu import training as summed_counts
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.tables.table import Table
from fedcircuits.testing import check_messages, check_protocol
from tests.estimators.tables import related as table
from tests.methods.watched import dying, flipped, read, saying
from tests.privacy.parties import key, messages, names


def programs(count: int = 3, summation: Any = None, tables: Any = None) -> dict[str, Program[Any]]:
    members = names(count)
    parts = tables or {m: table(30 + 7 * i, seed=i) for i, m in enumerate(members)}
    asks = {"members": members, "summation": summation or Secret(), "smoothing": 0.1}
    made: dict[str, Program[Any]] = {COORDINATOR: Program(summed_counts.coordinator, asks)}
    for me in members:
        own = {"party": Party(me, parts[me]), "members": members, "smoothing": 0.1}
        made[me] = Program(
            summed_counts.member, own | {"summation": summation or Secret(key=key(me))}
        )
    return made


def counts(rows: Table) -> Any:
    whole = pair_tables(OneHot.of(rows.values, rows.schema.variables).matrix)
    return whole[np.triu_indices(len(whole))]


@pytest.mark.parametrize("count", [3, 4])
def test_opened_is_the_sum_and_nothing_else(count: int) -> None:
    """All shares that are opened, put together: the sum of counts of all parties."""
    outcome, sent = messages(programs(count))
    shares = []
    for me in names(count):
        [data, *_] = [m.data for m in sent[me] if m.tag == "count/pairs/total"]
        payload = read(data)["data"]
        shares.append(FIELD.unpacked(payload.reshape(-1), payload.shape[:-1]))
    found = reconstruct(FIELD, np.stack(shares), (count - 1) // 2, names(count))
    expected = sum(counts(table(30 + 7 * i, seed=i)) for i in range(count))
    np.testing.assert_array_equal(FixedPoint(40, 64, FIELD).decode(found), expected)
    tags = {e.tag for e in outcome.ledger}
    assert tags == {
        "agree/plan", "count/columns", "count/pairs/shares", "count/pairs/total", "count/total",
    }  # fmt: skip
    told = [(e.sender, e.tag) for e in outcome.ledger if e.receiver == COORDINATOR]
    assert told == [("party0", "count/columns"), ("party0", "count/total")]


def test_own_counts_never_cross() -> None:
    """Neither as fixed-point numbers nor in any plain way, in no message of the party."""
    tables = {m: table(4000 + 11 * i, seed=i) for i, m in enumerate(names(3))}
    _, sent = messages(programs(tables=tables))
    for me in names(3):
        data = b"".join(m.data for m in sent[me])
        own = counts(tables[me])
        assert (own > 300).sum() > 20
        for value in own[own > 300].tolist():
            ways = [np.array([value], kind).tobytes() for kind in (np.float64, np.int64, np.uint32)]
            assert all(way not in data for way in ways)
        point = FixedPoint(40, 64, FIELD).encode(own[own > 300])
        assert all(FIELD.packed(p[None]).tobytes() not in data for p in point)


def test_the_search_finds_what_a_hub_is_told() -> None:
    _, sent = messages(programs(summation=fc.Hub()))
    own = counts(table(30))
    assert any(own.tobytes() in m.data for m in sent["party0"])


def test_messages_do_not_depend_on_rows() -> None:
    """Their sizes are the same for any rows, gaps and numbers of rows."""
    seen = []
    for seed, missing in ((0, 0.0), (5, 0.6)):
        tables = {m: table(40 + 9 * seed, seed + i, missing) for i, m in enumerate(names(3))}
        outcome, _ = messages(programs(tables=tables))
        seen.append([(e.sender, e.receiver, e.tag, e.bytes) for e in outcome.ledger])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("tag", ["agree/plan", "count/pairs/shares", "count/pairs/total"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_party_killed_in_every_round(tag: str, after: int) -> None:
    for victim in names(3):
        made = programs()
        told = {"program": made[victim], "tag": tag, "after": after}
        outcome = memory.run({**made, victim: Program(dying, told)})
        assert victim in outcome.lost
        missed = [m for m in names(3) if m in outcome.lost]
        last = tag.endswith("total") and after == 1  # one has all it needs
        assert len(missed) == (2 if last else 3)
        assert all(re.search(victim, str(outcome.lost[m])) for m in missed)


def test_a_flipped_share_is_caught() -> None:
    made = programs(3)
    told = {"program": made["party1"], "tag": "count/pairs/total", "change": flipped(3, 2)}
    outcome = memory.run({**made, "party1": Program(saying, told)})
    assert set(outcome.lost) >= {"party0", "party2"}
    assert "inconsistent shares" in str(outcome.lost["party0"])


def test_parties_must_have_the_same_settings() -> None:
    made = programs()
    made["party1"].arguments["smoothing"] = 0.2
    outcome = memory.run(made)
    assert set(outcome.lost) == set(made)
    assert "party1 has smoothing = 0.2, party0 has 0.1" in str(outcome.lost["party0"])
    assert {e.phase for e in outcome.ledger} == {"agree"}


@pytest.mark.parametrize("summation", [None, fc.Hub(), fc.Tree("cycle")])
def test_laws_of_protocols(summation: Any) -> None:
    check_protocol(programs(summation=summation))


@pytest.mark.parametrize("summation", [None, fc.Hub(), fc.Tree("cycle")])
def test_malformed_messages_blame_their_sender(summation: Any) -> None:
    assert check_messages(programs(summation=summation), most=150) > 100

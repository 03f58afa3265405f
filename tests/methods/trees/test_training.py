"""Flows of training and questions: which messages cross, what they hold, that a replay sends them
again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Envelope, Program, replay
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.tokens import TokenKey, tokens
from fedcircuits.methods.trees import ensemble
from fedcircuits.methods.trees.growing import TreesPlan
from tests.methods.trees.cases import SECRET, fields, programs, recorded, table
from tests.methods.watched import Watched, saying


@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_messages_are_counted(by: Any) -> None:
    parties = fc.split(table(), 3, by=by, target="risk")
    ledger = memory.run(programs(parties, TreesPlan("risk", share_target=True, trees=2))).ledger
    counts = ledger.summary()["messages"].groupby("phase").sum().to_dict()
    expected = {"agree": 6, "count": 6, "learn": 3, "graph": 3}
    if by != "rows":
        # the coordinator tells all which rows are shared, the last party the target to the others
        expected |= {"key": 2, "rows": 3, "labels": 3 + 2}
    assert counts == expected


def test_without_leave_no_label_crosses() -> None:
    parties = fc.split(table(), 3, by="columns", target="risk")
    ledger = memory.run(programs(parties, TreesPlan("risk", trees=2))).ledger
    assert set(ledger.summary().reset_index()["phase"]) == {"agree", "count", "learn", "graph"}
    assert all(COORDINATOR in (e.sender, e.receiver) for e in ledger)


def test_labels_are_told_of_shared_rows() -> None:
    whole = table()
    both = fc.split(whole, 2, by="columns", target="risk")
    less = {"party 1": both["party 1"].table.rows(slice(0, 40)), "party 2": both["party 2"].table}
    parties = both.with_tables(less)
    found = recorded(programs(parties, TreesPlan("risk", share_target=True, trees=2)))
    told = fields(found["party 1"], "party 2", "labels/target")
    assert set(told) == {"values"}
    order = np.argsort(tokens(np.arange(40), derived(SECRET, TokenKey.tag)))
    assert told["values"].tolist() == whole.values[order, 4].tolist()
    assert "key/tokens" not in {m.tag for m in found[COORDINATOR].inbox if isinstance(m, Envelope)}


def test_the_coordinator_hears_counts_and_columns() -> None:
    parties = fc.split(table(), 2, skew="label", target="risk")
    found = recorded(programs(parties, TreesPlan("risk", trees=3, columns=0.5)))
    for party in parties:
        counts = fields(found[COORDINATOR], party.name, "count/target")["tally"]
        codes = party.table.values[:, 4].astype(int)
        assert counts.tolist() == np.bincount(codes, minlength=2).tolist()
        scopes = fields(found[COORDINATOR], party.name, "learn/scopes")["scopes"]
        assert [len(s) for s in scopes] == [2, 2, 2] and all("risk" not in s for s in scopes)
        shares = fields(found[party.name], COORDINATOR, "count/overall")["overall"]
        assert np.allclose(shares, np.bincount(table().values[:, 4].astype(int)) / 60)
    assert {m.tag for m in found[COORDINATOR].inbox if isinstance(m, Envelope)} == {
        "agree/hello", "count/target", "learn/scopes",
    }  # fmt: skip


@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_a_flow_replayed_sends_the_same_bytes(by: Any) -> None:
    parties = fc.split(table(), 2, by=by, target="risk")
    flows = programs(parties, TreesPlan("risk", share_target=True, trees=2, seed=3))
    for name, record in recorded(flows).items():
        assert record.sent and replay(flows[name], record.inbox) == record.sent


def test_evidence_goes_where_it_is_read() -> None:
    whole = table()
    parties = fc.split(whole, 2, by="columns", target="risk")
    views = memory.run(programs(parties, TreesPlan("risk", share_target=True, trees=2))).results
    view = views[COORDINATOR].view
    x = whole.select(view.circuit.schema.names).values[:5].copy()
    x[3:, view.columns("party 1")] = np.nan
    x[1] = x[0]
    flows: dict[str, Program[Any]] = {COORDINATOR: Program(ensemble.ask, {"view": view, "x": x})}
    assert ensemble.involved(view, x) == ["party 1", "party 2"]
    for name in ensemble.involved(view, x):
        flows[name] = Program(ensemble.respond, {"view": views[name]})
    found = recorded(flows)
    one = fields(found["party 1"], COORDINATOR, "query/evidence")
    assert one["columns"].tolist() == view.columns("party 1")
    assert len(one["x"]) == 2  # two of three rows are the same, and two say nothing to it
    assert len(fields(found["party 2"], COORDINATOR, "query/evidence")["x"]) == 4
    assert not set(view.columns("party 1")) & set(view.columns("party 2"))
    x[:, view.columns("party 1")] = np.nan
    assert ensemble.involved(view, x) == ["party 2"]


def test_other_versions_are_refused() -> None:
    flows = programs(fc.split(table(), 2, target="risk"), TreesPlan("risk"))
    old = {
        "program": flows["party 2"],
        "tag": "agree/hello",
        "change": lambda h: h | {"version": 0},
    }
    flows["party 2"] = Program(saying, old)
    text = str(memory.run(flows).lost[COORDINATOR])
    assert "party 2 runs fedcircuits" in text and "0, expected" in text


def test_a_holder_that_counts_no_row_of_a_class_is_named() -> None:
    """Others have classes from it, and once took the coordinator for the liar."""
    rng = np.random.default_rng(0)
    ids, ill = np.arange(60), rng.random(60) < 0.5
    parties = fc.Federation(
        {"north": {"id": ids, "x": rng.normal(size=60)}, "south": {"id": ids, "ill": ill}},
        row_id="id",
    )

    def none_of_one(said: Any) -> Any:
        return {"tally": np.array([0.0, said["tally"].sum()])}

    engine = Watched({("south", "count/target"): none_of_one})
    with pytest.raises(PartyLostError, match="a class of which south, who hold 'ill', count none"):
        fc.FedTrees(target="ill", share_target=True, trees=2).fit(parties, engine=engine)

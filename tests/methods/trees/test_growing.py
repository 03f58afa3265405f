"""Flows of boosting: edges from counts, what crosses, and that a replay sends it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Envelope, replay
from fedcircuits.methods.trees import edges, growing
from fedcircuits.methods.trees.growing import TreesPlan
from fedcircuits.testing import check_protocol
from tests.methods.trees.cases import narrow as table
from tests.methods.trees.cases import programs, recorded
from tests.methods.watched import read


def test_messages_are_counted_and_explained() -> None:
    parties = fc.split(table(), 3, target="risk")
    flows = programs(parties, TreesPlan("risk", trees=2, grow="together", threshold=True))
    ledger = memory.run(flows).ledger
    counts = ledger.summary()["messages"].groupby("phase").sum().to_dict()
    levels = len({e.tag for e in ledger if e.tag.startswith("boost/sums")})
    assert 2 <= levels <= 2 * growing.DEPTH
    blocks = len({e.tag for e in ledger if e.tag.startswith("boost/blocks")})
    assert blocks == edges.BITS // edges.DIGIT  # one number is often 0
    boost = 6 * (1 + 1 + blocks + 1 + levels)
    assert counts == {"agree": 6, "count": 6, "boost": boost, "learn": 3, "graph": 3, "decide": 6}
    assert all(e.reveals for e in ledger)


def test_sums_of_a_party_are_of_its_own_rows_and_results_of_nodes() -> None:
    parties = fc.split(table(), 2, target="risk")
    flows = programs(parties, TreesPlan("risk", trees=1, grow="together"))
    records = recorded(flows)
    for name in parties.names:
        sent = {m.tag: read(m.data) for m in records[name].sent}
        first: Any = sent["boost/sums/0/0"]["values"]
        own = parties[name].table.values[:, 2]
        share = table().values[:, 2].mean()
        assert first.shape[0] == 1 and first.shape[2] == 2
        assert first[0, :, 0].sum() == pytest.approx(2 * (own - share).sum(), abs=1e-5)  # 2 columns
        inbox = {m.tag: read(m.data) for m in records[name].inbox if isinstance(m, Envelope)}
        splits: Any = inbox["boost/sums/0/0"]["values"]
        assert splits.shape == (1, 2 + 2 * 2)


@pytest.mark.parametrize("together", [True, False])
def test_a_flow_replayed_sends_the_same_bytes(together: bool) -> None:
    parties = fc.split(table(), 2, by="rows" if together else "columns", target="risk")
    grow: Any = "together" if together else "auto"
    flows = programs(parties, TreesPlan("risk", True, trees=2, grow=grow, threshold=True))
    for name, record in recorded(flows).items():
        assert record.sent and replay(flows[name], record.inbox) == record.sent


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_laws(by: Any) -> None:
    parties = fc.split(table(60), 2, by=by, target="risk")
    plan = TreesPlan("risk", share_target=True, trees=1, grow="together", threshold=True)
    check_protocol(programs(parties, plan))


def test_a_client_does_not_take_part_without_its_leave() -> None:
    parties = fc.split(table(), 2, target="risk", allow_collect=False)
    lost = memory.run(programs(parties, TreesPlan("risk", grow="together"))).lost
    assert "party 1 does not allow learned parameters to leave it" in str(lost["party 1"])


def test_nothing_crosses_where_columns_differ() -> None:
    parties = fc.split(table(), 2, by="columns", target="risk")
    ledger = memory.run(programs(parties, TreesPlan("risk", share_target=True, grow="auto"))).ledger
    assert "boost" not in set(ledger.summary().reset_index()["phase"])


def test_columns_in_another_order_are_the_same_columns() -> None:
    whole = table()
    first, second = whole.rows(slice(0, 50)), whole.rows(slice(50, None))
    turned = fc.Federation({"p": first, "q": second.select(["b", "risk", "a"])}, allow_collect=True)
    straight = fc.Federation({"p": first, "q": second}, allow_collect=True)
    one, two = [
        fc.FedTrees(target="risk", grow="together", trees=3).fit(f).predict_proba(whole)
        for f in (turned, straight)
    ]
    assert np.array_equal(one, two)


def test_a_class_that_some_lack() -> None:
    """A group learns every class that one of its members has; a row of no member, nothing."""
    x = np.repeat([0.0, 1.0, 2.0], 40)
    y = np.repeat(["a", "b", "c"], 40)
    parties = {"p": {"x": x[:80], "y": y[:80]}, "q": {"x": x[80:], "y": y[80:]}}
    model = fc.FedTrees(target="y", grow="together", trees=20)
    model.fit(fc.Federation(parties, allow_collect=True))
    assert model.predict({"x": [0.0, 1.0, 2.0]}).tolist() == ["a", "b", "c"]

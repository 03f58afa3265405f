"""Flows of fusion: which messages cross, how large they are, what they reveal, and the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.methods.meeting.tokens import tokens
from fedcircuits.testing import check_protocol
from tests.methods.fusion.sensors import EVENT, ROWS, fitted, owners


def test_one_gather() -> None:
    model, _ = fitted()
    counts = model.ledger_.summary()["messages"].groupby("phase").sum().to_dict()
    assert counts == {"agree": 6, "key": 2, "gather": 3, "graph": 3}
    told = model.ledger_.revealed("coordinator")
    (what,) = set(told[told["phase"] == "gather"]["what"])
    assert what.startswith("representations of single rows, 3 numbers each, their values of event")
    model.predict(owners())
    counts = model.queries_.summary()["messages"].groupby("phase").sum().to_dict()
    assert counts == {"key": 2, "query": 7}  # rows of each, who is asked, one order: it has all
    order = [(e.sender, e.receiver) for e in model.queries_ if e.tag == "query/order"]
    assert order == [("owner 0", "coordinator")]


@pytest.mark.parametrize(("traffic", "width"), [("float32", 4), ("float16", 2), ("int8", 1)])
def test_bytes_of_a_gather(traffic: Any, width: int) -> None:
    model, _ = fitted(traffic=traffic)
    (first, *_) = [e.bytes for e in model.ledger_ if e.tag == "gather/rows"]
    a_row = 8 + 1 + 3 * width + 1 + 2  # token, there, representation, held, label
    header = first - ROWS * a_row - (2 * 3 * 4 if traffic == "int8" else 0)
    assert 100 < header < 250
    assert np.isfinite(model.predict_proba(owners())).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"traffic": "int8", "head": "concat"},
        {"head": "vote"},
        {"align": None, "graph": "complete", "summation": fc.Secret()},
        {"align": None, "graph": "complete", "summation": fc.Hub()},
    ],
    ids=str,
)
def test_laws(options: dict[str, Any]) -> None:
    model, engine = fitted(**options)
    model.predict(owners())
    for programs in engine.programs:
        check_protocol(programs, without=["processes"])


@pytest.mark.parametrize("summation", [None, fc.Hub()], ids=str)
def test_laws_where_one_party_holds_labels_alone(summation: Any) -> None:
    tables = {p.name: p.table for p in owners(())}
    ids = np.array([f"row {r}" for r in range(ROWS)])
    tables["office"] = fc.Table.of({"row": ids, "event": EVENT}, row_id="row")
    options = {"align": None, "graph": "complete", "summation": summation, "share_target": True}
    model, engine = fitted(fc.Federation(tables), **options)
    model.predict(fc.Federation(tables))
    assert [e.receiver for e in model.queries_ if "office" in (e.sender, e.receiver)] == []
    assert model.score(fc.Federation(tables)) > 0.4
    told = {e.reveals for e in model.queries_ if e.sender == "office" and e.tag == "query/truth"}
    assert told == {"values of event of its rows"}
    for programs in engine.programs:
        check_protocol(programs, without=["processes"])


def test_laws_in_processes() -> None:
    _, engine = fitted(owners((1,)), share_target=True)
    check_protocol(engine.programs[0])


def test_rows_are_matched_and_their_names_hidden() -> None:
    model, engine = fitted()
    here = model.fusion_.fusion
    assert model.fusion_.owners == owners().names
    plan = engine.programs[0]["owner 0"].arguments
    secret = plan["secret"]
    assert isinstance(secret, bytes)
    assert (
        len(tokens(np.arange(3), secret)) == 3
        and "secret" not in engine.programs[0]["coordinator"].arguments
    )
    other, _ = fitted()  # another key
    assert np.allclose(model.predict_proba(owners()), other.predict_proba(owners()), atol=1e-6)
    assert here is not other.fusion_.fusion


def test_labels_that_do_not_agree() -> None:
    tables = {p.name: p.table for p in owners()}
    wrong = tables["owner 2"]
    values = wrong.values.copy()
    values[5] = 1 - values[5]
    tables["owner 2"] = fc.Table(wrong.schema, values, wrong.row_ids, wrong.series)
    with pytest.raises(fc.FedcircuitsError, match="owner 0 and owner 2 hold different values"):
        fitted(fc.Federation(tables))

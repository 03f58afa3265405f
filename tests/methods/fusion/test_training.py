"""Flows of fusion: which messages cross, how large they are, what they reveal, and the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fedcircuits as fc
from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.federation.tokens import tokens
from fedcircuits.learning.encoders.encoders import SequenceEncoder, TabularEncoder
from fedcircuits.methods.fusion import rows as fusion_rows
from fedcircuits.methods.fusion.fitting import Gathered
from fedcircuits.testing import check_protocol
from tests.methods.watched import Watched

ROWS = 48
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
SPEEDS = RNG.normal(size=(3, ROWS, 4)) + EVENT[:, None]
QUICK = SequenceEncoder(width=3, epochs=2)


def owners(labels: tuple[int, ...] = (0, 1, 2)) -> fc.Federation:
    """Three owners in different orders, one of whom lacks some rows."""
    tables = {}
    for i, speed in enumerate(SPEEDS):
        order = np.random.default_rng(i).permutation(ROWS)[: ROWS - 6 * (i == 1)]
        columns = {"event": EVENT[order]} if i in labels else None
        ids = np.array([f"row {r}" for r in order])
        tables[f"owner {i}"] = fc.Table.from_series({"speed": speed[order]}, columns, ids)
    return fc.Federation(tables)


def fitted(
    federation: fc.Federation | None = None, **options: Any
) -> tuple[FeatureFusion, Watched]:
    settings: dict[str, Any] = {"epochs": 2, "graph_draws": 2, "random_state": 0, **options}
    engine = Watched()
    model = FeatureFusion(QUICK, target="event", **settings)
    return model.fit(federation or owners(), engine=engine), engine


def test_one_gather() -> None:
    model, _ = fitted()
    counts = model.ledger_.summary()["messages"].groupby("phase").sum().to_dict()
    assert counts == {"agree": 6, "key": 2, "gather": 3, "graph": 3}
    told = model.ledger_.revealed("coordinator")
    (what,) = set(told[told["phase"] == "gather"]["what"])
    assert what.startswith("representations of single rows, 3 numbers each, their values of event")
    model.predict(owners())
    counts = model.queries_.summary()["messages"].groupby("phase").sum().to_dict()
    assert counts == {"key": 2, "query": 4}  # one owner asks: it has all rows


@pytest.mark.parametrize(("traffic", "width"), [("float32", 4), ("float16", 2), ("int8", 1)])
def test_bytes_of_a_gather(traffic: Any, width: int) -> None:
    model, _ = fitted(traffic=traffic)
    (first, *_) = [e.bytes for e in model.ledger_ if e.tag == "gather/rows"]
    a_row = 8 + 1 + 3 * width + 1 + 2  # token, there, representation, held, label
    header = first - ROWS * a_row - (2 * 3 * 4 if traffic == "int8" else 0)
    assert 150 < header < 450
    assert np.isfinite(model.predict_proba(owners())).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"traffic": "int8", "head": "concat"},
        {"training": "tied"},
        {"training": "joint"},
        {"head": "vote", "training": "averaged"},
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
    assert model.score(fc.Federation(tables)) > 0.4
    assert [e.receiver for e in model.queries_ if "office" in (e.sender, e.receiver)] == []
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


# ---------------------------------------------------------------------- rows on the way


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, (7, 3), elements=st.floats(-50, 50, width=32)), st.booleans())
def test_representations_travel(values: Any, gap: bool) -> None:
    values = values.astype(np.float64)
    if gap:
        values[2] = np.nan
    span = np.ptp(np.append(np.nan_to_num(values), np.zeros((1, 3)), axis=0), axis=0)
    for traffic, error in (("float32", 0.0), ("float16", 0.05), ("int8", span / 508 + 1e-5)):
        sent = fusion_rows.packed(values, traffic)  # type: ignore[arg-type]
        found, there = fusion_rows.unpacked(sent, "north")
        assert there.tolist() == [not (gap and i == 2) for i in range(7)]
        assert (np.abs(found - np.nan_to_num(values)) <= error).all()
        assert found[~there].sum() == 0


def test_messages_from_outside_are_checked() -> None:
    good = fusion_rows.packed(np.ones((4, 2)), "float32")
    wrong: Any
    for wrong in ({}, {**good, "there": np.ones(3, bool)}, {**good, "values": np.ones(4)}):
        with pytest.raises(ProtocolError, match="north sent representations"):
            fusion_rows.unpacked(wrong, "north")
    with pytest.raises(ProtocolError, match="not finite"):
        fusion_rows.unpacked({**good, "values": np.full((4, 2), np.inf)}, "north")
    with pytest.raises(FederationError, match="float16"):
        fusion_rows.packed(np.full((2, 2), 1e6), "float16")


def test_rows_held_back_are_drawn_by_id() -> None:
    held = fusion_rows.held_back(np.arange(4000), 0.25, 1)
    assert 0.22 < held.mean() < 0.28
    order = np.random.default_rng(0).permutation(4000)
    assert np.array_equal(fusion_rows.held_back(order.astype(str), 0.25, 1), held[order])
    assert not np.array_equal(fusion_rows.held_back(np.arange(4000), 0.25, 2), held)


def test_the_order_of_rows_is_that_of_their_content() -> None:
    rng = np.random.default_rng(0)
    rows = Gathered(rng.normal(size=(2, 9, 3)).astype(np.float32), np.ones((9, 2), bool))
    y = rng.random(9)
    order = fusion_rows.content_order(rows, y)
    mixed = rng.permutation(9)
    again = fusion_rows.content_order(rows.rows(mixed), y[mixed])
    assert np.array_equal(mixed[again], order)


def test_clipping_and_noise() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3)) * 10
    clipped = fusion_rows.masked(values, 1.0, 0.0, "north", b"k")
    assert np.allclose(np.linalg.norm(clipped, axis=1), 1.0)
    noisy = fusion_rows.masked(values, 1.0, 0.1, "north", b"k")
    assert 0 < np.abs(noisy - clipped).max() < 1
    assert np.array_equal(noisy, fusion_rows.masked(values, 1.0, 0.1, "north", b"k"))
    assert not np.array_equal(noisy, fusion_rows.masked(values, 1.0, 0.1, "north", b"l"))


def test_tied_encoders_share_all_but_their_first_layers() -> None:
    model, _ = fitted(training="tied")
    first, second = (model.views_[n].encoder for n in ("owner 0", "owner 1"))
    assert isinstance(first, SequenceEncoder) and isinstance(second, SequenceEncoder)
    own = 12 * 2  # the inputs' weights of four gates
    assert np.array_equal(first.weights_[own:], second.weights_[own:])
    assert not np.array_equal(first.weights_[:own], second.weights_[:own])
    model, _ = fitted(training="averaged", head="vote")
    first, second = (model.views_[n].encoder for n in ("owner 0", "owner 1"))
    assert np.array_equal(first.weights_, second.weights_)  # type: ignore[attr-defined]


def test_networks_that_cannot_train_together() -> None:
    mixed = {"owner 0": QUICK, "owner 1": SequenceEncoder(width=2, epochs=1), "owner 2": QUICK}
    model = FeatureFusion(mixed, training="tied", epochs=1)
    with pytest.raises(fc.FedcircuitsError, match="must have one shape"):
        model.fit(owners(), target="event")
    mixed["owner 1"] = TabularEncoder(width=3, epochs=1)  # type: ignore[assignment]
    joint = FeatureFusion(mixed, training="scratch", epochs=1, random_state=0)
    assert joint.fit(owners(), target="event").predict_proba(owners()).shape == (ROWS, 2)

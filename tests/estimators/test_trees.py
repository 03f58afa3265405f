"""ChowLiuTree of a federation: to the last bit the tree of all rows in one place."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.estimators.federated_learner import TWO
from tests.estimators.tables import related as table
from tests.methods.watched import breaking


def assert_same(found: fc.ChowLiuTree, whole: fc.ChowLiuTree) -> None:
    assert found.circuit_ == whole.circuit_ and found.parameters_ == whole.parameters_


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Tree("cycle"), fc.Secret(), fc.Secret("all")])
@pytest.mark.parametrize("parties", [3, 5])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_tree_of_all_rows(summation: Any, parties: int, missing: float) -> None:
    rows = table(missing=missing)
    found = fc.ChowLiuTree(summation=summation).fit(fc.split(rows, parties, seed=1))
    assert_same(found, fc.ChowLiuTree().fit(rows))
    assert np.isfinite(found.score_samples(table(20, seed=4))).all()


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(3, 6), st.floats(0, 0.9), st.sampled_from([0.0, 0.1, 7]))
def test_any_rows(seed: int, parties: int, missing: float, smoothing: float) -> None:
    rows = table(int(np.random.default_rng(seed).integers(2 * parties, 60)), seed, missing)
    split = fc.split(rows, parties, seed=seed)
    found = fc.ChowLiuTree(smoothing=smoothing, summation=fc.Secret())
    if np.isnan(rows.values).all():
        with pytest.raises(PartyLostError, match="all values of all parties are missing"):
            found.fit(split)
        return
    assert_same(found.fit(split), fc.ChowLiuTree(smoothing=smoothing).fit(rows))


def test_two_parties_and_a_hub() -> None:
    """Each can take its own counts off the sum, which is said."""
    rows = table()
    with pytest.warns(UserWarning, match=TWO):
        found = fc.ChowLiuTree().fit(fc.split(rows, 2))
    assert_same(found, fc.ChowLiuTree().fit(rows))


def test_gossip_is_rounded_to_counts() -> None:
    rows = table()
    summation = fc.Chebyshev("cycle")
    found = fc.ChowLiuTree(summation=summation).fit(fc.split(rows, 4))
    assert_same(found, fc.ChowLiuTree().fit(rows))


def test_other_categories_and_another_order_of_columns() -> None:
    """Categories are united; a party that has never seen one still has its code."""
    rows = table(150)
    names = ["colour", "size", "v0"]
    blue = rows.schema["colour"].categories.index("blue")
    few = rows.rows(np.flatnonzero(rows.values[:, rows.schema.index("colour")] != blue))
    frame = few.select(names[::-1]).to_pandas()
    frame["colour"] = frame["colour"].astype(str)
    parts = {
        "a": rows.select(names), "b": fc.Table.of(frame), "c": rows.select(names).rows([0, 1, 2])
    }  # fmt: skip
    assert len(parts["b"].schema["colour"].categories) == 2
    found = fc.ChowLiuTree(summation=fc.Secret()).fit(fc.Federation(parts))
    schema = found.circuit_.schema
    pooled = np.concatenate(
        [fc.Table.of(t.to_pandas(), schema=schema).values for t in parts.values()]
    )
    assert_same(found, fc.ChowLiuTree().fit(fc.Table(schema, pooled)))


def test_in_processes() -> None:
    rows = table()
    parties = fc.split(rows, 3)
    found = fc.ChowLiuTree(summation=fc.Secret()).fit(parties, engine="process")
    assert_same(found, fc.ChowLiuTree().fit(rows))


COLUMNS = "names, kinds and categories of the columns"


@pytest.mark.parametrize(
    ("summation", "to_hub", "to_party"),
    [
        (
            fc.Secret(),
            {"the sum of counts of its rows", COLUMNS},
            {"a share, which reveals nothing on its own", "the sum of counts"},
        ),
        (fc.Hub(), {"counts of its rows", COLUMNS}, {"the sum of counts"}),
    ],
)
def test_what_is_revealed(summation: Any, to_hub: Any, to_party: Any) -> None:
    model = fc.ChowLiuTree(summation=summation).fit(fc.split(table(), 3))
    told = model.ledger_.revealed()
    own = "its settings; names, kinds and categories of its columns"
    for party in ("party 1", "party 2", "party 3"):
        what = set(told[told["to"] == party]["what"]) - {own}
        assert {w.split(" of its rows")[0] for w in what} == to_party
    hub = {w.split(" for each")[0] for w in told[told["to"] == "coordinator"]["what"]}
    assert hub == to_hub


@pytest.mark.parametrize(
    ("parties", "how", "error", "said"),
    [
        (2, {"summation": fc.Secret()}, FederationError, "at least 3 parties, got 2"),
        (3, {"summation": fc.Secret}, FederationError, "got the class Secret"),
        (3, {"summation": fc.Secret(key=bytes(32))}, FederationError, "leave the key out"),
        (3, {"target": "age"}, QueryError, "unknown variable 'age'"),
    ],
)
def test_refused(parties: int, how: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        fc.ChowLiuTree(**how).fit(fc.split(table(), parties))


def test_other_columns_are_refused() -> None:
    with pytest.raises(FederationError, match="different rows of the same columns"):
        fc.ChowLiuTree().fit(fc.split(table(), 3, by="columns"))
    numbers = {n: {"age": [31.5, 40.5]} for n in "abc"}
    with pytest.raises(
        FederationError, match="'age' is a real: a Chow–Liu tree supports categories"
    ):
        fc.ChowLiuTree().fit(fc.Federation(numbers))
    with pytest.raises(FederationError, match="sample_weight works for one table only"):
        fc.ChowLiuTree().fit(fc.split(table(), 3), sample_weight=np.ones(120))


def test_a_lost_party_ends_it() -> None:
    model = fc.ChowLiuTree(summation=fc.Secret())
    parties = fc.split(table(), 3)
    with pytest.raises(PartyLostError, match=r"party 2 failed.*resume=True"):
        model.fit(parties, engine=breaking("party 2", "count/pairs/total"))
    assert "_state" not in vars(pickle.loads(pickle.dumps(model)))  # nor parties' counts with it
    assert_same(model.fit(parties, resume=True), fc.ChowLiuTree().fit(table()))


def test_manners() -> None:
    model = fc.ChowLiuTree(summation=fc.Tree("cycle")).fit(fc.split(table(), 3))
    assert clone(model).get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(model)).circuit_ == model.circuit_
    model.fit(table(seed=1))
    assert not hasattr(model, "ledger_")

"""FedTrees: federated equals collected, what parties allow, bad input, parties that are lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, PartyLostError, QueryError, TableError
from fedcircuits.federation.sums.summations import Chebyshev
from tests.estimators.tree_cases import CANCER, SPLITS, federation, fitted, gaps
from tests.unsealed import processes

# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("target", ["diagnosis", "mean texture"])
def test_federated_equals_collected(kind: str, target: str) -> None:
    model = fitted(kind, target)
    assert model.kind_ == kind
    local, rows = model.collect(), gaps()
    for X in (rows, CANCER, rows[rows.columns[:3]]):
        assert np.array_equal(model._vectors(X), local._vectors(X))
        assert np.array_equal(model.predict(X), local.predict(X))
    assert model.score(CANCER) == local.score(CANCER)
    assert local.classes() == model.classes() if target == "diagnosis" else True


def test_engines_agree_bit_for_bit() -> None:
    """Every split in processes: tests/methods/test_laws.py."""
    here = fitted("hybrid")
    there = clone(here).fit(federation("hybrid"), engine=processes)
    assert there.circuit_ == here.circuit_ and there.placement_ == here.placement_
    assert np.array_equal(there.predict_proba(gaps()), here.predict_proba(gaps()))
    count = here.ledger_.summary()["bytes"].groupby("phase").sum().to_dict()
    assert there.ledger_.summary()["bytes"].groupby("phase").sum().to_dict() == count


@pytest.mark.parametrize(
    ("kind", "goal"), [("horizontal", 0.9), ("vertical", 0.92), ("hybrid", 0.9)]
)
def test_predictions_are_good(kind: str, goal: float) -> None:
    order = np.random.default_rng(0).permutation(len(CANCER))
    train, test = CANCER.rows(order[:400]), CANCER.rows(order[400:])
    parties = fc.split(train, target="diagnosis", **SPLITS[kind])
    model = fc.FedTrees(target="diagnosis", share_target=True, random_state=0).fit(parties)
    truth = test.column("diagnosis")
    assert f1_score(truth, model.predict(test), average="macro") > goal
    assert model.score(test) == (truth == model.predict(test)).mean()


def test_numbers_are_predicted() -> None:
    model = fitted("vertical", "mean texture", trees=10)
    rows = CANCER.rows(slice(400, None))
    found = model.predict(rows)
    truth = np.asarray(rows.column("mean texture"), dtype=float)
    assert np.corrcoef(found, truth)[0, 1] > 0.7
    left = np.square(truth - found).sum() / np.square(truth - truth.mean()).sum()
    assert model.score(rows) == pytest.approx(1 - left)
    assert model.score(rows, truth) == model.score(rows)
    with pytest.raises(QueryError, match="mean texture"):
        model.predict_proba(rows)


def test_a_row_that_nobody_knows_anything_of() -> None:
    model = fitted("vertical")
    shares = np.bincount(CANCER.values[:400, -1].astype(int)) / 400
    assert np.allclose(model.predict_proba(gaps())[7], shares)
    before = len(model.queries_)
    assert np.allclose(model.predict_proba(gaps().iloc[[7]]), shares)
    assert len(model.queries_) == before  # nobody was asked


def test_a_party_that_sees_nothing_is_not_asked() -> None:
    model = fitted("vertical")
    seen = federation("vertical")["party 1"].table.names
    found = model.predict_proba(CANCER.select(seen))
    asked = model.queries_.revealed()
    assert len(model.queries_) == 2 and set(asked["to"]) == {"party 1", "coordinator"}
    assert np.allclose(found.sum(axis=1), 1)


def test_one_party_is_a_bag_of_its_own_trees() -> None:
    alone = federation("horizontal").select(["party 2"])
    model = fc.FedTrees(target="diagnosis", grow="bagged", trees=1, random_state=0).fit(alone)
    (leaf,) = model.views_["party 2"].predictors.values()
    assert np.array_equal(model.predict_proba(CANCER), leaf.predict_vector(CANCER))


def test_skewed_classes_count_as_overall() -> None:
    """Two parties whose classes differ in share only say about the same of noise."""
    rng = np.random.default_rng(0)
    parties = {}
    for name, share in (("mostly", 0.9), ("rarely", 0.1)):
        y = np.where(rng.random(2000) < share, "yes", "no")
        parties[name] = {"x": rng.normal(size=2000), "y": y}
    leaf = fc.DecisionTreeLeaf(max_depth=1, min_rows=500)
    model = fc.FedTrees(leaf, target="y", trees=1).fit(fc.Federation(parties))
    for name, view in model.views_.items():
        for tree in view.predictors.values():
            assert np.allclose(tree.predict_vector({"x": [-1.0, 1.0]}), 0.5, atol=0.1), name


def test_weights_of_parties() -> None:
    whole = CANCER.select(["mean area", "mean texture", "diagnosis"])
    parties = fc.Federation({"p": whole.rows(slice(0, 90)), "q": whole.rows(slice(90, 120))})
    for weights, expected in (("rows", [0.75, 0.25]), ("equal", [0.5, 0.5])):
        model = fc.FedTrees(target="diagnosis", trees=1, weights=weights).fit(parties)  # type: ignore[arg-type]
        view = model.views_["coordinator"]
        assert view.parameters["prediction"]["weight"].tolist() == expected
        p, q = (next(iter(model.views_[n].predictors.values())) for n in "pq")
        by_hand = expected[0] * p.predict_vector(whole) + expected[1] * q.predict_vector(whole)
        assert np.allclose(model.predict_proba(whole), by_hand)


def test_the_mean_of_the_paper() -> None:
    model = fitted("vertical", fuse="mean")
    assert model.circuit_.root == fc.Fuse(
        "prediction", ("party 1/trees", "party 2/trees"), "mean", 2
    )
    assert np.array_equal(model.predict_proba(gaps()), model.collect().predict_proba(gaps()))


def test_a_class_seen_by_one_party_only() -> None:
    x = np.repeat([0.0, 1.0, 2.0], 40)
    y = np.repeat(["a", "b", "c"], 40)
    parties = {"p": {"x": x[:80], "y": y[:80]}, "q": {"x": x[40:], "y": y[40:]}}
    model = fc.FedTrees(target="y", trees=1).fit(fc.Federation(parties, allow_collect=True))
    assert model.classes() == ("a", "b", "c")
    rows = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    found = model.predict_proba(rows)
    assert model.predict(rows).tolist() == ["a", "b", "c"]
    # overall a quarter, half, a quarter; p says nothing of c, and q nothing of a
    assert np.allclose(found[0], [(0.75 + 0.25) / 2, 0.75 / 2, 0.25 / 2])
    assert np.allclose(found[1], [0.125, 0.75, 0.125])


# ---------------------------------------------------------------------- what parties allow


def test_the_model_is_collected_only_if_all_allow() -> None:
    parties = federation("vertical", allow_collect=False)
    model = fc.FedTrees(target="diagnosis", share_target=True, trees=2).fit(parties)
    with pytest.raises(FederationError, match="party 1, party 2 did not allow"):
        model.collect()
    for name in parties.names:
        assert set(model.views_[name].predictors) == {f"{name}/tree 1", f"{name}/tree 2"}
    assert not model.views_["coordinator"].predictors


def test_parties_without_the_target_take_no_part_unless_told() -> None:
    parties = federation("vertical")
    with pytest.warns(UserWarning, match=r"party 1 did not contribute.*with share_target=True"):
        model = fc.FedTrees(target="diagnosis", trees=2).fit(parties)
    assert set(model.placement_.values()) == {"party 2", "coordinator"}
    assert model.circuit_.root.children == ("party 2/trees",)
    assert "labels" not in set(model.ledger_.revealed()["phase"])
    seen = parties["party 1"].table.names
    before = len(model.queries_)
    model.predict(CANCER.select(seen))
    assert len(model.queries_) == before


def test_parties_that_cannot_be_told() -> None:
    whole = CANCER.rows(slice(0, 60))
    left = whole.select(["mean radius"])
    right = whole.select(["mean texture", "diagnosis"])
    ids = np.arange(60)
    model = fc.FedTrees(target="diagnosis", share_target=True, trees=2)
    with pytest.warns(UserWarning, match="not all parties have row ids"):
        model.fit(fc.Federation({"left": left, "right": right}))
    apart = {
        "left": fc.Table(left.schema, left.values, ids + 100),
        "right": fc.Table(right.schema, right.values, ids),
    }
    with pytest.warns(
        UserWarning, match="left did not contribute to predictions: none of their rows"
    ):
        model.fit(fc.Federation(apart))


# ---------------------------------------------------------------------- bad input


def test_settings_are_checked() -> None:
    parties = federation("horizontal")
    for wrong, text in (
        ({"target": None}, "name the column to predict"),
        ({"trees": 0}, "trees must be 'auto' or a whole number from 1, got 0"),
        ({"columns": 1.5}, "columns must be 'auto' or a share above 0 and up to 1, got 1.5"),
        ({"grow": "boosted"}, "grow must be one of 'auto', 'bagged', 'together', got 'boosted'"),
        (
            {"threshold": 1.5},
            "threshold must be 'macro-f1' or a probability above 0 and below 1, got 1.5",
        ),
        ({"summation": Chebyshev("cycle")}, "Chebyshev adds up approximately"),
        ({"leaf": fc.DecisionTreeLeaf(), "grow": "together"}, "leaf= applies to bagged trees"),
        ({"weights": "size"}, "weights must be one of 'rows', 'equal', got 'size'"),
        ({"fuse": "sum"}, "fuse must be one of 'auto', 'mean', got 'sum'"),
        ({"on_lost": "wait"}, "on_lost must be one of 'stop', 'continue'"),
        ({"leaf": {"party 1": fc.DecisionTreeLeaf()}}, "leaf has no entry for 'party 2'"),
    ):
        with pytest.raises(FederationError, match=text):
            fc.FedTrees(**{"target": "diagnosis", **wrong}).fit(parties)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="diagnoses"):
        fc.FedTrees(target="diagnoses").fit(parties)
    with pytest.raises(FederationError, match="FedTrees learns from a Federation"):
        fc.FedTrees(target="diagnosis").fit(CANCER)  # type: ignore[arg-type]


def test_questions_are_checked() -> None:
    with pytest.raises(NotFittedError, match="FedTrees is not fitted yet"):
        fc.FedTrees(target="diagnosis").predict(CANCER)
    model = fitted("horizontal", trees=1)
    with pytest.raises(QueryError, match="these trees predict 'diagnosis', not 'mean area'"):
        model.predict(CANCER, "mean area")
    with pytest.raises(QueryError, match="no row has a value of 'diagnosis'"):
        model.score(CANCER.select(["mean area"]))
    with pytest.raises(TableError, match="at least one row"):
        model.predict(CANCER.rows([]))


def test_nobody_can_learn() -> None:
    parties = {"left": {"id": [1, 2], "x": [1.0, 2.0]}, "right": {"id": [1, 2], "y": ["a", "b"]}}
    apart = fc.Federation(parties, row_id="id", least_count=1)
    with pytest.raises(
        FederationError, match=r"no party can learn to predict 'y'.*share_target=True"
    ):
        fc.FedTrees(target="y").fit(apart)
    model = fc.FedTrees(fc.DecisionTreeLeaf(min_rows=1), target="y", share_target=True, trees=1)
    assert model.fit(apart).predict(pd.DataFrame({"x": [1.0, 2.0]})).tolist() == ["a", "b"]
    unknown = {"p": {"x": [1.0, 2.0], "y": [None, None]}, "q": {"x": [1.0], "y": [None]}}
    kinds = {
        n: fc.Table.of(pd.DataFrame(d), categories={"y": ["a", "b"]}) for n, d in unknown.items()
    }
    with pytest.raises(PartyLostError, match="no row of any party has a value of the target 'y'"):
        fc.FedTrees(target="y").fit(fc.Federation(kinds))


@pytest.mark.parametrize("grow", ["auto", "bagged", "together"])
def test_a_party_with_labels_alone(grow: Any) -> None:
    x = np.random.default_rng(0).normal(size=60)
    parties = {
        "left": {"id": range(60), "x": x},
        "right": {"id": range(60), "y": np.where(x > 0, "a", "b")},
    }
    tables = {name: pd.DataFrame(columns) for name, columns in parties.items()}
    apart = fc.Federation(tables, row_id="id", allow_collect=True)
    model = fc.FedTrees(target="y", share_target=True, trees=3, grow=grow, threshold="macro-f1")
    model.fit(apart)
    assert model.predict({"x": [1.0, -1.0]}).tolist() == ["a", "b"]
    assert set(model.placement_.values()) == {"left", "coordinator"}


# ---------------------------------------------------------------------- parties that are lost


class Failing(fc.DecisionTreeLeaf):
    """Grows nothing while ``broken``."""

    broken = True

    def fit(self, X: object, target: str, sample_weight: Any = None) -> Any:
        if type(self).broken:
            raise RuntimeError("out of memory")
        return super().fit(X, target, sample_weight)


@pytest.fixture
def leaves() -> dict[str, fc.DecisionTreeLeaf]:
    Failing.broken = True
    return {**{f"party {i}": fc.DecisionTreeLeaf() for i in (1, 3, 4)}, "party 2": Failing()}


def test_a_run_is_resumed(leaves: dict[str, Any]) -> None:
    parties = federation("horizontal")
    grown: list[int] = []

    def engine(programs: Any, kept: Any = None) -> Any:
        grown.append(len(kept or {}))
        return memory.run(programs, kept)

    model = fc.FedTrees(leaves, target="diagnosis", trees=3, random_state=0)
    with pytest.raises(PartyLostError, match=r"party 2 failed while growing .*resume=True") as lost:
        model.fit(parties, engine=engine)
    assert lost.value.party == "party 2"
    Failing.broken = False
    model.fit(parties, engine=engine, resume=True)
    assert grown == [0, 9]  # three trees of each of the other three
    fresh = clone(model).fit(parties)
    assert np.array_equal(model.predict_proba(CANCER), fresh.predict_proba(CANCER))


def test_a_run_goes_on_without_a_party(leaves: dict[str, Any]) -> None:
    parties = federation("horizontal")
    model = fc.FedTrees(leaves, target="diagnosis", trees=2, on_lost="continue", random_state=0)
    with pytest.warns(UserWarning, match="continuing without party 2"):
        model.fit(parties)
    assert set(model.views_) == {"coordinator", "party 1", "party 3", "party 4"}
    rest = parties.select(["party 1", "party 3", "party 4"])
    fresh = fc.FedTrees(target="diagnosis", trees=2, random_state=0).fit(rest)
    assert np.array_equal(model.predict_proba(CANCER), fresh.predict_proba(CANCER))


def test_the_holder_of_the_target_is_lost(leaves: dict[str, Any]) -> None:
    model = fc.FedTrees(leaves, target="diagnosis", share_target=True, on_lost="continue")
    with pytest.raises(PartyLostError, match=r"not possible: nobody else holds 'diagnosis'"):
        model.fit(federation("vertical"))


def test_seeds() -> None:
    one, two, other = (fitted("vertical", grow="bagged", random_state=i) for i in (1, 1, 2))
    assert np.array_equal(one.predict_proba(CANCER), two.predict_proba(CANCER))
    assert not np.array_equal(one.predict_proba(CANCER), other.predict_proba(CANCER))

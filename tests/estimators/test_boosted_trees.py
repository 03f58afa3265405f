"""FedTrees: trees that are boosted by several parties together, and thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.flow import Compute, Flow, Program
from fedcircuits.federation.sums.summations import Tree
from tests.estimators.tree_cases import CANCER, SPLITS, federation, fitted, gaps
from tests.unsealed import processes

# ---------------------------------------------------------------------- trees grown together


def test_trees_grown_together_are_those_of_all_rows() -> None:
    """Whoever holds which rows, and whoever adds up."""
    rows = CANCER.rows(slice(0, 400))
    settings: dict[str, Any] = {"target": "diagnosis", "grow": "together", "trees": 6}
    pooled = fc.FedTrees(**settings).fit(fc.Federation({"all": rows}, allow_collect=True))
    for parties in (2, 5):
        apart = fc.split(rows, parties, skew="label", target="diagnosis")
        for summation in (None, Tree("path")):
            model = fc.FedTrees(**settings, summation=summation).fit(apart)
            assert np.array_equal(model.predict_proba(gaps()), pooled.predict_proba(gaps()))
            assert model.circuit_.root.children == ("party 1/trees",)
    assert pooled.circuit_["all/trees"].operation == "product"  # type: ignore[union-attr]


def test_engines_agree_on_trees_grown_together() -> None:
    here = fitted("horizontal", grow="together", threshold="macro-f1")
    there = clone(here).fit(federation("horizontal"), engine=processes)
    assert np.array_equal(there.predict_proba(gaps()), here.predict_proba(gaps()))
    assert there.threshold_ == here.threshold_
    assert there.ledger_.bytes == here.ledger_.bytes


def test_boosted_trees_are_a_sum_of_log_odds() -> None:
    model = fitted("horizontal", grow="together")
    trees = model.views_["party 1"].predictors
    shares = model.views_["coordinator"].overall
    base = np.log(shares[1] / shares[0])
    score = np.full(len(CANCER), base)
    for tree in trees.values():
        vector = tree.predict_vector(CANCER)
        score += np.log(vector[:, 1] / vector[:, 0]) - base
    assert len(trees) == 4 and not model.views_["party 2"].predictors
    assert np.allclose(model.predict_proba(CANCER)[:, 1], 1 / (1 + np.exp(-score)))


def test_together_needs_leave() -> None:
    parties = federation("horizontal", allow_collect=False)
    with pytest.raises(FederationError, match="party 1, party 2, party 3, party 4 did not allow"):
        fc.FedTrees(target="diagnosis", grow="together").fit(parties)


def test_three_classes_together() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = np.where(x[:, 0] > 0.5, "high", np.where(x[:, 1] > 0, "middle", "low"))
    whole = fc.Table.of({"a": x[:, 0], "b": x[:, 1], "y": y})
    model = fc.FedTrees(target="y", grow="together", trees=10)
    model.fit(fc.split(whole.rows(slice(0, 400)), 3, skew="label", target="y"))
    assert model.score(whole.rows(slice(400, None))) > 0.9
    with pytest.raises(PartyLostError, match="a threshold needs two classes, 'y' has 3"):
        model.set_params(threshold="macro-f1").fit(fc.split(whole, 3, target="y"))


def test_a_group_is_lost_with_a_party() -> None:
    parties = federation("horizontal")

    def engine(programs: Any, kept: Any = None) -> Any:
        gone = {**programs, **({"party 3": Program(_silent, {})} if "party 3" in programs else {})}
        return memory.run(gone, kept)

    model = fc.FedTrees(target="diagnosis", grow="together", trees=3, on_lost="continue")
    with pytest.warns(UserWarning, match="continuing without party 3"):
        model.fit(parties, engine=engine)
    rest = parties.select(["party 1", "party 2", "party 4"])
    fresh = clone(model).fit(rest)
    assert np.array_equal(model.predict_proba(CANCER), fresh.predict_proba(CANCER))


def _silent() -> Flow[None]:
    yield Compute("growing nothing", _fails)


def _fails() -> None:
    raise RuntimeError("out of memory")


# ---------------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    ("kind", "grow"), [*((kind, "bagged") for kind in SPLITS), ("hybrid", "together")]
)
def test_a_rare_class_is_found_with_a_threshold(kind: str, grow: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4))
    y = rng.random(3000) < 1 / (1 + np.exp(4.0 - 1.2 * x.sum(axis=1)))
    whole = fc.Table.of({**{f"x{i}": x[:, i] for i in range(4)}, "y": y})
    train, test = whole.rows(slice(0, 2000)), whole.rows(slice(2000, None))
    parties = fc.split(train, target="y", **SPLITS[kind])
    settings: dict[str, Any] = {"target": "y", "share_target": True, "grow": grow}
    plain = fc.FedTrees(**settings, random_state=0).fit(parties)
    model = fc.FedTrees(**settings, threshold="macro-f1", random_state=0).fit(parties)
    assert np.array_equal(model.predict_proba(test), plain.predict_proba(test))
    truth = test.column("y")
    scores = [f1_score(truth, m.predict(test), average="macro") for m in (plain, model)]
    assert model.threshold_ < 0.5 and scores[1] > scores[0]
    assert np.array_equal(model.collect().predict(test), model.predict(test))
    assert model.score(test) == (model.predict(test) == truth).mean()
    phases = set(model.ledger_.summary().reset_index()["phase"])
    assert "decide" in phases and "decide" not in set(
        plain.ledger_.summary().reset_index()["phase"]
    )


def test_a_threshold_by_hand() -> None:
    model = fitted("vertical", threshold=0.2)
    expected = model.predict_proba(CANCER)[:, 1] >= 0.2
    assert np.array_equal(model.predict(CANCER) == model.classes()[1], expected)

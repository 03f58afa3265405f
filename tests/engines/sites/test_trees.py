"""Decision trees and Chow–Liu trees between owners: what memory finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.federation.recipes import Held
from tests.engines.sites.hands import Listening, found_in_hands
from tests.engines.sites.local import LocalSites

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
AGE = RNG.normal(50, 9, 90)
TABLE = fc.Table.of(
    {
        "age": AGE,
        "calls": RNG.poisson(3, 90),
        "smoker": RNG.random(90) < 0.3,
        "risk": np.where(AGE + RNG.normal(0, 5, 90) > 52, "high", "low"),
        "grade": RNG.integers(3, size=90),
    }
)
FLAGS = fc.Table.of({name: RNG.random(90) < 0.4 for name in "abcd"})
OPEN = Policy(share_target=True, share_representations=True, collect=True)


def split(by: Any, target: str, parties: int = 3, collect: bool = True) -> fc.Federation:
    whole = fc.split(TABLE, parties, by=by, target=target)
    return fc.Federation({p.name: p.table for p in whole}, allow_collect=collect)


def connected(local: fc.Federation, folder: Path, policy: Policy = OPEN) -> fc.Federation:
    return LocalSites({p.name: p for p in local}, folder, policy=policy).federation()


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows": ("rows", {"target": "risk"}),
    "together": ("rows", {"target": "risk", "grow": "together"}),
    "along a tree": (
        "rows",
        {"target": "risk", "grow": "together", "summation": fc.Tree("path")},
    ),
    "on shares": ("rows", {"target": "risk", "grow": "together", "summation": fc.Secret()}),
    "columns": ("columns", {"target": "risk", "share_target": True}),
    "both, privately": (
        "both",
        {"target": "risk", "share_target": True, "rows": "private", "threshold": "macro-f1"},
    ),
    "few whole numbers": ("rows", {"target": "grade"}),
    "few whole numbers at one": ("columns", {"target": "grade", "share_target": True}),
    "a number of few": ("rows", {"target": "grade", "task": "number"}),
    "a number": ("rows", {"target": "age"}),
    "a number as classes": ("rows", {"target": "calls", "task": "classes"}),
}


def answers(model: fc.FedTrees) -> list[Any]:
    found = [model.predict(TABLE), model.score(TABLE), model.threshold_, model.schema_]
    number = not model.schema_[str(model.target)].size
    return found if number else [*found, model.classes(), model.predict_proba(TABLE)]


@pytest.mark.parametrize("case", CASES)
def test_trees_answer_as_in_memory(tmp_path: Path, case: str) -> None:
    by, settings = CASES[case]
    local = split(by, settings["target"])
    here, there = (fc.FedTrees(trees=3, random_state=0, **settings) for _ in range(2))
    here.fit(local)
    there.fit(connected(local, tmp_path))
    for a, b in zip(answers(here), answers(there), strict=True):
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
    assert here.ledger_.bytes == there.ledger_.bytes
    held = [v for n, v in there.views_.items() if n != "coordinator"]
    assert held and all(isinstance(view, Held) for view in held)


@pytest.mark.parametrize("parties", [1, 2, 7])
def test_few_parties_with_trees_and_many(tmp_path: Path, parties: int) -> None:
    local = split("rows", "risk", parties)
    here, there = (fc.FedTrees(target="risk", trees=2, random_state=0) for _ in range(2))
    here.fit(local)
    there.fit(connected(local, tmp_path))
    assert np.array_equal(here.predict_proba(TABLE), there.predict_proba(TABLE))


def test_trees_stay_where_they_grew(tmp_path: Path) -> None:
    local = split("columns", "risk", collect=False)
    sites = LocalSites({p.name: p for p in local}, tmp_path, policy=OPEN)
    heard, there = Listening(sites), sites.federation()
    model = fc.FedTrees(target="risk", share_target=True, trees=3, random_state=0).fit(there)
    model.predict(TABLE.rows([0, 1]))
    assert found_in_hands(model, heard, local) == []
    with pytest.raises(FederationError):
        model.collect()


def test_what_sites_refuse_of_trees(tmp_path: Path) -> None:
    local = split("columns", "risk", collect=False)
    there = connected(local, tmp_path, Policy())
    with pytest.raises(PartyLostError, match="share_target = false"):
        fc.FedTrees(target="risk", share_target=True, trees=2).fit(there)
    with pytest.raises(FederationError, match="did not allow"):
        fc.FedTrees(target="risk", grow="together", trees=2).fit(there)
    with pytest.raises(FederationError, match="text is no number"):
        fc.FedTrees(target="risk", task="number").fit(there)


def test_classes_of_rows_are_told_if_the_policy_allows_it(tmp_path: Path) -> None:
    """Any column of two values may be the target, of which a threshold once told every row."""
    there = connected(split("columns", "risk"), tmp_path, Policy(share_target=True))
    with pytest.raises(PartyLostError, match="share_representations = false"):
        fc.FedTrees(target="risk", share_target=True, trees=2, threshold="macro-f1").fit(there)
    audits = "".join(path.read_text() for path in tmp_path.glob("*/audit.jsonl"))
    assert '"tag": "decide/rows"' not in audits


def test_noise_is_drawn_at_the_sites(tmp_path: Path) -> None:
    privacy = fc.DifferentialPrivacy(2.0, 1e-5)
    few = fc.split(TABLE.select(["smoker", "risk"]), 3, by="rows", target="risk")
    parties = fc.Federation({p.name: p.table for p in few}, allow_collect=True)
    there = connected(parties, tmp_path)
    settings: Any = {"grow": "together", "trees": 2, "privacy": privacy, "random_state": 0}
    model = fc.FedTrees(target="risk", **settings).fit(there)
    assert 0 < model.epsilon_ <= 2.0 and model.predict(TABLE).shape == (90,)
    numbers = fc.split(TABLE.select(["smoker", "age"]), 3, by="rows", target="age")
    parties = fc.Federation({p.name: p.table for p in numbers}, allow_collect=True)
    with pytest.raises(
        FederationError, match="privacy needs declared classes, but 'age' is a number"
    ):
        fc.FedTrees(target="age", **settings).fit(connected(parties, tmp_path / "numbers"))


def test_trees_are_saved_and_collected(tmp_path: Path) -> None:
    local = split("rows", "risk")
    sites = LocalSites({p.name: p for p in local}, tmp_path, policy=OPEN)
    model = fc.FedTrees(target="risk", trees=2, random_state=0).fit(sites.federation())
    expected = model.predict_proba(TABLE)
    assert np.array_equal(model.collect().predict_proba(TABLE), expected)
    model.save(tmp_path / "trees.fc")
    sites.remote = sites.connect(60.0)
    again = fc.load(tmp_path / "trees.fc", sites.federation())
    assert isinstance(again, fc.FedTrees)
    assert np.array_equal(again.predict_proba(TABLE), expected)


# ---------------------------------------------------------------------- Chow–Liu trees


@pytest.mark.parametrize("parties", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "how", [fc.Hub(), fc.Tree("path"), fc.Secret()], ids=["hub", "tree", "secret"]
)
def test_a_chow_liu_tree_is_that_of_memory(tmp_path: Path, how: Any, parties: int) -> None:
    if parties < 3 and how.hides:
        pytest.skip("shares need three parties")
    local = fc.split(FLAGS, parties, by="rows")
    here, there = fc.ChowLiuTree(summation=how), fc.ChowLiuTree(summation=how)
    here.fit(local)
    there.fit(connected(local, tmp_path))
    assert np.array_equal(here.score_samples(FLAGS), there.score_samples(FLAGS))
    assert here.circuit_ == there.circuit_ and here.ledger_.bytes == there.ledger_.bytes
    assert here.probability("a = True", given="b = False") == there.probability(
        "a = True", given="b = False"
    )


def test_a_chow_liu_tree_with_noise(tmp_path: Path) -> None:
    privacy = fc.DifferentialPrivacy(4.0, 1e-5)
    there = connected(fc.split(FLAGS, 3, by="rows"), tmp_path)
    model = fc.ChowLiuTree(privacy=privacy, summation=fc.Secret()).fit(there)
    assert 0 < model.epsilon_ <= 4.0 and np.isfinite(model.score_samples(FLAGS)).all()
    told = {e.tag: e.reveals for e in model.ledger_ if e.receiver == "coordinator"}
    assert told["count/total"].startswith("the sum of noisy counts")


def test_a_chow_liu_tree_is_whole_at_the_caller(tmp_path: Path) -> None:
    model = fc.ChowLiuTree().fit(connected(fc.split(FLAGS, 3, by="rows"), tmp_path))
    model.save(tmp_path / "tree.fc")
    loaded = fc.load(tmp_path / "tree.fc")
    assert np.array_equal(loaded.score_samples(FLAGS), model.score_samples(FLAGS))

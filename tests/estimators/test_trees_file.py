"""Trees in files: what is loaded answers as what was saved; whatever is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.circuits.graph import files
from fedcircuits.errors import FederationError, FileError
from fedcircuits.estimators.fedtrees import CollectedTrees
from tests.estimators import damage
from tests.estimators.damage import broken, changed, part, spoiled

CANCER = fc.datasets.load("breast_cancer")
SPLITS: dict[str, dict[str, Any]] = {
    "rows": {"parties": 3, "by": "rows"},
    "columns": {"parties": 2, "by": "columns"},
    "both": {"parties": 3, "by": "both", "overlap": 0.2},
}


def fitted(by: str, target: str = "diagnosis", **options: Any) -> fc.FedTrees:
    parties = fc.split(CANCER.rows(slice(0, 250)), target=target, **SPLITS[by])
    settings: dict[str, Any] = {"trees": 3, "share_target": True, "random_state": 1, **options}
    return fc.FedTrees(target=target, **settings).fit(parties)


def gaps() -> pd.DataFrame:
    frame = CANCER.rows(slice(400, 440)).to_pandas().drop(columns="diagnosis").astype(float)
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.3)
    frame.iloc[7] = np.nan
    return frame


# ---------------------------------------------------------------------- whole


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "mean texture"},
        {"threshold": "macro-f1"},
        {"grow": "bagged", "fuse": "mean", "threshold": 0.3},
        {"grow": "together"},
    ],
    ids=str,
)
def test_they_come_back_to_the_last_bit(by: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(by, **options)
    model.save(tmp_path / "trees.fc")
    again = fc.FedTrees.load(tmp_path / "trees.fc")
    for X in (gaps(), CANCER):
        assert np.array_equal(again._vectors(X), model._vectors(X))
        assert np.array_equal(again.predict(X), model.predict(X))
    assert again.score(CANCER) == model.score(CANCER)
    assert again.target == model.target and again.threshold_ == model.threshold_
    assert again.circuit_ == model.circuit_ and again.ensemble.placement == model.placement_
    assert again.schema_ == model.schema_
    again.save(tmp_path / "again.fc")
    assert (tmp_path / "again.fc").read_bytes() == (tmp_path / "trees.fc").read_bytes()


def test_categories_and_classes_that_a_party_has_not_seen(tmp_path: Path) -> None:
    y, colour = np.repeat(["a", "b", "c"], 40), np.tile(["red", "green", "blue", "white"], 30)
    x = np.repeat([0.0, 1.0, 2.0], 40)
    parties = {
        "p": {"x": x[:80], "colour": colour[:80], "y": y[:80]},
        "q": {"x": x[40:], "colour": colour[40:], "y": y[40:]},
    }
    model = fc.FedTrees(target="y", trees=2).fit(fc.Federation(parties, allow_collect=True))
    model.save(tmp_path / "trees.fc")
    rows = pd.DataFrame({"x": [0.0, 1.0, None], "colour": ["red", None, "white"]})
    found = CollectedTrees.load(tmp_path / "trees.fc")
    assert np.array_equal(found.predict_proba(rows), model.predict_proba(rows))
    assert found.classes() == ("a", "b", "c")


# ---------------------------------------------------------------------- refused


class Flat(fc.DecisionTreeLeaf):
    """A leaf of a user, who answers otherwise."""

    def predict_vector(self, X: object) -> Any:
        return np.full_like(super().predict_vector(X), 0.5)


class Narrow(fc.DecisionTreeLeaf):
    """One that grows otherwise, and does not read all columns it is given."""

    def fit(self, X: Any, target: str, sample_weight: Any = None) -> Any:
        few = X.names if self.max_depth == 2 else X.names[1:]
        return super().fit(X.select(few), target, sample_weight)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "trees.fc"
    parties = fc.split(CANCER, 2, target="diagnosis", allow_collect=False)
    model = fc.FedTrees(target="diagnosis", trees=1).fit(parties)
    with pytest.raises(FederationError, match=r"party 1, party 2 did not allow.*allow_collect"):
        model.save(path)
    with pytest.raises(FileError, match=r"'party 1/tree 1' is your own Flat"):
        fitted("rows", leaf=Flat()).save(path)
    with pytest.raises(FileError, match="does not read the columns"):
        fitted("rows", leaf=Narrow()).save(path)
    assert not list(tmp_path.iterdir())
    model = fitted("rows", leaf=Narrow(max_depth=2))
    model.save(path)
    found = fc.FedTrees.load(path)
    assert np.array_equal(found.predict_proba(CANCER), model.predict_proba(CANCER))


def test_files_of_other_models(tmp_path: Path) -> None:
    fitted("rows").save(tmp_path / "trees.fc")
    with pytest.raises(FileError, match=r"predicts 'diagnosis'.*fedcircuits.FedTrees.load"):
        fc.load(tmp_path / "trees.fc")
    with pytest.raises(FileError, match=r"predicts 'diagnosis'.*fedcircuits.FedTrees.load"):
        fc.FeatureFusion.load(tmp_path / "trees.fc")
    fc.MixtureOfProducts(1).fit(fc.Table.of({"x": [1.0, 2.0, 4.0]})).save(tmp_path / "plain.fc")
    with pytest.raises(FileError, match=r"holds no FedTrees: load it with fedcircuits.load"):
        fc.FedTrees.load(tmp_path / "plain.fc")


# ---------------------------------------------------------------------- damage


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@cache
def whole() -> tuple[bytes, Any]:
    few = CANCER.select(["mean area", "mean texture", "worst area", "diagnosis"])
    parties = fc.split(few.rows(slice(0, 250)), 2, by="columns", target="diagnosis")
    model = fc.FedTrees(target="diagnosis", trees=2, share_target=True, threshold="macro-f1")
    model.set_params(random_state=0).fit(parties).save("whole.fc")
    return Path("whole.fc").read_bytes(), model.predict_proba(CANCER)


def refused(data: bytes) -> bool:
    return damage.refused(data, lambda p: fc.FedTrees.load(p).predict_proba(CANCER), whole()[1])


def test_every_field_is_checked() -> None:
    data = whole()[0]
    metadata = part(data, files.ABOUT)["metadata"]
    found = {word: refused(changed(data, other)) for word, other in spoiled(metadata)}
    assert len(found) > 150 and sum(found.values()) > 0.8 * len(found)
    passed = [word.split(":")[0] for word, no in found.items() if not no]
    for name in ("parties", "target", "threshold", "estimator"):
        assert not any(repr(name) in place for place in passed), name


def test_every_array_is_checked() -> None:
    data, tensors = whole()[0], dict[str, np.ndarray]()
    changed(data, tensors=tensors.update)
    for name, array in tensors.items():
        assert refused(changed(data, tensors=lambda t, n=name: t.pop(n))), name
        more = json.dumps([json.loads(name)[0], "more"])
        assert refused(changed(data, tensors=lambda t, n=more: t.update({n: np.ones(2)})))
        for word, other in broken(array):
            if (word, json.loads(name)[1]) == ("infinite", "threshold"):
                continue  # a question that all known values answer alike: another tree, but sound
            no = refused(changed(data, tensors=lambda t, n=name, o=other: t.update({n: o})))
            assert no or (word, json.loads(name)[1]) == ("negative", "category"), f"{name}: {word}"
    assert len(tensors) > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nodes: nodes[-1].__setitem__(3, "gcn"), "must be a mean or product"),
        (lambda nodes: nodes[-1].__setitem__(4, 3), "'prediction' must have a unit"),
        (lambda nodes: nodes[0].__setitem__(1, "party 1/shrub"), "party 1/tree 1"),
        (lambda nodes: nodes[2][2].reverse(), "must read the trees of one party"),
        (lambda nodes: nodes[-1][2].__setitem__(0, "party 1/tree 1"), "party 1/trees"),
        (lambda nodes: nodes[-1][2].append("party 1/tree 1"), "reads trees"),
    ],
)
def test_another_graph(change: Callable[[Any], object], message: str) -> None:
    data = whole()[0]
    graph = part(data, files.GRAPH)
    change(graph["circuit"]["nodes"])
    Path("other.fc").write_bytes(changed(data, graph=graph))
    with pytest.raises(FileError, match=r"other\.fc") as caught:
        fc.FedTrees.load("other.fc")
    assert message in str(caught.value)

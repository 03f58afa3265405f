"""Fusions in files: what is loaded is what was saved, to the last bit; damage is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.circuits.graph import files
from fedcircuits.engines import memory
from fedcircuits.errors import FileError
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.privacy.summation_file import summation_of, summation_stored
from tests.estimators import damage
from tests.estimators.damage import broken, changed, part, spoiled

ROWS, STEPS, OWNERS = 90, 4, 3
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
SPEEDS = RNG.normal(size=(OWNERS, ROWS, STEPS, 2)) + 1.2 * EVENT[:, None, None]
QUICK = fc.SequenceEncoder(width=4, epochs=2, batch=40)
LANES = np.arange(ROWS) % 3


def owners(target: str = "event", allow: bool = True) -> fc.Federation:
    """Two with series, one of them with a category besides; one with ordinary columns."""
    truth = {"event": EVENT, "level": SPEEDS.mean(axis=(0, 2, 3))}[target]
    ids, said = np.arange(ROWS), {target: truth}
    tables = {
        "zoo": fc.Table.from_series({"speed": SPEEDS[0]}, {**said, "lanes": LANES}, ids),
        "art": fc.Table.from_series({"speed": SPEEDS[1]}, said, ids),
        "inn": fc.Table.of({**said, "a": SPEEDS[2, :, 0, 0], "b": LANES, "id": ids}, row_id="id"),
    }
    return fc.Federation(tables, allow_collect=allow)


def fitted(target: str = "event", **options: Any) -> FeatureFusion:
    encoder = {"zoo": QUICK, "art": fc.SequenceEncoder(cell="gru", width=4, epochs=2),
               "inn": fc.TabularEncoder(hidden=(5,), width=4, epochs=2)}  # fmt: skip
    settings: dict[str, Any] = {"epochs": 3, "batch": 40, "graph_draws": 2, "random_state": 0}
    model = FeatureFusion(options.pop("encoder", encoder), **{**settings, **options})
    return model.fit(owners(target), target=target)


def same(model: FeatureFusion, again: FeatureFusion, X: fc.Federation) -> None:
    """Answers and what was learned are equal to the last bit."""
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again._answers(X).values, model._answers(X).values)
    assert np.array_equal(again.opinions(X), model.opinions(X), equal_nan=True)
    few = X.select(X.names[1:])
    if model.summation is None:
        assert np.array_equal(again._answers(few).values, model._answers(few).values)
    for name in ("graph_", "alignment_", "history_"):
        one, other = getattr(model, name), getattr(again, name)
        assert type(one) is type(other)
        if one is not None:
            assert list(one) == list(other)
            assert all(np.array_equal(one[n], other[n], equal_nan=True) for n in one)
    assert again.circuit_ == model.circuit_ and again.placement_ == model.placement_
    assert again.score(X) == model.score(X) and again.notes_ == model.notes_
    assert list(again.views_) == list(model.views_)


# ---------------------------------------------------------------------- whole


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"align": "sinkhorn", "graph": "expected", "reference": "normal"},
        {"align": None, "graph": None},
        {"graph": "knn", "traffic": "int8", "clip": 2.0},
        {"graph": 1 - np.eye(3), "hidden": np.int64(5), "temperature": np.float64(0.2)},
        {"head": "mean"},
        {"head": "concat"},
        {"head": "transformer"},
        {"head": "vote"},
        {"head": "threshold"},
        {"head": "best"},
        {"align": None, "graph": "complete", "summation": fc.Secret()},
        {"align": None, "graph": "complete", "summation": fc.Tree([(0, 1), (1, 2)])},
        {"target": "level"},
        {"target": "level", "head": "vote"},
    ],
    ids=str,
)
def test_it_comes_back_to_the_last_bit(options: dict[str, Any], tmp_path: Path) -> None:
    model, X = fitted(**options), owners(options.get("target", "event"))
    model.save(tmp_path / "fusion.fc")
    again = FeatureFusion.load(tmp_path / "fusion.fc")
    same(model, again, X)
    assert not len(again.ledger_) and len(again.queries_)
    again.save(tmp_path / "again.fc")
    assert (tmp_path / "again.fc").read_bytes() == (tmp_path / "fusion.fc").read_bytes()


def test_it_is_a_fusion_like_any(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "fusion.fc")
    again = FeatureFusion.load(tmp_path / "fusion.fc")
    settings, learned = again.get_params(deep=False), model.get_params(deep=False)
    assert {n: v for n, v in settings.items() if n != "encoder"} == {
        n: v for n, v in learned.items() if n != "encoder"
    }
    anew = clone(again).fit(owners(), target="event")
    assert np.array_equal(anew.predict_proba(owners()), model.predict_proba(owners()))
    asked: list[int] = []

    def engine(programs: Any, kept: Any = None) -> Any:
        asked.append(len(programs))
        return memory.run(programs, kept)

    there = FeatureFusion.load(tmp_path / "fusion.fc", engine=engine)
    assert np.array_equal(there.predict_proba(owners()), model.predict_proba(owners()))
    assert asked == [OWNERS + 1]


def test_labels_of_one_owner(tmp_path: Path) -> None:
    """An encoder that has learned without labels gives back its inputs."""
    tables = {p.name: p.table for p in owners()}
    for name in ("art", "inn"):
        rest = (*tables[name].names, *tables[name].series)
        tables[name] = tables[name].select(n for n in rest if n != "event")
    parties = fc.Federation(tables, allow_collect=True)
    with pytest.warns(UserWarning, match="learned without labels"):
        model = FeatureFusion(QUICK, epochs=2).set_params(encoder=None).fit(parties, target="event")
    model.save(tmp_path / "fusion.fc")
    again = FeatureFusion.load(tmp_path / "fusion.fc")
    assert np.array_equal(again.predict_proba(parties), model.predict_proba(parties))
    assert again.notes_ == model.notes_
    art = again.views_["art"].encoder
    assert art.target_ is None  # type: ignore[attr-defined]


def test_an_owner_that_holds_the_target_alone(tmp_path: Path) -> None:
    tables = {p.name: p.table for p in owners()}
    tables["art"] = fc.Table.of({"event": EVENT, "id": np.arange(ROWS)}, row_id="id")
    parties = fc.Federation(tables, allow_collect=True)
    model = FeatureFusion(epochs=2, random_state=0).fit(parties, target="event")
    model.save(tmp_path / "fusion.fc")
    again = FeatureFusion.load(tmp_path / "fusion.fc")
    assert list(again.views_) == ["zoo", "art", "inn"] and again.fusion_.owners == ("zoo", "inn")
    assert np.array_equal(again.predict_proba(parties), model.predict_proba(parties))


# ---------------------------------------------------------------------- encoders of others


class Level:
    """A user's encoder."""

    def encode(self, X: fc.Table) -> Any:
        return X.series["speed"].mean(axis=1)


def test_models_of_others_are_given_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * STEPS, 3))
    encoder = {"zoo": Level(), "art": module, "inn": PCA(2)}
    model, path = fitted(encoder=encoder), tmp_path / "fusion.fc"
    model.save(path)
    problem = r"not hold the encoder of 'zoo', your own Level.*encoders=\{'zoo"
    with pytest.raises(FileError, match=problem):
        FeatureFusion.load(path)
    pca = model.views_["inn"].encoder.model_  # type: ignore[attr-defined]
    given = {"zoo": Level(), "art": module, "inn": pca}
    same(model, FeatureFusion.load(path, given), owners())
    for wrong in ({**given, "inn": Level()}, {**given, "zoo": pca}, {**given, "art": PCA}):
        with pytest.raises(FileError, match=r"must have (encode|transform)\(.*it was learned with"):
            FeatureFusion.load(path, wrong)
    with pytest.raises(FileError, match="needs no encoder for 'me'"):
        FeatureFusion.load(path, {**given, "me": pca})


def test_frozen_encoders(tmp_path: Path) -> None:
    apart = fitted()
    encoder = {n: fc.Frozen(fc.Frozen(v.encoder)) for n, v in apart.views_.items()}
    encoder["art"] = fc.Frozen(Level())
    model = fitted(encoder=encoder, owner_dropout=0.0)
    model.save(tmp_path / "fusion.fc")
    again = FeatureFusion.load(tmp_path / "fusion.fc", {"art": Level()})
    assert np.array_equal(again.predict_proba(owners()), model.predict_proba(owners()))
    assert all(isinstance(v.encoder, fc.Frozen) for v in again.views_.values())
    assert clone(again).fit(owners(), target="event").score(owners()) == model.score(owners())


def test_an_encoder_of_a_class_of_ones_own_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Louder(fc.TabularEncoder):
        def encode(self, X: fc.Table) -> Any:
            return 2 * super().encode(X)

    columns = {"x": EVENT + 0.0, "y": EVENT, "id": np.arange(ROWS)}
    tables = {name: fc.Table.of(columns, row_id="id") for name in "ab"}
    parties = fc.Federation(tables, allow_collect=True)
    model = FeatureFusion(Louder(width=2, epochs=1), epochs=1, random_state=0)
    model.fit(parties, target="y").save(tmp_path / "fusion.fc")
    with pytest.raises(FileError, match="'a', your own Louder"):
        FeatureFusion.load(tmp_path / "fusion.fc")
    given = {n: v.encoder for n, v in model.views_.items()}
    again = FeatureFusion.load(tmp_path / "fusion.fc", given)
    assert np.array_equal(again.predict_proba(parties), model.predict_proba(parties))


# ---------------------------------------------------------------------- refused


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "fusion.fc"
    with pytest.raises(NotFittedError):
        FeatureFusion().save(path)
    model = fitted().set_params(temperature=object())  # what it was learned with counts
    model.save(path)
    path.unlink()
    with pytest.raises(FileError, match=r"cannot write .*'learned.traffic': .* value 'int4'"):
        fitted().set_params(traffic="int4").save(path)
    model.views_["zoo"].encoder.weights_[3] = np.nan  # type: ignore[attr-defined]
    with pytest.raises(FileError, match=r"cannot write .* of 'zoo': 'inputs' must be finite"):
        model.save(path)
    model.views_["zoo"].encoder.set_params(random_state=np.random.default_rng(0))  # type: ignore[attr-defined]
    with pytest.raises(FileError, match=r"cannot write .*JSON"):
        model.save(path)
    assert not list(tmp_path.iterdir())


def test_files_of_other_models(tmp_path: Path) -> None:
    fitted().save(tmp_path / "fusion.fc")
    with pytest.raises(FileError, match=r"predicts 'event'.*fedcircuits.FeatureFusion.load"):
        fc.load(tmp_path / "fusion.fc")
    with pytest.raises(FileError, match=r"predicts 'event'.*fedcircuits.FeatureFusion.load"):
        fc.FedTrees.load(tmp_path / "fusion.fc")
    fc.MixtureOfProducts(1).fit(fc.Table.of({"x": [1.0, 2.0, 4.0]})).save(tmp_path / "plain.fc")
    with pytest.raises(FileError, match=r"holds no FeatureFusion: load it with fedcircuits.load"):
        FeatureFusion.load(tmp_path / "plain.fc")
    with pytest.raises(FileError, match="no such file"):
        FeatureFusion.load(tmp_path / "nowhere.fc")


# ---------------------------------------------------------------------- damage


TWO = owners().select(["zoo", "art"])


@cache
def whole() -> tuple[bytes, Any, Any]:
    """A file, what is given back for it, what it answers."""
    model = FeatureFusion({"zoo": QUICK, "art": PCA(2)}, epochs=2, random_state=0)
    model.fit(TWO, target="event").save("whole.fc")
    given = {"art": model.views_["art"].encoder.model_}  # type: ignore[attr-defined]
    return Path("whole.fc").read_bytes(), given, model.predict_proba(TWO)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(data: bytes) -> bool:
    _, given, answers = whole()
    return damage.refused(data, lambda p: FeatureFusion.load(p, given).predict_proba(TWO), answers)


def test_every_field_is_checked() -> None:
    data = whole()[0]
    metadata = part(data, files.ABOUT)["metadata"]
    found = {word: refused(changed(data, other)) for word, other in spoiled(metadata)}
    assert len(found) > 500 and sum(found.values()) > 0.9 * len(found)
    passed = [word.split(":")[0] for word, no in found.items() if not no]
    for name in ("owners", "seed", "fusion", "learned"):
        assert f"('{name}',)" not in passed
    for name in ("head", "graph", "align", "temperature", "traffic", "width", "cell", "best"):
        assert not any(repr(name) in place for place in passed), name


def test_every_array_is_checked() -> None:
    data, tensors = whole()[0], dict[str, np.ndarray]()
    changed(data, tensors=tensors.update)
    harmless = 0
    for name, array in tensors.items():
        assert refused(changed(data, tensors=lambda t, n=name: t.pop(n))), name
        node = json.loads(name)[0]
        more = json.dumps([node, "more"])
        assert refused(changed(data, tensors=lambda t, n=more: t.update({n: np.ones(2)})))
        for word, other in broken(array):
            no = refused(changed(data, tensors=lambda t, n=name, o=other: t.update({n: o})))
            assert no or "history" in name, f"{name}: {word}"
            harmless += not no
    assert len(tensors) > 15 and harmless < 25


@pytest.mark.parametrize(
    "change",
    [
        lambda nodes: nodes[-1].__setitem__(3, "mean"),
        lambda nodes: nodes[-1].__setitem__(4, 3),
        lambda nodes: nodes[-1].__setitem__(1, "root"),
        lambda nodes: nodes[-1][2].reverse(),
        lambda nodes: nodes[0].__setitem__(4, 10**15),
        lambda nodes: nodes[0].__setitem__(3, ["zoo/speed"]),
        lambda nodes: nodes.append(["fuse", "above", ["fusion"], "gcn", 2]),
    ],
)
def test_another_graph(change: Callable[[Any], object]) -> None:
    data = whole()[0]
    graph = part(data, files.GRAPH)
    change(graph["circuit"]["nodes"])
    assert refused(changed(data, graph=graph))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "Hub", "dtype": "float16"}, "float16"),
        ({"kind": "Tree", "dtype": "float64", "graph": [["zoo"]]}, "pairs of parties"),
        ({"kind": "Tree", "dtype": "float64", "graph": 3}, "graph=3"),
        ({"kind": "Tree", "dtype": "float64", "graph": [["zoo", "art"]]}, "inn"),
        ({"kind": "Tree", "graph": "path"}, "no field 'dtype'"),
        ({"kind": "Secret", "threshold": "all", "fraction": 900, "magnitude": 9}, "bits"),
        ({"kind": "Secret", "threshold": "all", "fraction": 40, "magnitude": -1}, "magnitude"),
        ({"kind": "Shamir"}, "'kind' must be one of"),
    ],
)
def test_other_ways_to_add_up(settings: Any, expected: str) -> None:
    with pytest.raises(FileError) as caught:
        summation_of(settings, ("zoo", "art", "inn"))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "summation",
    [fc.Hub("float32"), fc.Tree("path"), fc.Secret("all"), fc.Chebyshev([(0, 1), (1, 2)], 1e-6),
     fc.Metropolis("cycle", rounds=9)],
)  # fmt: skip
def test_ways_to_add_up(summation: Any) -> None:
    stored = json.loads(json.dumps(summation_stored(summation)))
    assert summation_of(stored, ("zoo", "art", "inn")) == summation


def test_sums_of_a_fusion_that_needs_more() -> None:
    data, given, _ = whole()
    metadata = part(data, files.ABOUT)["metadata"]
    metadata["learned"]["summing"] = {"kind": "Hub", "dtype": "float64"}
    Path("sums.fc").write_bytes(changed(data, metadata))
    with pytest.raises(FileError, match=r"sums\.fc is damaged: .*without alignment"):
        FeatureFusion.load("sums.fc", given)

    class Mine(fc.Hub):
        """A way of a user."""

    model = fitted(align=None, graph="complete", summation=Mine())
    with pytest.raises(FileError, match="summation=Mine is a class of your own"):
        model.save("mine.fc")

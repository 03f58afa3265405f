"""FeatureFusion: owners at once and one by one, missing owners, labels, odd owners, pictures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError, TableError
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.learning.encoders.encoders import SequenceEncoder, TabularEncoder
from tests.estimators.fusions import (
    EVENT,
    QUICK,
    RNG,
    ROWS,
    SPEEDS,
    STEPS,
    TEST,
    TRAIN,
    model,
    one_by_one,
    owners,
    table,
)


@pytest.fixture(scope="module")
def fitted() -> FeatureFusion:
    return model().fit(TRAIN, target="event")


# ---------------------------------------------------------------------- answers


def test_it_predicts_across_parties(fitted: FeatureFusion) -> None:
    found = fitted.predict_proba(TEST)
    assert found.shape == (40, 2) and np.allclose(found.sum(axis=1), 1)
    assert fitted.classes() == (False, True)
    assert fitted.score(TEST) == (fitted.predict(TEST) == EVENT[120:]).mean() > 0.85
    assert fitted.score(TEST, EVENT[120:]) == fitted.score(TEST)
    alone = [(fitted.opinions(TEST)[i].argmax(axis=1) == EVENT[120:]).mean() for i in range(4)]
    assert fitted.score(TEST) >= max(alone) - 0.05


def test_owners_at_once_are_as_one_by_one(fitted: FeatureFusion) -> None:
    there = clone(fitted).fit(TRAIN, target="event", engine=one_by_one)
    for name, view in fitted.views_.items():
        here, alone = view.encoder, there.views_[name].encoder
        assert np.allclose(here.weights_, alone.weights_, atol=1e-5)  # type: ignore[attr-defined]
    assert np.allclose(there.predict_proba(TEST), fitted.predict_proba(TEST), atol=1e-3)
    assert [e.bytes for e in there.ledger_] == [e.bytes for e in fitted.ledger_]


def test_answers_are_in_the_order_of_rows(fitted: FeatureFusion) -> None:
    whole = fitted.predict_proba(TEST)
    order = np.random.default_rng(1).permutation(40)
    tables = {p.name: p.table for p in TEST}
    tables["owner 0"] = tables["owner 0"].rows(order[:30])  # the first one lacks some
    tables["owner 2"] = tables["owner 2"].rows(order[::-1])
    mixed = fc.Federation(tables)
    found = fitted.predict_proba(mixed)
    rest = [i for i in range(40) if i not in order[:30]]
    place = [*order[:30], *rest]
    same = np.isin(place, order[:30])
    assert np.allclose(found[same], whole[place][same], atol=1e-6)
    assert not np.allclose(found[~same], whole[place][~same], atol=1e-6)  # without owner 0
    assert fitted.opinions(mixed).shape == (4, 40, 2)
    assert np.isnan(fitted.opinions(mixed)[0, 30:]).all()


def test_missing_owners(fitted: FeatureFusion) -> None:
    few = TEST.select(["owner 1", "owner 3"])
    assert fitted.score(few) > 0.7
    assert len(fitted.predict(TEST.select(["owner 2"]))) == 40


def test_a_row_that_nobody_knows(fitted: FeatureFusion) -> None:
    tables = {}
    for party in TEST:
        series = party.table.series["speed"].copy()
        series[3] = np.nan
        tables[party.name] = fc.Table.from_series({"speed": series}, row_id=party.table.row_ids)
    found = fitted.predict_proba(fc.Federation(tables))
    shares = np.bincount(EVENT[:120].astype(int)) / 120
    assert np.allclose(found[3], shares) and not np.allclose(found[2], shares)


def test_numbers_and_many_classes() -> None:
    level = SPEEDS[..., 0].mean(axis=(0, 2))
    tables = {f"o{i}": fc.Table.from_series({"s": SPEEDS[i]}, {"y": level}, np.arange(ROWS))
              for i in range(3)}  # fmt: skip
    parties = fc.Federation(tables)
    number = model().fit(parties, target="y")
    assert number.score(parties) > 0.3 and number.predict(parties).shape == (ROWS,)
    with pytest.raises(QueryError, match="y"):
        number.predict_proba(parties)
    for head in ("vote", "best"):
        assert model(head=head).fit(parties, target="y").score(parties) > 0.0
    three = np.array(["low", "middle", "high"])[np.digitize(level, [0.3, 0.9])]
    tables = {n: fc.Table.from_series(t.series, {"y": three}, t.row_ids)
              for n, t in tables.items()}  # fmt: skip
    classes = model(head="mean").fit(fc.Federation(tables), target="y")
    assert classes.predict_proba(fc.Federation(tables)).shape == (ROWS, 3)


# ---------------------------------------------------------------------- labels


def test_labels_of_one_party() -> None:
    tables = {f"owner {i}": table(i, slice(0, 120), labels=i == 0) for i in range(3)}
    parties = fc.Federation(tables)
    with pytest.warns(UserWarning, match="owner 1, owner 2 learned without labels"):
        alone = model().fit(parties, target="event")
    assert "labels" not in set(alone.ledger_.summary().reset_index()["phase"])
    assert alone.score(owners(slice(120, None), 3)) > 0.7
    told = model(share_target=True).fit(parties, target="event")
    count = told.ledger_.summary()["messages"].groupby("phase").sum()
    assert count["labels"] == 3 + 2 and not told.notes_  # which rows are shared, and labels
    there = clone(told).fit(parties, target="event", engine=one_by_one)
    for name, view in told.views_.items():
        other = there.views_[name].encoder
        assert np.allclose(view.encoder.weights_, other.weights_, atol=1e-5)  # type: ignore[attr-defined]
    with pytest.raises(fc.FedcircuitsError, match="owner 1 has no values of 'event'"):
        model(head="vote").fit(parties, target="event")
    with pytest.raises(FederationError, match="owner 1 learned without labels"):
        alone.opinions(owners(slice(120, None), 3))


def test_labels_missing_for_some_rows() -> None:
    y = np.where(np.arange(ROWS) % 4 == 0, None, EVENT)
    tables = {f"o{i}": fc.Table.from_series({"s": SPEEDS[i]}, {"event": y}, np.arange(ROWS))
              for i in range(2)}  # fmt: skip
    found = model().fit(fc.Federation(tables), target="event")
    assert found.predict(fc.Federation(tables)).shape == (ROWS,)
    none = {n: fc.Table.from_series(t.series, {"event": [None] * ROWS}, t.row_ids,
            categories={"event": [False, True]}) for n, t in tables.items()}  # fmt: skip
    with pytest.raises(fc.FedcircuitsError, match="no row has both"):
        model(epochs=1).fit(fc.Federation(none), target="event")


# ---------------------------------------------------------------------- odd owners


def test_owners_that_differ() -> None:
    """Lengths, channels, encoders, widths; ordinary columns; constant data; a class never seen."""
    long = np.concatenate([SPEEDS[1], RNG.normal(size=(ROWS, 3, 1))], axis=1)
    wide = np.concatenate([SPEEDS[2], RNG.normal(size=(ROWS, STEPS, 1))], axis=2)
    ids = np.arange(ROWS)
    few = np.flatnonzero(~EVENT)  # one class alone
    label = {"event": EVENT}
    parties = fc.Federation(
        {
            "plain": table(0),
            "long": fc.Table.from_series({"speed": long}, label, ids),
            "wide": fc.Table.from_series({"speed": wide}, {**label, "lanes": ids % 3}, ids),
            "tabular": fc.Table.of({**label, "level": SPEEDS[3, :, 0, 0], "id": ids}, row_id="id"),
            "still": fc.Table.from_series({"speed": np.ones((ROWS, 2))}, label, ids),
            "half": fc.Table.from_series({"speed": SPEEDS[0][few]}, {"event": EVENT[few]}, few),
            "other": table(1),
        }
    )
    encoder = {
        "plain": QUICK, "long": SequenceEncoder(cell="gru", width=5, epochs=2),
        "wide": SequenceEncoder(width=2, epochs=2), "tabular": TabularEncoder(width=4, epochs=4),
        "still": QUICK, "half": QUICK, "other": PCA(2),
    }  # fmt: skip
    found = model(encoder=encoder).fit(parties, target="event")
    assert found.score(parties) > 0.8
    assert found.circuit_.units["long/encoder"] == 5
    assert found.circuit_.scopes["wide/encoder"] == {"wide/speed", "wide/lanes"}
    assert model(encoder=encoder, head="concat").fit(parties, target="event").score(parties) > 0.8
    with pytest.raises(fc.FedcircuitsError, match="align='linear' maps them to one width"):
        model(encoder=encoder, align=None).fit(parties, target="event")
    assert model(encoder=None, epochs=1).fit(parties, target="event").views_["tabular"]


def test_one_owner_without_ids() -> None:
    alone = fc.Federation({"me": fc.Table.from_series({"s": SPEEDS[0]}, {"event": EVENT})})
    found = model().fit(alone, target="event")
    assert found.score(alone) > 0.7 and found.graph_ is not None and found.graph_.shape == (1, 1)


def test_without_ids_rows_cannot_be_joined() -> None:
    parts = {n: fc.Table.from_series({"s": SPEEDS[0]}, {"event": EVENT}) for n in "ab"}
    with pytest.raises(fc.FedcircuitsError, match="joined by row ids"):
        model(epochs=1).fit(fc.Federation(parts), target="event")


def test_an_owner_that_is_lost() -> None:
    class Broken:
        def encode(self, X: fc.Table) -> Any:
            raise ValueError("4711")

    encoder = {"owner 0": QUICK, "owner 1": QUICK, "owner 2": Broken(), "owner 3": QUICK}
    with pytest.raises(fc.FedcircuitsError, match="owner 2 failed") as caught:
        model(encoder=encoder).fit(TRAIN, target="event")
    assert "4711" not in str(caught.value)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rest = model(encoder=encoder, on_lost="continue").fit(TRAIN, target="event")
    assert any("continuing without owner 2" in str(w.message) for w in told)
    assert set(rest.views_) == {"owner 0", "owner 1", "owner 3"}


# ---------------------------------------------------------------------- graphs and pictures


def test_what_was_learned(fitted: FeatureFusion) -> None:
    assert fitted.graph_ is not None and list(fitted.graph_.index) == list(TRAIN.names)
    assert ((fitted.graph_ >= 0) & (fitted.graph_ <= 1)).all(axis=None)
    assert fitted.alignment_ is not None and fitted.alignment_["owner 1"].shape == (3, 8)
    assert list(fitted.history_.columns) == ["training", "held back"]
    assert fitted.circuit_.root.operation == "gcn" and not fitted.circuit_.is_density  # type: ignore[union-attr]
    assert fitted.placement_["fusion"] == "coordinator"
    assert (
        "representations of single rows" in fitted.ledger_.revealed("coordinator")["what"].str.cat()
    )
    for picture in (
        fitted.plot_history(), fitted.plot_graph(), fitted.plot_alignment(),
        fitted.plot_conflict(TEST),
    ):  # fmt: skip
        assert isinstance(picture, Figure)


def test_conflict(fitted: FeatureFusion) -> None:
    said = fitted.opinions(TEST).argmax(axis=2).mean(axis=0)
    found = fitted.conflict(TEST)
    assert np.allclose(found[said == 0.5], 1.0) and np.allclose(found[np.isin(said, [0, 1])], 0.0)


def test_given_graphs() -> None:
    names = list(TRAIN.names)
    weights = pd.DataFrame(np.eye(4)[::-1], names[::-1], names[::-1])
    found = model(graph=weights, epochs=2).fit(TRAIN, target="event")
    assert found.graph_ is not None
    assert found.graph_.loc["owner 0", "owner 3"] == weights.loc["owner 0", "owner 3"]
    assert model(graph=None, epochs=2, align=None).fit(TRAIN, target="event").graph_ is None
    with pytest.raises(QueryError, match="no graph"):
        model(head="vote").fit(TRAIN, target="event").plot_graph()
    with pytest.raises(FederationError, match="no row and column"):
        model(graph=weights.iloc[:2, :2]).fit(TRAIN, target="event")


@pytest.mark.parametrize("traffic", ["float16", "int8"])
def test_fewer_bits_say_nearly_the_same(fitted: FeatureFusion, traffic: Any) -> None:
    small = clone(fitted).set_params(traffic=traffic).fit(TRAIN, target="event")
    assert small.score(TEST) > fitted.score(TEST) - 0.08
    assert small.ledger_.bytes < fitted.ledger_.bytes


def test_sums_are_enough_for_a_complete_graph() -> None:
    options: dict[str, Any] = {"align": None, "graph": "complete", "owner_dropout": 0.0}
    plain = model(**options).fit(TRAIN, target="event")
    for summation in (fc.Tree("path"), fc.Secret()):
        summed = model(**options, summation=summation).fit(TRAIN, target="event")
        assert np.abs(summed.predict_proba(TEST) - plain.predict_proba(TEST)).mean() < 0.1
        assert summed.score(TEST) > 0.7
    told = set(summed.ledger_.revealed("coordinator")["what"])
    assert "per row, the sum of the owners' representations" in told
    assert not any(w.startswith("representations") for w in told)


# ---------------------------------------------------------------------- bad input


def test_it_is_saved_only_if_all_allow(fitted: FeatureFusion, tmp_path: Path) -> None:
    with pytest.raises(FederationError, match=r"owner 0, .* did not allow .*allow_collect=True"):
        fitted.save(tmp_path / "fusion.fc")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": "hungarian"}, "align must be one of"),
        ({"head": "mlp"}, "head must be one of"),
        ({"graph": "road"}, "graph must be one of"),
        ({"graph": np.ones((2, 2))}, "graph: expected"),
        ({"traffic": "int4"}, "traffic must be"),
        ({"owner_dropout": 1.0}, "owner_dropout must be a share"),
        ({"temperature": 0}, "temperature must be"),
        ({"hidden": 0}, "hidden must be"),
        ({"noise": 0.1}, "give clip"),
        ({"summation": fc.Hub()}, "align=None"),
        ({"encoder": {"owner 0": QUICK}}, "no entry for 'owner 1'"),
        ({"encoder": 3}, "an encoder must"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.FedcircuitsError, match=message):
        model(**options).fit(TRAIN, target="event")


def test_bad_input(fitted: FeatureFusion) -> None:
    with pytest.raises(FederationError, match="name the column"):
        model().fit(TRAIN)
    with pytest.raises(QueryError, match="evnt"):
        model().fit(TRAIN, target="evnt")
    with pytest.raises(NotFittedError):
        model().predict(TRAIN)
    with pytest.raises(QueryError, match="predicts for a Federation"):
        fitted.predict(table(0))  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="'stranger' is not an owner"):
        fitted.predict(fc.Federation({"stranger": table(0)}))
    with pytest.raises(QueryError, match="to compare predictions with"):
        fitted.score(owners(slice(0, 9), labels=False))
    tabular = fc.Federation(
        {"owner 0": table(0, lanes=np.arange(ROWS) % 3).select(["event", "lanes"])}
    )
    with pytest.raises(TableError, match="owner 0: SequenceEncoder reads series"):
        model().fit(tabular, target="event")


def test_noise_has_its_epsilon_in_the_ledger() -> None:
    clinics = fc.split(fc.datasets.load("breast_cancer"), 3, by="columns", target="diagnosis")
    encoder = fc.TabularEncoder(epochs=2)
    noise = fc.DifferentialPrivacy(3.0, 1e-6).clip_noise()
    model = fc.FeatureFusion(encoder, share_target=True, epochs=2, clip=1.0, noise=noise)
    model.fit(clinics, target="diagnosis")
    spent = model.ledger_.privacy
    assert spent is not None and 2.9 < model.epsilon_ == spent.epsilon <= 3.0
    assert "given its encoder" in spent.neighbours and "labels" in spent.neighbours
    told = model.ledger_.revealed("coordinator")["what"]
    assert told.str.contains("noisy representations").any()
    plain = model.set_params(noise=0.0).fit(clinics, target="diagnosis")
    assert plain.ledger_.privacy is None and not hasattr(plain, "epsilon_")

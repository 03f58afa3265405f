"""FeatureFusion with odd owners, rows, graphs and settings: it works, or says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.estimators.feature_fusion import FeatureFusion
from fedcircuits.learning.encoders import apart

ROWS = 80
IDS = np.arange(ROWS)
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
QUICK = fc.TabularEncoder(width=4, epochs=3)


def owner(i: int, labels: bool = True, ids: Any = IDS, **more: Any) -> fc.Table:
    level = np.random.default_rng(i).normal(size=ROWS) + 2 * EVENT
    own = {"id": ids, f"level {i}": level, **more} | ({"event": EVENT} if labels else {})
    return fc.Table.of(own, row_id="id")


def owners(count: int = 3, **options: Any) -> fc.Federation:
    return fc.Federation({f"owner {i}": owner(i, **options) for i in range(count)})


def model(encoder: Any = QUICK, **options: Any) -> FeatureFusion:
    settings: dict[str, Any] = {"epochs": 8, "graph_draws": 2, "random_state": 0}
    return FeatureFusion(encoder, target="event", **{**settings, **options})


# ---------------------------------------------------------------------- labels at one party alone


LABELS = fc.Table.of({"id": IDS, "event": EVENT}, row_id="id")
APART = fc.Federation(
    {"office": LABELS, **{f"owner {i}": owner(i, labels=False) for i in range(3)}}
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"align": None, "traffic": "int8"},
        {"align": "sinkhorn", "head": "concat"},
        {"head": "vote"},
        {"graph": np.ones((4, 4))},
        {"graph": pd.DataFrame(1.0, APART.names[1:], APART.names[1:])},
        {"align": None, "graph": "complete", "summation": fc.Secret()},
    ],
)
def test_who_holds_the_target_alone_tells_labels(options: dict[str, Any]) -> None:
    found = model(share_target=True, **options).fit(APART)
    assert found.fusion_.owners == APART.names[1:]
    assert found.score(APART) > 0.6  # with the office's labels
    assert found.predict(APART).shape == found.predict(APART.select(APART.names[1:])).shape
    assert "office/encoder" not in found.circuit_.units
    if isinstance(options.get("graph"), np.ndarray | pd.DataFrame):
        assert found.graph_ is not None and (found.graph_.to_numpy() == 1 - np.eye(3)).all()


def test_nobody_has_anything_but_the_target() -> None:
    with pytest.raises(FederationError, match="no party holds a column besides 'event'"):
        model().fit(fc.Federation({"a": LABELS, "b": LABELS}))
    with pytest.raises(QueryError, match="there are no rows to predict"):
        model(share_target=True).fit(APART).predict(APART.select(["office"]))


# ---------------------------------------------------------------------- rows and ids


def test_owners_that_share_no_row() -> None:
    tables = {"a": owner(0), "b": owner(1, ids=[f"row {i}" for i in IDS])}
    with pytest.warns(UserWarning, match="no row is held by two owners"):
        model().fit(fc.Federation(tables))


def test_rows_that_cannot_be_learned_from_are_refused_before_training() -> None:
    with pytest.raises(FederationError, match="owner 1 has no rows"):
        model().fit(fc.Federation({"owner 0": owner(0), "owner 1": owner(1).rows(slice(0, 0))}))
    plain = fc.Table.of({"level": RNG.normal(size=ROWS), "event": EVENT})
    with pytest.raises(FederationError, match="joined by row ids, and b has none"):
        model().fit(fc.Federation({"a": owner(0), "b": plain}))
    series = fc.Table.from_series({"speed": np.ones((ROWS, 2))}, {"event": EVENT}, IDS)
    with pytest.raises(FederationError, match="'speed' is a series of a"):
        model(None).fit(fc.Federation({"a": series}), target="speed")


def test_questions_with_few_rows_or_none() -> None:
    found = model().fit(owners())
    tables = {p.name: p.table for p in owners()}
    tables["owner 1"] = tables["owner 1"].rows(slice(0, 0))
    tables["owner 2"] = tables["owner 2"].rows([7])
    assert found.predict_proba(fc.Federation(tables)).shape == (ROWS, 2)
    assert np.isnan(found.opinions(fc.Federation(tables))[1]).all()
    one = fc.Federation({n: t.rows(slice(7, 8)) for n, t in tables.items() if n != "owner 2"})
    assert found.predict(one).shape == (1,)
    none = {p.name: p.table.rows(slice(0, 0)) for p in owners()}
    with pytest.raises(QueryError, match="there are no rows to predict"):
        found.predict(fc.Federation(none))


# ---------------------------------------------------------------------- owners that are lost


def test_an_owner_whose_rows_are_empty_is_lost() -> None:
    empty = fc.Table.of(
        {"id": IDS, "level": np.full(ROWS, np.nan), "event": EVENT},
        row_id="id", kinds={"level": "real"},
    )  # fmt: skip
    parties = fc.Federation({"a": owner(0), "b": empty, "c": owner(2)})
    with pytest.raises(fc.FedcircuitsError, match="all values are missing"):
        model().fit(parties)
    with pytest.warns(UserWarning, match="continuing without b"):
        found = model(on_lost="continue").fit(parties)
    assert set(found.views_) == {"a", "c"}


class Moody:
    works = False

    def encode(self, X: fc.Table) -> Any:
        if not Moody.works:
            raise ValueError("not today")
        return X.values[:, :2]


def test_a_resumed_run_trains_nobody_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = {"owner 0": QUICK, "owner 1": QUICK, "owner 2": Moody()}
    found = model(encoder)
    Moody.works = False
    with pytest.raises(fc.FedcircuitsError, match=r"Moody.encode\(table\) failed"):
        found.fit(owners())
    Moody.works, trained = True, []
    monkeypatch.setattr(apart, "learn", lambda *given: trained.append(given))
    found.fit(owners(), resume=True)
    assert not trained
    monkeypatch.undo()
    again = model(encoder).fit(owners())
    assert np.array_equal(found.predict_proba(owners()), again.predict_proba(owners()))


# ---------------------------------------------------------------------- widths, graphs, settings


@pytest.mark.parametrize("width", [1, 3, 6, 8])
def test_a_transformer_of_any_width(width: int) -> None:
    wide = fc.TabularEncoder(width=width, epochs=2)
    found = model(wide, head="transformer", align=None, epochs=2).fit(owners())
    assert np.isfinite(found.predict_proba(owners())).all()


def test_graphs_that_are_given() -> None:
    weights = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 5.0]])
    found = model(graph=csr_matrix(weights), epochs=2).fit(owners()).graph_
    assert found is not None
    assert (found.to_numpy() == [[0, 2, 0], [2, 0, 1], [0, 1, 0]]).all()  # symmetric, no loops


NAMES = list(owners().names)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (-np.eye(3)[::-1], "from 0, got -1 in row 0, column 2"),
        (np.full((3, 3), np.nan), "must be finite and from 0, got nan in row 0, column 0"),
        (np.ones((2, 2)), r"expected weights \(3, 3\).* got the shape \(2, 2\)"),
        (np.full((3, 3), "a"), "no array of numbers"),
        ({"owner 0": 1}, "got dict that is no array of numbers"),
        (pd.DataFrame(np.ones((4, 4)), [*NAMES, "owner 0"], [*NAMES, "owner 0"]), "has twice"),
        (pd.DataFrame(np.ones((3, 3))), "no row and column for 'owner 0'"),
    ],
)
def test_bad_graphs(graph: Any, message: str) -> None:
    with pytest.raises(fc.FedcircuitsError, match=message):
        model(graph=graph).fit(owners())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "a"}, "noise must be a share of clip, from 0, got 'a'"),
        ({"noise": np.nan, "clip": 1.0}, "noise must be a share"),
        ({"clip": np.inf}, "clip must be None or a number above 0, got inf"),
        ({"validation": True}, "validation must be a share"),
        ({"share_target": "no"}, "share_target must be one of True, False, got 'no'"),
        ({"random_state": 1.5}, "random_state must be None or a whole number from 0, got 1.5"),
        ({"random_state": RNG}, "random_state must be None or a whole number"),
        ({"align": None, "graph": np.ones((3, 3)), "summation": fc.Hub()}, "graph='complete'"),
        ({"encoder": "lstm"}, "owner 0: an encoder must be an object"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.FedcircuitsError, match=message):
        model(**options).fit(owners())


def test_settings_of_numpy() -> None:
    settings = {"temperature": np.float32(0.1), "validation": np.float32(0.2)}
    found = model(**settings, random_state=np.int64(3), epochs=np.int32(2)).fit(owners())
    assert found.predict(owners()).shape == (ROWS,)


def test_a_vote_needs_predictions_of_the_target() -> None:
    other = owner(0, labels=False, ripe=EVENT)
    learned = fc.TabularEncoder(width=4, epochs=1).fit(other, "ripe")
    encoder = {"owner 0": fc.Frozen(learned), "owner 1": QUICK}
    parties = fc.Federation({"owner 0": owner(0, ripe=EVENT), "owner 1": owner(1)})
    with pytest.raises(fc.FedcircuitsError, match="the encoder of owner 0 predicts 'ripe'"):
        model(encoder, head="vote").fit(parties)


# ---------------------------------------------------------------------- pictures


def test_pictures_of_owners_with_long_names() -> None:
    long = {f"the detector at the {i}th bridge over the river": p for i, p in enumerate(owners())}
    found = model(epochs=1).fit(fc.Federation({n: p.table for n, p in long.items()}))
    (axes, _) = found.plot_graph().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert max(map(len, names)) <= 17 and names[0].startswith("the dete") and "…" in names[0]
    assert all(len(a.get_title()) <= 17 for a in found.plot_alignment().axes)


def test_a_vote_has_no_history_to_draw() -> None:
    with pytest.raises(QueryError, match="no history to draw"):
        model(head="vote").fit(owners()).plot_history()

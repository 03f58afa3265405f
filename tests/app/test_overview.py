"""The page of a model in the dashboard, without a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fedcircuits as fc
from fedcircuits.app import pages
from fedcircuits.app.columns import ColumnOptions
from fedcircuits.app.dashboard.overview import describe, picture
from fedcircuits.app.rows import RowReader
from fedcircuits.estimators import record
from tests.federation.cases import QUICK, mixed_table


def test_a_learner_that_may_be_federated_but_was_not(tmp_path: Path) -> None:
    rows = {"x": np.arange(40.0), "smoker": np.arange(40) % 3 == 0}
    model = fc.MixtureOfProducts(2, random_state=0).fit(rows)
    model.save(tmp_path / "model.fc")
    about = describe(tmp_path / "model.fc", model)
    assert about["estimator"] == "MixtureOfProducts"
    assert about["crossed"] is None and about["revealed"] is None


def test_a_model_saved_from_python_shows_its_parties(tmp_path: Path) -> None:
    """Also what was sent and revealed, in the report too."""
    path = tmp_path / "model.fc"
    parties = fc.split(mixed_table(), ["north", "south"], by="columns", allow_collect=True)
    model = fc.FedPC(QUICK, clusters=2, random_state=0).fit(parties)
    model.save(path)
    loaded = fc.load(path)
    assert isinstance(loaded, fc.CircuitModel)
    about = describe(path, loaded)
    assert about["estimator"] == "FedPC"
    assert [p["name"] for p in about["parties"]] == ["north", "south"]  # type: ignore[attr-defined]
    assert about["crossed"][-1] == ["all", f"{len(model.ledger_):,}", f"{model.ledger_.bytes:,}"]  # type: ignore[index]
    assert ["coordinator", "north, south"] in [row[1:3] for row in about["revealed"]]  # type: ignore[attr-defined]
    saved = record.read(path)
    assert saved is not None and saved.split == "vertical"
    assert {"north", "south"} < set(saved.placement.values())
    given = pages.Given(RowReader(path, ColumnOptions()), (), (), None, 0)
    page = pages.page_of(loaded, None, given)
    assert "FedPC was trained on a vertical split" in page and "circuits that a party" in page


def test_a_circuit_of_all_parties_is_drawn_and_not_its_only_node(tmp_path: Path) -> None:
    path = tmp_path / "model.fc"
    parties = fc.split(mixed_table(90), 3, by="rows", allow_collect=True)
    model = fc.FedPC(random_state=0).fit(parties)
    model.save(path)
    loaded = fc.load(path)
    assert len(model.circuit_) == 1 and isinstance(loaded, fc.CircuitModel)
    about = describe(path, loaded)
    assert about["parties"] == [] and about["nodes"] > 10  # type: ignore[operator]
    assert b"parameters" in picture(path, loaded)

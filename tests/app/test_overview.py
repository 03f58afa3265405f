"""The page of a model in the dashboard, without a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fedcircuits as fc
from fedcircuits.app.dashboard.overview import describe


def test_a_learner_that_may_be_federated_but_was_not(tmp_path: Path) -> None:
    rows = {"x": np.arange(40.0), "smoker": np.arange(40) % 3 == 0}
    model = fc.MixtureOfProducts(2, random_state=0).fit(rows)
    model.save(tmp_path / "model.fc")
    about = describe(tmp_path / "model.fc", model)
    assert about["estimator"] == "MixtureOfProducts"
    assert about["crossed"] is None and about["revealed"] is None

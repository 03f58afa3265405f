"""Three owners of speeds, and fusions of them that learn next to nothing, with all messages."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedcircuits as fc
from fedcircuits.estimators.feature_fusion import FeatureFusion
from tests.methods.watched import Watched

ROWS = 48
RNG = np.random.default_rng(0)
EVENT = RNG.random(ROWS) < 0.5
SPEEDS = RNG.normal(size=(3, ROWS, 4)) + EVENT[:, None]
QUICK = fc.SequenceEncoder(width=3, epochs=2)


def owners(labels: tuple[int, ...] = (0, 1, 2)) -> fc.Federation:
    """Three owners in different orders, one of whom lacks some rows."""
    tables = {}
    for i, speed in enumerate(SPEEDS):
        order = np.random.default_rng(i).permutation(ROWS)[: ROWS - 6 * (i == 1)]
        columns = {"event": EVENT[order]} if i in labels else None
        ids = np.array([f"row {r}" for r in order])
        tables[f"owner {i}"] = fc.Table.from_series({"speed": speed[order]}, columns, ids)
    return fc.Federation(tables)


def fitted(
    federation: fc.Federation | None = None, **options: Any
) -> tuple[FeatureFusion, Watched]:
    settings: dict[str, Any] = {"epochs": 2, "graph_draws": 2, "random_state": 0}
    engine = Watched()
    model = FeatureFusion(QUICK, **{"target": "event", **settings, **options})
    return model.fit(federation or owners(), engine=engine), engine

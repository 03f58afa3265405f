"""Training in memory, with every message that was sent."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedcircuits as fc
from tests.federation.cases import QUICK
from tests.methods.watched import Watched


def trained(parties: fc.Federation, **settings: Any) -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    usual: dict[str, Any] = {"learner": QUICK, "clusters": 2, "ensemble": 1, "random_state": 0}
    model = fc.FedPC(**usual | settings)
    return model.fit(parties, engine=engine), engine


def labels_of(
    engine: Watched, parties: fc.Federation, circuit: int = 0
) -> dict[str, dict[str, int]]:
    """By party and row id: the cluster, as the party has kept it for one of its circuits."""
    found = {}
    for party in parties:
        kept = [
            v for (who, step), v in engine.kept.items()
            if who == party.name and step.startswith("clustering its rows")
        ]  # fmt: skip
        if circuit >= len(kept):
            continue
        own = kept[circuit]
        assert isinstance(own, np.ndarray) and party.table.row_ids is not None
        ids = [str(i) for i in party.table.row_ids.tolist()]
        found[party.name] = dict(zip(ids, own.tolist(), strict=True))
    return found

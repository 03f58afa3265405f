"""Estimators on sites of their own: tables, leaves and keys stay there, answers are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError
from fedcircuits.federation.recipes import Held
from tests.engines.sites.local import LocalSites

RNG = np.random.default_rng(0)
AGE = RNG.normal(50, 9, 120)
TABLE = fc.Table.of(
    {
        "age": AGE,
        "calls": RNG.poisson(3, 120),
        "smoker": RNG.random(120) < 0.3,
        "risk": np.where(AGE + RNG.normal(0, 5, 120) > 52, "high", "low"),
    }
)
OPEN = Policy(share_target=True, share_clusters=True)


def connected(local: fc.Federation, folder: Path, policy: Policy = OPEN) -> fc.Federation:
    """The same parties at sites of their own."""
    return LocalSites({p.name: p for p in local}, folder, policy=policy).federation()


@pytest.mark.parametrize("by", ["rows", "columns", "both"])
def test_a_federated_circuit_learned_and_asked_at_sites(tmp_path: Path, by: Any) -> None:
    local = fc.split(TABLE, 3, by=by, target="risk")
    sites = connected(local, tmp_path)
    assert (sites.kind, len(sites)) == (local.kind, 3)
    here = fc.FedPC(target="risk", random_state=0).fit(local)
    there = fc.FedPC(target="risk", random_state=0).fit(sites)
    assert all(isinstance(view, Held) for view in there.views_.values())
    assert np.array_equal(here.score_samples(TABLE), there.score_samples(TABLE))
    question = ("risk = high", "age > 55")
    assert here.probability(*question) == there.probability(*question)
    assert here.ledger_.bytes == there.ledger_.bytes
    with pytest.raises(FederationError, match="policy: collect = false"):
        there.collect()
    with pytest.raises(FederationError, match="cannot be read here"):
        assert sites["party 1"].table.values.size


def test_answers_of_the_root_at_sites(tmp_path: Path) -> None:
    """Parties deal shares with keys that they draw themselves."""
    local = fc.split(TABLE, 3, by="columns", target="risk")
    asked: dict[str, Any] = {"target": "risk", "dependence": "combinations", "random_state": 0}
    here = fc.FedPC(**asked).fit(local)
    there = fc.FedPC(**asked, answers="root").fit(connected(local, tmp_path))
    rows = TABLE.rows([0, 1, 2])
    assert there.score_samples(rows) == pytest.approx(here.score_samples(rows), abs=1e-6)
    assert "query/values" not in {entry.tag for entry in there.queries_.entries}

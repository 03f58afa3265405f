"""Keys of secret sums: one a party, never one for all."""

from __future__ import annotations

from typing import Any

import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.privacy.secure_sum import Secret
from tests.federation.cases import QUICK
from tests.methods.refinement.cases import once, parts


@pytest.mark.parametrize(
    "model",
    [
        fc.FedPC(QUICK, refine=1, summation=Secret(key=bytes(32))),
        fc.FedTrees("kind", summation=Secret(key=bytes(32))),
        fc.VerticalGaussianMixture(2, summation=Secret(key=bytes(32))),
    ],
)
def test_a_key_is_for_one_party(model: Any) -> None:
    """Given to an estimator it would go to all of them."""
    with pytest.raises(FederationError, match="leave the key out"):
        model.fit(parts())


def test_every_party_has_a_key_of_its_own() -> None:
    _, engine = once(refine=2, summation=Secret())
    programs = engine.programs[0]
    keys = {me: p.arguments["plan"].summation.key for me, p in programs.items()}
    assert set(keys) == {COORDINATOR, "party 0", "party 1", "party 2"}
    assert len(set(keys.values())) == 4 and None not in keys.values()

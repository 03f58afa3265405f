"""Models that would have no guarantee refuse differential privacy, and say why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError

REFUSING: dict[str, Any] = {
    "FedPC": (lambda **o: fc.FedPC(**o), "leaves are learned from rows without noise"),
    "FedPC, EM": (lambda **o: fc.FedPC(refine=2, **o), "leaves are learned from rows"),
    "PrivateForest": (lambda **o: fc.PrivateForest(**o), "EM on shares adds no noise"),
    "VerticalGaussianMixture": (lambda **o: fc.VerticalGaussianMixture(2, **o), "single rows"),
    "VerticalKMeans": (lambda **o: fc.VerticalKMeans(2, **o), "single rows have no noise"),
}


@pytest.mark.parametrize("name", REFUSING)
def test_privacy_is_refused_before_anything_crosses(name: str) -> None:
    make, why = REFUSING[name]
    rng = np.random.default_rng(0)
    table = fc.Table.of({f"x{i}": rng.normal(size=60) for i in range(4)})
    parties = fc.split(table, 2, by="columns")
    with pytest.raises(FederationError, match=f"privacy must be None, as .*{why}"):
        make(privacy=fc.DifferentialPrivacy(1.0)).fit(parties)

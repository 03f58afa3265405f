"""Every federated estimator at sites: named, saved, loaded and asked again by another caller."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from tests.engines.sites.local import LocalSites

RNG = np.random.default_rng(0)
BOTH = RNG.integers(2, size=(90, 1))
NUMBERS = fc.Table.of(RNG.normal(size=(90, 4)) + 5 * BOTH)
BITS = fc.Table.of((BOTH ^ (RNG.random((90, 4)) < 0.1)).astype(bool))
ROWS, COLUMNS = fc.split(NUMBERS, 3), fc.split(NUMBERS, 3, by="columns")
OPEN = Policy(share_target=True, share_representations=True)
ENCODER = fc.TabularEncoder(width=2, epochs=2)

MODELS: dict[str, tuple[Callable[[], Any], fc.Federation, Callable[[Any, Any], np.ndarray]]] = {
    "FedTrees": (
        lambda: fc.FedTrees(target="x0", trees=2, random_state=0),
        ROWS,
        lambda m, sites: m.predict(NUMBERS),
    ),
    "VerticalGaussianMixture": (
        lambda: fc.VerticalGaussianMixture(2, random_state=0),
        COLUMNS,
        lambda m, sites: m.score_samples(NUMBERS),
    ),
    "VerticalKMeans": (
        lambda: fc.VerticalKMeans(2, random_state=0),
        COLUMNS,
        lambda m, sites: m.predict(NUMBERS),
    ),
    "ChowLiuTree": (
        lambda: fc.ChowLiuTree(random_state=0),
        fc.split(BITS, 3),
        lambda m, sites: m.score_samples(BITS),
    ),
    "FeatureFusion": (
        lambda: fc.FeatureFusion(ENCODER, target="x3", share_target=True, epochs=2, random_state=0),
        COLUMNS,
        lambda m, sites: m.predict(sites),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_saved_loaded_and_asked_again(tmp_path: Path, name: str) -> None:
    make, local, answers = MODELS[name]
    sites = LocalSites({p.name: p for p in local}, tmp_path / "sites", policy=OPEN)
    federation = sites.federation()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(federation, name="kept")
    assert model.name_ == "kept" and set(federation.models()) >= {"kept"}
    expected = answers(model, federation)
    model.save(tmp_path / "model.fc")
    later = sites.new_caller()
    again = fc.load(tmp_path / "model.fc", later)
    np.testing.assert_array_equal(answers(again, later), expected)

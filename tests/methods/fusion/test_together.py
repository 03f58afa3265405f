"""Owners that train together: the flows, and all owners in one computation, learn the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from benchmarks.fusion import together
from benchmarks.fusion.sets import TARGET
from fedcircuits.learning.encoders.encoders import Frozen, SequenceEncoder
from fedcircuits.methods.fusion.fitting import Gathered

ROWS = 80
RNG = np.random.default_rng(0)
LABEL = RNG.random(ROWS) < 0.4
SPEEDS = RNG.normal(size=(3, ROWS, 4)) + LABEL[:, None]
ENCODER = SequenceEncoder(width=4, epochs=3, batch=30)


def owners(rows: slice) -> fc.Federation:
    ids = np.arange(ROWS)[rows]
    return fc.Federation(
        {
            f"owner {i}": fc.Table.from_series({"speed": own[rows]}, {TARGET: LABEL[rows]}, ids)
            for i, own in enumerate(SPEEDS)
        }
    )


TRAIN, TEST = owners(slice(0, 60)), owners(slice(60, None))


def model(encoder: Any = ENCODER, **options: Any) -> fc.FeatureFusion:
    return fc.FeatureFusion(encoder, **{"epochs": 3, "batch": 30, "random_state": 0, **options})


@pytest.mark.parametrize("training", ["tied", "averaged"])
def test_tied(training: Any) -> None:
    flow = model(training=training, align=None).fit(TRAIN, target=TARGET)
    once = together.tied(model(training=training, align=None), TRAIN, ENCODER)
    for name, own in once.items():
        there: Any = flow.views_[name].encoder
        assert np.allclose(own.encoder.weights_, there.weights_, atol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize("training", ["joint", "scratch"])
def test_jointly(training: Any) -> None:
    flow = model(training=training).fit(TRAIN, target=TARGET)
    apart = model(head="vote").fit(TRAIN, target=TARGET)
    ready = {name: Frozen(view.encoder) for name, view in apart.views_.items()}
    begun = ready if training == "joint" else None
    once, fusion = together.jointly(model(training=training), TRAIN, ENCODER, begun)
    h = np.stack([once[p.name].encode(p.table) for p in TEST]).astype(np.float32)
    found = fusion.predict(Gathered(h, np.ones((h.shape[1], len(h)), bool)))
    assert np.allclose(found, flow.predict_proba(TEST), atol=1e-5)

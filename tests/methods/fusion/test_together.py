"""Owners that train together: the flows, and all owners in one computation, learn the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from benchmarks.fusion import joint_training, together
from benchmarks.fusion.sets import TARGET
from fedcircuits.federation.flow import Program
from fedcircuits.learning.encoders.choosing import EncoderJob
from fedcircuits.learning.encoders.encoders import SequenceEncoder, TabularEncoder
from fedcircuits.learning.encoders.foreign import Frozen
from fedcircuits.methods.fusion.fitting import OwnerRows
from fedcircuits.testing import check_protocol

ROWS = 80
RNG = np.random.default_rng(0)
LABEL = RNG.random(ROWS) < 0.4
SPEEDS = RNG.normal(size=(3, ROWS, 4)) + 1.5 * LABEL[:, None]
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


def jobs(encoder: Any = ENCODER) -> dict[str, EncoderJob]:
    every = together.Owners(model(), TRAIN, encoder)
    return dict(zip(every.names, every.jobs, strict=True))


def predicted(encoders: Any, fusion: Any) -> Any:
    h = np.stack([encoders[p.name].encode(p.table) for p in TEST]).astype(np.float32)
    return fusion.predict(OwnerRows(h, np.ones((h.shape[1], len(h)), bool)))


@pytest.mark.parametrize("every", [False, True], ids=["tied", "averaged"])
def test_tied(every: bool) -> None:
    flow, ledger = joint_training.tied(jobs(), every)
    once = together.tied(model(), TRAIN, ENCODER, every)
    for name, own in once.items():
        assert np.allclose(own.encoder.weights_, flow[name].weights_, atol=1e-6)  # type: ignore[attr-defined]
    first, second = flow["owner 0"].weights_, flow["owner 1"].weights_
    inputs = 4 * ENCODER.width * 2  # the inputs' weights of four gates
    assert np.array_equal(first[inputs:], second[inputs:])
    assert np.array_equal(first[:inputs], second[:inputs]) == every
    assert len(ledger) == 2 + 4 * ENCODER.epochs  # the start, then weights and means
    frozen = {name: Frozen(own) for name, own in flow.items()}
    fused = model(frozen, align=None, head="vote" if every else "gcn")
    assert fused.fit(TRAIN, target=TARGET).score(TEST) > 0.6


@pytest.mark.parametrize("training", ["joint", "scratch"])
def test_jointly(training: str) -> None:
    apart = model(head="vote").fit(TRAIN, target=TARGET)
    ready = {name: view.encoder for name, view in apart.views_.items()}
    begun: Any = ready if training == "joint" else None
    plan = together.Owners(model(), TRAIN, ENCODER).plan
    encoders, fusion, ledger = joint_training.joint(jobs(), plan, TRAIN.schema[TARGET], begun)
    frozen = begun and {name: Frozen(own) for name, own in begun.items()}
    once, other = together.jointly(model(), TRAIN, ENCODER, frozen)
    found = predicted(encoders, fusion)
    assert np.allclose(predicted(once, other), found, atol=1e-5)
    assert {e.tag.split("/")[0] for e in ledger} == {"joint"}


def test_joint_training_of_networks_that_differ() -> None:
    mixed = jobs() | {"owner 1": jobs(TabularEncoder(width=2, epochs=1))["owner 1"]}
    plan = together.Owners(model(), TRAIN, ENCODER).plan
    encoders, fusion, _ = joint_training.joint(mixed, plan, TRAIN.schema[TARGET], None)
    assert encoders["owner 1"].encode(TEST["owner 1"].table).shape == (20, 2)
    assert fusion.goal == "classes"
    with pytest.raises(AssertionError, match="must have one shape"):
        joint_training.tied(mixed, every=False)


def test_laws() -> None:
    plan, target = together.Owners(model(), TRAIN, ENCODER).plan, TRAIN.schema[TARGET]
    members = TRAIN.names
    tied = {
        n: Program(joint_training.tie, {"me": n, "members": members, "job": job, "every": False})
        for n, job in jobs().items()
    }
    check_protocol(tied, without=["processes"])
    joint: dict[str, Program[Any]] = {
        n: Program(joint_training.join, {"job": job, "learned": None}) for n, job in jobs().items()
    }
    led = {"members": members, "plan": plan, "target": target, "learned": False}
    joint["coordinator"] = Program(joint_training.lead, led)
    check_protocol(joint, without=["processes"])

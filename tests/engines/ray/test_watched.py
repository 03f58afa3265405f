"""The page of a training on Ray, one of whose workers is killed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.app import browser, watched

if find_spec("ray") is None:
    reason = "the engine 'ray' needs fedcircuits[ray]: make test-engines"
    pytest.skip(reason, allow_module_level=True)

from fedcircuits.engines.ray import RayEngine, cluster
from fedcircuits.federation.flow import Program
from fedcircuits.testing import trials


@pytest.mark.skipif(bool(browser.lacking()), reason=browser.lacking() or "-")
def test_a_training_is_watched_to_its_end_with_a_worker_killed(tmp_path: Path) -> None:
    engine = RayEngine(timeout=120.0)
    engine({name: Program(trials.keep, {"table": np.ones(1)}) for name in watched.NAMES})
    numbers = {
        name: int(cluster.library().get(worker.ready.remote()))
        for (_, name, _), worker in cluster.WORKERS.items()
    }
    with browser.chromium() as driver:
        watched.with_a_party_killed(
            driver, tmp_path / "run.jsonl", engine, lambda party: numbers[party]
        )

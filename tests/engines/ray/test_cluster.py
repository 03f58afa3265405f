"""An existing cluster of several machines: where parties run.

Every machine is a raylet of its own, with its own object store and resources, as on a real cluster;
all of them are on this computer.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.ray import Needs, RayEngine, cluster
from fedcircuits.federation.flow import Program
from fedcircuits.testing import trials
from tests.engines.live import watched_live
from tests.federation.cases import mixed_table

if find_spec("ray") is None:
    reason = "the engine 'ray' needs fedcircuits[ray]: make test-engines"
    pytest.skip(reason, allow_module_level=True)

SITES = ("north", "south")


class Machines:
    """A head, and one machine per party with a resource of its name."""

    def __init__(self) -> None:
        cluster.library(local=True)
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.nodes = {name: self.add(name) for name in SITES}

    def add(self, name: str) -> Any:
        return self.cluster.add_node(num_cpus=1, resources={name: 1})

    def raylet(self, name: str) -> int:
        return int(self.nodes[name].all_processes["raylet"][0].process.pid)

    def engine(self, timeout: float = 120.0) -> RayEngine:
        needs = {name: Needs(custom={name: 1}) for name in SITES}
        return RayEngine(self.cluster.address, needs=needs, timeout=timeout)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    cluster.stop()  # what other tests of this process have started
    made = Machines()
    try:
        yield made
    finally:
        cluster.stop()
        made.cluster.shutdown()


def process_of(party: str) -> int:
    [worker] = [w for (_, name, _), w in cluster.WORKERS.items() if name == party]
    return int(cluster.library().get(worker.ready.remote()))


def parent(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def test_parties_run_on_their_machines_as_in_memory(machines: Machines, tmp_path: Path) -> None:
    """With sums and answers between machines; the dashboard shows it while it goes on."""
    engine = machines.engine()
    parties = fc.split(mixed_table(300), list(SITES), by="columns")
    settings: dict[str, Any] = {"clusters": 2, "ensemble": 1, "random_state": 0}
    there = fc.FedPC(**settings, summation=fc.Secret())
    watched_live(lambda callback: there.fit(parties, engine=engine, callback=callback), tmp_path)
    for name in SITES:
        assert parent(process_of(name)) == machines.raylet(name)
    here = fc.FedPC(**settings, summation=fc.Secret()).fit(parties)
    rows = mixed_table()
    assert np.array_equal(there.score_samples(rows), here.score_samples(rows))
    assert sorted(map(str, there.ledger_)) == sorted(map(str, here.ledger_))
    large = np.arange(4_000_000.0)  # 32 MB, through both machines' object stores
    swaps = {
        me: Program(trials.swap, {"other": other, "payload": large, "rounds": 1})
        for me, other in (SITES, SITES[::-1])
    }
    assert all(np.array_equal(r[0], large) for r in engine(swaps).results.values())

"""An existing cluster of several machines: where parties run, and a machine that dies.

Every machine is a raylet of its own, with its own object store and resources, as on a real cluster;
all of them are on this computer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.ray import Needs, RayEngine, cluster
from fedcircuits.errors import PartyLostError
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


def test_a_machine_that_dies(machines: Machines) -> None:
    """Its party is named; when another machine has its resource, training goes on to the result
    of an undisturbed run."""
    engine = machines.engine()
    parties = fc.split(mixed_table(2_000), list(SITES), seed=1)
    learner = fc.EinsumNetwork(units=16, epochs=60)
    model = fc.FedPC(learner, clusters=3, random_state=0)
    engine({p: Program(trials.keep, {"table": np.ones(1)}) for p in SITES})
    number = process_of("south")
    begin = cpu(number)

    def die() -> None:
        while cpu(number) < begin + 0.3:
            time.sleep(0.02)
        machines.cluster.remove_node(machines.nodes["south"], allow_graceful=False)

    killer = Thread(target=die)
    killer.start()
    with pytest.raises(PartyLostError, match="south died while ") as lost:
        model.fit(parties, engine=engine)
    killer.join()
    assert lost.value.party == "south"
    machines.nodes["south"] = machines.add("south")
    model.fit(parties, engine=engine, resume=True)
    assert parent(process_of("south")) == machines.raylet("south")
    undisturbed = fc.FedPC(learner, clusters=3, random_state=0).fit(parties)
    rows = mixed_table()
    assert np.array_equal(model.score_samples(rows), undisturbed.score_samples(rows))


def cpu(number: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

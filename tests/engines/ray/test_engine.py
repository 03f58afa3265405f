"""Parties as actors of Ray: the laws of engines, workers that die, where they are started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.ray import Needs, RayEngine, cluster
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.estimators.engine_choice import engine_of
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_engine, trials
from tests.engines import flows
from tests.federation.cases import mixed_table

if find_spec("ray") is None:
    reason = "the engine 'ray' needs fedcircuits[ray]: make test-engines"
    pytest.skip(reason, allow_module_level=True)

ENGINE = RayEngine(timeout=60.0)


def number_of(worker: str) -> int:
    """The process of a worker that was started before."""
    [found] = [w for (_, name, _), w in cluster.WORKERS.items() if name == worker]
    return int(cluster.library().get(found.ready.remote()))


def later(what: Callable[[], object]) -> Thread:
    thread = Thread(target=what)
    thread.start()
    return thread


def test_keeps_every_law() -> None:
    check_engine(ENGINE)


def test_workers_live_from_run_to_run() -> None:
    program = {"a": Program(trials.keep, {"table": np.arange(9_000.0)})}
    ENGINE(program)
    before = number_of("a")
    [worker] = [w for (_, name, _), w in cluster.WORKERS.items() if name == "a"]
    for _ in range(2):
        assert ENGINE(program).results["a"].tolist() == list(range(9_000))
    assert number_of("a") == before != os.getpid()
    head, large = _recipe_of(program["a"])
    assert (
        cluster.library().get(worker.begin.remote("again", "a", head, [worker])) == []
    )  # nothing is lacking
    cluster.library().get(worker.end.remote("again"))
    assert len(head) < 1_000 < len(large["table"])


def _recipe_of(program: Program[Any]) -> tuple[bytes, dict[str, bytes]]:
    from fedcircuits.engines.outcome import Outcome
    from fedcircuits.engines.ray import _ClusterRun

    return _ClusterRun(None, Outcome(), {"a": None})._recipe("a", program, 1, 1.0)


def test_a_worker_that_is_killed() -> None:
    """It is named with its step, the others hear it, its work is kept, the next run works."""
    programs: dict[str, Program[Any]] = {
        "a": Program(trials.read_late, {"sender": "b"}),
        "b": Program(trials.blame, {"sender": "a", "tag": "x/y"}),
    }
    for me in programs:
        ENGINE({me: Program(trials.keep, {"table": np.ones(1)})})
    number = number_of("a")

    def kill() -> None:
        time.sleep(3.0)
        os.kill(number, signal.SIGKILL)

    killer = later(kill)
    outcome = ENGINE(programs)
    killer.join()
    death = "a died while waiting for 'early/word' from b (ActorDiedError)"
    assert str(outcome.lost["a"]) == death and outcome.lost["a"].party == "a"
    assert outcome.results == {"b": f"a|b waits for 'x/y' from a: a is lost ({death})"}
    assert set(outcome.kept) == {("a", "taking its time")}
    again = ENGINE({**programs, "b": Program(trials.finish_early, {"to": "a"})})
    assert again.results["a"][0] == "done" and number_of("a") != number


def test_training_goes_on_after_a_worker_was_killed() -> None:
    parties, engine = fc.split(mixed_table(20_000), 2, seed=1), RayEngine(workers=2)
    learner = fc.EinsumNetwork(units=32, epochs=60)  # takes seconds
    model = fc.FedPC(learner, clusters=3, random_state=0)
    engine({p: Program(trials.keep, {"table": np.ones(1)}) for p in parties.names})
    number = number_of("worker 2")
    begin = _cpu(number)

    def kill() -> None:
        while _cpu(number) < begin + 0.3:
            time.sleep(0.02)
        os.kill(number, signal.SIGKILL)

    killer = later(kill)
    with pytest.raises(PartyLostError, match="party 2 died while ") as lost:
        model.fit(parties, engine=engine)
    killer.join()
    assert lost.value.party == "party 2"
    model.fit(parties, engine=engine, resume=True)
    undisturbed = fc.FedPC(learner, clusters=3, random_state=0).fit(parties)
    assert np.array_equal(
        model.score_samples(mixed_table()), undisturbed.score_samples(mixed_table())
    )


def _cpu(number: int) -> float:
    """Seconds that a process has computed."""
    with open(f"/proc/{number}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_sender_that_keeps_silent() -> None:
    programs = {
        me: Program(trials.blame, {"sender": other, "tag": "x/y"})
        for me, other in (("a", "b"), ("b", "a"))
    }
    outcome = RayEngine(timeout=0.25)(programs)
    assert all("waits for 'x/y'" in heard for heard in outcome.results.values())


def test_two_runs_at_once() -> None:
    def programs(value: float) -> dict[str, Program[Any]]:
        pairs = (("a", "b"), ("b", "a"))
        return {
            me: Program(trials.swap, {"other": other, "payload": value, "rounds": 30})
            for me, other in pairs
        }

    found: dict[float, Any] = {}
    threads = [later(lambda v=v: found.update({v: ENGINE(programs(v))})) for v in (1.0, 2.0, 3.0)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert {v: o.results for v, o in found.items()} == {
        v: {"a": [v] * 30, "b": [v] * 30} for v in (1.0, 2.0, 3.0)
    }


# ---------------------------------------------------------------------- where workers are


def test_a_cluster_started_here_is_for_this_machine_alone() -> None:
    ray = cluster.connect(None)
    [node] = ray.nodes()
    gcs = int(ray.get_runtime_context().gcs_address.rpartition(":")[2])
    ports = {gcs, node["NodeManagerPort"], node["ObjectManagerPort"]}
    found = {port: address for address, port in listening() if port in ports}
    assert found.keys() == ports and all(address.is_loopback for address in found.values())
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def listening() -> list[tuple[Any, int]]:
    """Addresses and ports of this machine that wait for connections."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A":
                host, _, port = local.rpartition(":")
                words = [bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8)]
                address = ip_address(b"".join(words))
                found.append((getattr(address, "ipv4_mapped", None) or address, int(port, 16)))
    return found


def test_needs_that_the_cluster_has() -> None:
    program = {"c": Program(trials.keep, {"table": np.ones(2)})}
    [node] = [n["NodeID"] for n in cluster.library().nodes() if n["Alive"]]
    engine = RayEngine(needs={"c": Needs(cpus=0.5, memory=1 << 20, node=node)})
    assert engine(program).results["c"].tolist() == [1.0, 1.0]
    cluster.discard(next(w for (_, name, needs), w in cluster.WORKERS.items() if node in needs))


def test_needs_that_no_machine_has() -> None:
    program = {"c": Program(trials.keep, {"table": np.ones(2)})}
    outcome = RayEngine(needs=Needs(cpus=4_000, custom={"ssd": 1}), patience=1.0)(program)
    text = str(outcome.lost["c"])
    assert "the worker of c has not started for 1 s" in text and "cpus=4000" in text
    with pytest.raises(FederationError, match="there is no machine 'mars'"):
        RayEngine(needs=Needs(node="mars"))(program)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(FederationError, match="workers is a number from 1"):
        RayEngine(workers=0)
    assert engine_of("ray") == RayEngine()  # not sealed: messages pass nobody else


# ---------------------------------------------------------------------- what cannot be sent


def test_a_program_with_parts_of_others() -> None:
    with pytest.raises(ProtocolError, match=r"program of a cannot be sent to a worker.*'process'"):
        ENGINE({"a": Program(flows.sleep, {"seconds": 1})})

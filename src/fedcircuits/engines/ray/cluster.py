"""The cluster: an existing one, or one of this machine alone, and the workers that live there.

A cluster that is started here listens on the loopback device, has no dashboard and sends no
statistics of its use. Workers are kept from run to run, so that only the first run waits for them;
they end with the process that started them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from threading import RLock
from typing import Any

from fedcircuits.engines.ray.worker import Worker
from fedcircuits.errors import ExtraMissingError, FederationError, PartyLostError

WORKERS: dict[tuple[str, str, str], Any] = {}  # by session, name and needs
LOCK = RLock()
FLOWS = 256  # parties that may run in a worker at once
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
FRUGAL = {  # parties of a worker are threads: memory that one frees is there for the others
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
LOCAL = {  # of a cluster that is started here; the first is read when Ray is imported
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: the loopback device alone
    "RAY_worker_niceness": "0",  # 15 by default: behind everything else on the machine
}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a worker takes of its machine, and which machine that is.

    Ray counts ``cpus``, ``memory`` (bytes) and ``custom`` resources of its machines, and starts a
    worker where enough of them are free. ``node`` is the address or the id of a machine.

    >>> Needs(cpus=2, memory=8 << 30, custom={"ssd": 1}).cpus
    2
    """

    cpus: float = 0.0
    memory: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)
    node: str = ""

    def options(self) -> dict[str, Any]:
        """The options by Ray's names."""
        options: dict[str, Any] = {"num_cpus": self.cpus, "resources": dict(self.custom)}
        if self.memory:
            options["memory"] = self.memory
        if self.node:
            strategies = import_module("ray.util.scheduling_strategies")
            strategy = strategies.NodeAffinitySchedulingStrategy(_node(self.node), soft=False)
            options["scheduling_strategy"] = strategy
        return options


def library(local: bool = False) -> Any:
    """Ray itself, or how to get it; ``local``: for a cluster of this machine alone."""
    for name, value in (QUIET | (LOCAL if local else {})).items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError as error:
        raise ExtraMissingError(
            "the engine 'ray' needs fedcircuits[ray]: pip install 'fedcircuits[ray]'"
        ) from error


def connect(address: str | None) -> Any:
    """Ray, connected; a local cluster is started if there is no other."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    ray = library(local=address is None)
    if ray.is_initialized():
        return ray
    if address is not None and address.startswith("ray://"):
        raise FederationError(
            f"address: {address!r} is an address of Ray's client, which does not support streams: "
            "run this on a machine of the cluster, with address='auto'"
        )
    quiet = {"namespace": "fedcircuits", "logging_level": logging.ERROR, "log_to_driver": False}
    local = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**quiet, **(local if address is None else {"address": address}))
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FederationError(
            f"the cluster of Ray at {address or 'this machine'} cannot be reached: {reason}"
        ) from error
    return ray


def session() -> str:
    """The connection of this process to its cluster, which owns workers."""
    about = library().get_runtime_context()
    return f"{about.gcs_address} {about.get_job_id()}"


def workers(needed: Mapping[str, Needs], patience: float) -> dict[str, Any]:
    """By name, ready; those of earlier runs that still live, or new ones. PartyLostError names
    the first that does not start."""
    ray, here = library(), session()
    new: dict[str, Any] = {}
    with LOCK:
        workers = {}
        for name, needs in needed.items():
            key = (here, name, repr(needs))
            if key not in WORKERS:
                options = {"max_concurrency": 1, "concurrency_groups": {"flows": FLOWS}}
                options |= {"runtime_env": {"env_vars": FRUGAL}, "max_restarts": 0}
                make = ray.remote(**needs.options(), **options)(Worker)
                new[name] = WORKERS[key] = make.remote()
            workers[name] = WORKERS[key]
        try:
            if new:
                _await(ray, {n: w.ready.remote() for n, w in new.items()}, needed, patience)
        except BaseException:  # also Ctrl-C: a worker that may not be ready is not used
            for worker in new.values():
                discard(worker)
            raise
    return workers


def _await(
    ray: Any, starting: Mapping[str, Any], needed: Mapping[str, Needs], patience: float
) -> None:
    refs = list(starting.values())
    _, waiting = ray.wait(refs, num_returns=len(refs), timeout=patience)
    for name, ref in starting.items():
        if ref in waiting:
            free = ", ".join(f"{k} {v:g}" for k, v in _free(ray).items())
            problem = f"has not started for {patience:g} s: it needs {needed[name]}, and free in "
            problem += f"the cluster is {free or 'nothing'}"
            raise PartyLostError(name, f"the worker of {name} {problem}")
        try:
            ray.get(ref)
        except ray.exceptions.RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            text = f"the worker of {name} cannot be started: {reason}"
            raise PartyLostError(name, text) from error


def _free(ray: Any) -> dict[str, float]:
    return {k: v for k, v in sorted(ray.available_resources().items()) if not k.startswith("node:")}


def _node(named: str) -> str:
    """The id of a machine by its id, address or name."""
    nodes = [n for n in library().nodes() if n["Alive"]]
    for node in nodes:
        if named in (node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"]):
            return str(node["NodeID"])
    known = ", ".join(str(n["NodeManagerAddress"]) for n in nodes)
    raise FederationError(f"node: there is no machine {named!r} in the cluster: there are {known}")


def discard(worker: Any) -> None:
    """Ends a worker; the next run starts another."""
    with LOCK:
        for key in [k for k, v in WORKERS.items() if v is worker]:
            del WORKERS[key]
    library().kill(worker)


def stop() -> None:
    """Ends all workers and leaves the cluster; one that was started here ends."""
    with LOCK:
        WORKERS.clear()
    ray = library()
    if ray.is_initialized():
        ray.shutdown()

"""Sites that meet at a real NVFlare deployment: provisioned, separate programs, mutual TLS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.engines.nvflare.link import NvflareLink
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_engine, trials
from tests.engines.every_method import METHODS, Compared
from tests.engines.nvflare.deployment import (
    Deployment,
    deployed,
    job_process,
    needs_nvflare,
    rows,
)
from tests.engines.nvflare.meddling import LYING, module_path

pytestmark = needs_nvflare
SITES, OTHERS = ("north", "south", "west"), ("spy", "witness")
SHOWN = (
    "FedPC by rows",
    "FedPC by columns, refined",
    "FedPC by both",
    "FedPC on secret sums",
    "mixture with a hub",
    "private forest",
    "fusion",
    "trees together",
    "Chow–Liu on secret sums",
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("nvflare"), rows(SITES), OTHERS) as made:
        yield made


@pytest.fixture(scope="module")
def remote(deployment: Deployment) -> Iterator[Remote]:
    with deployment.trial() as made:
        yield made


def averaging(rounds: int) -> dict[str, Program[Any]]:
    rng = np.random.default_rng(3)
    tables = {me: rng.normal(size=(50, 4)) for me in SITES}
    common = {"members": SITES, "rounds": rounds}
    return {
        me: Program(trials.averaging, {"me": me, "table": table} | common)
        for me, table in tables.items()
    }


def test_every_law_of_engines_holds(remote: Remote) -> None:
    check_engine(remote)


@pytest.mark.parametrize("method", SHOWN)
def test_every_method_is_that_of_memory(remote: Remote, method: str) -> None:
    METHODS[method](Compared(remote))


def test_the_server_sees_sizes_only(deployment: Deployment, remote: Remote) -> None:
    before = deployment.seen.stat().st_size
    secret = np.frombuffer(b"patient 4711 is ill", np.uint8)
    words = {"to": "south", "messages": [("tell/word", secret)] * 200}
    programs: dict[str, Program[Any]] = {
        "north": Program(trials.give, words),
        "south": Program(trials.take, {"sender": "north", "tags": ["tell/word"] * 200}),
    }
    assert len(remote(programs).results["south"]) == 200
    seen = deployment.seen.read_bytes()
    assert len(seen) > before + 200 * len(secret)
    assert b"north." in seen and b"south." in seen  # who talks to whom
    for word in (b"patient 4711", b"tell/word", b"averaging", b"order/number"):
        assert word not in seen


SUBMIT = """
import os, sys
from nvflare.fuel.flare_api.flare_api import new_secure_session
session = new_secure_session(*sys.argv[1:3])
for job in [session.submit_job(path) for path in sys.argv[3:]]:
    print(session.wait_for_job(job, timeout=200), flush=True)
os._exit(0)
"""


def other_job(deployment: Deployment, folder: Path, executor: str) -> Path:
    """The standing job under another name, with another class."""
    shutil.copytree(deployment.folder / "coordinator" / "lead" / "job", folder)
    (folder / "fedcircuits").rename(folder / folder.name)
    meta = folder / "meta.json"
    meta.write_text(meta.read_text().replace("fedcircuits", folder.name))
    path = folder / folder.name / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["executors"][0]["executor"]["path"] = executor
    path.write_text(json.dumps(config))
    return folder


def test_jobs_with_code_or_another_class_are_refused(
    deployment: Deployment, remote: Remote, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    code = other_job(deployment, tmp_path / "code", "mine.Executor")
    (code / "code" / "custom").mkdir()
    (code / "code" / "custom" / "mine.py").write_text(f"open({str(mark)!r}, 'w')")
    trainer = "nvflare.app_common.np.np_trainer.NPTrainer"
    named = other_job(deployment, tmp_path / "named", trainer)
    about = ["admin@clinics.org", str(deployment.folder / "admin"), str(code), str(named)]
    words = [sys.executable, "-c", SUBMIT, *about]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.stdout.count("FINISHED") == 2 and "COMPLETED" not in done.stdout, done.stderr
    assert not mark.exists()
    north = deployment.folder / "north" / "nvflare"
    log = deployment.folder / "server" / "log.txt"
    said = "".join(p.read_text() for p in (log, *north.glob("*/log.txt")))
    assert "BYOC not permitted" in said and "is not in allow_list" in said
    assert remote(averaging(2)).results.keys() == set(SITES)


@pytest.mark.parametrize("what", ["job", "server", "site"])
def test_what_dies_is_started_again_and_the_run_goes_on(
    deployment: Deployment, remote: Remote, what: str
) -> None:
    expected = memory.run(averaging(300))
    found = []
    run = Thread(target=lambda: found.append(remote(averaging(300))))
    before = len(_audit(deployment, "south"))
    run.start()
    while len(_audit(deployment, "south")) < before + 100:  # in the middle of it
        time.sleep(0.01)
    if what == "job":
        os.kill(job_process(deployment.folder, "south"), signal.SIGKILL)
    elif what == "server":
        deployment.kill("server")
        deployment.start_server()
    else:
        deployment.kill("south")
        deployment.launch("south")
    run.join(500)
    assert found and not found[0].lost, found
    for name in SITES:
        assert np.array_equal(found[0].results[name], expected.results[name])


def test_a_site_that_stays_away_is_named(
    deployment: Deployment, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its NVFlare goes on, and is there for the program that is started later."""
    client = (deployment.folder / "west" / "nvflare" / "client.pid").read_text()
    deployment.kill("west")
    with monkeypatch.context() as patch:
        patch.setattr(remote, "patience", 12.0)
        outcome = remote(averaging(2))
    assert outcome.lost["west"].party == "west"
    assert "west is silent" in str(outcome.lost["west"])
    deployment.launch("west")
    deployment.wait_for("west")
    assert (deployment.folder / "west" / "nvflare" / "client.pid").read_text() == client
    assert remote(averaging(2)).results.keys() == set(SITES)


def test_who_sent_a_packet_is_said_by_the_certificate(
    deployment: Deployment, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both members come when the job stands already, and are taken in."""
    packets: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
    links = {}
    for name in OTHERS:
        workspace = deployment.folder / name / "nvflare"
        links[name] = NvflareLink(name, workspace, lambda *packet: packets.put(packet))
    lying = LYING.format(packet=b"forged", name="north")
    path = module_path(deployment.folder / "lying", lying, deployment.modules)
    try:
        links["witness"].connect()
        monkeypatch.setenv("PYTHONPATH", path)
        links["spy"].connect()
        heard = set()
        until = time.monotonic() + 120
        while ("spy", b"true") not in heard and time.monotonic() < until:
            for packet in (b"forged", b"true"):
                links["spy"].send("witness", packet)
            time.sleep(0.5)
            while not packets.empty():
                heard.add(packets.get())
        assert heard == {("spy", b"true")}
        assert "is bound to origin spy" in (deployment.folder / "server" / "log.txt").read_text()
        with pytest.raises(Empty):
            packets.get(timeout=0.5)
    finally:
        for link in links.values():
            link.close()


def _audit(deployment: Deployment, site: str) -> list[str]:
    return (deployment.folder / site / "store" / "audit.jsonl").read_text().splitlines()

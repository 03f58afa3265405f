"""A provisioned NVFlare deployment for tests: a server and sites, each a program of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from fedcircuits.engines.sites.files import SITE, ConsortiumFile, Kit
from fedcircuits.engines.sites.provision import provision
from fedcircuits.engines.sites.remote import Remote
from fedcircuits.engines.sites.serving import attach
from fedcircuits.federation.federation import COORDINATOR
from tests.engines.nvflare.meddling import CURIOUS, module_path
from tests.engines.sites.relays import free_port

needs_nvflare = pytest.mark.skipif(
    find_spec("nvflare") is None or "PYTEST_XDIST_WORKER" in os.environ,
    reason="needs the extra nvflare, and a machine without other tests: make test-engines",
)
TRIAL = """\
[data]
path = "data.csv"
row_id = "id"

[policy]
roles = ["fedcircuits.*"]
results = true
share_target = true
share_clusters = true
least_count = 1
"""


class Deployment:
    """``frames`` are the rows of sites by name, with a column ``id``; ``others`` get kits too.
    The server notes in ``seen`` everything that it passes on."""

    def __init__(
        self, folder: Path, frames: Mapping[str, pd.DataFrame], others: Sequence[str] = ()
    ) -> None:
        self.folder, self.sites, self.seen = folder, list(frames), folder / "seen"
        address = f"tls://127.0.0.1:{free_port()}"
        self.consortium = ConsortiumFile("clinics", address, (*frames, *others), "nvflare")
        provision(self.consortium, folder)
        for name, frame in frames.items():
            frame.to_csv(folder / name / "data.csv", index=False)
            (folder / name / SITE).write_text(TRIAL)
        self.modules = os.environ.get("PYTHONPATH", "")
        watching = CURIOUS.format(path=str(self.seen))
        self.curious = module_path(folder / "curious", watching, self.modules)
        self.programs: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        self.start_server()
        for name in self.sites:
            self.launch(name)
        for name in self.sites:
            self.wait_for(name)

    def start_server(self) -> None:
        places = (str(Path(sys.executable).parent), os.environ["PATH"])
        with (self.folder / "server" / "start.log").open("w") as log:
            self.programs["server"] = subprocess.Popen(
                ["bash", str(self.folder / "server" / "startup" / "sub_start.sh"), "--once"],
                env={
                    **os.environ,
                    "PATH": os.pathsep.join(places),
                    "PYTHONPATH": self.curious,
                },
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def launch(self, name: str) -> None:
        with (self.folder / name / "errors.log").open("a") as log:
            self.programs[name] = subprocess.Popen(
                [sys.executable, "-m", "fedcircuits", "site", "start", str(self.folder / name)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_for(self, name: str) -> None:
        output = self.programs[name].stdout
        assert output is not None
        said = output.readline()
        assert "serves" in said, (said, (self.folder / name / "errors.log").read_text())

    def kill(self, name: str) -> None:
        """All at once, as a machine that loses power; the server with its job process."""
        program = self.programs.pop(name)
        if name == "server":
            os.killpg(program.pid, signal.SIGKILL)
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()

    def stop(self) -> None:
        for program in self.programs.values():
            program.terminate()
        for program in self.programs.values():
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
            if program.stdout is not None:
                program.stdout.close()
        self.programs.clear()

    @contextmanager
    def trial(self, timeout: float = 600.0) -> Iterator[Remote]:
        """An engine of the coordinator whose sites show results; parties are dealt to sites."""
        placed: dict[str, str] = {}

        def place(party: str) -> str | None:
            if party in self.sites:
                return party
            if not party.startswith("party ") and len(party) > 1:
                return None  # a coordinator, an asker
            return placed.setdefault(party, self.sites[len(placed) % len(self.sites)])

        remote = Remote(place, sites=self.sites, trial=True, timeout=timeout, patience=400.0)
        attach(Kit(self.folder / COORDINATOR), remote)
        yield remote
        remote.close()


def job_process(folder: Path, name: str) -> int:
    """The number of NVFlare's job process of a site."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if b"client.worker_process" in words and str(folder / name).encode() in words:
                return int(path.parent.name)
        time.sleep(0.2)
    raise AssertionError(f"{name} runs no job")


@contextmanager
def deployed(
    folder: Path, frames: Mapping[str, pd.DataFrame], others: Sequence[str] = ()
) -> Iterator[Deployment]:
    made = Deployment(folder, frames, others)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def rows(names: Sequence[str], count: int = 60) -> dict[str, pd.DataFrame]:
    """A few rows for each site, where only the engine is tried."""
    return {
        n: pd.DataFrame({"id": range(count), f"x_{n}": [i % 3 for i in range(count)]})
        for n in names
    }

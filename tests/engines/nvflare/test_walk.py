"""A federation between owners who run NVFlare, by the documented commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.engines.nvflare.link import NvflareLink
from tests.engines.nvflare.deployment import needs_nvflare
from tests.engines.sites.relays import free_port

pytestmark = needs_nvflare
COMMAND = (sys.executable, "-m", "fedcircuits")
TRAIN = """
import sys, fedcircuits as fc
with fc.Federation.connect(sys.argv[1], timeout=120) as federation:
    fc.FedPC(target="risk", random_state=0).fit(federation, name="again")
"""
QUESTION = "risk = high", "age > 60"


def run(*words: object) -> str:
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 300)
    risk = np.where(rng.random(300) < (age - 10) / 90, "high", "low")
    patients = np.arange(300)
    north = {"patient": patients, "age": age, "smoker": rng.random(300) < 0.3}
    return {
        "north": pd.DataFrame(north),
        "south": pd.DataFrame({"patient": patients, "risk": risk}),
    }


def prepared(folder: Path) -> Path:
    """Kits with rows in them."""
    consortium, kits = folder / "consortium.toml", folder / "kits"
    run("consortium", "init", consortium)
    text = consortium.read_text().replace("127.0.0.1:4222", f"127.0.0.1:{free_port()}")
    consortium.write_text(text.replace('# engine = "nvflare"', 'engine = "nvflare"'))
    assert "server/startup/start.sh" in run("provision", consortium, "-o", kits)
    for name, frame in frames().items():
        frame.to_csv(kits / name / "data.csv", index=False)
        site = kits / name / "site.toml"
        site.write_text(site.read_text().replace('# row_id = "patient" ', 'row_id = "patient" '))
    return kits


def started(*words: object) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(program: subprocess.Popen[str]) -> None:
    program.terminate()
    try:
        program.wait(30)
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def test_from_empty_folders_to_an_answer_and_again(tmp_path: Path) -> None:
    kits = prepared(tmp_path)
    assert "300 rows" in run("site", "check", kits / "south")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    server = ["bash", str(kits / "server" / "startup" / "sub_start.sh"), "--once"]
    programs = [subprocess.Popen(server, env={**os.environ, "PATH": path}, text=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]  # fmt: skip
    try:
        programs += [started("site", "start", kits / name) for name in (*frames(), "coordinator")]
        for program, words in zip(programs[1:], ("serves 300 rows",) * 2 + ("keeps",), strict=True):
            assert program.stdout is not None
            assert words in program.stdout.readline()
        here = fc.FedPC(target="risk", random_state=0).fit(fc.Federation(frames(), "patient"))
        for _ in range(2):  # what the coordinator has started stays for its next program
            with fc.Federation.connect(kits / "coordinator", timeout=120) as federation:
                assert federation.kind == "vertical"
                model = fc.FedPC(target="risk", random_state=0).fit(federation)
                assert model.probability(*QUESTION) == here.probability(*QUESTION) > 0.5
        expected = here.probability(*QUESTION)
        assert killed_and_taken_up_again(kits, programs) == expected
        run("site", "stop", kits / "south")
        assert programs[2].wait(60) == 0
    finally:
        for program in reversed(programs):
            ended(program)
    audit = (kits / "north" / "store" / "audit.jsonl").read_text()
    assert '"event": "begun"' in audit and '"tag": "rows/tokens"' in audit


def killed_and_taken_up_again(kits: Path, programs: list[subprocess.Popen[str]]) -> float:
    """What a model answers whose training was broken off: all of the coordinator's programs died,
    while a site kept it from its end."""
    south, audit = programs[2], kits / "south" / "store" / "audit.jsonl"
    with subprocess.Popen([sys.executable, "-c", TRAIN, str(kits / "coordinator")]) as caller:
        until = time.monotonic() + 200
        while '"event": "begun", "run": "again"' not in audit.read_text():
            assert time.monotonic() < until and caller.poll() is None, "the training did not begin"
            time.sleep(0.005)
        south.send_signal(signal.SIGSTOP)
        for program in (caller, programs[3]):
            program.kill()
            program.wait()
    south.send_signal(signal.SIGCONT)
    assert programs[3].stdout is not None
    programs[3].stdout.close()
    programs[3] = started("site", "start", kits / "coordinator")
    assert programs[3].stdout is not None and "keeps" in programs[3].stdout.readline()
    with fc.Federation.connect(kits / "coordinator", timeout=120) as federation:
        model = fc.FedPC(target="risk", random_state=0).fit(federation, resume="again")
        return float(model.probability(*QUESTION))


def test_a_server_that_does_not_run_is_named(tmp_path: Path) -> None:
    kits = prepared(tmp_path)
    link = NvflareLink("north", kits / "north" / "nvflare", lambda *packet: None)
    with pytest.raises(fc.errors.FederationError, match="has not let north in within 3 s: does it"):
        link.connect(3.0)
    assert not (kits / "north" / "nvflare" / "fedcircuits.sock").exists()

"""A federation between owners who run NVFlare, by the documented commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.engines.nvflare.link import NvflareLink
from tests.app.typing_pages import DOCS, TEXT, TypedPage
from tests.engines.live import watched_live
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
PAGE, WRITTEN = TypedPage("nvflare.md"), (DOCS / "nvflare.md").read_text(encoding="utf-8")


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
    [text] = [block for block in TEXT.findall(WRITTEN) if block.startswith("name = ")]
    consortium.write_text(text.replace("flare.clinics.example:8002", f"127.0.0.1:{free_port()}"))
    with chdir(folder):
        assert "server/startup/start.sh" in run(*PAGE.words("provision"))
    for name, frame in frames().items():
        frame.to_csv(kits / name / "data.csv", index=False)
        site = kits / name / "site.toml"
        site.write_text(site.read_text().replace('# row_id = "patient" ', 'row_id = "patient" '))
    return kits


def started(folder: Path, words: list[str]) -> subprocess.Popen[str]:
    command = [*COMMAND, *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def served(folder: Path, command: str) -> subprocess.Popen[str]:
    """NVFlare's server, which its script leaves running in the background."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with (folder / "server.log").open("w") as log:
        return subprocess.Popen(
            ["bash", "-c", f"{command} & wait; sleep 600"],
            cwd=folder, env={**os.environ, "PATH": path}, text=True, start_new_session=True,
            stdout=log, stderr=log,
        )  # fmt: skip


def ended(program: subprocess.Popen[str]) -> None:
    group = os.getpgid(program.pid) if program.poll() is None else 0
    program.terminate()
    try:
        program.wait(30)
    finally:
        if group == program.pid:  # with what it has left running
            os.killpg(group, signal.SIGKILL)
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def test_from_empty_folders_to_an_answer_and_again(tmp_path: Path) -> None:
    """By the commands and the Python of docs/nvflare.md."""
    kits = prepared(tmp_path)
    with chdir(tmp_path):
        assert "300 rows" in run(*PAGE.words("site check"))
    begin = partial(PAGE.words, "site start")
    programs = [served(tmp_path, PAGE.line("bash "))]
    try:
        for name in (*frames(), "coordinator"):
            programs.append(started(tmp_path, begin(north=name)))
        assert " ".join(["fedcircuits", *begin(north="coordinator")]) in WRITTEN
        for program, words in zip(
            programs[1:], ("serves 300 rows",) * 2 + ("keeping",), strict=True
        ):
            assert program.stdout is not None
            assert words in program.stdout.readline()
        here = fc.FedPC(target="risk", random_state=0).fit(fc.Federation(frames(), "patient"))
        expected = here.probability(*QUESTION)
        assert asked_by_the_page(tmp_path) == expected > 0.5
        # what the coordinator has started stays for its next program
        with fc.Federation.connect(kits / "coordinator", timeout=120) as federation:
            assert federation.kind == "vertical"
            fit = partial(fc.FedPC(target="risk", random_state=0).fit, federation)
            model = watched_live(lambda callback: fit(callback=callback), tmp_path)
            assert model.probability(*QUESTION) == expected
        assert killed_and_taken_up_again(kits, programs) == expected
        with chdir(tmp_path):
            run(*PAGE.words("site stop", north="south"))
        assert programs[2].wait(60) == 0
    finally:
        for program in reversed(programs):
            ended(program)
    assert not PAGE.left, "the page has commands that nobody runs"
    audit = (kits / "north" / "store" / "audit.jsonl").read_text()
    assert '"event": "begun"' in audit and '"tag": "rows/tokens"' in audit


def asked_by_the_page(folder: Path) -> float:
    found: dict[str, Any] = {}
    [snippet] = PAGE.snippets
    with chdir(folder):
        exec(f"import fedcircuits as fc\n{snippet}", found)
        with found["federation"]:
            return float(found["model"].probability(*QUESTION))


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
    programs[3] = started(kits.parent, PAGE.words("site start", north="coordinator"))
    assert programs[3].stdout is not None and "keeping" in programs[3].stdout.readline()
    with fc.Federation.connect(kits / "coordinator", timeout=120) as federation:
        model = fc.FedPC(target="risk", random_state=0).fit(federation, resume="again")
        return float(model.probability(*QUESTION))


def test_a_server_that_does_not_run_is_named(tmp_path: Path) -> None:
    kits = prepared(tmp_path)
    link = NvflareLink("north", kits / "north" / "nvflare", lambda *packet: None)
    with pytest.raises(fc.errors.FederationError, match="has not let north in within 3 s: is it"):
        link.connect(3.0)
    assert not (kits / "north" / "nvflare" / "fedcircuits.sock").exists()

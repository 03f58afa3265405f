"""A federation between owners by the documented commands: every site a program of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedcircuits as fc
from fedcircuits.app.cli import app
from tests.engines.sites.relays import SERVER, free_port, needs_server

pytest.importorskip("nats", reason="needs the extra sites")
COMMAND = (sys.executable, "-m", "fedcircuits")


def run(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


@needs_server
def test_from_empty_folders_to_an_answer(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 300)
    north = pd.DataFrame({"patient": np.arange(300), "age": age, "smoker": rng.random(300) < 0.3})
    risk = np.where(rng.random(300) < (age - 10) / 90, "high", "low")
    south = pd.DataFrame({"patient": np.arange(300), "risiko": risk})
    consortium, kits = tmp_path / "consortium.toml", tmp_path / "kits"
    run("consortium", "init", consortium)
    text = consortium.read_text().replace("127.0.0.1:4222", f"127.0.0.1:{free_port()}")
    consortium.write_text(text)
    assert "nats-server -c" in run("provision", consortium, "-o", kits)
    for name, frame in (("north", north), ("south", south)):
        frame.to_csv(kits / name / "data.csv", index=False)
        site = kits / name / "site.toml"
        text = site.read_text().replace('# row_id = "patient" ', 'row_id = "patient" ')
        if name == "south":
            text = text.replace("[policy]", '[data.columns]\nrisk = "risiko"\n\n[policy]')
        site.write_text(text)
    shown = run("site", "check", kits / "south")
    assert "300 rows" in shown and re.search(r"risk\s+.*'high', 'low'", shown)
    programs = [subprocess.Popen([str(SERVER), "-c", str(kits / "server" / "nats.conf")],
                                 stderr=subprocess.DEVNULL)]  # fmt: skip
    try:
        for name in ("north", "south"):
            command = [*COMMAND, "site", "start", str(kits / name)]
            programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for program in programs[1:]:
            assert program.stdout is not None
            assert "serves 300 rows" in program.stdout.readline()
        federation = fc.Federation.connect(kits / "coordinator", timeout=30)
        assert federation.kind == "vertical"
        model = fc.FedPC(target="risk", random_state=0).fit(federation)
        answer = model.probability("risk = high", given="age > 60")
        here = fc.Federation(
            {"north": north, "south": south.rename(columns={"risiko": "risk"})}, "patient"
        )
        expected = fc.FedPC(target="risk", random_state=0).fit(here)
        assert answer == expected.probability("risk = high", given="age > 60") > 0.5
        run("site", "stop", kits / "south")
        assert programs[2].wait(20) == 0
    finally:
        for program in programs:
            program.kill()
            program.wait()
            if program.stdout is not None:
                program.stdout.close()
    audit = (kits / "north" / "store" / "audit.jsonl").read_text()
    assert '"event": "begun"' in audit and '"tag": "rows/tokens"' in audit
    assert not any(str(patient) in audit for patient in (["high", "low"]))


def test_mistakes_in_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    path.write_text('name = "clinics"\nserver = "nats:4222"\nsites = ["north"]\n')
    command = [*COMMAND, "provision", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"consortium\.toml, line 2, server: ", done.stderr), done.stderr


def test_a_member_makes_its_own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("consortium.toml").write_text(
        'name = "clinics"\nserver = "tls://127.0.0.1:4222"\nsites = ["north", "south"]\n'
    )

    def said(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == code, found.output
        return found.output

    asked = said("site", "request", "north", "-o", "north")
    approved = said("provision", "consortium.toml", "--request", "north/request.toml")
    [fingerprint] = re.findall(r"^  ((?:[0-9a-f]{4} ?){8})$", asked, re.MULTILINE)
    assert f"north asks with the fingerprint  {fingerprint}" in approved
    assert "north:  has its keys; send it ca.crt, site.crt, consortium.toml of kits" in approved
    assert not Path("kits/north/site.key").exists() and Path("kits/south/site.key").exists()
    for name in ("ca.crt", "site.crt", "consortium.toml"):
        shutil.copy(f"kits/north/{name}", "north")
    Path("north/data.csv").write_text("age\n" + "31\n47\n" * 40)
    assert "north of clinics: 80 rows" in said("site", "check", "north")
    Path("north/site.key").unlink()
    assert "north/site.key: there is no such file" in said("site", "check", "north", code=1)
    assert "is there already" in said("site", "request", "north", "-o", "north", code=1)

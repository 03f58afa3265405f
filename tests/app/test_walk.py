"""The tutorial on sites: from empty folders to answers, by its own commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests.app.walking import METHODS, PAGE, Walk, steps
from tests.engines.sites.relays import needs_server

pytest.importorskip("nats", reason="needs the extra sites")


@needs_server
def test_the_tutorial_does_what_it_shows(tmp_path: Path, data: Path) -> None:
    does_what_it_shows(PAGE, tmp_path, data, least=9)
    kits = tmp_path / "kits"
    for name in ("site.key", "identity"):
        for member in ("east", "north", "south", "west", "coordinator"):
            assert (kits / member / name).stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:  # another user of the machine reads nothing of a kit
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
        read = [*nobody, "cat", str(kits / "east" / "identity")]
        done = subprocess.run(read, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and not done.stdout
    leaves = (kits / "coordinator" / "store").rglob("*")
    assert not [path for path in leaves if path.name in ("east", "north", "south", "west")]


@needs_server
def test_a_private_forest_a_mixture_and_a_fusion_between_owners(tmp_path: Path, data: Path) -> None:
    does_what_it_shows(METHODS, tmp_path, data, least=6)
    asked = (tmp_path / "kits" / "clinic" / "store" / "audit.jsonl").read_text()
    assert "query/points" in asked  # its rows left it as shares
    written = (tmp_path / "answers.csv").read_bytes()
    answers = pd.read_csv(tmp_path / "answers.csv")["log_likelihood"]
    assert len(answers) == 60 and (answers < 0).all()
    others = [p for p in (tmp_path / "kits").rglob("*") if p.is_file() and "clinic" not in p.parts]
    forms = [n.tobytes() for n in answers.to_numpy()[:5]]
    forms += [line.rpartition(b",")[2] for line in written.splitlines()[1:6]]
    told = [p for p in others if any(form in p.read_bytes() for form in forms)]
    assert not told, "only the clinic has the answers"


def does_what_it_shows(page: Path, folder: Path, data: Path, least: int) -> None:
    walk, walked = Walk(folder, data), steps(page.read_text(encoding="utf-8"))
    assert len(walked) >= least
    try:
        for commands, shown in walked:
            printed = walk.run(commands)
            assert not shown or printed == shown, commands
    finally:
        walk.close()


def test_the_tutorial_takes_few_commands() -> None:
    """To the first answer, without those that make up data."""
    page = PAGE.read_text(encoding="utf-8")
    until = [commands for commands, _ in steps(page[: page.index("## The next day")])]
    lines = [
        line
        for commands in until
        if "cut.py" not in commands
        for line in commands.split("END\n")[-1].splitlines()
        if line.startswith(("fedcircuits", "  fedcircuits", "sed", "  sed", "nats-server", "  cp",
                            "python", "echo"))
    ]  # fmt: skip
    assert 8 <= len(lines) < 15

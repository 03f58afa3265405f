"""Files of a consortium and of its members, by the documented commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedcircuits.app.cli import app
from tests.app.typing_pages import TypedPage
from tests.commands import RUNNER

pytest.importorskip("nats", reason="needs the extra sites")
COMMAND = (sys.executable, "-m", "fedcircuits")


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
        found = RUNNER.invoke(app, list(words))
        assert found.exit_code == code, found.output
        return found.stdout + found.stderr

    page = TypedPage("sites.md", "## Keys")
    asked = said(*page.words("site request"))
    approved = said(*page.words("provision consortium.toml --request"))
    [fingerprint] = re.findall(r"^  ((?:[0-9a-f]{4} ?){8})$", asked, re.MULTILINE)
    assert f"north asks with the fingerprint  {fingerprint}" in approved
    assert (
        "north:  has its keys; send it ca.crt, site.crt, revoked.crl, consortium.toml of"
        in approved
    )
    assert not Path("kits/north/site.key").exists() and Path("kits/south/site.key").exists()
    subprocess.run(["bash", "-c", page.line("cp ")], check=True)
    Path("north/data.csv").write_text("age\n" + "31\n47\n" * 40)
    assert "north of clinics: 80 rows" in said("site", "check", "north")
    said(*page.words("provision consortium.toml --renew"))
    assert "south: removed from consortium.toml" in said(
        *page.words("provision consortium.toml --revoke")
    )
    assert not page.left, "the page has commands that nobody runs"
    Path("north/site.key").unlink()
    assert "north/site.key: there is no such file" in said("site", "check", "north", code=1)
    assert "already exists" in said("site", "request", "north", "-o", "north", code=1)

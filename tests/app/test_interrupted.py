"""Ctrl-C at the very moment of writing, and folders that cannot be written to: one clear line, and
nothing lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedcircuits as fc
from tests.app.desk import people
from tests.forked import python

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fc.__file__).parents[1])}
WRITES = {
    "train": "train all.csv --row-id id --learner mixture -o model.fc",
    "sample": "sample model.fc -n 50 -o rows.csv",
    "report": "report model.fc -o page.html",
}
STOPPED = """
import os, signal, sys
before = os.{moment}
def stopped(*given):
    if sys.argv[-1] in str(given[-1]) or "{moment}" == "fsync":
        os.kill(os.getpid(), signal.SIGINT)
    return before(*given)
os.{moment} = stopped
from fedcircuits.__main__ import main
main()
"""
AT_EXIT = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from fedcircuits.__main__ import main
main()
"""
SEVERAL = """
import sys
from fedcircuits.__main__ import main
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    people(120, 1).to_csv(tmp_path / "all.csv", index=False)
    table = fc.Table.read(tmp_path / "all.csv", row_id="id")
    fc.MixtureOfProducts(2, random_state=0).fit(table).save(tmp_path / "model.fc")
    (tmp_path / "rows.csv").write_text("mine\n")
    (tmp_path / "page.html").write_text("mine")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ran(folder: Path, program: list[str], words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "verb, moment", [("train", "replace"), ("sample", "fsync"), ("report", "replace")]
)
def test_ctrl_c_while_a_file_is_written(folder: Path, verb: str, moment: str) -> None:
    """When its bytes are on their way to the disk, and when it is about to get its name."""
    before = contents(folder)
    program = python("-c", STOPPED.format(moment=moment))
    found = ran(folder, program, WRITES[verb].split())
    assert (found.returncode, found.stderr) == (130, "fedcircuits: stopped\n")
    assert contents(folder) == before


def test_ctrl_c_as_the_program_exits_prints_nothing(folder: Path) -> None:
    found = ran(folder, python("-c", AT_EXIT), WRITES["sample"].split())
    assert (found.returncode, found.stderr) == (-signal.SIGINT, "")
    assert len((folder / "rows.csv").read_text().splitlines()) == 51


def test_a_folder_that_cannot_be_written_to(folder: Path) -> None:
    """As a user who may only read there; root is asked without its privilege to write anywhere."""
    before, program = contents(folder), [sys.executable, "-c", SEVERAL]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root can write anywhere, and there is no setpriv to take that away")
        program = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *program]
    folder.chmod(0o555)
    try:
        found = ran(folder, program, [WRITES["train"], WRITES["report"]])
    finally:
        folder.chmod(0o755)
    refused = "fedcircuits: cannot write {}: Permission denied; an existing file is unchanged\n"
    ended = re.sub("note: .*\n", "", found.stderr)
    assert ended == "".join(refused.format(n) + "1\n" for n in ("model.fc", "page.html"))
    assert contents(folder) == before

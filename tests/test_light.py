"""What needs neither torch nor numba does not wait for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedcircuits as fc

SLOW = ("torch", "numba", "matplotlib", "polars", "cryptography")
SOURCE = str(Path(fc.__file__).parents[1])
COMMAND = "from fedcircuits.app.cli import app\napp({}, standalone_mode=False)"
TABLES = "import fedcircuits as fc\ntable = fc.Table.of({'n': [1, 2], 'c': ['a', 'b']})\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, and a model of it whose leaves are of several families."""
    folder = tmp_path_factory.mktemp("light")
    table = fc.datasets.load("breast_cancer").select(("mean radius", "mean area", "diagnosis"))
    model = fc.LearnSPN(target="diagnosis", random_state=0).fit(table)
    model.save(folder / "model.fc")
    (folder / "rows.csv").write_text("age,risk\n31,low\n47,high\n52,high\n")
    return folder


def loaded(code: str, folder: Path, modules: tuple[str, ...]) -> tuple[list[str], str]:
    """Which of the modules the code has imported in a process of its own, and what it printed."""
    said = f"import sys\n{code}\nprint('#', *(m for m in {modules!r} if m in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    found = subprocess.run(
        [sys.executable, "-c", said], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    printed, _, names = found.stdout.rpartition("#")
    return names.split(), printed


LIGHT = (
    "import fedcircuits",
    TABLES + "table.describe()",
    "import fedcircuits as fc\nfc.Table.read('rows.csv').describe()",
    TABLES + "assert fc.Federation({'a': table, 'b': table}).kind == 'horizontal'",
    TABLES + "fc.split(table, 1); fc.Ledger().summary(); fc.Hub(); fc.datasets.names()",
    "import fedcircuits as fc\nfc.structures.factorised(fc.Schema.real(['a', 'b']))",
    COMMAND.format("['--help']"),
    COMMAND.format("['inspect', 'model.fc']"),
    COMMAND.format("['query', 'model.fc', 'P(diagnosis = benign)']"),
)


def test_light_things(home: Path) -> None:
    """One after the other in one process: where none is loaded in the end, none was by any."""
    checked = [f"{code}\nassert not {{*{SLOW}}} & {{*sys.modules}}, {code!r}" for code in LIGHT]
    assert loaded("\n".join(checked), home, SLOW)[0] == []


def test_commands_of_a_consortium_learn_nothing(tmp_path: Path) -> None:
    words = (
        ["consortium", "init", "c.toml"],
        ["provision", "c.toml"],
        ["site", "stop", "kits/north"],
    )
    code = "\n".join([*map(COMMAND.format, words), "import fedcircuits.app.analyst"])
    modules, printed = loaded(code, tmp_path, ("torch", "numba", "sklearn"))
    assert modules == [] and "made kits/server" in printed


def test_a_question_needs_neither_tables_nor_estimators(home: Path) -> None:
    questions = ["P(diagnosis | mean radius > 15)", "E(mean area | diagnosis = benign)"]
    code = COMMAND.format(["query", "model.fc", *questions])
    modules, printed = loaded(code, home, (*SLOW, "pandas", "sklearn"))
    assert modules == [] and "E(mean area | diagnosis = benign) = 4" in printed


def test_exact_values_of_reals_are_answered_too(home: Path) -> None:
    code = COMMAND.format(["query", "model.fc", "P(diagnosis = benign | mean radius = 12)"])
    modules, printed = loaded(code, home, ("torch",))
    assert modules == [] and float(printed.rpartition("=")[2]) > 0.8

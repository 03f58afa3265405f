"""What users install: wheel and sdist, types, files of released versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedcircuits as fc

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "model-0.1.fc"  # a mixture, as 0.1 has written it
TYPED = """
import fedcircuits as fc

model = fc.MixtureOfProducts(2, random_state=0).fit(fc.Table.read("rows.csv"))
likely: float = model.score(fc.Table.read("rows.csv"))
reveal_type(model.circuit_)
model.probability(1)
"""
NAMES = "assert all(getattr(fc, name) for name in fc.__all__)"
FRESH = ("--strict", "--cache-dir", os.devnull)  # nothing is kept for another run
# whose types the program does not need, and reading them takes longest
SKIPPED = "torch.*,numba.*,scipy.*,sklearn.*,pandas.*,matplotlib.*,pyarrow.*,polars.*,networkx.*"


def run(*words: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path is not None:
        environment |= {"PYTHONPATH": str(path), "MYPYPATH": str(path)}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sdist, wheel, and the wheel installed; it needs the build backend."""
    folder = tmp_path_factory.mktemp("built")
    done = run("-m", "build", "-q", "-o", str(folder), str(ROOT), cwd=folder)
    if done.returncode and "hatchling" in done.stdout + done.stderr:
        pytest.skip("hatchling cannot be had here")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder


def test_what_is_packed(built: Path) -> None:
    installed = built / "installed" / "fedcircuits"
    source = ROOT / "src" / "fedcircuits"
    modules = [{p.relative_to(f) for p in f.rglob("*.py")} for f in (source, installed)]
    assert modules[0] == modules[1]
    assert (installed / "py.typed").exists() and (installed / "datasets/manifest.json").exists()
    (sdist,) = built.glob("*.tar.gz")
    names = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "Makefile", "tests/test_release.py"} <= names


def test_the_first_snippet_of_the_readme_from_a_clean_folder(built: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippet = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert snippet is not None
    code = f"{snippet[1]}\nassert fc.__file__.startswith({str(built)!r})\n{NAMES}"
    done = run("-c", code, cwd=tmp_path, path=built / "installed")
    assert done.returncode == 0, done.stderr


def test_a_model_is_asked_by_the_installed_command(built: Path, tmp_path: Path) -> None:
    question = ("query", str(STORED), "P(risk = high | age > 60)")
    done = run("-m", "fedcircuits", *question, cwd=tmp_path, path=built / "installed")
    assert done.stdout == "P(risk = high | age > 60) = 0.703252\n", done.stderr


def test_types_reach_the_users_program(built: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n[mypy-{SKIPPED}]\nfollow_imports = skip\n")
    done = run("-m", "mypy", *FRESH, "program.py", cwd=tmp_path, path=built / "installed")
    assert 'Revealed type is "fedcircuits.circuits.graph.circuit.Circuit"' in done.stdout
    assert 'incompatible type "int"' in done.stdout and "Found 1 error in 1 file" in done.stdout


def test_files_of_the_first_version_open() -> None:
    model = fc.load(STORED)
    assert isinstance(model, fc.CircuitModel) and model.target == "risk"
    assert model.probability("risk = high", given="age > 60") == pytest.approx(0.70325, abs=1e-4)
    assert np.isfinite(model.score_samples(np.array([[50.0, np.nan, np.nan]]))).all()

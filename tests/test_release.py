"""What users install: wheel and sdist, types, files of released versions."""

from __future__ import annotations

import os
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
NAMES = """
import fedcircuits as fc

assert fc.__file__.startswith({!r}) and all(getattr(fc, name) for name in fc.__all__)
assert len(fc.datasets.load("breast_cancer")) == 569
"""
FRESH = ("--strict", "--cache-dir", os.devnull)  # nothing is kept for another run
# whose types the program does not need, and reading them takes longest
SKIPPED = (
    "torch.*,numba.*,numpy.*,scipy.*,sklearn.*,pandas.*,matplotlib.*,pyarrow.*,polars.*,"
    "networkx.*,narwhals.*,cryptography.*"
)


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
    """Every file of the package, byte for byte: what runs from the source runs from the wheel."""
    folders = ROOT / "src" / "fedcircuits", built / "installed" / "fedcircuits"
    source, installed = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file() and kept(p)}
        for f in folders
    )
    assert installed == source
    assert {Path("py.typed"), Path("datasets/manifest.json")} <= set(source)
    (sdist,) = built.glob("*.tar.gz")
    names = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "Makefile", "tests/test_release.py"} <= names


def kept(path: Path) -> bool:
    return path.suffix not in (".pyc", ".nbi", ".nbc")  # compiled, which nobody packs


def test_every_public_name_loads_from_a_clean_folder(built: Path, tmp_path: Path) -> None:
    done = run("-c", NAMES.format(str(built)), cwd=tmp_path, path=built / "installed")
    assert done.returncode == 0, done.stderr


def test_a_model_is_asked_by_the_installed_command(built: Path, tmp_path: Path) -> None:
    question = ("query", str(STORED), "P(risk = high | age > 60)")
    done = run("-m", "fedcircuits", *question, cwd=tmp_path, path=built / "installed")
    assert done.stdout == "P(risk = high | age > 60) = 0.703252\n", done.stderr


def test_types_reach_the_users_program(built: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\n[mypy-fedcircuits.*]\nfollow_imports = silent\n"  # as of installed packages
        f"[mypy-{SKIPPED}]\nfollow_imports = skip\n"
    )
    done = run("-m", "mypy", *FRESH, "program.py", cwd=tmp_path, path=built / "installed")
    assert 'Revealed type is "fedcircuits.circuits.graph.circuit.Circuit"' in done.stdout
    assert 'incompatible type "int"' in done.stdout and "Found 1 error in 1 file" in done.stdout


def test_files_of_the_first_version_open() -> None:
    model = fc.load(STORED)
    assert isinstance(model, fc.CircuitModel) and model.target == "risk"
    assert model.probability("risk = high", given="age > 60") == pytest.approx(0.70325, abs=1e-4)
    assert np.isfinite(model.score_samples(np.array([[50.0, np.nan, np.nan]]))).all()

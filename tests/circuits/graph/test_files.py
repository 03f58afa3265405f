"""The .fc file: bit-exact, and written whole or not at all; damage is in test_damaged_files.py."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.circuits.graph import files
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import FileError, ParameterError
from fedcircuits.tables.schema import Schema, Variable

SCHEMA = Schema(
    (
        Variable("größe ✓", unit="m²"),
        Variable('a "b"\n', "category", ("red", 7, 2.5, "ö")),
        Variable("inner"),
    )
)


def model(mean: np.ndarray | None = None) -> tuple[Circuit, Parameters]:
    """A mixture of two with a circuit as a leaf, under odd names."""
    nodes = (
        Leaf("größe", "gaussian", ("größe ✓",), 2),
        Leaf("[", "categorical", ('a "b"\n',), 2),
        Leaf("party", "circuit", ("inner",), 2),
        Product("", ("größe", "[", "party")),
        Sum("root", ("",)),
    )
    below = Circuit((Leaf("root", "gaussian", ("inner",), 2),), Schema.real(["inner"]))
    gaussian = {"mean": np.array([[5e-324], [-0.0]]), "variance": np.array([[0.1], [1 / 3]])}
    values = {
        "größe": {
            "mean": np.array([[-0.0], [1e149]]) if mean is None else mean,
            "variance": np.full((2, 1), 3.3e-299),
        },
        "[": {"probability": np.tile(np.array([0.1, 0.2, 0.3, 0.4]), (2, 1, 1))},
        "root": {"weight": np.array([[1e-320, 1.0]])},
    }
    return Circuit(nodes, SCHEMA), Parameters(
        values, {"party": (below, Parameters({"root": gaussian}))}
    )


def assert_same_bits(one: Parameters, other: Parameters) -> None:
    assert set(one) == set(other) and set(one.circuits) == set(other.circuits)
    for node in one:
        assert set(one[node]) == set(other[node])
        for name, array in one[node].items():
            assert array.shape == other[node][name].shape
            assert array.tobytes() == other[node][name].tobytes()
    for leaf, (circuit, parameters) in one.circuits.items():
        assert circuit == other.circuits[leaf][0]
        assert_same_bits(parameters, other.circuits[leaf][1])


# ---------------------------------------------------------------------- round trip


def test_round_trip_is_bit_exact(tmp_path: Path) -> None:
    circuit, parameters = model()
    metadata = {"target": "größe ✓", "n": [1, 2.5, None, {"deep": True}]}
    files.write(tmp_path / "modell ✓.fc", circuit, parameters, metadata)
    found, values, about = files.read(tmp_path / "modell ✓.fc")
    assert found == circuit and about == metadata
    assert_same_bits(parameters, values)
    assert os.listdir(tmp_path) == ["modell ✓.fc"]


@given(mean=hnp.arrays(np.float64, (2, 1), elements=st.floats(-1e150, 1e150)))
def test_every_number_that_may_be_a_mean_survives(mean: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files.write(f"{folder}/m.fc", *model(mean), {})
        assert_same_bits(model(mean)[1], files.read(f"{folder}/m.fc")[1])


@pytest.mark.parametrize("order", ["F", "strided"])
def test_arrays_of_any_layout(tmp_path: Path, order: str) -> None:
    wide = np.random.default_rng(0).dirichlet(np.ones(6), size=(2, 4))
    table = np.asfortranarray(wide) if order == "F" else np.repeat(wide, 2, axis=2)[..., ::2]
    leaf = Leaf("l", "categorical", tuple("abcd"), 2)
    schema = Schema(tuple(Variable(v, "category", tuple("uvwxyz")) for v in "abcd"))
    circuit = Circuit((leaf, Sum("s", ("l",))), schema)
    values = Parameters({"l": {"probability": table}, "s": {"weight": np.array([[0.5, 0.5]])}})
    files.write(tmp_path / "m.fc", circuit, values, {})
    assert np.array_equal(files.read(tmp_path / "m.fc")[1]["l"]["probability"], wide)


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    circuit, parameters = model()
    turned = Parameters(dict(reversed(parameters.values.items())), parameters.circuits)
    files.write(tmp_path / "one.fc", circuit, parameters, {"a": 1, "b": 2})
    files.write(tmp_path / "two.fc", *model(), {"b": 2, "a": 1})
    files.write(tmp_path / "three.fc", circuit, turned, {"a": 1, "b": 2})
    first = (tmp_path / "one.fc").read_bytes()
    assert (tmp_path / "two.fc").read_bytes() == first
    assert (tmp_path / "three.fc").read_bytes() == first


def test_parameters_of_other_nodes_stay_out(tmp_path: Path) -> None:
    circuit, parameters = model()
    more = {**parameters.values, "elsewhere": {"weight": np.ones((1, 1))}}
    circuits = {**parameters.circuits, "unknown": parameters.circuits["party"]}
    files.write(tmp_path / "m.fc", circuit, Parameters(more, circuits), {})
    assert_same_bits(files.read(tmp_path / "m.fc")[1], parameters)


def test_nothing_is_pickled(tmp_path: Path) -> None:
    files.write(tmp_path / "m.fc", *model(), {})
    with zipfile.ZipFile(tmp_path / "m.fc") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [files.ABOUT, files.GRAPH, files.VALUES]
        assert json.loads(archive.read(files.GRAPH))["circuit"]["schema"][0]["unit"] == "m²"


# ---------------------------------------------------------------------- writing


def test_unsound_models_are_not_written(tmp_path: Path) -> None:
    circuit, parameters = model()
    with pytest.raises(ParameterError, match="'größe' has no parameters"):
        files.write(tmp_path / "m.fc", circuit, Parameters({}, parameters.circuits), {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"bytes", "\ud800"])
def test_metadata_that_is_no_json_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(FileError, match="the metadata cannot be written"):
        files.write(tmp_path / "m.fc", *model(), {"value": value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing/m.fc", "there is no folder .*missing"),
        ("there", "a folder or device of that name"),
        ("file/m.fc", "there is no folder .*file"),
        ("n" * 300, "cannot write"),
        ("nul\0.fc", "cannot write"),
    ],
)
def test_places_that_cannot_be_written(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("a file")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(FileError, match=words):
        files.write(tmp_path / name, *model(), {})
    assert sorted(os.listdir(tmp_path)) == before


def test_devices_are_not_replaced() -> None:
    with pytest.raises(FileError, match="folder or device"):
        files.write(os.devnull, *model(), {})
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@contextmanager
def without_rights(folder: Path, mode: int) -> Iterator[None]:
    """The folder under another mode, seen by somebody whom modes concern."""
    os.chmod(folder, mode)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        os.chmod(folder, 0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others than the user of the test can look into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_folder_without_rights(open_folder: Path) -> None:
    path = open_folder / "m.fc"
    files.write(path, *model(), {})
    before = path.read_bytes()
    with without_rights(open_folder, 0o555):
        with pytest.raises(FileError, match=r"cannot write .*Permission denied.*unchanged"):
            files.write(path, *model(), {"new": True})
    with without_rights(open_folder, 0o000):
        for what in (lambda: files.read(path), lambda: files.write(path, *model(), {})):
            with pytest.raises(FileError, match=r"cannot (read|write) .*Permission denied"):
                what()
    assert path.read_bytes() == before and os.listdir(open_folder) == ["m.fc"]


def test_modes_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "m.fc", tmp_path / "link.fc"
    old = os.umask(0o077)
    try:
        files.write(path, *model(), {})
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.chmod(path, 0o640)
    link.symlink_to(path)
    files.write(link, *model(), {"new": True})
    assert link.is_symlink() and files.read(path)[2] == {"new": True}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


WRITERS = """
import os, random, resource, signal, sys, time
from fedcircuits.circuits.graph import files

path = sys.argv[1]
circuit, parameters, metadata = files.read(path)
random.seed(0)
turns = set()
for kill in range(40):
    before = os.stat(path).st_mtime_ns
    writer = os.fork()
    while writer == 0:
        metadata = {"turn": metadata["turn"] + 1}
        files.write(path, circuit, parameters, metadata)
    while os.stat(path).st_mtime_ns == before:
        time.sleep(0.001)
    time.sleep(random.uniform(0.0, 0.01))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    found, values, metadata = files.read(path)
    assert found == circuit and values == parameters
    turns.add(metadata["turn"])
print("kills survived:", len(turns))

there = sorted(os.listdir(os.path.dirname(path)))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    files.write(path, circuit, parameters, {"turn": "full"})
except files.FileError as error:
    print("full:", error)
assert sorted(os.listdir(os.path.dirname(path))) == there, "a temporary file is left"
"""


def test_killed_writers_and_full_disks_leave_a_whole_file(tmp_path: Path) -> None:
    """In a process of its own, whose children write until they are killed at any moment."""
    path = tmp_path / "m.fc"
    files.write(path, *model(), {"turn": 0})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", WRITERS, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    kills, full = done.stdout.splitlines()
    assert kills == "kills survived: 40"
    assert full.startswith(f"full: cannot write {path}: ") and "unchanged" in full
    circuit, parameters, metadata = files.read(path)
    assert circuit == model()[0] and isinstance(metadata["turn"], int)
    assert_same_bits(parameters, model()[1])

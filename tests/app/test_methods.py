"""``fedcircuits train`` with every method, from files of several parties."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

import fedcircuits as fc
from fedcircuits.app import cli
from tests.commands import RUNNER
from tests.forked import python

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    age = RNG.integers(20, 90, 120)
    north = pd.DataFrame({"id": np.arange(120), "age": age, "weight": RNG.normal(70, 9, 120)})
    risk = np.where(RNG.random(120) < (age - 10) / 90, "high", "low")
    south = pd.DataFrame({"id": np.arange(120), "risk": risk, "score": RNG.normal(age, 20)})
    north.to_csv(folder / "north.csv", index=False)
    south.to_csv(folder / "south.csv", index=False)
    bits = pd.DataFrame({f"b{i}": RNG.random(120) < 0.4 for i in range(3)})
    for i in range(3):
        bits[40 * i : 40 * (i + 1)].to_csv(folder / f"bits{i}.csv", index=False)
    return folder


def train(home: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> Result:
    monkeypatch.chdir(home)
    return RUNNER.invoke(cli.app, ["train", *words.split()])


COLUMNS, ROWS = "north.csv south.csv --row-id id", "bits0.csv bits1.csv bits2.csv"


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (f"{COLUMNS} --method mixture --clusters 2 --set max_iter=5", fc.CircuitModel),
        (f"{ROWS} --method forest --set structures=1 --set units=2 --set max_iter=2",
         fc.CircuitModel),
        (f"{ROWS} --method chow-liu --set summation=secret", fc.CircuitModel),
        (f"{COLUMNS} --method trees --target risk --share-target --set trees=2", fc.FedTrees),
        (f"{COLUMNS} --method fusion --target risk --share-target --set epochs=2",
         fc.FeatureFusion),
    ],
)  # fmt: skip
def test_a_model_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, model: type
) -> None:
    found = train(home, monkeypatch, f"{words} -o model.fc")
    assert found.exit_code == 0, found.stderr
    assert "Messages between the parties" in found.stdout and "wrote model.fc" in found.stdout
    load = fc.load if model is fc.CircuitModel else model.load  # type: ignore[attr-defined]
    loaded = load("model.fc")
    assert loaded.circuit_ is not None and "Traceback" not in found.stderr


def test_clusters_are_written_as_a_table(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(home, monkeypatch, f"{COLUMNS} --method kmeans --clusters 2 -o clusters.csv")
    assert found.exit_code == 0, found.stderr
    frame = pd.read_csv(home / "clusters.csv")
    assert list(frame.columns) == ["party", "row", "cluster"] and len(frame) == 240
    sides = [frame[frame["party"] == p].sort_values("row") for p in ("north", "south")]
    assert sides[0]["cluster"].tolist() == sides[1]["cluster"].tolist()
    assert set(frame["cluster"]) == {0, 1}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--method mixture --learner einsum -o m.fc", "--learner does not apply to mixture"),
        (
            "--method kmeans --target risk -o m.csv",
            "does not apply to kmeans: leave it out",
        ),
        ("--method kmeans -o m.fc", "expected the name of a table of clusters, ending in .csv"),
        ("--set nothing=3 -o m.fc", "--set nothing: fedpc has no such argument; it has answers"),
        ("--set refine -o m.fc", "--set refine: expected NAME=VALUE"),
        ("--set refine=many -o m.fc", "refine must be"),
        ("--name risk -o m.fc", "--name and --resume are for sites, and these are files"),
    ],
)
def test_words_that_do_not_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    found = train(home, monkeypatch, f"{COLUMNS} {words}")
    assert found.exit_code == 1 and line in found.stderr
    assert found.stderr.count("\n") == 1 and not (home / "m.fc").exists()


def test_a_reader_that_leaves_early_does_not_cost_the_model(home: Path) -> None:
    """As in fedcircuits train … | head."""
    words = python("-m", "fedcircuits", "train", *COLUMNS.split(), "-o", "left.fc")
    with subprocess.Popen(
        words, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as ran:
        assert ran.stdout is not None and ran.stderr is not None
        while not ran.stdout.readline().startswith("Messages"):
            pass
        ran.stdout.close()
        assert "Traceback" not in ran.stderr.read()
    assert isinstance(fc.load(home / "left.fc"), fc.Model)

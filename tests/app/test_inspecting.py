"""``fedcircuits inspect``, ``query`` and ``sample`` of files that hold predictors."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

import fedcircuits as fc
from fedcircuits.app import cli
from fedcircuits.circuits.graph import files
from tests.commands import RUNNER


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictors")
    clinics = fc.split(fc.datasets.load("breast_cancer"), 2, by="columns", target="diagnosis")
    encoder = fc.TabularEncoder(width=3, epochs=1)
    fusion = fc.FeatureFusion(encoder, epochs=1, share_target=True, random_state=0)
    fusion.fit(clinics, target="diagnosis").save(folder / "fusion.fc")
    trees = fc.FedTrees(target="diagnosis", trees=2, share_target=True, random_state=0)
    trees.fit(clinics).save(folder / "trees.fc")
    return folder


def described(path: Path) -> list[str]:
    found = RUNNER.invoke(cli.app, ["inspect", str(path)])
    assert found.exit_code == 0, found.output
    return [" ".join(line.split()) for line in found.stdout.split("\n")]


def test_a_fusion_is_described(home: Path) -> None:
    lines = described(home / "fusion.fc")
    assert lines[0].endswith("bytes, FeatureFusion") and lines[1] == "target: diagnosis"
    for line in ("predictor leaf 2", "fuse 1", "fusion gcn 2 30 2", "graph: learned", "hidden: 8"):
        assert line in lines
    (owner,) = (line for line in lines if line.startswith("party 1 TabularEncoder"))
    assert owner.endswith(" 3") and "mean" in owner


def test_trees_are_described(home: Path) -> None:
    lines = described(home / "trees.fc")
    assert lines[0].endswith("bytes, FedTrees") and lines[1] == "target: diagnosis"
    for line in ("predictor leaf 4", "fuse 3", "prediction product 2 30 2"):
        assert line in lines
    assert sum(line.startswith("party 1/trees product 2") for line in lines) == 1


@pytest.mark.parametrize("name", ["fusion", "trees"])
@pytest.mark.parametrize("words", [("query", "P(diagnosis = benign)"), ("sample",)])
def test_questions_to_a_distribution(home: Path, name: str, words: tuple[str, ...]) -> None:
    path = home / f"{name}.fc"
    found = RUNNER.invoke(cli.app, [words[0], str(path), *words[1:]])
    assert found.exit_code == 1 and not found.stdout
    (line,) = found.stderr.strip().split("\n")
    assert "predicts 'diagnosis' and is no distribution" in line and ".load" in line


def test_owners_that_are_damaged(home: Path) -> None:
    circuit, parameters, metadata = files.read(home / "fusion.fc")
    (first, _) = cast(list[dict[str, object]], metadata["owners"])
    for owners in (None, [], [{**first, "name": "stranger"}], [{**first, "encoder": 3}]):
        files.write(home / "bad.fc", circuit, parameters, {**metadata, "owners": owners})
        found = RUNNER.invoke(cli.app, ["inspect", str(home / "bad.fc")])
        assert found.exit_code == 1 and "bad.fc is damaged" in found.stderr

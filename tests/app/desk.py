"""A folder as a user of the command line has it: tables of two parties, test rows, models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import Result

import fedcircuits as fc
from fedcircuits.app import cli
from tests.commands import RUNNER

ROWS, TEST = 240, 120


def people(rows: int, seed: int) -> pd.DataFrame:
    """Risk and blood pressure grow with age."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 90, rows)
    frame = pd.DataFrame({"id": np.arange(rows) + 1000 * seed, "age": age})
    frame["smokes"] = rng.random(rows) < 0.3
    frame["pressure"] = (100 + 0.5 * age + rng.normal(0, 8, rows)).round(1)
    frame["risk"] = np.where(rng.random(rows) < (age - 20) / 70, "high", "low")
    return frame


def furnish(folder: Path) -> None:
    """north.csv, south.csv, test.csv, gaps.csv; model.fc, other.fc, trees.fc."""
    train, test = people(ROWS, 1), people(TEST, 2)
    train[["id", "age", "smokes"]].to_csv(folder / "north.csv", index=False)
    train[["id", "pressure", "risk"]].to_csv(folder / "south.csv", index=False)
    train.to_csv(folder / "all.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    test[["id", "age", "smokes"]].to_csv(folder / "north_test.csv", index=False)
    test[["id", "pressure", "risk"]].to_csv(folder / "south_test.csv", index=False)
    gaps = test.astype(object)
    holes = np.random.default_rng(3).random(gaps.shape) < 0.2
    holes[:, 0] = False
    gaps.mask(holes).to_csv(folder / "gaps.csv", index=False)
    (folder / "empty.csv").write_text("")
    (folder / "headed.csv").write_text("age,risk\n")
    (folder / "strange.csv").write_text("x,y\n1,2\n")
    (folder / "misspelt.csv").write_text("age,preszure\n40,120\n")
    (folder / "junk.fc").write_text("no model")
    table = fc.Table.of(train, row_id="id")
    fc.MixtureOfProducts(3, target="risk", random_state=0).fit(table).save(folder / "model.fc")
    fc.MixtureOfProducts(1, random_state=0).fit(table).save(folder / "other.fc")
    parts = fc.split(table, ["north", "south"], by="columns", target="risk")
    allowed = fc.Federation({p.name: p.table for p in parts}, allow_collect=True)
    trees = fc.FedTrees(target="risk", share_target=True, trees=2, random_state=0)
    trees.fit(allowed).save(folder / "trees.fc")


class Desk:
    """Runs commands in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, words: str | list[str]) -> Result:
        split = words.split() if isinstance(words, str) else words
        return RUNNER.invoke(cli.app, split)

    def fails(self, words: str, line: str) -> None:
        """With one line that says why, and nothing written."""
        before = sorted(p.name for p in self.folder.iterdir())
        found = self(words)
        assert found.exit_code == 1, found.output
        assert found.stderr.startswith("fedcircuits: ") and found.stderr.count("\n") == 1
        assert line in found.stderr and "unexpected" not in found.stderr
        assert sorted(p.name for p in self.folder.iterdir()) == before

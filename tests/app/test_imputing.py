"""``fedcircuits impute``: gaps are filled, and nothing else is touched."""

import json
from pathlib import Path

import pandas as pd
import pytest

import fedcircuits as fc
from tests.app.desk import TEST, Desk


@pytest.mark.parametrize("by", ["mpe", "mean", "mode", "sample"])
def test_gaps_are_filled_and_all_else_stays(desk: Desk, by: str, tmp_path: Path) -> None:
    output = tmp_path / "filled.csv"
    found = desk(f"impute model.fc gaps.csv --by {by} -o {output}")
    assert found.exit_code == 0, found.stderr
    gaps, filled = (pd.read_csv(p, dtype=str) for p in ("gaps.csv", output))
    assert list(filled.columns) == list(gaps.columns) and not filled.isna().any().any()
    pd.testing.assert_frame_equal(filled.where(gaps.notna()), gaps)
    assert set(filled["risk"]) == {"high", "low"} and set(filled["smokes"]) == {"True", "False"}
    counted = gaps["pressure"].isna().sum()
    assert f"pressure {counted}" in found.stdout and f"wrote {output}" in found.stdout


def test_they_are_the_librarys_values(desk: Desk, furnished: Path, tmp_path: Path) -> None:
    output = tmp_path / "filled.csv"
    assert desk(f"impute model.fc gaps.csv --by mean -o {output}").exit_code == 0
    model = fc.load(furnished / "model.fc")
    assert isinstance(model, fc.Model)
    gaps = pd.read_csv(furnished / "gaps.csv").drop(columns="id")
    means = model.expect("pressure", given=gaps[["age", "smokes", "risk"]])
    row = int(gaps.index[gaps["pressure"].isna()][0])
    written = pd.read_csv(output)["pressure"][row]
    assert written == pytest.approx(means.iloc[row][("pressure", "mean")], abs=0.0501)
    assert written == round(written, 1)  # as the column is written


def test_several_imputations(desk: Desk, tmp_path: Path) -> None:
    output = tmp_path / "many.csv"
    words = f"impute model.fc gaps.csv --by sample -n 3 -o {output} --json"
    found = desk(words)
    told = json.loads(found.stdout)
    frame = pd.read_csv(output)
    assert told["rows"] == TEST and len(frame) == 3 * TEST
    assert frame["imputation"].value_counts().to_dict() == {1: TEST, 2: TEST, 3: TEST}
    gaps = pd.read_csv("gaps.csv")["pressure"].isna().to_numpy()
    drawn = frame["pressure"].to_numpy().reshape(3, TEST)
    assert (drawn[:, ~gaps] == drawn[0, ~gaps]).all() and (drawn[0, gaps] != drawn[1, gaps]).all()
    before = output.read_bytes()
    assert desk(words).exit_code == 0 and output.read_bytes() == before, "the same seed"


def test_a_category_that_the_model_does_not_know_stays(desk: Desk, tmp_path: Path) -> None:
    file, output = tmp_path / "new.csv", tmp_path / "filled.csv"
    rows = pd.read_csv("gaps.csv", dtype=str).head(6)
    rows["risk"] = ["middle", None, "high", "low", "middle", "low"]
    rows.to_csv(file, index=False)
    found = desk(f"impute model.fc {file} -o {output}")
    assert found.exit_code == 0 and "2 values of unknown categories ('middle')" in found.stderr
    filled = pd.read_csv(output, dtype=str)["risk"]
    assert filled[1] in ("high", "low")
    assert [filled[i] for i in (0, 2, 3, 4, 5)] == ["middle", "high", "low", "middle", "low"]
    assert "risk 1" in found.stdout


WRONG = {
    "impute model.fc gaps.csv -o filled.xlsx": "ending in .csv",
    "impute model.fc gaps.csv -n 3 -o f.csv": "give --by sample",
    "impute trees.fc gaps.csv -o f.csv": "trees.fc holds FedTrees, which predicts one column",
    "impute model.fc strange.csv -o f.csv": "X has none of the model's columns",
    "impute model.fc nope.csv -o f.csv": "nope.csv: there is no such file",
    "impute model.fc gaps.csv -o nowhere/f.csv": "there is no folder nowhere; make it first",
    "impute model.fc gaps.csv -o gaps.csv": "gaps.csv is also read: give the output another name",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(desk: Desk, words: str) -> None:
    desk.fails(words, WRONG[words])

"""``fedcircuits synthesise``."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.app.desk import Desk

REAL = "--train north.csv --train south.csv --test test.csv --row-id id"


def test_rows_with_a_report(desk: Desk, tmp_path: Path) -> None:
    output = tmp_path / "synthetic.csv"
    found = desk(f"synthesise model.fc -n 200 {REAL} -o {output} --json")
    assert found.exit_code == 0, found.stderr
    frame, told = pd.read_csv(output), json.loads(found.stdout)
    assert len(frame) == told["rows"] == 200 and list(frame) == [
        "age", "smokes", "pressure", "risk",
    ]  # fmt: skip
    assert told["columns"].keys() == told["chance"].keys() == set(frame) and len(told["pairs"]) == 6
    assert told["usefulness"]["synthetic rows"]["accuracy"] > 0.5
    assert told["nearness"]["copies"] == 0 and told["nearness"]["compared"] == 200
    said = desk(f"synthesise model.fc -n 200 {REAL} -o {output}").stdout
    assert (
        "trained on synthetic rows, scored on test rows" in said
        and "0 of 200 rows are copies" in said
        and "macro F1 0." in said
        and " on average (by chance 0." in said
        and " at most, of " in said
    )


def test_without_training_rows_there_is_no_report(desk: Desk, tmp_path: Path) -> None:
    found = desk(f"synthesise model.fc -n 5 -o {tmp_path / 's.csv'}")
    assert found.exit_code == 0 and "no report: give the training rows by --train" in found.stdout


WRONG = {
    "synthesise model.fc -o s.parquet": "ending in .csv",
    "synthesise model.fc --train all.csv -o all.csv": "all.csv is also read",
    "synthesise trees.fc -o s.csv": "synthesise needs a model of all columns",
    "synthesise model.fc --test test.csv -o s.csv": "give --train, too",
    "synthesise model.fc --train nope.csv -o s.csv": "nope.csv: there is no such file",
    "synthesise model.fc --train all.csv --test test.csv --target rsk -o s.csv": "'risk'",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(desk: Desk, words: str) -> None:
    desk.fails(words, WRONG[words])

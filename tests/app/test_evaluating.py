"""``fedcircuits evaluate``, with every method that train knows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.app import evaluating
from fedcircuits.reports.evaluation import Evaluation
from tests.app.desk import TEST, Desk

TRAIN = "--train north.csv --train south.csv --row-id id"


def test_the_numbers_are_those_of_the_library(desk: Desk, furnished: Path) -> None:
    found = desk("evaluate model.fc test.csv --json")
    assert found.exit_code == 0, found.stderr
    told = json.loads(found.stdout)
    model, test = (
        fc.load(furnished / "model.fc"),
        fc.Table.read(furnished / "test.csv", row_id="id"),
    )
    assert isinstance(model, fc.Model)
    expected = fc.evaluate(model, test)
    assert (told["rows"], told["target"]) == (TEST, "risk")
    assert told == json.loads(json.dumps(expected.to_json()))
    assert told["scores"]["the model"]["log_likelihood"] == pytest.approx(model.score(test))
    right = (model.predict(test) == test.column("risk")).mean()
    assert told["scores"]["the model"]["accuracy"] == pytest.approx(right)


def test_baselines_and_parties_alone(desk: Desk) -> None:
    found = desk(f"evaluate model.fc test.csv {TRAIN}")
    assert found.exit_code == 0, found.stderr
    lines = [line.split("  ")[0] for line in found.stdout.splitlines()[2:]]
    assert found.stdout.startswith(f"{TEST} rows; 'risk' is predicted from the remaining columns")
    assert lines[1:] == [
        "the model", "independent columns", "most frequent class", "logistic regression",
        "gradient boosting", "south alone", "LearnSPN, all rows in one place",
    ]  # fmt: skip


def test_many_parties_alone_become_three_lines() -> None:
    names = ["the model", "gradient boosting", *(f"clinic {i} alone" for i in range(9)), "all rows"]
    scores = pd.DataFrame({"log_likelihood": [-1.0, np.nan, *range(-9, 0), -2.0]}, names)
    scores["accuracy"] = np.linspace(0.1, 0.9, 12)
    found = evaluating.scores(Evaluation(10, 0, "risk", scores), brief=True)
    assert [row[0] for row in found.rows] == [
        "the model", "gradient boosting", "clinic 8 alone, the best of 9",
        "the median of parties alone", "clinic 0 alone, the worst", "all rows",
    ]  # fmt: skip
    assert [row[1] for row in found.rows] == ["-1", "—", "-1", "-5", "-9", "-2"]
    assert len(evaluating.scores(Evaluation(10, 0, "risk", scores)).rows) == 12


def test_rows_in_several_files_are_joined(desk: Desk) -> None:
    apart = desk("evaluate model.fc north_test.csv south_test.csv --row-id id --json")
    whole = desk("evaluate model.fc test.csv --json")
    assert apart.exit_code == 0 and apart.stdout == whole.stdout


def test_a_number_is_measured_as_one(desk: Desk) -> None:
    found = desk(f"evaluate model.fc test.csv --target pressure {TRAIN}")
    assert found.exit_code == 0, found.stderr
    assert "r²" in found.stdout and "ridge regression" in found.stdout and "AUC" not in found.stdout


def test_without_a_target_there_are_likelihoods(desk: Desk) -> None:
    found = desk("evaluate other.fc test.csv --json")
    told = json.loads(found.stdout)
    assert told["target"] is None
    assert told["scores"]["the model"] == pytest.approx(
        told["scores"]["independent columns (its own marginals)"]
    )  # of a product they are the same


METHODS = {
    "mixture --clusters 2 --set max_iter=5": "log_likelihood",
    "trees --target risk --share-target --set trees=2": "macro_f1",
    "fusion --target risk --share-target --set epochs=2": "macro_f1",
    "fedpc --target risk --clusters 2": "log_likelihood",
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_evaluated(desk: Desk, method: str, tmp_path: Path) -> None:
    model = tmp_path / "trained.fc"
    columns = "" if "target" in method else " --drop risk --drop smokes"
    learned = desk(f"train north.csv south.csv --row-id id --method {method}{columns} -o {model}")
    assert learned.exit_code == 0, learned.stderr
    files = "north=north_test.csv south=south_test.csv"
    found = desk(f"evaluate {model} {files} --row-id id --json --train north.csv --train south.csv")
    assert found.exit_code == 0, found.stderr
    scores = json.loads(found.stdout)["scores"]
    assert scores["the model"][METHODS[method]] is not None
    assert (
        len(scores) > 2 and scores["LearnSPN, all rows in one place"]["log_likelihood"] is not None
    )


WRONG = {
    "evaluate nope.fc test.csv": "cannot read nope.fc",
    "evaluate junk.fc test.csv": "junk.fc is not a fedcircuits model",
    "evaluate model.fc nope.csv": "nope.csv: there is no such file",
    "evaluate model.fc empty.csv": "empty.csv: the file is empty",
    "evaluate model.fc headed.csv": "row",
    "evaluate model.fc strange.csv": "X has none of the model's columns",
    "evaluate model.fc misspelt.csv": "'preszure', the model has 'pressure'",
    "evaluate model.fc north_test.csv": "no row has a value of 'risk'",
    "evaluate model.fc test.csv --target rsk": "did you mean 'risk'?",
    "evaluate model.fc test.csv --row-id nope": "row_id: there is no column",
    "evaluate model.fc north_test.csv south_test.csv": "hold different columns",
    "evaluate model.fc test.csv --train strange.csv": "X has none of the model's columns",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(desk: Desk, words: str) -> None:
    desk.fails(words, WRONG[words])


def test_one_row_is_no_rows(desk: Desk, tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("age,smokes,pressure,risk\n44,True,121.5,high\n")
    assert desk(f"evaluate model.fc {one}").stdout.startswith("1 row; 'risk' is predicted")
    filled = desk(f"impute model.fc {one} -o {tmp_path / 'filled.csv'}").stdout
    assert filled.startswith("1 row; missing values filled in: none were missing")

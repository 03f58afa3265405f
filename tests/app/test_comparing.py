"""``fedcircuits compare``."""

import json

import pytest

from tests.app.desk import Desk


def test_two_models(desk: Desk) -> None:
    found = desk("compare model.fc other.fc --data test.csv --draws 2000 --json")
    assert found.exit_code == 0, found.stderr
    told = json.loads(found.stdout)
    likely = told["likelihoods"]
    assert likely["data, first"] > likely["data, second"]
    assert likely["divergence of the second from the first"] > 0
    assert likely["divergence of the first from the second"] > 0
    pair = {(p["column"], p["with"]): p for p in told["pairs"]}["age", "pressure"]
    assert pair["first"] > 0.1 > pair["second"], "the second model knows of no dependence"


def test_a_model_and_data(desk: Desk) -> None:
    found = desk("compare model.fc test.csv --draws 1000")
    assert found.exit_code == 0, found.stderr
    assert "its own samples" in found.stdout and "Columns that differ most, 4 of 4" in found.stdout


def test_a_model_is_like_itself(desk: Desk) -> None:
    told = json.loads(desk("compare model.fc model.fc --json").stdout)
    assert told["likelihoods"]["divergence of the second from the first"] == 0
    for column in told["columns"].values():
        assert column["distance"] == pytest.approx(column["chance"], abs=0.03)


WRONG = {
    "compare model.fc nope.csv": "nope.csv: there is no such file",
    "compare model.fc junk.fc": "junk.fc is not a fedcircuits model",
    "compare model.fc trees.fc": "trees.fc holds FedTrees",
    "compare model.fc strange.csv": "none of the model's columns",
    "compare model.fc test.csv --data test.csv": "one side is data already",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_clear_line(desk: Desk, words: str) -> None:
    desk.fails(words, WRONG[words])

"""``--json``: one document on standard output, and nothing else there, from every verb that tells
something."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from fedcircuits.app import cli
from tests.app.desk import ROWS, Desk
from tests.commands import RUNNER

SILENT = {"demo", "dashboard", "provision"}  # they write files, or serve


def told(desk: Desk, words: str) -> Any:
    found = desk(f"{words} --json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_every_verb_that_tells_something_has_it() -> None:
    group: Any = typer.main.get_command(cli.app)
    verbs = {n: c for n, c in group.commands.items() if not hasattr(c, "commands")}
    without = {n for n, c in verbs.items() if not any("--json" in p.opts for p in c.params)}
    assert without == SILENT
    assert RUNNER.invoke(cli.app, ["site", "status", "--help"]).stdout.count("--json") == 1


def test_train_and_split(desk: Desk) -> None:
    parts = told(desk, "split all.csv --row-id id --parties a,b --by rows -o jsonparts")
    assert (
        parts["split"] == "horizontal" and sum(p["rows"] for p in parts["parties"].values()) == ROWS
    )
    files = " ".join(p["file"] for p in parts["parties"].values())
    model = told(desk, f"train {files} --row-id id --learner mixture -o json.fc")
    assert model["model"] == "json.fc" and model["parties"]["a"]["columns"]
    assert sum(p["messages"] for p in model["crossed"]) > 0 and model["revealed"][0]["to"]
    shown = told(desk, "inspect json.fc")
    assert shown["estimator"] == "FedPC" and shown["parameters"] > 0
    assert {v["name"] for v in shown["variables"]} == {"age", "smokes", "pressure", "risk"}


def test_sample(desk: Desk) -> None:
    rows = told(desk, "sample model.fc -n 3")
    assert len(rows) == 3 and set(rows[0]) == {"age", "smokes", "pressure", "risk"}


@pytest.mark.parametrize("words", ["inspect junk.fc", "sample junk.fc", "train empty.csv -o x.fc"])
def test_errors_stay_one_line(desk: Desk, words: str) -> None:
    found = desk(f"{words} --json")
    assert found.exit_code == 1 and not found.stdout and found.stderr.count("\n") == 1

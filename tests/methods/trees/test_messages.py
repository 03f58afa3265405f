"""Malformed messages of training and of questions: whoever sent one is blamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.trees import ensemble
from fedcircuits.methods.trees.growing import TreesPlan
from fedcircuits.testing import check_messages
from tests.methods.trees.cases import narrow, programs, table

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "rows, bagged": ("rows", 2, {}),
    "rows, a number": ("rows", 2, {"target": "x1"}),
    "rows, a threshold": ("rows", 2, {"threshold": True}),
    "columns, bagged": ("columns", 2, {"share_target": True}),
    "columns, boosted": ("columns", 2, {"share_target": True, "grow": "auto", "threshold": True}),
    "both, boosted": ("both", 3, {"share_target": True, "grow": "auto"}),
    "together": ("rows", 2, {"grow": "together", "threshold": True}),
    "together, along a tree": ("rows", 3, {"grow": "together", "summation": fc.Tree("path")}),
    "together, on shares": (
        "rows",
        3,
        {"grow": "together", "summation": fc.Secret(key=b"k" * 32), "threshold": True},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_of_training(name: str) -> None:
    by, parties, settings = CASES[name]
    long = settings.get("grow") == "together"
    plan = TreesPlan(**{"target": "risk", "trees": 1, **settings})
    split = fc.split(narrow(40) if long else table(24), parties, by=by, target=plan.target)  # type: ignore[arg-type]
    assert check_messages(lambda: programs(split, plan), most=60 if long else 300) > 50


@pytest.mark.parametrize("target", ["risk", "x1"])
def test_messages_of_questions(target: str) -> None:
    rows = table(24)
    plan = TreesPlan(target, share_target=True, trees=2)
    split = fc.split(rows, 2, by="columns", target=target)
    views = memory.run(programs(split, plan)).results
    view = views[COORDINATOR].view
    x = rows.select(view.circuit.schema.names).values[:5].copy()
    x[3:, view.columns("party 1")] = np.nan
    asked: dict[str, Program[Any]] = {COORDINATOR: Program(ensemble.ask, {"view": view, "x": x})}
    for party in ensemble.involved(view, x):
        asked[party] = Program(ensemble.respond, {"view": views[party]})
    assert check_messages(lambda: dict(asked)) > 50

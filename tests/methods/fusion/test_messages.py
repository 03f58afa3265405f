"""Malformed messages of a fusion: refused, the sender blamed, message and field named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.testing import check_messages
from tests.methods.fusion.sensors import EVENT, ROWS, fitted, owners

RNG = np.random.default_rng(3)
SUMS: dict[str, Any] = {"align": None, "graph": "complete"}


@pytest.mark.parametrize(
    "options",
    [{}, {"traffic": "int8", "share_target": True}, {"head": "vote"},
     {**SUMS, "summation": fc.Hub()}, {**SUMS, "summation": fc.Tree("path")}],
    ids=str,
)  # fmt: skip
def test_training_and_questions(options: dict[str, Any]) -> None:
    few = owners((1,)) if options.get("share_target") else owners()
    model, engine = fitted(few, **options)
    model.predict(few)
    model.score(few)
    training, question, comparison = engine.programs
    assert check_messages(training, most=180) > 100
    assert check_messages(question, most=80) > 50
    assert check_messages(comparison, most=90) > 60


def test_a_number_is_predicted() -> None:
    level = RNG.normal(size=ROWS) + EVENT
    tables = {p.name: fc.Table.from_series(p.table.series, {"level": level[: len(p.table)]},
              np.arange(len(p.table))) for p in owners()}  # fmt: skip
    model, engine = fitted(fc.Federation(tables), target="level")
    model.predict(fc.Federation(tables))
    for programs in engine.programs:
        check_messages(programs, most=120)


def test_opinions_and_labels_of_one_party() -> None:
    tables = {p.name: p.table for p in owners(())}
    ids = np.array([f"row {r}" for r in range(ROWS)])
    tables["office"] = fc.Table.of({"row": ids, "event": EVENT}, row_id="row")
    federation = fc.Federation(tables)
    model, engine = fitted(federation, share_target=True, **SUMS, summation=fc.Hub())
    model.opinions(federation)
    for programs in engine.programs:
        check_messages(programs, most=120)

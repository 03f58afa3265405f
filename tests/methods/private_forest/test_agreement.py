"""Before anything is shared: different settings, versions, structures and variables are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.structures import ForestShape
from fedcircuits.methods.private_forest.training import ForestPlan, LocalTraining
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.table import Table
from tests.methods.private_forest.asking import mixed
from tests.methods.private_forest.learning import (
    SCHEMA,
    SMALL,
    parties,
    programs,
)
from tests.methods.watched import saying


def refused(made: dict[str, Program[Any]], said: str) -> None:
    """Ended with that error, and nothing but the agreement crossed."""
    outcome = memory.run(made)
    assert set(outcome.lost) == set(made)
    assert any(said in str(e) for e in outcome.lost.values()), list(outcome.lost.values())
    assert {e.phase for e in outcome.ledger} <= {"agree"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": ForestShape(2, units=4)}, "shape"),
        ({"combine": "em"}, "combine"),
        ({"seed": 4}, "seed"),
        ({"marginals": True}, "marginals"),
        ({"tol": 0.1}, "tol"),
        ({"run": "s"}, "run"),
    ],
)
def test_other_settings(change: dict[str, Any], said: str) -> None:
    refused(programs(SMALL, party1=replace(SMALL, **change)), f"has {said} = ")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"version": 0}, "with private_forest 0"), ({"settings": {}}, "different settings")],
)
def test_other_versions(change: dict[str, Any], said: str) -> None:
    told = {
        "program": programs(SMALL)["party1"],
        "tag": "agree/plan",
        "change": lambda fields: {**fields, **change},
    }
    refused({**programs(SMALL), "party1": Program(saying, told)}, said)


def test_other_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a different numpy, which draws different numbers from the same seed."""
    made = LocalTraining.of

    def drawn(table: Table, plan: ForestPlan, place: int, *others: int) -> LocalTraining:
        return made(table, replace(plan, seed=plan.seed + (place == 1)), place, *others)

    monkeypatch.setattr(LocalTraining, "of", drawn)
    refused(programs(SMALL), "drew different structures")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (mixed(3), "party1 has no column 'v3'"),
        (Schema((*SCHEMA.variables[:-1], Variable("b", "boolean"))), "a name must have one"),
    ],
)
def test_other_variables(schema: Schema, said: str) -> None:
    made = programs(SMALL)
    made["party1"].arguments["party"] = parties(3, schema=schema)[1]
    refused(made, said)


def test_categories_that_a_party_has_not_seen() -> None:
    """Are those of all: codes are the same at all parties afterwards."""
    made = programs(replace(SMALL, combine="concatenate"))
    few = Schema((*SCHEMA.variables[:-1], Variable("b", "category", ("z", "x"))))
    made["party1"].arguments["party"] = parties(3, schema=few)[1]
    outcome = memory.run(made)
    assert not outcome.lost
    for own in outcome.results.values():
        assert own.forest.circuit.schema["b"].categories == ("w", "x", "y", "z")


def test_numbers_are_no_categories() -> None:
    made = programs(SMALL)
    for me, program in made.items():
        values = np.random.default_rng(0).normal(size=(50, 2))
        program.arguments["party"] = Party(me, Table(Schema.real(2), values))
    refused(made, "'x0' is a real: a private forest supports categories and booleans")


def test_no_rows() -> None:
    made = programs(SMALL)
    made["party2"].arguments["party"] = Party("party2", Table(SCHEMA, np.zeros((0, 6))))
    refused(made, "party2 has 0 rows")


@pytest.mark.parametrize(
    ("count", "change", "said"),
    [
        (2, {}, "at least 3 parties"),
        (3, {"threshold": 2}, "coalitions of at most 1"),
        (5, {"threshold": 3}, "coalitions of at most 2"),
        (3, {"threshold": 0}, "threshold is 0"),
        (3, {"combine": "em", "public_total": False}, "counts add up to it"),
        (3, {"combine": "concatenate", "public_total": False}, "each weighs its own"),
        (3, {"combine": "em", "together": 1}, "together=1"),
        (3, {"combine": "mean"}, "combine must be one of"),
        (3, {"weighting": "best"}, "weighting must be one of"),
        (3, {"validation": 1.0}, "validation"),
        (3, {"threshold": "all"}, "threshold is 'all'"),
        (3, {"together": -1}, "together must be"),
        (3, {"max_iter": 0}, "max_iter must be"),
        (3, {"seed": -1}, "seed must be"),
    ],
)
def test_plans_that_are_none(count: int, change: dict[str, Any], said: str) -> None:
    plan = replace(SMALL, **change)
    with pytest.raises(FederationError, match=said):
        plan.check(count)
    refused(programs(plan, count), said)


def test_thresholds_that_hold() -> None:
    replace(SMALL, threshold=2).check(5)
    replace(SMALL, threshold=1).check(5)


def test_too_many_rows_for_a_secret_number() -> None:
    outcome = memory.run(programs(replace(SMALL, public_total=False, row_bits=7)))
    assert "at most 42 at each of 3 parties" in str(next(iter(outcome.lost.values())))
    assert {e.phase for e in outcome.ledger} == {"agree"}


def test_part_too_small_to_concatenate() -> None:
    """66 units of a party that has one of 2,000 rows: none could weigh 2^−16."""
    made = programs(
        replace(SMALL, combine="concatenate", shape=ForestShape(3, units=66), max_iter=1)
    )
    every = parties(3, rows=1000)
    for party in every[1:]:
        made[party.name].arguments["party"] = party
    made["party0"].arguments["party"] = replace(every[0], table=every[0].table.rows([0, 1]))
    outcome = memory.run(made)
    assert "too small a fraction of all rows" in str(next(iter(outcome.lost.values())))
    assert "deal" not in {e.phase for e in outcome.ledger if e.sender == "party0"}

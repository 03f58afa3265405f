"""A party answers so many rows of questions about a model and no more, whatever engine asks it."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError
from tests.federation.cases import QUICK


def fitted(engine: str, most: dict[str, int] | int | None) -> tuple[fc.FedPC, fc.Table]:
    table = fc.Table.of(np.random.default_rng(0).normal(size=(60, 2)))
    parties = fc.split(table, ["a", "b"], by="columns")
    parties = fc.Federation({p.name: p.table for p in parties}, most_questions=most)
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0)
    return model.fit(parties, engine=engine), table


@pytest.mark.parametrize("engine", ["memory", "process"])
def test_questions_end_with_the_budget(engine: str) -> None:
    model, table = fitted(engine, {"b": 12})
    answers = [model.score_samples(table.rows(slice(i, i + 5))) for i in (0, 5)]
    assert all(np.isfinite(a).all() for a in answers)
    with pytest.raises(FederationError, match=r"b answers at most 12 query rows.*10 were asked"):
        model.score_samples(table.rows(slice(10, 15)))
    model.score_samples(table.rows(slice(10, 12)))  # what is left
    with pytest.raises(FederationError, match="12 were asked before and 1 now"):
        model.expect(table.names[1])
    assert len(model.score_samples(table.select(table.names[:1]).rows(slice(0, 30)))) == 30  # a's


@pytest.mark.parametrize("engine", ["memory", "process"])
def test_rows_that_are_drawn_count(engine: str) -> None:
    """A leaf can be worked out from rows that are drawn from it, all with one row of evidence."""
    model, table = fitted(engine, {"b": 12})
    model.sample(7, random_state=0)
    with pytest.raises(FederationError, match=r"b answers at most 12 query rows"):
        model.sample(6, random_state=0)
    model.score_samples(table.rows(slice(0, 4)))
    with pytest.raises(FederationError, match=r"b answers at most 12 query rows"):
        model.score_samples(table.rows(slice(0, 2)))


def test_no_limit_by_default() -> None:
    model, table = fitted("memory", None)
    for _ in range(3):
        model.score_samples(table)
    assert model.views_["a"].budget.most is None


def test_budgets_are_numbers_of_parties() -> None:
    parties = {"a": {"x": [1.0, 2.0]}, "b": {"x": [2.0, 3.0]}}
    assert fc.Federation(parties, most_questions=3).select(["b"])["b"].most_questions == 3
    with pytest.raises(FederationError, match="most_questions is a number of rows from 0"):
        fc.Federation(parties, most_questions=-1)
    with pytest.raises(FederationError, match="most_questions names 'c'"):
        fc.Federation(parties, most_questions={"c": 3})

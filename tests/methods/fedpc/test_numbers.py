"""Numbers that no honest party sends: refused with the sender blamed, before anything is computed
from them. And honest numbers of absurd scale: a result, or an error at their owner."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FedcircuitsError, PartyLostError
from tests.federation.cases import QUICK, federation, mixed_table
from tests.methods.watched import Watched

ABSURD = {"1e308": 1e308, "1e149": 1e149, "inf": np.inf, "nan": np.nan}


@functools.cache
def small(name: str) -> fc.Federation:
    tables = {p.name: p.table.rows(slice(0, 60)) for p in federation(name)}
    return fc.Federation(tables, allow_collect=True)


def with_number(field: str, number: float, at: int = 0) -> Callable[[Any], Any]:
    def change(fields: Any) -> Any:
        values = np.array(fields[field], np.float64)
        values.reshape(-1)[at] = number
        return fields | {field: values}

    return change


def blamed(parties: fc.Federation, sender: str, tag: str, change: Any, **settings: Any) -> None:
    usual = {"clusters": 2, "ensemble": 1, "random_state": 0}
    engine = Watched({(sender, tag): change})
    with pytest.raises(PartyLostError) as lost:
        fc.FedPC(QUICK, **usual | settings).fit(parties, engine=engine)
    assert f"{sender} sent '{tag}'" in str(lost.value)


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("at", [0, 1, 2, 6, -1], ids=["logs", "gone", "rows", "node", "leaf"])
@pytest.mark.parametrize("number", ABSURD)
def test_statistics_of_em(number: str, at: int) -> None:
    change = with_number("values", ABSURD[number], at)
    blamed(small("rows"), "party 2", "em/counts/0", change, refine=1)


def test_statistics_of_fewer_rows_than_none_or_of_more_than_there_are() -> None:
    for at, number in ((1, -30.0), (2, 10_000.0), (6, -30.0), (6, 500.0)):
        change = with_number("values", number, at)
        blamed(small("rows"), "party 2", "em/counts/0", change, refine=1)


@pytest.mark.parametrize("number", ABSURD)
def test_log_likelihoods_of_em(number: str) -> None:
    change = with_number("values", ABSURD[number])
    blamed(small("columns"), "south", "em/values/0", change, refine=1)


@pytest.mark.parametrize("number", [*ABSURD.values(), -1.0, 1.5])
def test_posteriors_of_em(number: float) -> None:
    change = with_number("posteriors", number)
    blamed(small("columns"), "coordinator", "em/posterior/0", change, refine=1)


def test_posteriors_that_add_up_to_more_than_one() -> None:
    def certain(fields: Any) -> Any:
        return fields | {"posteriors": np.ones_like(fields["posteriors"])}

    blamed(small("columns"), "coordinator", "em/posterior/0", certain, refine=1)


def test_sizes_that_are_not_those_of_clusters() -> None:
    """They add up to the rows, but others were counted."""

    def moved(fields: Any) -> Any:
        (sizes,) = fields["sizes"].values()
        return fields | {"sizes": {0: [sizes[0] + 5, sizes[1] - 5, *sizes[2:]]}}

    blamed(small("columns"), "south", "count/sizes", moved)


# ---------------------------------------------------------------------- questions


@functools.cache
def fitted() -> fc.FedPC:
    return fc.FedPC(QUICK, clusters=2, ensemble=1, random_state=0).fit(federation("columns"))


def refused(party: str, tag: str, change: Any, ask: Callable[[fc.FedPC], object]) -> None:
    model = fitted()
    watched = Watched({(party, tag): change})

    def told(programs: Any, kept: Any = None) -> Any:
        return (watched if party in programs else memory.run)(programs, kept)

    engine, model._engine = model._engine, told
    model.__dict__.pop("_ready", None)
    try:
        with pytest.raises(FedcircuitsError, match=f"{party} sent '{tag}'"):
            ask(model)
    finally:
        model._engine = engine
        model.__dict__.pop("_ready", None)


def holder(variable: str) -> str:
    return next(p.name for p in federation("columns") if variable in p.table.schema)


@pytest.mark.parametrize("number", ABSURD)
def test_answers_of_leaves(number: str) -> None:
    rows = mixed_table().rows(slice(0, 4))
    change = with_number("values", ABSURD[number])
    refused(holder("age"), "query/values", change, lambda m: m.score_samples(rows))


def test_probabilities_above_one() -> None:
    """Of categories, and of regions: no density is so."""
    change = with_number("values", 0.5)
    refused(holder("risk"), "query/values", change, lambda m: m.probability("risk = high"))
    refused(holder("age"), "query/values", change, lambda m: m.probability("age > 40"))


@pytest.mark.parametrize(("at", "number"), [(0, np.nan), (0, np.inf), (-1, -1.0), (-1, np.nan)])
def test_moments_of_leaves(at: int, number: float) -> None:
    change = with_number("moments", number, at)
    refused(holder("age"), "query/values", change, lambda m: m.expect("age"))


def test_completed_rows_lie_in_their_regions() -> None:
    def young(fields: Any) -> Any:
        values = np.array(fields["values"])
        values[~np.isnan(values)] = 0.0
        return fields | {"values": values}

    ask = lambda m: m.sample(3, given="age > 40", random_state=0)  # noqa: E731
    refused(holder("age"), "query/completed", young, ask)


# ---------------------------------------------------------------------- honest ones


@pytest.mark.parametrize("by", ["rows", "columns"])
@pytest.mark.parametrize("refine", [0, 1])
@pytest.mark.parametrize("scale", [1e-200, 1e70, 1e100, 1e300])
def test_numbers_of_absurd_scale(by: Any, refine: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    table = fc.Table.of(rng.normal(size=(60, 3)) * [1, scale, 1])
    parties = fc.split(table, 2, by=by, allow_collect=True)
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, refine=refine, random_state=0)
    if scale > 1e75:
        with pytest.raises(FedcircuitsError, match="numbers beyond ±1e\\+75: scale the column"):
            model.fit(parties)
        return
    answers = model.fit(parties).score_samples(table)
    assert not np.isnan(answers).any() and (answers < np.inf).all()

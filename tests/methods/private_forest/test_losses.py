"""Private learning, masks and openings when something goes wrong: a party that dies in any round,
a wrong bit in any message, numbers that nobody has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.masks import prepare
from fedcircuits.methods.private_forest.model import Forest, ForestView, ModelShares
from fedcircuits.methods.private_forest.structures import ForestShape
from fedcircuits.tables.table import Table
from tests.methods.private_forest.asking import RUN, booleans
from tests.methods.private_forest.learning import (
    PLANS,
    SMALL,
    close,
    opened,
    openings,
    parameters,
    programs,
    trained,
)
from tests.methods.watched import dying, flipped, saying
from tests.privacy.parties import key, names


def preparing(count: int) -> dict[str, Program[Any]]:
    forest = Forest(mixture_of_products(booleans(4), 3))
    views = {me: ForestView(forest, ModelShares(RUN, me, names(count), {})) for me in names(count)}
    return {
        me: Program(prepare, {"view": view, "rows": 2, "key": key(me)})
        for me, view in views.items()
    }


def made(what: str, count: int) -> dict[str, Program[Any]]:
    if what in PLANS:
        return programs(PLANS[what], count)
    return preparing(count)


@functools.cache
def tags(what: str, count: int) -> tuple[str, ...]:
    """Of the messages of party1, one a round; of variants those that "average" does not have."""
    ledger = memory.run(made(what, count)).ledger
    known = tags("average", count) if what.startswith("average,") else ()
    found = tuple(
        dict.fromkeys(e.tag for e in ledger if e.sender == "party1" and e.tag not in known)
    )
    assert found
    return found


def with_change(
    every: Mapping[str, Program[Any]], function: Any, **told: Any
) -> dict[str, Program[Any]]:
    return {**every, "party1": Program(function, {"program": every["party1"], **told})}


# ---------------------------------------------------------------------- dead parties


@pytest.mark.parametrize("what", [*PLANS, "masks"])
def test_a_party_killed_in_every_round(what: str) -> None:
    """Before its first message of a round: whoever still needs it has no result, and blames it.
    What parties compute until then is kept from a whole run."""
    kept = memory.run(made(what, 3)).kept
    for tag in tags(what, 3):
        changed = with_change(made(what, 3), dying, tag=tag, after=0)
        outcome = memory.run(changed, deepcopy(kept))
        assert set(outcome.lost) == set(names(3)), tag
        assert all(_to_blame(me, outcome) == "party1" for me in names(3)), tag


def test_a_party_killed_before_it_opens() -> None:
    made = openings(trained(PLANS["concatenate"]))
    outcome = memory.run(with_change(made, dying, tag="open/model", after=0))
    assert set(outcome.lost) == {"party1", COORDINATOR}
    assert outcome.lost[COORDINATOR].party == "party1"


def _to_blame(me: str, outcome: Outcome[Any]) -> str:
    blamed = outcome.lost[me].party
    while blamed != outcome.lost[blamed].party:
        blamed = outcome.lost[blamed].party
    return blamed


# ---------------------------------------------------------------------- wrong shares


def once() -> Callable[[Any], Any]:
    """A bit of the first message is flipped: wrong by the same to all, shares could still fit."""
    wrong, left = flipped(0, 1), [True]

    def change(payload: Any) -> Any:
        return wrong(payload) if left and left.pop() else payload

    return change


def caught(what: str, count: int) -> None:
    """In every message after the agreement, in learning or when the forest is opened."""
    for tag in tags(what, count):
        if not tag.startswith("agree"):
            changed = with_change(made(what, count), saying, tag=tag, change=once())
            outcome = memory.run(changed)
            lost = outcome.lost or opened(outcome).lost
            assert "inconsistent shares" in " ".join(map(str, lost.values())), tag


@pytest.mark.parametrize("what", PLANS)
def test_a_wrong_bit_is_caught_for_even_numbers(what: str) -> None:
    """It is never another forest."""
    caught(what, 4)


@pytest.mark.parametrize("what", ["concatenate", "em"])
def test_a_wrong_bit_is_caught_for_odd_numbers(what: str) -> None:
    """Where nothing is opened under a mask there are shares to spare."""
    caught(what, 3)


# ---------------------------------------------------------------------- edges of what is learned


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_components_that_no_row_uses(value: float, public: bool) -> None:
    """All rows the same: use of a component may be nothing at every party, and is then divided by
    no zero."""
    plan = replace(SMALL, shape=ForestShape(1, units=6), public_total=public, max_iter=30)
    every = programs(plan)
    for program in every.values():
        own = program.arguments["party"]
        same = Table(own.table.schema, np.full(own.table.values.shape, value))
        program.arguments["party"] = replace(own, table=same)
    outcome = memory.run(every)
    assert not outcome.lost, list(outcome.lost.values())
    found = parameters(outcome)
    found.check(outcome.results["party0"].forest.circuit)
    for name in found:
        assert all(np.isfinite(array).all() for array in found[name].values())
    if not public:
        again = memory.run(
            {me: Program(p.function, {**p.arguments, "plan": replace(plan, public_total=True)})
             for me, p in every.items()}
        )  # fmt: skip
        close(found, parameters(again), 1e-7)

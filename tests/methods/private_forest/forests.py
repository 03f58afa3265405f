"""Parties that learn a small private forest in memory, and what they find when they open it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.federation import Party
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.forests import Shape
from fedcircuits.methods.private_forest.opening import opening
from fedcircuits.methods.private_forest.training import Plan, Trained, member
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table
from tests.methods.private_forest.asking import mixed
from tests.privacy.parties import key, names

FLAT, DEEP = Shape(2, units=3), Shape(2, 1, 1, 2)
SMALL = Plan(FLAT, max_iter=8, seed=3, run="r")
SCHEMA = mixed(4)
OPEN = {"settings; names, kinds and categories of its columns", "a digest of public structures"}


def parties(count: int, rows: int = 60, schema: Schema = SCHEMA) -> list[Party]:
    """Of different sizes and tastes."""
    rng = np.random.default_rng(count)
    found = []
    for i, me in enumerate(names(count)):
        size = rows + 15 * i
        kind = rng.random(size) < (i + 1) / (count + 1)
        columns = [
            (rng.integers(v.size, size=size) * (rng.random(size) < 0.3) + kind) % v.size
            for v in schema
        ]
        found.append(Party(me, Table(schema, np.stack(columns, 1).astype(float)), True))
    return found


def programs(plan: Plan, count: int = 3, **changed: Plan) -> dict[str, Program[Any]]:
    every = parties(count)
    members = tuple(p.name for p in every)
    return {
        p.name: Program(
            member,
            {"party": p, "members": members, "plan": changed.get(p.name, plan), "key": key(p.name)},
        )
        for p in every
    }


def trained(plan: Plan, count: int = 3) -> Outcome[Trained]:
    outcome = memory.run(programs(plan, count))
    assert not outcome.lost, "; ".join(map(str, outcome.lost.values()))
    return outcome


def opened(outcome: Outcome[Trained], allow: bool = True) -> Outcome[Parameters]:
    return memory.run(
        {
            me: Program(
                opening,
                {"me": me, "forest": own.forest, "shares": own.shares, "allow": allow,
                 "key": key(me)},
            )
            for me, own in outcome.results.items()
        }
    )  # fmt: skip


def parameters(outcome: Outcome[Trained]) -> Parameters:
    found = opened(outcome)
    assert not found.lost, "; ".join(map(str, found.lost.values()))
    first, *others = found.results.values()
    assert all(own == first for own in others)
    return first


def close(found: Parameters, expected: Parameters, within: float = 1e-8) -> None:
    assert set(found) == set(expected)
    for name in found:
        for what, array in found[name].items():
            np.testing.assert_allclose(array, expected[name][what], rtol=within, atol=within)

"""Parties that learn a small private forest in memory, and what they find when they open it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcircuits.circuits.graph.circuit import Leaf, Sum
from fedcircuits.circuits.graph.parameters import WEIGHT, Parameters
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.federation.federation import COORDINATOR, Party
from fedcircuits.federation.flow import Program
from fedcircuits.methods.private_forest.model import ForestView, bounded, probabilities
from fedcircuits.methods.private_forest.parameters import LEAF, USED, opening
from fedcircuits.methods.private_forest.parameters import opened as opened_role
from fedcircuits.methods.private_forest.structures import (
    ForestShape,
    joined_parameters,
    learned_alone,
    structure_weights,
    usage,
)
from fedcircuits.methods.private_forest.training import (
    ForestPlan,
    LocalTraining,
    TrainedForest,
    client,
    coordinator,
    member,
)
from fedcircuits.privacy.hidden_sums import secret_sums
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table
from tests.methods.private_forest.asking import mixed
from tests.privacy.parties import key, names

FLAT, DEEP = ForestShape(2, units=3), ForestShape(2, 1, 1, 2)
SMALL = ForestPlan(FLAT, max_iter=8, seed=3, run="r")
TINY = replace(SMALL, shape=ForestShape(1, units=2), max_iter=1, validation=0.0)
PLANS: dict[str, ForestPlan] = {
    "average": TINY,
    "average, deeper": replace(TINY, shape=ForestShape(1, depth=1, units=2)),
    "average, total secret": replace(TINY, public_total=False),  # more steps of logarithms
    "average, together": replace(TINY, together=1),
    "concatenate": replace(TINY, shape=ForestShape(4, units=2), combine="concatenate"),
    "em": replace(TINY, combine="em"),
}
SCHEMA = mixed(4)
OPEN = {
    "its settings; names, kinds and categories of its columns",
    "a digest of the public structures",
}


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


def programs(plan: ForestPlan, count: int = 3, **changed: ForestPlan) -> dict[str, Program[Any]]:
    every = parties(count)
    members = tuple(p.name for p in every)
    return {
        p.name: Program(
            member,
            {
                "party": p,
                "members": members,
                "plan": changed.get(p.name, plan),
                "summation": secret_sums(key(p.name)),
                "key": key(p.name),
            },
        )
        for p in every
    }


def told(plan: ForestPlan, count: int = 3) -> dict[str, Program[Any]]:
    """With a coordinator, who hears what is public."""
    every = programs(plan, count)
    return {
        COORDINATOR: Program(coordinator, {"members": tuple(every)}),
        **{me: Program(client, own.arguments) for me, own in every.items()},
    }


def trained(plan: ForestPlan, count: int = 3) -> Outcome[TrainedForest]:
    outcome = memory.run(programs(plan, count))
    assert not outcome.lost, "; ".join(map(str, outcome.lost.values()))
    return outcome


def openings(outcome: Outcome[TrainedForest], allow: bool = True) -> dict[str, Program[Any]]:
    results = outcome.results
    told = {"members": tuple(results), "forest": next(iter(results.values())).forest}
    return {
        COORDINATOR: Program(opened_role, told),
        **{me: Program(opening, {"view": ForestView(own.forest, own.shares, allow)})
           for me, own in results.items()},
    }  # fmt: skip


def opened(outcome: Outcome[TrainedForest], allow: bool = True) -> Outcome[Any]:
    return memory.run(openings(outcome, allow))


def parameters(outcome: Outcome[TrainedForest]) -> Parameters:
    found = opened(outcome)
    assert not found.lost, "; ".join(map(str, found.lost.values()))
    learned: Parameters = found.results[COORDINATOR]
    return learned


def close(found: Parameters, expected: Parameters, within: float = 1e-8) -> None:
    assert set(found) == set(expected)
    for name in found:
        for what, array in found[name].items():
            np.testing.assert_allclose(array, expected[name][what], rtol=within, atol=within)


# ---------------------------------------------------------------------- in the clear


def alone(
    plan: ForestPlan, count: int, starts: list[Parameters] | None = None
) -> list[tuple[LocalTraining, Parameters]]:
    """What every party learns on its own."""
    found = []
    for i, party in enumerate(parties(count)):
        site = LocalTraining.of(party.table, plan, i, count)
        own = [
            learned_alone(c, s, site.rows, site.held, plan.schedule)
            for c, s in zip(site.circuits, starts or site.starts, strict=True)
        ]
        weights = structure_weights(np.array([v for _, v in own]), plan.weighting)
        found.append((site, joined_parameters(site.circuits, [p for p, _ in own], weights)))
    return found


def mean_by_use(
    outcome: Outcome[TrainedForest], every: list[tuple[LocalTraining, Parameters]]
) -> Parameters:
    """Parameters averaged by how often parties use them, by hand."""
    forest = outcome.results["party0"].forest
    own = [(s.size, bounded(forest, p, 2.0**-LEAF)) for s, p in every]
    values: dict[str, dict[str, Any]] = {}
    for node in forest.circuit.nodes:
        if not isinstance(node, Leaf | Sum):
            continue
        above, below = 0.0, 0.0
        for rows, p in own:
            used = rows * np.maximum(usage(forest.circuit, p)[node.name], 2.0**-USED)
            plain = probabilities(node, p) if isinstance(node, Leaf) else p[node.name][WEIGHT]
            above = above + (used * plain.T).T
            below = below + used
        mean = (above.T / below).T
        if isinstance(node, Sum):
            values[node.name] = {WEIGHT: mean}
        else:
            values[node.name] = {
                "probability": mean[..., 1] if node.family == "bernoulli" else mean
            }
    return Parameters(values)

"""Circuits deeper than a mixture, on shares, against plain evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.circuit import Circuit
from fedcircuits.circuits.graph.structures import poon_domingos, random_binary
from fedcircuits.engines import memory
from fedcircuits.methods.private_forest.evaluation import (
    Mix,
    MixLeft,
    Multiply,
    MultiplyRight,
    rounds_of,
)
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.testing import check_protocol
from tests.methods.private_forest.asking import (
    CLOSE,
    answer,
    booleans,
    circuits,
    exact,
    parameters,
    points,
    ready,
    run,
)

DEEP = ("depth 2", "depth 3", "tree", "shared")


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("name", DEEP)
def test_log_likelihoods(name: str, count: int) -> None:
    forest = Forest(circuits()[name], marginals=True)
    learned = parameters(forest, count)
    x = points(forest.circuit.schema, 6, count, 0.2)
    assert np.abs(answer(forest, learned, count, x) - exact(forest, learned, x)).max() < CLOSE


def test_many_parties() -> None:
    forest = Forest(circuits()["depth 2"])
    learned, x = parameters(forest), points(forest.circuit.schema, 2)
    assert np.abs(answer(forest, learned, 12, x) - exact(forest, learned, x)).max() < CLOSE


@pytest.mark.parametrize(("name", "kind"), [("uneven", Mix), ("uneven pairs", MixLeft)])
def test_children_of_several_scales(name: str, kind: Any) -> None:
    """They are turned to one before they are mixed."""
    forest = Forest(circuits()[name])
    steps = [s for steps in rounds_of(forest, 3) for s in steps if isinstance(s, kind)]
    turns = {t for s in steps for t in (s.turns if isinstance(s, Mix) else (s.turn,))}
    assert max(turns) > 0
    learned, x = parameters(forest), points(forest.circuit.schema, 8)
    assert np.abs(answer(forest, learned, 3, x) - exact(forest, learned, x)).max() < CLOSE


def test_images() -> None:
    forest = Forest(poon_domingos(booleans(6), height=2, width=3, step=1, units=2))
    learned, x = parameters(forest), points(booleans(6), 4)
    assert np.abs(answer(forest, learned, 3, x) - exact(forest, learned, x)).max() < CLOSE


@pytest.mark.parametrize("depth", [2, 3])
def test_edges(depth: int) -> None:
    """Every leaf at its bound, rows at the bottom and at the top of what can be."""
    rng, schema = np.random.default_rng(0), booleans(16)
    forest = Forest(random_binary(schema, depth=depth, repetitions=2, units=2, rng=rng))
    values: dict[str, Any] = dict(parameters(forest).values)
    for leaf in forest.circuit.leaves():
        values[leaf.name] = {"probability": np.full((2, len(leaf.scope)), 2.0**-9.5)}
    learned = type(parameters(forest))(values)
    x = np.concatenate([np.ones((3, 16)), np.zeros((3, 16))])
    expected = exact(forest, learned, x)
    assert expected[0] < -105 and expected[-1] > -0.1
    assert np.abs(answer(forest, learned, 3, x) - expected).max() < CLOSE


def test_rounds() -> None:
    """Two a level, whatever the number of structures; mixed before they are multiplied."""
    for depth, repetitions in ((2, 1), (2, 5), (3, 2)):
        rng = np.random.default_rng(0)
        circuit = random_binary(
            booleans(16), depth=depth, repetitions=repetitions, units=3, rng=rng
        )
        rounds = rounds_of(Forest(circuit), 3)
        assert len(rounds) == 2 * depth
        assert {type(s) for steps in rounds for s in steps} == {MixLeft, MultiplyRight}
    kinds = {type(s) for steps in rounds_of(Forest(circuits()["shared"]), 3) for s in steps}
    assert kinds == {Multiply, Mix, MixLeft, MultiplyRight}
    kinds = {type(s) for steps in rounds_of(Forest(circuits()["tree"]), 3) for s in steps}
    assert kinds == {Multiply, Mix}


def test_what_crosses() -> None:
    """2·depth + 2 rounds of the parties, both checks, and the asker's."""
    circuit: Circuit = circuits()["depth 2"]
    forest = Forest(circuit)
    outcome = run(ready(forest, parameters(forest), 3, points(circuit.schema, 2)))
    levels = [f"query/level/{k}" for k in range(4)]
    expected = ["query/points", "query/exponents", *levels, "query/product", "query/root"]
    tags = [
        t for t in dict.fromkeys(e.tag for e in outcome.ledger) if t.count("/") == 1 or t in levels
    ]
    assert tags == expected
    assert sum(e.tag == "query/level/0" for e in outcome.ledger) == 6


def test_laws_of_protocols() -> None:
    forest = Forest(circuits()["depth 2"])
    x = points(forest.circuit.schema, 2)
    check_protocol(ready(forest, parameters(forest), 3, x), run=memory.run)

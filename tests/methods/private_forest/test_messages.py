"""Every message of private forests, spoiled in every way: its sender is blamed."""

from __future__ import annotations

import numpy as np
import pytest

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.testing import check_messages, check_protocol
from tests.methods.private_forest.asking import (
    booleans,
    circuits,
    parameters,
    points,
    preparing,
    ready,
)
from tests.methods.private_forest.learning import PLANS, openings, programs, told, trained

MOST = 100  # changes of one protocol: the rest is drawn by other runs


@pytest.mark.parametrize("name", ["average", "average, deeper", "concatenate", "em"])
def test_training(name: str) -> None:
    assert check_messages(programs(PLANS[name]), most=MOST) == MOST


@pytest.mark.parametrize("name", ["concatenate", "em"])
def test_what_is_public(name: str) -> None:
    """The last messages of training, to a coordinator."""
    programs = told(PLANS[name])
    assert check_messages(lambda: programs, most=MOST) == MOST
    check_protocol(programs)


def test_masks() -> None:
    forest = Forest(mixture_of_products(booleans(3), 2))
    check_messages(preparing(forest, 3, 2), most=MOST)


@pytest.mark.parametrize("name", ["flat", "depth 2"])
def test_queries(name: str) -> None:
    """Asked by an outsider; a party that asks and sends wrong shares spoils its own answer."""
    forest = Forest(circuits()[name])
    x, learned = points(forest.circuit.schema, 2), parameters(forest)
    check_messages(ready(forest, learned, 3, x), most=MOST)


def test_opening() -> None:
    made = openings(trained(PLANS["concatenate"]))
    assert check_messages(made, rng=np.random.default_rng(1)) > 10

"""Every query against sums over all completions, on random models of all structures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedcircuits.leaves  # noqa: F401
from fedcircuits.circuits.circuit import Circuit
from fedcircuits.circuits.distribution import Distribution
from fedcircuits.circuits.events import parse_event
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.nodes import Fuse, Leaf, Product, Sum
from fedcircuits.circuits.parameters import Parameters
from fedcircuits.circuits.regions import NOTHING
from fedcircuits.circuits.schema import Schema, Variable
from fedcircuits.errors import QueryError
from tests.circuits.reference import Completions, best_path, completions, probability
from tests.circuits.strategies import (
    STRUCTURES,
    Mask,
    Model,
    model_of,
    models,
    random_event,
    random_rows,
    schema_of,
)

SEEDS = st.integers(0, 2**32 - 1)
NAN = np.nan


def log(p: float | Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(p))


def close(found: Array, expected: Array, tolerance: float = 1e-7) -> None:
    """Equal log-values, −∞ included; the tolerance is that of the quadrature."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------- probabilities


@settings(max_examples=60)
@given(models(), SEEDS)
def test_log_likelihood_sums_over_completions(model: Model, seed: int) -> None:
    x = random_rows(model[0].schema, np.random.default_rng(seed), 8)
    totals = [completions(*model, row).total() for row in x]
    close(Distribution(*model).log_likelihood(x), log(np.array(totals)))

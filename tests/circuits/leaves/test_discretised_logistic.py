"""Discretised logistic leaves: the contract, tails, end bins, the fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import logistic

from fedcircuits.circuits.leaves import DiscretisedLogistic
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Variable
from fedcircuits.testing import check_leaf

RULE = DiscretisedLogistic()


def leaf(mean: float, scale: float, top: float = 20.0) -> dict[str, np.ndarray]:
    return {"mean": np.array(mean), "scale": np.array(scale), "top": np.array(top)}


def masses(p: dict[str, np.ndarray]) -> np.ndarray:
    x = torch.arange(float(p["top"]) + 1, dtype=torch.float64)
    tensors = {n: torch.as_tensor(a) for n, a in p.items()}
    return np.exp(RULE.log_density(x, tensors).numpy())


@pytest.mark.parametrize(("mean", "scale"), [(7.3, 1.5), (0.2, 0.4), (25.0, 2.0), (-3.0, 5.0)])
def test_keeps_the_contract(mean: float, scale: float) -> None:
    check_leaf(RULE, leaf(mean, scale), without=("maximum",))  # a fit of moments


@pytest.mark.parametrize(("mean", "scale"), [(7.3, 1.5), (0.0, 0.05), (400.0, 3.0)])
def test_masses_are_differences_of_the_logistic_distribution(mean: float, scale: float) -> None:
    found = masses(leaf(mean, scale))
    cuts = np.concatenate([[-np.inf], np.arange(0.5, 20), [np.inf]])
    below, above = logistic.cdf(cuts, mean, scale), logistic.sf(cuts, mean, scale)
    expected = np.where(cuts[:-1] > mean, above[:-1] - above[1:], below[1:] - below[:-1])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-300)
    assert found.sum() == pytest.approx(1)


def test_far_tails_are_finite() -> None:
    p = {n: torch.as_tensor(a) for n, a in leaf(0.0, 0.05, 255.0).items()}
    assert RULE.log_density(torch.tensor(255.0, dtype=torch.float64), p) == pytest.approx(
        -5090, 1e-3
    )


def test_the_fit_finds_what_was_drawn() -> None:
    p = leaf(90.0, 6.0, 255.0)
    many = {n: np.full(20_000, a) for n, a in p.items()}
    x = RULE.sample(np.random.default_rng(0), many)
    found = RULE.start(x, Variable("x", "count", most=255))
    assert found["mean"] == pytest.approx(90, abs=0.4) and found["scale"] == pytest.approx(
        6, rel=0.05
    )
    assert found["top"] == 255


def test_bad_values_are_named() -> None:
    assert "top" in (RULE.check(leaf(1.0, 1.0, 2.5)) or "")
    assert "scale" in (RULE.check(leaf(1.0, 0.0)) or "")
    with pytest.raises(ParameterError, match="minimum_scale"):
        DiscretisedLogistic(minimum_scale=0.0)

"""The accountant against closed forms."""

from __future__ import annotations

import builtins
from math import exp, log, sqrt
from typing import Any

import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from fedcircuits.errors import ExtraMissingError
from fedcircuits.privacy.differential import epsilon_of, multiplier_for

DELTA = 1e-5


def exact_epsilon(multiplier: float) -> float:
    """Of one continuous Gaussian (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        shift, loss = 1 / (2 * multiplier), epsilon * multiplier
        return float(norm.cdf(shift - loss) - exp(epsilon) * norm.cdf(-shift - loss)) - DELTA

    return float(brentq(excess, 0.0, 50.0))


def renyi_epsilon(multiplier: float) -> float:
    """From ρ = 1/2 multiplier² at the best order (Canonne, Kamath and Steinke 2020, theorem 21)."""
    rho = 1 / (2 * multiplier**2)

    def epsilon(order: float) -> float:
        return rho * order + (log(1 / DELTA) + (order - 1) * log(1 - 1 / order) - log(order)) / (
            order - 1
        )

    return float(minimize_scalar(epsilon, bounds=(1.01, 500), method="bounded").fun)


@pytest.mark.parametrize("multiplier", [0.8, 1.5, 4.0, 12.0])
def test_one_gaussian(multiplier: float) -> None:
    found = epsilon_of([multiplier], DELTA)
    assert exact_epsilon(multiplier) < found < 1.25 * exact_epsilon(multiplier)
    assert found == pytest.approx(renyi_epsilon(multiplier), rel=0.02)


def test_releases_add_up_as_one_of_less_noise() -> None:
    apart = epsilon_of([6.0, 3.0, 3.0], DELTA)
    together = epsilon_of([1 / sqrt(1 / 36 + 1 / 9 + 1 / 9)], DELTA)
    assert apart == pytest.approx(together)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_the_multiplier_spends_what_it_may_and_hardly_less(epsilon: float) -> None:
    multiplier = multiplier_for(epsilon, DELTA)
    assert 0.98 * epsilon < epsilon_of([multiplier], DELTA) <= epsilon * (1 + 1e-5)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ExtraMissingError, match=r"pip install 'fedcircuits\[dp\]'"):
        multiplier_for(1.0, DELTA)

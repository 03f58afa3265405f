import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import log_ndtr, ndtr

from fedcircuits.circuits.leaves.normal import (
    interval_moments,
    interval_quantile,
    log_interval_mass,
)

ENDS = st.tuples(st.floats(-30, 30), st.floats(1e-3, 20))


@pytest.mark.parametrize(("a", "b"), [(-1.0, 2.0), (-np.inf, 0.3), (2.0, np.inf), (0.1, 0.2)])
def test_moments_are_integrals(a: float, b: float) -> None:
    found = interval_moments(np.array(a), np.array(b))
    for power in range(3):
        right = integrate.quad(lambda z, k=power: z**k * stats.norm.pdf(z), a, b)[0]
        assert found[power] == pytest.approx(right, rel=1e-9)


def test_upper_tail_keeps_relative_precision() -> None:
    mass = interval_moments(np.array(30.0), np.array(np.inf))[0]
    assert np.log(mass) == pytest.approx(log_ndtr(-30.0), rel=1e-13)


@given(ENDS, st.floats(1e-6, 1 - 1e-6))
def test_quantile_stays_inside_and_divides_the_mass(ends: tuple[float, float], u: float) -> None:
    a, b = np.array(ends[0]), np.array(ends[0] + ends[1])
    z = interval_quantile(np.array(u), a, b)
    assert a <= z <= b
    whole, below = interval_moments(a, b)[0], interval_moments(a, z)[0]
    assert below / whole == pytest.approx(u, abs=1e-7)


def test_quantile_beyond_all_representable_mass() -> None:
    z = interval_quantile(np.array([0.1, 0.5, 0.9]), np.full(3, 100.0), np.full(3, np.inf))
    assert np.all(z > 100) and np.all(z < 100.1) and np.all(np.diff(z) > 0)
    assert (z[1] - 100) * 100 == pytest.approx(np.log(2), rel=1e-3)  # nearly exponential there


@given(ENDS)
def test_log_mass_agrees_with_mass(ends: tuple[float, float]) -> None:
    a, b = ends[0], ends[0] + ends[1]
    found = log_interval_mass(*torch.tensor([a, b], dtype=torch.float64))
    right = np.log(interval_moments(np.array(a), np.array(b))[0])
    assert float(found) == pytest.approx(float(right), abs=1e-9, rel=1e-9)


@given(ENDS)
def test_log_mass_in_single_precision(ends: tuple[float, float]) -> None:
    a = torch.tensor(ends[0], dtype=torch.float32)
    b = a + ends[1]
    wide = log_interval_mass(a.double(), b.double())
    assert float(log_interval_mass(a, b)) == pytest.approx(float(wide), rel=1e-4, abs=2e-4)


def test_log_mass_of_half_lines_and_its_gradient() -> None:
    centre = torch.tensor([0.0, 5.0, -40.0, 1e6], dtype=torch.float64, requires_grad=True)
    infinity = torch.tensor(torch.inf)
    below = log_interval_mass(-infinity - centre, centre)
    above = log_interval_mass(centre, infinity + centre)
    assert below.detach().numpy() == pytest.approx(log_ndtr(centre.detach().numpy()), rel=1e-12)
    assert np.exp(above[0].item()) == pytest.approx(ndtr(0.0))
    gradient = torch.autograd.grad((below + above).sum(), centre)[0]
    assert torch.isfinite(gradient).all()

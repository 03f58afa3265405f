import numpy as np
import pytest
import torch
from scipy import stats

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import GaussianMass
from fedcircuits.testing import check_leaf

LEVELS = torch.arange(256) / 255


def _p(mean: float, variance: float) -> dict[str, torch.Tensor]:
    return {
        "mean": torch.tensor(mean, dtype=torch.float64),
        "variance": torch.tensor(variance, dtype=torch.float64),
    }


def test_keeps_the_contract() -> None:
    check_leaf(GaussianMass(), {"mean": [0.5, 0.2, 0.7], "variance": [0.01, 1e-4, 0.004]})


def test_keeps_it_where_the_ends_hold_much_mass() -> None:
    extreme = {"mean": [0.0, 1.3, -2.0, 0.5, 0.5], "variance": [0.01, 0.01, 0.25, 100.0, 1e-6]}
    check_leaf(GaussianMass(), extreme, without={"maximum"})  # the fit is of clipped moments


def test_inner_values_follow_the_papers_formula() -> None:
    x, mean, deviation = 77 / 255, 0.4, 0.1
    right = np.diff(stats.norm(mean, deviation).cdf([x, x + 1 / 255]))[0]
    found = GaussianMass().log_density(torch.tensor(x, dtype=torch.float64), _p(mean, deviation**2))
    assert float(found) == pytest.approx(np.log(right), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [-3.0, 0.0, 0.37, 1.0, 4.0])
@pytest.mark.parametrize("deviation", [1e-3, 0.05, 1.0, 30.0])
def test_all_256_values_sum_to_one(dtype: torch.dtype, mean: float, deviation: float) -> None:
    p = {k: v.to(dtype) for k, v in _p(mean, deviation**2).items()}
    found = GaussianMass().log_density(LEVELS.to(dtype), p)
    assert float(torch.logsumexp(found.double(), 0)) == pytest.approx(0.0, abs=2e-4)


def test_gradients_are_finite_in_the_far_tail() -> None:
    p = {k: v.float().requires_grad_() for k, v in _p(0.1, 1e-6).items()}
    GaussianMass().log_density(LEVELS, p).sum().backward()
    assert all(torch.isfinite(v.grad).all() for v in p.values() if v.grad is not None)
    assert p["mean"].grad is not None


def test_values_off_the_grid_are_impossible() -> None:
    x = torch.tensor([-1 / 255, 256 / 255, 0.5 / 255, 300.0]).double()
    assert (GaussianMass().log_density(x, _p(0.5, 0.1)) <= IMPOSSIBLE).all()


def test_masses_of_empty_intervals() -> None:
    p = {"mean": np.array([0.5]), "variance": np.array([0.1])}
    assert GaussianMass().mass(p, 0.1 / 255, 0.9 / 255).tolist() == [0.0]


@pytest.mark.parametrize("rounded", [np.float64, np.float32])
def test_events_are_sums_of_masses(rounded: type[np.floating]) -> None:
    """Ends at levels, as they come in images of either precision, closed and open, and between."""
    rule, levels = GaussianMass(), np.arange(256) / 255
    p = {"mean": np.array([0.3, 0.8, -0.2]), "variance": np.array([0.02, 1e-5, 3.0])}
    tensors = {k: torch.from_numpy(v) for k, v in p.items()}
    masses = rule.log_density(torch.from_numpy(levels)[:, None], tensors).exp().numpy()
    ends = levels.astype(rounded).astype(np.float64)
    for k in range(256):
        above, at_least = masses[k + 1 :].sum(0), masses[k:].sum(0)
        closed, half = np.nextafter(ends[k], -np.inf), levels[k] + 0.5 / 255
        for lower, right in ((ends[k], above), (closed, at_least), (half, above)):
            np.testing.assert_allclose(rule.mass(p, lower, np.inf), right, rtol=1e-9, atol=1e-300)
            np.testing.assert_allclose(
                rule.moments(p, lower, np.inf)[0], right, rtol=1e-9, atol=1e-300
            )
        for upper, right in ((ends[k], 1 - at_least), (np.nextafter(ends[k], np.inf), 1 - above)):
            np.testing.assert_allclose(rule.mass(p, -np.inf, upper), right, atol=1e-12)

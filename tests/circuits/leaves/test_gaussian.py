import numpy as np
import pytest
import torch
from scipy import stats

from fedcircuits.circuits.leaves import Gaussian
from fedcircuits.errors import ParameterError
from fedcircuits.testing import check_leaf

STANDARD = {"mean": np.array(0.0), "variance": np.array(1.0)}


def test_keeps_the_contract() -> None:
    check_leaf(Gaussian(), {"mean": [0.0, -3.0, 1e3], "variance": [1.0, 1e-4, 25.0]})
    check_leaf(Gaussian(), {"mean": 0.0, "variance": 1e8})
    check_leaf(Gaussian(minimum_variance=1e-12), {"mean": 1e-4, "variance": 1e-8})


def test_density_is_that_of_scipy() -> None:
    x = np.linspace(-5, 5, 11)
    p = {"mean": torch.tensor(0.5), "variance": torch.tensor(4.0)}
    found = Gaussian().log_density(torch.as_tensor(x), p)
    assert found.numpy() == pytest.approx(stats.norm(0.5, 2.0).logpdf(x), rel=1e-6)


def test_far_tails_keep_relative_precision() -> None:
    right = stats.norm.sf(20.0) - stats.norm.sf(21.0)
    assert Gaussian().mass(STANDARD, 20.0, 21.0) == pytest.approx(right, rel=1e-12)
    x = Gaussian().sample(
        np.random.default_rng(1), {k: np.full(500, v) for k, v in STANDARD.items()}, 60.0
    )
    assert np.all(x >= 60) and np.mean(x - 60) * 60 == pytest.approx(1.0, abs=0.2)


def test_variance_keeps_its_bounds() -> None:
    rule = Gaussian(minimum_variance=0.5, maximum_variance=2.0)
    sums = np.array([[3.0, 0.0], [3.0, 300.0]])  # constant 1, and spread 10
    fitted = rule.maximise(
        np.array([3.0, 3.0]), sums, {k: np.full(2, v) for k, v in STANDARD.items()}
    )
    assert fitted["variance"].tolist() == [0.5, 2.0]
    assert fitted["mean"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_bounds_must_be_an_interval(low: float, high: float) -> None:
    with pytest.raises(ParameterError, match="minimum_variance"):
        Gaussian(low, high)


def test_check_names_the_parameter() -> None:
    assert "variance" in str(Gaussian().check(STANDARD | {"variance": np.array(0.0)}))
    assert "mean" in str(Gaussian().check(STANDARD | {"mean": np.array(np.nan)}))

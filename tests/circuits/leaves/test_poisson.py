import numpy as np
import pytest
import torch
from scipy import stats

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import Poisson
from fedcircuits.errors import ParameterError
from fedcircuits.testing import check_leaf


def test_keeps_the_contract() -> None:
    check_leaf(Poisson(), {"rate": [1e-3, 0.7, 12.0, 1000.0]})


def test_keeps_it_at_large_rates_in_double_precision() -> None:
    check_leaf(Poisson(), {"rate": 1e5}, without={"single precision"})  # x log rate − rate cancels


def test_mass_and_quantile_are_those_of_scipy() -> None:
    rate = np.array([0.2, 3.0, 40.0])
    right = stats.poisson.cdf(5, rate) - stats.poisson.cdf(2, rate)
    assert Poisson().mass({"rate": rate}, 2.5, 5.5) == pytest.approx(right, rel=1e-12)
    for u in (1e-4, 0.3, 0.99):
        found = Poisson().quantile(np.array(u), {"rate": rate})
        assert found.tolist() == stats.poisson.ppf(u, rate).tolist()


def test_far_tail() -> None:
    mass = Poisson().mass({"rate": np.array(2.0)}, 79.5, np.inf)
    assert mass == pytest.approx(stats.poisson.pmf(np.arange(80, 120), 2.0).sum(), rel=1e-10)
    x = Poisson().sample(np.random.default_rng(0), {"rate": np.full(300, 2.0)}, 79.5)
    assert x.min() == 80 and x.max() < 85


@pytest.mark.parametrize(("lower", "upper", "nearest"), [(900.5, np.inf, 901), (-np.inf, 3.5, 3)])
def test_interval_without_representable_mass(lower: float, upper: float, nearest: int) -> None:
    rate = np.array(1.0 if lower > 0 else 1e5)
    assert Poisson().sample(np.random.default_rng(0), {"rate": rate}, lower, upper) == nearest


def test_rows_outside_do_not_count() -> None:
    p = {"rate": torch.tensor(2.0)}
    statistics = Poisson().statistics(torch.tensor([4.0, -1.0, 0.5]), p)
    assert torch.isfinite(statistics).all()
    assert (Poisson().log_density(torch.tensor([-1.0, 0.5]), p) <= IMPOSSIBLE).all()
    fitted = Poisson().maximise(
        np.array(3.0), statistics.sum(-1).double().numpy(), {"rate": np.array(2.0)}
    )
    assert fitted["rate"] == 4.0


def test_rate_has_a_floor() -> None:
    fitted = Poisson(minimum_rate=0.1).maximise(np.array(5.0), np.zeros(3), {"rate": np.array(2.0)})
    assert fitted["rate"] == 0.1
    with pytest.raises(ParameterError, match="minimum_rate"):
        Poisson(0.0)

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import digamma

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import Exponential, Gamma
from fedcircuits.errors import ParameterError
from fedcircuits.testing import check_leaf

P = {"shape": np.array(2.5), "rate": np.array(0.5)}


def test_gamma_keeps_the_contract() -> None:
    check_leaf(Gamma(), {"shape": [0.3, 1.0, 2.5, 100.0], "rate": [1.0, 0.01, 50.0, 3.0]})
    check_leaf(Gamma(), {"shape": 0.05, "rate": 1.0})
    check_leaf(Gamma(), {"shape": 1e5, "rate": 0.01}, without={"single precision"})


def test_exponential_keeps_the_contract() -> None:
    check_leaf(Exponential(), {"rate": [1.0, 0.001, 1e4]})


def test_density_is_that_of_scipy() -> None:
    x = np.linspace(0.1, 20, 9)
    tensors = {name: torch.as_tensor(value) for name, value in P.items()}
    found = Gamma().log_density(torch.as_tensor(x), tensors)
    assert found.numpy() == pytest.approx(stats.gamma(2.5, scale=2.0).logpdf(x), rel=1e-12)
    assert Gamma().log_density(torch.tensor(0.0), tensors) <= IMPOSSIBLE


def test_exponential_is_gamma_of_shape_one() -> None:
    x = torch.linspace(0.01, 9, 7).double()
    rate = torch.tensor(0.7).double()
    right = Gamma().log_density(x, {"shape": torch.ones_like(rate), "rate": rate})
    assert Exponential().log_density(x, {"rate": rate}).numpy() == pytest.approx(right.numpy())
    same = Gamma().moments({"shape": np.array(1.0), "rate": np.array(0.7)}, 1.0, 30.0)
    assert Exponential().moments({"rate": np.array(0.7)}, 1.0, 30.0) == pytest.approx(same)


@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 7.0, 1e4, 9e5])
def test_shape_is_found_from_its_exact_statistics(shape: float) -> None:
    sums = np.array([shape / 3.0, digamma(shape) - np.log(3.0), 0.0])
    fitted = Gamma().maximise(np.array(1.0), sums, P)
    assert fitted["shape"] == pytest.approx(shape, rel=1e-3)
    assert fitted["rate"] == pytest.approx(3.0, rel=1e-3)


def test_constant_data_end_at_the_largest_shape() -> None:
    sums = np.array([200.0, 100 * np.log(2.0), 0.0])
    fitted = Gamma(maximum_shape=500.0).maximise(np.array(100.0), sums, P)
    assert (fitted["shape"], fitted["rate"]) == (500.0, 250.0)


def test_rows_outside_do_not_count() -> None:
    tensors = {name: torch.as_tensor(value) for name, value in P.items()}
    x = torch.tensor([1.0, 2.0, 3.0, -1.0, 0.0]).double()
    sums = Gamma().statistics(x, tensors).sum(-1).numpy()
    inside = Gamma().statistics(x[:3], tensors).sum(-1).numpy()
    some = Gamma().maximise(np.array(3.0), inside, P)
    assert Gamma().maximise(np.array(5.0), sums, P) == some
    none = Gamma().maximise(np.array(2.0), sums - inside, P)
    assert none == P


def test_far_tail_draws() -> None:
    p = {name: np.full(500, value) for name, value in P.items()}
    x = Gamma().sample(np.random.default_rng(3), p, 200.0)
    assert np.all(x >= 200) and np.mean(x - 200) == pytest.approx(2.0, rel=0.2)


def test_settings_are_checked() -> None:
    with pytest.raises(ParameterError, match="minimum_shape"):
        Gamma(minimum_shape=2.0, maximum_shape=1.0)
    with pytest.raises(ParameterError, match="minimum_mean"):
        Exponential(minimum_mean=0.0)
    assert "rate" in str(Exponential().check({"rate": np.array(-1.0)}))
    assert "shape" in str(Gamma().check(P | {"shape": np.array(0.0)}))

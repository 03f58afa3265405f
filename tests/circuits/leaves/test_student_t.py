import numpy as np
import pytest
import torch
from scipy import integrate, stats

from fedcircuits.circuits.leaves import StudentT
from fedcircuits.errors import ParameterError
from fedcircuits.testing import check_leaf


def _p(degrees: float, location: float = 0.0, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {
        "location": np.array(location),
        "scale": np.array(scale),
        "degrees": np.array(degrees),
    }


def test_keeps_the_contract() -> None:
    p = {"location": [0.0, 5.0, -2.0, 1.0], "scale": [1.0, 0.1, 30.0, 1.0]}
    check_leaf(StudentT(), p | {"degrees": [3.0, 10.0, 2.0, 1.0]})


def test_keeps_it_near_the_poles_of_its_moments() -> None:
    check_leaf(StudentT(), _p(0.5) | {"degrees": np.array([0.5, 1.5, 2.0005, 300.0])})
    check_leaf(StudentT(), _p(1e6), without={"gradients"})  # differences drown in rounding


@pytest.mark.parametrize("degrees", [0.6, 1.0, 1.0001, 1.999, 1.9995, 2.0, 2.0005, 2.002, 5.0])
@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 4.0), (10.0, 300.0), (-0.2, 0.1)])
def test_partial_moments(degrees: float, lower: float, upper: float) -> None:
    found = StudentT().moments(_p(degrees, 0.3, 1.5), lower, upper)
    rule = stats.t(degrees, 0.3, 1.5)
    for power in range(3):
        right = integrate.quad(lambda x, k=power: x**k * rule.pdf(x), lower, upper, epsabs=0)[0]
        assert found[power] == pytest.approx(right, rel=1e-7)


def test_moments_that_do_not_exist() -> None:
    assert StudentT().moments(_p(2.0), -np.inf, np.inf)[2] == np.inf
    assert StudentT().moments(_p(1.0), 0.0, np.inf)[1] == np.inf
    assert StudentT().moments(_p(1.0), -np.inf, 0.0)[1] == -np.inf
    assert np.isnan(StudentT().moments(_p(1.0), -np.inf, np.inf)[1])
    assert StudentT().moments(_p(4.0), -np.inf, np.inf) == pytest.approx([1.0, 0.0, 2.0])


def test_far_tail() -> None:
    right = stats.t(3.0).sf(1e6)
    assert StudentT().mass(_p(3.0), 1e6, np.inf) == pytest.approx(right, rel=1e-10)


def test_large_degrees_are_gaussian_in_single_precision() -> None:
    x = torch.linspace(-3, 3, 7)
    p = {name: torch.tensor(float(value)) for name, value in _p(1e6).items()}
    found = StudentT().log_density(x, p)
    assert found.numpy() == pytest.approx(stats.norm.logpdf(x.numpy()), abs=1e-4)


def test_scale_has_a_floor_and_degrees_stay() -> None:
    p = _p(4.0, 1.0)
    tensors = {name: torch.as_tensor(value) for name, value in p.items()}
    sums = StudentT().statistics(torch.ones(5).double(), tensors).sum(-1).numpy()
    fitted = StudentT(minimum_scale=0.25).maximise(np.array(5.0), sums, p)
    assert (fitted["location"], fitted["scale"], fitted["degrees"]) == (1.0, 0.25, 4.0)
    with pytest.raises(ParameterError, match="minimum_scale"):
        StudentT(0.0)


def test_check_names_the_parameter() -> None:
    for name in ("scale", "degrees"):
        assert name in str(StudentT().check(_p(3.0) | {name: np.array(-1.0)}))
    assert "location" in str(StudentT().check(_p(3.0) | {"location": np.array(np.inf)}))

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import Bernoulli, Categorical, Indicator, finite
from fedcircuits.errors import ParameterError
from fedcircuits.testing import check_leaf

VALUES = np.arange(4.0)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0, 1))
def test_quantile_is_the_smallest_value_that_reaches_u(raw: list[float], u: float) -> None:
    probability = np.add(raw, [0, 1e-3, 0, 0]) / (sum(raw) + 1e-3)
    x = int(finite.quantile(VALUES, probability, np.array(u)))
    cumulative = np.cumsum(probability)
    assert probability[x] > 0
    assert cumulative[x] >= u - 1e-9
    assert x == 0 or cumulative[x - 1] <= u + 1e-9


def test_draws_from_an_empty_interval_stay_inside() -> None:
    probability = np.tile([0.5, 0.5, 0.0, 0.0], (20, 1))
    x = finite.sample(np.random.default_rng(0), VALUES, probability, 1.5, 3.5)
    assert set(x) <= {2.0, 3.0}


def test_smoothing_of_frequencies() -> None:
    sums = np.array([[3.0, 0.0], [1.0, 0.0]])
    old = np.array([[0.5, 0.5], [0.9, 0.1]])
    found = finite.frequencies(np.array([4.0, 0.0]), sums, 1.0, old)
    assert found.tolist() == [[4 / 6, 2 / 6], [0.9, 0.1]]


@pytest.mark.parametrize("family", [Bernoulli, Categorical])
def test_smoothing_must_not_be_negative(family: type[Bernoulli] | type[Categorical]) -> None:
    with pytest.raises(ParameterError, match="smoothing"):
        family(smoothing=-1.0)


def test_bernoulli_keeps_the_contract() -> None:
    check_leaf(Bernoulli(), {"probability": [0.3, 0.999, 1e-6, 1.0, 0.0]})


def test_bernoulli_has_no_impossible_value() -> None:
    for dtype in (torch.float32, torch.float64):
        p = {"probability": torch.tensor([0.0, 1.0, 1 - 1e-12], dtype=dtype)}
        found = Bernoulli().log_density(torch.tensor([[0.0], [1.0]], dtype=dtype), p)
        assert found.min() == pytest.approx(np.log(1e-12), rel=1e-4)


def test_categorical_keeps_the_contract() -> None:
    three = [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [1e-9, 1 - 2e-9, 1e-9]]
    check_leaf(Categorical(), {"probability": three})
    check_leaf(Categorical(), {"probability": [0.2, 0.8]})
    check_leaf(Categorical(), {"probability": np.full(40, 1 / 40)})
    check_leaf(Categorical(smoothing=0.0), {"probability": [0.1, 0.2, 0.7]})


def test_categorical_zero_is_impossible_with_a_gradient() -> None:
    p = torch.tensor([0.0, 1.0], requires_grad=True)
    found = Categorical().log_density(torch.tensor([0.0, 1.0]), {"probability": p})
    assert found[0] <= IMPOSSIBLE and found[1] == 0
    found[1].backward()
    assert p.grad is not None and p.grad.tolist() == [0.0, 1.0]


def test_categorical_must_sum_to_one() -> None:
    assert "sum" in str(Categorical().check({"probability": np.array([0.5, 0.6])}))


def test_indicator_keeps_the_contract() -> None:
    check_leaf(Indicator(), {"code": [0.0, 1.0]})


def test_indicator_units_tell_codes_apart() -> None:
    p = {"code": torch.arange(3.0)}
    found = Indicator().log_density(torch.arange(3.0)[:, None], p)
    assert found.exp().tolist() == torch.eye(3).tolist()
    assert "whole" in str(Indicator().check({"code": np.array([0.5])}))


def test_what_rounds_below_zero_counts_as_zero() -> None:
    """As what is left of a sum when one of its parts is subtracted again."""
    old = {"probability": np.array([0.5, 0.5])}
    fitted = Categorical(smoothing=0.0).maximise(np.array(1e-16), np.array([-1e-17, 1e-16]), old)
    assert fitted["probability"].tolist() == [0.0, 1.0]

import numpy as np
import pytest
import torch
from scipy import stats

import fedcircuits as fc
from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import Binomial
from fedcircuits.errors import ParameterError
from fedcircuits.learning.batches import InMemory
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.tables.schema import Variable
from fedcircuits.testing import check_leaf

COUNT = Variable("n", "count")


def test_keeps_the_contract() -> None:
    check_leaf(
        Binomial(),
        {"probability": [0.5, 0.3, 0.9, 0.02, 0.7], "trials": [1.0, 2.0, 7.0, 40.0, 255.0]},
    )


def test_keeps_it_where_nearly_all_mass_is_at_an_end() -> None:
    ends = {"probability": [0.0, 1.0, 1e-6, 1 - 1e-6], "trials": [3.0, 3.0, 255.0, 255.0]}
    check_leaf(Binomial(), ends)


def test_keeps_it_for_many_trials_in_double_precision() -> None:
    many = {"probability": [0.4, 1e-4], "trials": [2e4, 2e4]}
    check_leaf(Binomial(), many, without={"single precision"})  # n log q cancels


@pytest.mark.parametrize("trials", [1, 2, 30])
def test_density_mass_and_quantile_are_those_of_scipy(trials: int) -> None:
    q = np.array([0.01, 0.4, 0.97])
    p = {"probability": q, "trials": np.full(3, float(trials))}
    x = np.arange(trials + 1.0)[:, None]
    tensors = {n: torch.from_numpy(a) for n, a in p.items()}
    found = Binomial().log_density(torch.from_numpy(x), tensors)
    assert found.numpy() == pytest.approx(stats.binom.logpmf(x, trials, q), rel=1e-9, abs=1e-12)
    right = stats.binom.cdf(5, trials, q) - stats.binom.cdf(1, trials, q)
    assert Binomial().mass(p, 1.5, 5.5) == pytest.approx(right, rel=1e-9, abs=1e-15)
    for u in (1e-4, 0.3, 0.99):
        found_at = Binomial().quantile(np.array(u), p)
        assert found_at.tolist() == stats.binom.ppf(u, trials, q).tolist()


def test_far_tail() -> None:
    p = {"probability": np.array(0.01), "trials": np.array(255.0)}
    right = stats.binom.pmf(np.arange(200, 256), 255, 0.01).sum()
    assert Binomial().mass(p, 199.5, np.inf) == pytest.approx(right, rel=1e-9)
    many = {name: np.repeat(value, 200) for name, value in p.items()}
    x = Binomial().sample(np.random.default_rng(0), many, 99.5)
    assert x.min() == 100 and x.max() < 105


@pytest.mark.parametrize(("lower", "upper", "nearest"), [(199.5, np.inf, 200), (-np.inf, 3.5, 3)])
def test_interval_without_representable_mass(lower: float, upper: float, nearest: int) -> None:
    q = 1e-12 if lower > 0 else 1 - 1e-12
    p = {"probability": np.array(q), "trials": np.array(255.0)}
    assert Binomial().sample(np.random.default_rng(0), p, lower, upper) == nearest


def test_leaves_of_different_trials_stand_beside_each_other() -> None:
    p = {"probability": torch.tensor([0.5, 0.5]), "trials": torch.tensor([2.0, 4.0])}
    found = Binomial().log_density(torch.tensor([[2.0], [3.0]]), p).exp()
    assert found[0].tolist() == pytest.approx([0.25, 0.375])
    assert found[1].tolist() == pytest.approx([0.0, 0.25])


def test_rows_outside_do_not_count() -> None:
    p = {"probability": torch.tensor(0.5), "trials": torch.tensor(10.0)}
    x = torch.tensor([4.0, -1.0, 0.5, 11.0])
    assert (Binomial().log_density(x[1:], p) <= IMPOSSIBLE).all()
    sums = Binomial().statistics(x, p).sum(-1).double().numpy()
    before = {"probability": np.array(0.9), "trials": np.array(10.0)}
    fitted = Binomial(smoothing=0.0).maximise(np.array(4.0), sums, before)
    assert fitted["probability"] == pytest.approx(0.4) and fitted["trials"] == 10


def test_learning_starts_with_room_for_what_was_seen() -> None:
    assert Binomial().start(np.array([3.0, 7.0]), COUNT)["trials"] == 255
    assert Binomial().start(np.array([3.0, 700.0]), COUNT)["trials"] == 700
    found = Binomial(trials=10).start(np.array([3.0, 7.0]), COUNT)
    assert found["trials"] == 10 and found["probability"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("trials", [0, 2.5, -1, float("inf")])
def test_trials_that_are_no_number(trials: float) -> None:
    with pytest.raises(ParameterError, match="trials must be a whole number"):
        Binomial(trials=trials)  # type: ignore[arg-type]
    p = {"probability": np.array(0.5), "trials": np.array(float(trials))}
    assert "trials" in str(Binomial().check(p))


def mixture(q: list[float], trials: float) -> fc.CircuitModel:
    schema = fc.Schema((COUNT,))
    circuit = fc.Circuit((fc.Leaf("n", "binomial", ("n",), 2), fc.Sum("root", ("n",))), schema)
    leaf = {"probability": np.array(q)[:, None], "trials": np.full((2, 1), trials)}
    return fc.CircuitModel(
        circuit, fc.Parameters({"n": leaf, "root": {"weight": np.array([[0.3, 0.7]])}})
    )


def test_queries_of_a_circuit_against_enumeration() -> None:
    model, x = mixture([0.2, 0.8], 6.0), np.arange(7.0)
    mass = 0.3 * stats.binom.pmf(x, 6, 0.2) + 0.7 * stats.binom.pmf(x, 6, 0.8)
    assert np.exp(model.score_samples(x[:, None])) == pytest.approx(mass)
    assert model.probability("n >= 2 and n < 5") == pytest.approx(mass[2:5].sum())
    mean, variance = model.expect("n", given="n > 2").loc["n"]
    above = mass[3:] / mass[3:].sum()
    assert mean == pytest.approx(above @ x[3:])
    assert variance == pytest.approx(above @ x[3:] ** 2 - mean**2)
    assert model.sample(50, given="n > 4", random_state=0)["n"].isin([5, 6]).all()


def test_em_finds_the_components_of_grey_values() -> None:
    truth = mixture([0.15, 0.6], 255.0)
    rows = truth.sample(3_000, random_state=0).to_numpy(dtype=np.float64, copy=True)
    start = mixture([0.3, 0.4], 255.0)
    found = maximise_likelihood(
        start.circuit_, start.parameters_, InMemory(rows), schedule=EMSchedule(epochs=60),
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert found.parameters["n"]["probability"].ravel() == pytest.approx([0.15, 0.6], abs=0.005)
    assert found.parameters["n"]["trials"].tolist() == [[255.0], [255.0]]
    assert (np.diff(found.history) > -1e-9).all()

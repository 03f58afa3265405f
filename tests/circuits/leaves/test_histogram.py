import numpy as np
import pytest
import torch

from fedcircuits.circuits.graph.family import IMPOSSIBLE
from fedcircuits.circuits.leaves import CountHistogram, Histogram
from fedcircuits.errors import ParameterError
from fedcircuits.tables.schema import Variable
from fedcircuits.testing import check_leaf

P = {"edges": np.array([0.0, 1.0, 3.0]), "probability": np.array([0.4, 0.6])}
T = {name: torch.as_tensor(value) for name, value in P.items()}


def test_keeps_the_contract() -> None:
    edges = [[0.0, 1.0, 3.0, 10.0], [-1e3, -5.0, 2.0, 2.001]]
    check_leaf(Histogram(), {"edges": edges, "probability": [[0.2, 0.3, 0.5], [0.5, 0.0, 0.5]]})
    check_leaf(Histogram(), {"edges": [0.0, 1.0], "probability": [1.0]})


def test_counts_keep_the_contract() -> None:
    edges = [[-0.5, 0.5, 3.5, 100.5], [4.5, 5.5, 6.5, 7.5]]
    probability = [[0.2, 0.3, 0.5], [0.5, 0.0, 0.5]]
    check_leaf(CountHistogram(), {"edges": edges, "probability": probability})


def test_density_at_and_outside_the_edges() -> None:
    found = Histogram().log_density(torch.tensor([-0.1, 0.0, 1.0, 3.0, 3.1]).double(), T).exp()
    assert found.numpy() == pytest.approx([0.0, 0.4, 0.3, 0.3, 0.0])
    assert Histogram().log_density(torch.tensor(-0.1), T) <= IMPOSSIBLE


def test_units_with_edges_of_their_own() -> None:
    p = {
        "edges": torch.tensor([[0.0, 1.0, 2.0], [0.0, 4.0, 8.0]]),
        "probability": torch.tensor([[0.5, 0.5], [0.2, 0.8]]),
    }
    found = Histogram().log_density(torch.tensor([[1.5], [5.0]]), p).exp()
    assert found.numpy() == pytest.approx(np.array([[0.5, 0.05], [0.0, 0.2]]))
    assert Histogram().statistics(torch.tensor([[1.5], [5.0]]), p).shape == (2, 2, 2)


def test_rows_outside_do_not_count() -> None:
    x = torch.tensor([0.5, 2.0, 99.0]).double()
    sums = Histogram().statistics(x, T).sum(-1).numpy()
    fitted = Histogram(smoothing=0.0).maximise(np.array(3.0), sums, P)
    assert fitted["probability"].tolist() == [0.5, 0.5]
    assert fitted["edges"] is P["edges"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"edges": np.array([0.0, 1.0])}, "one more"),
        ({"edges": np.array([0.0, 3.0, 1.0])}, "ascending"),
        ({"probability": np.array([0.4, 0.7])}, "sum"),
    ],
)
def test_check_says_what_is_wrong(change: dict[str, np.ndarray], word: str) -> None:
    assert word in str(Histogram().check(P | change))


def test_start_reaches_beyond_the_values() -> None:
    x = np.array([2.0, 3.0, 7.0])
    for rule, kind in ((Histogram(bins=5), "real"), (CountHistogram(bins=5), "count")):
        p = rule.start(x, Variable("x", kind))
        assert len(p["edges"]) == 6 and p["edges"][0] < 2 and p["edges"][-1] > 8
        assert rule.check(p) is None
    with pytest.raises(ParameterError, match="bins"):
        Histogram(bins=2)


def test_count_edges_are_halves() -> None:
    assert "half" in str(CountHistogram().check(P))
    assert "half" in str(CountHistogram().check(P | {"edges": np.array([-2.5, 0.5, 1.5])}))
    assert CountHistogram().check(P | {"edges": np.array([-0.5, 0.5, 2.5])}) is None


@pytest.mark.parametrize("most", [1, 2, 15, 16, 17, 255, 1000])
def test_every_count_of_a_declared_range_has_mass(most: int) -> None:
    """Whatever values were seen."""
    for seen in (np.zeros(0), np.array([0.0]), np.array([1.0] * 50), np.array([float(most)])):
        p = CountHistogram().start(seen, Variable("x", "count", most=most))
        assert CountHistogram().check(p) is None
        tensors = {name: torch.as_tensor(value) for name, value in p.items()}
        masses = CountHistogram().log_density(torch.arange(most + 1.0).double(), tensors).exp()
        assert float(masses.sum()) == pytest.approx(1.0) and float(masses.min()) > 1e-8

"""Circuits in a torch program: gradients, states, and a network in front of one."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ParameterError, QueryError
from tests.circuits.strategies import model_of, schema_of

KINDS = ("mixture", "random_binary", "latent_tree", "poon_domingos", "random")


def banana(rows: int, seed: int = 0) -> np.ndarray:
    """y bends with x: far from any few Gaussians along the axes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows) * 1.5
    return np.stack([x, x**2 - 2.0 + 0.2 * rng.normal(size=rows)], axis=1)


def of_joint_leaves() -> fc.CircuitModel:
    schema = schema_of(("real", "real", "boolean"))
    nodes = (
        Leaf("g", "multivariate_gaussian", schema.names[:2], 2),
        Leaf("b", "bernoulli", schema.names[2:], 2),
        Product("p", ("g", "b")),
        Sum("root", ("p",)),
    )
    covariance = np.array([[[1.0, 0.4], [0.4, 0.5]], [[2.0, -0.3], [-0.3, 0.7]]])
    values = {
        "g": {"mean": np.array([[0.0, 1.0], [-1.0, 0.5]]), "covariance": covariance},
        "b": {"probability": np.array([[0.2], [0.9]])},
        "root": {"weight": np.array([[0.3, 0.7]])},
    }
    return fc.CircuitModel(Circuit(nodes, schema), Parameters(values))


def rows_of(model: fc.CircuitModel, rows: int, gaps: float = 0.2) -> Tensor:
    rng = np.random.default_rng(0)
    columns = [
        rng.integers(v.size, size=rows) if v.size else rng.normal(0.7, 0.5, rows)
        for v in model.circuit_.schema
    ]
    x = np.stack(columns, axis=1).astype(np.float64)
    x[rng.random(x.shape) < gaps] = np.nan
    return torch.from_numpy(x)


def of_structure(structure: str) -> fc.CircuitModel:
    return fc.CircuitModel(*model_of(structure, schema_of(("real", "boolean", "category")), 3))


@pytest.mark.parametrize("structure", [*KINDS, "joint"])
def test_gradients_by_parameters_are_those_of_differences(structure: str) -> None:
    model = of_joint_leaves() if structure == "joint" else of_structure(structure)
    module, x = model.to_module(double=True), rows_of(model, 5)
    names = [n for n, _ in module.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in module.parameters())

    def scores(*numbers: Tensor) -> Tensor:
        replaced = dict(zip(names, numbers, strict=True))
        found = torch.func.functional_call(module, replaced, (x,))
        return torch.where(found > -1e20, found, 0.0)

    assert names and torch.autograd.gradcheck(scores, values, eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("structure", ["mixture", "joint"])
def test_gradients_by_rows_are_those_of_differences(structure: str) -> None:
    model = of_joint_leaves() if structure == "joint" else of_structure(structure)
    module = model.to_module(double=True)
    real = torch.tensor([v.kind == "real" for v in model.circuit_.schema])
    x = rows_of(model, 6, gaps=0.0)

    def scores(values: Tensor) -> Tensor:
        return module(torch.where(real, values, x))

    assert torch.autograd.gradcheck(scores, (x.clone().requires_grad_(),), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("structure", [*KINDS, "joint"])
def test_there_and_back(structure: str) -> None:
    model = of_joint_leaves() if structure == "joint" else of_structure(structure)
    x = rows_of(model, 40)
    table = fc.Table(model.circuit_.schema, x.numpy())
    module = model.to_module(double=True)
    back = fc.CircuitModel.from_module(module, target=model.circuit_.schema.names[1])
    expected = model.score_samples(table)
    possible = np.isfinite(expected)
    for found in (back.score_samples(table), module(x).detach().numpy()):
        np.testing.assert_allclose(found[possible], expected[possible], rtol=1e-8, atol=1e-8)
        assert (found[~possible] < -25).all()  # a level without probability begins at 1e-12
    assert back.target == model.circuit_.schema.names[1]


def test_a_state_is_loaded_by_another_module_of_the_same_graph() -> None:
    """Also where its leaves began elsewhere; from a file, by weights alone."""
    table = fc.Table.of(banana(300))
    circuit = fc.structures.mixture_of_products(table.schema, 3)
    one = fc.CircuitModel(circuit).fit(table, epochs=3, random_state=0)
    moved = fc.Table.of(banana(300) * 40 + 900)
    two = fc.CircuitModel(circuit).fit(moved, epochs=3, random_state=1)
    file = io.BytesIO()
    torch.save(one.to_module(double=True).state_dict(), file)
    file.seek(0)
    module = two.to_module(double=True)
    module.load_state_dict(torch.load(file, weights_only=True))
    found = fc.CircuitModel.from_module(module).score_samples(table)
    np.testing.assert_allclose(found, one.score_samples(table), rtol=1e-8)


class Bend(nn.Module):
    """(x, y) → (x, (y − t(x)) · e^s(x)): invertible, with log-volume s."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale = self.net(x[:, :1]).unbind(1)
        return torch.stack([x[:, 0], (x[:, 1] - shift) * scale.exp()], 1), scale


def test_a_normalising_network_in_front_of_a_circuit_is_trained_with_it() -> None:
    torch.manual_seed(0)
    train, test = banana(1000), banana(500, seed=1)
    table = fc.Table.of(train)
    circuit = fc.structures.mixture_of_products(table.schema, 2)
    alone = fc.CircuitModel(circuit).fit(table, epochs=20, random_state=0)
    bend, module = Bend(), alone.to_module()
    optimiser = torch.optim.Adam([*bend.parameters(), *module.parameters()], lr=0.01)
    rows = torch.from_numpy(train).float()
    for _ in range(300):
        optimiser.zero_grad()
        inner, volume = bend(rows)
        loss = -(module(inner) + volume).mean()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        inner, volume = bend(torch.from_numpy(test).float())
    learned = fc.CircuitModel.from_module(module)
    together = learned.score_samples(inner.double().numpy()) + volume.numpy()
    assert together.mean() > alone.score(test) + 0.3
    assert np.isfinite(learned.probability("x0 > 0"))


def test_what_is_no_such_module_is_refused() -> None:
    with pytest.raises(ParameterError, match="to_module"):
        fc.CircuitModel.from_module(nn.Linear(2, 2))
    federation = fc.split(fc.Table.of(banana(60)), 2)
    with pytest.raises(QueryError, match="collect"):
        fc.FedPC(method="one_pass", random_state=0).fit(federation).to_module()


def test_rows_of_another_device_or_precision_are_refused() -> None:
    model = of_joint_leaves()
    x = rows_of(model, 3)
    with pytest.raises(QueryError, match="double=True"):
        model.to_module().double()(x)
    with pytest.raises(QueryError, match=r"on cpu, the rows are on meta: .*x\.to"):
        model.to_module()(x.to("meta"))


@pytest.mark.parametrize("x", [torch.zeros(3), torch.zeros(4, 2), torch.zeros(4, 3, 1), "rows"])
def test_rows_of_another_shape_are_refused(x: Tensor) -> None:
    with pytest.raises(QueryError, match=r"shape \(rows, 3\), got"):
        of_joint_leaves().to_module()(x)

"""Circuits on another device than the processor: no operation mixes two, and answers agree.

``tests/pretended.py`` says what a pretended device is, and how CUDA's rules are asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.circuits.graph.circuit import Circuit, Leaf, Product, Sum
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.errors import ParameterError, QueryError
from fedcircuits.tables.schema import Schema, Variable
from tests.circuits.strategies import model_of, random_rows, schema_of
from tests.pretended import Elsewhere, PretendedDevice, pretended

CLOSE = {"rtol": 1e-9, "atol": 1e-9}  # what docs/circuits.md promises
SORTS = ("real", "count", "category", "boolean", "pixel")
KINDS = ("mixture", "latent_tree", "poon_domingos", "chow_liu")


@pytest.fixture
def device() -> Iterator[PretendedDevice]:
    with PretendedDevice() as made:
        yield made


def joint() -> fc.CircuitModel:
    """A multivariate normal beside a leaf of many levels, which is looked up."""
    levels = tuple(map(str, range(40)))
    schema = Schema(
        (Variable("a", "real"), Variable("b", "real"), Variable("c", "category", levels))
    )
    nodes = (
        Leaf("g", "multivariate_gaussian", ("a", "b"), 16),
        Leaf("t", "categorical", ("c",), 16),
        Product("p", ("g", "t")),
        Sum("root", ("p",)),
    )
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(40), size=(16, 1))
    spread = np.array([[1.0, 0.4], [0.4, 0.5]])
    values = {
        "g": {"mean": rng.normal(size=(16, 2)), "covariance": np.tile(spread, (16, 1, 1))},
        "t": {"probability": table},
        "root": {"weight": rng.dirichlet(np.ones(16))[None]},
    }
    return fc.CircuitModel(Circuit(nodes, schema), Parameters(values))


def of(structure: str) -> fc.CircuitModel:
    if structure == "joint":
        return joint()
    sorts = ("category", "boolean", "category") if structure == "chow_liu" else SORTS
    return fc.CircuitModel(*model_of(structure, schema_of(sorts), 3))


def rows_of(model: fc.CircuitModel, rows: int = 30) -> np.ndarray:
    rng = np.random.default_rng(1)
    if len(model.schema_) > 3 or model.schema_.names[0] != "a":
        return random_rows(model.schema_, rng, rows, 0.3)
    x = np.column_stack([rng.normal(size=(rows, 2)), rng.integers(40, size=rows)])
    return np.where(rng.random(x.shape) < 0.3, np.nan, x)


@pytest.mark.parametrize("structure", [*KINDS, "joint"])
def test_questions_are_answered_as_on_the_processor(
    structure: str, device: PretendedDevice
) -> None:
    here, there = of(structure), of(structure).to("pretended:0")
    x = rows_of(here)
    table, first = fc.Table(here.schema_, x), here.schema_.names[0]
    event = f"{first} > 0.2" if not here.schema_[first].size else f"{first} = red"
    np.testing.assert_allclose(there.score_samples(table), here.score_samples(table), **CLOSE)
    np.testing.assert_allclose(there.probability(event), here.probability(event), **CLOSE)
    if not here.schema_[first].size:
        np.testing.assert_allclose(
            there.expect(first, given=table), here.expect(first, given=table), **CLOSE
        )
    drawn = [m.sample(20, random_state=0) for m in (there, here)]
    assert drawn[0].equals(drawn[1])
    assert there.mpe(table.to_pandas()).equals(here.mpe(table.to_pandas()))
    assert isinstance(there._distribution.packed.values[-1], Elsewhere)
    assert len(device.operations) > 10


@pytest.mark.parametrize(
    ("structure", "by"),
    [("mixture", "em"), ("poon_domingos", "gradient"), ("joint", "em"), ("joint", "gradient")],
)
def test_learning_gives_the_same_parameters(
    structure: str, by: str, device: PretendedDevice
) -> None:
    given = of(structure)
    x = rows_of(given)
    table = fc.Table(given.schema_, x)
    found = []
    for place in ("cpu", "pretended:0"):
        model = fc.CircuitModel(given.circuit, given.parameters, device=place)
        model.fit(table, by=by, epochs=2, batch_size=16, random_state=0)  # type: ignore[arg-type]
        found.append(model.score_samples(table))
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3, atol=2e-3)  # in single precision


def test_learners_take_a_device(device: PretendedDevice) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    makers = (
        lambda place: fc.EinsumNetwork(2, epochs=1, device=place, random_state=0),
        lambda place: fc.HiddenChowLiuTree(2, epochs=1, device=place, random_state=0),
        lambda place: fc.MixtureOfProducts(2, max_iter=2, device=place, random_state=0),
    )
    for make in makers:
        away, near = make("pretended:0").fit(rows), make("cpu").fit(rows)
        np.testing.assert_allclose(away.score(rows), near.score(rows), rtol=1e-4)
        assert away._distribution.program.device == pretended()


def test_a_module_moves_as_modules_do(device: PretendedDevice) -> None:
    model = joint()
    x = torch.from_numpy(rows_of(model, 6))
    module = model.to_module(double=True)
    before = module(x)
    (-before.mean()).backward()
    slopes = {n: p.grad.clone() for n, p in module.named_parameters()}
    module.zero_grad()
    module.to("pretended:0")
    rows = x.to(device.device).requires_grad_()
    after = module(rows)
    (-after.mean()).backward()
    assert isinstance(after, Elsewhere) and isinstance(rows.grad, Elsewhere)
    np.testing.assert_allclose(after.detach().cpu(), before.detach(), **CLOSE)
    for name, number in module.named_parameters():
        np.testing.assert_allclose(number.grad.cpu(), slopes[name], **CLOSE)
    with pytest.raises(QueryError, match=r"module\.to"):
        module(x)
    torch.optim.Adam(module.parameters(), lr=0.01).step()
    assert fc.CircuitModel.from_module(module).device == "pretended:0"
    module.to("cpu")(x)


def test_a_mixture_of_devices_would_be_noticed(device: PretendedDevice) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=device.device) + torch.ones(2)


def test_a_device_that_is_not_here_is_named() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    for wrong in ("cuda:7", "gpu", ""):
        with pytest.raises(ParameterError, match=f"device must be .*{wrong!r}"):
            fc.MixtureOfProducts(2, device=wrong).fit(rows)
        with pytest.raises(ParameterError, match="device must be"):
            fc.MixtureOfProducts(2, random_state=0).fit(rows).to(wrong)

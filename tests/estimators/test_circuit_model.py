"""Circuits of one's own, learned by EM and by gradients; gradients by inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.circuits.evaluation.gradient import Differentiable
from fedcircuits.circuits.evaluation.program import CircuitProgram
from fedcircuits.errors import FedcircuitsError, ParameterError, TableError
from fedcircuits.tables.schema import Schema, Variable


def clustered(rows: int = 400) -> fc.Table:
    rng = np.random.default_rng(0)
    state = rng.integers(0, 2, rows)
    frame = {
        "a": rng.normal(size=rows) + 4 * state, "b": rng.normal(size=rows) - 4 * state,
        "c": rng.random(rows) < 0.1 + 0.8 * state, "d": rng.poisson(2 + 6 * state),
    }  # fmt: skip
    return fc.Table.of(pd.DataFrame(frame))


@pytest.mark.parametrize("by", ["em", "gradient"])
def test_a_structure_is_learned(by: str, tmp_path: Path) -> None:
    table = clustered()
    circuit = fc.structures.random_binary(
        table.schema, depth=1, repetitions=2, units=4, rng=np.random.default_rng(1)
    )
    model = fc.CircuitModel(circuit, target="c")
    with pytest.raises(NotFittedError, match="no parameters yet"):
        model.score(table)
    model.fit(table, by=by, epochs=12, random_state=0)  # type: ignore[arg-type]
    alone = fc.CircuitModel(fc.structures.factorised(table.schema)).fit(table, random_state=0)
    assert model.score(table) > alone.score(table) + 1
    assert (model.predict(table) == table.column("c")).mean() > 0.8
    assert len(model.history_) <= 12 and len(model.validation_history_) == len(model.history_)
    model.save(tmp_path / "m.fc")
    assert fc.load(tmp_path / "m.fc").score(table) == pytest.approx(model.score(table), abs=1e-4)


def test_em_over_all_rows_never_falls_and_goes_on_from_parameters() -> None:
    table = clustered()
    circuit = fc.structures.mixture_of_products(table.schema, 3)
    model = fc.CircuitModel(circuit).fit(
        table, batch_size=None, epochs=10, validation=0.0, random_state=0
    )
    assert np.diff(model.history_).min() > -1e-6
    again = fc.CircuitModel(circuit, model.parameters_).fit(
        table, batch_size=None, epochs=2, validation=0.0
    )
    assert again.history_[0] >= model.history_[-1] - 1e-6


def test_a_quad_graph_of_grey_levels_is_learned() -> None:
    rng = np.random.default_rng(0)
    images = np.clip(
        rng.normal(60 + 120 * rng.integers(0, 2, (200, 1, 1)), 15, (200, 4, 4)), 0, 255
    )
    table = fc.Table.of(images.astype(np.uint8))
    circuit = fc.structures.quad_graph(table.schema, height=4, width=4, units=4)
    for by in ("em", "gradient"):
        model = fc.CircuitModel(circuit).fit(table, by=by, epochs=4, random_state=0)  # type: ignore[arg-type]
        assert -model.score(table) / 16 / np.log(2) < 7.6


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"by": "magic"}, ParameterError), ({"epochs": 0}, ParameterError),
        ({"step": 2.0}, ParameterError), ({"by": "gradient", "batch_size": None}, ParameterError),
        ({"validation": 1.5}, ParameterError),
    ],
)  # fmt: skip
def test_bad_settings(settings: dict[str, object], error: type[FedcircuitsError]) -> None:
    table = clustered(60)
    model = fc.CircuitModel(fc.structures.factorised(table.schema))
    with pytest.raises(error):
        model.fit(table, **settings)  # type: ignore[arg-type]


def test_rows_must_have_the_columns_of_the_circuit() -> None:
    model = fc.CircuitModel(fc.structures.factorised(clustered(60).schema))
    with pytest.raises(TableError, match="absent"):
        model.fit({"a": [1.5, 2.5]})
    with pytest.raises(TableError, match="no parameters"):
        model.fit()


def test_gradients_by_inputs_are_those_of_differences() -> None:
    schema = Schema((Variable("a"), Variable("b"), Variable("c", "boolean")))
    table = fc.Table(schema, clustered().values[:, :3])
    circuit = fc.structures.mixture_of_products(schema, 3, leaf_family="gaussian")
    model = fc.CircuitModel(circuit).fit(table, epochs=3, random_state=0)
    module = Differentiable(CircuitProgram(circuit), model.parameters_)
    with torch.no_grad():
        for numbers in module.parameters():
            numbers += 0.1 * torch.ones_like(numbers).cumsum(-1)  # not where it began
    x = torch.tensor(table.values[:20])
    x[3, 0] = torch.nan
    x.requires_grad_()
    module(x).sum().backward()
    found = x.grad.clone()
    assert (found[:, 2] == 0).all() and found[3, 0] == 0
    for column in (0, 1):
        ends = []
        for change in (1e-5, -1e-5):
            moved = x.detach().clone()
            moved[:, column] += change
            ends.append(module(moved).detach())
        slope = torch.nan_to_num((ends[0] - ends[1]) / 2e-5)
        np.testing.assert_allclose(found[:, column].numpy(), slope.numpy(), rtol=1e-4, atol=1e-6)


def test_circuits_as_leaves_are_compiled_once() -> None:
    """Questions do not compile the circuit again; new parameters do."""
    federation = fc.split(clustered(), 2, by="columns", allow_collect=True)
    model = fc.FedPC(random_state=0).fit(federation).collect()
    assert any(leaf.family == "circuit" for leaf in model.circuit_.leaves())
    compiled, answer = model._distribution, model.probability("a > 2", given="d > 4")
    assert model._distribution is compiled
    model.parameters_ = fc.FedPC(random_state=1).fit(federation).collect().parameters_
    assert model._distribution is not compiled
    assert model.probability("a > 2", given="d > 4") == pytest.approx(answer, abs=0.1)


def test_what_is_no_circuit_is_not_learned() -> None:
    with pytest.raises(ParameterError, match="expected a Circuit to learn, got str"):
        fc.CircuitModel("mixture").fit(pd.DataFrame({"x": [0.0, 1.0]}))

"""Compiled loops stay inside their arrays, whatever parameters, rows and statistics they get."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import fedcircuits as fc
from fedcircuits.circuits.evaluation.program import CircuitProgram, as_answers
from fedcircuits.circuits.graph.parameters import Parameters
from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.errors import FedcircuitsError, ParameterError, QueryError
from tests.circuits.strategies import Model, random_parameters, schema_of

ROOT = Path(__file__).parents[3]


def mixture() -> Model:
    circuit = mixture_of_products(schema_of(("real", "boolean")), 2)
    return circuit, random_parameters(circuit, np.random.default_rng(0))


def with_weight(weight: list[float]) -> Model:
    circuit, sane = mixture()
    root = {circuit.root.name: {"weight": np.array([weight])}}
    return circuit, Parameters({**sane.values, **root})


def test_no_read_beyond_an_array(tmp_path: Path) -> None:
    """Compiled anew with checks of every index: none of 80 hostile circuits breaks one."""
    environment = os.environ | {
        "NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.circuits.evaluation.hostile", "0", "80"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'numbers'" in done.stdout and "'ParameterError'" in done.stdout


@pytest.mark.parametrize(
    "weight", [[np.nan, np.nan], [np.nan, 1.0], [0.0, 0.0], [np.inf, 1.0], [-1.0, 2.0]]
)
def test_weights_that_mix_nothing_are_refused(weight: list[float]) -> None:
    circuit, parameters = with_weight(weight)
    with pytest.raises(ParameterError, match=f"{circuit.root.name!r}: the weights of unit 0"):
        CircuitProgram(circuit).pack(parameters)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e308])
def test_statistics_beyond_all_measure_are_refused(number: float) -> None:
    """Counts of 1e308 add up to infinity, of which every count is a share of zero."""
    circuit, parameters = mixture()
    program = CircuitProgram(circuit)
    packed = program.pack(parameters)
    counts = program.counts(torch.zeros(4, 2, dtype=torch.float64), packed)
    vector = np.full_like(counts.flat(), number)
    with pytest.raises(ParameterError), np.errstate(all="ignore"):
        program.maximise(counts.like(vector), packed)


def test_parameters_of_a_leaf_are_refused_by_its_name() -> None:
    circuit, sane = mixture()
    leaf = next(leaf.name for leaf in circuit.leaves() if leaf.family == "gaussian")
    spoiled = {**sane[leaf], "variance": -sane[leaf]["variance"]}
    with pytest.raises(ParameterError, match=f"parameters of {leaf!r}: variance must be positive"):
        CircuitProgram(circuit).pack(Parameters({**sane.values, leaf: spoiled}))


@pytest.mark.parametrize("scale", [1e-300, 1e100, 1e155, 1e300, 1.7e308])
def test_honest_data_of_absurd_scale(scale: float) -> None:
    """Are learned and answered with numbers, or refused in words; never answered with NaN."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(40, 2)) * [scale, 1.0]
    table = fc.Table.of(x)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = fc.MixtureOfProducts(2, max_iter=5, random_state=0).fit(table)
            scores = model.score_samples(table)
        except FedcircuitsError as error:
            assert "rescale" in str(error)
        else:
            assert np.isfinite(scores).all()


@pytest.mark.parametrize("mean", [1e12, 1e100])
def test_leaves_too_far_apart_are_refused(mean: float) -> None:
    """The linear form loses all digits: a log density was 5652092 instead of −1.6."""
    circuit = mixture_of_products(schema_of(("real",)), 2)
    [leaf] = circuit.leaves()
    values = {
        leaf.name: {"mean": np.array([[mean], [1.0]]), "variance": np.ones((2, 1))},
        circuit.root.name: {"weight": np.array([[0.5, 0.5]])},
    }
    model = fc.CircuitModel(circuit, Parameters(values))
    with pytest.raises(ParameterError, match=f"parameters of {leaf.name!r}.*rescale the column"):
        model.score_samples(np.array([[0.0]]))


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e4])
def test_likelihoods_that_are_none_are_no_answer(number: float) -> None:
    circuit, _ = mixture()
    with pytest.raises(QueryError, match=r"of row 1 .*rescale the columns"):
        as_answers(torch.tensor([0.0, number]), circuit)


def test_a_model_of_a_sensible_scale_is_as_before() -> None:
    rows = {"x": [0.5, 1.5, 1e6, -1e6], "n": [0, 1, 2, 3]}
    model = fc.MixtureOfProducts(2, random_state=0).fit(fc.Table.of(rows))
    assert np.isfinite(model.score_samples(fc.Table.of(rows))).all()

"""Mixtures of Chow–Liu trees: the fast likelihood, EM, gaps, weights, the circuit they become."""

from itertools import product

import numpy as np
import pytest

from fedcircuits import CircuitModel, MixtureOfChowLiuTrees, Schema, Table, Variable
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.learning.chow_liu.tree_mixtures import (
    CodedRows,
    TreeMixture,
    learn_mixture,
    mixture_circuit,
)

SIZES = (2, 3, 2, 4)


def schema_of(sizes: tuple[int, ...]) -> Schema:
    kinds = (Variable(f"v{i}", "category", tuple(range(s))) for i, s in enumerate(sizes))
    return Schema(tuple(kinds))


def rows_of(sizes: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Two groups of rows; neighbouring columns depend on each other within them."""
    rng = np.random.default_rng(seed)
    group, columns = rng.integers(0, 2, count), [rng.integers(0, sizes[0], count)]
    for size in sizes[1:]:
        follows = (columns[-1] + group) % size
        columns.append(np.where(rng.random(count) < 0.7, follows, rng.integers(0, size, count)))
    return np.stack(columns, axis=1).astype(float)


def learned(x: np.ndarray, schema: Schema, **other: object) -> TreeMixture:
    settings = {"smoothing": 5.0, "rounds": 15, "tolerance": 0.0, **other}
    return learn_mixture(x, schema, 3, np.random.default_rng(0), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(2,) * 5, SIZES], ids=["binary", "categories"])
def test_the_circuit_is_the_mixture(sizes: tuple[int, ...]) -> None:
    schema, x = schema_of(sizes), rows_of(sizes, 400, 0)
    found = learned(x, schema)
    circuit, parameters = mixture_circuit(schema, [found])
    parameters.check(circuit)
    every = np.array(list(product(*map(range, sizes))), dtype=float)
    direct = np.array([CodedRows(every, schema).log_values(t) for t in found.trees])
    expected = np.log(found.weights @ np.exp(direct))
    assert np.exp(expected).sum() == pytest.approx(1, abs=1e-5)
    scores = CircuitModel(circuit, parameters).score_samples(every)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_missing_values_are_summed_out() -> None:
    schema, x = schema_of(SIZES), rows_of(SIZES, 300, 1)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    found = learned(x, schema)
    model = CircuitModel(*mixture_circuit(schema, [found]))
    logs = np.array([CodedRows(x, schema).log_values(t) for t in found.trees])
    np.testing.assert_allclose(
        np.log(found.weights @ np.exp(logs)), model.score_samples(x), atol=1e-5
    )


def test_em_climbs_and_finds_the_groups() -> None:
    schema, x = schema_of((2,) * 5), rows_of((2,) * 5, 3000, 2)
    found = learned(x, schema, smoothing=0.0)
    assert all(b > a - 0.01 for a, b in zip(found.history, found.history[1:], strict=False))
    one = learn_mixture(
        x, schema, 1, np.random.default_rng(0), smoothing=0.0, rounds=1, tolerance=0.0
    )
    assert found.history[-1] > one.history[-1] + 0.05


def test_weights_are_repetitions() -> None:
    schema, x = schema_of((2,) * 4), rows_of((2,) * 4, 80, 3)
    weight = np.random.default_rng(0).integers(1, 4, 80)
    one = MixtureOfChowLiuTrees(1, ensemble=1, random_state=0)
    again = one.fit(Table(schema, np.repeat(x, weight, axis=0))).score_samples(x)
    found = one.fit(Table(schema, x), sample_weight=weight).score_samples(x)
    np.testing.assert_allclose(found, again, rtol=1e-5)


def test_held_back_rows_choose_the_round() -> None:
    schema, x, held = schema_of((2,) * 5), rows_of((2,) * 5, 60, 4), rows_of((2,) * 5, 100, 5)
    found = learned(x, schema, validation=held, smoothing=0.0, rounds=500)
    model = CircuitModel(*mixture_circuit(schema, [found]))
    best = model.score_samples(held).mean()
    assert best == pytest.approx(max(found.validation), abs=1e-5)
    assert max(found.validation) > found.validation[-1]  # it went on and came back
    assert len(found.validation) < 500


def test_the_estimator() -> None:
    x, test = (rows_of((2,) * 6, n, n) > 0 for n in (1500, 1501))
    plan = {"random_state": 0, "validation": 0.1}
    model = MixtureOfChowLiuTrees(4, ensemble=2, **plan).fit(x)
    assert model.score(test) > MixtureOfChowLiuTrees(1, ensemble=1, **plan).fit(x).score(test)
    again = MixtureOfChowLiuTrees(4, ensemble=2, **plan).fit(x)
    np.testing.assert_array_equal(model.score_samples(test), again.score_samples(test))
    assert len(model.validation_history_) == len(model.history_)


def test_little_to_learn_from_and_nonsense() -> None:
    few = Table.of({"a": [True, True], "b": ["x", "x"]})
    model = MixtureOfChowLiuTrees(3, random_state=0).fit(few)
    assert np.isfinite(model.score_samples(few)).all()
    with pytest.raises(StructureError, match="MixtureOfChowLiuTrees needs categories or booleans"):
        MixtureOfChowLiuTrees().fit(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(ParameterError, match="components must be a whole number from 1"):
        MixtureOfChowLiuTrees(0).fit(few)
    with pytest.raises(ParameterError, match="smoothing must be a number from 0"):
        MixtureOfChowLiuTrees(smoothing=-1).fit(few)

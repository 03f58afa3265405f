"""Einsum networks on small images: bounds in the units of pixels, masses, in-paintings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError, StructureError
from fedcircuits.learning.em import EMSchedule, maximise_likelihood
from fedcircuits.learning.starts import clusters, start_from, start_from_regions

LEVELS = 16  # of the digits


def table(values: Array) -> fc.Table:
    """All pixels real numbers, also those of one value."""
    return fc.Table(fc.Schema(tuple(fc.Variable(f"x{i}") for i in range(values.shape[1]))), values)


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    """Train and test rows on the grid k/255."""
    found = np.round(load_digits().data / LEVELS * 255) / 255
    order = np.random.default_rng(0).permutation(len(found))
    return found[order[:800]], found[order[1400:]]


def network(**settings: object) -> fc.EinsumNetwork:
    chosen = {"image": (8, 8), "pieces": 4, "epochs": 6, "batch_size": 100, "random_state": 0}
    return fc.EinsumNetwork(4, **{**chosen, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def learned(digits: tuple[Array, Array]) -> fc.EinsumNetwork:
    return network().fit(table(digits[0]))


def variances(model: fc.EinsumNetwork) -> Iterator[Array]:
    for leaf in model.circuit_.leaves():
        yield model.parameters_[leaf.name]["variance"]


def as_masses(circuit: fc.Circuit) -> fc.Circuit:
    nodes = (
        replace(n, family="gaussian_mass") if isinstance(n, fc.Leaf) else n for n in circuit.nodes
    )
    return fc.Circuit(tuple(nodes), circuit.schema)


def test_images_are_learned_better_than_by_one_mixture(
    learned: fc.EinsumNetwork, digits: tuple[Array, Array]
) -> None:
    train, test = digits
    least = 1e-4 * float(train.var())
    bounded = np.maximum(train.var(axis=0), least)
    product = -0.5 * ((test - train.mean(axis=0)) ** 2 / bounded + np.log(2 * np.pi * bounded))
    assert learned.score(table(test)) > product.sum(axis=1).mean() + 10
    assert learned.history_[-1] > learned.history_[0]


@pytest.mark.parametrize("factor", [1.0, 255.0])
def test_bounds_of_variances_are_in_the_units_of_pixels(
    digits: tuple[Array, Array], factor: float
) -> None:
    low, high = 1e-3 * factor**2, 0.02 * factor**2
    model = network(minimum_variance=low, maximum_variance=high).fit(table(digits[0] * factor))
    found = np.concatenate([v.reshape(-1) for v in variances(model)])
    assert found.min() == pytest.approx(low) and found.max() == pytest.approx(high)


def test_default_floor_follows_the_scale_of_the_image(
    learned: fc.EinsumNetwork, digits: tuple[Array, Array]
) -> None:
    grey = network().fit(table(digits[0] * 255))
    shift = 64 * np.log(255)
    assert grey.score(table(digits[1] * 255)) + shift == pytest.approx(
        learned.score(table(digits[1])), abs=0.5
    )
    assert min(v.min() for v in variances(learned)) == pytest.approx(
        1e-4 * float(digits[0].var()), rel=0.1
    )


def test_a_pixel_that_was_always_black_may_be_lit(
    learned: fc.EinsumNetwork, digits: tuple[Array, Array]
) -> None:
    black = int(np.flatnonzero(digits[0].std(axis=0) == 0)[0])
    lit = digits[1][:1].copy()
    lit[0, black] = 0.2
    assert np.isfinite(learned.score_samples(table(lit))).all()


def test_wrong_bounds_are_named(digits: tuple[Array, Array]) -> None:
    with pytest.raises(ParameterError, match="minimum_variance"):
        network(minimum_variance=0.5, maximum_variance=0.1).fit(table(digits[0]))


def test_gaussian_leaves_become_masses(
    learned: fc.EinsumNetwork, digits: tuple[Array, Array]
) -> None:
    masses = fc.Distribution(as_masses(learned.circuit_), learned.parameters_)
    found = masses.log_likelihood(digits[1])
    bits = -found.mean() / 64 / np.log(2)
    assert 0 < bits < 8, "better than a level drawn evenly from 256"
    off_the_grid = digits[1][:1] + 0.5 / 255
    assert masses.log_likelihood(off_the_grid)[0] == -np.inf


def test_a_hidden_half_is_painted_in(
    learned: fc.EinsumNetwork, digits: tuple[Array, Array]
) -> None:
    test, mean = digits[1][:100], digits[0].mean(axis=0)
    hidden = test.copy()
    hidden[:, 32:] = np.nan
    best = learned.explain(table(hidden)).values
    np.testing.assert_array_equal(best[:, :32], test[:, :32])
    asked = fc.Distribution(learned.circuit_, learned.parameters_)
    drawn = asked.sample(np.repeat(hidden, 20, axis=0), np.random.default_rng(0))
    painted = drawn.reshape(100, 20, 64).mean(axis=1)
    plain = np.mean((mean[32:] - test[:, 32:]) ** 2)
    assert np.mean((painted[:, 32:] - test[:, 32:]) ** 2) < 0.95 * plain


def test_one_seed_gives_one_network(learned: fc.EinsumNetwork, digits: tuple[Array, Array]) -> None:
    assert network().fit(table(digits[0])).parameters_ == learned.parameters_


def test_classes_and_missing_pixels(digits: tuple[Array, Array]) -> None:
    rows = load_digits()
    values = np.where(np.random.default_rng(0).random(rows.data.shape) < 0.1, np.nan, rows.data)
    pixels = tuple(fc.Variable(f"x{i}") for i in range(64))
    schema = fc.Schema((*pixels, fc.Variable("digit", "category", tuple(range(10)))))
    whole = fc.Table(schema, np.column_stack([values, rows.target]))
    model = network(target="digit", epochs=10).fit(whole.rows(np.arange(1400)))
    assert (model.predict(whole.rows(np.arange(1400, 1797))) == rows.target[1400:]).mean() > 0.75


def test_grey_levels_can_be_categories(digits: tuple[Array, Array]) -> None:
    levels = np.round(digits[0] * LEVELS)
    variables = (fc.Variable(f"x{i}", "category", tuple(range(LEVELS + 1))) for i in range(64))
    data = fc.Table(fc.Schema(tuple(variables)), levels)
    model = network(epochs=4).fit(data)
    assert -model.score(data) / 64 < 0.7 * np.log(LEVELS + 1)


@pytest.mark.parametrize("kind", ["category", "count"])
def test_levels_that_no_image_has_shown_stay_possible(
    digits: tuple[Array, Array], kind: Literal["category", "count"]
) -> None:
    levels = np.minimum(np.round(digits[0] * LEVELS), LEVELS - 1)
    names = tuple(range(LEVELS + 1)) if kind == "category" else ()
    schema = fc.Schema(tuple(fc.Variable(f"x{i}", kind, names) for i in range(64)))
    model = network(epochs=2).fit(fc.Table(schema, levels))
    unseen = fc.Table(schema, np.full((1, 64), float(LEVELS)))
    assert np.isfinite(model.score_samples(unseen)).all()


def test_gradients_learn_images_too(digits: tuple[Array, Array]) -> None:
    model = network(training="gradient", epochs=2, pieces=2).fit(table(digits[0]))
    assert model.history_[-1] > model.history_[0]
    assert len(model.validation_history_) == 2


def test_pieces_and_images_must_fit(digits: tuple[Array, Array]) -> None:
    with pytest.raises(StructureError, match="pieces"):
        network(pieces=0).fit(table(digits[0]))
    with pytest.raises(StructureError, match="7 × 8"):
        network(image=(7, 8)).fit(table(digits[0]))


def test_pieces_cut_both_sides_alike() -> None:
    schema = table(np.zeros((1, 35))).schema
    circuit = fc.structures.poon_domingos(schema, height=7, width=5, pieces=3, units=2)
    sizes = sorted(len(leaf.scope) for leaf in circuit.leaves())
    assert sizes == sorted(a * b for a in (2, 2, 3) for b in (1, 2, 2))
    for settings in ({}, {"step": 1, "pieces": 3}):
        with pytest.raises(StructureError, match="either step or pieces"):
            fc.structures.poon_domingos(schema, height=7, width=5, units=2, **settings)


def test_batches_let_no_weight_vanish_but_keep_zeros() -> None:
    schema = fc.Schema((fc.Variable("x"),))
    circuit = fc.structures.mixture_of_products(schema, 3)
    leaf = next(iter(circuit.leaves())).name
    means, spread = np.array([[0.0], [50.0], [0.5]]), np.full((3, 1), 0.01)
    start = fc.Parameters(
        {
            leaf: {"mean": means, "variance": spread},
            "root": {"weight": np.array([[0.5, 0.5, 0.0]])},
        }
    )
    rows = np.random.default_rng(0).normal(size=(400, 1))
    plan = EMSchedule(epochs=5, batch_size=20, step=0.9, last_step=0.9)
    found = maximise_likelihood(circuit, start, rows, schedule=plan, dtype=torch.float32)
    near, far, absent = found.parameters["root"]["weight"][0]
    assert near > 0.9 and 0 < far < 1e-6 and absent == 0


def test_pseudo_counts_weigh_against_all_rows_over_batches() -> None:
    schema = fc.Schema((fc.Variable("x", "category", tuple(range(50))),))
    circuit = fc.structures.mixture_of_products(schema, 2)
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(1000, 1)).astype(float)
    start = start_from(circuit, rows, rng.dirichlet(np.ones(2), size=1000), rng)
    plan = EMSchedule(epochs=2, batch_size=100)
    found = maximise_likelihood(circuit, start, rows, schedule=plan)
    seen = fc.Distribution(circuit, found.parameters).log_likelihood(np.array([[0.0], [1.0]]))
    assert 0.999 < np.exp(seen).sum() < 1


# ---------------------------------------------------------------------- starts


def test_clusters_of_wide_tables_see_a_part_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=6_000)
    x = rng.normal(size=(3, 500))[which] * 3 + rng.normal(size=(6_000, 500))
    found = clusters(x, table(x).schema, 3, rng)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    labels = found.argmax(axis=1)
    pairs = {(a, b) for a, b in zip(which, labels, strict=True)}
    assert len(pairs) == 3, "every cluster is one of the groups"


def test_clusters_of_fewer_rows_than_units() -> None:
    x = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]])
    assert clusters(x, table(x).schema, 8, np.random.default_rng(0)).shape == (3, 8)


def test_leaves_start_from_clusters_of_their_regions() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=(500, 2)) * 10 + rng.normal(size=(500, 2)) * 0.1
    circuit = fc.structures.poon_domingos(table(x).schema, height=1, width=2, step=1, units=2)
    start = start_from_regions(circuit, x, rng)
    for leaf in circuit.leaves():
        means = np.sort(start[leaf.name]["mean"][:, 0])
        assert means[0] < 3 and means[1] > 7


def test_sums_start_from_clusters_that_occur_together() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.integers(2, size=(500, 1)), 3, axis=1) * 10 + rng.normal(size=(500, 3)) * 0.1
    circuit = fc.structures.poon_domingos(table(x).schema, height=1, width=3, step=1, units=2)
    start = start_from_regions(circuit, x, rng)
    joint = fc.Distribution(circuit, start).log_likelihood(np.array([[0.0, 0, 0], [0, 10, 0]]))
    assert joint[0] > joint[1] + 1

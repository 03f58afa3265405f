"""Clusters are found where there are some, and edge cases give one."""

import numpy as np
import pytest

from fedcircuits import Schema, Variable
from fedcircuits.learning.spn.clustering import Features, k_means, mixture, split_rows

MIXED = Schema(
    (Variable("x"), Variable("n", "count"), Variable("c", "category", ("a", "b", "d")),
     Variable("b", "boolean"))
)  # fmt: skip


def two_kinds(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    kind = rng.integers(0, 2, rows)
    category = np.where(rng.random(rows) < 0.9, 2 * kind, 1)
    boolean = rng.random(rows) < np.where(kind, 0.9, 0.1)
    return np.stack([rng.normal(4 * kind), rng.poisson(2 + 9 * kind), category, boolean], 1), kind


def agreement(label: np.ndarray, kind: np.ndarray) -> float:
    same = float(np.mean(label == kind))
    return max(same, 1 - same)


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_two_kinds_of_mixed_rows_are_told_apart(holes: float) -> None:
    rng = np.random.default_rng(0)
    x, kind = two_kinds(rng, 600)
    x[rng.random(x.shape) < holes] = np.nan
    label = split_rows(Features.of(x, MIXED), 2, rng)
    assert agreement(label, kind) > (0.98 if holes == 0 else 0.93)


def test_binary_rows_are_told_apart_and_all_rows_get_a_label() -> None:
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 2, 12_000)  # more than the sample that centres are learned on
    x = (rng.random((12_000, 10)) < np.where(kind, 0.8, 0.2)[:, None]).astype(float)
    schema = Schema(tuple(Variable(f"b{i}", "boolean") for i in range(10)))
    features = Features.of(x, schema)
    assert features.binary
    label = split_rows(features, 2, rng)
    assert len(label) == 12_000 and agreement(label, kind) > 0.95


def test_em_never_lowers_the_likelihood_of_its_own_mixture() -> None:
    """More rounds give clusters that a product of tables describes at least as well."""
    rng = np.random.default_rng(2)
    x = (rng.random((500, 8)) < rng.random((3, 8))[rng.integers(0, 3, 500)]).astype(np.float32)
    weight, kinds = np.ones(500, np.float32), np.ones(8, dtype=np.int64)
    label = k_means(x, 3, rng, weight)
    costs = [_cost(x, mixture(x, kinds, label, weight, rounds=r)) for r in (1, 30)]
    assert costs[1] <= costs[0] + 1e-6


def _cost(x: np.ndarray, label: np.ndarray) -> float:
    """Classification likelihood of Bernoulli products, a row."""
    total = 0.0
    for k in np.unique(label):
        part = x[label == k]
        p = (part.sum(axis=0) + 0.5) / (len(part) + 1)
        total -= float((part * np.log(p) + (1 - part) * np.log(1 - p)).sum())
        total -= len(part) * np.log(len(part) / len(x))
    return total / len(x)


def test_weights_count_as_repetitions() -> None:
    rng = np.random.default_rng(3)
    x, _ = two_kinds(rng, 200)
    weight = rng.integers(1, 4, 200)
    features = Features.of(x, MIXED)
    rows = np.repeat(np.arange(200), weight)
    repeated = features.part(rows, np.arange(4))
    once = split_rows(features, 2, np.random.default_rng(0), weight.astype(np.float32))
    again = split_rows(repeated, 2, np.random.default_rng(0))
    assert (once[rows] == again).all()


def test_equal_rows_are_one_cluster_and_clusters_are_at_most_rows() -> None:
    rng = np.random.default_rng(4)
    x, _ = two_kinds(rng, 3)
    assert (split_rows(Features.of(np.repeat(x[:1], 20, axis=0), MIXED), 3, rng) == 0).all()
    assert split_rows(Features.of(x, MIXED), 50, rng).max() <= 2
    assert split_rows(Features.of(x[:1], MIXED), 2, rng).tolist() == [0]


def test_labels_have_no_gaps() -> None:
    rng = np.random.default_rng(5)
    x, _ = two_kinds(rng, 100)
    label = split_rows(Features.of(x, MIXED), 9, rng)
    assert set(label) == set(range(label.max() + 1))


def test_a_part_of_the_features_is_that_of_its_columns() -> None:
    x, _ = two_kinds(np.random.default_rng(6), 40)
    features = Features.of(x, MIXED)
    part = features.part(np.array([4, 9]), np.array([2, 0]))
    assert part.matrix.shape == (2, 4)
    assert (part.matrix[:, :3] == features.matrix[[4, 9]][:, 2:5]).all()
    assert (part.matrix[:, 3] == features.matrix[[4, 9], 0]).all()

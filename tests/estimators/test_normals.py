"""Mixtures of normals: of few rows, of classes, of mixed kinds, of one table and of parties."""

from __future__ import annotations

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.circuits.leaves import MultivariateGaussian
from fedcircuits.errors import ParameterError


def ellipses(rows: int, seed: int = 0) -> fc.Table:
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=rows)
    turned = np.array([[1.0, 0.9], [0.0, 0.3]])
    x = rng.normal(size=(rows, 2)) @ turned + 3.0 * np.stack([kind, kind % 2], axis=1)
    zeros = np.where(rng.random(rows) < 0.5, 0.0, rng.gamma(2.0, size=rows))
    name = np.array(["a", "b", "c"])[kind]
    return fc.Table.of({"x": x[:, 0], "y": x[:, 1], "rain": zeros, "n": rng.poisson(3, rows),
                        "kind": name})  # fmt: skip


def test_few_rows_suffice() -> None:
    """Of twenty rows of three classes: classes share a covariance, so it beats a product."""
    table, new = ellipses(20), ellipses(500, seed=1)
    normals = fc.MixtureOfNormals(target="kind", random_state=0).fit(table)
    products = fc.MixtureOfProducts(3, random_state=0).fit(table)
    assert normals.score(new) > products.score(new) + 0.3
    assert np.isfinite(normals.score_samples(new)).all()
    assert float(np.mean(normals.predict(new) == _kinds(new))) > 0.9


def _kinds(table: fc.Table) -> np.ndarray:
    return np.array(["a", "b", "c"])[table.values[:, table.schema.index("kind")].astype(int)]


def test_one_table_is_a_federation_of_one_party() -> None:
    table = ellipses(120)
    alone = fc.MixtureOfNormals(2, target="kind", random_state=0)
    parties = fc.MixtureOfNormals(2, target="kind", random_state=0).fit(fc.split(table, 6))
    assert abs(alone.fit(table).score(table) - parties.score(table)) < 0.3
    leaves = [leaf for leaf in parties.circuit_.leaves() if not leaf.name.startswith("outside:")]
    families = {leaf.name: leaf.family for leaf in leaves}
    assert families == {"normals": "multivariate_gaussian", "bins:rain": "histogram",
                        "poisson": "poisson", "classes": "indicator"}  # fmt: skip


def test_covariances_are_drawn_towards_what_units_have_in_common() -> None:
    second = np.stack([np.diag([4.0, 4.0]), np.diag([400.0, 400.0])])
    sums = {"count": np.array([4.0, 100.0]), "first": np.zeros((2, 2)), "second": second}
    old = {"mean": np.zeros((2, 2)), "covariance": np.stack([np.eye(2)] * 2)}
    apart = MultivariateGaussian().maximise(sums, old)["covariance"][:, 0, 0]
    drawn = MultivariateGaussian(pooled=10.0).maximise(sums, old)["covariance"][:, 0, 0]
    np.testing.assert_allclose(apart, [1.0, 4.0])
    within = 404 / 104
    np.testing.assert_allclose(drawn, [(4 + 10 * within) / 14, (400 + 10 * within) / 110])
    with pytest.raises(ParameterError, match="pooled must be a number from 0"):
        MultivariateGaussian(pooled=-1.0)

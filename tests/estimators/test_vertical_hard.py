"""VerticalGaussianMixture on hard data: odd columns, empty and collapsed components, gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.errors import PartyLostError
from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
from fedcircuits.federation.sums.summations import Chebyshev, Hub
from tests.methods.vertical.mixtures import NAMES, blocks_of, clustered, federation, quiet

X = clustered()
BLOCKS = blocks_of(7, 3)


def test_constant_and_duplicated_columns() -> None:
    x = np.column_stack([X[:, :4], np.full(len(X), 3.25), X[:, 0], X[:, 4]])
    model = VerticalGaussianMixture(3, random_state=0).fit(
        federation(x, [[0, 1, 5], [2, 3], [4, 6]])
    )
    assert model.converged_ and np.isfinite(model.score(x)) and not model.notes_
    np.testing.assert_allclose(model.means_[:, model.schema_.index("x4")], 3.25, atol=1e-9)


@pytest.mark.parametrize("by", [1e8, -1e8])
def test_columns_far_from_zero(by: float) -> None:
    near = VerticalGaussianMixture(3, random_state=0).fit(federation(X, BLOCKS))
    far = VerticalGaussianMixture(3, random_state=0).fit(federation(X + by, BLOCKS))
    assert far.n_iter_ == near.n_iter_
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, abs=1e-6)
    assert far.score(X + by) == pytest.approx(near.lower_bound_, abs=1e-5)


def test_units_do_not_matter() -> None:
    scale = 10.0 ** np.array([-6, 3, 0, 5, -2, 1, 8])
    near = VerticalGaussianMixture(3, random_state=0).fit(federation(X, BLOCKS))
    far = VerticalGaussianMixture(3, random_state=0).fit(federation(X * scale, BLOCKS))
    expected = near.lower_bound_ - np.log(scale).sum()
    assert far.lower_bound_ == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("summation", [Hub(), Chebyshev("cycle")])
def test_an_empty_component_begins_anew(summation: Any) -> None:
    start = np.vstack([X[:2], np.full(7, 1e4)])
    model = VerticalGaussianMixture(3, means_init=start, random_state=0, summation=summation)
    with pytest.warns(UserWarning, match="restarted at the row of lowest density, being empty"):
        model.fit(federation(X, BLOCKS))
    assert model.weights_.min() > 0.01
    assert any(e.phase == "em" and e.tag.startswith("em/worst") for e in model.ledger_)
    two = VerticalGaussianMixture(2, means_init=start[:2], random_state=0)
    assert model.lower_bound_ > two.fit(federation(X, BLOCKS)).lower_bound_


def test_a_collapsed_component_is_named() -> None:
    """Six equal rows far away: a component on them has no width."""
    x = np.vstack([X, np.repeat(X[:1] + 9, 6, axis=0)])
    model = VerticalGaussianMixture(2, means_init=x[[0, -1]], random_state=0)
    with pytest.warns(UserWarning) as told:
        model.fit(federation(x, BLOCKS))
    notes = [str(w.message) for w in told]
    assert len(notes) == 3
    for party, column, note in zip(NAMES, ("x0", "x3", "x5"), notes, strict=False):
        assert note.startswith(f"component 1 has collapsed at {party}: the variance of '{column}'")
        assert "raise reg_covar, or use fewer components" in note


def test_one_row_is_one_component() -> None:
    model = VerticalGaussianMixture(1, random_state=0).fit(federation(X[:1], BLOCKS))
    np.testing.assert_allclose(model.means_, X[:1])
    assert model.weights_.tolist() == [1.0]


def test_many_collapsed_components_cost_one_line_a_column() -> None:
    """Eight groups of equal rows, and a component on each."""
    x = np.repeat(10 * np.random.default_rng(0).normal(size=(8, 7)), 4, axis=0)
    model = VerticalGaussianMixture(8, means_init=x[::4], random_state=0)
    with pytest.warns(UserWarning, match="components 0, 1, 2, 3, 4, … have collapsed at") as told:
        model.fit(federation(x, BLOCKS))
    assert len(told) == 3


def test_without_a_floor_the_party_and_component_are_named() -> None:
    x = np.vstack([X, np.repeat(X[:1] + 9, 6, axis=0)])
    model = VerticalGaussianMixture(2, means_init=x[[0, -1]], reg_covar=0.0, random_state=0)
    with pytest.raises(PartyLostError, match=r"component 1 has collapsed in 'x0'.*raise reg_covar"):
        model.fit(federation(x, BLOCKS))


def test_missing_values_are_summed_out() -> None:
    x = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    model = quiet(VerticalGaussianMixture(3, tol=1e-4, random_state=0, reg_covar=0.0),
                  federation(x, BLOCKS))  # fmt: skip
    assert np.diff(model.lower_bounds_).min() > -1e-9
    assert model.score(x) == pytest.approx(model.lower_bound_, abs=1e-9)

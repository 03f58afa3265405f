"""The mixture of products as an estimator: scikit-learn's manners, and data of every size."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score

import fedcircuits as fc
from fedcircuits.errors import StructureError, TableError


def blobs(rows: int = 300) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 1.0], [3.0, 9.0]])
    return centres[rng.integers(3, size=rows)] + rng.normal(size=(rows, 2))


def test_constructor_only_keeps_its_arguments() -> None:
    model = fc.MixtureOfProducts(4, target="y", max_iter=7, tol=0.5, random_state=3)
    expected = {"components": 4, "target": "y", "max_iter": 7, "tol": 0.5, "random_state": 3}
    expected |= {"summation": fc.Hub(), "privacy": None, "device": "cpu"}
    assert model.get_params() == expected and vars(model) == expected
    assert model.set_params(components=2).components == 2
    assert fc.MixtureOfProducts(components=-1).components == -1, "checked when it fits"


def test_clone_forgets_what_was_learned() -> None:
    model = fc.MixtureOfProducts(3, random_state=0).fit(blobs())
    copy = clone(model)
    assert copy.get_params() == model.get_params() and not hasattr(copy, "circuit_")
    assert "components=3" in repr(model)


def test_fit_returns_itself_and_is_repeatable() -> None:
    model = fc.MixtureOfProducts(3, random_state=0)
    assert model.fit(blobs()) is model
    again = fc.MixtureOfProducts(3, random_state=0).fit(blobs())
    assert model.parameters_ == again.parameters_
    assert model.parameters_ != fc.MixtureOfProducts(3, random_state=1).fit(blobs()).parameters_
    model.parameters_.check(model.circuit_)


def test_likelihood_never_falls_and_the_history_ends_where_the_model_is() -> None:
    model = fc.MixtureOfProducts(3, random_state=0, tol=1e-8).fit(blobs())
    assert model.converged_
    assert (np.diff(model.history_) > -1e-9).all()
    assert model.history_[-1] == pytest.approx(model.score(blobs()))


def test_finds_the_clusters_that_scikit_learn_finds() -> None:
    data = blobs(2_000)
    peer = GaussianMixture(3, covariance_type="diag", random_state=0, tol=1e-7).fit(data)
    model = fc.MixtureOfProducts(3, random_state=0, tol=1e-9).fit(data)
    assert model.score(data) == pytest.approx(peer.score(data), abs=1e-3)


def test_works_in_tools_of_scikit_learn() -> None:
    found = cross_val_score(fc.MixtureOfProducts(3, random_state=0), blobs(), cv=3)
    assert found.shape == (3,) and (found > -6).all()


def test_an_old_fit_is_forgotten() -> None:
    model = fc.MixtureOfProducts(2, random_state=0).fit(blobs())
    model.score(blobs())
    model.fit(pd.DataFrame({"other": [1.5, 2.5, 9.5]}))
    assert model.schema_.names == ("other",)
    assert np.isfinite(model.score(pd.DataFrame({"other": [2.0]})))


MIXED = pd.DataFrame(
    {"x": [1.5, 2.5, np.nan, 4.0], "n": [3, 0, 7, 2], "c": ["u", None, "v", "u"], "b": [True] * 4}
)


@pytest.mark.parametrize(
    ("data", "components"),
    [
        (MIXED, 2),
        (MIXED, 9),
        (MIXED[:1], 3),
        (MIXED[["x"]], 2),
        (MIXED[["c"]], 2),
        (MIXED[["b"]], 2),
        (MIXED.assign(x=7.25, n=3, c="u"), 2),
        (MIXED.assign(x=0.0, n=0), 2),
        (pd.DataFrame({"a": [1.5, None, 2.5, None], "c": ["u", None, "v", None]}), 2),
        (pd.DataFrame({"a": [1e12, 1e12 + 1, 3e12], "b": [1e-12, 2e-12, 5e-12]}), 2),
        (pd.DataFrame({"n": [0, 0, 0, 1000]}), 3),
    ],
    ids=[
        "mixed",
        "more components than rows",
        "one row",
        "one real",
        "one category",
        "one constant boolean",
        "constants",
        "zeros",
        "rows without values",
        "large and small numbers",
        "an outlier",
    ],
)
def test_data_of_every_size(data: pd.DataFrame, components: int) -> None:
    model = fc.MixtureOfProducts(components, random_state=0).fit(data)
    model.parameters_.check(model.circuit_)
    assert np.isfinite(model.score_samples(data)).all()
    drawn = model.sample(20, random_state=0)
    assert np.isfinite(model.score_samples(drawn)).all()
    assert not model.mpe(data).isna().any().any()


def test_constants_are_learned_as_such() -> None:
    model = fc.MixtureOfProducts(2, random_state=0).fit(MIXED.assign(x=7.25, c="u"))
    assert model.expect("x").loc["x", "mean"] == pytest.approx(7.25)
    assert model.probability("b") > 0.99
    assert model.probability("c = u") == pytest.approx(1.0)


@pytest.mark.parametrize("components", [0, -1, 1.5, "8", None])
def test_components_that_are_no_number(components: object) -> None:
    with pytest.raises(StructureError, match="components must be a whole number from 1"):
        fc.MixtureOfProducts(components).fit(blobs())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (MIXED[:0], "expected a table with rows"),
        (MIXED.assign(x=[1.5, np.inf, 0, 1]), "'x'.*infinite"),
        (np.zeros(5), "two dimensions"),
        ("data.csv", "there is no such file"),
    ],
)
def test_data_that_is_none(data: object, words: str) -> None:
    model = fc.MixtureOfProducts(2)
    with pytest.raises(TableError, match=words):
        model.fit(data)  # type: ignore[arg-type]
    assert not hasattr(model, "circuit_")

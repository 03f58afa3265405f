"""y is used or refused: fit(X, y), score(X, y), and the attributes that scikit-learn looks for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError, TableError

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(300, 2)), columns=["a", "b"])
X["c"] = np.where(RNG.random(300) < 0.5, "f", "m")
KIND = np.where(X["a"] + 0.3 * RNG.normal(size=300) > 0, "ill", "well")
NUMBER = 2 * X["a"] - X["b"] + 0.1 * RNG.normal(size=300)


@pytest.mark.parametrize(
    "learner",
    [
        fc.LearnSPN(random_state=0),
        fc.MixtureOfProducts(6, random_state=0),
        fc.EinsumNetwork(units=2, epochs=2, random_state=0),
    ],
)
def test_y_is_the_target(learner: fc.LearnSPN | fc.MixtureOfProducts) -> None:
    model = clone(learner).fit(X, KIND)
    assert model.target is None and model.target_ == "target"
    assert model.schema_.names == ("a", "b", "c", "target")
    assert list(model.classes_) == ["ill", "well"] and model.n_features_in_ == 3
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    named = clone(learner).set_params(target="state").fit(X.assign(state=KIND))
    assert np.allclose(model.predict_proba(X), named.predict_proba(X))
    assert np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert model.score(X, KIND) == accuracy_score(KIND, model.predict(X)) > 0.7
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


def test_names_of_y() -> None:
    series = pd.Series(KIND, name="state")
    assert fc.MixtureOfProducts(2, random_state=0).fit(X, series).target_ == "state"
    told = fc.MixtureOfProducts(2, target="health", random_state=0).fit(X, series)
    assert told.target_ == "health" and told.fit(X.assign(health=KIND)).target_ == "health"
    column = fc.MixtureOfProducts(2, random_state=0).fit(X, KIND[:, None])
    assert column.score(X, KIND[:, None]) == column.score(X, KIND)


def test_numbers_are_judged_by_their_spread() -> None:
    model = fc.LearnSPN(random_state=0).fit(X, NUMBER)
    assert model.score(X, NUMBER) == pytest.approx(r2_score(NUMBER, model.predict(X)))
    assert model.score(X, NUMBER) > 0.9 and not hasattr(model, "classes_")
    with pytest.raises(QueryError, match="at least two rows"):
        model.score(X[:1], NUMBER[:1])


def test_gaps_in_y_are_rows_without_a_target() -> None:
    gaps = pd.Series(KIND, dtype=object)
    gaps[:150] = None
    model = fc.MixtureOfProducts(4, random_state=0).fit(X, gaps)
    assert list(model.classes_) == ["ill", "well"] and model.score(X, KIND) > 0.7


def test_a_circuit_learns_its_target_from_y() -> None:
    schema = fc.Table.of(X.assign(state=KIND)).schema
    structure = fc.structures.mixture_of_products(schema, 3)
    model = fc.CircuitModel(structure, target="state")
    model.fit(X, KIND, epochs=3, random_state=0)
    assert model.score(X, KIND) > 0.7 and list(model.classes_) == ["ill", "well"]


def test_what_is_refused() -> None:
    learner = fc.MixtureOfProducts(2, random_state=0)
    with pytest.raises(TableError, match="X has a column 'target', and y is given as well"):
        learner.fit(X.assign(target=KIND), KIND)
    with pytest.raises(TableError, match="one value for each of the 300 rows of X"):
        learner.fit(X, KIND[:-1])
    with pytest.raises(TableError, match="all values of y are missing"):
        learner.fit(X, [None] * 300)
    with pytest.raises(TableError, match="y works for rows in memory only"):
        learner.fit("rows.parquet", KIND)
    with pytest.raises(QueryError, match="name the column to predict"):
        learner.fit(X).score(X, KIND)
    assert not hasattr(learner, "classes_")


@pytest.mark.parametrize(
    "estimator",
    [
        fc.FedPC(),
        fc.VerticalKMeans(2),
        fc.FedTrees(target="c"),
        fc.FeatureFusion(target="c"),
        fc.ChowLiuTree(),
    ],
)
def test_federations_have_their_targets(estimator: fc.FedPC) -> None:
    federation = fc.split(fc.Table.of(X), 2)
    with pytest.raises(FederationError, match="y is not used: in a federation the target is"):
        estimator.fit(federation, KIND)

"""Estimators of other libraries behind the face of our models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

import fedcircuits as fc
from fedcircuits.errors import ParameterError, QueryError, TableError

NAMES = ["height", "weight", "age"]


def rows(count: int = 400, width: int = 3, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    centre = np.array([[0.0, 1.0, -2.0], [6.0, -3.0, 2.0]])[rng.integers(2, size=count)]
    mix = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.3], [0.2, 0.0, 0.7]])
    found = centre + rng.normal(size=(count, 3)) @ mix
    return pd.DataFrame(found[:, :width], columns=NAMES[:width])


class Flow:
    """A density of torch, as small as one can be: no parameters, tensors out, no seed."""

    def fit(self, X: np.ndarray) -> Flow:
        self.mean, self.scale = torch.from_numpy(X).mean(0), torch.from_numpy(X).std(0)
        return self

    def score_samples(self, X: np.ndarray) -> torch.Tensor:
        base = torch.distributions.Normal(self.mean, self.scale)
        return base.log_prob(torch.from_numpy(X)).sum(1).requires_grad_()

    def sample(self, count: int) -> tuple[torch.Tensor, None]:
        return self.mean + self.scale * torch.randn(count, len(self.mean)), None


# ---------------------------------------------------------------------- mixtures become circuits


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_a_gaussian_mixture_is_the_same_as_a_circuit(kind: str, width: int) -> None:
    data = rows(width=width)
    mixture = GaussianMixture(3, covariance_type=kind)
    model = fc.External(mixture, random_state=5).fit(data)
    peer = GaussianMixture(3, covariance_type=kind, random_state=5).fit(data.to_numpy())
    assert model.score_samples(data) == pytest.approx(peer.score_samples(data.to_numpy()), rel=1e-9)
    assert model.score(data) == pytest.approx(peer.score(data.to_numpy()))
    model.parameters_.check(model.circuit_)
    assert not hasattr(mixture, "weights_"), "the object given stays as it is"


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_marginals_and_conditionals_against_scipy(kind: str) -> None:
    data = rows()
    model = fc.External(GaussianMixture(2, covariance_type=kind), random_state=0).fit(data)
    mixture = model.learner_
    assert isinstance(mixture, GaussianMixture)
    covariances = [c if kind == "full" else np.diag(c) for c in mixture.covariances_]  # (3, 3) each
    parts = list(zip(mixture.weights_, mixture.means_, covariances, strict=True))
    x = np.array([0.5, 1.0])
    density = [w * stats.multivariate_normal.pdf(x, m[:2], c[:2, :2]) for w, m, c in parts]
    marginal = model.score_samples(pd.DataFrame([x], columns=NAMES[:2]))
    assert marginal == pytest.approx(np.log(sum(density)))
    means = [m[2] + c[2, :2] @ np.linalg.solve(c[:2, :2], x - m[:2]) for _, m, c in parts]
    wanted = np.dot(density, means) / sum(density)
    assert model.predict(pd.DataFrame([x], columns=NAMES[:2]), "age") == pytest.approx(wanted)
    above = sum(w * stats.norm.sf(1.0, m[0], np.sqrt(c[0, 0])) for w, m, c in parts)
    assert model.probability("height > 1") == pytest.approx(above)


def test_a_mixture_is_saved_drawn_and_loaded(tmp_path: Path) -> None:
    data = rows()
    model = fc.External(GaussianMixture(2), target="age", random_state=0).fit(data)
    model.save(tmp_path / "mixture.fc")
    again = fc.load(tmp_path / "mixture.fc")
    assert again.target == "age"
    assert np.array_equal(again.predict(data), model.predict(data))
    alone = model.to_circuit()
    assert alone.target == "age" and np.array_equal(alone.predict(data), model.predict(data))
    assert model.plot(given="height > 0").axes
    drawn = model.sample(30, given="height > 0", random_state=1)
    assert (drawn["height"] > 0).all() and list(drawn.columns) == NAMES
    assert not model.mpe(data.assign(age=np.nan)).isna().any().any()


def test_a_mixture_that_means_something_else_is_no_circuit() -> None:
    data = rows()
    model = fc.External(BayesianGaussianMixture(n_components=2), random_state=0).fit(data)
    assert not hasattr(model, "circuit_")
    peer = BayesianGaussianMixture(n_components=2, random_state=0).fit(data.to_numpy())
    assert model.score_samples(data) == pytest.approx(peer.score_samples(data.to_numpy()))


# ---------------------------------------------------------------------- opaque objects


def test_likelihoods_and_samples_of_a_kernel_density() -> None:
    data = rows()
    model = fc.External(KernelDensity(bandwidth=0.7)).fit(data)
    peer = KernelDensity(bandwidth=0.7).fit(data.to_numpy())
    shuffled = data[["age", "height", "weight"]].assign(more="text")
    assert model.score_samples(shuffled) == pytest.approx(peer.score_samples(data.to_numpy()))
    assert model.score(data) == pytest.approx(peer.score_samples(data.to_numpy()).mean())
    drawn = model.sample(40, random_state=3)
    assert list(drawn.columns) == NAMES and len(drawn) == 40
    pd.testing.assert_frame_equal(drawn, model.sample(40, random_state=3))
    assert not drawn.equals(model.sample(40, random_state=4))
    assert np.array_equal(model.mpe(data[:5]), data[:5]) and model.explain(data[:5]).exact


def test_weights_are_passed_on_where_the_object_takes_them() -> None:
    data = rows(50)
    weight = np.arange(50) + 1.0
    model = fc.External(KernelDensity()).fit(data, sample_weight=weight)
    peer = KernelDensity().fit(data.to_numpy(), sample_weight=weight)
    assert model.score_samples(data) == pytest.approx(peer.score_samples(data.to_numpy()))
    with pytest.raises(TableError, match="GaussianMixture cannot learn from weighted rows"):
        fc.External(GaussianMixture()).fit(data, sample_weight=weight)


def test_an_object_without_anything_of_scikit_learn() -> None:
    data = rows()
    given = Flow()
    model = fc.External(given, random_state=0).fit(data)
    assert vars(given) == {} and isinstance(model.learner_, Flow)
    right = stats.norm.logpdf(data, data.mean(), data.std()).sum(axis=1)
    assert model.score_samples(data) == pytest.approx(right)
    assert model.sample(7).shape == (7, 3)


def test_samples_are_seeded_through_the_object() -> None:
    model = fc.External(BayesianGaussianMixture(n_components=2), random_state=0).fit(rows())
    first, same, other = (model.sample(20, random_state=s) for s in (1, 1, 2))
    assert first.equals(same) and not first.equals(other)
    assert model.learner_.random_state == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda m: m.score_samples(rows(5).assign(age=np.nan)), "marginals: NaN in column 'age'"),
        (lambda m: m.score_samples(rows(5)[["age"]]), "marginals: NaN in column 'height'"),
        (lambda m: m.probability("age > 1"), "probabilities of events"),
        (lambda m: m.probability("age > 1", given="height > 0"), "probabilities of events"),
        (lambda m: m.expect("age"), "the mean of 'age'"),
        (lambda m: m.expect("age", given="height > 0"), "probabilities of events"),
        (lambda m: m.predict(rows(5), "age"), "the mean of 'age'"),
        (lambda m: m.sample(3, given="age > 1"), "samples given evidence"),
        (lambda m: m.sample(3, given=rows(5)), "samples given evidence"),
        (lambda m: m.mpe(rows(5).assign(age=np.nan)), "explanation: NaN in column 'age'"),
        (lambda m: m.plot(), "be drawn"),
        (lambda m: m.save("never.fc"), "be saved"),
        (lambda m: m.to_circuit(), "be converted to a circuit"),
    ],
)  # fmt: skip
def test_what_it_cannot_answer_it_says(question: object, words: str) -> None:
    model = fc.External(KernelDensity()).fit(rows())
    with pytest.raises(QueryError, match=f"KernelDensity cannot .*{words}.*score_samples and samp"):
        question(model)  # type: ignore[operator]
    assert not Path("never.fc").exists()


# ---------------------------------------------------------------------- manners


def test_scikit_learns_manners() -> None:
    model = fc.External(GaussianMixture(2), target="age", random_state=1)
    assert model.get_params()["learner__n_components"] == 2
    copy = clone(model.fit(rows()))
    assert not hasattr(copy, "learner_") and copy.get_params()["target"] == "age"
    search = GridSearchCV(
        fc.External(GaussianMixture(), random_state=0), {"learner__n_components": [1, 2]}, cv=2
    )
    assert search.fit(rows()).best_params_ == {"learner__n_components": 2}
    with pytest.raises(NotFittedError):
        fc.External(KernelDensity()).score_samples(rows())


def test_an_old_fit_is_forgotten() -> None:
    model = fc.External(GaussianMixture(2), random_state=0).fit(rows())
    model.score(rows())
    model.set_params(learner=KernelDensity()).fit(rows(width=1))
    assert model.schema_.names == ("height",) and not hasattr(model, "circuit_")
    with pytest.raises(QueryError, match="KernelDensity"):
        model.probability("height > 0")
    model.set_params(learner=GaussianMixture()).fit(rows(width=2))
    assert 0 < float(model.probability("weight > 0")) < 1


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (KMeans(), "has no score_samples and no sample"),
        (KernelDensity, "the class KernelDensity"),
        (None, "got None, which has no fit and no score_samples and no sample"),
    ],
)
def test_objects_that_are_no_density_estimators(learner: object, words: str) -> None:
    with pytest.raises(ParameterError, match=f"External needs an object.*{words}"):
        fc.External(learner).fit(rows())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (rows().assign(age="old"), "learns real columns, but 'age' is a category of 'old'"),
        (rows().assign(age=range(400)), "'age' is a count.*kinds={'age': 'real'}"),
        (rows().assign(age=[np.nan, *range(399)], weight=1.5), "'age'"),
        (rows().where(rows() < 8.0), "cannot learn from rows with missing values: 'height' has"),
        (rows(1), "GaussianMixture could not learn from this table: .*minimum of 2"),
        (rows(0), "expected a table with rows"),
    ],
)
def test_tables_it_cannot_learn_from(data: pd.DataFrame, words: str) -> None:
    model = fc.External(GaussianMixture(2))
    with pytest.raises(TableError, match=words):
        model.fit(data)
    assert not hasattr(model, "learner_")


class Frequencies(BaseEstimator):  # type: ignore[misc]
    """Says that it takes categories and gaps: frequencies of one column of codes."""

    def __sklearn_tags__(self) -> object:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: np.ndarray) -> Frequencies:
        self.share = np.bincount(X[~np.isnan(X)].astype(int)) / (~np.isnan(X)).sum()
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        known = self.share[np.nan_to_num(X[:, 0]).astype(int)]
        return np.log(np.where(np.isnan(X[:, 0]), 1.0, known))

    def sample(self, n: int, random_state: int) -> np.ndarray:
        rng = np.random.default_rng(random_state)
        return rng.choice(len(self.share), size=(n, 1), p=self.share)


def test_an_object_that_says_it_can_gets_codes_and_gaps() -> None:
    data = pd.DataFrame({"colour": ["red", "blue", None, "red", "red"]})
    model = fc.External(Frequencies()).fit(data)
    assert np.exp(model.score_samples(data)) == pytest.approx([0.75, 0.25, 1.0, 0.75, 0.75])
    assert set(model.sample(30, random_state=0)["colour"]) == {"red", "blue"}
    with pytest.raises(QueryError, match="probabilities of 'colour' given the remaining columns"):
        model.predict_proba(np.empty((2, 0)), "colour")


class Broken(Flow):
    def score_samples(self, X: np.ndarray) -> torch.Tensor:
        return super().score_samples(X)[:, None]

    def sample(self, count: int) -> tuple[torch.Tensor, None]:
        return torch.full((count, 3), torch.nan), None


def test_answers_of_the_wrong_form_are_refused() -> None:
    model = fc.External(Broken()).fit(rows())
    with pytest.raises(QueryError, match=r"score_samples must give a number for each of 400 rows"):
        model.score_samples(rows())
    with pytest.raises(QueryError, match=r"sample must give finite rows of the shape \(2, 3\)"):
        model.sample(2)

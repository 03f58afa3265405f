"""The number of components or clusters, chosen by what every training tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, PartyLostError
from tests.methods.vertical.mixtures import quiet

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)) + 7 * RNG.normal(size=(3, 4))[np.arange(120) % 3]
PARTIES = fc.split(fc.Table.of(X), 4, by="columns")
KINDS: list[Any] = [fc.VerticalGaussianMixture, fc.VerticalKMeans]


def number(model: Any) -> int:
    return max(model.criteria_, key=lambda k: -model.criteria_[k])


@pytest.mark.parametrize(
    ("kind", "summation"),
    [(KINDS[0], fc.Secret()), (KINDS[1], fc.Hub()), (KINDS[0], fc.Tree("path"))],
)
def test_three_groups_are_found(kind: Any, summation: Any) -> None:
    model = quiet(kind("auto", summation=summation, random_state=0), PARTIES)
    assert number(model) == 3 and set(model.criteria_) == {1, 2, 3, 4, 5, 6}
    assert any(note.startswith("3 c") and "criterion" in note for note in model.notes_)
    assert len(np.unique(model.predict(fc.Table.of(X)))) == 3
    single = quiet(kind(3, summation=summation, random_state=0), PARTIES)
    rows = fc.Table.of(X)
    assert adjusted_rand_score(model.predict(rows), single.predict(rows)) == 1
    assert len(model.ledger_) > 3 * len(single.ledger_)  # of all trainings
    assert model.get_params()[model.number_argument] == "auto"


def test_it_is_the_criterion_of_one_place() -> None:
    model = quiet(fc.VerticalGaussianMixture("auto", random_state=0, tol=1e-9), PARTIES)
    one = GaussianMixture(3, covariance_type="diag", random_state=0, tol=1e-9, max_iter=500).fit(X)
    assert model.criteria_[3] == pytest.approx(one.bic(X), rel=1e-4)
    assert model.criteria_[3] == pytest.approx(model.bic(fc.Table.of(X)), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_one_group_is_one(kind: Any) -> None:
    plain = fc.split(fc.Table.of(RNG.normal(size=(90, 3))), 3, by="columns")
    assert number(quiet(kind("auto", random_state=0), plain)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows(kind: Any) -> None:
    for rows in (1, 5):
        few = fc.split(fc.Table.of(RNG.normal(size=(rows, 3))), 3, by="columns")
        model = quiet(kind("auto", random_state=0), few)
        assert number(model) == 1 and max(model.criteria_) <= max(1, rows // 2)


def test_collapsed_components_are_not_taken() -> None:
    x = np.vstack([RNG.normal(size=(60, 6)), np.zeros((3, 6))])
    model = quiet(
        fc.VerticalGaussianMixture("auto", random_state=0),
        fc.split(fc.Table.of(x), 3, by="columns"),
    )
    assert model.weights_.min() * 63 > 3
    assert not any("collapsed" in note for note in model.notes_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_was_broken_off_goes_on(kind: Any) -> None:
    calls: list[int] = []

    def unreliable(programs: Any, kept: Any = None) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise PartyLostError("party 1", "party 1 is lost")
        return memory.run(programs, kept)

    model = kind("auto", random_state=0)
    with pytest.raises(PartyLostError):
        quiet(model, PARTIES, engine=unreliable)
    quiet(model, PARTIES, engine=unreliable, resume=True)
    whole = quiet(kind("auto", random_state=0), PARTIES)
    assert model.criteria_ == pytest.approx(whole.criteria_)
    assert len(calls) == len(whole.criteria_) + 1


def test_what_says_how_many_is_refused() -> None:
    for options in ({"means_init": np.zeros((2, 4))}, {"warm_start": True}):
        with pytest.raises(FederationError, match="needs a number"):
            fc.VerticalGaussianMixture("auto", **options).fit(PARTIES)  # type: ignore[arg-type]
    with pytest.raises(FederationError, match="give a number"):
        fc.VerticalKMeans("auto").fit(PARTIES, resume="run")
    with pytest.raises(FederationError, match="'auto' or a whole number"):
        fc.VerticalKMeans("many").fit(PARTIES)  # type: ignore[arg-type]

"""What every federated estimator does alike: arguments, runs that fail, pickling, questions."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.estimators.federated import FederatedEstimator
from fedcircuits.federation.flow import Program

RNG = np.random.default_rng(0)
BOTH = RNG.integers(2, size=(90, 1))
NUMBERS = fc.Table.of(RNG.normal(size=(90, 4)) + 5 * BOTH)
BITS = fc.Table.of((BOTH ^ (RNG.random((90, 4)) < 0.1)).astype(bool))
ROWS, COLUMNS = fc.split(NUMBERS, 3), fc.split(NUMBERS, 3, by="columns")
BIT_ROWS = fc.split(BITS, 3)
Make = Callable[..., FederatedEstimator[Any]]

MODELS: dict[str, tuple[Make, fc.Federation, Callable[[Any], np.ndarray]]] = {
    "FedPC": (fc.FedPC, COLUMNS, lambda m: m.score_samples(NUMBERS)),
    "FedTrees": (
        lambda **settings: fc.FedTrees(target="x0", trees=2, **settings),
        ROWS,
        lambda m: m.predict(NUMBERS),
    ),
    "VerticalGaussianMixture": (
        lambda **settings: fc.VerticalGaussianMixture(2, **settings),
        COLUMNS,
        lambda m: m.score_samples(NUMBERS),
    ),
    "VerticalKMeans": (
        lambda **settings: fc.VerticalKMeans(2, **settings),
        COLUMNS,
        lambda m: m.predict(NUMBERS),
    ),
    "PrivateForest": (
        lambda **settings: fc.PrivateForest(1, units=2, max_iter=3, **settings),
        BIT_ROWS,
        lambda m: m.score_samples(BITS),
    ),
    "ChowLiuTree": (fc.ChowLiuTree, BIT_ROWS, lambda m: m.score_samples(BITS)),
    "FeatureFusion": (
        lambda **settings: fc.FeatureFusion(
            fc.TabularEncoder(width=2, epochs=2),
            target="x3",
            share_target=True,
            epochs=2,
            **settings,
        ),
        COLUMNS,
        lambda m: m.predict(COLUMNS),
    ),
}
every = pytest.mark.parametrize("name", MODELS)


class Failing:
    """An engine whose first run is lost at a party, after everybody has done their work."""

    def __init__(self, party: str, times: int = 1) -> None:
        self.party, self.left = party, times

    def __call__(
        self,
        programs: Mapping[str, Program[Any]],
        kept: Mapping[tuple[str, str], object] | None = None,
    ) -> Outcome[Any]:
        outcome = memory.run(programs, kept)
        if self.left and self.party in programs:
            self.left -= 1
            outcome.lost = {self.party: PartyLostError(self.party, f"{self.party} is gone")}
        return outcome


@every
def test_it_is_checked_before_it_runs(name: str) -> None:
    make, parties, _ = MODELS[name]
    with pytest.raises(FederationError, match="random_state must be None or a whole number from 0"):
        make(random_state=-1).fit(parties)
    with pytest.raises(FederationError, match="unknown engine 'cloud'"):
        make().fit(parties, engine="cloud")
    if name != "ChowLiuTree":
        with pytest.raises(FederationError, match=f"{name} learns from a Federation.* got Table"):
            make().fit(NUMBERS)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match=f"this {name} is not fitted yet"):
        make()._check_fitted()


@every
def test_a_failed_run_is_resumed_and_never_pickled(name: str) -> None:
    make, parties, answers = MODELS[name]
    model = make(random_state=0)
    with pytest.raises(PartyLostError, match="party 2 is gone"):
        model.fit(parties, engine=Failing("party 2"))
    assert "_state" in vars(model)
    assert "_state" not in vars(pickle.loads(pickle.dumps(model)))
    model.fit(parties, resume=True)
    assert "_state" not in vars(model)
    expected = answers(make(random_state=0).fit(parties))
    tolerances = {
        "PrivateForest": 1e-3,  # shares are dealt anew
        "VerticalGaussianMixture": 1e-9,  # rows are added up in the order of another key
    }
    close = tolerances.get(name, 0)
    np.testing.assert_allclose(answers(model), expected, rtol=0, atol=close)


@every
def test_a_fitted_one_is_pickled_and_cloned(name: str) -> None:
    make, parties, answers = MODELS[name]
    model = make(random_state=0).fit(parties)
    same = zip(clone(model).get_params().items(), model.get_params().items(), strict=True)
    assert all(repr(a) == repr(b) for a, b in same)
    assert not hasattr(clone(model), "ledger_")
    asked = answers(model)
    again = pickle.loads(pickle.dumps(model))
    close = 1e-3 if name == "PrivateForest" else 0
    np.testing.assert_allclose(answers(again), asked, rtol=0, atol=close)
    assert len(again.ledger_) == len(model.ledger_) > 0 and again.kind_ == parties.kind
    if name != "ChowLiuTree":  # which everybody has after training
        assert len(model.queries_) > 0


@pytest.mark.parametrize("name", ["FedTrees", "VerticalGaussianMixture"])
def test_warnings_name_the_line_that_called_fit(name: str) -> None:
    make, parties, _ = MODELS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(random_state=0, on_lost="continue").fit(parties, engine=Failing("party 3"))
    lost = [w for w in caught if "continuing without party 3" in str(w.message)]
    assert [w.filename for w in lost] == [__file__]


def test_the_last_party_cannot_be_missed() -> None:
    make, parties, _ = MODELS["VerticalGaussianMixture"]
    with pytest.raises(
        PartyLostError, match="party 1 is gone; continuing without it is not possible"
    ):
        make(on_lost="continue").fit(parties.select(["party 1"]), engine=Failing("party 1"))
    with pytest.raises(PartyLostError, match="nobody else holds 'x2', 'x3'"):
        fc.FedPC(on_lost="continue").fit(COLUMNS, engine=Failing("party 1"))


def test_what_has_no_form_in_one_place_says_so() -> None:
    model = fc.VerticalKMeans(2, random_state=0).fit(COLUMNS)
    with pytest.raises(QueryError, match="VerticalKMeans cannot be collected in one place"):
        model.save("never.fc")

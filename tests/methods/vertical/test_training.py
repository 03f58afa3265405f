"""EM over columns of different parties equals EM in one place, and sends no more than it says."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import fedcircuits as fc
from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.messages import encode_message
from fedcircuits.federation.sums.collectives import Addend, Decision, Summation
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Metropolis, Tree
from tests.methods.vertical.mixtures import NAMES, Held, blocks_of, central, clustered, federation
from tests.methods.watched import keyed

X = clustered()
STARTS = X[[3, 50, 120]]
SUMMATIONS: dict[str, Summation] = {
    "hub": Hub(),
    "tree": Tree("path"),
    "chebyshev": Chebyshev("cycle", tolerance=1e-13),
    "metropolis": Metropolis("cycle", tolerance=1e-13),
}


def fitted(parties: fc.Federation, rounds: int = 100, **settings: Any) -> VerticalGaussianMixture:
    """From fixed means and unit covariances, or as the settings say, without asides; with one key
    in all runs, because it orders rows, and so what is in a batch."""
    known: dict[str, Any] = {"tol": 0.0, "max_iter": rounds, "random_state": 0}
    if "init_params" not in settings:
        identity = np.repeat(np.eye(X.shape[1])[None], 3, axis=0)
        known |= {"means_init": STARTS, "precisions_init": identity}
    model = VerticalGaussianMixture(**({"n_components": 3} | known | settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(parties, engine=keyed("memory"))


def some_held(parties: int, seed: int = 1) -> Held:
    """Every row at one party at least."""
    rng = np.random.default_rng(seed)
    held = rng.random((len(X), parties)) < 0.7
    held[np.arange(len(X)), rng.integers(parties, size=len(X))] = True
    return np.asarray(held)


# ---------------------------------------------------------------------- equal to one place


@pytest.mark.parametrize("parties", [1, 2, 3, 4])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_every_iteration_equals_one_place(parties: int, missing: bool, weighed: bool) -> None:
    blocks = blocks_of(X.shape[1], parties)
    held = some_held(parties) if missing else np.ones((len(X), parties), bool)
    rows = np.random.default_rng(2).gamma(2.0, size=len(X)) if weighed else np.ones(len(X))
    whole = central(X, blocks, STARTS, rows, held)
    bounds = [whole.step() for _ in range(8)]
    model = VerticalGaussianMixture(
        3, tol=0.0, max_iter=8, means_init=STARTS, random_state=0,
        precisions_init=np.repeat(np.eye(X.shape[1])[None], 3, axis=0),
    )  # fmt: skip
    weight = pd.Series(rows, index=1000 + np.arange(len(X))) if weighed else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(federation(X, blocks, held), sample_weight=weight)
    np.testing.assert_allclose(model.lower_bounds_, bounds, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.weights_, whole.weights, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.means_, whole.means, rtol=0, atol=1e-10)
    for b, party in enumerate(NAMES[:parties]):
        found = model.covariances_[party]
        np.testing.assert_allclose(found, whole.covariances[b], rtol=0, atol=1e-10)
    assert model.lower_bound_ == pytest.approx(whole.step(), abs=1e-10)


@pytest.mark.parametrize(("kind", "parties"), [("full", 1), ("diag", 4)])
@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_equals_scikit_learn(kind: str, parties: int, rounds: int) -> None:
    x = X[:, :4]
    weights = np.array([0.2, 0.3, 0.5])
    precisions = np.repeat(np.eye(4)[None], 3, axis=0) if kind == "full" else np.ones((3, 4))
    start: dict[str, Any] = {
        "weights_init": weights, "means_init": STARTS[:, :4], "precisions_init": precisions,
        "tol": 0.0, "max_iter": rounds, "random_state": 0,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        peer = GaussianMixture(3, covariance_type=kind, **start).fit(x)
        model = VerticalGaussianMixture(3, **start).fit(federation(x, blocks_of(4, parties)))
    bounds = getattr(peer, "lower_bounds_", [peer.lower_bound_])  # older ones keep the last alone
    np.testing.assert_allclose(model.lower_bounds_[-len(bounds) :], bounds, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.means_, peer.means_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.weights_, peer.weights_, rtol=0, atol=1e-10)
    found = np.concatenate([c.reshape(3, -1) for c in model.covariances_.values()], axis=1)
    np.testing.assert_allclose(found, peer.covariances_.reshape(3, -1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.score_samples(x), peer.score_samples(x), rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(x), peer.predict_proba(x), rtol=0, atol=1e-9)
    assert model.bic(x) == pytest.approx(peer.bic(x), abs=1e-6)
    assert model.aic(x) == pytest.approx(peer.aic(x), abs=1e-6)


@pytest.mark.parametrize("name", SUMMATIONS)
def test_every_way_to_add_up_gives_the_same(name: str) -> None:
    parties = federation(X, blocks_of(7, 4), some_held(4))
    expected = fitted(parties, 15)
    found = fitted(parties, 15, summation=SUMMATIONS[name])
    np.testing.assert_allclose(found.lower_bounds_, expected.lower_bounds_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.means_, expected.means_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.score_samples(X), expected.score_samples(X), atol=1e-7)


@pytest.mark.parametrize("init", ["k-means++", "random_from_data"])
def test_likelihood_never_falls(init: str) -> None:
    for seed in range(3):
        x = clustered(seed=seed, apart=0.8)
        parties = federation(x, blocks_of(7, 3), some_held(3, seed))
        settings: dict[str, Any] = {"init_params": init, "random_state": seed, "reg_covar": 0.0}
        bounds = fitted(parties, 60, **settings).lower_bounds_
        assert np.diff(bounds).min() > -1e-10
        assert bounds[-1] > bounds[0]


# ---------------------------------------------------------------------- what crosses


def sizes(model: VerticalGaussianMixture, tag: str, sender: str) -> set[int]:
    return {e.bytes for e in model.ledger_ if e.tag == tag and e.sender == sender}


@pytest.mark.parametrize(("dtype", "width"), [("float64", 8), ("float32", 4)])
@pytest.mark.parametrize("components", [1, 2, 5])
def test_traffic_of_an_iteration(dtype: Any, width: int, components: int) -> None:
    """K − 1 numbers per row and one more, up and down, and two numbers that are agreed."""
    parties = federation(X, blocks_of(7, 3))
    settings = {"means_init": X[:components], "precisions_init": None, "n_components": components}
    model = fitted(parties, 4, summation=Hub(dtype), **settings)
    numbers = (components - 1) * len(X) + 1
    header = len(encode_message(Addend(np.zeros(numbers, dtype)))) - width * numbers
    assert header < 40
    agreed = len(encode_message(Decision(np.zeros(2))))
    for t in range(4):
        for party in NAMES[:3]:
            assert sizes(model, f"em/terms/0/{t}", party) == {header + width * numbers}
        assert sizes(model, f"em/terms/0/{t}", COORDINATOR) == {header + width * numbers}
        assert sizes(model, f"em/agreed/0/{t}", COORDINATOR) == {agreed}
    phases = {e.phase for e in model.ledger_}
    assert phases == {"agree", "key", "rows", "em", "result"}
    assert sum(e.phase == "em" for e in model.ledger_) == 4 * (2 * 3 + 3) + 2 * 3


def test_batches_send_as_much_in_smaller_steps() -> None:
    parties = federation(X, blocks_of(7, 3))
    model = fitted(parties, 2, batch_size=100)
    up = [e for e in model.ledger_ if e.tag.startswith("em/terms/0/1") and e.sender == "north"]
    assert [e.bytes for e in up] == [
        len(encode_message(Addend(np.zeros(n)))) for n in (201, 201, 81)
    ]


def test_float32_changes_little() -> None:
    parties = federation(X, blocks_of(7, 3))
    single, double = (fitted(parties, 20, summation=Hub(d)) for d in ("float32", "float64"))
    assert single.lower_bound_ == pytest.approx(double.lower_bound_, rel=1e-6)
    assert single.score(X) == pytest.approx(double.score(X), rel=1e-7)


def test_the_ledger_says_what_is_learned() -> None:
    settings = {"init_params": "k-means++", "random_state": 0}
    model = fitted(federation(X, blocks_of(7, 3)), 3, **settings)
    told = model.ledger_.revealed(COORDINATOR)
    assert set(told["from"]) == set(NAMES[:3])
    words = " ".join(told["what"])
    for part in ("the sealed tokens of its rows", "the squared distance to one row",
                 "under each component minus that of the last"):  # fmt: skip
        assert part in words
    parties = model.ledger_.revealed("south")
    assert set(parties["from"]) == {"north", COORDINATOR}  # the key, and results
    learned = set(parties[parties["from"] == "north"]["what"])
    assert learned == {
        "the key that turns row ids into tokens",
        "the rows at which the centres start",
    }


# ---------------------------------------------------------------------- lots of rows


def test_one_lot_of_all_rows_is_plain_em() -> None:
    parties = federation(X, blocks_of(7, 3), some_held(3))
    plain, batch = fitted(parties, 10), fitted(parties, 10, batch_size=len(X))
    np.testing.assert_allclose(batch.lower_bounds_, plain.lower_bounds_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(batch.means_, plain.means_, rtol=0, atol=1e-9)


def test_incremental_em_needs_fewer_passes() -> None:
    x = clustered(600, apart=0.9, seed=4)
    parties = federation(x, blocks_of(7, 3))
    start = {"means_init": x[:3], "tol": 1e-5}
    plain, batch = fitted(parties, 400, **start), fitted(parties, 400, batch_size=30, **start)
    assert plain.converged_ and batch.converged_
    assert batch.n_iter_ < 0.7 * plain.n_iter_
    assert batch.lower_bound_ > plain.lower_bound_ - 1e-3


def test_incremental_sums_do_not_cancel() -> None:
    """Columns far from zero: sums of squares would lose all digits."""
    blocks = blocks_of(7, 3)
    near, far = federation(X, blocks), federation(X + 1e8, blocks)
    start: dict[str, Any] = {"batch_size": 60, "precisions_init": None}
    here = fitted(near, 15, **start)
    there = fitted(far, 15, **(start | {"means_init": STARTS + 1e8}))
    assert there.lower_bound_ == pytest.approx(here.lower_bound_, abs=1e-5)
    np.testing.assert_allclose(there.means_ - 1e8, here.means_, atol=1e-4)


# ---------------------------------------------------------------------- hubs


def test_columns_move_into_hubs_only() -> None:
    """A path of four, one hop: three join, one stays alone."""
    parties = federation(X, blocks_of(7, 4), some_held(4))
    model = fitted(parties, 6, summation=Tree("path"), hops=1)
    ways = {("north", "east"), ("south", "east")}
    moved = [e for e in model.ledger_ if e.phase == "hub"]
    assert {(e.sender, e.receiver) for e in moved} == ways
    values = [e for e in moved if e.reveals.startswith("every value of 'x")]
    assert {(e.sender, e.receiver) for e in values} == ways
    assert set(model.covariances_) == {"east", "west"}
    assert model.covariances_["east"].shape == (3, 6, 6)
    rest = [e for e in model.ledger_ if e.phase == "em"]
    assert {e.sender for e in rest} == set(NAMES)  # all help to add up


def test_a_hub_of_all_is_full_em() -> None:
    parties = federation(X, blocks_of(7, 4))
    model = fitted(parties, 6, summation=Tree("star"), hops=1)
    whole = central(X, [list(range(7))], STARTS)
    np.testing.assert_allclose(model.lower_bounds_, [whole.step() for _ in range(6)], atol=1e-10)


def test_rows_missing_in_a_hub_are_summed_out() -> None:
    """Gaps inside a Gaussian block: the likelihood still never falls, and is the circuit's."""
    parties = federation(X, blocks_of(7, 4), some_held(4))
    model = fitted(parties, 40, summation=Tree("star"), hops=1, reg_covar=0.0)
    assert np.diff(model.lower_bounds_).min() > -1e-9
    assert model.score_samples(parties).mean() == pytest.approx(model.lower_bound_, abs=1e-9)


# ---------------------------------------------------------------------- peers


def test_peers_match_rows_among_themselves() -> None:
    parties = federation(X, blocks_of(7, 3), some_held(3))
    model = fitted(parties, 5, summation=Tree("complete"))
    told = [e for e in model.ledger_ if COORDINATOR in (e.sender, e.receiver)]
    assert {e.receiver for e in told} == {COORDINATOR}
    assert [e.tag for e in told if e.sender == "north"] == ["result/mixture", "result/block"]
    assert {e.tag for e in told if e.sender != "north"} == {"result/block"}
    first = model.ledger_.revealed("north")
    assert "the sealed tokens of its rows" in set(first["what"])
    np.testing.assert_allclose(model.means_, fitted(parties, 5).means_, atol=1e-10)


def test_engines_give_the_same_bits() -> None:
    parties = federation(X, blocks_of(7, 3), some_held(3))
    settings: dict[str, Any] = {"random_state": 5, "n_init": 2, "batch_size": 100, "tol": 0.0}
    found = []
    for engine in ("memory", "process"):
        model = VerticalGaussianMixture(3, max_iter=2, **settings)
        with pytest.warns(ConvergenceWarning):
            model.fit(parties, engine=keyed(engine))
        found.append((model.means_, model.lower_bounds_, model.ledger_.bytes))
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]

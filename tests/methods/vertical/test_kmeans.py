"""k-means over columns of different parties: the clusters of all columns together."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.estimators.vertical_kmeans import VerticalKMeans
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Tree
from tests.federation.cases import mixed_table
from tests.methods.vertical.mixtures import NAMES, blocks_of, clustered, federation

X = clustered(apart=2.0)
PARTIES = federation(X, blocks_of(7, 3))
IDS = 1000 + np.arange(len(X))


def of_rows(model: VerticalKMeans) -> Any:
    """Labels in the order of X."""
    ids = PARTIES["north"].table.row_ids
    return pd.Series(model.labels_["north"], index=ids)[IDS].to_numpy()


@pytest.mark.parametrize("summation", [Hub(), Tree("path"), Chebyshev("cycle")])
@pytest.mark.parametrize("clusters", [1, 2, 3, 9])
def test_it_ends_where_scikit_learn_stays(summation: Any, clusters: int) -> None:
    model = VerticalKMeans(clusters, random_state=1, summation=summation).fit(PARTIES)
    peer = KMeans(clusters, init=model.cluster_centers_, n_init=1, tol=0.0).fit(X)
    assert np.array_equal(peer.labels_, of_rows(model))
    assert model.inertia_ == pytest.approx(peer.inertia_, rel=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, peer.cluster_centers_, atol=1e-9)
    assert np.array_equal(model.predict(X), peer.labels_)
    assert -model.score(X) == pytest.approx(peer.inertia_, rel=1e-9)


def test_seeds_are_spread_out() -> None:
    """Most starts end as well as the best of many, and the best of four does."""
    best = KMeans(3, n_init=20, random_state=0).fit(X).inertia_
    found = [VerticalKMeans(3, random_state=s).fit(PARTIES).inertia_ for s in range(10)]
    assert sum(f < 1.001 * best for f in found) >= 7
    assert VerticalKMeans(3, n_init=4, random_state=0).fit(PARTIES).inertia_ < 1.001 * best


def test_what_crosses() -> None:
    model = VerticalKMeans(4, random_state=0).fit(PARTIES)
    up = [e for e in model.ledger_ if e.sender == "south" and e.phase in ("seed", "means")]
    header = 37
    assert all(8 * len(X) < e.bytes < 8 * len(X) + header for e in up if e.phase == "seed")
    rows = 8 * (3 * len(X) + 1)
    assert all(rows < e.bytes < rows + header for e in up if e.phase == "means")
    assert len(up) == 3 + model.n_iter_


def test_weights_count_as_repetitions() -> None:
    times = np.random.default_rng(0).integers(1, 4, size=len(X))
    weight = pd.Series(times.astype(float), index=IDS)
    model = VerticalKMeans(3, random_state=0).fit(PARTIES, sample_weight=weight)
    often = np.repeat(X, times, axis=0)
    peer = KMeans(3, init=model.cluster_centers_, n_init=1, tol=0.0).fit(often)
    assert model.inertia_ == pytest.approx(peer.inertia_, rel=1e-9)


def test_mixed_columns_with_gaps() -> None:
    table = mixed_table()
    places = {"north": ["age", "colour"], "south": ["visits", "smoker"], "west": ["weight", "risk"]}
    tables = {p: table.select(n).rows(np.arange(i, 150)) for i, (p, n) in enumerate(places.items())}
    parties = fc.Federation(tables, allow_collect=True)
    model = VerticalKMeans(3, standardise=True, random_state=0).fit(parties)
    assert model.feature_names_[:4] == ("age", "colour=red", "colour=green", "colour=blue")
    shares = model.cluster_centers_[:, 1:4]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(parties), model.labels_["north"])


def test_a_centre_without_rows_begins_anew() -> None:
    """Four places and more centres than these: no centre stays without rows while rows differ."""
    x = np.repeat(np.random.default_rng(0).normal(size=(4, 7)), 10, axis=0)
    for seed in range(5):
        model = VerticalKMeans(4, random_state=seed).fit(federation(x, blocks_of(7, 3)))
        assert model.inertia_ == pytest.approx(0.0, abs=1e-9)
    more = VerticalKMeans(6, random_state=0, max_iter=5).fit(federation(x, blocks_of(7, 3)))
    assert more.inertia_ == pytest.approx(0.0, abs=1e-9)


def test_arguments_and_hubs() -> None:
    with pytest.raises(NotFittedError, match="call fit first"):
        VerticalKMeans(2).predict(X)
    with pytest.raises(FederationError, match="n_clusters must be 'auto' or a whole number from 1"):
        VerticalKMeans(0).fit(PARTIES)
    with pytest.raises(PartyLostError, match=r"999 clusters and \d+ rows: use at most"):
        VerticalKMeans(999).fit(PARTIES)
    with pytest.raises(FederationError, match=r"tol must be a number from 0, got -1\.0"):
        VerticalKMeans(2, tol=-1.0).fit(PARTIES)
    two = federation(X, blocks_of(7, 2), allow_collect=False)
    with pytest.warns(UserWarning, match="two parties"):
        model = VerticalKMeans(2, random_state=0).fit(two)
    with pytest.raises(FederationError, match="did not allow"):
        _ = model.cluster_centers_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hubs = VerticalKMeans(3, random_state=0, summation=Tree("path"), hops=1).fit(
            federation(X, blocks_of(7, 4))
        )
    assert set(hubs.labels_) == set(NAMES)
    assert np.array_equal(hubs.predict(X), VerticalKMeans(3, random_state=0).fit(
        federation(X, blocks_of(7, 4))).predict(X))  # fmt: skip

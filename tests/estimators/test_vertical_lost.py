"""Vertical mixtures whose parties fail in the middle of EM: named, resumed, or left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcircuits.errors import FederationError, PartyLostError
from fedcircuits.estimators.vertical_kmeans import VerticalKMeans
from fedcircuits.estimators.vertical_mixture import VerticalGaussianMixture
from fedcircuits.federation.sums.summations import Chebyshev, Hub, Tree
from tests.methods.vertical.mixtures import blocks_of, clustered, federation, quiet
from tests.methods.watched import Broken

X = clustered()
BLOCKS = blocks_of(7, 3)
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(7)])


def settings(rounds: int) -> dict[str, Any]:
    return {"n_components": 3, "tol": 0.0, "max_iter": rounds, "random_state": 0}


def test_a_lost_party_stops_the_run_and_it_is_resumed() -> None:
    parties = federation(X, BLOCKS)
    whole = quiet(VerticalGaussianMixture(**settings(12)), parties)
    model, engine = VerticalGaussianMixture(**settings(12)), Broken("south", "em/terms/0/7")
    with pytest.raises(PartyLostError, match=r"south failed while .*fit.*resume=True") as lost:
        model.fit(parties, engine=engine)
    assert lost.value.party == "south"
    quiet(model, parties, engine=engine, resume=True)
    np.testing.assert_allclose(model.lower_bounds_, whole.lower_bounds_, atol=1e-10)
    np.testing.assert_allclose(model.means_, whole.means_, atol=1e-10)
    first = next(e.tag for e in model.ledger_ if e.phase == "em")
    assert first == "em/terms/0/5"  # nothing before was done again


@pytest.mark.parametrize(("summation", "engine"), [(Hub(), "memory"), (Tree("path"), "process")])
def test_clusters_are_resumed(summation: Any, engine: str) -> None:
    """In the second start, with what came of the first."""
    parties, how = federation(X, BLOCKS), {"n_init": 2, "random_state": 4, "summation": summation}
    whole = VerticalKMeans(9, **how).fit(parties)
    model, broken = VerticalKMeans(9, **how), Broken("south", "means/agreed/1/6", engine)
    with pytest.raises(PartyLostError, match=r"south failed while .*fit.*resume=True"):
        model.fit(parties, engine=broken)
    model.fit(parties, engine=broken, resume=True)
    assert {m for m, _ in broken.kept[-1]} >= {"north", "east", "south"}
    assert (model.inertia_, model.n_iter_) == (pytest.approx(whole.inertia_), whole.n_iter_)
    assert all((model.labels_[p] == whole.labels_[p]).all() for p in parties.names)
    tags = [e.tag for e in model.ledger_ if e.phase in ("seed", "means")]
    assert tags[0].startswith("means/rows/1/5")  # nothing before was done again


def test_clusters_are_resumed_with_other_rows() -> None:
    parties, rest = federation(X, BLOCKS), federation(X[:200], BLOCKS)
    model, broken = VerticalKMeans(9, random_state=4), Broken("south", "means/agreed/0/6")
    with pytest.raises(PartyLostError, match="resume=True"):
        model.fit(parties, engine=broken)
    model.fit(rest, engine=broken, resume=True)
    assert len(model.labels_["south"]) == 200
    assert -model.score(X[:200]) == pytest.approx(model.inertia_)


@pytest.mark.parametrize("summation", [Hub(), Tree("cycle"), Chebyshev("complete")])
def test_em_goes_on_without_a_party(summation: Any) -> None:
    """From what the others had learned: the mixture of their columns is the exact marginal."""
    parties = federation(X, blocks_of(7, 4))
    model = VerticalGaussianMixture(**settings(12), on_lost="continue", summation=summation)
    with pytest.warns(UserWarning, match="south failed while .*continuing without south"):
        quiet(model, parties, engine=Broken("south", "em/terms/0/7"))
    before = VerticalGaussianMixture(**settings(5), warm_start=True)
    quiet(before, parties)
    left = [f"x{j}" for i in (0, 1, 3) for j in blocks_of(7, 4)[i]]
    marginal = before.score(FRAME[left])
    before.max_iter = 7
    rest = quiet(before, parties.select(["north", "east", "west"]))
    assert model.lower_bounds_[5] == pytest.approx(marginal, abs=1e-8)
    np.testing.assert_allclose(model.lower_bounds_[5:], rest.lower_bounds_, atol=1e-8)
    assert set(model.views_) == {"north", "east", "west"}
    assert model.score(FRAME) == pytest.approx(model.lower_bound_, abs=1e-8)


def test_peers_that_cannot_reach_each_other_do_not_go_on() -> None:
    parties = federation(X, BLOCKS)
    model = VerticalGaussianMixture(**settings(9), on_lost="continue", summation=Tree("path"))
    with (
        pytest.raises(FederationError, match="is not connected"),
        pytest.warns(UserWarning, match="continuing without east"),
    ):
        model.fit(parties, engine=Broken("east", "em/terms/0/3"))

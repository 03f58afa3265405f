"""Mixtures over columns and k-means between owners: what memory finds, and nothing of a party in
the hands of whoever asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.admission import CALLER
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.federation.recipes import Held
from tests.engines.sites.hands import Listening, found_in_hands
from tests.engines.sites.local import LocalSites
from tests.engines.sites.striking import Striking, phase_of

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)) + 4 * RNG.integers(2, size=(60, 1))
TABLE = fc.Table.of(X)
SUMS = {
    "hub": fc.Hub(),
    "tree": fc.Tree("path"),
    "chebyshev": fc.Chebyshev("path", tolerance=1e-6),
    "metropolis": fc.Metropolis("path", tolerance=1e-3),
    "secret": fc.Secret(),
}
OPEN = Policy(collect=True)


def columns(parties: int = 3, ids: bool = False, collect: bool = True) -> fc.Federation:
    """Different columns of rows in one order or, with ids, of most of them in any order."""
    tables = {}
    for i, own in enumerate(np.array_split(np.arange(6), min(parties, 6))):
        table = TABLE.select([f"x{j}" for j in own])
        rows = np.sort(RNG.permutation(60)[:54]) if i else RNG.permutation(60)
        names = np.array([f"patient-{r:04d}" for r in range(60)])
        tables[f"p{i}"] = fc.Table(table.schema, table.values)
        if ids:
            tables[f"p{i}"] = fc.Table(table.schema, table.values[rows], names[rows])
    return fc.Federation(tables, allow_collect=collect)


def many(parties: int) -> fc.Federation:
    wide = RNG.normal(size=(40, parties)) + 4 * RNG.integers(2, size=(40, 1))
    tables = {f"p{i}": fc.Table.of({f"x{i}": wide[:, i]}) for i in range(parties)}
    return fc.Federation(tables, allow_collect=True)


def sites_of(local: fc.Federation, folder: Path, policy: Policy = OPEN) -> LocalSites:
    return LocalSites({p.name: p for p in local}, folder, policy=policy)


def answers(model: Any, federation: fc.Federation) -> list[Any]:
    """All that a mixture or clusters can be asked."""
    rows = TABLE.rows([0, 7, 31])
    if isinstance(model, fc.VerticalKMeans):
        found = [model.predict(rows), model.score(rows), model.cluster_centers_, model.inertia_]
        return [*found, model.predict(federation), model.n_iter_, model.feature_names_]
    found = [model.predict_proba(rows), model.score_samples(rows), model.predict(rows)]
    found += [model.predict_proba(federation), model.score_samples(federation)]
    found += [model.bic(rows), model.aic(federation), model.means_, *model.covariances_.values()]
    found += [model.weights_, model.lower_bounds_, model.lower_bound_, model.converged_]
    found += [model.sample(3, random_state=1).to_numpy(), model.expect("x1", given="x0 > 1")]
    return [*found, model.probability("x0 > 1", given="x5 < 2"), model.explain(rows).values]


def same(here: list[Any], there: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize("kind", [fc.VerticalGaussianMixture, fc.VerticalKMeans])
@pytest.mark.parametrize("how", SUMS)
def test_every_answer_is_that_of_memory(tmp_path: Path, kind: Any, how: str) -> None:
    local = columns()
    there = sites_of(local, tmp_path).federation()
    models = [kind(2, max_iter=4, random_state=0, summation=SUMS[how]) for _ in range(2)]
    here, remote = models[0].fit(local), models[1].fit(there)
    assert same(answers(here, local), answers(remote, there))
    assert (here.ledger_.bytes, here.queries_.bytes) == (
        remote.ledger_.bytes,
        remote.queries_.bytes,
    )
    assert all(isinstance(label, Held) for label in remote.labels_.values())


def test_columns_move_only_where_sites_share_them(tmp_path: Path) -> None:
    local, settings = columns(), {"hops": 1, "summation": SUMS["tree"], "random_state": 0}
    strict = sites_of(local, tmp_path / "strict").federation()
    with pytest.raises(PartyLostError, match="share_columns = false"):
        fc.VerticalKMeans(2, **settings).fit(strict)  # type: ignore[arg-type]
    open_ = sites_of(local, tmp_path / "open", Policy(share_columns=True)).federation()
    here, there = (
        fc.VerticalKMeans(2, **settings).fit(parties)  # type: ignore[arg-type]
        for parties in (local, open_)
    )
    assert here.inertia_ == there.inertia_ and here.feature_names_ == there.feature_names_
    assert np.array_equal(here.predict(local), there.predict(open_))


@pytest.mark.parametrize("rows", ["tokens", "private"])
@pytest.mark.parametrize("how", ["hub", "tree"])
def test_rows_are_matched_between_owners(tmp_path: Path, rows: Any, how: str) -> None:
    """Their common order is another one in every run, and sums differ by rounding."""
    local = columns(ids=True)
    there = sites_of(local, tmp_path).federation()
    settings: Any = {"max_iter": 4, "random_state": 0, "rows": rows, "summation": SUMS[how]}
    here = fc.VerticalGaussianMixture(2, **settings).fit(local)
    remote = fc.VerticalGaussianMixture(2, **settings).fit(there)
    found = [m.predict_proba(f) for m, f in ((here, local), (remote, there))]
    np.testing.assert_allclose(*found, atol=1e-9)
    assert np.allclose(here.means_, remote.means_, atol=1e-9)
    assert any(e.phase == "psi" for e in remote.ledger_) == (rows == "private")


@pytest.mark.parametrize("parties", [1, 2, 7])
def test_few_parties_and_many(tmp_path: Path, parties: int) -> None:
    local = many(parties)
    there = sites_of(local, tmp_path).federation()
    models = [fc.VerticalKMeans(2, random_state=0) for _ in range(2)]
    here, remote = models[0].fit(local), models[1].fit(there)
    assert np.array_equal(here.predict(local), remote.predict(there))
    assert here.inertia_ == remote.inertia_


@pytest.mark.parametrize("kind", [fc.VerticalGaussianMixture, fc.VerticalKMeans])
@pytest.mark.parametrize("how", ["hub", "tree", "secret"])
def test_nothing_of_a_party_is_in_the_callers_hands(tmp_path: Path, kind: Any, how: str) -> None:
    local = columns(ids=True, collect=False)
    sites = sites_of(local, tmp_path, Policy())
    heard, there = Listening(sites), sites.federation()
    model = kind(2, max_iter=4, random_state=0, summation=SUMS[how]).fit(there)
    model.predict(there)
    model.predict(TABLE.rows([0, 1]))
    assert found_in_hands(model, heard, local) == []
    assert sum(e.receiver == "coordinator" for e in model.ledger_) == sum(
        '"to": "coordinator"' in line and '"sent"' in line
        for path in tmp_path.glob("p*/audit.jsonl")
        for line in path.read_text().splitlines()
    ) - sum(e.receiver == "coordinator" for e in model.queries_)


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    local = columns(ids=True)
    sites = sites_of(local, tmp_path)
    heard = Listening(sites)
    model = fc.VerticalKMeans(2, random_state=0).fit(local)
    assert "a table" in found_in_hands(local, heard, local)
    heard.frames.append(b"patient-0003" + X[0, 0].tobytes())
    found = found_in_hands(model, heard, local)
    assert "patient-0003 was heard" in found and f"{X[0, 0]} was heard" in found


def test_parties_that_do_not_allow_it_tell_no_parameters(tmp_path: Path) -> None:
    there = sites_of(columns(collect=False), tmp_path, Policy()).federation()
    model = fc.VerticalGaussianMixture(2, max_iter=2, random_state=0).fit(there)
    with pytest.raises(FederationError, match="did not allow"):
        assert model.means_.size
    model._allow_collect = dict.fromkeys(there.names, True)  # as a caller that lies to itself
    with pytest.raises(FederationError, match="collect = false"):
        assert model.means_.size


def test_training_goes_on_from_what_sites_keep(tmp_path: Path) -> None:
    local = columns()
    there = sites_of(local, tmp_path).federation()
    settings: Any = {"max_iter": 3, "tol": 0.0, "random_state": 0, "warm_start": True}
    here = fc.VerticalGaussianMixture(2, **settings).fit(local).fit(local)
    remote = fc.VerticalGaussianMixture(2, **settings).fit(there).fit(there)
    assert np.array_equal(here.means_, remote.means_)
    assert here.lower_bounds_ == remote.lower_bounds_


def test_clusters_that_sites_keep_are_those_of_a_circuit(tmp_path: Path) -> None:
    local = columns()
    there = sites_of(local, tmp_path).federation()
    found = []
    for parties in (local, there):
        clusters = fc.VerticalKMeans(2, random_state=0).fit(parties)
        model = fc.FedPC(clusters=clusters, random_state=0).fit(parties)
        found.append(model.score_samples(TABLE))
    assert np.array_equal(*found)


@pytest.mark.parametrize("ids", [False, True])
def test_weights_of_rows(tmp_path: Path, ids: bool) -> None:
    local = columns(ids=ids)
    there = sites_of(local, tmp_path).federation()
    weight = RNG.random(60)
    inertia = [
        fc.VerticalKMeans(2, random_state=0).fit(parties, sample_weight=weight).inertia_
        for parties in (local, there)
    ]
    assert inertia[0] == pytest.approx(inertia[1], rel=1e-12)
    assert inertia[0] != fc.VerticalKMeans(2, random_state=0).fit(local).inertia_
    if ids:
        with pytest.raises(PartyLostError, match=r"lacks \d+ of the rows of p\d"):
            fc.VerticalKMeans(2).fit(there, sample_weight={"patient-0000": 1.0})


def test_a_model_is_asked_about_rows_of_its_own_parties(tmp_path: Path) -> None:
    local = columns()
    there = sites_of(local, tmp_path).federation()
    with pytest.raises(QueryError, match="from parties at sites"):
        fc.VerticalKMeans(2, random_state=0).fit(there).predict(local)
    with pytest.raises(QueryError, match="from parties in this process"):
        fc.VerticalKMeans(2, random_state=0).fit(local).predict(there)


@pytest.mark.parametrize("kind", [fc.VerticalGaussianMixture, fc.VerticalKMeans])
def test_a_site_may_want_rows_to_be_matched_privately(tmp_path: Path, kind: Any) -> None:
    there = sites_of(columns(ids=True), tmp_path, Policy(private_rows=True)).federation()
    with pytest.raises(PartyLostError, match="private_rows = true"):
        kind(2).fit(there)
    assert kind(2, random_state=0, rows="private").fit(there).labels_


@pytest.mark.parametrize("at", ["agree/hello", "em/terms/0/1", "result/block", "result"])
def test_a_site_that_dies_and_comes_back_changes_nothing(tmp_path: Path, at: str) -> None:
    local = columns()
    strike = Striking("p1", [at])
    parties = {p.name: p for p in local}
    strike.sites = sites = LocalSites(parties, tmp_path, policy=OPEN, watch=strike)
    settings: Any = {"max_iter": 4, "random_state": 0}
    here = fc.VerticalGaussianMixture(2, **settings).fit(local)
    remote = fc.VerticalGaussianMixture(2, **settings).fit(sites.federation())
    assert not strike.at, "it was never killed"
    assert here.lower_bounds_ == remote.lower_bounds_
    assert np.array_equal(here.score_samples(TABLE), remote.score_samples(TABLE))


@pytest.mark.parametrize("kind", [fc.VerticalGaussianMixture, fc.VerticalKMeans])
def test_a_saved_model_is_asked_again(tmp_path: Path, kind: Any) -> None:
    sites = sites_of(columns(), tmp_path)
    model = kind(2, max_iter=4, random_state=0).fit(sites.federation(), name="groups")
    model.save(tmp_path / "groups.fc")
    expected = answers(model, sites.federation())
    sites.remote = sites.connect(60.0)  # another caller
    later = sites.federation()
    again = fc.load(tmp_path / "groups.fc", later)
    assert type(again) is kind and same(answers(again, later), expected)
    assert again.labels_["p1"] == Held("groups", "p1", "labels")


def test_a_mixture_is_collected_where_all_sites_allow_it(tmp_path: Path) -> None:
    local = columns()
    there = sites_of(local, tmp_path).federation()
    models = [
        fc.VerticalGaussianMixture(2, max_iter=4, random_state=0).fit(parties).collect()
        for parties in (local, there)
    ]
    assert np.array_equal(models[0].score_samples(TABLE), models[1].score_samples(TABLE))


def test_a_caller_that_is_cut_off_goes_on_later(tmp_path: Path) -> None:
    def watch(site: str, head: Any) -> None:
        if phase_of(head) == "em/terms/0/2":
            sites.couriers[CALLER].link = None

    local = columns()
    parties = {p.name: p for p in local}
    sites = LocalSites(parties, tmp_path, policy=OPEN, patience=2.0, watch=watch)
    settings: Any = {"max_iter": 6, "tol": 0.0, "random_state": 0}
    model = fc.VerticalGaussianMixture(2, **settings)
    with pytest.raises(PartyLostError, match=r"p\d is silent.*resume='groups'"):
        model.fit(sites.federation(), name="groups")
    sites.watch = lambda site, head: None
    sites.remote = sites.connect(60.0)
    fresh = fc.VerticalGaussianMixture(2, **settings)  # as another process would have it
    fresh.fit(sites.federation(), resume="groups")
    here = fc.VerticalGaussianMixture(2, **settings).fit(local)
    assert fresh.lower_bounds_ == here.lower_bounds_
    assert np.array_equal(fresh.score_samples(TABLE), here.score_samples(TABLE))


def test_training_goes_on_without_a_site_that_is_lost(tmp_path: Path) -> None:
    """Its owner does not let it tell more, in the middle of EM."""
    local = columns()
    sites = sites_of(local, tmp_path)
    sites.stations["p2"].policy = replace(OPEN, withheld=("em/terms/0/1",))
    settings: Any = {"max_iter": 4, "random_state": 0, "on_lost": "continue"}
    there = fc.VerticalGaussianMixture(2, **settings).fit(sites.federation(), name="groups")
    here = fc.VerticalGaussianMixture(2, **settings).fit(local.select(["p0", "p1"]))
    rows = TABLE.select(["x0", "x1", "x2", "x3"])
    assert set(there.views_) == {"p0", "p1"} and there.name_ == "groups.2"
    assert np.array_equal(there.score_samples(rows), here.score_samples(rows))

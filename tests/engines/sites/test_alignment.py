"""Rows that all owners hold, found by their sites: they keep which, others learn how many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines.sites.policy import Policy
from fedcircuits.errors import FederationError
from tests.engines.sites.hands import Listening, found_in_hands
from tests.engines.sites.local import LocalSites

pytestmark = pytest.mark.filterwarnings("ignore")
OPEN = Policy()


def owners(parties: int = 3, apart: bool = False) -> fc.Federation:
    rng, tables = np.random.default_rng(0), {}
    for i in range(parties):
        rows = np.append(np.arange(20), 20 + rng.permutation(60)[:40])
        rows = np.arange(5) + 10 * i if apart else rows
        ids = np.array([f"patient-{r:04d}" for r in rng.permutation(rows)])
        values = rng.normal(size=(len(ids), 1)) + 4 * rng.integers(2, size=(len(ids), 1))
        table = fc.Table.of(values, names=[f"x{i}"])
        tables[f"p{i}"] = fc.Table(table.schema, table.values, ids)
    return fc.Federation(tables, allow_collect=True)


def sites_of(local: fc.Federation, folder: Path, policy: Policy = OPEN) -> LocalSites:
    return LocalSites({p.name: p for p in local}, folder, policy=policy)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("parties", [1, 2, 3, 7])
def test_the_rows_are_those_of_memory(tmp_path: Path, private: bool, parties: int) -> None:
    """Each site says so itself: a model of these rows has the same centres."""
    local = owners(parties)
    expected = set.intersection(*(set(p.table.row_ids.tolist()) for p in local))
    here = fc.aligned(local, private=private)
    there = fc.aligned(sites_of(local, tmp_path).federation(), private=private)
    assert [len(p.table) for p in there] == [len(expected)] * parties
    for party in here:
        assert party.table.row_ids.tolist() == sorted(expected)
    models = [fc.VerticalKMeans(2, random_state=0).fit(parties) for parties in (here, there)]
    assert models[0].inertia_ == pytest.approx(models[1].inertia_, rel=1e-12)
    assert np.array_equal(models[0].predict(here), models[1].predict(there))


def test_twice_is_once(tmp_path: Path) -> None:
    local = owners()
    there = sites_of(local, tmp_path).federation()
    once = fc.aligned(there.select(["p0", "p1"]))
    tables = {**{p.name: p.table for p in once}, "p2": there["p2"].table}
    twice = fc.aligned(there.with_tables(tables), private=True)
    assert len(twice["p0"].table) == len(fc.aligned(local)["p0"].table)
    model = fc.VerticalKMeans(2, random_state=0)
    assert model.fit(twice).inertia_ == pytest.approx(model.fit(fc.aligned(local)).inertia_)


@pytest.mark.parametrize("private", [False, True])
def test_ids_stay_at_their_sites(tmp_path: Path, private: bool) -> None:
    local = owners()
    sites = sites_of(local, tmp_path)
    heard, ledger = Listening(sites), fc.Ledger()
    there = fc.aligned(sites.federation(), private=private, ledger=ledger)
    assert found_in_hands(there, heard, local) == []
    told = {e.tag for e in ledger if e.receiver == "coordinator"}
    assert told == ({"rows/count"} if private else {"rows/tokens"})
    with pytest.raises(FederationError, match="cannot be read here"):
        assert there["p0"].table.values.size


def test_rows_that_cannot_be_matched(tmp_path: Path) -> None:
    there = sites_of(owners(2, apart=True), tmp_path / "apart").federation()
    with pytest.raises(FederationError, match=r"no row id occurs at all.*p0 5, p1 5"):
        fc.aligned(there)
    strict = sites_of(owners(), tmp_path / "strict", Policy(private_rows=True)).federation()
    with pytest.raises(FederationError, match="private_rows = true"):
        fc.aligned(strict)
    assert len(fc.aligned(strict, private=True)) == 3

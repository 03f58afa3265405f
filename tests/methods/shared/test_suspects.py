"""Parties whose rows do not fit what the others have learned: who is named, and what crosses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

import fedcircuits as fc
from fedcircuits.federation.recipes import Own
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.methods.shared.suspects import FAR, SURE, Judge, named, standing_out
from fedcircuits.methods.shared.training import SharedPlan, in_one_place
from tests.methods.shared.tables import CLASSES, learned, spoken
from tests.methods.watched import Watched, read


def spoiled(table: fc.Table, how: str, seed: int) -> fc.Table:
    values, rng = table.values.copy(), np.random.default_rng(seed)
    if how == "labels":
        values[:, -1] = rng.integers(CLASSES, size=len(values))
    elif how == "unit":
        values[:, 1] *= 1000
    else:
        values[:, :3] = values[0, :3]
    return fc.Table(table.schema, values)


@pytest.mark.parametrize("how", ["labels", "unit", "still", "clean"])
def test_a_party_with_wrong_rows_is_named(how: str) -> None:
    parties = fc.split(spoken(300, seed=2), 8)
    tables = {p.name: p.table for p in parties}
    if how != "clean":
        tables["party 4"] = spoiled(tables["party 4"], how, 0)
    model = learned(parties.with_tables(tables), method=fc.MixtureOfNormals(2, target="speaker"))
    odd = [note for note in model.notes_ if "differs from" in note]
    assert [note.partition(" differs")[0] for note in odd] == (
        ["party 4"] if how != "clean" else []
    )


@pytest.mark.parametrize("wrong", [True, False])
def test_random_labels_are_found_where_one_class_is_rare(wrong: bool) -> None:
    """Whole rows are hardly less likely by them. Parties that have no row of the rare class, or
    many, are right."""
    rng = np.random.default_rng(3)
    ill = rng.random(600) < 0.08
    x = rng.normal(size=(600, 6)) * 3 + rng.normal(size=(600, 1)) + 4 * ill[:, None]
    table = fc.Table.of({**{f"x{i}": c for i, c in enumerate(x.T)}, "ill": ill})
    tables = {p.name: p.table for p in fc.split(table, 10, seed=1)}
    if wrong:
        values = tables["party 4"].values.copy()
        values[:, -1] = rng.integers(2, size=len(values))
        tables["party 4"] = fc.Table(table.schema, values)
    model = fc.FedPC(method=fc.MixtureOfNormals(1, target="ill"), target="ill", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(fc.Federation(tables))
    odd = [note.partition(" differs")[0] for note in model.notes_ if "differs from" in note]
    assert odd == (["party 4"] if wrong else [])


@pytest.mark.parametrize(("seed", "wrong"), [(1, False), (2, True)])
def test_parties_that_are_unlike_each_other_are_not_wrong(seed: int, wrong: bool) -> None:
    """Rows of other clusters have labels that say little by what the others have learned, but
    more than random ones, which are found there too."""
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(kind=[f"c{i}" for i in wine.target]).sample(frac=1, random_state=seed)
    table = fc.Table.of(frame).rows(slice(0, 124))
    parties = fc.split(table, 10, skew="cluster", target="kind", seed=seed)
    tables = {p.name: p.table for p in parties}
    if wrong:
        values = tables["party 4"].values.copy()
        values[:, -1] = np.random.default_rng(seed).integers(3, size=len(values))
        tables["party 4"] = fc.Table(table.schema, values)
    method = fc.MixtureOfNormals(2, target="kind")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fc.FedPC(method=method, target="kind", random_state=seed)
        model.fit(parties.with_tables(tables))
    odd = [note.partition(" differs")[0] for note in model.notes_ if "differs from" in note]
    assert odd == (["party 4"] if wrong else [])


def test_sums_without_a_suspect_do_not_tell_what_it_adds() -> None:
    """All parties know both sums. Over the same rows they would differ by the suspect's own."""
    parties = fc.split(spoken(400, seed=2), 10)
    tables = {p.name: p.table for p in parties}
    tables["party 4"] = spoiled(tables["party 4"], "labels", 0)
    engine = Watched()
    method = fc.MixtureOfNormals(1, target="speaker", max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fc.FedPC(method=method, target="speaker", summation=fc.Hub(), random_state=0).fit(
            parties.with_tables(tables), engine=engine
        )
    sent = {(who, m.tag): m.data for who, m in engine.messages if m.tag.startswith("shared/with")}
    own = {
        tag: {p: np.asarray(read(sent[p, tag])["values"]) for p in parties.names}
        for tag in ("shared/with/0/0", "shared/without/0/0")
    }
    assert not own["shared/without/0/0"]["party 4"].any()
    totals = [sum(own[tag].values()) for tag in own]
    off = np.abs(totals[0] - totals[1] - own["shared/with/0/0"]["party 4"])
    assert float(np.median(off[off > 0])) > 1.0  # rows, of 33 that it has


def test_sums_of_two_runs_are_over_different_rows() -> None:
    """With the same draws, runs with each party as the suspect in turn tell what everybody adds:
    n totals without one each, of n parts."""
    parties = fc.split(spoken(300), 3)
    plan = FedPCPlan(parties.names, least=8).for_party()
    assert isinstance(plan.draws, Own) and isinstance(plan.shares.draws, Own)
    table = parties["party 1"].table
    learner = fc.MixtureOfNormals(1, max_iter=1)
    found = in_one_place(table.values, table.schema, learner, 0)
    held = np.zeros(len(table), np.bool_)
    about = "party 1", table.values, held, found, learner.rounds()[0], SharedPlan(()).collective

    def added(draws: bytes) -> Any:
        judge = Judge.of(*about, 8, draws)  # type: ignore[arg-type]
        return judge.statistics(judge.packed, "shared/without/0/0")

    one, other = b"1" * 32, b"2" * 32
    assert np.array_equal(added(one), added(one))  # a run that goes on
    assert not np.array_equal(added(one), added(other))
    assert not np.array_equal(added(b""), added(b""))  # without a key nobody knows them either


def fit(**facts: float) -> Any:
    """What a party tells of how its rows fit: as usual, but for what is given."""
    usual = {"mean": -10, "variance": 4, "rows": 40, "still": 0, "said": 1, "right": 1,
             "spread": 0.1, "common": -1.1, "varied": 0.1, "gained": 0, "gains": 2}  # fmt: skip
    return np.array([*(usual | facts).values()], np.float64)


def test_parties_of_few_rows_tell_nothing_of_how_they_fit() -> None:
    usual = {f"p{i}": fit(mean=-10 + 0.1 * i) for i in range(8)}
    assert standing_out(usual | {"few": np.zeros(11)}) == {}


def test_who_stands_out() -> None:
    usual = {f"p{i}": fit(mean=-10 + 0.1 * i) for i in range(8)}
    assert standing_out(usual) == {}
    assert list(standing_out(usual | {"odd": fit(mean=-30)})) == ["odd"]
    assert standing_out(usual | {"still": fit(still=2)}) == {"still": FAR}
    assert standing_out(usual | {"labels": fit(said=-0.8)}) == {"labels": SURE}
    assert standing_out(usual | {"some wrong": fit(said=0.5)}) == {}
    assert standing_out(usual | {"few rows": fit(said=-0.2, rows=6)}) == {}
    assert standing_out(usual | {"unlike": fit(said=-0.8, gained=1.5)}) == {}
    assert standing_out(usual | {"one class": fit(said=-0.8, gains=0)}) == {}
    assert standing_out(usual | {"other classes": fit(said=2, right=2, common=-3)}) == {}
    weak = {f"p{i}": fit(said=0.05, right=0.05, common=-0.2) for i in range(8)}
    assert standing_out(weak | {"labels": fit(said=-0.03, right=0.1, common=-1.4)})
    assert not named(4.0, 1.0, 5.0, 40.0) and named(4.0, 20.0, 15.0, 40.0)
    assert named(10.0, 0.0, 5.0, 40.0) and not named(10.0, -20.0, 15.0, 40.0)
    assert named(SURE, -20.0, 15.0, 40.0) and not named(SURE, 0.0, 0.0, 1.0)

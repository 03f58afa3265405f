"""FedPC of few rows each: one circuit by sums, chosen and mixed by rows held back; odd parties."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics import f1_score

import fedcircuits as fc
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import Own
from fedcircuits.methods.fedpc.planning import FedPCPlan
from fedcircuits.methods.shared.suspects import FAR, SURE, Judge, named, standing_out
from fedcircuits.methods.shared.training import SharedPlan, in_one_place
from fedcircuits.testing import check_messages, check_protocol
from tests.drawn import drawn
from tests.methods.shared.tables import CLASSES, apart, spoken
from tests.methods.watched import Watched, read


def learned(parties: fc.Federation, **options: Any) -> fc.FedPC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # notes, which are looked at here
        return fc.FedPC(target="speaker", random_state=0, **options).fit(parties)


def macro_f1(model: fc.Model, table: fc.Table) -> float:
    codes = table.values[:, table.schema.index("speaker")].astype(int)
    return float(f1_score(codes, model.predict_proba(table, "speaker").argmax(1), average="macro"))


def test_many_parties_of_few_rows_are_as_good_as_one_place() -> None:
    table, new = spoken(400), spoken(300, seed=1)
    single = fc.LearnSPN(target="speaker", random_state=0).fit(table)
    model = learned(fc.split(table, 12))
    assert model.score(new) > single.score(new) - 0.7  # which divides rows by class and form
    assert macro_f1(model, new) > macro_f1(single, new) - 0.02
    [note] = model.notes_
    assert "by sums: MixtureOfNormals" in note and "held-out rows" in note
    once = learned(fc.split(table, 12), method="one_pass")
    assert model.score(new) > once.score(new) + 1 and not once.notes_


def test_never_below_what_parties_learn_alone() -> None:
    """Parties that are unlike each other: what is mixed in is at least as good as their own."""
    table, new = spoken(300), spoken(200, seed=1)
    for skew in ("cluster", fc.dirichlet(0.1)):
        parties = fc.split(table, 4, skew=skew, target="speaker")
        model, once = learned(parties), learned(parties, method="one_pass")
        assert model.score(new) > once.score(new) - 0.3


def test_never_below_independence() -> None:
    """Lumpy columns and numbers far out are described as in one place; where nothing depends on
    anything, nothing is lost by having looked for it."""
    table, new = apart(600, 1), apart(2000, 11)
    alone = sum(
        fc.LearnSPN(random_state=0).fit(table.select([n])).score(new.select([n]))
        for n in table.names
    )
    model = fc.FedPC(random_state=0).fit(fc.split(table, 8, seed=1))
    assert model.score(new) > alone - 0.1


def test_a_factor_behind_all_columns_is_found() -> None:
    """Early stopping ends EM before it fits rows too closely; what follows from all rows, too."""
    rng = np.random.default_rng(0)
    x = 0.6 * rng.normal(size=(800, 1)) + 0.8 * rng.normal(size=(800, 25))
    table, new = fc.Table.of(x[:500]), fc.Table.of(x[500:])
    single = fc.LearnSPN(random_state=0).fit(table).score(new)
    assert fc.FedPC(random_state=0).fit(fc.split(table, 10)).score(new) > single - 0.3


def test_a_column_that_is_empty_at_one_party_is_learned_from_the_others() -> None:
    table = spoken(240)
    parties = fc.split(table, 4)
    values = parties["party 2"].table.values.copy()
    values[:, 0] = np.nan
    tables = {p.name: p.table for p in parties} | {"party 2": fc.Table(table.schema, values)}
    model = learned(fc.Federation(tables))
    assert model.kind_ == "horizontal" and any("by sums" in note for note in model.notes_)
    mean = float(np.nanmean(np.concatenate([t.values[:, 0] for t in tables.values()])))
    spread = float(table.values[:, 0].std())
    assert abs(float(model.expect([table.names[0]]).iloc[0, 0]) - mean) < 0.2 * spread


def test_what_a_user_says_is_done() -> None:
    parties = fc.split(spoken(120), 3)
    given = learned(parties, learner=fc.LearnSPN())
    assert not any("by sums" in note for note in given.notes_)
    tree = learned(parties, method=fc.HiddenChowLiuTree(4, epochs=5))
    assert "HiddenChowLiuTree" in tree.notes_[0]
    many = learned(fc.split(spoken(6100), 3))
    assert not any("by sums" in note for note in many.notes_)
    with pytest.raises(fc.errors.FederationError, match="'one_pass' or an estimator that learns"):
        fc.FedPC(method="sums").fit(parties)  # type: ignore[arg-type]


def test_the_cost_of_a_party_does_not_grow_with_the_others() -> None:
    """Messages and bytes of one party, of the same number of rows each."""
    found = []
    for parties in (5, 20):
        model = learned(fc.split(spoken(10 * parties), parties), method=fc.MixtureOfNormals(1))
        assert any("by sums" in note for note in model.notes_)
        rounds = len({e.tag for e in model.ledger_})
        found.append((len(model.ledger_) / parties / rounds, model.ledger_.bytes / parties))
    (few, small), (many, large) = found
    assert many < 1.5 * few and large < 1.5 * small


def test_nobody_reads_what_a_party_of_few_rows_adds_unless_somebody_says_so() -> None:
    """With a hub the coordinator would: by default parties learn alone, in one pass."""
    model = learned(fc.split(spoken(120), 3), summation=fc.Hub())
    assert not any("by sums" in note for note in model.notes_)


def test_it_is_asked_saved_and_collected_as_ever(tmp_path: Any) -> None:
    table = spoken(120)
    model = learned(fc.split(table, 3, allow_collect=True))
    whole = model.collect()
    np.testing.assert_allclose(model.score_samples(table), whole.score_samples(table), atol=1e-9)
    model.save(tmp_path / "model.fc")
    again = fc.load(tmp_path / "model.fc")
    np.testing.assert_allclose(again.score_samples(table), whole.score_samples(table), atol=1e-9)


def test_secret_sums_and_trees_give_the_same_model() -> None:
    table, new = spoken(150), spoken(50, seed=1)
    method = fc.MixtureOfNormals(2, target="speaker")
    hub = learned(fc.split(table, 3), method=method, summation=fc.Hub())
    for summation in (fc.Secret(), fc.Tree("path"), fc.Masked()):
        model = learned(fc.split(table, 3), method=method, summation=summation)
        np.testing.assert_allclose(
            model.score_samples(new), hub.score_samples(new), rtol=0, atol=1e-6
        )


# ---------------------------------------------------------------------- odd parties


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


@pytest.mark.parametrize(("seed", "wrong"), [(1, False), (2, False), (2, True)])
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


@pytest.mark.parametrize(("parties", "target"), [(10, "ill"), (10, None), (2, None)])
def test_a_class_stays_dependent_among_columns_that_say_nothing(
    parties: int, target: str | None
) -> None:
    """Independent columns describe these well, but would take the class from its evidence."""
    rng, rows = np.random.default_rng(0), 800
    ill = rng.random(rows) < 0.4
    crp = np.exp(rng.normal(1 + 1.5 * ill, 0.7))
    table = fc.Table.of(
        {"born": rng.uniform(0, 2e4, rows), "crp": crp, "cost": rng.uniform(1e3, 9e3, rows),
         "share": rng.integers(1, 99, rows), "smoker": rng.random(rows) < 0.3 + 0.3 * ill,
         "ill": ill}
    )  # fmt: skip
    model = fc.FedPC(target=target, random_state=0).fit(fc.split(table, parties, seed=0))
    data = ill[crp > 10].mean()
    assert data > 0.9
    assert abs(model.probability("ill", given="crp > 10") - data) < 0.1


# ---------------------------------------------------------------------- laws


def programs(summation: Any) -> dict[str, Program[Any]]:
    engine = Watched()
    learner = fc.MixtureOfNormals(1, target="speaker", max_iter=1)
    parties = fc.split(spoken(80), 4).with_tables(
        {
            f"party {i + 1}": spoken(20, seed=i).select(["x0", "x1", "up", "speaker"])
            for i in range(4)
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fc.FedPC(method=learner, target="speaker", summation=summation, random_state=0)
        model.fit(parties, engine=engine)
    made = engine.programs[0]
    assert set(made) == {COORDINATOR, *parties.names}
    return {n: Program(p.function, drawn(p.arguments)) for n, p in made.items()}


def test_laws_of_protocols() -> None:
    made = programs(fc.Tree("cycle"))
    check_protocol(made, equal=lambda a, b: repr(a) == repr(b))
    assert check_messages(made, most=80) > 60

"""FedPC of few rows each: one circuit by sums, chosen and mixed by rows held back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

import fedcircuits as fc
from fedcircuits.engines import memory
from fedcircuits.errors import ProtocolError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.testing import check_protocol
from tests.drawn import drawn
from tests.methods.shared.tables import apart, learned, spoken
from tests.methods.watched import Watched, saying


def macro_f1(model: fc.Model, table: fc.Table) -> float:
    codes = table.values[:, table.schema.index("speaker")].astype(int)
    return float(f1_score(codes, model.predict_proba(table, "speaker").argmax(1), average="macro"))


def test_many_parties_of_few_rows_are_as_good_as_one_place() -> None:
    table, new = spoken(240), spoken(300, seed=1)
    single = fc.LearnSPN(target="speaker", random_state=0).fit(table)
    model = learned(fc.split(table, 8))
    assert model.score(new) > single.score(new) - 0.7  # which divides rows by class and form
    assert macro_f1(model, new) > macro_f1(single, new) - 0.02
    [note] = model.notes_
    assert "by sums: MixtureOfNormals" in note and "held-out rows" in note
    once = learned(fc.split(table, 8), method="one_pass")
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
    parties = fc.split(spoken(60).select(["x0", "up", "speaker"]), 3)
    masked, hub = learned(parties), learned(parties, summation=fc.Hub())
    assert "by sums" in masked.notes_[0]
    assert not any("by sums" in note for note in hub.notes_)


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
    method = fc.MixtureOfNormals(2, target="speaker", max_iter=5)
    hub = learned(fc.split(table, 3), method=method, summation=fc.Hub())
    for summation in (fc.Secret(), fc.Tree("path"), fc.Masked()):
        model = learned(fc.split(table, 3), method=method, summation=summation)
        np.testing.assert_allclose(
            model.score_samples(new), hub.score_samples(new), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize(("parties", "target"), [(5, None), (2, "ill")])
def test_a_class_stays_dependent_among_columns_that_say_nothing(
    parties: int, target: str | None
) -> None:
    """Independent columns describe these well, but would take the class from its evidence."""
    rng, rows = np.random.default_rng(0), 500
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
    """Malformed messages: tests/methods/test_runs.py."""
    check_protocol(programs(fc.Tree("cycle")), equal=lambda a, b: repr(a) == repr(b))


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Tree("cycle")])
def test_likelihoods_that_no_rows_have_are_put_down_to_the_sum(summation: Any) -> None:
    """Whoever reads the total cannot tell whose numbers are wrong, and blames nobody alone."""

    def absurd(fields: Any) -> Any:
        return {**fields, "values": fields["values"] * [-1e12, 1.0, 1.0]}

    made = programs(summation)
    spoiled = Program(
        saying, {"program": made["party 2"], "tag": "shared/judged", "change": absurd}
    )
    outcome = memory.run({**made, "party 2": spoiled})
    first = next(iter(outcome.lost.values()))
    assert isinstance(first.__cause__, ProtocolError), first
    assert "the sum 'shared/judged': expected log-likelihoods of rows; one of party 1" in str(first)

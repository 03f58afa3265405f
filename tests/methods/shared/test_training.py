"""One circuit by sums: it is that of EM on all rows; what crosses, what is refused, losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.engines import memory, process
from fedcircuits.errors import FederationError
from fedcircuits.federation.federation import COORDINATOR, LEAST_COUNT, Party
from fedcircuits.federation.flow import Program
from fedcircuits.federation.recipes import pack, unpack
from fedcircuits.learning.em import maximise_likelihood
from fedcircuits.methods.shared import training
from fedcircuits.methods.shared.training import LearnedTogether, SharedPlan
from fedcircuits.testing import check_messages, check_protocol
from tests.methods.shared.learners import LEARNERS, mixed, mixture
from tests.methods.watched import Watched, dying
from tests.privacy.parties import key, names

CLOSE = 1e-9  # nats
SUMMATIONS = {"hub": fc.Hub(), "tree": fc.Tree("path"), "secret": fc.Secret(),
              "masked": fc.Masked()}  # fmt: skip


def in_one_place(model: Any, rows: fc.Table, found: LearnedTogether) -> fc.CircuitModel:
    """EM on all rows at once, from the same beginning."""
    beginning, schedule = found.beginning, model.rounds()[0]
    fitted = maximise_likelihood(
        beginning.circuit, beginning.start, rows.values, schedule=schedule,
        rules=beginning.rules, scale=beginning.scale,
    )  # fmt: skip
    np.testing.assert_allclose(fitted.history, found.fitted.history, rtol=0, atol=CLOSE)
    return fc.CircuitModel(beginning.circuit, fitted.parameters)


def programs(
    learner: Any, tables: list[fc.Table], summation: Any = None, least: int = LEAST_COUNT
) -> dict[str, Program[Any]]:
    """Keys of parties are the same in every run of a test."""
    members = names(len(tables))
    asks = SharedPlan(members, summation or fc.Secret(), least=least)
    made: dict[str, Program[Any]] = {
        COORDINATOR: Program(training.coordinator, {"plan": asks, "learner": learner})
    }
    for me, table in zip(members, tables, strict=True):
        plan = SharedPlan(members, summation or fc.Secret(key=key(me)), least=least)
        party = Party(me, table, least_count=least)
        own = {"party": party, "plan": plan, "learner": learner}
        made[me] = Program(training.client, own)
    return made


def parts(table: fc.Table, parties: int) -> list[fc.Table]:
    return [table.rows(np.arange(i, len(table), parties)) for i in range(parties)]


@pytest.mark.parametrize(
    ("name", "way", "parties"),
    [
        *((name, "secret", 3) for name in LEARNERS),
        ("MixtureOfProducts", "hub", 1),
        ("MixtureOfProducts", "hub", 20),
        ("MixtureOfProducts", "tree", 3),
        ("MixtureOfProducts", "masked", 14),
    ],
)
def test_it_is_em_on_all_rows_in_one_place(name: str, way: str, parties: int) -> None:
    table = mixed(missing=0.05)
    model = LEARNERS[name](summation=SUMMATIONS[way])
    summation = None if way == "secret" else SUMMATIONS[way]
    outcome = memory.run(programs(model, parts(table, parties), summation, least=1))
    assert not outcome.lost
    found, party = outcome.results[COORDINATOR], outcome.results[names(parties)[0]]
    one = in_one_place(model, table, party)  # a party knows the rules of leaves as well
    together = fc.CircuitModel(found.beginning.circuit, found.fitted.parameters)
    new = mixed(50, seed=1)
    np.testing.assert_allclose(
        together.score_samples(new), one.score_samples(new), rtol=0, atol=CLOSE
    )
    assert found.fitted.history[-1] > found.fitted.history[0] + 0.1


@pytest.mark.parametrize("name", LEARNERS)
def test_any_number_of_parties_has_the_same_circuit(name: str) -> None:
    table, new = mixed(400), mixed(40, seed=1)
    alone = LEARNERS[name]().fit(fc.Federation({"all": table}))
    for parties in (3, 12) if name == "MixtureOfProducts" else (3,):
        model = LEARNERS[name]().fit(fc.split(table, parties))
        assert model.circuit_.dumps() == alone.circuit_.dumps()
        np.testing.assert_allclose(
            model.score_samples(new), alone.score_samples(new), rtol=0, atol=CLOSE
        )
        np.testing.assert_allclose(model.history_, alone.history_, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", LEARNERS)
def test_it_is_about_as_good_as_the_learner_in_one_place(name: str) -> None:
    table, new = mixed(600), mixed(300, seed=1)
    single = LEARNERS[name]().fit(table).score(new)
    model = LEARNERS[name]().fit(fc.split(table, 10))
    assert model.score(new) > single - 0.35
    assert model.kind_ == "horizontal" and not model.notes_
    assert float(np.mean(model.predict(new, "label") == _labels(new))) > 0.8


def _labels(table: fc.Table) -> np.ndarray:
    codes = table.values[:, table.schema.index("label")].astype(int)
    return np.array(table.schema["label"].categories)[codes]


def test_rows_held_back_choose_the_epoch() -> None:
    model = fc.HiddenChowLiuTree(8, epochs=60, patience=2, random_state=0)
    model.fit(fc.split(mixed(300), 5))
    scores = model.validation_history_
    assert len(scores) == len(model.history_)
    assert len(scores) < 61 and max(scores[-2:]) <= max(scores[:-2]) + model.tol


def test_parties_in_processes_have_the_same() -> None:
    made = programs(mixture(), parts(mixed(90), 3), fc.Hub())
    here, there = memory.run(made), process.run(made)
    assert not there.lost
    for name, found in here.results.items():
        assert there.results[name].fitted.parameters == found.fitted.parameters


# ---------------------------------------------------------------------- what crosses


def test_what_crosses_does_not_grow_with_rows_and_is_told() -> None:
    """Sums of one size for any number of rows: a few for columns and clusters, two for a round."""
    seen = []
    for rows in (60, 240):
        model = fc.MixtureOfProducts(2, max_iter=3, tol=0.0, random_state=0)
        model.fit(fc.split(mixed(rows), 3))
        own = [e for e in model.ledger_ if e.sender == "party 1"]
        seen.append({e.tag: e.bytes for e in own if e.phase == "shared"})
        assert all(e.reveals for e in model.ledger_)
        assert {e.phase for e in model.ledger_} == {"agree", "shared"}
    rounds = ("shared/rows/", "shared/counts/")
    both = {t for t in seen[0].keys() & seen[1].keys() if t.startswith(rounds)}
    assert len(both) == 4 + 3 and all(seen[0][t] == seen[1][t] for t in both)


def test_messages_grow_with_the_number_of_parties_alone() -> None:
    table, found = mixed(120), {}
    for parties in (5, 10, 20):
        model = mixture().fit(fc.split(table, parties))
        found[parties] = len(model.ledger_) / parties
    assert len(set(found.values())) == 1


def test_no_row_crosses() -> None:
    """Neither a number of a row nor a row: the search finds what is there."""
    tables = parts(mixed(90), 3)
    engine = Watched()
    assert not engine(programs(mixture(), tables, fc.Hub())).lost
    data = b"".join(m.data for _, m in engine.messages)
    numbers = np.concatenate([t.values[:, :2].reshape(-1) for t in tables])
    assert not any(n.tobytes() in data for n in numbers)
    [bins] = [m.data for n, m in engine.messages if (n, m.tag) == ("party0", "shared/bins/0")]
    assert np.array([1.0]).tobytes() in bins


def test_with_secret_sums_a_party_tells_nothing_but_shares() -> None:
    engine = Watched()
    assert not engine(programs(mixture(), parts(mixed(90), 3))).lost
    own = {m.tag.rpartition("/")[2] for n, m in engine.messages if n == "party1"}
    assert own == {"hello", "shares", "total"}


# ---------------------------------------------------------------------- refusals and losses


def test_what_needs_one_table_is_refused() -> None:
    parties = fc.split(mixed(60), 3)
    with pytest.raises(
        FederationError, match=r"HiddenChowLiuTree\(restarts=2\) works for one table only"
    ):
        fc.HiddenChowLiuTree(2, restarts=2).fit(parties)
    with pytest.raises(FederationError, match=r"EinsumNetwork\(training='gradient'\)"):
        fc.EinsumNetwork(2, training="gradient").fit(parties)
    with pytest.raises(FederationError, match=r"Tree.* or Secret.*, got Chebyshev"):
        mixture(summation=fc.Chebyshev("cycle")).fit(parties)
    with pytest.raises(FederationError, match="privacy needs categories and booleans"):
        mixture(privacy=fc.DifferentialPrivacy(1.0)).fit(parties)
    with pytest.raises(FederationError, match="sample_weight works for one table only"):
        mixture().fit(parties, sample_weight=np.ones(60))
    with pytest.raises(FederationError, match="has no column 'wet'"):
        less = mixed(20).select(["x", "y", "calls", "colour", "label"])
        mixture().fit(fc.Federation({"a": mixed(20), "b": less, "c": mixed(20)}))


def test_a_party_keeps_its_least_count() -> None:
    parties = dict(zip(names(3), parts(mixed(90), 3), strict=True))
    careful = fc.Federation(parties, least_count={n: 5 + 10 * (n == "party1") for n in parties})
    engine = Watched()
    mixture().fit(careful, engine=engine)
    [plan] = {repr(p.arguments["plan"].least) for p in engine.programs[0].values()}
    assert plan == "15"
    flows = programs(mixture(), parts(mixed(90), 3))
    own = flows["party1"].arguments
    party = Party("party1", own["party"].table, least_count=6)
    flows["party1"] = Program(training.client, {**own, "party": party})
    lost = Watched()(flows).lost
    assert "has least_count=6, but bins of a shared circuit may hold 5" in str(
        lost["party1"].__cause__ or lost["party1"]
    )


def test_two_parties_are_warned() -> None:
    with pytest.warns(UserWarning, match="with two parties, each can compute the other's counts"):
        mixture().fit(fc.split(mixed(60), 2))


def test_values_of_odd_scales_are_learned_from() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "tiny": 1e-7 * rng.normal(size=90), "huge": 1e8 + rng.normal(size=90), "same": np.ones(90),
        "zeros": np.where(rng.random(90) < 0.7, 0.0, rng.random(90)),
        "empty": np.where(np.arange(90) < 1, 1.0, np.nan),
    }  # fmt: skip
    table = fc.Table.of(columns)
    for name in ("MixtureOfProducts", "HiddenChowLiuTree"):
        model = LEARNERS[name]().fit(fc.split(table, 3))
        assert np.isfinite(model.score_samples(table)).all()


@pytest.mark.parametrize("tag", ["agree/hello", "shared/pairs", "shared/counts/1"])
def test_a_lost_party_ends_the_run_and_is_named(tag: str) -> None:
    made = programs(mixture(), parts(mixed(60), 3), fc.Hub())
    told = {"program": made["party1"], "tag": tag, "after": 0}
    outcome = memory.run({**made, "party1": Program(dying, told)})
    assert set(outcome.lost) == set(made)
    assert all("party1" in str(error) for error in outcome.lost.values())


def test_a_recipe_of_it_holds_no_code() -> None:
    for make in LEARNERS.values():
        engine = Watched()
        make().fit(fc.Federation({"all": mixed(30)}), engine=engine)
        learner = engine.programs[0]["all"].arguments["learner"]
        assert unpack(pack(learner)).get_params() == learner.get_params()  # type: ignore[attr-defined]


@pytest.mark.parametrize("summation", [None, fc.Hub(), fc.Tree("cycle")])
def test_laws_of_protocols(summation: Any) -> None:
    learner = fc.MixtureOfProducts(2, max_iter=2, random_state=0)
    check_protocol(programs(learner, parts(mixed(40), 3), summation))


@pytest.mark.parametrize("summation", [None, fc.Hub(), fc.Tree("cycle")])
def test_malformed_messages_blame_their_sender(summation: Any) -> None:
    learner = fc.MixtureOfProducts(2, max_iter=1, random_state=0)
    assert check_messages(programs(learner, parts(mixed(40), 3), summation), most=120) > 100

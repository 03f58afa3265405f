"""FedPC: federated equals collected in every split and engine, one seed gives one model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.messages import Ledger
from tests.federation.cases import FEDERATIONS, QUICK, federation, gaps, mixed_table
from tests.methods.watched import keyed

EVENT = "age > 40 and colour = 'red' or smoker = True and visits < 4"
ROWS = fc.Table(mixed_table().schema, gaps())


@functools.cache
def fitted(name: str, engine: str = "memory", **settings: Any) -> fc.FedPC:
    usual: dict[str, Any] = {"clusters": 2, "ensemble": 2, "random_state": 0}
    model = fc.FedPC(QUICK, **usual | settings)
    return model.fit(federation(name), engine=keyed(engine))


@functools.cache
def collected(name: str) -> fc.CircuitModel:
    return fitted(name).collect()


def known(*columns: str) -> fc.Table:
    return ROWS.select(columns)


QUESTIONS: dict[str, Callable[[fc.Model], Any]] = {
    "density": lambda m: m.score_samples(ROWS),
    "nothing known": lambda m: m.score_samples(known("age").rows([3])),
    "event": lambda m: m.probability(EVENT, given="weight > 58 and visits > 0"),
    "event of rows": lambda m: m.probability(EVENT, given=known("weight", "risk", "age")),
    "evidence": lambda m: m.probability({"visits": (2, 5)}, given={"risk": "high", "age": 41.5}),
    "classes": lambda m: m.predict_proba(ROWS, "risk"),
    "class": lambda m: m.predict(ROWS, "colour"),
    "number": lambda m: m.predict(ROWS, "visits"),
    "moments": lambda m: m.expect(["age", "smoker", "visits"], given=EVENT).to_numpy(),
    "moments of rows": lambda m: m.expect("weight", given=known("age", "risk")).to_numpy(),
    "explanation": lambda m: m.explain(ROWS).log_value,
}
SHORT = ("density", "evidence", "classes", "moments of rows", "explanation")


# ---------------------------------------------------------------------- federated equals collected


@pytest.mark.parametrize(
    ("name", "question"),
    [*product(("columns", "uneven"), QUESTIONS), *product(("rows", "both"), SHORT)],
)
def test_federated_equals_collected(name: str, question: str) -> None:
    model = fitted(name)
    asked, local = QUESTIONS[question](model), QUESTIONS[question](collected(name))
    if question == "class":
        assert np.array_equal(asked, local)
    else:
        np.testing.assert_allclose(asked, local, rtol=1e-9, atol=1e-9)
        assert np.isfinite(asked).all()


@pytest.mark.parametrize("settings", [{"refine": 1}, {"weights": "em"}, {"weights": "sizes"},
                                      {"shared_leaves": "pooled"}, {"products": 2}])  # fmt: skip
def test_every_rule_equals_collected(settings: dict[str, Any]) -> None:
    model = fitted("uneven", ensemble=1, **settings)
    local = model.collect()
    for question in SHORT:
        found, expected = QUESTIONS[question](model), QUESTIONS[question](local)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=question)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_probabilities_add_up(name: str) -> None:
    """Over two variables of different parties, by the federated model's own answers."""
    model = fitted(name)
    total = sum(
        float(model.probability({"colour": c, "smoker": s}))
        for c in ("red", "green", "blue")
        for s in (False, True)
    )
    assert total == pytest.approx(1, abs=1e-9)
    either = model.probability("colour = 'red' or smoker = True")
    both = model.probability("colour = 'red' and smoker = True")
    one, two = model.probability("colour = 'red'"), model.probability("smoker = True")
    assert either == pytest.approx(one + two - both, abs=1e-9)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_samples_follow_the_model(name: str) -> None:
    model = fitted(name)
    given = "age > 38 and risk = 'high' or smoker = True and age < 38"
    drawn = model.sample(3000, given=given, random_state=1)
    inside = (drawn["age"] > 38) & (drawn["risk"] == "high")
    inside |= (drawn["age"] < 38) & drawn["smoker"].astype(bool)
    assert inside.all() and not drawn.isna().any().any()
    local = model.collect()
    for column in ("age", "weight", "visits"):
        mean, variance = local.expect(column, given=given).loc[column]
        off = abs(drawn[column].astype(float).mean() - mean) / np.sqrt(variance / len(drawn))
        assert off < 4.5, column
    for event in (EVENT, "colour = 'red' and visits > 3"):
        chance = float(local.probability(event, given=given))
        hits = drawn.eval(event.replace(" = ", " == ")).mean()
        assert abs(hits - chance) < 4.5 * np.sqrt(chance * (1 - chance) / len(drawn)), event


def test_samples_keep_what_is_given() -> None:
    model = fitted("uneven")
    drawn = model.sample(2, given=ROWS, random_state=0)
    values = fc.Table.of(drawn, schema=model.schema_).values
    asked = np.repeat(ROWS.select(model.schema_.names).values, 2, axis=0)
    seen = ~np.isnan(asked)
    assert np.array_equal(values[seen], asked[seen])


# ---------------------------------------------------------------------- engines and seeds


def by_sender(ledger: Ledger) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in ledger:
        found.setdefault(entry.sender, []).append(entry)
    return found


@pytest.mark.parametrize(
    ("name", "settings"), [("uneven", {}), ("rows", {"refine": 3, "validation": 0.2})]
)
def test_engines_agree_bit_for_bit(name: str, settings: dict[str, Any]) -> None:
    """Every split in processes: tests/methods/test_laws.py."""
    here, there = fitted(name, **settings), fitted(name, "process", **settings)
    assert there.circuit_ == here.circuit_ and there.placement_ == here.placement_
    assert set(there.views_) == set(here.views_)
    assert there.joint_.parameters == here.joint_.parameters
    for party, view in here.views_.items():
        assert there.views_[party].parameters == view.parameters, party
    assert by_sender(there.ledger_) == by_sender(here.ledger_)
    assert there.history_ == here.history_
    assert there.validation_history_ == here.validation_history_
    before = len(here.queries_), len(there.queries_)
    for question in SHORT if name == "uneven" else ("density",):
        found, expected = QUESTIONS[question](there), QUESTIONS[question](here)
        assert np.array_equal(found, expected), question
    samples = [m.sample(20, given="age > 40", random_state=3) for m in (here, there)]
    pd.testing.assert_frame_equal(*samples, check_exact=True)
    asked = [
        by_sender(Ledger(m.queries_.entries[n:]))
        for m, n in zip((here, there), before, strict=True)
    ]
    assert asked[0] == asked[1]


@pytest.mark.parametrize("name", ["rows", "uneven"])
def test_one_seed_one_model(name: str) -> None:
    one = fitted(name)
    again = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(federation(name))
    other = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=1).fit(federation(name))
    scores: list[Array] = [m.score_samples(ROWS) for m in (one, again, other)]
    assert np.array_equal(scores[0], scores[1]) and not np.allclose(scores[0], scores[2])


# ---------------------------------------------------------------------- what parties allow


def test_the_circuit_is_collected_only_if_all_allow() -> None:
    whole = mixed_table()
    parties = {"left": whole.select(["age", "risk"]), "right": whole.select(["visits"])}
    model = fc.FedPC(QUICK, clusters=2).fit(fc.Federation(parties, allow_collect=["left"]))
    with pytest.raises(FederationError, match=r"^right did not allow learned parameters"):
        model.collect()
    with pytest.raises(FederationError, match="right did not allow"):
        model.save("never.fc")
    assert np.isfinite(model.score_samples(ROWS)).all()
    allowed = fc.Federation(parties, allow_collect=["left", "right"])
    assert fc.FedPC(QUICK, clusters=2).fit(allowed).collect().circuit_


def test_leaves_stay_where_they_were_learned() -> None:
    model = fitted("uneven")
    assert not model.joint_.parameters.circuits and COORDINATOR not in model.views_
    for party in ("north", "south", "west"):
        view = model.views_[party]
        own = {n for n, p in model.placement_.items() if p == party}
        assert set(view.parameters.circuits) == own and own
        assert not view.parameters.values  # weights of sums stay at the coordinator
        for name in own:
            assert set(view.parameters.circuits[name][0].schema.names) <= set(
                federation("uneven")[party].table.names
            )


def test_a_collected_model_is_saved_and_loaded(tmp_path: Any) -> None:
    model = fitted("columns", target="risk")
    model.save(tmp_path / "model.fc")
    loaded = fc.load(tmp_path / "model.fc")
    np.testing.assert_allclose(loaded.predict_proba(ROWS), model.predict_proba(ROWS), atol=1e-9)


# ---------------------------------------------------------------------- learners and settings


def test_parties_may_use_different_learners() -> None:
    learners = {"north": fc.LearnSPN(min_rows=40), "south": QUICK, "west": fc.LearnSPN()}
    model = fc.FedPC(learners, clusters=2, ensemble=2, random_state=0).fit(federation("uneven"))
    alike = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(federation("uneven"))
    assert alike.views_["south"].parameters == model.views_["south"].parameters
    assert alike.views_["north"].parameters != model.views_["north"].parameters
    local = model.collect()
    np.testing.assert_allclose(model.score_samples(ROWS), local.score_samples(ROWS), atol=1e-9)


def test_settings_are_checked() -> None:
    parties = federation("columns")
    for wrong, text in (
        (
            {"clusters": 0},
            "clusters must be 'auto' or a mixture .* or a whole number from 1, got 0",
        ),
        ({"products": 1.5}, "products must be 'auto' or a whole number from 1, got 1.5"),
        (
            {"weights": "counts"},
            "weights must be one of 'cooccurrence', 'sizes', 'em', got 'counts'",
        ),
        (
            {"shared_leaves": "none"},
            "shared_leaves must be one of 'divided', 'cluster', 'pooled', got",
        ),
        ({"ensemble": 0}, "ensemble must be 'auto' or a whole number from 1 to 16, got 0"),
        ({"on_lost": "wait"}, "on_lost must be one of 'stop', 'continue', got 'wait'"),
        ({"refine": -1}, "refine must be a whole number from 0, got -1"),
        ({"validation": 1.0}, "validation must be a share of rows from 0 to below 1, got 1.0"),
        ({"validation": -0.1}, "validation must be a share of rows from 0 to below 1, got -0.1"),
        ({"validation": np.nan}, "validation must be a share of rows from 0 to below 1, got nan"),
        ({"validation": "10%"}, "validation must be a share of rows from 0 to below 1, got '10%'"),
        ({"validation": None}, "validation must be a share of rows from 0 to below 1, got None"),
        (
            {"learner": {"north": QUICK}},
            "learner has no entry for 'south': give one for each party",
        ),
    ):
        with pytest.raises(FederationError, match=text):
            fc.FedPC(**{"learner": QUICK, **wrong}).fit(parties)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"unknown variable 'rik': did you mean 'risk'\?"):
        fc.FedPC(QUICK, target="rik").fit(parties)
    with pytest.raises(FederationError, match="unknown engine 'cloud': expected 'memory', 'proc"):
        fc.FedPC(QUICK).fit(parties, engine="cloud")


def test_it_learns_from_federations_only() -> None:
    with pytest.raises(FederationError, match="learns from a Federation of parties, got Table"):
        fc.FedPC(QUICK).fit(mixed_table())  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="FedPC is not fitted yet"):
        fc.FedPC(QUICK).score_samples(ROWS)
    assert clone(fc.FedPC(QUICK, clusters=3)).get_params()["clusters"] == 3


def test_a_federation_of_one() -> None:
    whole = mixed_table()
    model = fc.FedPC(QUICK, random_state=0).fit(fc.Federation({"alone": whole}))
    assert model.kind_ == "horizontal" and model.placement_ == {"alone/0/0": "alone"}
    own = fc.Distribution(*model.views_["alone"].parameters.circuits["alone/0/0"])
    assert np.array_equal(model.score_samples(ROWS), own.log_likelihood(ROWS.values))


def test_hundreds_of_parties() -> None:
    rng = np.random.default_rng(0)
    rows = fc.Table.of(rng.normal(size=(1200, 3)) + np.arange(3))
    learner = fc.MixtureOfProducts(1, max_iter=1)
    model = fc.FedPC(learner, random_state=0).fit(fc.split(rows, 300))
    found = model.score(rows.rows(slice(0, 5)))
    assert len(model.ledger_) == 4 * 300 and len(model.queries_) == 2 * 300
    assert np.isfinite(found) and len(model.circuit_.root.children) == 300


def test_a_picture_needs_what_collecting_needs() -> None:
    parties = federation("columns")
    allowed = fc.Federation({p.name: p.table for p in parties}, allow_collect=True)
    figure = fc.FedPC(fc.MixtureOfProducts(1), clusters=2, random_state=0).fit(allowed).plot()
    assert figure.axes
    kept = fc.Federation({p.name: p.table for p in parties})
    with pytest.raises(FederationError, match="did not allow"):
        fc.FedPC(fc.MixtureOfProducts(1), clusters=2, random_state=0).fit(kept).plot()


# ---------------------------------------------------------------------- clusters found together


def test_clusters_of_a_mixture_are_shared() -> None:
    """One product a component: the parties' clusters are the same rows. Beside them is what the
    parties learn alone."""
    parties = federation("columns")
    mixture = fc.VerticalGaussianMixture(3, random_state=0)
    with pytest.warns(UserWarning, match="two parties"):
        mixture.fit(parties)
    model = fc.FedPC(QUICK, clusters=mixture, random_state=0).fit(parties)
    sizes = np.bincount(mixture.labels_["north"])
    weight = model.joint_.parameters["root"]["weight"][0]
    np.testing.assert_allclose(weight[:-1] / weight[:-1].sum(), sizes[sizes > 0] / sizes.sum())
    assert model.circuit_.root.children[-1] == "apart 0" and weight[-1] < 0.1
    assert "clusters" not in {e.phase for e in model.ledger_}
    local = model.collect()
    np.testing.assert_allclose(model.score_samples(ROWS), local.score_samples(ROWS), atol=1e-9)


def test_clusters_of_other_rows_are_refused() -> None:
    parties = federation("columns")
    mixture = fc.VerticalKMeans(3, random_state=0)
    with pytest.warns(UserWarning, match="two parties"):
        mixture.fit(parties)
    other = fc.split(mixed_table(60), ["north", "south"], by="columns", seed=1)
    text = "north failed .*: clusters must have a label for each of 60 rows, got 150: fit the"
    with pytest.raises(PartyLostError, match=text):
        fc.FedPC(QUICK, clusters=mixture).fit(other)
    renamed = fc.split(mixed_table(), ["east", "west"], by="columns", seed=1)
    with pytest.raises(FederationError, match="clusters have no labels of east"):
        fc.FedPC(QUICK, clusters=mixture).fit(renamed)

"""PrivateForest: answers on shares are those of the opened forest, and who learned what is told."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError, QueryError
from fedcircuits.estimators.private_forest import PrivateForest
from fedcircuits.federation.federation import Party
from fedcircuits.methods.private_forest.model import ForestView
from fedcircuits.methods.private_forest.structures import sum_weights
from tests.estimators.tables import CLOSE, TABLE, table
from tests.methods.watched import breaking

ROWS = TABLE.rows(np.arange(25))


@pytest.fixture(scope="module")
def model() -> PrivateForest:
    return fitted(target="ill")


@pytest.fixture(scope="module")
def dealt() -> PrivateForest:
    return fitted(combine="concatenate", marginals=True)


def fitted(parties: int = 3, **settings: Any) -> PrivateForest:
    chosen = {"structures": 2, "units": 3, "max_iter": 15, "random_state": 1, **settings}
    return PrivateForest(**chosen).fit(fc.split(TABLE, parties, seed=2))


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("parties", "settings"),
    [
        (3, {}),
        (4, {"depth": 1, "units": 2}),
        (5, {"combine": "concatenate", "units": 5}),
        (3, {"combine": "em", "sealed": True}),
        (3, {"public_total": False, "leaf": "categorical", "weighting": "loglik2"}),
        (3, {"combine": "concatenate", "depth": 2, "units": 2, "structures": 3}),
    ],
)
def test_answers_are_those_of_the_opened_forest(parties: int, settings: dict[str, Any]) -> None:
    found = fitted(parties, **settings)
    clear = found.open_parameters()
    np.testing.assert_allclose(found.score_samples(ROWS), clear.score_samples(ROWS), atol=CLOSE)
    assert found.score(ROWS) == pytest.approx(clear.score(ROWS), abs=CLOSE)
    assert found.sum_weights_ == sum_weights(clear.circuit_)


def test_learned_something(model: PrivateForest) -> None:
    """More likely than columns that do not know of each other, on other rows."""
    new = table(seed=5)
    one = fc.MixtureOfProducts(1, random_state=0).fit(TABLE)
    assert model.score(new) > one.score(new) + 0.1


def test_predictions(model: PrivateForest) -> None:
    clear = model.open_parameters()
    found = model.predict_proba(ROWS)
    np.testing.assert_allclose(found, clear.predict_proba(ROWS), atol=CLOSE)
    assert model.classes("ill") == clear.classes("ill")
    assert (model.predict(ROWS) == clear.predict(ROWS)).all()
    colours = model.predict_proba(ROWS, "colour")
    np.testing.assert_allclose(colours, clear.predict_proba(ROWS, "colour"), atol=CLOSE)


def test_frames(model: PrivateForest) -> None:
    frame = ROWS.to_pandas()
    shuffled = frame[list(frame.columns[::-1])]
    np.testing.assert_allclose(
        model.score_samples(shuffled), model.score_samples(ROWS), atol=2 * CLOSE
    )


def test_gaps_are_for_parties_to_allow(model: PrivateForest) -> None:
    values = ROWS.values.copy()
    values[:, 2] = np.nan
    gaps = fc.Table(ROWS.schema, values)
    with pytest.raises(QueryError, match="marginals=True"):
        model.score_samples(gaps)
    allowed = fitted(marginals=True)
    clear = allowed.open_parameters()
    np.testing.assert_allclose(allowed.score_samples(gaps), clear.score_samples(gaps), atol=CLOSE)
    found = allowed.predict_proba(gaps, "ill")
    np.testing.assert_allclose(found, clear.predict_proba(gaps, "ill"), atol=CLOSE)


@pytest.mark.parametrize("combine", ["average", "concatenate", "em"])
def test_gaps_in_rows_to_learn_from(combine: Any) -> None:
    """Are summed out: most of the likelihood is still found."""
    values = TABLE.values.copy()
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    parts = fc.split(fc.Table(TABLE.schema, values), 3, seed=2)
    settings = {"combine": combine, "max_iter": 15, "random_state": 1}
    found = PrivateForest(2, units=3, **settings).fit(parts)
    assert found.score(ROWS) > fitted(combine=combine).score(ROWS) - 0.1


def test_who_asks(model: PrivateForest) -> None:
    """An outsider holds no model; a party asks as one. Points are counted by asker."""
    clear = model.open_parameters().score_samples(ROWS)
    before = dict(model.asked_)
    for name in ("clinic", "party 2"):
        asker = model.connect(name)
        np.testing.assert_allclose(asker.score_samples(ROWS), clear, atol=CLOSE)
        assert model.asked_[name] == before.get(name, 0) + 25
        assert "parameters_" not in vars(asker)
    assert (model.connect("clinic").predict(ROWS) == model.predict(ROWS)).all()
    with pytest.raises(FederationError, match="needs a name"):
        model.connect("coordinator")


def test_a_party_asks_about_its_own_rows(model: PrivateForest) -> None:
    """One that has trained, and one that has not."""
    clear = model.open_parameters().score_samples(ROWS)
    for name in ("party 3", "clinic"):
        found = model.score_party(Party(name, ROWS))
        np.testing.assert_allclose(np.asarray(found), clear, atol=CLOSE)
    more = fc.Table.of({**ROWS.to_pandas(), "note": np.arange(len(ROWS))})
    np.testing.assert_allclose(
        np.asarray(model.score_party(Party("clinic", more))), clear, atol=CLOSE
    )
    with pytest.raises(QueryError, match="expected a party with rows"):
        model.score_party(ROWS)  # type: ignore[arg-type]


def test_prepared_ahead() -> None:
    """Masks made ahead are taken first, and no round of making them is left."""
    found = fitted(combine="concatenate").prepare(30)
    crossed = len(found.queries_)
    found.score_samples(ROWS)
    phases = {e.phase for e in found.queries_.entries[crossed:]}
    assert phases == {"query"}
    found.score_samples(ROWS)  # five are left, twenty are made
    made = [e for e in found.queries_.entries[crossed:] if e.phase == "prepare"]
    assert made
    for wrong in (-1, 0, 2.5):
        with pytest.raises(QueryError, match="a whole number of rows from 1"):
            found.prepare(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.sample(2, random_state=0),
        lambda m: m.expect("v0"),
        lambda m: m.probability("colour in ['red', 'blue']"),
        lambda m: m.mpe(fc.Table(ROWS.schema, np.full((1, 6), np.nan))),
        lambda m: m.save("forest.fc"),
        lambda m: m.plot(),
    ],
)
def test_what_shares_do_not_answer(ask: Any, dealt: PrivateForest) -> None:
    with pytest.raises(QueryError, match="open_parameters"):
        ask(dealt)
    with pytest.raises(QueryError, match="open_parameters"):
        ask(dealt.connect("clinic"))


# ---------------------------------------------------------------------- who learned what


def test_reveals() -> None:
    model = fitted()
    model.score_samples(ROWS)
    found = model.reveals_
    assert set(found) == {"party 1", "party 2", "party 3", "coordinator", "asker"}
    assert found["coordinator"] == ["the public graph; the number of all rows"]
    assert found["party 1"] == [
        "its settings; names, kinds and categories of its columns",
        "a digest of the public structures",
        "the sum of numbers of rows",
    ]
    assert found["asker"] == [
        "a share of the likelihood of each point, to the precision of a float64"
    ]
    assert model.total_ == 240
    model.open_parameters()
    assert "every parameter" in model.reveals_["coordinator"][-1]
    assert model.reveals_["party 1"] == found["party 1"]


def test_reveals_of_em() -> None:
    model = fitted(combine="em")
    assert any("sum of expected counts" in what for what in model.reveals_["party 3"])
    assert len(model.history_) == 2 and model.total_ is None


def test_views_hold_shares(model: PrivateForest) -> None:
    """Of every parameter, and no parameter; fresh ones in every run."""
    assert not hasattr(model, "parameters_")
    again = fitted(target="ill")
    for name, view in model.views_.items():
        other = again.views_[name]
        assert isinstance(view, ForestView) and isinstance(other, ForestView)
        assert view.me == name and view.shares.members == tuple(model.views_)
        for node, shares in view.shares.arrays.items():
            assert (shares != other.shares.arrays[node]).any(axis=-1).all()
    for node, arrays in model.open_parameters().parameters_.values.items():
        for what, array in arrays.items():
            opened = again.open_parameters().parameters_[node][what]
            np.testing.assert_allclose(array, opened, atol=1e-8)


def test_opening_needs_everybody() -> None:
    parties = {f"p{i}": TABLE.rows(np.arange(i, 240, 3)) for i in range(3)}
    federation = fc.Federation(parties, allow_collect=["p0", "p1"])
    model = PrivateForest(1, units=2, combine="concatenate", random_state=0)
    model.set_params(structures=3).fit(federation)
    with pytest.raises(FederationError, match="p2 does not allow"):
        model.open_parameters()


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("parties", "settings", "error", "said"),
    [
        (2, {}, FederationError, "at least 3 parties"),
        (4, {"threshold": 2}, FederationError, "at most 1, but threshold is 2"),
        (3, {"combine": "sum"}, FederationError, "combine must be one of"),
        (3, {"units": 0}, FederationError, "units must be a whole number from 1"),
        (3, {"target": "age"}, QueryError, "unknown variable 'age'"),
        (3, {"tol": "x"}, FederationError, "tol must be a number from 0, got 'x'"),
        (3, {"together": "two"}, FederationError, "together must be a whole number from 0"),
        (3, {"max_iter": 2.5}, FederationError, "max_iter must be a whole number from 1"),
        (3, {"validation": "tenth"}, FederationError, "validation must be a part from 0"),
        (
            3,
            {"random_state": "seed"},
            FederationError,
            "random_state must be None or a whole number",
        ),
        (5, {"combine": "concatenate", "units": 2}, PartyLostError, "cannot be divided"),
    ],
)
def test_refused(parties: int, settings: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        fitted(parties, **settings)


def test_other_columns_are_refused() -> None:
    """Before anything runs: there is no work to resume."""
    with pytest.raises(FederationError, match=r"different rows of the same columns$"):
        PrivateForest(units=2).fit(fc.split(TABLE, 3, by="columns"))
    numbers = {n: {"age": [31.5, 40.5]} for n in "abc"}
    with pytest.raises(FederationError, match=r"'age' is a real: .* into categories$"):
        PrivateForest().fit(fc.Federation(numbers))
    with pytest.raises(FederationError, match="learns from a Federation"):
        PrivateForest().fit(TABLE)  # type: ignore[arg-type]


def test_manners() -> None:
    """scikit-learn's: parameters, clones, errors before fit; a pickle answers as before."""
    model = PrivateForest(2, units=3, combine="em")
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.score_samples(ROWS)
    done = fitted(combine="concatenate")
    again = pickle.loads(pickle.dumps(done))
    np.testing.assert_allclose(again.score_samples(ROWS), done.score_samples(ROWS), atol=2 * CLOSE)


@pytest.mark.parametrize("tag", ["agree/structure", "average/counts"])
def test_a_lost_party_ends_it(tag: str) -> None:
    """And what others have learned is kept for another run, which deals anew."""
    model = PrivateForest(2, units=3, max_iter=5, random_state=1)
    federation = fc.split(TABLE, 3, seed=2)
    with pytest.raises(PartyLostError, match="party 2 failed") as lost:
        model.fit(federation, engine=breaking("party 2", tag))
    assert ("resume=True" in str(lost.value)) == (tag == "average/counts")  # some work is kept
    model.fit(federation, resume=True)
    other = clone(model).fit(federation)
    np.testing.assert_allclose(model.score_samples(ROWS), other.score_samples(ROWS), atol=2 * CLOSE)

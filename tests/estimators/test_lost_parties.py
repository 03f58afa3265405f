"""Parties that fail while a federated circuit is trained: named, resumed, or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, PartyLostError
from tests.estimators.faulty import Faulty, How, learned
from tests.federation.cases import QUICK, federation, mixed_table
from tests.methods.watched import Broken

ROWS = mixed_table(30, seed=4)


def learners(
    folder: Path, parties: fc.Federation, how: How, broken: str
) -> tuple[dict[str, Faulty], dict[str, Path]]:
    places = {name: folder / str(i) for i, name in enumerate(parties.names)}
    for place in places.values():
        place.mkdir()
    (places[broken] / "broken").touch()
    return {n: Faulty(str(place), how) for n, place in places.items()}, places


def leaves_of(model: fc.FedPC, party: str) -> int:
    return sum(p == party for p in model.placement_.values())


@pytest.mark.parametrize(
    ("engine", "how", "text"),
    [
        ("memory", "raise", "south failed while learning south/0: RuntimeError"),
        ("memory", "explain", "south failed while learning south/0: this learner is br"),
        ("process", "exit", r"south died while learning south/0 \(exit code 3\)"),
    ],
)
def test_a_run_is_resumed(tmp_path: Path, engine: str, how: How, text: str) -> None:
    parties = federation("uneven")
    own, places = learners(tmp_path, parties, how, "south")
    model = fc.FedPC(own, clusters=2, ensemble=1, random_state=0)
    with pytest.raises(PartyLostError, match=text) as lost:
        model.fit(parties, engine=engine)
    assert lost.value.party == "south"
    assert "the others' work is kept: fit(…, resume=True)" in str(lost.value)
    assert "Quixote" not in str(lost.value)  # errors of others may quote data
    with pytest.raises(Exception, match="not fitted yet"):
        model.score(ROWS)
    before = {n: learned(place) for n, place in places.items()}
    assert before["south"] == 0 and before["north"] > 0 and before["west"] > 0
    (places["south"] / "broken").unlink()
    model.fit(parties, engine=engine, resume=True)
    after = {n: learned(place) for n, place in places.items()}
    if engine == "memory":  # a process may have been ended before it was ready
        assert after["north"] == before["north"] and after["west"] == before["west"]
    fresh = fc.FedPC(own, clusters=2, ensemble=1, random_state=0).fit(parties)
    assert np.array_equal(model.score_samples(ROWS), fresh.score_samples(ROWS))
    again = {n: learned(place) - after[n] for n, place in places.items()}
    assert after == again  # every leaf was learned once, before or after


def test_without_resume_everything_is_learned_again(tmp_path: Path) -> None:
    parties = federation("columns")
    own, places = learners(tmp_path, parties, "raise", "south")
    model = fc.FedPC(own, clusters=2, ensemble=1, random_state=0)
    with pytest.raises(PartyLostError):
        model.fit(parties)
    before = learned(places["north"])
    (places["south"] / "broken").unlink()
    model.fit(parties)
    assert learned(places["north"]) == 2 * before


def test_resuming_with_other_rows_or_settings_learns_them(tmp_path: Path) -> None:
    """Work is kept for the same rows and the same settings only."""
    parties = federation("columns")
    own, places = learners(tmp_path, parties, "raise", "south")
    model = fc.FedPC(own, clusters=2, ensemble=1, random_state=0)
    with pytest.raises(PartyLostError):
        model.fit(parties)
    (places["south"] / "broken").unlink()
    tables = {p.name: p.table for p in parties}
    tables["north"] = tables["north"].rows(slice(0, 100))
    fewer = fc.Federation(tables)
    model.fit(fewer, resume=True)
    fresh = fc.FedPC(own, clusters=2, ensemble=1, random_state=0).fit(fewer)
    assert np.array_equal(model.score_samples(ROWS), fresh.score_samples(ROWS))


@pytest.mark.parametrize(("engine", "how"), [("memory", "raise"), ("process", "exit")])
def test_rows_go_on_without_a_party(tmp_path: Path, engine: str, how: How) -> None:
    parties = federation("rows")
    own, places = learners(tmp_path, parties, how, "party 2")
    model = fc.FedPC(own, on_lost="continue", random_state=0)
    with pytest.warns(
        UserWarning, match=r"party 2 (failed|died) while .*continuing without party 2"
    ):
        model.fit(parties, engine=engine)
    assert set(model.views_) == {"party 1", "party 3"}
    assert "continuing without party 2" in model.notes_[0]
    if engine == "memory":
        assert learned(places["party 1"]) == learned(places["party 3"]) == 1  # not once more
    rest = fc.FedPC(own, random_state=0).fit(parties.select(["party 1", "party 3"]))
    assert np.array_equal(model.score_samples(ROWS), rest.score_samples(ROWS))
    assert model.circuit_ == rest.circuit_


def test_columns_of_nobody_else_cannot_be_done_without(tmp_path: Path) -> None:
    parties = federation("uneven")
    own, _ = learners(tmp_path, parties, "raise", "south")
    model = fc.FedPC(own, clusters=2, ensemble=1, on_lost="continue", random_state=0)
    with pytest.raises(PartyLostError) as lost:
        model.fit(parties)
    text = str(lost.value)
    assert "south failed while" in text and "continuing without it is not possible" in text
    assert text.endswith("nobody else holds 'smoker'")  # others hold age and visits


def test_columns_that_others_hold_are_not_missed(tmp_path: Path) -> None:
    whole = mixed_table()
    parties = fc.Federation({"all": whole, "part": whole.select(["age", "risk"])})
    own, _ = learners(tmp_path, parties, "raise", "part")
    model = fc.FedPC(own, clusters=2, on_lost="continue", random_state=0)
    with pytest.warns(UserWarning, match="continuing without part"):
        model.fit(parties)
    rest = fc.FedPC(own, clusters=2, ensemble=1, random_state=0).fit(parties.select(["all"]))
    assert model.kind_ == "horizontal"
    assert np.array_equal(model.score_samples(ROWS), rest.score_samples(ROWS))


# ---------------------------------------------------------------------- lost in the middle of EM


@pytest.mark.parametrize("tag", ["em/rows", "em/posterior/0", "em/posterior/1"])
def test_em_goes_on_without_a_party(tag: str) -> None:
    """Rows that all hold are others without the party: nothing of the old rounds may be kept."""
    whole = mixed_table()
    parties = fc.Federation(
        {
            "a": whole.select(["age", "risk", "visits"]).rows(slice(0, 110)),
            "b": whole.select(["weight", "colour", "smoker"]).rows(slice(20, 150)),
            "c": whole.select(["age", "risk"]).rows(slice(60, 140)),  # the others do without it
        }
    )
    settings: dict[str, Any] = {"clusters": 2, "ensemble": 1, "refine": 2, "random_state": 0}
    model = fc.FedPC(QUICK, on_lost="continue", **settings)
    with pytest.warns(UserWarning, match="c failed while .*; continuing without c"):
        model.fit(parties, engine=Broken("c", tag))
    rest = fc.FedPC(QUICK, **settings).fit(parties.select(["a", "b"]))
    assert model.history_ == pytest.approx(rest.history_, abs=1e-9)
    np.testing.assert_allclose(model.score_samples(ROWS), rest.score_samples(ROWS), atol=1e-9)


def test_em_is_resumed() -> None:
    engine = Broken("south", "em/posterior/1")
    model = fc.FedPC(QUICK, clusters=2, ensemble=1, refine=3, random_state=0)
    with pytest.raises(PartyLostError, match="south failed while sending 'em/values/1'"):
        model.fit(federation("uneven"), engine=engine)
    model.fit(federation("uneven"), engine=engine, resume=True)
    assert not engine.kept[0] and len(engine.kept[1]) > 10
    fresh = fc.FedPC(QUICK, clusters=2, ensemble=1, refine=3, random_state=0).fit(
        federation("uneven")
    )
    np.testing.assert_allclose(model.score_samples(ROWS), fresh.score_samples(ROWS), atol=1e-9)


def test_a_question_names_who_did_not_answer() -> None:
    engine = Broken("south", "query/evidence")
    engine.fails = False
    model = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(
        federation("columns"), engine=engine
    )
    engine.fails = True
    with pytest.raises(FederationError, match=r"could not be answered: .*south failed while"):
        model.score(ROWS)
    assert np.isfinite(model.score(ROWS))  # the next question is answered

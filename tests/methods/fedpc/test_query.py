"""Questions across parties: who is asked what, how many messages, and the same bytes again."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcircuits as fc
from fedcircuits.errors import FederationError, QueryError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.messages import Entry
from tests.federation.cases import FEDERATIONS, QUICK, federation, gaps, mixed_table
from tests.methods.watched import Watched, read

ROWS = fc.Table(mixed_table().schema, gaps())
HELD = {p.name: set(p.table.names) for p in federation("uneven")}
OWN = {"north": "colour", "south": "smoker", "west": "weight"}  # columns of one party


@functools.cache
def fitted(name: str = "uneven") -> tuple[fc.FedPC, Watched]:
    engine = Watched()
    model = fc.FedPC(QUICK, clusters=2, ensemble=2, random_state=0).fit(
        federation(name), engine=engine
    )
    return model, engine


def asked(question: Any, name: str = "uneven") -> tuple[list[Entry], Watched]:
    """What crossed, and the engine with the records of these runs alone."""
    model, engine = fitted(name)
    before = len(model.queries_)
    engine.programs.clear()
    engine.records.clear()
    question(model)
    return model.queries_.entries[before:], engine


def pairs(entries: list[Entry]) -> set[tuple[str, str]]:
    return {(e.sender, e.receiver) for e in entries}


@pytest.mark.parametrize("party", OWN)
def test_evidence_goes_only_where_it_is_needed(party: str) -> None:
    column = OWN[party]
    rows = pd.DataFrame({column: ROWS.to_pandas()[column].dropna()})
    entries, engine = asked(lambda m: m.score_samples(rows))
    assert pairs(entries) == {(COORDINATOR, party), (party, COORDINATOR)} and len(entries) == 2
    assert entries[0].reveals == f"evidence on {column}"
    (programs,) = engine.programs
    assert set(programs) == {COORDINATOR, party}


def test_shared_columns_go_to_all_their_holders() -> None:
    entries, _ = asked(lambda m: m.score_samples(ROWS.select(["age"]).rows([0, 1])))
    assert {e.receiver for e in entries if e.sender == COORDINATOR} == {"north", "south"}
    entries, _ = asked(lambda m: m.score_samples(ROWS.select(["visits"]).rows([0, 1])))
    assert {e.receiver for e in entries if e.sender == COORDINATOR} == {"south", "west"}


def test_parties_hear_of_their_own_columns_only() -> None:
    _, engine = asked(lambda m: m.score_samples(ROWS))
    for sender, message in engine.messages:
        if sender == COORDINATOR:
            evidence = read(message.data)
            names = set(evidence["columns"])
            assert names <= HELD[message.party] and names
            assert evidence["rows"].shape[1] == len(names)


def test_regions_go_only_where_they_are_needed() -> None:
    model, _ = fitted()
    model.probability("colour = 'red'")
    _, engine = asked(lambda m: m.probability("colour = 'red' and weight > 60"))
    for sender, message in engine.messages:
        if sender == COORDINATOR:
            column = {"north": "colour", "west": "weight"}[message.party]
            assert list(read(message.data)["regions"]) == [column]


def test_nobody_is_asked_about_nothing() -> None:
    nothing = pd.DataFrame({"age": [np.nan, np.nan]})
    entries, _ = asked(lambda m: m.score_samples(nothing))
    assert entries == []
    model, _ = fitted()
    assert model.score_samples(nothing) == pytest.approx([0, 0], abs=1e-12)


def test_equal_rows_are_asked_once() -> None:
    rows = ROWS.rows([0, 1, 0, 1, 0, 0]).select(["colour", "weight", "smoker"])
    whole = rows.rows(np.flatnonzero(~np.isnan(rows.values).any(axis=1)))
    _, engine = asked(lambda m: m.score_samples(whole))
    for sender, message in engine.messages:
        fields = read(message.data)
        size = fields["rows"].shape[0] if sender == COORDINATOR else fields["values"].shape[1]
        assert size <= 2


# ---------------------------------------------------------------------- exact numbers


WHOLE = mixed_table(20, seed=2)
FULL = fc.Table(WHOLE.schema, WHOLE.values).rows(
    np.flatnonzero(~np.isnan(WHOLE.values).any(axis=1))
)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_exact_numbers_of_messages(name: str) -> None:
    parties = len(federation(name))
    entries, _ = asked(lambda m: m.score_samples(FULL), name)
    assert len(entries) == 2 * parties  # evidence and values
    entries, _ = asked(lambda m: m.predict_proba(FULL, "risk"), name)
    assert len(entries) == 2 * parties  # all classes in one question
    entries, _ = asked(lambda m: m.explain(ROWS), name)
    assert len(entries) == 4 * parties + 2 * parties  # and choices with what was filled in
    entries, _ = asked(lambda m: m.sample(5), name)
    assert len(entries) == 4 * parties  # nothing known: no question before
    entries, _ = asked(lambda m: m.sample(1, given=FULL), name)
    assert len(entries) == 2 * parties  # nothing to fill in


def test_numbers_of_messages_of_moments() -> None:
    holders = {"age": 2, "weight": 1, "visits": 2}
    for column, number in holders.items():
        entries, _ = asked(lambda m, c=column: m.expect(c))
        assert len(entries) == 2 * number, column


def test_filling_in_one_column() -> None:
    """Evidence to whoever holds some, choices only to whoever fills in."""
    known = FULL.select([n for n in FULL.names if n != "weight"])
    entries, _ = asked(lambda m: m.explain(known))
    choices = [e.receiver for e in entries if e.tag == "query/choice"]
    assert choices == ["west"]
    assert {e.sender for e in entries if e.tag == "query/completed"} == {"west"}


# ---------------------------------------------------------------------- bytes and failures


QUESTIONS: dict[str, Any] = {
    "density": lambda m: m.score_samples(ROWS),
    "event": lambda m: m.probability("age > 40 or smoker = True", given="weight > 58"),
    "moments": lambda m: m.expect(["age", "visits"], given="risk = 'high' or weight < 60"),
    "sample": lambda m: m.sample(4, given="age > 40", random_state=2),
    "explanation": lambda m: m.explain(ROWS),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_ledger_has_every_byte(question: str) -> None:
    """That every role sends the same bytes again: tests/methods/test_laws.py."""
    entries, engine = asked(QUESTIONS[question])
    assert entries and sum(e.bytes for e in entries) == sum(len(m.data) for _, m in engine.messages)


def test_what_is_revealed_is_said() -> None:
    model, _ = fitted()
    model.sample(2, given="age > 40")
    told = model.queries_.revealed()
    assert set(told["to"]) == {COORDINATOR, *HELD}
    mine = set(told[told["to"] == COORDINATOR]["what"])
    assert mine == {
        "the likelihood of the evidence under each of its leaves", "the completed values of its "
        "columns"
    }  # fmt: skip
    assert (told[told["to"] == "west"]["what"].str.contains("age") == False).all()  # noqa: E712


def test_a_message_of_another_kind_is_refused() -> None:
    model, engine = fitted("columns")
    engine.changes = {("south", "query/values"): lambda _: {}}
    text = "south sent 'query/values' that does not fit, field 'values'"
    with pytest.raises(FederationError, match=text):
        model.score_samples(FULL)
    engine.changes = {}
    assert np.isfinite(model.score_samples(FULL)).all()


def test_impossible_evidence() -> None:
    model, _ = fitted()
    half = np.full((2, 6), np.nan)
    half[1, model.schema_.index("visits")] = 2.5  # of a count
    asked = model._distribution
    assert asked.log_likelihood(half) == pytest.approx([0, -np.inf])
    mean, variance = asked.moments(half, "age")
    assert np.isfinite(mean[0]) and np.isnan(mean[1]) and np.isnan(variance[1])
    assert np.isnan(asked.posterior(half, "risk")[1]).all()
    with pytest.raises(QueryError, match="cannot sample: the evidence has probability zero"):
        asked.sample(half, np.random.default_rng(0))
    with pytest.raises(QueryError, match="unknown variable 'colours'"):
        model.probability("colours = 'red'")

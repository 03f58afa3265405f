"""Attacks on row ids: whoever holds tokens and a key tries out all ids that there may be.

A clinic holds some of the people of a town, a laboratory all of them with their status.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pytest

import fedcircuits as fc
from fedcircuits.errors import ExtraMissingError
from fedcircuits.federation.federation import COORDINATOR, Federation
from fedcircuits.methods.meeting import intersection
from fedcircuits.methods.meeting.intersection import derived
from fedcircuits.methods.meeting.tokens import TokenKey, Tokens, tokens
from tests.federation.cases import QUICK
from tests.methods.watched import Watched, read

RNG = np.random.default_rng(0)
PEOPLE, HELD = 600, 60
GUESSES = np.arange(100_000, 100_000 + PEOPLE)  # ids are easily guessed
CLINIC = np.sort(RNG.permutation(GUESSES)[:HELD])


def federation() -> Federation:
    status = RNG.random(PEOPLE) < 0.3
    rows = CLINIC - GUESSES[0]
    age = RNG.normal(50, 9, PEOPLE)
    clinic = fc.Table.of({"id": CLINIC, "age": age[rows], "pulse": age[rows] + 20}, row_id="id")
    tests = {"load": RNG.normal(size=PEOPLE) + 3 * status, "dose": RNG.gamma(2, size=PEOPLE)}
    laboratory = fc.Table.of({"id": GUESSES, **tests, "status": status}, row_id="id")
    return fc.Federation({"clinic": clinic, "laboratory": laboratory})


def numbers_in(value: object) -> set[int]:
    """Whatever may be a token."""
    if isinstance(value, dict):
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, np.ndarray) and value.dtype == np.uint64:
        return set(value.tolist())
    return set()


def heard(engine: Watched, reader: str) -> set[int]:
    return set().union(*(numbers_in(read(m.data)) for _, m in engine.messages if m.party == reader))


def named(engine: Watched, reader: str, tried: list[bytes]) -> int:
    """How many people the reader names by trying out all ids with these keys."""
    known = heard(engine, reader)
    return sum(len(known & set(tokens(GUESSES, key).tolist())) for key in tried)


def keys_of(engine: Watched) -> list[bytes]:
    """That parties tell each other: whoever is told one of them has it."""
    found = [read(m.data)["key"] for _, m in engine.messages if m.tag == TokenKey.tag]
    assert found
    return list(dict.fromkeys(found))


def fitted(model: Any) -> Watched:
    engine = Watched()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_params(random_state=0).fit(federation(), engine=engine)
    return engine


SHARED: dict[str, Any] = {"target": "status", "share_target": True}
MODELS: dict[str, Any] = {
    "FedPC": fc.FedPC(QUICK, **SHARED),
    "FedTrees": fc.FedTrees(trees=2, **SHARED),
    "fusion": fc.FeatureFusion(epochs=1, **SHARED),
    "fusion, sums": fc.FeatureFusion(
        epochs=1, **SHARED, align=None, graph="complete", summation=fc.Hub()
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_party_that_is_told_classes_names_nobody_else(name: str) -> None:
    """The clinic has the key: it once named all others with their status. Now it gets no token,
    and a class for each of its own rows."""
    engine = fitted(MODELS[name])
    assert named(engine, "clinic", keys_of(engine)) == 0
    told = [read(m.data) for _, m in engine.messages if m.tag == "labels/target"]
    assert [len(fields["values"]) for fields in told] == [HELD]
    assert named(engine, COORDINATOR, keys_of(engine)) == PEOPLE  # so that the attack can succeed


VERTICAL: dict[str, Any] = {
    "mixture": fc.VerticalGaussianMixture(2, max_iter=2),
    "k-means": fc.VerticalKMeans(2, max_iter=2),
}


def seeds() -> list[bytes]:
    """Keys that once followed from a seed, and others that might."""
    words = ("fedcircuits rows 0", "0", "")
    plain = [hashlib.sha256(word.encode()).digest() for word in words]
    return [*plain, *(derived(key, TokenKey.tag) for key in plain)]


@pytest.mark.parametrize("name", VERTICAL)
def test_a_server_of_mixtures_names_nobody(name: str) -> None:
    """It once had the key in its program, and with a seed could work it out."""
    engine = fitted(VERTICAL[name])
    own = [v for p in engine.programs for v in p[COORDINATOR].arguments.values()]
    tried = [v for v in own if isinstance(v, bytes) and v] + seeds()
    assert len(heard(engine, COORDINATOR)) == PEOPLE
    assert named(engine, COORDINATOR, tried) == 0
    assert named(engine, COORDINATOR, keys_of(engine)) == PEOPLE  # with a party's key


@pytest.mark.parametrize("summation", [fc.Hub(), fc.Tree("path")], ids=["hub", "peers"])
@pytest.mark.parametrize("name", VERTICAL)
def test_matched_privately_nobody_is_named_even_with_the_key(name: str, summation: Any) -> None:
    """Of a server that a party has told the key, and of a first party that leads."""
    need_psi()
    reader = COORDINATOR if summation == fc.Hub() else "clinic"
    for rows, expected in (("tokens", PEOPLE), ("private", 0)):
        model = VERTICAL[name].__class__(2, max_iter=2, summation=summation, rows=rows)
        engine = fitted(model)
        assert named(engine, reader, keys_of(engine)) == expected


@pytest.mark.parametrize("name", MODELS)
def test_matched_privately_a_coordinator_with_the_key_names_nobody(name: str) -> None:
    need_psi()
    engine = fitted(privately(MODELS[name]))
    keys = keys_of(engine)
    assert named(engine, COORDINATOR, keys) == 0
    drawn = tokens(np.arange(HELD), keys[0])  # places among the rows that both hold, no ids
    assert len(heard(engine, COORDINATOR) & set(drawn.tolist())) == HELD
    told = [read(m.data) for _, m in engine.messages if m.tag == "labels/target"]
    assert [len(fields["values"]) for fields in told] == [HELD]


def privately(model: Any) -> Any:
    return model.__class__(**model.get_params(deep=False) | {"rows": "private"})


def need_psi() -> None:
    try:
        intersection.openmined()
    except ExtraMissingError as missing:
        pytest.skip(str(missing))


def test_rows_outside_are_drawn_by_their_party_alone() -> None:
    """No token of them is in another run, and none follows from what others know."""
    need_psi()
    found: list[Tokens] = []
    for _ in range(2):
        engine = fitted(fc.VerticalKMeans(2, max_iter=2, rows="private"))
        found.append(np.array(sorted(heard(engine, COORDINATOR)), np.uint64))
        assert len(found[-1]) == PEOPLE
    assert not np.isin(found[0], found[1]).any()

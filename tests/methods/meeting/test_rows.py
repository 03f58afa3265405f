"""Matching rows: always what a join of the ids says, and nobody without the key sees ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, MessageError
from fedcircuits.federation.federation import COORDINATOR
from fedcircuits.federation.flow import Program
from fedcircuits.methods.meeting.rows import BY_POSITION, MatchedRows
from fedcircuits.methods.meeting.tokens import agreed_values, rising_order, tokens
from fedcircuits.testing import check_messages, check_protocol
from tests.methods.meeting.matching import KEY, SECRETS, listing, matching, parties
from tests.methods.watched import Watched, read, saying

IDS = st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True)
HELD = st.lists(IDS, min_size=1, max_size=4)
UNEVEN = [[3, 1, 2], [5, 2, 3, 9], [2, 9]]


def joined(held: Sequence[Sequence[int]]) -> list[int]:
    """By brute force: all ids in the common order, which is that of tokens under the first key."""
    every = sorted({i for rows in held for i in rows})
    hashes = tokens(np.array(every), KEY)
    return [every[i] for i in np.argsort(hashes)]


def check_joined(held: Sequence[Sequence[int]], results: dict[str, MatchedRows]) -> None:
    common = joined(held)
    for i, rows in enumerate(held):
        own = results[f"p{i}"]
        assert own.total == len(common)
        assert [rows[k] for k in own.order] == [common[k] for k in own.at]
        assert sorted(own.order.tolist()) == list(range(len(rows)))
        assert (np.diff(own.at) > 0).all()
        assert own.complete == (set(rows) == set(common))


# ---------------------------------------------------------------------- one order for all


@settings(max_examples=40, deadline=None)
@given(HELD, st.booleans())
def test_rows_by_ids_are_those_of_a_join(held: list[list[int]], coordinated: bool) -> None:
    results = memory.run(matching(parties(held), coordinated)).results
    check_joined(held, results)
    leader = results[COORDINATOR if coordinated else "p0"]
    assert list(leader.schemas) == [f"p{i}" for i in range(len(held))]
    alone = [
        i for i, rows in enumerate(held)
        if len(held) > 1 and not any(set(rows) & set(o) for j, o in enumerate(held) if j != i)
    ]  # fmt: skip
    assert [n.partition(" ")[0] for n in leader.notes] == [f"p{i}" for i in alone]
    assert not any(r.schemas or r.notes for r in results.values() if r is not leader)
    assert all((r.weight == 1).all() and len(r.weight) == leader.total for r in results.values())


@settings(max_examples=40, deadline=None)
@given(HELD, st.booleans(), st.randoms(use_true_random=False))
def test_weights_follow_their_rows(held: list[list[int]], coordinated: bool, random: Any) -> None:
    weight = {i: random.choice([0.0, 0.5, 2.0]) for rows in held for i in rows}
    given = {f"p{p}": np.array([weight[i] for i in rows]) for p, rows in enumerate(held)}
    results = memory.run(matching(parties(held), coordinated, given)).results
    check_joined(held, results)
    for own in results.values():
        assert own.weight.tolist() == [weight[i] for i in joined(held)]


@settings(max_examples=30, deadline=None)
@given(IDS, st.integers(1, 3), st.booleans(), st.booleans())
def test_without_ids_rows_are_matched_by_position(
    rows: list[int], count: int, coordinated: bool, weighted: bool
) -> None:
    every = parties([rows] * count, ids=False)
    given = {p.name: np.array(rows, np.float64) for p in every} if weighted else None
    results = memory.run(matching(every, coordinated, given)).results
    for name, own in results.items():
        known = [] if name == COORDINATOR else list(range(len(rows)))
        assert own.order.tolist() == own.at.tolist() == known and own.total == len(rows)
        assert own.weight.tolist() == (list(rows) if weighted else [1.0] * len(rows))
        leads = name == (COORDINATOR if coordinated else "p0")
        assert own.notes == ((BY_POSITION,) if leads and count > 1 else ())


@settings(max_examples=30, deadline=None)
@given(HELD, st.integers(0, 100))
def test_another_common_order_is_the_same_for_all(held: list[list[int]], seed: int) -> None:
    weight = {f"p{p}": np.array(rows, np.float64) for p, rows in enumerate(held)}
    results = memory.run(matching(parties(held), False, weight)).results
    common: dict[int, int] = {}
    for i, rows in enumerate(held):
        own = results[f"p{i}"].shuffled(np.random.default_rng(seed))
        assert (np.diff(own.at) > 0).all()
        for k, at in zip(own.order.tolist(), own.at.tolist(), strict=True):
            assert common.setdefault(at, rows[k]) == rows[k] == own.weight[at]


def test_rows_that_cannot_be_matched() -> None:
    with_ids, without = parties([[1, 2], [1, 2]]), parties([[1, 2], [1, 2]], ids=False)
    text = "rows cannot be matched: p1 has no row ids (rows: p0 2, p1 2); give row ids at all"
    assert text in str(memory.run(matching([with_ids[0], without[1]], True)).lost[COORDINATOR])
    uneven = parties([[1, 2], [1]], ids=False)
    text = "rows cannot be matched: p0 has no row ids (rows: p0 2, p1 1)"
    assert text in str(memory.run(matching(uneven, False)).lost["p0"])
    weights = {"p0": np.array([1.0, 2.0]), "p1": np.array([1.0, 3.0])}
    lost = memory.run(matching(with_ids, True, weights)).lost[COORDINATOR]
    text = "p0 and p1 hold different values of 'weight' for 1 of the rows they share"
    assert text in str(lost)


@pytest.mark.parametrize("coordinated", [False, True])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_laws_and_malformed_messages(coordinated: bool, ids: bool, weighted: bool) -> None:
    held = UNEVEN if ids else [[1, 2, 3]] * 3
    weights = {f"p{p}": np.array(rows, np.float64) for p, rows in enumerate(held)}
    flows = matching(parties(held, ids), coordinated, weights if weighted else None)
    check_protocol(flows, without=["processes"])
    assert check_messages(flows) > 40


# ---------------------------------------------------------------------- lists at a coordinator


def test_no_token_reaches_a_party_and_classes_are_told_of_shared_rows_only() -> None:
    """Whoever has the key could try out ids on tokens: p0 and p1 would name rows that p2 holds."""
    labels = {1: 0, 2: 1, 3: 0, 5: 1, 9: 0, 7: 1}
    engine = Watched()
    engine(listing(parties([[3, 1, 2], [5, 2, 3, 9], [2, 9, 7]]), labels))
    told = [(s, m.party, read(m.data)) for s, m in engine.messages if m.tag == "labels/target"]
    assert {(s, p): f["values"].tolist() for s, p, f in told} == {
        ("p2", "p0"): [1.0],
        ("p2", "p1"): [labels[i] for i in joined([[5, 2, 3, 9], [2, 9]]) if i in (2, 9)],
    }
    every = set(tokens(np.arange(1000), KEY).tolist())
    for sender, message in engine.messages:
        if message.party != COORDINATOR:
            assert not numbers_in(read(message.data)) & every, (sender, message.tag)


def numbers_in(value: object) -> set[int]:
    if isinstance(value, dict):
        return set().union(*(numbers_in(v) for v in value.values()))
    if isinstance(value, np.ndarray) and value.dtype == np.uint64:
        return set(value.tolist())
    return set()


@settings(max_examples=40, deadline=None)
@given(HELD, st.randoms(use_true_random=False))
def test_the_target_is_told_by_a_join(held: list[list[int]], random: Any) -> None:
    labels = {i: random.choice([-1, 0, 1]) for rows in held for i in rows}
    results = memory.run(listing(parties(held), labels)).results
    common, where = joined(held), results[COORDINATOR]
    assert where.shape == (len(common), len(held))
    for i, rows in enumerate(held):
        order, y = results[f"p{i}"]
        for k, at in enumerate(where[:, i].tolist()):
            assert (at >= 0) == (common[k] in rows)
            assert at < 0 or rows[order[at]] == common[k]
        told = [labels[r] if r in held[-1] else -1 for r in rows]
        assert np.where(np.isnan(y), -1, y).tolist() == told


def test_laws_and_malformed_lists() -> None:
    flows = listing(parties(UNEVEN), {1: 0, 2: 1, 3: 0, 5: 1, 9: -1})
    check_protocol(flows, without=["processes"])
    assert check_messages(flows) > 40


@pytest.mark.parametrize("coordinated", [False, True])
def test_the_key_never_reaches_the_coordinator(coordinated: bool) -> None:
    engine = Watched()
    if coordinated:
        engine(matching(parties(UNEVEN), True))
    engine(listing(parties(UNEVEN), dict.fromkeys(range(10), 1)))
    keys = [(s, m) for s, m in engine.messages if m.tag == "key/tokens"]
    assert {(s, m.party) for s, m in keys} == {("p0", "p1"), ("p0", "p2")}
    assert all(read(m.data) == {"key": KEY} for _, m in keys)
    others = [m for _, m in engine.messages if m.tag != "key/tokens"]
    assert any(m.party == COORDINATOR for m in others)
    assert not any(secret in m.data for m in others for secret in (KEY, *SECRETS.values()))
    listed = [read(m.data)["tokens"] for m in others if m.tag == "rows/tokens"]
    assert all((np.diff(t.astype(np.float64)) > 0).all() for t in listed)


@pytest.mark.parametrize(
    ("who", "tag", "field", "value"),
    [
        ("p0", "key/tokens", "key", b"short"), ("p0", "key/tokens", "key", "text" * 8),
        ("p2", "labels/target", "values", np.array([0.0, 2.0])),
        ("p2", "labels/target", "values", np.array([0.0, 0.5])),
        ("p2", "labels/target", "values", np.array([0.0, np.inf])),
        (COORDINATOR, "labels/rows", "places", {"p0": np.array([0, 1])}),
        (COORDINATOR, "labels/rows", "places", {"p2": np.array([1, 0])}),
        (COORDINATOR, "labels/rows", "places", {"p2": np.array([-1])}),
        (COORDINATOR, "labels/rows", "places", {"p2": np.array([9])}),
        (COORDINATOR, "labels/rows", "places", {}),
        ("p1", "rows/tokens", "tokens", np.arange(3, dtype=np.uint64)),
        ("p1", "rows/tokens", "tokens", np.array([1, 2, 2, 3], np.uint64)),
        ("p1", "rows/tokens", "tokens", np.array([4, 3, 2, 1], np.uint64)),
        ("p1", "rows/tokens", "tokens", np.arange(4)),
        ("p1", "rows/tokens", "tokens", np.arange(4, dtype=np.uint64)[None]),
        ("p1", "rows/tokens", "weights", np.array([1.0, np.nan, 1.0, 1.0])),
    ],
)  # fmt: skip
def test_lists_that_mean_nothing(who: str, tag: str, field: str, value: object) -> None:
    flows = listing(parties(UNEVEN), dict.fromkeys(range(10), 1))
    error = blamed(flows, who, tag, field, value)
    assert (error.sender, error.tag, error.field) == (who, tag, field)


def fewer_places(fields: Any) -> Any:
    """A place less for those who hear the target of p2."""
    return {"places": {p: a[1:] if p == "p2" else a for p, a in fields["places"].items()}}


@pytest.mark.parametrize(
    ("who", "tag", "change"),
    [
        ("p2", "labels/target", lambda m: {"values": m["values"][:-1]}),
        (COORDINATOR, "labels/rows", fewer_places),
    ],
)
def test_a_holder_and_the_coordinator_that_say_different_things(
    who: str, tag: str, change: Any
) -> None:
    """Nobody can tell which of them is wrong: the error names both."""
    flows = listing(parties(UNEVEN), dict.fromkeys(range(10), 1))
    told = {"program": flows[who], "tag": tag, "change": change}
    lost = memory.run({**flows, who: Program(saying, told)}).lost
    assert any(
        "p2 sent" in str(e) and "according to the coordinator" in str(e) for e in lost.values()
    )


@pytest.mark.parametrize(
    ("who", "tag", "field", "value"),
    [
        (COORDINATOR, "agree/plan", "ids", False),
        (COORDINATOR, "rows/places", "total", 2), (COORDINATOR, "rows/places", "total", 2**40),
        (COORDINATOR, "rows/places", "at", np.array([0, 0, 1])),
        (COORDINATOR, "rows/places", "at", np.array([-1, 0, 1])),
        (COORDINATOR, "rows/places", "at", np.array([0, 1, 5])),
        (COORDINATOR, "rows/places", "at", np.array([0, 1])),
        (COORDINATOR, "rows/places", "weights", np.ones(3)),
        (COORDINATOR, "rows/places", "weights", None),
        ("p0", "rows/tokens", "weights", None),
        ("p1", "rows/tokens", "weights", None), ("p1", "rows/tokens", "weights", -np.ones(4)),
        ("p1", "rows/tokens", "weights", np.ones(3)),
    ],
)  # fmt: skip
def test_places_that_mean_nothing(who: str, tag: str, field: str, value: object) -> None:
    weights = {f"p{p}": np.ones(len(rows)) for p, rows in enumerate(UNEVEN)}
    error = blamed(matching(parties(UNEVEN), True, weights), who, tag, field, value)
    named = "at" if field == "total" and value == 2 else field  # places beyond the last row
    assert (error.sender, error.tag, error.field) == (who, tag, named)


def blamed(
    flows: dict[str, Program[Any]], who: str, tag: str, field: str, value: object
) -> MessageError:
    change = {"program": flows[who], "tag": tag, "change": lambda m: {**m, field: value}}
    lost = memory.run({**flows, who: Program(saying, change)}).lost
    causes = [e.__cause__ for e in lost.values() if isinstance(e.__cause__, MessageError)]
    assert causes, lost
    return causes[0]


# ---------------------------------------------------------------------- values that must agree


@given(HELD, st.randoms(use_true_random=False))
def test_values_that_parties_agree_on(held: list[list[int]], random: Any) -> None:
    value = {i: random.choice([np.nan, 1.0, 2.0]) for rows in held for i in rows}
    known = [random.random() < 0.7 for _ in held]
    common = joined(held)
    where = np.array([[r.index(i) if i in r else -1 for r in held] for i in common], np.int64)
    sent = [
        np.array([value[i] for i in r]) if k else np.zeros(0)
        for r, k in zip(held, known, strict=True)
    ]
    found = agreed_values(where, sent, [f"p{i}" for i in range(len(held))], "age")
    for i, number in zip(common, found.tolist(), strict=True):
        told = any(i in rows for rows, k in zip(held, known, strict=True) if k)
        assert np.array_equal(number, value[i] if told else np.nan, equal_nan=True)


def test_values_that_parties_do_not_agree_on() -> None:
    where = np.array([[0, 0, -1], [1, 1, 0], [-1, 2, 1]])
    sent = [np.zeros(0), np.array([1.0, np.nan, 3.0]), np.array([7.0, 4.0])]
    with pytest.raises(FederationError, match="b and c hold different values of 'age' for 1 of"):
        agreed_values(where, sent, ["a", "b", "c"], "age")


def test_ids_must_tell_rows_apart() -> None:
    with pytest.raises(FederationError, match="two rows have the same id"):
        rising_order(tokens(np.array([1, 2, 1]), KEY))

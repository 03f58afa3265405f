"""Points as shares, and askers that deal something else: every party refuses before anything of
the model is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.engines import memory
from fedcircuits.engines.outcome import Outcome
from fedcircuits.errors import QueryError
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.methods.private_forest.query import one_hot
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.group import Group, Lot, exchange
from fedcircuits.privacy.sharing.shares import deal
from tests.methods.private_forest.asking import (
    ASKER,
    booleans,
    held,
    mixed,
    parameters,
    points,
    ready,
    stores,
    taken,
)
from tests.methods.private_forest.asking import asking as programs_of
from tests.privacy.parties import key, messages, names

FOREST = Forest(mixture_of_products(mixed(3), 2))
OPEN = Forest(mixture_of_products(mixed(3), 2), marginals=True)
Parts = dict[str, list[Elements]]


@given(st.integers(0, 2**32), st.booleans())
def test_one_hot(seed: int, missing: bool) -> None:
    x = points(mixed(3), 4, seed, 0.4 if missing else 0.0)
    found = one_hot(OPEN, x)
    assert found.shape == (4, 13, 2) and not found[..., 1].any()
    parts = np.split(found[..., 0], np.cumsum(OPEN.codes)[:-1], axis=1)
    for column, own in zip(x.T, parts, strict=True):
        expected = column[:, None] == np.arange(own.shape[1])
        assert np.array_equal(own, expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :-1], r"shape \(2, 4\): expected \(rows, 5\)"),
        (lambda x: x[:0], r"shape \(0, 5\): expected \(rows, 5\), at least one row"),
        (lambda x: x + 4.0, "points must be codes"),
        (lambda x: x * 0 + 0.5, "points must be codes"),
        (lambda x: x - 5, "points must be codes"),
        (
            lambda x: x * np.nan,
            r"2 points have values of 'v0', .* left out, which the parties do not",
        ),
    ],
)
def test_what_is_no_point(change: Any, words: str) -> None:
    """Said where it is asked, before anything is sent."""
    with pytest.raises(QueryError, match=words):
        one_hot(FOREST, change(points(mixed(3), 2)))


# ---------------------------------------------------------------------- askers that cheat


def cheats(
    members: tuple[str, ...],
    forest: Forest,
    bits: Elements,
    change: Callable[[Parts], Parts],
    key: bytes,
) -> Flow[Any]:
    """Deals what it likes, and waits for the answer."""
    group = Group.of(ASKER, members, key, "query")
    dealt = deal(FIELD, bits, group.threshold, len(members), group.stream)
    parts = change({m: [own] for m, own in zip(members, dealt, strict=True)})
    lots = [Lot(FIELD, bits.shape[:-1])]
    yield from exchange(group, "query/points", parts, (), lots)
    ring = forest.ring(len(members))
    return (yield from exchange(group, "query/root", {}, members, [Lot(ring, (len(bits),))]))


def refused(
    forest: Forest,
    count: int,
    bits: Elements,
    change: Callable[[Parts], Parts] = lambda parts: parts,
) -> Outcome[Any]:
    """An outcome in which nobody answers, and no exponent was opened."""
    x = points(forest.circuit.schema, len(bits))
    made = ready(forest, parameters(forest), count, x)
    own = {"members": names(count), "forest": forest, "bits": bits, "change": change}
    made[ASKER] = Program(cheats, {**own, "key": key(ASKER)})
    outcome = memory.run(made)
    assert not outcome.results and set(outcome.lost) == set(made)
    assert {e.tag for e in outcome.ledger} & {"query/exponents", "query/root"} == set()
    return outcome


def honest(forest: Forest, rows: int = 3) -> Elements:
    return one_hot(forest, points(forest.circuit.schema, rows))


@pytest.mark.parametrize("count", [3, 4, 5, 12])
@pytest.mark.parametrize("which", [0, -1])
def test_an_inconsistent_sharing(count: int, which: int) -> None:
    """One share of one number at one party. Of three parties, two of which are honest, any shares
    are those of some number: it is none of a point."""

    def change(parts: Parts) -> Parts:
        me = list(parts)[which]
        bits = parts[me][0].copy()
        bits[1, 4] = FIELD.add(bits[1, 4], FIELD.elements(1))
        parts[me][0] = bits
        return parts

    outcome = refused(FOREST, count, honest(FOREST), change)
    for me in names(count):
        assert "inconsistent shares" in str(outcome.lost[me])


def _set(forest: Forest, at: tuple[int, int], value: int) -> Elements:
    bits = honest(forest)
    bits[at] = FIELD.elements(value)
    return bits


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize(
    ("forest", "bits"),
    [
        (FOREST, _set(FOREST, (0, 3), 2)),
        (OPEN, _set(OPEN, (0, 3), 2)),
        (OPEN, _set(OPEN, (2, 0), -1)),
        (FOREST, FIELD.elements(np.ones((3, 13), np.int64))),
        (OPEN, FIELD.elements(np.ones((3, 13), np.int64))),  # both codes of booleans
        (FOREST, FIELD.zeros((3, 13))),  # nothing may be left out here
        (FOREST, FIELD.elements(np.eye(3, 13, dtype=np.int64))),
    ],
)
def test_numbers_that_are_no_point(forest: Forest, bits: Elements, count: int) -> None:
    outcome = refused(forest, count, bits)
    for me in names(count):
        assert f"the query of {ASKER} is not a point" in str(outcome.lost[me])


def test_one_wrong_pair_among_many() -> None:
    """(1, 1) for one boolean of one row, of 200 rows."""
    bits = honest(OPEN, 200)
    bits[77, 2:4, 0] = 1
    assert "is not a point" in str(refused(OPEN, 3, bits).lost["party0"])


# ---------------------------------------------------------------------- what messages show


def test_messages_are_the_same_whatever_is_left_out() -> None:
    """Sizes and numbers of messages of a query do not depend on the point."""
    seen = []
    for missing in (0.0, 0.5, 1.0):
        x = points(mixed(3), 4, 3, missing)
        outcome, _ = messages(ready(OPEN, parameters(OPEN), 3, x))
        seen.append([(e.sender, e.receiver, e.tag, e.bytes) for e in outcome.ledger])
    assert seen[0] == seen[1] == seen[2]


def test_plain_points_never_cross() -> None:
    """Neither the zeros and ones as elements, nor as numbers or bytes of any width."""
    forest = Forest(mixture_of_products(booleans(40), 2))
    x = points(booleans(40), 3)
    _, sent = messages(ready(forest, parameters(forest), 3, x))
    data = b"".join(m.data for own in sent.values() for m in own)
    assert len(data) > 10_000
    one, zero = FIELD.packed(FIELD.elements([1])).tobytes(), bytes(10)
    assert one not in data and zero not in data
    for kind in (np.uint8, np.int64, np.float64):
        assert all(row[:12].astype(kind).tobytes() not in data for row in x)


def test_the_check_hides_the_point() -> None:
    """What is opened in it is another number in every query of the same point."""
    x = points(mixed(3), 1)
    shares, prepared = held(FOREST, parameters(FOREST), 3), stores(FOREST, 3, 2)
    opened = []
    for label in ("a", "b"):
        _, sent = messages(programs_of(FOREST, shares, taken(prepared, 1), x, label=label))
        opened.append(
            {m.data for own in sent.values() for m in own if m.tag == "query/check/opened"}
        )
    assert len(opened[0]) == len(opened[1]) == 3 and not opened[0] & opened[1]

"""One party that deviates, in whatever message of a private question: no answer is silently wrong,
and nothing that is no point is answered. Odd numbers of parties have no share of degree 2t to
spare."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from copy import deepcopy
from math import log
from typing import Any

import numpy as np
import pytest

from fedcircuits.circuits.graph.structures import mixture_of_products
from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.methods.private_forest import query
from fedcircuits.methods.private_forest.model import Forest
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.operations.checks import Checks
from fedcircuits.privacy.sharing.shares import weights
from tests.methods.private_forest.asking import (
    ASKER,
    CLOSE,
    asking,
    booleans,
    circuits,
    exact,
    held,
    parameters,
    points,
    preparing,
    run,
    stores,
    taken,
)
from tests.privacy.liars import KINDS, adding, bent, lies, line
from tests.privacy.parties import names

FOREST = Forest(mixture_of_products(booleans(2), 2))
DEEP = Forest(circuits()["uneven"])


def question(forest: Forest, count: int, asker: str = ASKER) -> Any:
    """Programs of one question by the label of all keys."""
    x, learned = points(forest.circuit.schema, 1), parameters(forest)
    shares = held(forest, learned, count)

    @functools.cache
    def batches(label: str) -> dict[str, Any]:
        return taken(stores(forest, count, 1, label), 1)

    def made(label: str) -> dict[str, Program[Any]]:
        return asking(forest, shares, deepcopy(batches(label)), x, asker, label)

    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("count", "liar"), [(3, "party2"), (4, "party1"), (5, "party0"), (3, ASKER)]
)
def test_every_message_of_a_question(count: int, liar: str, kind: str) -> None:
    tried = set()
    for tag, programs in lies(question(FOREST, count), liar, kind):
        outcome = memory.run(programs)
        assert ASKER not in outcome.results, f"{liar}'s {tag!r} was believed"
        tried.add(tag)
    assert len(tried) >= (9 if kind != "swap" else 3) or liar == ASKER


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_of_a_deeper_question(kind: str) -> None:
    tried = set()
    for tag, programs in lies(question(DEEP, 3), "party1", kind):
        assert ASKER not in memory.run(programs).results, f"{tag!r} was believed"
        tried.add(tag)
    assert "query/level/0" in tried


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "liar"), [(3, "party1"), (4, "party0")])
def test_every_message_that_makes_masks(count: int, liar: str, kind: str) -> None:
    """No masks are there afterwards, at one party at least: no question can be asked."""
    tried = set()
    for tag, programs in lies(lambda label: preparing(FOREST, count, 1, label), liar, kind):
        outcome = memory.run(programs)
        assert set(names(count)) - outcome.results.keys(), f"{liar}'s {tag!r} was believed"
        tried.add(tag)
    assert len(tried) >= (6 if kind != "swap" else 2)


# ---------------------------------------------------------------------- shares that are chosen


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties as they were without checks."""

    def check(self: Checks, *given: object, **more: object) -> Flow[None]:
        return
        yield

    monkeypatch.setattr(Checks, "check", check)


def outcome_with(count: int, lie: str) -> tuple[Any, float]:
    """A question in which the first party adds to the answer, or to one component; the truth."""
    x, learned = points(FOREST.circuit.schema, 1), parameters(FOREST)
    shares, scale = held(FOREST, learned, count), FOREST.scale(count)
    members, liar = names(count), names(count)[0]
    first = weights(2 * ((count - 1) // 2) + 1, 0)[0]  # of its share in a product
    if lie == "component":  # 16 times as likely, by a share that all others see
        own, more = shares[liar].arrays["root"], (4 << 36) * pow(first, -1, FIELD.modulus)
        own[0, 0] = FIELD.add(own[0, 0], FIELD.elements(more))
    made = asking(FOREST, shares, taken(stores(FOREST, count, 1), 1), x)
    if lie == "answer":  # half of all probability more, dealt as a product should be
        ring, value = scale.ring, 1 << (scale.root + scale.shift - 1)
        amount = line(ring, members, liar, value * pow(first, -1, ring.modulus))
        told = {"program": made[liar], "tag": "query/product", "amount": amount, "ring": ring}
        made[liar] = Program(adding, told)
    return memory.run(made), float(exact(FOREST, learned, x)[0])


@pytest.mark.parametrize("lie", ["answer", "component"])
@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_a_liar_that_chooses_what_to_add(count: int, lie: str) -> None:
    """0.0099 was told as 0.5099 where N is odd, and one component as many times as likely."""
    outcome, _ = outcome_with(count, lie)
    assert ASKER not in outcome.results
    assert {"party1", "party2"} <= outcome.lost.keys()


@pytest.mark.parametrize("count", [3, 5, 7])
def test_it_would_be_believed_without_checks(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    unchecked(monkeypatch)
    outcome, truth = outcome_with(count, "answer")
    assert np.exp(outcome.results[ASKER][0]) == pytest.approx(np.exp(truth) + 0.5, abs=1e-4)
    outcome, truth = outcome_with(count, "component")
    assert abs(outcome.results[ASKER][0] - truth) > 0.1


# ---------------------------------------------------------------------- points


def asked_by_a_liar(count: int, bits: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The first party asks about what is no point, and in the check sends shares, last of all,
    with which the sum would be right; it is all the same as the others otherwise."""
    x, learned, members = points(FOREST.circuit.schema, 1), parameters(FOREST), names(count)
    liar = members[0]
    monkeypatch.setattr(query, "one_hot", lambda forest, given: bits)
    shares = held(FOREST, learned, count)
    return asking(FOREST, shares, taken(stores(FOREST, count, 1), 1), x, liar), liar


def no_points() -> Iterator[Any]:
    bits = query.one_hot(FOREST, points(FOREST.circuit.schema, 1))
    yield FIELD.zeros(bits.shape[:-1])  # only the weights, which would be read
    yield bent(bits, (0, 0), 1 << 90, FIELD)
    yield FIELD.elements(np.ones(bits.shape[:-1], np.int64))


@pytest.mark.parametrize("bits", list(no_points()))
@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_a_party_asks_about_no_point_and_fits_its_shares(
    count: int, bits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it adds to what it deals or opens in the check: it knows by how much the sum is
    off, which was enough where shares of degree 2t were opened."""
    made, liar = asked_by_a_liar(count, bits, monkeypatch)
    outcome = memory.run(made)
    assert liar not in outcome.results and "query/exponents" not in {e.tag for e in outcome.ledger}
    share = lambda _: 12345  # noqa: E731
    for tag, amount in (
        ("query/check/values", line(FIELD, names(count), liar, 1)),
        ("query/check/opened", share),
    ):
        made, liar = asked_by_a_liar(count, bits, monkeypatch)
        told = {"program": made[liar], "tag": tag, "amount": amount, "ring": FIELD}
        outcome = memory.run({**made, liar: Program(adding, told)})
        assert liar not in outcome.results
        assert "query/exponents" not in {e.tag for e in outcome.ledger}


def test_no_point_would_be_answered_without_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights alone add up to 1: the liar's own answer is log 1."""
    unchecked(monkeypatch)
    made, liar = asked_by_a_liar(3, next(no_points()), monkeypatch)
    assert run(made).results[liar][0] == pytest.approx(log(1), abs=CLOSE)

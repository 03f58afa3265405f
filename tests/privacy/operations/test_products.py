"""Products of secrets against whole numbers, for odd and even numbers of parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.wire import encode
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.operations.products import product, reduced
from fedcircuits.privacy.sharing.group import Group, Shares
from fedcircuits.privacy.sharing.sharing import opened, summed
from fedcircuits.testing import check_protocol
from tests.privacy.parties import answers, by_round, names, numbers, programs, together


def multiplies(me: str, members: tuple[str, ...], key: bytes, own: Any, bits: int) -> Flow[Any]:
    """The product of the first sums, then with the third: two rounds of products."""
    group = Group.of(me, members, key).over(Ring(bits))
    a, b, c = yield from summed(group, "many/shares", group.ring.elements(own))
    ab = yield from product(group, "many/first", a, b)
    abc = yield from product(group, "many/second", ab, c)
    return numbers(
        group.ring.integers((yield from opened(group, "many/total", abc, "the products")))
    )


def inner(me: str, members: tuple[str, ...], key: bytes, own: Any) -> Flow[Any]:
    group = Group.of(me, members, key)
    a = yield from summed(group, "inner/shares", group.ring.elements(own))
    dots = yield from reduced(group, "inner/product", group.ring.inner(a, a))
    return group.ring.integers(
        (yield from opened(group, "inner/total", dots, "inner products"))
    ).tolist()


@pytest.mark.parametrize("count", range(3, 13))
@pytest.mark.parametrize("bits", [61, 127, 607])
def test_products_are_those_of_whole_numbers(count: int, bits: int) -> None:
    """At the edges: sums of 0, 1, p − 1 and p − 2."""
    p = Ring(bits).modulus
    edges = [0, 1, p - 1, p - 2, p // 2, 12345]
    firsts = [[e for e in edges for _ in edges], edges * 6, [p - 2] * 36]
    own = {name: firsts if i == 0 else [[0] * 36] * 3 for i, name in enumerate(names(count))}
    found = answers(multiplies, own, bits=bits)
    expected = [a * b * c % p for a, b, c in zip(*firsts, strict=True)]
    assert all(result == expected for result in found.values())


@given(st.lists(st.lists(st.integers(), min_size=3, max_size=3), min_size=4, max_size=4))
def test_products_of_sums(values: list[list[int]]) -> None:
    own = {n: np.array(v, dtype=object)[:, None] for n, v in zip(names(4), values, strict=True)}
    found = answers(multiplies, own, bits=127)
    sums = [sum(v) for v in zip(*values, strict=True)]
    assert found["party3"] == [sums[0] * sums[1] * sums[2] % Ring(127).modulus]


def test_inner_products_take_one_round() -> None:
    own = {name: [[1, 2, i], [3, 4, 0]] for i, name in enumerate(names(5))}
    outcome = together(inner, own)
    a = np.array([[5, 10, 10], [15, 20, 0]])
    assert outcome.results["party0"] == (a @ a.T).tolist() and len(by_round(outcome)) == 3


@pytest.mark.parametrize("count", [3, 4, 5, 12])
def test_what_crosses(count: int) -> None:
    """A product: 2t + 1 members send 16 bytes a number to each other one."""
    outcome = together(multiplies, {n: np.ones((3, 8), int) for n in names(count)}, bits=127)
    senders = 2 * ((count - 1) // 2) + 1
    every = count * (count - 1)
    assert by_round(outcome) == {
        "many/shares": every,
        "many/first": senders * (count - 1),
        "many/second": senders * (count - 1),
        "many/total": every,
    }
    assert {e.bytes for e in outcome.ledger if e.tag == "many/first"} == {
        len(encode(Shares(np.zeros((8, 16), np.uint8))))
    }


def test_laws_of_protocols() -> None:
    """Among them: a party that fails in any round is named by all that still needed it."""
    made = programs(multiplies, {n: np.ones((3, 2), int) for n in names(4)}, bits=127)
    check_protocol(made, run=memory.run)

"""Products of secrets, exact and cut back to their fractional bits: error, range, rounds, what is
seen, for odd and even numbers of parties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import ParameterError, ProtocolError
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import encode_message
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.operations.products import (
    HIDING,
    Cut,
    Masks,
    masks_made,
    reduced,
    truncated,
)
from fedcircuits.privacy.sharing.group import Group, Shares, opened, summed
from fedcircuits.privacy.sharing.shares import reconstruct
from fedcircuits.testing import check_protocol
from tests.methods.watched import read
from tests.privacy.parties import answers, by_round, messages, names, numbers, programs, together


def multiplies(me: str, members: tuple[str, ...], key: bytes, own: Any, bits: int) -> Flow[Any]:
    """The product of the first sums, then with the third: two rounds of products."""
    group = Group.of(me, members, key).over(Ring(bits))
    a, b, c = yield from summed(group, "many/shares", group.ring.elements(own))
    ab = yield from reduced(group, "many/first", group.ring.multiply(a, b))
    abc = yield from reduced(group, "many/second", group.ring.multiply(ab, c))
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
        len(encode_message(Shares(np.zeros((8, 16), np.uint8))))
    }


def test_laws_of_protocols() -> None:
    """Among them: a party that fails in any round is named by all that still needed it."""
    made = programs(multiplies, {n: np.ones((3, 2), int) for n in names(4)}, bits=127)
    check_protocol(made, run=memory.run)


# ---------------------------------------------------------------------- truncation

CUT = Cut(width=83, shift=40)  # products up to ±4 with 80 fractional bits: fits 16 parties
LAND = Ring(193)


def cuts(me: str, members: tuple[str, ...], key: bytes, own: Array, cut: Cut = CUT) -> Flow[Any]:
    group, point = Group.of(me, members, key), FixedPoint(40, 10)
    a, b = yield from summed(group, "cut/shares", point.encode(own))
    [masks] = yield from masks_made(group, "cut/masks", [(len(a), cut)])
    found = yield from truncated(group, "cut/product", group.ring.multiply(a, b), masks)
    landed = group.over(cut.landing or group.ring)
    total = yield from opened(landed, "cut/total", found, "the products")
    assert len(masks) == 0
    return FixedPoint(40, 10, landed.ring).decode(total)


def changes_ring(me: str, members: tuple[str, ...], key: bytes, own: Any) -> Flow[Any]:
    group = Group.of(me, members, key)
    a = yield from summed(group, "turn/shares", group.ring.elements(own))
    [masks] = yield from masks_made(group, "turn/masks", [(len(a), Cut(81, 0, LAND))])
    found = yield from truncated(group, "turn/ring", a, masks)
    return LAND.signed((yield from opened(group.over(LAND), "turn/total", found, "all"))).tolist()


def factors(count: int, rng: np.random.Generator, size: int = 300) -> dict[str, Array]:
    """Sums from −2 to 2, at their edges too."""
    whole = rng.uniform(-2, 2, (2, size))
    whole[:, :4] = [[2, 2, -2, -2], [2, -2, 2, 0]]
    parts = rng.normal(size=(count - 1, 2, size))
    every = np.concatenate([parts, (whole - parts.sum(0))[None]])
    return dict(zip(names(count), every, strict=True))


@pytest.mark.parametrize("count", [*range(3, 13), 16])
@pytest.mark.parametrize("landing", [None, LAND])
def test_products_of_fixed_point_numbers(count: int, landing: Ring | None) -> None:
    """Off by less than ⌈t/2⌉ + 1 units, beside what encoding and the product of both errors add."""
    own = factors(count, np.random.default_rng(count))
    found = answers(cuts, own, cut=Cut(84 if count < 8 else 83, 40, landing))["party0"]
    point = FixedPoint(40, 10)
    a, b = np.sum([FIELD.signed(point.encode(v)) for v in own.values()], axis=0)
    off = np.ldexp(found, 40) - (a * b / 2**40).astype(float)
    t = (count - 1) // 2
    assert np.abs(off).max() < -(-t // 2) + 1


def test_change_of_ring_is_exact() -> None:
    edges = [-(2**80), 2**80 - 1, 0, -1, 12345678901234567890]
    own = {n: edges if n == "party0" else [0] * 5 for n in names(5)}
    assert set(map(tuple, answers(changes_ring, own).values())) == {tuple(edges)}


def seen(values: Array) -> Elements:
    """What is opened in a run of three: value + half + mask."""
    own = {n: values if n == "party0" else np.zeros_like(values) for n in names(3)}
    _, sent = messages(programs(cuts, own))
    shares = []
    for name in names(3):
        payload = next(read(m.data)["data"] for m in sent[name] if m.tag == "cut/product")
        assert isinstance(payload, np.ndarray)
        shares.append(FIELD.unpacked(payload.reshape(-1), (values.shape[1],)))
    return reconstruct(FIELD, np.stack(shares), 2, names(3))


def test_opened_values_of_two_inputs_are_alike() -> None:
    """The smallest and the largest product: the same distribution as far as 20,000 draws can tell;
    exactly, both are within (largest − smallest) / 2^(width + 40) < 2^−40 of each other."""
    size = 20_000
    low, high = np.full((2, size), 2.0), np.full((2, size), 2.0)
    low[0] = -2.0
    first, second = seen(low), seen(high)
    scale = [v[:, 1].astype(float) / 2.0 ** (CUT.width + HIDING - 64) for v in (first, second)]
    assert stats.ks_2samp(*scale).pvalue > 1e-3
    assert scale[0].min() < 0.05 and scale[0].max() > 1.95  # the sum of two uniform numbers
    for opened_values in (first, second):
        bottom = (opened_values[:, 0] & np.uint64(255)).astype(np.int64)
        assert stats.chisquare(np.bincount(bottom, minlength=256)).pvalue > 1e-3
    widest = 2 * 2.0 ** (CUT.width - 1)
    assert widest / 2.0 ** (CUT.width + HIDING) <= 2.0**-40


@pytest.mark.parametrize("count", [3, 4, 7])
def test_what_crosses_in_truncation(count: int) -> None:
    """Masks ahead: the last t + 1 members send two keys, 16 bytes a mask to whoever cannot draw its
    share of degree t, the last N − t, and 16 more to the last N − 2t, which cannot draw that of
    degree 2t; the product itself is one round of 16."""
    outcome = together(cuts, {n: np.ones((2, 8)) / 8 for n in names(count)})
    t, every = (count - 1) // 2, count * (count - 1)
    assert by_round(outcome) == {
        "cut/shares": every,
        "cut/masks": (t + 1) * (count - 1),
        "cut/product": every,
        "cut/total": every,
    }
    size = {e.tag: e.bytes for e in outcome.ledger}
    for e in outcome.ledger:
        if e.tag == "cut/masks":
            place = names(count).index(e.receiver) + 1
            assert names(count).index(e.sender) >= count - t - 1
            shares = 8 * 16 * ((place > t) + (place > 2 * t))
            assert e.bytes == len(encode_message(Shares(np.zeros(64 + shares, np.uint8))))
    assert size["cut/product"] == len(encode_message(Shares(np.zeros((8, 16), np.uint8))))


def test_ranges_are_checked_before_anything_is_sent() -> None:
    given = {n: np.zeros((2, 1)) for n in names(16)}
    outcome = together(cuts, given, cut=Cut(84, 40))
    assert not outcome.results and "cut/masks" not in by_round(outcome)
    text = "values of 84 bits under masks among 16 parties need a ring of 128 bits"
    assert text in str(outcome.lost["party3"])
    assert Cut(83, 40).needs(16) == 127 and Cut(85, 40).needs(3) == 127
    with pytest.raises(ParameterError, match="from 0 to width"):
        next(masks_made(Group.of("a", names(3), bytes(32)), "x/y", [(1, Cut(10, 10))]))


def test_a_value_beyond_the_stated_width_is_noticed() -> None:
    """2^10 · 2^10 has 101 bits, 83 are stated: the opened number is below zero or too large."""
    given = {n: np.array([[-(2.0**10) / 3] * 200, [2.0**10 / 3] * 200]) for n in names(3)}
    outcome = together(cuts, given, cut=Cut(40, 20))
    assert not outcome.results
    assert "exceeds the 40 bits declared" in str(outcome.lost["party0"])


def test_no_mask_is_used_twice() -> None:
    masks = Masks(CUT, FIELD.zeros((5,)), FIELD.zeros((5,)))
    masks.take(3, "a/b")
    with pytest.raises(
        ProtocolError, match="'c/d' needs 3 masks, but 2 are left: a mask is used on"
    ):
        masks.take(3, "c/d")
    assert len(masks.take(2, "c/d")[0]) == 2 and len(masks) == 0


def test_laws_of_truncation() -> None:
    made = programs(cuts, {n: np.ones((2, 2)) / 8 for n in names(3)})
    check_protocol(made, run=memory.run)

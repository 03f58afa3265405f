"""The check of products: right ones pass, wrong ones do not, and nothing shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, SEARCHED, Ring, least_factor, next_ring
from fedcircuits.privacy.operations.checks import Claim, checks_made
from fedcircuits.privacy.operations.products import reduced
from fedcircuits.privacy.sharing.group import Group, opened, shared
from tests.privacy.parties import answers, messages, names, programs, together

RINGS = [FIELD, Ring(31), next_ring(140), Ring(29)]  # 2^29 − 1 = 233·1103·2089


def multiplying(
    me: str, members: tuple[str, ...], key: bytes, own: int, ring: Ring, shape: Any, times: int = 1
) -> Flow[Any]:
    """Products of what the first two deal; ``own``: what a liar adds to the last product."""
    group = Group.of(me, members, key).over(ring)
    secret = group.stream.elements(ring, shape)
    dealt = yield from shared(group, "deal", secret, shape)
    a, b = dealt[0], dealt[1]
    product = ring.multiply(a, b)
    product[..., -1, :] = ring.add(product[..., -1, :], ring.elements(own))
    fresh = yield from reduced(group, "product", product)
    claims = [Claim.of(ring, a, b, fresh)]
    kinds = [(claim.ring, claim.terms) for claim in claims]
    checks = yield from checks_made(group, "check", [kinds] * times)
    for k in range(times):
        yield from checks.check(f"check/{k}", claims)
    return (yield from opened(group, "result", fresh, "all"))


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: str(ring.bits))
@pytest.mark.parametrize("terms", [1, 2, 15, 16, 17, 100])
def test_right_products_pass(ring: Ring, terms: int) -> None:
    for count in (3, 4):
        found = answers(multiplying, dict.fromkeys(names(count), 0), ring=ring, shape=(terms,))
        assert len({own.tobytes() for own in found.values()}) == 1


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: str(ring.bits))
@pytest.mark.parametrize("count", [3, 4, 5, 7])
@pytest.mark.parametrize("liar", ["party0", "party2"])
def test_one_wrong_product_of_many_does_not(ring: Ring, count: int, liar: str) -> None:
    """Also by a multiple of all but one prime factor of the modulus."""
    for wrong in (1, ring.modulus // 233 if ring.bits == 29 else 7):
        lies = {me: wrong if me == liar else 0 for me in names(count)}
        outcome = together(multiplying, lies, ring=ring, shape=(40,))
        assert not outcome.results
        for me in names(count):
            assert "a product of shares is wrong" in str(outcome.lost[me])


def test_what_is_opened_is_uniform() -> None:
    """Every bit of every number that the check opens, of the same products again and again."""
    made = programs(multiplying, dict.fromkeys(names(3), 0), ring=FIELD, shape=(16,), times=150)
    _, sent = messages(made)
    told = [m for m in sent["party0"] if m.party == "party1" and m.tag.endswith("/opened")]
    data = b"".join(bytes(m.data[-48:-16]) for m in told)
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, 16), axis=1, bitorder="little")
    deviations = (bits[:, :127].mean(0) - 0.5) * 2 * np.sqrt(len(bits))
    assert np.abs(deviations).max() < 4.5 and 0.6 < np.square(deviations).mean() < 1.4


def test_least_factors() -> None:
    assert [least_factor(bits) for bits in (11, 23, 29)] == [23, 47, 233]
    assert least_factor(31) == 2**31 - 1 and least_factor(127) == FIELD.modulus
    assert least_factor(next_ring(600).bits) == SEARCHED

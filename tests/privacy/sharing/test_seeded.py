"""Shares that are drawn from keys: sharings of the secrets, uniform, in the stated bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcircuits.engines import memory
from fedcircuits.federation.flow import Flow
from fedcircuits.federation.messages import encode_message
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements
from fedcircuits.privacy.sharing.dealing import Dealer, seeded
from fedcircuits.privacy.sharing.group import Group, Lot, Shares
from fedcircuits.privacy.sharing.shares import PIECE, pieces, reconstruct, threshold
from fedcircuits.testing import check_protocol
from tests.privacy.parties import answers, names, numbers, programs, together

WIDE = Ring(193)


def deals(
    me: str, members: tuple[str, ...], key: bytes, own: Any, dealers: tuple[str, ...]
) -> Flow[list[Elements]]:
    """Every dealer deals own numbers over the field at degree 2t and over a ring at t."""
    group, count, t = Group.of(me, members, key), len(own), threshold(len(members))
    lots = [(Lot(FIELD, (count,)), 2 * t), (Lot(WIDE, (count,)), t)]
    dealer = Dealer(group, lots) if me in dealers else None
    if dealer is not None:
        for i, (lot, _) in enumerate(lots):
            for piece in pieces(count, lot.ring):
                dealer.put(i, piece, lot.ring.elements(own)[piece])
    folds = [lambda rows, _, ring=ring: ring.sum(rows) for ring in (FIELD, WIDE)]
    return (yield from seeded(group, "deal/shares", dealers, lots, dealer, folds))


@pytest.mark.parametrize("count", range(3, 13))
def test_shares_are_those_of_sums(count: int) -> None:
    """Of two dealers, from all shares, every one of which must fit."""
    own = {n: [i, -(5**i), 2**100 + i] for i, n in enumerate(names(count))}
    dealers = (names(count)[0], names(count)[-1])
    found = answers(deals, own, dealers=dealers)
    expected = [a + b for a, b in zip(*(own[n] for n in dealers), strict=True)]
    t = threshold(count)
    for i, (ring, degree) in enumerate(((FIELD, 2 * t), (WIDE, t))):
        shares = np.stack([found[n][i] for n in names(count)])
        assert numbers(ring.signed(reconstruct(ring, shares, degree, names(count)))) == expected


def test_many_pieces() -> None:
    own = {n: np.arange(PIECE + 5) for n in names(3)}
    found = answers(deals, own, dealers=names(3))
    shares = np.stack([found[n][1] for n in names(3)])
    total = WIDE.integers(reconstruct(WIDE, shares, 1, names(3)))
    assert (total == 3 * np.arange(PIECE + 5)).all()


def test_shares_are_uniform() -> None:
    """Those that are drawn and those that are sent, of the same secret again and again, and two
    of them together."""
    own = {n: np.full(60_000, 7) for n in names(5)}
    found = answers(deals, own, dealers=("party3",))
    top = [(found[n][0][:, 1] >> np.uint64(59)).astype(np.int64) for n in names(5)]
    for i, j in ((0, 4), (3, 4), (0, 1)):
        cells = np.bincount(top[i] * 16 + top[j], minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-3


@pytest.mark.parametrize("count", [3, 4, 7])
def test_what_crosses(count: int) -> None:
    """Two keys, and the shares of each lot for members beyond its degree."""
    outcome = together(deals, {n: [1] * 8 for n in names(count)}, dealers=names(count)[:1])
    t = threshold(count)
    assert len(outcome.ledger) == count - 1
    for e in outcome.ledger:
        place = names(count).index(e.receiver) + 1
        shares = 8 * (16 * (place > 2 * t) + WIDE.bytes * (place > t))
        assert e.bytes == len(encode_message(Shares(np.zeros(64 + shares, np.uint8))))


def test_laws_of_protocols() -> None:
    made = programs(deals, {n: [1, 2] for n in names(3)}, dealers=("party1", "party2"))
    check_protocol(made, run=memory.run)

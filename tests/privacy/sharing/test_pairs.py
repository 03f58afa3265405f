"""Pairs of members: some pair is unknown to any t of them, and one of a pair cannot deceive."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.sharing.dealing import dealt_by_pairs, pair_places
from fedcircuits.privacy.sharing.group import Group, Lot
from fedcircuits.privacy.sharing.shares import reconstruct
from tests.privacy.parties import answers, names

RING = Ring(61)


@pytest.mark.parametrize("count", range(3, 12))
def test_any_t_members_know_nothing_of_one_pair(count: int) -> None:
    pairs, most = pair_places(count), (count - 1) // 2
    for known in combinations(range(count), most):
        assert any(not set(pair) & set(known) for pair in pairs)
    assert len(pairs) == most + 1 + count % 2


def drawing(me: str, members: tuple[str, ...], key: bytes, own: object) -> Flow[Any]:
    group = Group.of(me, members, key)
    lots = [(Lot(FIELD, (4,)), 2 * group.threshold), (Lot(RING, (2, 3)), group.threshold)]
    draw = lambda stream: [stream.elements(lot.ring, lot.shape) for lot, _ in lots]  # noqa: E731
    return (yield from dealt_by_pairs(group, "pairs", lots, draw))


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_members_hold_shares_of_what_pairs_have_drawn(count: int) -> None:
    """Shares that fit together, of different numbers for every pair."""
    found, most = answers(drawing, dict.fromkeys(names(count))), (count - 1) // 2
    for lot, (ring, degree) in enumerate(((FIELD, 2 * most), (RING, most))):
        rows = np.stack([found[me][lot] for me in names(count)])
        secrets = reconstruct(ring, rows, degree, names(count))
        assert len(secrets) == len(pair_places(count))
        assert len({own.tobytes() for own in secrets}) == len(secrets)

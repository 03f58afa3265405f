"""Sums under masks: the contract of summations, what crosses, and that nobody sees a part."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError
from fedcircuits.federation.flow import Flow, Program
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.hidden_sums import MASK_KEY, MASKED, Masked, Secret
from fedcircuits.testing import check_protocol, check_summation
from tests.privacy.parties import answers, by_round, key, messages, names, programs, together


def adds(me: str, members: tuple[str, ...], key: bytes, own: Array, often: int = 1) -> Flow[Array]:
    summation, found = Masked(key=key).at(me, members), np.zeros(0)
    for _ in range(often):
        found = yield from summation.sum("add/up", own, "own counts")
    return found


def test_contract_of_summations() -> None:
    check_summation(Masked(), counts=(3, 4, 13, 20), tolerance=1e-10)
    check_summation(Masked(neighbours=2), counts=(3, 7), tolerance=1e-10)


def test_it_is_a_sound_protocol() -> None:
    check_protocol(programs(adds, {n: np.arange(3.0) for n in names(4)}))


@pytest.mark.parametrize("count", [3, 5, 20, 60])
def test_what_crosses_is_linear_in_the_parties(count: int) -> None:
    """One masked array and one total per other party and sum; keys once."""
    outcome = together(adds, {n: np.ones((6, 2)) for n in names(count)}, often=2)
    keys = count * Masked().reach(count) // 2
    expected = {"add/up/keys": keys, "add/up/masked": 2 * (count - 1)}
    assert by_round(outcome) == expected | {"add/up/total": 2 * (count - 1)}
    revealed = {e.tag: e.reveals for e in outcome.ledger}
    assert revealed == {
        "add/up/keys": MASK_KEY, "add/up/masked": MASKED, "add/up/total": "the sum of own counts",
    }  # fmt: skip


def test_no_part_is_seen_and_no_mask_is_used_twice() -> None:
    values = {n: np.array([1234.5678 * (i + 1), -0.25]) for i, n in enumerate(names(4))}
    _, sent = messages(programs(adds, values, often=2))
    for name, own in sent.items():
        encoded = FIELD.packed(FixedPoint(40, 64).encode(values[name])).tobytes()
        masked = [m.data for m in own if m.tag == "add/up/masked"]
        assert len(set(masked)) == len(masked) == (0 if name == "party0" else 2)
        for data in masked:
            assert encoded not in data and values[name].tobytes() not in data


@pytest.mark.parametrize("count", [3, 5, 13, 17])
def test_the_ring_stays_in_one_piece_without_fewer_than_the_neighbours(count: int) -> None:
    """So that whoever leaves masks of known keys out learns the total of the others alone."""
    members, reach = names(count), Masked().reach(count)
    around = {
        m: {*Masked().at(m, members)._after(), *Masked().at(m, members)._before()} for m in members
    }
    assert all(len(own) == reach and m not in own for m, own in around.items())
    assert all(m in around[other] for m, own in around.items() for other in own)
    for some in [members[: reach - 1], members[1:reach], *combinations(members, min(2, reach - 1))]:
        left = [m for m in members if m not in some]
        seen, edge = {left[0]}, [left[0]]
        while edge:
            edge = [n for m in edge for n in around[m] if n not in some and n not in seen]
            seen |= set(edge)
        assert seen == set(left)


def test_parties_are_three_and_keys_their_own() -> None:
    with pytest.raises(FederationError, match="at least 3 parties"):
        Masked().members(("a", "b"))
    for way in (Masked(), Secret()):  # of two, one of them twice
        with pytest.raises(FederationError, match="named twice"):
            way.members(("a", "b", "b"))
        with pytest.raises(FederationError, match="named twice"):
            way.at("a", ("a", "b", "b"))
    with pytest.raises(FederationError, match="the same key"):
        Masked(key=bytes(32)).prepare("summation")
    with pytest.raises(FederationError, match="co-occurring clusters of parties"):
        Masked().require_counts("summation")
    with pytest.raises(FederationError, match="neighbours"):
        Masked(neighbours=1)


def test_a_wrong_shape_blames_its_sender() -> None:
    made = programs(adds, {n: np.ones(3) for n in names(3)})
    made["party1"] = Program(
        adds, {"me": "party1", "members": names(3), "key": key("party1"), "own": np.ones(4)}
    )
    lost = memory.run(made).lost
    assert str(lost["party0"]).startswith("party1 sent 'add/up/masked' that does not fit")


def test_it_is_the_sum() -> None:
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=(40, 3)) * 1000 for n in names(30)}
    for found in answers(adds, values).values():
        np.testing.assert_allclose(found, sum(values.values()), rtol=0, atol=1e-9)

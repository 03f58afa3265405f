"""Sums on shares: the contract of summations, the stated error, and that nobody sees a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcircuits.circuits.graph.family import Array
from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, ParameterError, PartyLostError
from fedcircuits.federation.flow import Flow, Program, replay
from fedcircuits.federation.messages import encode_message
from fedcircuits.privacy.arithmetic.field import FIELD
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.hidden_sums import Secret
from fedcircuits.privacy.sharing.group import SHARE, Shares
from fedcircuits.testing import check_protocol, check_summation
from tests.privacy.liars import KINDS, lies
from tests.privacy.parties import answers, by_round, messages, names, programs, together


def doubled(total: Array) -> Array:
    return np.concatenate([total, total])


def adds(
    me: str, members: tuple[str, ...], key: bytes, own: Array, secret: Secret | None = None
) -> Flow[Array]:
    chosen = secret or Secret(key=key)
    summation = chosen.at(me, members)
    return (yield from summation.sum("add/up", own, "own counts"))


def adds_often(me: str, members: tuple[str, ...], key: bytes, own: Array) -> Flow[Any]:
    summation = Secret(key=key).at(me, members)
    first = yield from summation.sum("add/up", own, "own counts")
    again = yield from summation.sum("add/up", own, "own counts", then=doubled)
    told = yield from summation.agree("add/stop", np.array([len(me), 7]), "whether to stop")
    return first, again, told


class FailingError(RuntimeError):
    """On purpose."""


def fails(program: Program[Any], at: int) -> Flow[Any]:
    """The same flow, that fails before its message number ``at``."""
    flow, answer = program.start(), None
    for _ in range(at):
        answer = yield flow.send(answer)
    raise FailingError


@pytest.mark.parametrize("threshold", ["majority", "all"])
def test_contract_of_summations(threshold: Any) -> None:
    check_summation(Secret(threshold), counts=(3, 4, 5, 8), tolerance=1e-10)


@given(hnp.arrays(np.float64, (5, 3), elements=st.floats(-(2.0**64), 2.0**64)))
def test_the_error_is_that_of_rounding(values: Array) -> None:
    """N·2^−41, and of float64 one unit in the last place."""
    found = answers(adds, dict(zip(names(5), values, strict=True)))
    exact = FIELD.signed(FixedPoint(40, 64).encode(values)).sum(axis=0)
    nearest = np.array([int(v) / 2**40 for v in exact])
    for result in found.values():
        assert (np.abs(result - nearest) <= np.spacing(np.abs(nearest))).all()
        assert result.tobytes() == found["party0"].tobytes()
    within = 5 * 2.0**-41 + 8 * np.spacing(np.abs(values).sum(0))
    assert (np.abs(found["party0"] - values.sum(0)) <= within).all()


@pytest.mark.parametrize("count", [3, 4, 7])
def test_what_crosses(count: int) -> None:
    """Two rounds, 2 N (N − 1) messages, 16 bytes a number, whatever the numbers are."""
    outcome = together(adds, {n: np.ones((6, 2)) for n in names(count)})
    assert by_round(outcome) == dict.fromkeys(
        ("add/up/shares", "add/up/total"), count * (count - 1)
    )
    assert {e.bytes for e in outcome.ledger} == {
        len(encode_message(Shares(np.zeros((6, 2, 16), np.uint8))))
    }
    revealed = {e.tag: e.reveals for e in outcome.ledger}
    assert revealed == {"add/up/shares": SHARE, "add/up/total": "the sum of own counts"}


def test_large_arrays() -> None:
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=(150_000, 2)) * 1000 for n in names(3)}
    outcome = together(adds, values)
    np.testing.assert_allclose(outcome.results["party1"], sum(values.values()), rtol=0, atol=2e-12)
    assert outcome.ledger.bytes < 12 * 300_000 * 16 + 1000


def test_no_part_is_seen() -> None:
    """No float64, no encoded number and no text of any own number in any message of the first
    round, and in the second only what all members' totals are."""
    values = {n: np.array([1234.5678 * (i + 1), -0.25]) for i, n in enumerate(names(3))}
    _, sent = messages(programs(adds, values))
    for name, own in sent.items():
        data = b"".join(m.data for m in own)
        for party, value in values.items():
            encoded = FIELD.packed(FixedPoint(40, 64).encode(value)).tobytes()
            for plain in (
                value.tobytes(),
                value[:1].tobytes(),
                encoded,
                encoded[:16],
                encoded[16:],
            ):
                assert plain not in data, f"{name} has sent what {party} has"
        assert b"1234" not in data


def test_shares_differ_between_sums_of_the_same_numbers() -> None:
    made = programs(adds_often, {n: np.array([5.0, 5.0]) for n in names(3)})
    outcome, sent = messages(made)
    dealt = [m.data for m in sent["party0"] if m.tag == "add/up/shares"]
    assert len(set(dealt)) == 4  # two sums, two receivers
    first, again, told = outcome.results["party2"]
    assert first.tolist() == [15, 15] and again.tolist() == [15, 15, 15, 15]
    assert told.tolist() == [len("party0"), 7]


def test_a_flow_with_a_key_is_replayed() -> None:
    made = programs(adds, {n: np.array([1.0, 2.0]) for n in names(3)})
    check_protocol(made, run=memory.run)
    without = {n: Program(adds, p.arguments | {"secret": Secret()}) for n, p in made.items()}
    (_, first), (_, second) = messages(without), messages(without)
    assert first["party0"][0].data != second["party0"][0].data  # drawn by the operating system
    with pytest.raises(PartyLostError):
        replay(made["party0"], [PartyLostError("party1", "gone")])


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("at", range(9))
def test_a_party_that_dies_is_named(count: int, at: int) -> None:
    """Before each of its messages: whoever needed it names it, whoever did not has the sum."""
    values = {n: np.array([float(i)]) for i, n in enumerate(names(count))}
    made = programs(adds, values)
    if at >= 4 * (count - 1):
        return
    outcome = memory.run(made | {"party1": Program(fails, {"program": made["party1"], "at": at})})
    assert "party1" in outcome.lost and "FailingError" in str(outcome.lost["party1"])
    for name in set(values) - {"party1"}:
        if name in outcome.results:
            assert outcome.results[name].tolist() == [sum(range(count))]
        else:
            assert "party1 is lost" in str(outcome.lost[name])
    if at < 2 * (count - 1):  # it has sent no share of the total
        assert not outcome.results


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_one_liar_in_every_message(count: int, kind: str) -> None:
    """Flipped, replayed, swapped or withheld: whoever has a sum has the right one."""
    numbers = {n: np.array([2.0**i]) for i, n in enumerate(names(count))}

    def made(label: str) -> dict[str, Any]:
        return programs(adds, {n: len(label) * v for n, v in numbers.items()})

    right = len("one") * (2.0**count - 1)
    for tag, lied in lies(made, "party0", kind):
        found = memory.run(lied).results
        honest = [found[me].tolist() for me in names(count)[1:] if me in found]
        assert all(own == [right] for own in honest), f"{tag!r} was believed"
        assert len(honest) < count - 1


def test_numbers_out_of_range_are_never_shared() -> None:
    values = {n: np.array([1.0, 2.0]) for n in names(3)} | {"party2": np.array([1.0, 4.7e30])}
    outcome = together(adds, values)
    assert not outcome.results and not [e for e in outcome.ledger if e.sender == "party2"]
    text = str(outcome.lost["party2"])
    assert "values under 'add/up' must be numbers from −2^64 to 2^64" in text
    assert (
        "4.7e+30" not in text + str(outcome.lost["party0"])
        and outcome.lost["party0"].party == "party2"
    )
    cause = outcome.lost["party2"].__cause__
    assert cause is not None and cause.__notes__ == ["the first of them is 4.7e+30 at [1]"]


def test_too_few_parties() -> None:
    with pytest.raises(
        FederationError, match="at least 3 parties, got 2: of two, each can compute"
    ):
        Secret().members(["north", "south"])
    with pytest.raises(FederationError, match="at least 3 parties, got 1"):
        Secret().at("north", ["north"])
    with pytest.raises(FederationError, match="west is not one of the members north, east, south"):
        Secret().at("west", ["north", "east", "south"])


def test_choices() -> None:
    with pytest.raises(
        FederationError, match="threshold must be one of 'majority', 'all', got 'half'"
    ):
        Secret("half")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="need 129 bits"):
        Secret(fraction=60, magnitude=65).at("a", ("a", "b", "c"))
    assert Secret("majority").at("a", tuple("abcde")).degree == 2
    assert Secret("all").at("a", tuple("abcde")).degree == 4
    assert "key" not in repr(Secret(key=bytes(32)))
    coarse = Secret(fraction=10, magnitude=100, key=bytes(32))
    found = answers(adds, {n: np.array([1e30, 0.3]) for n in names(3)}, secret=coarse)
    np.testing.assert_allclose(found["party0"], [3e30, 0.9], rtol=1e-15, atol=3 * 2.0**-11)

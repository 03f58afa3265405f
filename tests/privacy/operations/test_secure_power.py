"""Powers of secret exponents: error, range, where they land, rounds, nothing opened unmasked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.operations.exponents import FRACTION
from fedcircuits.privacy.operations.secure_power import Power, powers_of
from fedcircuits.privacy.operations.truncation import MASKED
from fedcircuits.privacy.sharing.group import SHARE, Group
from fedcircuits.privacy.sharing.sharing import opened, summed
from tests.privacy.parties import answers, names, together


def powers(
    me: str, members: tuple[str, ...], key: bytes, own: Any, low: int = 16, landing: Ring = FIELD
) -> Flow[Any]:
    """2 to the sum of the parties' numbers."""
    rule = Power(len(members), low, landing=landing)
    group = Group.of(me, members, key, "power")
    exponents = yield from summed(group, "give/l", FixedPoint(FRACTION, 20).encode(np.array(own)))
    found = yield from powers_of(group, "power", exponents, rule)
    told = yield from opened(group.over(landing), "end/powers", found, "powers")
    return FixedPoint(rule.fraction, 20, landing).decode(told)


@pytest.mark.parametrize(
    ("count", "low", "landing"), [(3, 16, FIELD), (4, 5, FIELD), (5, 16, Ring(521)), (8, 30, FIELD)]
)
def test_powers(count: int, low: int, landing: Ring) -> None:
    """Over the whole range, both ends included."""
    rng = np.random.default_rng(count)
    exponents = -rng.uniform(0, low, (3, 10))
    exponents[0, :3] = 0, -low, -1
    parts = rng.normal(size=(count, *exponents.shape))
    parts[-1] = exponents - parts[:-1].sum(0)
    given = dict(zip(names(count), parts, strict=True))
    found = answers(powers, given, low=low, landing=landing)
    most = (count - 1) // 2
    for own in found.values():
        rounding = count * np.exp2(exponents) * 2.0**-FRACTION
        assert (np.abs(own - np.exp2(exponents)) < (-(-most // 2) + 2) * 2.0**-40 + rounding).all()


@pytest.mark.parametrize(("count", "made"), [(3, 3), (5, 4)])
def test_rounds(count: int, made: int) -> None:
    """Two, after 2 + ⌈log2(t + 1)⌉ for masks, and only masked numbers are opened."""
    outcome = together(powers, dict.fromkeys(names(count), (-0.5, -1.0)))
    assert not outcome.lost
    tags = {e.tag for e in outcome.ledger if e.phase == "power"}
    assert {"power/exponent", "power/result"} < tags
    assert len(tags) == 2 + made
    assert {e.reveals for e in outcome.ledger if e.phase == "power"} == {SHARE, MASKED}

"""Powers and logarithms of secrets: error, range, rounds, and nothing opened unmasked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.errors import ParameterError
from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from fedcircuits.privacy.operations.powers import (
    FRACTION,
    Logarithm,
    Power,
    contributed,
    logs_of,
    mantissas,
    mask_bits,
    multiplied,
    power,
    power_masks,
    powers_of,
)
from fedcircuits.privacy.operations.products import MASKED
from fedcircuits.privacy.sharing.group import SHARE, Group, opened, summed
from fedcircuits.testing import check_protocol
from tests.privacy.parties import answers, names, programs, together

# ---------------------------------------------------------------------- masks

RING = Ring(1031)


def raises(me: str, members: tuple[str, ...], key: bytes, own: Any) -> Flow[Any]:
    """2^l of public exponents in units of 2^−36, and what was opened for them."""
    group = Group.of(me, members, key, "powers")
    covers, powers = yield from contributed(
        group, "make/masks", power_masks(group, RING, (len(own),))
    )
    inverses = yield from multiplied(group.over(RING), "make/powers", powers)
    hidden = FIELD.add(FIELD.elements(own), FIELD.sum(covers))
    seen = yield from opened(group, "open/exponents", hidden, "masked", 2 * group.threshold)
    value = power(RING, seen, inverses)
    found = yield from opened(group.over(RING), "open/powers", value, "powers")
    return RING.integers(found), FIELD.integers(seen)


@pytest.mark.parametrize("count", range(3, 13))
def test_powers_under_masks(count: int) -> None:
    """From the least exponent, t + 1, to one beside it and to far larger ones."""
    most = (count - 1) // 2
    exponents = [most + 1.0, most + 1 + 2.0**-36, most + 2.5, 20.25, 300.7]
    units = [round(e * 2**FRACTION) for e in exponents]
    for found, _ in answers(raises, dict.fromkeys(names(count), units)).values():
        for value, unit in zip(found, units, strict=True):
            scaled = int(value) >> (mantissas(most) - 60)
            expected = 2.0 ** (unit / 2**FRACTION)
            assert scaled / 2.0**60 == pytest.approx(expected, rel=1e-14)


def test_opened_exponents_are_as_for_any_other() -> None:
    """Every bit but the first few is a fair coin, whatever the exponent is (4 deviations)."""
    units = [5 << FRACTION] * 2000
    found = answers(raises, dict.fromkeys(names(3), units))["party0"][1]
    group = Group.of("party0", names(3), bytes(32))
    bits = np.array([[int(v) >> k & 1 for k in range(mask_bits(group) - 1)] for v in found])
    deviations = (bits.mean(0) - 0.5) * 2 * np.sqrt(len(units))
    assert np.abs(deviations).max() < 4.5 and 0.7 < np.square(deviations).mean() < 1.3


# ---------------------------------------------------------------------- powers


def sums_raised(
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
def test_powers_of_secrets(count: int, low: int, landing: Ring) -> None:
    """Over the whole range, both ends included."""
    rng = np.random.default_rng(count)
    exponents = -rng.uniform(0, low, (3, 10))
    exponents[0, :3] = 0, -low, -1
    parts = rng.normal(size=(count, *exponents.shape))
    parts[-1] = exponents - parts[:-1].sum(0)
    given = dict(zip(names(count), parts, strict=True))
    found = answers(sums_raised, given, low=low, landing=landing)
    most = (count - 1) // 2
    for own in found.values():
        rounding = count * np.exp2(exponents) * 2.0**-FRACTION
        assert (np.abs(own - np.exp2(exponents)) < (-(-most // 2) + 2) * 2.0**-40 + rounding).all()


@pytest.mark.parametrize(("count", "made"), [(3, 3), (5, 4)])
def test_rounds_of_powers(count: int, made: int) -> None:
    """Two, after 2 + ⌈log2(t + 1)⌉ for masks, and only masked numbers are opened."""
    outcome = together(sums_raised, dict.fromkeys(names(count), (-0.5, -1.0)))
    assert not outcome.lost
    tags = {e.tag for e in outcome.ledger if e.phase == "power"}
    assert {"power/exponent", "power/result"} < tags
    assert len(tags) == 2 + made
    assert {e.reveals for e in outcome.ledger if e.phase == "power"} == {SHARE, MASKED}


# ---------------------------------------------------------------------- logarithms


def mean_logs(
    me: str, members: tuple[str, ...], key: bytes, own: Any, least: int = 10
) -> Flow[Any]:
    """log2 of the mean of the parties' numbers."""
    logarithm = Logarithm(len(members), least)
    group = Group.of(me, members, key, "log").over(logarithm.ring)
    point = FixedPoint(logarithm.precision, 1, logarithm.ring)
    p = yield from summed(group, "give/p", point.encode(np.asarray(own) / len(members)))
    found = yield from logs_of(group, "log", p, logarithm)
    told = yield from opened(group.over(FIELD), "end/logs", found, "logarithms")
    return FixedPoint(FRACTION, 20).decode(told)


@pytest.mark.parametrize(("count", "least"), [(3, 10), (4, 10), (5, 16), (8, 10)])
def test_logarithms(count: int, least: int) -> None:
    """Of numbers over the whole range, both ends and just below 1."""
    rng = np.random.default_rng(count)
    p = np.exp2(-rng.uniform(0, least, (3, 20)))
    p[0, :5] = 1, 2.0**-least, 1 - 2.0**-30, 0.5, 0.75
    found = answers(mean_logs, dict.fromkeys(names(count), p), least=least)
    for own in found.values():
        assert np.abs(own - np.log2(p)).max() < Logarithm(count, least).error < 1e-10


def test_logarithms_of_means() -> None:
    """Every party has other numbers; the logarithm is that of their mean."""
    rng = np.random.default_rng(0)
    given = {me: rng.uniform(2.0**-10, 1, 30) for me in names(3)}
    found = answers(mean_logs, given)
    mean = np.mean(list(given.values()), axis=0)
    assert np.abs(found["party0"] - np.log2(mean)).max() < Logarithm(3).error


@pytest.mark.parametrize(("count", "made"), [(3, 3), (5, 4), (8, 4)])
def test_rounds_of_logarithms(count: int, made: int) -> None:
    """26 after masks, which take 2 + ⌈log2(t + 1)⌉; only masked numbers are opened."""
    outcome = together(mean_logs, dict.fromkeys(names(count), (0.5,)))
    assert not outcome.lost
    tags = {e.tag for e in outcome.ledger if e.phase == "log"}
    ahead = {tag for tag in tags if tag.startswith("log/masks")}
    assert len(tags - ahead) == Logarithm(count).rounds == 26
    assert len(ahead) == made
    assert {e.reveals for e in outcome.ledger if e.phase == "log"} == {SHARE, MASKED}
    rows = [e for e in outcome.ledger if e.tag in tags - ahead]
    assert len(rows) == 26 * count * (count - 1)


def test_numbers_out_of_range_are_refused() -> None:
    logarithm = Logarithm(3)
    logarithm.check(np.array([2.0**-10, 1.0]))
    for wrong in (2.0**-10.1, 0.0, 1.001, np.nan):
        with pytest.raises(ParameterError, match=r"from 2\^−10 to 1, but 1 of 2 are not"):
            logarithm.check(np.array([0.5, wrong]))


def test_laws_of_protocols() -> None:
    check_protocol(programs(mean_logs, dict.fromkeys(names(3), (0.3, 0.9))), run=memory.run)

"""Masks of exponents: 2^(l + r)·[2^(−r)] is 2^l for any number of parties, and l + r hides l."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcircuits.federation.flow import Flow
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.operations.exponents import FRACTION
from fedcircuits.privacy.operations.masked_powers import (
    contributed,
    mantissas,
    mask_bits,
    multiplied,
    power,
    power_masks,
)
from fedcircuits.privacy.sharing.group import Group
from fedcircuits.privacy.sharing.sharing import opened
from tests.privacy.parties import answers, names

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
def test_powers(count: int) -> None:
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

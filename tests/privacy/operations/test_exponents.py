"""Powers of two with real exponents: exact whole parts, mantissas to 61 bits."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.limbs import from_integers
from fedcircuits.privacy.operations.powers import (
    FRACTION,
    MANTISSA,
    inverse_powers,
    weighted_powers,
)
from fedcircuits.privacy.sharing.randomness import Stream
from tests.privacy.parties import key, numbers

LOST = 61  # relative bits


@pytest.mark.parametrize("bits", [257, 607, 2203])
def test_a_mask_in_the_exponent_is_taken_off(bits: int) -> None:
    """2^(l + r)·2^(−r) = 2^l for masks r of 122 bits and l from 1 on, up to 61 bits."""
    ring, rows, units = Ring(bits), 40, 3
    stream = Stream(key("exponents"), str(bits))
    secret = stream.bits((rows, units), FRACTION + 5)
    secret += np.uint64(1 << FRACTION)
    wide = np.concatenate([secret, np.zeros_like(secret)], axis=-1)
    mask = stream.bits((rows, units), 122)
    mask[0, 0], mask[0, 1] = 0, np.uint64(1 << FRACTION)
    found = weighted_powers(ring, FIELD.add(wide, mask), inverse_powers(ring, mask))
    for value, own in zip(numbers(ring.integers(found)), secret[..., 0], strict=True):
        exact = sum(Decimal(2) ** (Decimal(int(e)) / (1 << FRACTION)) for e in own)
        assert (
            abs(Decimal(value) / Decimal(2) ** (2 * MANTISSA) / exact - 1) < Decimal(2) ** -LOST * 3
        )


def test_whole_exponents_are_rotations() -> None:
    ring = Ring(67)
    whole = [0, 1, 66, 67, 68, 5 * 67 + 3]
    exponents = from_integers([w << FRACTION for w in whole], 2)
    assert numbers(ring.integers(inverse_powers(ring, exponents))) == [
        pow(2, (MANTISSA - w) % 67, ring.modulus) for w in whole
    ]
    sevens = ring.elements([[7]] * len(whole))
    found = weighted_powers(ring, exponents[:, None], sevens)
    assert numbers(ring.integers(found)) == [
        7 * pow(2, (MANTISSA + w) % 67, ring.modulus) % ring.modulus for w in whole
    ]

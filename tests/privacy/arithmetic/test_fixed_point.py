"""Fixed-point numbers: the stated error, the edges of the range, and what an error tells whom."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import ParameterError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.fixed_point import FixedPoint
from tests.privacy.parties import numbers


@given(st.floats(-(2.0**40), 2.0**40), st.sampled_from([0, 1, 40, 60, 80]))
def test_encoding_rounds_to_the_nearest_step(value: float, fraction: int) -> None:
    for ring in (FIELD, Ring(191)):
        point = FixedPoint(fraction, 40, ring)
        [whole] = numbers(ring.signed(point.encode(np.array([value]))))
        assert abs(Fraction(whole, 2**fraction) - Fraction(value)) <= Fraction(
            1, 2 ** (fraction + 1)
        )
        [back] = point.decode(ring.elements([whole]))
        exact = float(Fraction(whole, 2**fraction))
        assert abs(back - exact) <= math.ulp(exact)


@pytest.mark.parametrize("magnitude", [0, 20, 64, 85])
def test_the_edges_of_the_range(magnitude: int) -> None:
    point = FixedPoint(40, magnitude)
    edge = 2.0**magnitude
    inside = np.array([edge, -edge, np.nextafter(edge, 0), 0.0, -0.0, 2.0**-40])
    expected = np.ldexp(np.rint(np.ldexp(inside, 40)), -40)
    np.testing.assert_array_equal(point.decode(point.encode(inside)), expected)
    for beyond in (np.nextafter(edge, np.inf), -np.nextafter(edge, np.inf), np.inf, np.nan):
        with pytest.raises(ParameterError, match=rf"from −2\^{magnitude} to 2\^{magnitude}"):
            point.encode(np.array([0.0, beyond]))


def test_an_error_keeps_the_number_to_itself() -> None:
    """Its text is told to other parties, its notes are not."""
    with pytest.raises(ParameterError) as error:
        FixedPoint(40, 10).encode(np.array([[1.0, 2.0], [4711.0, np.nan]]), "rows of 'x'")
    text = str(error.value)
    assert text.startswith("rows of 'x' must be numbers from −2^10 to 2^10") and "4711" not in text
    assert "but 2 of 4 are not" in text and "scale or clip them" in text
    assert error.value.__notes__ == ["the first of them is 4711.0 at [1, 0]"]


def test_too_many_bits() -> None:
    with pytest.raises(ParameterError, match=r"need 142 bits, a ring of .* has 127"):
        FixedPoint(60, 80)

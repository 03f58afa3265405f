"""Fixed-point numbers: x is represented by the whole number nearest to x·2^fraction.

Encoding is off by at most 2^−(fraction + 1). A number beyond ±2^magnitude, one that is infinite and
one that is missing are refused before anything is shared: on shares nobody could see it.

The text of an error inside a flow reaches the other parties, so it contains only the range and what
to do. The number itself is a note of the error, which is shown locally and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ParameterError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.arithmetic.limbs import Elements


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Numbers up to ±2^magnitude in steps of 2^−fraction.

    >>> point = FixedPoint(fraction=40, magnitude=20)
    >>> point.decode(point.encode(np.array([1.5, -3.25])))
    array([ 1.5 , -3.25])
    """

    fraction: int = 40
    magnitude: int = 40
    ring: Ring = FIELD

    def __post_init__(self) -> None:
        need = self.fraction + self.magnitude + 2
        if self.fraction < 0 or need > self.ring.bits:
            raise ParameterError(
                f"numbers up to 2^{self.magnitude} in steps of 2^−{self.fraction} need {need} bits,"
                f" a ring of 2^{self.ring.bits} − 1 has {self.ring.bits}: use fewer bits for one "
                "of them, or a larger ring"
            )

    def encode(self, values: Array, what: str = "values") -> Elements:
        """(...) as (..., limbs), or ParameterError."""
        plain = np.asarray(values, dtype=np.float64)
        self._check(plain, what)
        whole = np.rint(np.abs(plain) * 2.0**self.fraction)
        encoded = self.ring.zeros(plain.shape)
        for k in range(self.ring.limbs):
            above = np.floor(whole * 2.0**-64)
            encoded[..., k] = (whole - above * 2.0**64).astype(np.uint64)
            whole = above
        negative = plain < 0
        encoded[negative] = self.ring.negate(encoded[negative])
        return encoded

    def decode(self, elements: Elements) -> Array:
        """The nearest float64, or one beside it."""
        negative = self.ring.is_negative(elements)
        size = np.where(negative[..., None], self.ring.negate(elements), elements)
        decoded = np.zeros(elements.shape[:-1])
        for k in reversed(range(self.ring.limbs)):
            decoded = np.ldexp(decoded, 64) + size[..., k].astype(np.float64)
        return np.asarray(np.where(negative, -1.0, 1.0) * np.ldexp(decoded, -self.fraction))

    def _check(self, plain: Array, what: str) -> None:
        outside = ~(np.abs(plain) <= 2.0**self.magnitude)  # NaN too
        if not outside.any():
            return
        error = ParameterError(
            f"{what} must be numbers from −2^{self.magnitude} to 2^{self.magnitude} to be shared, "
            f"but {int(outside.sum()):,} of {plain.size:,} are not: scale or clip them, fill in "
            f"missing values, or use fewer than {self.fraction} fractional bits and a larger "
            "magnitude"
        )
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), plain.shape))
        error.add_note(f"the first of them is {float(plain[at])!r} at {list(at)}")
        raise error

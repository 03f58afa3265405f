"""Exact draws of the discrete Gaussian: P(k) ∝ exp(−k² / 2σ²) for whole numbers k.

After Canonne, Kamath and Steinke (2020), algorithms 1 to 3: whole numbers only, uniform draws below
whole numbers, and rejection. No step rounds, so that the last bits of noise in floating point say
nothing of what it hides (Mironov 2012). σ² is a whole number.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from fedcircuits.privacy.sharing.randomness import Stream

PIECE = 1 << 16  # bits that are drawn at once


class UniformDraws:
    """Whole numbers below others, from the bits of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._bits, self._left = stream, 0, 0

    def below(self, end: int) -> int:
        size = (end - 1).bit_length()
        while True:
            if self._left < size:
                drawn = self._stream.bits((PIECE // 64,), 64)
                self._bits, self._left = int.from_bytes(drawn.tobytes(), "little"), PIECE
                continue
            self._left -= size
            number = self._bits >> self._left & ((1 << size) - 1)
            if number < end:
                return number

    def happens(self, part: int, whole: int) -> bool:
        """With the probability part / whole."""
        return self.below(whole) < part

    def decays(self, part: int, whole: int) -> bool:
        """With the probability exp(−part / whole)."""
        while part > whole:
            if not self.decays(1, 1):
                return False
            part -= whole
        k = 1
        while self.happens(part, whole * k):
            k += 1
        return k % 2 == 1


def discrete_laplace(draws: UniformDraws, scale: int) -> int:
    """P(k) ∝ exp(−|k| / scale)."""
    while True:
        rest = draws.below(scale)
        if not draws.decays(rest, scale):
            continue
        times = 0
        while draws.decays(1, 1):
            times += 1
        size, negative = rest + scale * times, draws.happens(1, 2)
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(draws: UniformDraws, variance: int) -> int:
    """P(k) ∝ exp(−k² / 2 variance); the variance is a whole number from 1."""
    scale = isqrt(variance) + 1
    while True:
        k = discrete_laplace(draws, scale)
        off = (abs(k) * scale - variance) ** 2
        if draws.decays(off, 2 * variance * scale**2):
            return k


def draws_of(
    stream: Stream, variance: int, shape: tuple[int, ...], step: float
) -> npt.NDArray[np.float64]:
    """An array of draws of this variance, times ``step``, which is a power of two."""
    uniform, count = UniformDraws(stream), int(np.prod(shape))
    numbers = [discrete_gaussian(uniform, variance) for _ in range(count)]
    return np.array([n * step for n in numbers], np.float64).reshape(shape)

"""Where secrets live: the prime field of 2^127 − 1 and the rings Z/(2^q − 1), as arrays of limbs.

q is any odd prime. Every prime factor of 2^q − 1 is 1 modulo 2q, so numbers up to 2q and their
differences have inverses: Shamir's sharing works in the ring as in a field for up to 2q points.
Negative numbers are the upper half: −x is 2^q − 1 − x, all bits of x turned.

Kernels are compiled when they are first used and then read from the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ParameterError
from fedcircuits.privacy.arithmetic import prime_kernels, ring_kernels
from fedcircuits.privacy.arithmetic.limbs import (
    FULL,
    NONE,
    Elements,
    from_integers,
    plain,
    to_integers,
)

Bytes = npt.NDArray[np.uint8]
SEARCHED = 1 << 22  # prime factors of a modulus below this are known
LIGHT = 1 << 63  # weights that add up to less are applied in one pass


@dataclass(frozen=True, slots=True)
class Ring:
    """Numbers modulo 2^bits − 1; the last axis of an array of elements are limbs.

    >>> ring = Ring(127)
    >>> product = ring.multiply(ring.elements([3, -5]), ring.elements([7]))
    >>> ring.signed(product).tolist()
    [21, -35]
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits < 3 or not is_prime(self.bits):
            raise ParameterError(
                f"the ring 2^{self.bits} − 1 cannot be used for shares: the exponent must be an "
                f"odd prime, such as {next_prime(max(self.bits, 3))}"
            )

    @property
    def modulus(self) -> int:
        return (1 << self.bits) - 1

    @property
    def limbs(self) -> int:
        return self.bits // 64 + 1

    @property
    def bytes(self) -> int:
        """Size of an element on the wire."""
        return -(-self.bits // 8)

    @property
    def top(self) -> np.uint64:
        """The last limb of the modulus."""
        return np.uint64((1 << self.bits % 64) - 1)

    # ------------------------------------------------------------------ in and out

    def elements(self, values: npt.ArrayLike) -> Elements:
        """Whole numbers of any size and sign."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
            return self._elements_of_words(values)
        whole = np.asarray(values, dtype=object)
        inside = np.array([int(v) % self.modulus for v in whole.ravel()], dtype=object)
        return from_integers(inside.reshape(whole.shape), self.limbs)

    def _elements_of_words(self, values: npt.NDArray[np.integer]) -> Elements:
        negative = values < 0
        words = values.astype(np.uint64)  # two's complement
        size = self.reduced(np.where(negative, ~words + np.uint64(1), words)[..., None])
        return np.where(negative[..., None], self.negate(size), size)

    def constant(self, value: int) -> Elements:
        """One whole number, made once: not to be written to."""
        return _constant(value % self.modulus, self.limbs)

    def zeros(self, shape: tuple[int, ...]) -> Elements:
        return np.zeros((*shape, self.limbs), np.uint64)

    def integers(self, elements: Elements) -> npt.NDArray[np.object_]:
        """Python integers from 0 to modulus − 1."""
        return to_integers(elements)

    def signed(self, elements: Elements) -> npt.NDArray[np.object_]:
        """Python integers from −modulus / 2 to modulus / 2."""
        integers = to_integers(elements)
        return np.where(integers > self.modulus // 2, integers - self.modulus, integers)

    def is_negative(self, elements: Elements) -> npt.NDArray[np.bool_]:
        """Whether elements represent negative numbers."""
        sign = np.uint64((self.bits - 1) % 64)  # odd bits: the sign is in the last limb
        return (elements[..., -1] >> sign).astype(bool)

    def reduced(self, words: Elements) -> Elements:
        """Numbers of any number of words, not negative."""
        flat = plain(words).reshape(-1, words.shape[-1])
        out = np.empty((len(flat), self.limbs), np.uint64)
        ring_kernels.reduce(flat, self.bits, out)
        return out.reshape(*words.shape[:-1], self.limbs)

    def packed(self, elements: Elements) -> Bytes:
        """The bytes that cross, (elements · bytes,); not copied if they are those of the limbs."""
        data = np.ascontiguousarray(elements).astype("<u8", copy=False).view(np.uint8)
        return data.reshape(-1, 8 * self.limbs)[:, : self.bytes].reshape(-1)

    def unpacked(
        self, data: Bytes, shape: tuple[int, ...], out: Elements | None = None
    ) -> Elements:
        """Elements from bytes that cross, into ``out`` if given; ValueError if they are none."""
        count = prod(shape)
        if data.dtype != np.uint8 or data.shape != (count * self.bytes,):
            raise ValueError(f"expected {count * self.bytes} bytes, got {data.dtype} {data.shape}")
        elements = self.zeros(shape) if out is None else out
        if self.bytes == 8 * self.limbs:
            elements.reshape(-1).view(np.uint8)[:] = data
        else:
            full = elements.view(np.uint8).reshape(count, 8 * self.limbs)
            full[:, : self.bytes] = data.reshape(count, self.bytes)
            full[:, self.bytes :] = 0
        if not self._inside(elements.reshape(count, self.limbs)):
            raise ValueError(f"a number is not below 2^{self.bits} − 1")
        return elements

    def cropped(self, flat: Elements) -> bool:
        """Random words (n, limbs) without the bits that are too many; whether none is all ones."""
        if self.bits == 127:
            return bool(prime_kernels.crop(flat))
        flat[:, -1] >>= np.uint64(64 * self.limbs - self.bits)
        return self._inside(flat)

    def _inside(self, flat: Elements) -> bool:
        if self.bits == 127:
            return bool(prime_kernels.inside(flat))
        return bool(ring_kernels.inside(flat, self.bits))

    # ------------------------------------------------------------------ arithmetic

    def add(self, a: Elements, b: Elements) -> Elements:
        x, y, out = self._aligned(a, b)
        if self.bits == 127:
            prime_kernels.add(x, y, out.reshape(-1, 2))
        else:
            ring_kernels.add(x, y, self.bits, False, out.reshape(-1, self.limbs))
        return out

    def negate(self, a: Elements) -> Elements:
        return self.subtract(np.zeros(self.limbs, np.uint64), a)

    def subtract(self, a: Elements, b: Elements) -> Elements:
        x, y, out = self._aligned(a, b)
        if self.bits == 127:
            prime_kernels.subtract(x, y, out.reshape(-1, 2))
        else:
            ring_kernels.add(x, y, self.bits, True, out.reshape(-1, self.limbs))
        return out

    def multiply(self, a: Elements, b: Elements) -> Elements:
        x, y, out = self._aligned(a, b)
        if self.bits == 127:
            prime_kernels.multiply(x, y, out.reshape(-1, 2))
        else:
            ring_kernels.multiply(x, y, self.bits, out.reshape(-1, self.limbs))
        return out

    def affine(self, a: Elements, by: int, start: int) -> Elements:
        """start + by·a for whole numbers of any sign."""
        first = self.constant(start)
        if self.bits != 127 or abs(by) >= LIGHT >> 1:
            return self.add(self.multiply(a, self.constant(by)), first)
        out, flip = np.empty(a.shape, np.uint64), FULL if by < 0 else NONE
        flat = plain(a).reshape(-1, 2)
        prime_kernels.affine(flat, flip, np.uint64(abs(by)), first, out.reshape(-1, 2))
        return out

    def inner(self, a: Elements, b: Elements) -> Elements:
        """Σ_k a[r, k] b[j, k]: (rows, units, limbs) from (rows, terms, …) and (units, terms, …)."""
        x, y = plain(a), plain(b)
        _require_room(
            x.shape[1:] == y.shape[1:] and x.shape[-1] == self.limbs, "terms of a product"
        )
        out = self.zeros((len(x), len(y)))
        if self.bits == 127:
            prime_kernels.inner(x, y, out)
        else:
            ring_kernels.inner(x, y, self.bits, out)
        return out

    def mix(self, weights: Sequence[Sequence[int]], rows: Elements) -> Elements:
        """Σ_k weights[p][k] rows[k] for whole numbers as weights: (results, ..., limbs)."""
        _require_room(all(len(row) == len(rows) for row in weights), "weights of a sum")
        flat = plain(rows).reshape(len(rows), -1, self.limbs)
        signed = _weights(tuple(map(tuple, weights)))
        if signed is None:
            mixed = self._mix_heavy(weights, flat)
        else:
            mixed = np.empty((len(weights), *flat.shape[1:]), np.uint64)
            if self.bits == 127:
                prime_kernels.mix(*signed, flat, mixed)
            else:
                ring_kernels.mix(*signed, flat, self.bits, mixed)
        return mixed.reshape(len(weights), *rows.shape[1:])

    def values(self, first: Elements, others: Elements, points: int) -> Elements:
        """first + Σ_k others[k] x^(k + 1) at x = 1 to ``points``: (points, ..., limbs)."""
        degree = len(others)
        if self.bits != 127:
            return self.mix(_powers(points, degree), np.concatenate([first[None], others]))
        out = np.empty((points, *first.shape), np.uint64)
        flat = plain(first).reshape(-1, 2), plain(others).reshape(degree, first.size // 2, 2)
        prime_kernels.evaluate(*flat, out.reshape(points, -1, 2))
        return out

    def _mix_heavy(self, weights: Sequence[Sequence[int]], rows: Elements) -> Elements:
        mixed = np.zeros((len(weights), *rows.shape[1:]), np.uint64)
        for p, factors in enumerate(weights):
            for weight, row in zip(factors, rows, strict=True):
                mixed[p] = self.add(mixed[p], self.multiply(row, self.elements(weight)))
        return mixed

    def sum(self, a: Elements, start: int = 0) -> Elements:
        """Over the first axis."""
        if self.bits != 127:
            total: Elements = self.mix([[1] * len(a)], a)[0]
            return self.add(total, self.constant(start)) if start else total
        out = np.empty(a.shape[1:], np.uint64)
        flat = plain(a).reshape(len(a), out.size // 2, 2)
        prime_kernels.total(flat, self.constant(start), out.reshape(-1, 2))
        return out

    def rotate(self, a: Elements, powers: npt.ArrayLike) -> Elements:
        """a·2^powers, which may be negative; powers have the shape of a without limbs, or none."""
        turns = np.broadcast_to(np.asarray(powers, np.int64) % self.bits, a.shape[:-1]).flatten()
        flat = plain(a).reshape(-1, self.limbs)
        out = np.empty_like(flat)
        ring_kernels.rotate(flat, turns, self.bits, out)
        return out.reshape(a.shape)

    def shifted(self, words: Elements, bits: int, size: int) -> Elements:
        """⌊words / 2^bits⌋ of whole numbers of ``size`` bits, (..., words) as (..., limbs)."""
        fits = size - bits < self.bits  # and is reduced
        if fits and bits == 0 and words.shape[-1] == self.limbs:
            return words
        limbs = self.limbs if fits else -(-size // 64) - bits // 64
        words_shifted = np.empty((*words.shape[:-1], limbs), np.uint64)
        flat = plain(words).reshape(-1, words.shape[-1])
        if limbs == 2 and words.shape[-1] == 2:
            prime_kernels.shift(flat, bits, words_shifted.reshape(-1, 2))
        else:
            ring_kernels.shift(flat, bits, words_shifted.reshape(-1, limbs))
        return words_shifted if fits else self.reduced(words_shifted)

    def cut(
        self, seen: Elements, size: int, shift: int, minus: int, rest: Elements
    ) -> tuple[Elements, bool]:
        """⌊seen / 2^shift⌋ − minus − rest of numbers seen; whether these are below 2^size."""
        centre = self.constant(minus)
        if self.bits == 127 and seen.shape[-1] == 2:
            _require_room(rest.shape == seen.shape, "rests of numbers")
            out = np.empty_like(seen)
            fits = prime_kernels.cut(seen, rest, shift, size, centre, out)
            return out, bool(fits)
        fits = ring_kernels.below(seen, size)
        public = self.shifted(seen, shift, size)
        return self.subtract(self.subtract(public, centre), rest), bool(fits)

    def _aligned(self, a: Elements, b: Elements) -> tuple[Elements, Elements, Elements]:
        """Both as rows of limbs, fewer if they are to be gone through again; room for results."""
        shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
        both = []
        for v in (a, b):
            again = v.shape == shape[len(shape) - v.ndim :] or v.size == self.limbs
            whole = v if again else np.broadcast_to(v, shape)
            both.append(plain(whole).reshape(-1, self.limbs))
        return both[0], both[1], np.empty(shape, np.uint64)


def _require_room(fits: bool, what: str) -> None:
    """Compiled loops read as far as one array says, and must not read beyond another."""
    if not fits:
        raise ValueError(f"{what}: arrays of different sizes")


@lru_cache(1024)
def _constant(value: int, limbs: int) -> Elements:
    return from_integers(value, limbs)


@cache
def _powers(points: int, degree: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(x**k for k in range(degree + 1)) for x in range(1, points + 1))


@cache
def _weights(rows: tuple[tuple[int, ...], ...]) -> tuple[Elements, Elements] | None:
    """Sizes, and all bits where they are negative; None if they are too large for one pass."""
    if any(sum(map(abs, row)) >= LIGHT for row in rows):
        return None
    size = np.array([[abs(w) for w in row] for row in rows], np.uint64)
    return size, np.array([[FULL if w < 0 else 0 for w in row] for row in rows], np.uint64)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def next_prime(n: int) -> int:
    """The least prime that is not below n."""
    while not is_prime(n):
        n += 1
    return n


@cache
def least_factor(bits: int) -> int:
    """No prime factor of 2^bits − 1 is smaller, for a prime exponent; at most ``SEARCHED``.

    Of 2^31 − 1 and 2^127 − 1, which are primes, themselves.
    """
    if bits in (31, 127):
        return (1 << bits) - 1
    most = min(SEARCHED, 1 << bits)
    for factor in range(2 * bits + 1, most, 2 * bits):
        if factor % 8 in (1, 7) and pow(2, bits, factor) == 1:
            return factor
    return most


@cache
def next_ring(bits: int) -> Ring:
    """The smallest ring of at least this many bits whose modulus has no small prime factor: a
    random element is a unit except with probability about bits·2^−22, so few trials check
    products."""
    bits = next_prime(bits)
    while bits != 127 and least_factor(bits) < SEARCHED:
        bits = next_prime(bits + 1)
    return Ring(bits)


FIELD = Ring(127)

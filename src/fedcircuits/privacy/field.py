"""Where secrets live: the prime field of 2^127 − 1 and the rings Z/(2^q − 1), as arrays of limbs.

q is any odd prime. Every prime factor of 2^q − 1 is 1 modulo 2q, so numbers up to 2q and their
differences have inverses: Shamir's sharing works in the ring as in a field for up to 2q points.
Negative numbers are the upper half: −x is 2^q − 1 − x, all bits of x turned.

Kernels are compiled when they are first used and then read from the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import ParameterError
from fedcircuits.privacy import prime_kernels, ring_kernels
from fedcircuits.privacy.limbs import FULL, Elements, from_integers, plain, to_integers

Bytes = npt.NDArray[np.uint8]
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
                f"no ring of 2^{self.bits} − 1 for shares: the exponent must be an odd prime, "
                f"such as {next_prime(max(self.bits, 3))}"
            )

    @property
    def modulus(self) -> int:
        return (1 << self.bits) - 1

    @property
    def limbs(self) -> int:
        return self.bits // 64 + 1

    @property
    def bytes(self) -> int:
        """Of an element on the wire."""
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

    def zeros(self, shape: tuple[int, ...]) -> Elements:
        return np.zeros((*shape, self.limbs), np.uint64)

    def integers(self, elements: Elements) -> npt.NDArray[np.object_]:
        """From 0 to modulus − 1."""
        return to_integers(elements)

    def signed(self, elements: Elements) -> npt.NDArray[np.object_]:
        """From −modulus / 2 to modulus / 2."""
        found = to_integers(elements)
        return np.where(found > self.modulus // 2, found - self.modulus, found)

    def is_negative(self, elements: Elements) -> npt.NDArray[np.bool_]:
        """Whether elements stand for numbers below 0."""
        sign = np.uint64((self.bits - 1) % 64)  # odd bits: the sign is in the last limb
        return (elements[..., -1] >> sign).astype(bool)

    def reduced(self, words: Elements) -> Elements:
        """Numbers of any number of words, not negative."""
        flat = plain(words).reshape(-1, words.shape[-1])
        out = np.empty((len(flat), self.limbs), np.uint64)
        ring_kernels.reduce(flat, self.bits, out)
        return out.reshape(*words.shape[:-1], self.limbs)

    def packed(self, elements: Elements) -> Bytes:
        """The bytes that cross, (elements · bytes,)."""
        data = np.ascontiguousarray(elements).astype("<u8", copy=False).view(np.uint8)
        return data.reshape(-1, 8 * self.limbs)[:, : self.bytes].reshape(-1)

    def unpacked(self, data: Bytes, shape: tuple[int, ...]) -> Elements:
        """Elements from bytes that cross; ValueError where they are none."""
        count = int(np.prod(shape, dtype=np.int64))
        if data.dtype != np.uint8 or data.shape != (count * self.bytes,):
            raise ValueError(f"expected {count * self.bytes} bytes, got {data.dtype} {data.shape}")
        full = np.zeros((count, 8 * self.limbs), np.uint8)
        full[:, : self.bytes] = data.reshape(count, self.bytes)
        found = full.view("<u8").astype(np.uint64, copy=False)
        above = found[:, -1] > self.top
        if above.any() or ((found[:, -1] == self.top) & (found[:, :-1] == FULL).all(1)).any():
            raise ValueError(f"a number that is not below 2^{self.bits} − 1")
        return found.reshape(*shape, self.limbs)

    # ------------------------------------------------------------------ arithmetic

    def add(self, a: Elements, b: Elements) -> Elements:
        x, y, shape = self._aligned(a, b)
        out = np.empty_like(x)
        if self.bits == 127:
            prime_kernels.add(x, y, out)
        else:
            ring_kernels.add(x, y, self.bits, out)
        return out.reshape(shape)

    def negate(self, a: Elements) -> Elements:
        found = ~a
        found[..., -1] &= self.top
        found[(a == 0).all(-1)] = 0
        return found

    def subtract(self, a: Elements, b: Elements) -> Elements:
        return self.add(a, self.negate(b))

    def multiply(self, a: Elements, b: Elements) -> Elements:
        x, y, shape = self._aligned(a, b)
        out = np.empty_like(x)
        if self.bits == 127:
            prime_kernels.multiply(x, y, out)
        else:
            ring_kernels.multiply(x, y, self.bits, out)
        return out.reshape(shape)

    def inner(self, a: Elements, b: Elements) -> Elements:
        """Σ_k a[r, k] b[j, k]: (rows, units, limbs) from (rows, terms, …) and (units, terms, …)."""
        x, y = plain(a), plain(b)
        out = self.zeros((len(x), len(y)))
        if self.bits == 127:
            prime_kernels.inner(x, y, out)
        else:
            ring_kernels.inner(x, y, self.bits, out)
        return out

    def mix(self, weights: Sequence[Sequence[int]], rows: Elements) -> Elements:
        """Σ_k weights[p][k] rows[k] for whole numbers as weights: (results, ..., limbs)."""
        flat = plain(rows).reshape(len(rows), -1, self.limbs)
        if any(sum(map(abs, own)) >= LIGHT for own in weights):
            found = self._mix_heavy(weights, flat)
        else:
            size = np.array([[abs(w) for w in own] for own in weights], np.uint64)
            negative = np.array([[w < 0 for w in own] for own in weights])
            found = np.empty((len(weights), *flat.shape[1:]), np.uint64)
            if self.bits == 127:
                prime_kernels.mix(size, negative, flat, found)
            else:
                ring_kernels.mix(size, negative, flat, self.bits, found)
        return found.reshape(len(weights), *rows.shape[1:])

    def _mix_heavy(self, weights: Sequence[Sequence[int]], rows: Elements) -> Elements:
        found = np.zeros((len(weights), *rows.shape[1:]), np.uint64)
        for p, own in enumerate(weights):
            for weight, row in zip(own, rows, strict=True):
                found[p] = self.add(found[p], self.multiply(row, self.elements(weight)))
        return found

    def sum(self, a: Elements) -> Elements:
        """Over the first axis."""
        found: Elements = self.mix([[1] * len(a)], a)[0]
        return found

    def rotate(self, a: Elements, powers: npt.ArrayLike) -> Elements:
        """a·2^powers, which may be negative; powers have the shape of a without limbs, or none."""
        turns = np.broadcast_to(np.asarray(powers, np.int64) % self.bits, a.shape[:-1]).flatten()
        flat = plain(a).reshape(-1, self.limbs)
        out = np.empty_like(flat)
        ring_kernels.rotate(flat, turns, self.bits, out)
        return out.reshape(a.shape)

    def _aligned(self, a: Elements, b: Elements) -> tuple[Elements, Elements, tuple[int, ...]]:
        shape = np.broadcast_shapes(a.shape, b.shape)
        x, y = (plain(v if v.shape == shape else np.broadcast_to(v, shape)) for v in (a, b))
        return x.reshape(-1, self.limbs), y.reshape(-1, self.limbs), shape


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def next_prime(n: int) -> int:
    """The least prime that is not below n."""
    while not is_prime(n):
        n += 1
    return n


FIELD = Ring(127)

"""The field and the rings against Python's whole numbers, at their edges and at random."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.errors import ParameterError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring, next_prime
from fedcircuits.privacy.arithmetic.limbs import FULL, to_integers
from fedcircuits.privacy.sharing.randomness import Stream
from tests.privacy.parties import key, numbers

BITS = [5, 7, 11, 61, 67, 127, 131, 191, 193, 521, 607, 1279, 2203]


def some(ring: Ring) -> list[int]:
    """The edges, and numbers with long runs of ones."""
    p = ring.modulus
    edges = [0, 1, 2, p - 1, p - 2, p // 2, p // 2 + 1]
    runs = [((1 << k) - 1) % p for k in range(0, ring.bits + 1, max(1, ring.bits // 7))]
    drawn = Stream(key("field"), str(ring.bits)).elements(ring, (12,))
    return [*edges, *runs, *(p - r for r in runs if r), *numbers(ring.integers(drawn))]


@pytest.mark.parametrize("bits", BITS)
def test_every_operation_equals_that_of_whole_numbers(bits: int) -> None:
    ring = Ring(bits)
    p, pairs = ring.modulus, list(product(some(ring), repeat=2))
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    a, b = ring.elements(x), ring.elements(y)
    for found, expected in (
        (ring.add(a, b), [(v + w) % p for v, w in pairs]),
        (ring.subtract(a, b), [(v - w) % p for v, w in pairs]),
        (ring.multiply(a, b), [v * w % p for v, w in pairs]),
        (ring.negate(a), [-v % p for v in x]),
    ):
        assert numbers(ring.integers(found)) == expected
    halves = ring.is_negative(a)
    assert [s < 0 for s in ring.signed(a)] == halves.tolist() == [v > p // 2 for v in x]


@pytest.mark.parametrize("bits", BITS)
def test_inner_products_and_mixtures(bits: int) -> None:
    ring = Ring(bits)
    p, values = ring.modulus, some(ring)
    a = np.array([values, [p - 1] * len(values)], dtype=object)
    b = np.array([values[::-1], [p - 1] * len(values), [p - 2] * len(values)], dtype=object)
    found = ring.integers(ring.inner(ring.elements(a), ring.elements(b)))
    assert found.tolist() == [[int(sum(r * c)) % p for c in b] for r in a]
    rows = ring.elements(a)
    for weights in ([[1, -1], [0, 3], [2**61, -(2**61)]], [[2**63, -(2**90)], [1, 1]]):
        mixed = ring.integers(ring.mix(weights, rows))
        assert mixed.tolist() == [[(u * v + w * z) % p for v, z in a.T] for u, w in weights]


@pytest.mark.parametrize("bits", BITS)
def test_lines_polynomials_and_sums(bits: int) -> None:
    ring = Ring(bits)
    p, values = ring.modulus, some(ring)
    a = ring.elements(values)
    for by, start in ((0, 3), (-14, 1 << 200), (1, -1), (2**61, 5), (-(2**80), 0)):
        found = numbers(ring.integers(ring.affine(a, by, start)))
        assert found == [(start + by * v) % p for v in values]
    for degree in range(5):
        others = ring.elements([[v + k for v in values[::-1]] for k in range(degree)])
        rows = others.reshape(degree, len(values), ring.limbs)
        found = ring.integers(ring.values(a, rows, 3)).tolist()
        reverse = values[::-1]
        assert found == [
            [
                (v + sum((w + k) * x ** (k + 1) for k in range(degree))) % p
                for v, w in zip(values, reverse, strict=True)
            ]
            for x in (1, 2, 3)
        ]
    rows = ring.elements([values, values[::-1], values])
    expected = [(7 + 2 * v + w) % p for v, w in zip(values, values[::-1], strict=True)]
    assert numbers(ring.integers(ring.sum(rows, 7))) == expected


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("landing", [67, 127, 193])
def test_what_was_seen_is_cut(bits: int, landing: int) -> None:
    """⌊seen / 2^shift⌋ − minus − rest, and whether all that was seen is below a bound."""
    ring, land = Ring(bits), Ring(landing)
    values = some(ring)
    rest = [v * v + 3 for v in values]
    for shift in {0, 1, bits // 2, min(64, bits - 1), bits - 1}:
        for minus in (0, 1 << (bits // 2)):
            found, fits = land.cut(ring.elements(values), bits, shift, minus, land.elements(rest))
            assert fits and numbers(land.integers(found)) == [
                ((v >> shift) - minus - r) % land.modulus for v, r in zip(values, rest, strict=True)
            ]
    for size in (1, bits // 2, bits - 1):
        fits = [land.cut(ring.elements([v]), size, 0, 0, land.elements([0]))[1] for v in values]
        assert fits == [v < 1 << size for v in values]


@pytest.mark.parametrize("bits", BITS)
def test_random_words_become_elements(bits: int) -> None:
    """Of the last word bits that are too many are cut off; a number that is no element is
    noticed."""
    ring = Ring(bits)
    words = Stream(key("words"), str(bits)).bits((50,), 64 * ring.limbs)
    expected = words.copy()
    expected[:, -1] >>= np.uint64(64 * ring.limbs - bits)
    assert ring.cropped(words) == (ring.modulus not in numbers(to_integers(expected)))
    np.testing.assert_array_equal(words, expected)
    assert not ring.cropped(np.full((3, ring.limbs), FULL))


@pytest.mark.parametrize("bits", BITS)
def test_powers_of_two_are_rotations(bits: int) -> None:
    ring = Ring(bits)
    for power in (0, 1, -1, 63, 64, 65, bits - 1, bits, 3 * bits + 7):
        turned = ring.integers(ring.rotate(ring.elements(some(ring)), power))
        scale = pow(2, power % bits, ring.modulus)
        assert numbers(turned) == [v * scale % ring.modulus for v in some(ring)]


@pytest.mark.parametrize("bits", BITS)
def test_arrays_of_whole_numbers_are_taken_as_they_are(bits: int) -> None:
    ring, edges = Ring(bits), [0, 1, -1, 30, 31, 32, 2**63 - 1, -(2**63)]
    for values in (np.array([edges]), np.array([0, 2**64 - 1], np.uint64), np.array([True])):
        expected = [v % ring.modulus for v in numbers(values.ravel())]
        found = ring.elements(values)
        assert found.shape == (*values.shape, ring.limbs)
        assert numbers(ring.integers(found).ravel()) == expected


@given(st.lists(st.integers(0, 2**400 - 1), min_size=1), st.sampled_from(BITS))
def test_long_numbers_are_reduced(values: list[int], bits: int) -> None:
    ring = Ring(bits)
    words = np.array([[(v >> 64 * k) & (2**64 - 1) for k in range(7)] for v in values], np.uint64)
    assert numbers(ring.integers(ring.reduced(words))) == [v % ring.modulus for v in values]
    for shift in (0, 1, 63, 64, 130, 399):
        shifted = numbers(ring.integers(ring.shifted(words, shift, 400)))
        assert shifted == [(v >> shift) % ring.modulus for v in values]


@given(st.lists(st.integers(-(2**200), 2**200), max_size=5), st.sampled_from(BITS))
def test_what_crosses_comes_back(values: list[int], bits: int) -> None:
    ring = Ring(bits)
    elements = ring.elements(values)
    data = ring.packed(elements)
    assert data.dtype == np.uint8 and data.shape == (len(values) * -(-bits // 8),)
    np.testing.assert_array_equal(ring.unpacked(data, (len(values),)), elements)


@pytest.mark.parametrize("bits", [5, 67, 127, 607])
def test_bytes_that_are_no_elements_are_refused(bits: int) -> None:
    ring = Ring(bits)
    size = ring.bytes
    for number in {ring.modulus, min(1 << bits, 256**size - 1), 256**size - 1}:
        data = np.frombuffer(number.to_bytes(size, "little"), np.uint8)
        with pytest.raises(ValueError, match="not below 2"):
            ring.unpacked(data, (1,))
    with pytest.raises(ValueError, match=f"expected {2 * size} bytes"):
        ring.unpacked(np.zeros(2 * size - 1, np.uint8), (2,))


def test_shapes_broadcast() -> None:
    a, b = FIELD.elements([[1], [2]]), FIELD.elements([3, 4, 5])
    assert FIELD.integers(FIELD.multiply(a, b)).tolist() == [[3, 4, 5], [6, 8, 10]]
    assert FIELD.add(FIELD.zeros((0, 3)), b).shape == (0, 3, 2)
    for ring in (FIELD, Ring(193)):
        rows, one = ring.elements([[1, 2, 3], [4, 5, 6]]), ring.elements([1, 10, 100])
        for x, y in ((rows, one), (one, rows), (rows, ring.elements(7)), (ring.elements(7), rows)):
            first, second = ring.integers(x), ring.integers(y)
            assert (ring.integers(ring.add(x, y)) == first + second).all()
            assert (ring.signed(ring.subtract(x, y)) == first - second).all()
            assert (ring.integers(ring.multiply(x, y)) == first * second).all()


def test_only_primes_are_exponents() -> None:
    assert next_prime(600) == 601
    with pytest.raises(ParameterError, match="odd prime, such as 131"):
        Ring(128)


def test_nothing_is_compiled_by_importing() -> None:
    code = (
        "import fedcircuits.privacy.operations.powers as e\n"
        "from fedcircuits.privacy.arithmetic import prime_kernels as p, ring_kernels as r\n"
        "kernels = [f for m in (e, p, r) for f in vars(m).values() if hasattr(f, 'signatures')]\n"
        "assert len(kernels) > 10 and not any(f.signatures for f in kernels)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize("bits", [61, 127])
def test_arrays_that_do_not_fit_each_other_are_refused(bits: int) -> None:
    """Compiled loops would read beyond the shorter one."""
    ring = Ring(bits)
    long, short = ring.elements(np.ones((2, 5), int)), ring.elements(np.ones((2, 3), int))
    with pytest.raises(ValueError, match="terms of a product"):
        ring.inner(long, short)
    with pytest.raises(ValueError, match="weights of a sum"):
        ring.mix([[1, 2, 3]], long)
    with pytest.raises(ValueError, match=r"rests of numbers|broadcast"):
        ring.cut(long[0], 30, 3, 1, short[0])

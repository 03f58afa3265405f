"""Shamir's shares: uniform and independent below the threshold, exact above it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcircuits.errors import FederationError, ProtocolError
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.sharing.randomness import Stream
from fedcircuits.privacy.sharing.shares import deal, reconstruct, threshold, weights
from tests.privacy.parties import key, names, numbers


def all_polynomials(ring: Ring, secret: int, degree: int) -> np.ndarray:
    """Coefficients (degree + 1, polynomials, limbs) of every one with that value at 0."""
    every = np.arange(ring.modulus, dtype=np.uint64)
    free = np.stack(np.meshgrid(*[every] * degree, indexing="ij")).reshape(degree, -1)
    first = np.full((1, free.shape[1]), secret, np.uint64)
    return np.concatenate([first, free])[..., None]


@pytest.mark.parametrize(
    ("bits", "degree", "secrets", "parties"),
    [(5, 1, range(31), 10), (5, 2, range(31), 10), (7, 2, (0, 1, 126), 12), (11, 1, (0, 3), 12),
     (11, 2, (88,), 3)],
)  # fmt: skip
def test_shares_below_the_threshold_are_uniform(
    bits: int, degree: int, secrets: range, parties: int
) -> None:
    """2^11 − 1 = 23·89 is no prime: the ring shares as a field does. Each combination of shares of
    any ``degree`` members comes from exactly one polynomial, whatever the secret."""
    ring = Ring(bits)
    for secret in secrets:
        first, *others = all_polynomials(ring, secret, degree)
        shares = ring.values(first, np.stack(others), parties)[..., 0]
        for members in combinations(range(parties), degree):
            seen = np.zeros(shares.shape[1], np.int64)
            for member in members:
                seen = seen * ring.modulus + shares[member].astype(np.int64)
            assert (np.bincount(seen, minlength=ring.modulus**degree) == 1).all()


@pytest.mark.parametrize("ring", [FIELD, Ring(607)])
def test_large_shares_look_the_same_for_all_secrets(ring: Ring) -> None:
    """Two members of five together: the top bits of both, for the least and the largest secret."""
    stream, count = Stream(key("dealer"), "chi"), 200_000
    top = np.uint64(ring.bits % 64 - 4)
    for secret in (0, -1):
        given = np.repeat(ring.elements([secret]), count, axis=0)
        shares = deal(ring, given, 2, 5, stream)
        first, second = shares[0, :, -1] >> top, shares[3, :, -1] >> top
        cells = np.bincount((first * 16 + second).astype(np.int64), minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-3
        low = np.bincount((shares[1, :, 0] & np.uint64(255)).astype(np.int64), minlength=256)
        assert stats.chisquare(low).pvalue > 1e-3


@given(
    st.integers(3, 24),
    st.sampled_from([7, 127, 607]),
    st.lists(st.integers(), min_size=1),
    st.data(),
)
def test_enough_shares_give_the_secret(
    parties: int, bits: int, secrets: list[int], data: st.DataObject
) -> None:
    if parties > 2 * bits:
        return
    ring, t = Ring(bits), threshold(parties)
    degree = data.draw(st.sampled_from([t, 2 * t]))
    given = ring.elements(secrets)
    shares = deal(ring, given, degree, parties, Stream(key("dealer"), "x"))
    held = shares[: data.draw(st.integers(degree + 1, parties))]
    np.testing.assert_array_equal(reconstruct(ring, held, degree, names(parties)), given)
    total = ring.add(shares, deal(ring, given, degree, parties, Stream(key("other"), "x")))
    both = numbers(ring.integers(reconstruct(ring, total, degree, names(parties))))
    assert both == [2 * v % ring.modulus for v in secrets]


@pytest.mark.parametrize("parties", range(3, 13))
def test_a_flipped_share_is_found(parties: int) -> None:
    t = threshold(parties)
    for degree in (t, 2 * t):
        clean = deal(FIELD, FIELD.elements([[5, 6]] * 3), degree, parties, Stream(key("a"), ""))
        for wrong in range(parties):
            shares = clean.copy()
            shares[wrong, 1, 1, 0] ^= np.uint64(1)
            if parties == degree + 1:  # no share to spare: nothing shows
                assert reconstruct(FIELD, shares, degree, names(parties)).shape == (3, 2, 2)
                continue
            named = f"party{wrong} sent" if parties > degree + 2 else "one of party0, "
            with pytest.raises(ProtocolError, match="1 opened values have inconsistent") as error:
                reconstruct(FIELD, shares, degree, names(parties))
            assert named in str(error.value)


def test_too_few() -> None:
    shares = deal(FIELD, FIELD.elements([1]), 2, 5, Stream(key("a"), ""))
    with pytest.raises(ProtocolError, match=r"2 shares of a, b are too few.* needs 3"):
        reconstruct(FIELD, shares[:2], 2, ["a", "b"])
    with pytest.raises(
        FederationError, match="at least 3 parties, got 2: of two, each can compute"
    ):
        threshold(2)
    assert [threshold(n) for n in range(3, 13)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_weights_are_whole_numbers() -> None:
    assert weights(3, 0) == (3, -3, 1) and weights(2, 5) == (-3, 4)

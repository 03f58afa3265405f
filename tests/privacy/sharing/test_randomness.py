"""Streams: uniform, the same for the same key, another for every other label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedcircuits.errors import ParameterError
from fedcircuits.federation.recipes import fresh_key
from fedcircuits.privacy.arithmetic.field import FIELD, Ring
from fedcircuits.privacy.sharing.randomness import Stream
from tests.privacy.parties import key


def test_a_stream_is_its_key_and_label() -> None:
    first, again = (Stream(key("a"), "x").bits((5,), 128) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for other in (Stream(key("b"), "x"), Stream(key("a"), "y"), Stream(fresh_key(), "x")):
        assert not (other.bits((5,), 128) == first).any()


def test_draws_follow_each_other() -> None:
    stream = Stream(key("a"), "x")
    parts = np.concatenate([stream.bits((3,), 64), stream.bits((2,), 64)])
    np.testing.assert_array_equal(parts, Stream(key("a"), "x").bits((5,), 64))


@pytest.mark.parametrize("bits", [3, 5, 7])
def test_elements_are_uniform(bits: int) -> None:
    """In the smallest rings a pattern in 8, 32 or 128 is no element and is drawn again."""
    ring = Ring(bits)
    drawn = Stream(key("a"), "x").elements(ring, (1000, 127))[..., 0].ravel()
    counts = np.bincount(drawn.astype(np.int64), minlength=ring.modulus)
    assert len(counts) == ring.modulus and stats.chisquare(counts).pvalue > 1e-3


def test_bits() -> None:
    drawn = Stream(key("a"), "x").bits((4000,), 122)
    assert drawn.shape == (4000, 2) and (drawn[:, 1] >> np.uint64(58)).max() == 0
    for limb, size in ((0, 64), (1, 58)):
        for bit in range(size):
            ones = int(((drawn[:, limb] >> np.uint64(bit)) & np.uint64(1)).sum())
            assert abs(ones - 2000) < 5 * np.sqrt(1000)
    assert Stream(key("a"), "x").elements(FIELD, (0, 3)).shape == (0, 3, 2)


def test_keys() -> None:
    assert len(fresh_key()) == 32 and fresh_key() != fresh_key()
    with pytest.raises(ParameterError, match="a key of 3 bytes: expected 32"):
        Stream(b"key", "x")

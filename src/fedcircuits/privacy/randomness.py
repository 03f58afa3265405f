"""Numbers nobody can guess: AES in counter mode, from a key that the operating system has drawn.

A stream is a function of its key and its label, so that a flow that is run again deals the same
shares: the key is an argument of the flow's program. A key is for one party and one run. Two runs
with one key and other secrets would deal shares whose differences are those of the secrets.
"""

from __future__ import annotations

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcircuits.errors import ParameterError
from fedcircuits.privacy.field import Ring
from fedcircuits.privacy.limbs import FULL, Elements

KEY = 32  # bytes


def fresh_key() -> bytes:
    """A key of the operating system, for one party and one run."""
    return os.urandom(KEY)


def derived(key: bytes, label: str) -> bytes:
    """Another key for every label; none says anything about the others."""
    if len(key) != KEY:
        raise ParameterError(
            f"a key of {len(key)} bytes: expected {KEY}, drawn by fresh_key() for one run"
        )
    return HKDF(SHA256(), KEY, salt=None, info=label.encode()).derive(key)


class Stream:
    """Uniform draws, one after the other.

    >>> stream = Stream(bytes(32), "north")
    >>> stream.elements(Ring(127), (4, 3)).shape
    (4, 3, 2)
    """

    def __init__(self, key: bytes, label: str) -> None:
        cipher = Cipher(algorithms.AES(derived(key, label)), modes.CTR(bytes(16)))
        self._encrypt = cipher.encryptor()

    def bits(self, shape: tuple[int, ...], bits: int) -> Elements:
        """Whole numbers from 0 to 2^bits − 1, in ⌈bits/64⌉ limbs."""
        limbs = -(-bits // 64)
        count = int(np.prod(shape, dtype=np.int64))
        data = self._encrypt.update(bytes(8 * limbs * count))
        found = np.frombuffer(data, np.uint64).reshape(*shape, limbs).copy()
        found[..., -1] >>= np.uint64(64 * limbs - bits)
        return found

    def elements(self, ring: Ring, shape: tuple[int, ...]) -> Elements:
        """Elements of the ring. Of its bit patterns one, all ones, is no element: drawn again."""
        count = int(np.prod(shape, dtype=np.int64))
        found = self.bits((count,), ring.bits)
        while len(bad := np.flatnonzero(_all_ones(found, ring))):
            found[bad] = self.bits((len(bad),), ring.bits)
        return found.reshape(*shape, ring.limbs)


def _all_ones(rows: Elements, ring: Ring) -> np.typing.NDArray[np.bool_]:
    ones = rows[:, -1] == ring.top
    if ones.any():
        ones &= (rows[:, :-1] == FULL).all(1)
    return np.asarray(ones)

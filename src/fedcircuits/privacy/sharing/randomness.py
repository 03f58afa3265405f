"""Unpredictable numbers: AES in counter mode, from a key drawn by the operating system.

A stream is a function of its key and its label, so that a flow that is run again deals the same
shares: the key is an argument of the flow's program. A key is for one party and one run: two runs
with one key and different secrets would deal shares that reveal the differences of the secrets.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcircuits.errors import ParameterError
from fedcircuits.federation.recipes import KEY
from fedcircuits.privacy.arithmetic.field import Ring
from fedcircuits.privacy.arithmetic.limbs import Elements, from_integers

BLOCK = 16
NOUGHT = memoryview(bytes(1 << 16))  # what is encrypted, piece by piece


def derived(key: bytes, label: str) -> bytes:
    """A different key for every label; none reveals anything about the others."""
    if not isinstance(key, bytes) or len(key) != KEY:
        raise ParameterError(
            f"a key of {len(key)} {type(key).__name__}: expected {KEY} bytes, drawn by fresh_key() "
            "for one run"
        )
    return HKDF(SHA256(), KEY, salt=None, info=label.encode()).derive(key)


class Stream:
    """Uniform draws, one after the other.

    >>> stream = Stream(bytes(32), "north")
    >>> stream.elements(Ring(127), (4, 3)).shape
    (4, 3, 2)
    """

    def __init__(self, key: bytes, label: str) -> None:
        self._encrypt = _encryptor(derived(key, label))

    @classmethod
    def of_key(cls, key: bytes) -> Stream:
        """From a key that is used for this stream only."""
        stream = cls.__new__(cls)
        stream._encrypt = _encryptor(key)
        return stream

    def key(self) -> bytes:
        """A key for another stream."""
        return self._filled(np.empty(KEY // 8, np.uint64)).tobytes()

    def bits(self, shape: tuple[int, ...], bits: int) -> Elements:
        """Whole numbers from 0 to 2^bits − 1, in ⌈bits/64⌉ limbs."""
        limbs = -(-bits // 64)
        words = self._filled(np.empty((*shape, limbs), np.uint64))
        if 64 * limbs > bits:
            words[..., -1] >>= np.uint64(64 * limbs - bits)
        return words

    def elements(self, ring: Ring, shape: tuple[int, ...], out: Elements | None = None) -> Elements:
        """Elements of the ring, into ``out`` if given.

        One bit pattern, all ones, is not an element and is drawn again.
        """
        elements = np.empty((*shape, ring.limbs), np.uint64) if out is None else out
        flat = self._filled(elements).reshape(-1, ring.limbs)
        if not ring.cropped(flat):
            ones = from_integers(ring.modulus, ring.limbs)
            while len(bad := np.flatnonzero((flat == ones).all(1))):
                flat[bad] = self.bits((len(bad),), ring.bits)
        return elements

    def _filled(self, room: Elements) -> Elements:
        """A contiguous array, filled with random bits."""
        data = room.reshape(-1).view(np.uint8).data
        for start in range(0, len(data), len(NOUGHT)):
            piece = data[start : start + len(NOUGHT)]
            self._encrypt.update_into(NOUGHT[: len(piece)], piece)
        return room


def _encryptor(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK))).encryptor()

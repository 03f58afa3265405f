"""Row ids as tokens: keyed hashes, which reveal nothing without the key.

Parties share a key that the coordinator does not have. They send it the tokens of their rows in
rising order, and it matches rows without being able to identify them (methods/meeting/tokens.py).

A party has at most one secret, from the operating system and never from a seed. Keys for different
purposes are derived from it, so that knowing one of them reveals none of the others.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import ProtocolError

Tokens = npt.NDArray[np.uint64]
Labels = npt.NDArray[np.int64]
RowRule: TypeAlias = Literal["tokens", "private"]  # how rows are matched


def derived(secret: bytes, purpose: str) -> bytes:
    """32 bytes for one purpose, from which neither the secret nor those for others follow."""
    if not isinstance(secret, bytes):  # an array, which a hash takes too, may be anybody's
        raise ProtocolError(f"a secret of {type(secret).__name__}: expected bytes")
    return hmac.digest(secret, purpose.encode(), "sha256")


def tokens(ids: npt.NDArray[np.generic], key: bytes) -> Tokens:
    """(rows,) keyed hashes; 1 and "1" are the same id."""
    seal = hmac.new(key, digestmod=hashlib.sha256)
    hashes = np.empty(len(ids), dtype=np.uint64)
    for i, value in enumerate(ids.tolist()):
        one = seal.copy()
        one.update(str(value).encode())
        hashes[i] = int.from_bytes(one.digest()[:8], "little")
    return hashes


def matched(lists: list[Tokens]) -> Labels:
    """(different tokens, lists): where a token is in each party's list, −1 where it is not.

    Rows of the result are in the order of tokens, which is not the order of any party's rows.
    """
    every = np.unique(np.concatenate(lists)) if lists else np.zeros(0, np.uint64)
    where = np.full((len(every), len(lists)), -1, dtype=np.int64)
    for i, hashes in enumerate(lists):
        where[np.searchsorted(every, hashes), i] = np.arange(len(hashes))
    return where


def patterns(labels: Labels) -> tuple[Labels, Array]:
    """The different rows of labels (rows, parties), and how many rows have each."""
    different, counts = np.unique(labels, axis=0, return_counts=True)
    return different, counts.astype(np.float64)

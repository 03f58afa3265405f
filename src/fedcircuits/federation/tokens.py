"""Row ids as tokens: keyed hashes, which say nothing to anybody without the key.

Parties share a key that the coordinator does not have. They send it the tokens of their rows in
rising order, and it matches rows without knowing which these are (methods/meeting/tokens.py).
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import numpy.typing as npt

from fedcircuits.circuits.graph.family import Array

Tokens = npt.NDArray[np.uint64]
Labels = npt.NDArray[np.int64]


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

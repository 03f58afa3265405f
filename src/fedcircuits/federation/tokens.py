"""Row ids as tokens: the same under one key, and nothing to whoever does not have it.

The parties share a key that the coordinator does not have. They send it keyed hashes of their row
ids, in the order of the hashes, so that it can match rows without knowing which they are.
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
    found = np.empty(len(ids), dtype=np.uint64)
    for i, value in enumerate(ids.tolist()):
        own = seal.copy()
        own.update(str(value).encode())
        found[i] = int.from_bytes(own.digest()[:8], "little")
    return found


def matched(sent: list[Tokens]) -> Labels:
    """(different tokens, parties): where each party has a token in its list, −1 where it has not.

    Rows are in the order of tokens, which is nobody's.
    """
    every = np.unique(np.concatenate(sent)) if sent else np.zeros(0, np.uint64)
    where = np.full((len(every), len(sent)), -1, dtype=np.int64)
    for i, own in enumerate(sent):
        where[np.searchsorted(every, own), i] = np.arange(len(own))
    return where


def patterns(labels: Labels) -> tuple[Labels, Array]:
    """Different rows of labels (rows, parties), and how many rows have each."""
    found, counts = np.unique(labels, axis=0, return_counts=True)
    return found, counts.astype(np.float64)

"""Counts of a part drawn towards what the whole table makes likely.

Few rows say little about many categories or bins. Their counts are drawn towards shares, by as many
pseudo-rows as make every row likeliest given the others of its part (leaving one out). The shares
are the whole table's. Bins have an order, so there they may be tilted first: multiplied by
exp(a z + b z²), where z are the bins' normal scores in the whole table, so that they have mean and
variance of the part. Two parts then differ smoothly, as in logistic regression of the part on the
column, unless the rows say otherwise.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri, xlogy

from fedcircuits.circuits.graph.family import Array

PULLS = 0.5 * 4.0 ** np.arange(7)  # pseudo-rows
TILT = 2.0  # nats that a tilt must gain: one for each of its two numbers
TILTED = 4  # bins, at least, that may be tilted: fewer have few numbers of their own
VAGUE = 2.0  # rows by which mean and variance of a part are drawn towards the whole table's


def drawn(counts: Array, share: Array) -> Array:
    """Counts (…, categories) drawn towards the shares."""
    return _drawn(*np.broadcast_arrays(counts, share))[0]


def drawn_in_order(counts: Array, share: Array) -> Array:
    """Counts (…, bins) of ordered bins drawn towards the shares or, where that makes the rows
    clearly likelier, towards tilted ones."""
    counts, share = np.broadcast_arrays(counts, share)
    plain, score = _drawn(counts, share)
    if counts.shape[-1] < TILTED:
        return plain
    smooth, smooth_score = _drawn(counts, tilted(counts, share))
    return np.where((smooth_score > score + TILT)[..., None], smooth, plain)


def _drawn(counts: Array, share: Array) -> tuple[Array, Array]:
    """The counts (…, cells), and the log-likelihood (…) of every row given the others."""
    total = counts.sum(axis=-1)
    base = np.maximum(share, 1e-300) * PULLS.reshape(-1, *[1] * counts.ndim)  # (pulls, …, cells)
    left = xlogy(counts, np.maximum(counts - 1, 0.0) + base).sum(axis=-1)
    score = left - xlogy(total, np.maximum(total - 1, 0.0) + PULLS.reshape(-1, *[1] * total.ndim))
    pull = PULLS[score.argmax(axis=0)]
    return np.asarray(counts + pull[..., None] * share), score.max(axis=0)


def tilted(counts: Array, share: Array) -> Array:
    """Shares (…, bins) times exp(a z + b z²): of a normal, those that move its mean and variance
    to those of the counts."""
    share = share / share.sum(axis=-1, keepdims=True)
    z = ndtri(np.clip(np.cumsum(share, axis=-1) - share / 2, 1e-6, 1 - 1e-6))
    z -= (share * z).sum(axis=-1, keepdims=True)
    z /= np.sqrt(np.maximum((share * z * z).sum(axis=-1, keepdims=True), 1e-12))
    rows = counts.sum(axis=-1, keepdims=True) + VAGUE
    mean = (counts * z).sum(axis=-1, keepdims=True) / rows
    spread = (counts * (z - mean) ** 2).sum(axis=-1, keepdims=True)
    variance = (spread + VAGUE * (1 + mean**2)) / rows
    exponent = (z * z - (z - mean) ** 2 / variance) / 2
    moved = share * np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    return np.asarray(moved / moved.sum(axis=-1, keepdims=True))

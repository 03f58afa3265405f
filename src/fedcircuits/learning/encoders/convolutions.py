"""Random convolutions over series, and two numbers of each: ROCKET, in the form of this package.

A convolution has at most nine weights for some of the channels, which add up to 0, and a dilation,
a power of two by which its weights are apart. Of its values at the steps of a row two numbers are
kept: the share above its threshold, which is a quantile of its values in rows learned from, and the
largest. Values that are missing are 0, the mean; steps after the end of a row do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from fedcircuits.circuits.graph.family import Array
from fedcircuits.learning.encoders.inputs import Floats

LONGEST = 9
PIECE = 1 << 23  # values of convolutions that are held at once


@dataclass(frozen=True, slots=True, eq=False)
class Convolutions:
    weights: Floats  # (kernels, channels, length)
    dilations: npt.NDArray[np.int64]  # (kernels,), rising
    thresholds: Floats  # (kernels,)

    @classmethod
    def drawn(cls, x: Floats, kernels: int, rng: np.random.Generator) -> Self:
        """For series (rows, steps, channels), NaN missing."""
        _, steps, channels = x.shape
        length = longest(steps)
        weights = rng.normal(size=(kernels, channels, length))
        if length > 1:
            weights -= weights.mean(axis=2, keepdims=True)
        for one in weights:  # some channels only, as many as an exponent drawn evenly says
            count = int(channels ** rng.random())
            one[rng.permutation(channels)[max(count, 1) :]] = 0.0
        most = np.log2(max((steps - 1) / max(length - 1, 1), 1.0))
        dilations = np.sort(2 ** np.floor(rng.uniform(0, most, kernels)).astype(np.int64))
        quantiles = rng.uniform(0.1, 0.9, kernels)
        plain = cls(weights.astype(np.float32), dilations, np.zeros(kernels, np.float32))
        return cls(plain.weights, dilations, plain._quantiles(x, quantiles))

    def apply(self, x: Floats) -> Array:
        """(rows, 2 × kernels)"""
        parts = [np.zeros((0, 2 * len(self.weights)))]
        rows = max(1, PIECE // (len(self.weights) * x.shape[1]))
        for at in range(0, len(x), rows):
            part = x[at : at + rows]
            there = _there(part)
            values = self._values(part)  # (rows, kernels, steps)
            higher = np.asarray(values > self.thresholds[:, None])
            above = (higher & there[:, None]).sum(axis=2)
            largest = np.where(there[:, None], values, -np.inf).max(axis=2)
            steps = there.sum(axis=1, keepdims=True)  # (rows, 1)
            share, largest = above / np.maximum(steps, 1), np.where(steps > 0, largest, 0.0)
            parts.append(np.concatenate([share, largest], axis=1))
        return np.concatenate(parts)

    def _quantiles(self, x: Floats, quantiles: Array) -> Floats:
        """(kernels,): of the values of each convolution in at most so many rows, as asked."""
        some = x[:: max(1, len(x) // max(1, PIECE // (len(self.weights) * x.shape[1])))]
        there, values = _there(some), self._values(some)
        if not there.any():
            return np.zeros(len(quantiles), np.float32)
        each = [np.quantile(values[:, k][there], q) for k, q in enumerate(quantiles)]
        return np.array(each, np.float32)

    def _values(self, x: Floats) -> Floats:
        """(rows, kernels, steps)"""
        given = torch.from_numpy(np.ascontiguousarray(np.nan_to_num(x).transpose(0, 2, 1)))
        features, half = [], self.weights.shape[2] // 2
        for dilation in np.unique(self.dilations):
            weights = torch.from_numpy(self.weights[self.dilations == dilation])
            by = int(dilation)
            features.append(torch.conv1d(given, weights, padding=half * by, dilation=by))
        values: Floats = torch.cat(features, dim=1).numpy()
        return values


def longest(steps: int) -> int:
    """How long a convolution over so many steps is: odd."""
    return min(LONGEST, steps if steps % 2 else max(steps - 1, 1))


def _there(x: Floats) -> npt.NDArray[np.bool_]:
    """(rows, steps): up to the last step at which some channel has a value."""
    at = np.asarray((~np.isnan(x)).any(axis=2))
    return np.flip(np.logical_or.accumulate(np.flip(at, axis=1), axis=1), axis=1)

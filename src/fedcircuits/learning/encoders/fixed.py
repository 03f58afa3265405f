"""Encoders for few rows: the representation of a row is fixed, and only its scale is learned.

    SummaryEncoder   ten numbers per channel of a series: mean, deviation, minimum, maximum, slope,
                     mean step from one value to the next, correlation of neighbours, and the
                     differences between the means of its three thirds and its overall mean;
                     ordinary columns unchanged
    RocketEncoder    random convolutions (Dempster, Petitjean and Webb, 2020): for each, the share
                     of steps above a threshold and the largest value; ordinary columns unchanged

A convolution has at most nine weights, which add up to 0, for some of the channels, and a dilation
that is a power of two. Its threshold is a quantile of its values in the training rows. Missing
values are 0, the mean; steps after the end of a row do not count.

Numbers are standardised by the training rows. More than ``width`` of them are reduced to their
principal components. A representation of few columns therefore is these columns, and its reader
knows their values up to scale (``tells``). Labels play no part in a representation, so those of
training rows are no better than those of new rows; what an owner alone predicts is a regression on
it (foreign.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.exceptions import NotFittedError

from fedcircuits.arguments import SEED, Declared, Whole, check_arguments
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import TableError
from fedcircuits.learning.encoders.foreign import RegressingEncoder
from fedcircuits.learning.encoders.inputs import Floats, InputReading, require_inputs
from fedcircuits.tables.table import Table

LONGEST = 9
PIECE = 1 << 23  # values of convolutions that are held at once
THIRDS = 3
SUMMARIES = 7 + THIRDS  # numbers of a channel
SAME = 1e-9  # deviation of a number that never changes


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
        for one in weights:  # a random subset of channels, its size log-uniform
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
        """(kernels,): a quantile of the values of each convolution, in a limited number of rows."""
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
    """The odd length of a convolution over this many steps."""
    return min(LONGEST, steps if steps % 2 else max(steps - 1, 1))


def _there(x: Floats) -> npt.NDArray[np.bool_]:
    """(rows, steps): up to the last step at which some channel has a value."""
    at = np.asarray((~np.isnan(x)).any(axis=2))
    return np.flip(np.logical_or.accumulate(np.flip(at, axis=1), axis=1), axis=1)


# ---------------------------------------------------------------------- encoders


class FixedEncoder(RegressingEncoder):
    """What both share: reading, scale, principal components."""

    reading_: InputReading
    _centre: Array  # (numbers,) of the rows learned from
    _spread: Array  # (numbers,)
    _axes: Array | None  # (numbers, width): principal components; None: all numbers are taken

    width: int
    needs_series: ClassVar[bool] = False

    def fit(self, X: Table, target: str | None = None) -> Self:
        """Learn the scale of rows, and with labels how to predict them alone."""
        self.check(X, target)
        self.reading_ = InputReading.of(X, target, bool(X.series))
        known = self.reading_.read(X)[1]
        if not known.any():
            raise TableError("there is no row to learn an encoder from: all values are missing")
        self._prepare(X)
        numbers = self._numbers(X)
        self._centre, spread = numbers[known].mean(axis=0), numbers[known].std(axis=0)
        self._spread = np.where(spread > SAME * (1 + np.abs(self._centre)), spread, 1.0)
        self._axes = None
        if numbers.shape[1] > self.width:
            z = (numbers[known] - self._centre) / self._spread
            self._axes = _principal(z, self.width)
        self._set_target(X, target)
        return self

    def encode(self, X: Table) -> Array:
        """(rows, width) at most; NaN in rows of which nothing is known."""
        if not hasattr(self, "_centre"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit")
        known = self.reading_.read(X)[1]
        z = (self._numbers(X) - self._centre) / self._spread
        z = np.clip(z, -1e6, 1e6)
        z = z if self._axes is None else z @ self._axes
        return np.where(known[:, None], z, np.nan)

    def check(self, table: Table, target: str | None) -> None:
        """An error unless its settings are in range and the table has what it reads."""
        check_arguments(self)
        require_inputs(table, target, self.needs_series, type(self).__name__)

    @property
    def tells(self) -> str:
        """What a representation is of a row, in the words of a ledger."""
        columns = "its columns" if self._columns or not self.reading_.in_steps else ""
        series = "summaries of its series" if self.reading_.in_steps else ""
        what = " and ".join(part for part in (series, columns) if part)
        reduced = f"principal components of {what}"
        return f"{what}, standardised" if self._axes is None else reduced

    @property
    def numbers(self) -> int:
        """Numbers per row, before reduction."""
        raise NotImplementedError

    @property
    def representation_width(self) -> int:
        """How many numbers a representation has, once it has learned."""
        return self.numbers if self._axes is None else self._axes.shape[1]

    def _numbers(self, X: Table) -> Array:
        """(rows, numbers), 0 where a number is missing: its mean, nearly."""
        x = self.reading_.scaled(X)
        if not self.reading_.in_steps:
            return np.nan_to_num(x).astype(np.float64)
        channels = self.reading_.channels
        columns = np.nan_to_num(x[:, 0, channels:])
        return np.concatenate([self._of_series(x[..., :channels]), columns], axis=1)

    def _prepare(self, X: Table) -> None:
        """Draw what is drawn, once the reading is known."""

    def _of_series(self, x: Floats) -> Array:
        """(rows, numbers) of (rows, steps, channels), NaN where there is no value."""
        raise NotImplementedError

    @property
    def _columns(self) -> int:
        """Inputs that are no series."""
        return len(self.reading_.mean) - self.reading_.channels


class SummaryEncoder(FixedEncoder):
    """Ten numbers of every channel of a series, such as its mean and deviation, and all columns.

    It learns nothing but their scale, so that few rows are enough.

    Parameters
    ----------
    width : int, default=32
        Numbers in a representation at most; more are reduced to principal components.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> series = np.random.default_rng(0).normal(size=(60, 12, 1))
    >>> table = Table.from_series({"speed": series}, {"event": series[:, :, 0].mean(axis=1) > 0})
    >>> SummaryEncoder().fit(table, "event").encode(table).shape
    (60, 10)
    """

    allowed: ClassVar[Declared] = {"width": Whole(1)}

    def __init__(self, *, width: int = 32) -> None:
        self.width = width

    @property
    def numbers(self) -> int:
        if not self.reading_.in_steps:
            return len(self.reading_.mean)
        return SUMMARIES * self.reading_.channels + self._columns

    def _of_series(self, x: Floats) -> Array:
        return summaries(x)


class RocketEncoder(FixedEncoder):
    """Random convolutions over series: for shapes that means and deviations do not show.

    Parameters
    ----------
    kernels : int, default=300
        How many convolutions are drawn; each gives two numbers.
    width : int, default=32
        Numbers in a representation at most: principal components.
    random_state : int, optional
        Seed of the convolutions; by default 0, so that owners have the same ones.

    Examples
    --------
    >>> from fedcircuits import Table
    >>> series = np.random.default_rng(0).normal(size=(60, 12, 1))
    >>> table = Table.from_series({"speed": series}, {"event": series[:, :, 0].mean(axis=1) > 0})
    >>> RocketEncoder(kernels=50, width=8).fit(table, "event").encode(table).shape
    (60, 8)
    """

    needs_series = True
    allowed: ClassVar[Declared] = {
        "kernels": Whole(1), "width": Whole(1), "random_state": SEED,
    }  # fmt: skip
    convolutions_: Convolutions

    def __init__(
        self, *, kernels: int = 300, width: int = 32, random_state: int | None = None
    ) -> None:
        self.kernels = kernels
        self.width = width
        self.random_state = random_state

    @property
    def numbers(self) -> int:
        return 2 * len(self.convolutions_.weights) + self._columns

    def _prepare(self, X: Table) -> None:
        rng = np.random.default_rng(int(self.random_state or 0))
        x = self.reading_.scaled(X)[..., : self.reading_.channels]
        self.convolutions_ = Convolutions.drawn(x, int(self.kernels), rng)

    def _of_series(self, x: Floats) -> Array:
        return self.convolutions_.apply(x)


def summaries(x: Floats) -> Array:
    """(rows, 10 × channels) of (rows, steps, channels); 0 where a channel has no value."""
    rows, steps, channels = x.shape
    flat = x.transpose(0, 2, 1).reshape(rows * channels, steps).astype(np.float64)
    seen = ~np.isnan(flat)
    count = np.maximum(seen.sum(axis=1), 1)
    value = np.where(seen, flat, 0.0)
    mean = value.sum(axis=1) / count
    off = np.where(seen, flat - mean[:, None], 0.0)
    square = np.square(off).sum(axis=1)
    some = seen.any(axis=1)
    least = np.where(some, np.where(seen, flat, np.inf).min(axis=1), 0.0)
    largest = np.where(some, np.where(seen, flat, -np.inf).max(axis=1), 0.0)
    both = seen[:, 1:] & seen[:, :-1]
    step = np.abs(np.where(both, value[:, 1:] - value[:, :-1], 0.0)).sum(axis=1)
    neighbours = (off[:, 1:] * off[:, :-1] * both).sum(axis=1)
    time = _time(seen)
    centred = np.where(seen, time - (time * seen).sum(axis=1, keepdims=True) / count[:, None], 0.0)
    slope = (centred * off).sum(axis=1) / np.maximum(np.square(centred).sum(axis=1), 1e-9)
    columns = [
        mean, np.sqrt(square / count), least, largest, slope,
        step / np.maximum(both.sum(axis=1), 1), neighbours / np.maximum(square, 1e-9),
    ]  # fmt: skip
    for k in range(THIRDS):
        part = seen & (time >= k / THIRDS - 1e-9) & (time <= (k + 1) / THIRDS + 1e-9)
        columns.append((off * part).sum(axis=1) / np.maximum(part.sum(axis=1), 1))
    return np.stack(columns, axis=1).reshape(rows, channels * SUMMARIES)


def _time(seen: npt.NDArray[np.bool_]) -> Array:
    """(rows, steps): 0 at the first value of a row, 1 at its last."""
    steps = seen.shape[1]
    first = seen.argmax(axis=1)[:, None]
    last = steps - 1 - seen[:, ::-1].argmax(axis=1)[:, None]
    return np.asarray((np.arange(steps) - first) / np.maximum(last - first, 1))


def _principal(z: Array, width: int) -> Array:
    """(numbers, width at most): the directions in which rows vary most."""
    axes = np.linalg.svd(z, full_matrices=False)[2][:width]
    at = np.abs(axes).argmax(axis=1)
    return np.asarray((axes * np.sign(axes[np.arange(len(axes)), at])[:, None]).T)

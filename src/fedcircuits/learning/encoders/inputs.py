"""Inputs of encoders from an owner's table: standardised numbers without NaN.

    flat    (rows, inputs)             numbers standardised, categories one-hot, series end to end
    series  (rows, steps, channels)    series on common steps, ordinary columns as constant
                                       channels, a last channel that is 1 where a step exists

Means and deviations are those of the training rows; a missing number is the mean, 0. Columns that
vary by less than rounding are constant. Inputs are limited to ``REACH`` deviations. Steps exist up
to the last one at which some channel has a value, so that gaps inside a series are filled and its
length is kept. Rows without any value are reported, not imputed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import QueryError, TableError
from fedcircuits.learning.features import FeatureLayout
from fedcircuits.tables.schema import Schema, Variable
from fedcircuits.tables.series import Series
from fedcircuits.tables.table import Table

Floats: TypeAlias = npt.NDArray[np.float32]
Known: TypeAlias = npt.NDArray[np.bool_]
LARGEST = 1e30  # columns are cut off here, so that squares stay finite
REACH = 1e6


@dataclass(frozen=True, slots=True)
class InputReading:
    """How one owner's rows are read: its columns, its series, their scale."""

    schema: Schema  # ordinary columns
    shapes: dict[str, tuple[int, int]]  # of series by name: steps, channels
    mean: Floats  # of the inputs, before they are standardised
    spread: Floats
    in_steps: bool

    @classmethod
    def of(cls, table: Table, target: str | None, in_steps: bool) -> InputReading:
        """Derived from the rows of a table; the target is not read."""
        require_inputs(table, target, in_steps)
        names = [n for n in table.names if n != target]
        shapes = {n: (a.shape[1], a.shape[2]) for n, a in table.series.items()}
        raw = cls(table.schema.select(names), shapes, *_nothing(), in_steps)
        x = raw._raw(table)
        axes = tuple(range(x.ndim - 1))
        count = np.maximum((~np.isnan(x)).sum(axis=axes), 1)
        mean = np.nansum(x, axis=axes, dtype=np.float64) / count
        spread = np.sqrt(np.nansum(np.square(x - mean), axis=axes, dtype=np.float64) / count)
        spread = np.where(spread > np.maximum(1e-6 * np.abs(mean), 1e-30), spread, 1.0)
        return cls(raw.schema, shapes, mean.astype(np.float32), spread.astype(np.float32), in_steps)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.schema.names, *self.shapes)

    @property
    def steps(self) -> int:
        return max((steps for steps, _ in self.shapes.values()), default=0)

    @property
    def channels(self) -> int:
        """Channels of all series together."""
        return sum(channels for _, channels in self.shapes.values())

    def scaled(self, table: Table) -> Floats:
        """The inputs, NaN where they are missing."""
        with np.errstate(over="ignore"):
            scaled = (self._raw(table) - self.mean) / self.spread
        return np.asarray(np.clip(scaled, -REACH, REACH))

    def read(self, table: Table) -> tuple[Floats, Known]:
        """The inputs, and which rows something is known of."""
        x = self.scaled(table)
        seen: Known = np.asarray(~np.isnan(x))
        known: Known = np.asarray(seen.any(axis=tuple(range(1, x.ndim))))
        scaled = np.nan_to_num(x)
        if not self.in_steps:
            return scaled, known
        at: Known = np.asarray(seen[..., : self.channels].any(axis=2))  # (rows, steps)
        there = np.flip(np.logical_or.accumulate(np.flip(at, axis=1), axis=1), axis=1)
        known = np.asarray(at.any(axis=1))
        return np.concatenate([scaled, there[..., None].astype(np.float32)], axis=2), known

    def _raw(self, table: Table) -> Floats:
        parts = [self._steps_of(table, name) for name in self.shapes]
        columns = self._columns(table)  # (rows, inputs)
        if not self.in_steps:
            shapes = self.shapes.values()
            flat = [part[:, :steps].reshape(len(part), steps * channels)
                    for part, (steps, channels) in zip(parts, shapes, strict=True)]  # fmt: skip
            return np.concatenate([columns, *flat], axis=1)
        constant = np.repeat(columns[:, None], self.steps, axis=1)
        return np.concatenate([*parts, constant], axis=2)

    def _steps_of(self, table: Table, name: str) -> Floats:
        """(rows, steps, channels), NaN after the end."""
        steps, channels = self.shapes[name]
        if name not in table.series:
            raise TableError(f"expected the series {name!r}, there are {_listed(table.series)}")
        array = _ended(table.series[name], steps)
        if array.shape[1] > steps or array.shape[2] != channels:
            raise TableError(
                f"series {name!r}: expected at most {steps} steps of {channels} channels, as in "
                f"training, got {array.shape[1]} of {array.shape[2]}"
            )
        room = ((0, 0), (0, self.steps - array.shape[1]), (0, 0))
        return np.pad(array, room, constant_values=np.nan)

    def _columns(self, table: Table) -> Floats:
        if not len(self.schema):
            return np.zeros((len(table), 0), np.float32)
        values = self._in_own_codes(table).select(self.schema.names).values
        features = FeatureLayout.of(self.schema).values(values)
        return np.clip(features, -LARGEST, LARGEST).astype(np.float32)

    def _in_own_codes(self, table: Table) -> Table:
        absent = [n for n in self.schema.names if n not in table.schema]
        if absent:
            raise TableError(
                f"expected the columns {_listed(self.schema.names)}, as in training; absent: "
                f"{_listed(absent)}; where their values are not known, give them as missing"
            )
        if all(table.schema[v.name] == v for v in self.schema):
            return table
        for variable in self.schema:
            _refuse_new(table, variable)
        return Table.of(table, schema=self.schema)


def require_inputs(
    table: Table, target: str | None, in_steps: bool, reader: str = "SequenceEncoder"
) -> None:
    """TableError unless the table has what an encoder reads."""
    if in_steps and not table.series:
        raise TableError(
            f"{reader} reads series, this table has none: Table.from_series, or "
            "SummaryEncoder or TabularEncoder for ordinary columns"
        )
    if not table.series and all(name == target for name in table.names):
        raise TableError("there is nothing to encode: the table has no column but the target")


def _refuse_new(table: Table, variable: Variable) -> None:
    """TableError if the column has categories that were not there in training."""
    if not variable.size:
        return
    codes = np.unique(table.values[:, table.schema.index(variable.name)])
    for code in codes[~np.isnan(codes)]:
        value = table.schema[variable.name].decode(float(code))
        try:
            variable.encode(value)
        except QueryError as error:
            raise TableError(
                f"column {variable.name!r}: a category that was not there in training: {error}; "
                "correct the values, give them as missing, or learn again with such rows"
            ) from None


def _ended(array: Series, steps: int) -> Series:
    """Without steps after the last one, if no row has a value there."""
    while array.shape[1] > steps and np.isnan(array[:, -1]).all():
        array = array[:, :-1]
    return array


def _nothing() -> tuple[Floats, Floats]:
    return np.zeros(0, np.float32), np.ones(0, np.float32)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"

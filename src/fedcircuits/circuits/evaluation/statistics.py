"""A batch of rows as leaves read it: one matrix of the statistics of all linear families.

Columns of a row become rows of the matrix T: for every family and number of categories, its
statistics of every variable it models anywhere in the circuit; behind them, where values are
missing, one row a variable that is 1 where it is seen, and one that is 1 where it is not. So a
leaf, its constant under missing values and its mode are all coefficients on rows of T.

Families that allow it (Gaussian) see their variables shifted and scaled to about 0 and 1, by a
frame taken from the parameters: the products then stay exact in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcircuits.circuits.evaluation.layout import Limits, looked_up
from fedcircuits.circuits.graph.circuit import CIRCUIT, Circuit
from fedcircuits.circuits.graph.family import Array, Arrays, LinearFamily, family
from fedcircuits.circuits.graph.parameters import Parameters

LIMITS = {torch.float32: 1e16, torch.float64: 1e150}  # where squares are still finite
PIECE = 1 << 13  # numbers whose moments are taken at once


@dataclass(frozen=True, slots=True)
class Frame:
    """x is seen as (x − shift) / scale by one cell's variables."""

    shift: Array
    scale: Array


@dataclass(frozen=True, slots=True)
class Cell:
    """The variables that one linear family models with one number of categories."""

    rule: LinearFamily
    variables: tuple[int, ...]
    start: int  # first row in T: statistic s of variable i is row start + s · len + i
    width: int
    template: Mapping[str, Tensor]  # parameters of the right shape, for `statistics`


@dataclass(frozen=True, slots=True)
class Columns:
    cells: Mapping[tuple[str, int], Cell]
    rows: int  # statistics in all; the masks follow
    variables: int

    @classmethod
    def of(cls, circuit: Circuit, limits: Limits) -> Columns:
        schema = circuit.schema
        columns: dict[tuple[str, int], dict[int, None]] = {}
        for leaf in circuit.leaves():
            if leaf.family == CIRCUIT or looked_up(leaf, circuit, limits):
                continue
            if isinstance(family(leaf.family), LinearFamily):
                key = (leaf.family, schema[leaf.scope[0]].levels)
                columns.setdefault(key, {}).update((schema.index(v), None) for v in leaf.scope)
        cells, start = {}, 0
        for key, members in columns.items():
            rule, variables = family(key[0]), tuple(sorted(members))
            assert isinstance(rule, LinearFamily)
            first = schema.variables[variables[0]]
            shapes = {n: [1 if s is None else s for s in t] for n, t in rule.shapes(first).items()}
            template = {n: torch.ones(shape) for n, shape in shapes.items()}
            cells[key] = Cell(rule, variables, start, rule.width(first), template)
            start += cells[key].width * len(variables)
        return cls(cells, start, len(schema))

    # ------------------------------------------------------------------ frames

    def frames(self, circuit: Circuit, parameters: Parameters) -> dict[tuple[str, int], Frame]:
        """Shift and scale of every variable, from what the leaves say of it."""
        return {
            key: frame
            for key, cell in self.cells.items()
            if (frame := _frame(key, cell, circuit, parameters)) is not None
        }

    # ------------------------------------------------------------------ batches

    def read(
        self, x: Tensor, frames: Mapping[tuple[str, int], Frame], dtype: torch.dtype
    ) -> Inputs:
        """The statistics of rows x (batch, variables)."""
        seen = None
        if bool(torch.isnan(x.sum())):
            present = ~torch.isnan(x)
            seen = present.t().to(dtype).contiguous() if not bool(present.all()) else None
        columns = torch.nan_to_num(x, nan=0.0).t().contiguous() if seen is not None else x.t()
        parts = [self._cell(key, columns, seen, frames.get(key), dtype) for key in self.cells]
        if seen is not None:
            parts += [seen, 1 - seen]
        matrix = torch.cat(parts) if len(parts) > 1 else torch.zeros(0, len(x), dtype=dtype)
        matrix = parts[0].contiguous() if len(parts) == 1 else matrix
        return Inputs(x, matrix, seen, self.rows, self.variables)

    def _cell(
        self,
        key: tuple[str, int],
        columns: Tensor,
        seen: Tensor | None,
        frame: Frame | None,
        dtype: torch.dtype,
    ) -> Tensor:
        cell = self.cells[key]
        everything = len(cell.variables) == self.variables
        x = columns if everything else columns[list(cell.variables)]
        if frame is not None:
            shift, scale = (torch.as_tensor(a).to(x)[:, None] for a in (frame.shift, frame.scale))
            x = (x - shift).div_(scale)
        statistics = cell.rule.statistics(bounded(x, dtype), cell.template)  # (S, variables, batch)
        if seen is not None:
            statistics = statistics * (seen if everything else seen[list(cell.variables)])
        return statistics.reshape(-1, x.shape[1])


def bounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in another type; values too large for it are read as the largest that are not."""
    return x.to(dtype).clamp(-LIMITS[dtype], LIMITS[dtype])


def _frame(
    key: tuple[str, int], cell: Cell, circuit: Circuit, parameters: Parameters
) -> Frame | None:
    size = len(circuit.schema)
    n, first, second = np.zeros(size), np.zeros(size), np.zeros(size)
    leaves = [leaf for leaf in circuit.leaves() if leaf.family == key[0]]
    if cell.rule.affine(parameters[leaves[0].name], np.zeros(1), np.ones(1)) is None:
        return None
    where = [[circuit.schema.index(v) for v in leaf.scope] for leaf in leaves]
    index = np.concatenate([np.tile(w, leaf.units) for w, leaf in zip(where, leaves, strict=True)])
    joined = {
        name: np.concatenate([parameters[leaf.name][name].reshape(-1) for leaf in leaves])
        for name in parameters[leaves[0].name]
    }
    mean, square = _moments(cell.rule, joined, len(index))
    np.add.at(n, index, 1.0)
    np.add.at(first, index, mean)
    centre = first / np.maximum(n, 1)
    square -= mean**2
    mean -= centre[index]
    square += np.square(mean, out=mean)
    np.add.at(second, index, square)
    scale = np.sqrt(second / np.maximum(n, 1))
    members = list(cell.variables)
    scale = np.where((scale > 0) & np.isfinite(scale), scale, 1.0)
    return Frame(centre[members], scale[members])


def _moments(rule: LinearFamily, parameters: Arrays, number: int) -> tuple[Array, Array]:
    """Means of the values and of their squares, by pieces."""
    mean, square = np.empty(number), np.empty(number)
    for a in range(0, number, PIECE):
        piece = slice(a, a + PIECE)
        part = {n: v[piece] for n, v in parameters.items()}
        _, mean[piece], square[piece] = rule.moments(part, -np.inf, np.inf)
    return mean, square


@dataclass(frozen=True, slots=True)
class Inputs:
    x: Tensor  # (batch, variables), NaN where missing
    matrix: Tensor  # T (statistics [+ seen + unseen], batch)
    seen: Tensor | None  # (variables, batch) of 0 and 1; None: everything is seen
    statistics: int
    variables: int
    given: Tensor | None = None  # (units of given leaves, batch): log-values found elsewhere

    @property
    def seen_row(self) -> int:
        return self.statistics

    @property
    def unseen_row(self) -> int:
        return self.statistics + self.variables

    def values(self, which: Tensor) -> Inputs:
        """Some rows of the batch, without their statistics."""
        seen = None if self.seen is None else self.seen[:, which]
        return Inputs(self.x[which], self.matrix[:0], seen, self.statistics, self.variables)

    def unseen(self) -> frozenset[int]:
        """Columns that no row has."""
        if self.seen is None:
            return frozenset()
        return frozenset(torch.nonzero(~self.seen.any(1))[:, 0].tolist())

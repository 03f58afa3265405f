"""Counts of few rows are not shown.

A model can be queried repeatedly, and counts of rows can be inferred from the answers. Among counts
over categories or bins, those below the least count are therefore pooled:

    their rows together reach it      they are distributed by given shares, such as the table's
    they do not, and others do        they count as 0, and the others are scaled to all rows
    none reaches it                   all rows are distributed by the shares

Answers then do not depend on which of the pooled categories a row has; where at most one category
is left, neither on whether any row has one of the others. Where two or more are left, their exact
shares may still show, to somebody who knows the number of rows, how many rows have none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcircuits.circuits.graph.family import Array
from fedcircuits.tables.table import Table

ROUNDING = 1e-6  # of weights of rows that are added up


def pooled(counts: Array, least: int, shares: Array | None = None) -> Array:
    """Counts (…, categories) in which none of fewer than ``least`` rows is shown."""
    if least <= 1:
        return counts
    rare = counts < least - ROUNDING
    spread = rare * (np.ones_like(counts) if shares is None else shares)
    spread = spread / np.maximum(spread.sum(axis=-1, keepdims=True), 1e-300)
    few = np.where(rare, counts, 0.0).sum(axis=-1, keepdims=True)
    common = np.where(rare, 0.0, counts)
    left = common.sum(axis=-1, keepdims=True)
    dropped = (few < least - ROUNDING) & (left > 0)
    scale = np.where(dropped, (left + few) / np.maximum(left, 1e-300), 1.0)
    return np.asarray(common * scale + np.where(dropped, 0.0, few) * spread)


def without_few(values: Array, least: int) -> Array:
    """Columns (rows, columns) with fewer values than ``least`` have none."""
    enough = (~np.isnan(values)).sum(axis=0) >= least
    return values if enough.all() else np.where(enough, values, np.nan)


def rare_mixed(table: Table, least: int) -> Table:
    """Rows with a rare category get the rare categories cyclically: what is learned depends on
    whether a row has one of them, and not on which."""
    values = table.values.copy()
    for column, variable in zip(values.T, table.schema, strict=True):
        if variable.size:
            known = column[~np.isnan(column)].astype(np.int64)
            rare = np.flatnonzero(np.bincount(known, minlength=variable.size) < least)
            at = np.flatnonzero(np.isin(column, rare))
            column[at] = rare[np.arange(len(at)) % max(len(rare), 1)]
    return Table(table.schema, values, table.row_ids)


@dataclass(frozen=True, slots=True)
class RareValues:
    """Codes of a column that few rows have, and which ones rows get in turn in their place. A
    column without any such code has few values: all of them are missing."""

    column: int
    codes: tuple[int, ...]
    instead: tuple[int, ...]

    @classmethod
    def of(cls, column: int, counts: Array, least: int, ordered: bool) -> Sequence[RareValues]:
        """Of one column with so many rows of each code: rare ones are mixed if they are enough
        together, else they become the commonest. Rare numbers are mixed with their neighbours, as
        few as are enough together, else they become the next common one."""
        if counts.sum() < least:
            return [cls(column, (), ())]
        rare = np.flatnonzero((counts > 0) & (counts < least)).tolist()
        common = np.flatnonzero(counts >= least)
        if not ordered:
            mixed = counts[rare].sum() >= least
            return [cls(column, tuple(rare), tuple(rare) if mixed else (int(counts.argmax()),))]
        pooled = []
        for run in _runs(counts, least):
            mixed = counts[list(run)].sum() >= least
            for codes in [run] if mixed else [(code,) for code in run]:
                near = int(common[np.abs(common - codes[0]).argmin()]) if len(common) else codes[0]
                pooled.append(cls(column, codes, codes if mixed else (near,)))
        return pooled


def _runs(counts: Array, least: int) -> list[tuple[int, ...]]:
    """Neighbouring rare codes, as few as have the least count of rows together; what is left beside
    a common code joins the run before it, if there is one."""
    runs: list[tuple[int, ...]] = []
    for part in np.split(np.arange(len(counts)), np.flatnonzero(counts >= least)):
        codes = part[counts[part] < least]
        first, begun, rows = len(runs), list[int](), 0.0
        for code, count in zip(codes.tolist(), counts[codes].tolist(), strict=True):
            begun.append(code)
            rows += count
            if rows >= least:
                runs.append(tuple(begun))
                begun, rows = [], 0.0
        if len(runs) > first:
            runs[-1] += tuple(begun)
        elif rows > 0:
            runs.append(tuple(begun))
    return runs


def without_rare(values: Array, rare: Sequence[RareValues]) -> Array:
    """Values (rows, columns) as they may be learned from."""
    values, by_column = values.copy(), dict[int, list[RareValues]]()
    for one in rare:
        by_column.setdefault(one.column, []).append(one)
    for number, ones in by_column.items():
        column = values[:, number]
        if not all(one.instead for one in ones):
            column[:] = np.nan
        replaced = np.array([code for one in ones for code in one.codes], np.int64)
        owner = np.full(1 + replaced.max(initial=0), -1)
        owner[replaced] = np.repeat(np.arange(len(ones)), [len(one.codes) for one in ones])
        codes = np.where(column < len(owner), column, -1).astype(np.int64)  # NaN: −1
        at = np.flatnonzero((codes >= 0) & (owner[codes] >= 0))
        instead = np.array([code for one in ones for code in one.instead], np.float64)
        sizes = np.array([len(one.instead) for one in ones])
        which = owner[codes[at]]
        column[at] = instead[(np.cumsum(sizes) - sizes)[which] + at % sizes[which]]
    return values

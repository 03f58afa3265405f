"""Differences between the columns of two tables, one by one and in pairs.

Columns are compared in bins: one per class; for a number, at most ten bins between quantiles of
the first table; and one for missing values.

    distance of a column    total variation, ½ Σ |p − q|: 0 if equal, 1 if disjoint
    dependence of a pair    mutual information over the smaller of the two entropies: 0 if
                            independent, 1 if one determines the other. With few rows in many bins
                            it is positive by chance; the expected bias is subtracted
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.family import Array
from fedcircuits.tables.schema import Variable
from fedcircuits.tables.table import Table

BINS = 10
MOST_COLUMNS = 40  # of which all pairs are compared
Codes = npt.NDArray[np.int64]


def bin_ends(variable: Variable, column: Array) -> Array:
    """The ends of the bins of a number: quantiles of its known values."""
    known = column[~np.isnan(column)]
    if len(known) == 0:
        return np.zeros(0)
    return np.unique(np.quantile(known, np.arange(1, BINS) / BINS))


def binned(variable: Variable, column: Array, ends: Array) -> Codes:
    """Bins (rows,); missing values are in the last one."""
    gaps = np.isnan(column)
    if variable.size:
        return np.where(gaps, variable.size, np.nan_to_num(column)).astype(np.int64)
    return np.where(gaps, len(ends) + 1, np.searchsorted(ends, column, side="left"))


def columns_in_bins(first: Table, second: Table) -> tuple[list[Codes], list[Codes], list[int]]:
    """The bins of every column in two tables of one schema, and their numbers."""
    one, two, sizes = [], [], []
    for i, variable in enumerate(first.schema):
        ends = bin_ends(variable, first.values[:, i])
        one.append(binned(variable, first.values[:, i], ends))
        two.append(binned(variable, second.values[:, i], ends))
        sizes.append((variable.size or len(ends) + 1) + 1)
    return one, two, sizes


def distances(first: Table, second: Table) -> pd.Series:
    """Total variation by column."""
    one, two, sizes = columns_in_bins(first, second)
    return pd.Series({
        name: float(np.abs(_shares(a, n) - _shares(b, n)).sum() / 2)
        for name, a, b, n in zip(first.names, one, two, sizes, strict=True)
    }, dtype=np.float64)  # fmt: skip


def pairs(first: Table, second: Table) -> pd.DataFrame:
    """Dependence of every pair of columns in both tables, sorted by that in the first.

    Wide tables are limited to the first 40 columns.
    """
    one, two, sizes = columns_in_bins(first, second)
    names = first.names[:MOST_COLUMNS]
    rows = [
        (names[i], names[j], *(dependence(t[i], t[j], sizes[i], sizes[j]) for t in (one, two)))
        for i, j in itertools.combinations(range(len(names)), 2)
    ]
    frame = pd.DataFrame(rows, columns=["column", "with", "first", "second"])
    frame["difference"] = (frame["first"] - frame["second"]).abs()
    return frame.sort_values("first", ascending=False, ignore_index=True, kind="stable")


def dependence(a: Codes, b: Codes, n: int, m: int) -> float:
    """Normalised mutual information, minus its expected value for independent columns."""
    joint = np.bincount(a * m + b, minlength=n * m).reshape(n, m) / len(a)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    information = _entropy(p) + _entropy(q) - _entropy(joint.ravel())
    freedom = (np.count_nonzero(p) - 1) * (np.count_nonzero(q) - 1)
    information -= freedom / (2 * len(a))  # Miller and Madow
    least = min(_entropy(p), _entropy(q))
    return float(np.clip(information / least, 0, 1)) if least > 0 else 0.0


def _shares(codes: Codes, bins: int) -> Array:
    return np.bincount(codes, minlength=bins) / len(codes)


def _entropy(p: Array) -> float:
    seen = p[p > 0]
    return float(-(seen * np.log(seen)).sum())

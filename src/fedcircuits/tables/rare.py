"""Pooling of rare categories: a category that only one patient has would identify this patient to
whoever learns the categories of a column.

In a column of texts, all categories with fewer than a given number of rows become one, "other"; so
do those without any row, so that few rows cannot be told from none. Rare numbers become missing
values. Booleans, and words for yes and no, are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedcircuits.tables.columns import Floats
from fedcircuits.tables.schema import OTHER, Schema, Variable
from fedcircuits.tables.table import Table
from fedcircuits.tables.truths import truth_of


def pool_rare(
    table: Table, least: int, declared: Collection[str] = ()
) -> tuple[Table, tuple[str, ...]]:
    """The table with categories of fewer than ``least`` rows pooled, and the columns that changed.
    Those of ``declared`` columns are known to everybody.

    >>> table = Table.of({"town": ["ash", "ash", "elm", "oak"]})
    >>> pooled, columns = pool_rare(table, 2)
    >>> pooled.column("town").tolist(), columns
    (['ash', 'ash', 'other', 'other'], ('town',))
    """
    variables, columns, changed = [], [], []
    for variable, x in zip(table.schema, table.values.T, strict=True):
        known = variable.name in declared
        new, codes = (variable, x) if known else _pooled(variable, x, least)
        variables.append(new)
        columns.append(codes)
        changed += [variable.name] if new != variable else []
    if not changed:
        return table, ()
    values = np.column_stack(columns)
    return replace(table, schema=Schema(tuple(variables)), values=values), tuple(changed)


def _pooled(variable: Variable, x: Floats, least: int) -> tuple[Variable, Floats]:
    words = variable.size <= 2 and all(truth_of(str(c)) is not None for c in variable.categories)
    if variable.kind != "category" or words:
        return variable, x
    known = ~np.isnan(x)
    rows = np.bincount(x[known].astype(np.int64), minlength=variable.size)
    kept = [c for c, n in zip(variable.categories, rows, strict=True) if n >= least or c == OTHER]
    if len(kept) == variable.size:
        return variable, x
    text = all(isinstance(c, str) for c in variable.categories)
    if (text and OTHER not in kept) or not kept:
        kept.append(OTHER)
    others = kept.index(OTHER) if OTHER in kept else np.nan
    code = np.array([kept.index(c) if c in kept else others for c in variable.categories])
    codes = np.full(len(x), np.nan)
    codes[known] = code[x[known].astype(np.int64)]
    return replace(variable, categories=tuple(kept)), codes

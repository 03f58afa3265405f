"""Rows in the columns of a model, joined if several parties hold parts of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from fedcircuits.errors import TableError
from fedcircuits.estimators.questions import refuse_misspelt
from fedcircuits.federation.doubts import nearly_met, with_ids
from fedcircuits.tables.declared import DeclaredReading
from fedcircuits.tables.frames import columns_of
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

DECLARED_NOTHING = DeclaredReading()


def rows_of(
    data: object,
    schema: Schema,
    row_id: str | None = None,
    reading: DeclaredReading = DECLARED_NOTHING,
) -> Table:
    """Rows in the codes of ``schema``, from anything that ``Table.of`` accepts. Absent columns
    are missing values; TableError is raised for a column whose name nearly matches one."""
    if not isinstance(data, Table | np.ndarray):
        names = [str(name) for name in columns_of(data, None, row_id) if name != row_id]
        refuse_misspelt(names, schema, None)
    table = Table.of(
        data,
        schema=schema,
        partial=True,
        row_id=row_id,
        decimal=reading.decimal,
        dates=reading.dates,
    )
    return with_ids(table, reading)


def joined(parts: Mapping[str, Table]) -> Table:
    """One table of the rows of several parties, in one schema.

    Rows with the same id become one row; if several parties hold a value, the first one counts.
    Without row ids the rows are concatenated: then one party must have all columns that any of
    them has.
    """
    tables = list(parts.values())
    if len(tables) == 1:
        return tables[0]
    if all(t.row_ids is None for t in tables):
        held = [~np.isnan(t.values).all(axis=0) for t in tables]
        if not any((h >= np.any(held, axis=0)).all() for h in held):
            raise TableError(
                f"{', '.join(parts)} hold different columns: name the column that says which of "
                "their rows belong together (--row-id)"
            )
        return Table(tables[0].schema, np.concatenate([t.values for t in tables]))
    ids = {n: [*map(str, t.row_ids.tolist())] for n, t in parts.items() if t.row_ids is not None}
    for words in nearly_met(ids):
        warnings.warn(f"{words}: write them alike, or give --ids loose", UserWarning, stacklevel=3)
    places: dict[object, int] = {}
    pieces = [
        [places.setdefault(i, len(places)) for i in t.row_ids.tolist()]
        for t in tables
        if t.row_ids is not None
    ]
    values = np.full((len(places), len(tables[0].schema)), np.nan)
    for rows, table in zip(pieces, tables, strict=True):
        values[rows] = np.where(np.isnan(values[rows]), table.values, values[rows])
    return Table(tables[0].schema, values, np.array(list(places)))


def seen_before(test: Table, train: Table) -> int:
    """How many test rows are training rows: those with the same id, if rows have one, and the same
    values in all columns of test rows. Rows without ids are told apart by real columns alone."""
    held = np.asarray(~np.isnan(test.values).all(axis=0))
    if test.row_ids is not None and train.row_ids is not None:
        ids = [[*map(str, own.tolist())] for own in (test.row_ids, train.row_ids)]
    elif any(v.kind == "real" for v, known in zip(test.schema, held, strict=True) if known):
        ids = [[""] * len(test), [""] * len(train)]
    else:
        return 0
    rows = (np.nan_to_num(table.values[:, held], nan=np.inf) + 0.0 for table in (test, train))
    asked, known = ([(name, row.tobytes()) for name, row in zip(names, values, strict=True)]
                    for names, values in zip(ids, rows, strict=True))  # fmt: skip
    every = set(known)
    return sum(row in every for row in asked)

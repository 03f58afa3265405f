"""y beside X, as scikit-learn hands it over: one more column of the table, and how it is judged."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.errors import FederationError, QueryError, TableError
from fedcircuits.learning.batches import ParquetRows
from fedcircuits.tables.inference import StatedKind
from fedcircuits.tables.schema import Scalar, Schema
from fedcircuits.tables.table import Table

TARGET = "target"  # its name where nobody has given it one
CLASSES = 20  # at most: more whole numbers than these are a count

Values = npt.NDArray[np.generic]


def with_target(
    X: object,
    y: object,
    name: str | None = None,
    schema: Schema | None = None,
    kind: StatedKind | None = None,
    categories: Sequence[Scalar] | None = None,
) -> tuple[Table, str]:
    """X with y as its last column, and the name of that column: the one that is given, or that a
    Series has, else "target". ``schema`` is of both, ``kind`` and ``categories`` are y's; without
    them few whole numbers are classes, as for scikit-learn."""
    if isinstance(X, ParquetRows | str | os.PathLike):
        raise TableError(
            "y is for rows in memory: if the file has the column, name it, target='…', without y"
        )
    rest = None if schema is None or name is None else _without(schema, name)
    table = Table.of(X, schema=rest)
    values = one_column(y, len(table))
    chosen = name if name is not None else named(y) or TARGET
    if pd.isna(values).all():
        raise TableError("every value of y is missing: there is nothing to learn to predict")
    if schema is None and kind is None and _are_labels(values):
        kind = "category"
    if chosen in table.names:
        raise TableError(
            f"X has a column {chosen!r}, and y is given as well: drop it from X, give no y, or "
            "give y another name, target='…'"
        )
    target = Table.of(
        pd.DataFrame({chosen: values}),
        schema=None if schema is None else schema.select([chosen]),
        kinds=None if kind is None else {chosen: kind},
        categories=None if categories is None else {chosen: categories},
    )
    joined = Schema((*table.schema.variables, *target.schema.variables))
    rows = np.column_stack([table.values, target.values])
    whole = Table(joined, rows, table.row_ids, table.series, (*table.readings, *target.readings))
    return (whole if schema is None else whole.select(schema.names)), chosen


def _are_labels(values: Values) -> bool:
    return values.dtype.kind in "iu" and len(np.unique(values)) <= CLASSES


def named(y: object) -> str | None:
    """The name of a Series."""
    name = getattr(y, "name", None)
    return None if name is None else str(name)


def _without(schema: Schema, name: str) -> Schema:
    schema.index(name)
    return schema.select([n for n in schema.names if n != name])


def one_column(y: object, rows: int) -> Values:
    """y as (rows,), in its own values."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (rows,):
        raise TableError(
            f"y must have one value for each of the {rows} rows of X, got the shape {values.shape}"
        )
    return values


def refuse_y(y: object) -> None:
    """Federations hold their targets themselves."""
    if y is not None:
        raise FederationError(
            "y is not used: in a federation the target is a column of a party; name it, target='…'"
        )


def judged(predicted: Values, y: object, classes: bool) -> float:
    """Accuracy of classes, R² of numbers: what scikit-learn's ``score`` is."""
    truth = one_column(y, len(predicted))
    if classes:
        return float(np.mean(predicted.astype(object) == truth.astype(object)))
    if len(truth) < 2:
        raise QueryError("R² needs at least two rows, got one")
    real, estimate = truth.astype(np.float64), predicted.astype(np.float64)
    spread, missed = (np.square(real - other).sum() for other in (real.mean(), estimate))
    if spread == 0:
        return 1.0 if missed == 0 else 0.0
    return float(1 - missed / spread)

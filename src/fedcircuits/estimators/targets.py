"""The column to predict: y passed beside X, as in scikit-learn, and how predictions are scored.

Kinds of columns are inferred from their values: labels 0, 1 and 2 look like counts, or like reals
if one of them is missing. A target of a few whole numbers is usually a class label, so it is
treated as one (task="auto") unless the user says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.arguments import Choice
from fedcircuits.circuits.graph.family import Array
from fedcircuits.errors import FederationError, QueryError, TableError
from fedcircuits.learning.batches import ParquetRows
from fedcircuits.methods.meeting.task import TargetTask
from fedcircuits.tables.inference import StatedKind
from fedcircuits.tables.schema import Scalar, Schema, Variable
from fedcircuits.tables.table import Table

TARGET = "target"  # the default name of y
CLASSES = 20  # at most; more distinct whole numbers are a count

Values = npt.NDArray[np.generic]


def with_target(
    X: object,
    y: object,
    name: str | None = None,
    schema: Schema | None = None,
    kind: StatedKind | None = None,
    categories: Sequence[Scalar] | None = None,
) -> tuple[Table, str]:
    """X with y as its last column, and the name of that column: ``name``, the name of the Series,
    or "target". ``schema`` describes both, ``kind`` and ``categories`` describe y; without them a
    few distinct whole numbers are classes, as in scikit-learn."""
    if isinstance(X, ParquetRows | str | os.PathLike):
        raise TableError(
            "y works for rows in memory only: if the file has the column, give target='…' instead "
            "of y"
        )
    rest = None if schema is None or name is None else _without(schema, name)
    table = Table.of(X, schema=rest)
    values = one_column(y, len(table))
    chosen = name if name is not None else named(y) or TARGET
    if pd.isna(values).all():
        raise TableError("all values of y are missing: there is nothing to learn to predict")
    integers = values.dtype.kind in "iu"
    if schema is None and kind is None and integers and len(np.unique(values)) <= CLASSES:
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


def named(y: object) -> str | None:
    """The name of a Series."""
    name = getattr(y, "name", None)
    return None if name is None else str(name)


def _without(schema: Schema, name: str) -> Schema:
    schema.index(name)
    return schema.select([n for n in schema.names if n != name])


def one_column(y: object, rows: int) -> Values:
    """y as an array (rows,) of the user's values."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (rows,):
        raise TableError(
            f"y must have one value for each of the {rows} rows of X, got the shape {values.shape}"
        )
    return values


def accuracy_or_r2(predicted: Values, y: object, classes: bool) -> float:
    """Accuracy of classes or R² of numbers, as ``score`` in scikit-learn."""
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


Task: TypeAlias = Literal["auto", "classes", "number"]
TASK = Choice(*get_args(Task))


def task_of_parties(schema: Schema, name: str | None, task: Task) -> TargetTask:
    """What the parties decide about the target when they meet (methods/meeting/task.py)."""
    TASK.check("task", task, FederationError)
    if not isinstance(name, str) or name not in schema:
        return "given"  # it is refused later
    variable = schema[name]
    if task == "number":
        _refuse_text(variable)
        return "number" if variable.size else "given"
    return "given" if variable.size else task


def _refuse_text(variable: Variable) -> None:
    if any(isinstance(c, str) for c in variable.categories):
        raise FederationError(
            f"task='number': {variable.name!r} is {variable.described()}, and text is no number"
        )


def score_predictions(
    variable: Variable, predicted: Array | npt.NDArray[np.int64], truth: Array
) -> float:
    """Accuracy of classes or R² of numbers; rows whose true value is NaN are ignored."""
    known = ~np.isnan(truth)
    if not known.any():
        raise QueryError(f"no row has a value of {variable.name!r} to compare predictions with")
    predicted, truth = predicted[known], truth[known]
    if variable.size:
        return float((predicted == truth).mean())
    spread = np.square(truth - truth.mean()).sum()
    return float(1 - np.square(truth - predicted).sum() / spread) if spread else 0.0

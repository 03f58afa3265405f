"""Between the user's values and the circuit's numbers: rows, events, answers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.distribution import Explanation
from fedcircuits.circuits.events import parse_event, parse_evidence
from fedcircuits.circuits.family import Array
from fedcircuits.circuits.regions import Event, conjunction, of_codes
from fedcircuits.circuits.schema import Scalar, Schema
from fedcircuits.errors import QueryError, TableError
from fedcircuits.learning.table import Table

AnyRows = TypeVar("AnyRows", pd.DataFrame, Table, npt.NDArray[np.generic])


def is_rows(given: object) -> bool:
    return given is not None and not isinstance(given, str | Mapping)


def index_of(given: object) -> pd.Index | None:
    return given.index if isinstance(given, pd.DataFrame) else None


def values_of(X: object, schema: Schema, ignore: str | None = None) -> Array:
    """X in the circuit's numbers (rows, variables); absent columns are NaN.

    ``ignore`` is a column whose values do not count: it is NaN, whatever X has there.
    """
    if isinstance(X, pd.DataFrame):
        _refuse_misspelt(X, schema)
        X = X.drop(columns=[ignore]) if ignore in X.columns else X
    elif isinstance(X, np.ndarray) and X.ndim == 2 and ignore is not None:
        X = _spread(X, schema, ignore)
    values = Table.of(X, schema=schema, partial=True).values
    if ignore is not None:
        values = values.copy()
        values[:, schema.index(ignore)] = np.nan
    return values


def _spread(X: npt.NDArray[np.generic], schema: Schema, ignore: str) -> npt.NDArray[np.generic]:
    """An array without the target's column gets an empty one in its place."""
    at = schema.index(ignore)
    if X.shape[1] == len(schema) - 1:
        return np.insert(X.astype(object), at, None, axis=1)
    X = X.astype(object)
    if X.shape[1] == len(schema):
        X[:, at] = None
    return X


def _refuse_misspelt(X: pd.DataFrame, schema: Schema) -> None:
    """A column that is nearly one the model misses is a slip, not an extra."""
    names = [str(c) for c in X.columns]
    absent = [n for n in schema.names if n not in names]
    if len(absent) == len(schema):
        raise TableError(
            f"X has none of the model's columns: expected {', '.join(schema.names[:8])}, "
            f"got {', '.join(names[:8])}"
        )
    for name in names:
        near = difflib.get_close_matches(name, absent, n=1, cutoff=0.85)
        if name not in schema and near:
            raise TableError(
                f"X has a column {name!r}, the model has {near[0]!r}, which X lacks: "
                "rename it, or drop it to have it summed out"
            )


def event_of(event: str | Mapping[str, object], schema: Schema) -> Event:
    """An event from text, or from a mapping of names to values, (low, high) or sets."""
    if isinstance(event, str):
        return parse_event(event, schema)
    known = parse_evidence(event, schema)
    asked = known.event
    for name, value in known.values.items():
        if not schema[name].discrete:
            raise QueryError(
                f"{name!r} is real: an exact value has probability zero; "
                f"ask for an interval, such as {{{name!r}: ({value - 0.5:g}, {value + 0.5:g})}}"
            )
        asked = conjunction(asked, ({name: of_codes([int(value)])},))
    return asked


def classes(target: str, schema: Schema) -> tuple[Scalar, ...]:
    variable = schema[target]
    if not variable.size:
        raise QueryError(
            f"{target!r} is a {variable.kind}: it has no classes; "
            "use predict for its conditional mean or probability for an interval"
        )
    return variable.categories


def require_numbers(names: Sequence[str], schema: Schema) -> None:
    for name in names:
        if schema[name].kind == "category":
            raise QueryError(
                f"{name!r} is a category: it has no mean; "
                f"use predict_proba(X, {name!r}) or probability(\"{name} = …\")"
            )


def like(X: AnyRows, explained: Explanation, schema: Schema) -> AnyRows:
    """The completed rows in the form that X has."""
    filled = Table(schema, explained.values)
    if isinstance(X, Table):
        return Table(schema, explained.values, X.row_ids)
    frame = filled.to_pandas()
    if isinstance(X, pd.DataFrame):
        frame.index = X.index
        frame.attrs["exact"] = explained.exact
        return frame
    found = frame.to_numpy()
    return found.astype(X.dtype) if np.issubdtype(X.dtype, np.number) else found

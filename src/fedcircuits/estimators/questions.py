"""Conversion between the user's values and the circuit's codes: rows, events, answers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedcircuits.circuits.graph.family import Array
from fedcircuits.circuits.questions.events import Evidence, parse_event, parse_evidence
from fedcircuits.circuits.questions.queryable import Explanation
from fedcircuits.circuits.questions.regions import Event, conjunction, of_codes
from fedcircuits.errors import QueryError, TableError
from fedcircuits.tables.frames import columns_of, in_kind_of, is_foreign
from fedcircuits.tables.schema import Scalar, Schema
from fedcircuits.tables.table import Table

AnyModel = TypeVar("AnyModel")
AnyRows = TypeVar("AnyRows", pd.DataFrame, Table, npt.NDArray[np.generic])


def is_rows(given: object) -> bool:
    """Whether evidence is rows, with one answer per row, rather than text or a mapping."""
    if isinstance(given, list | tuple | set | int | float):
        raise QueryError(
            "evidence must be text such as 'age > 40', a mapping of names to values, or rows (a "
            f"DataFrame, Table or array), got {type(given).__name__}"
        )
    return given is not None and not isinstance(given, str | Mapping | Evidence)


def model_of(other: object, kind: type[AnyModel]) -> AnyModel:
    if not isinstance(other, kind):
        raise QueryError(f"expected another fitted model, got {type(other).__name__}")
    return other


def index_of(given: object) -> pd.Index | None:
    if isinstance(given, Table) and given.row_ids is not None:
        return pd.Index(given.row_ids, name="row_id")
    return given.index if isinstance(given, pd.DataFrame) else None


def values_of(
    X: object, schema: Schema, ignore: str | None = None, target: str | None = None
) -> Array:
    """X in the circuit's codes, shape (rows, variables); absent columns are NaN.

    The column ``ignore`` is set to NaN whatever X holds there. Arrays may lack the column
    ``target``.
    """
    single = isinstance(X, np.ndarray) and not X.ndim
    if isinstance(X, pd.DataFrame | Table | np.ndarray) and not single and len(X) == 0:
        raise TableError("X must have at least one row, got none")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.names is None:
        X = _in_place(X, schema, ignore, target)
    elif ignore is not None:
        X = _without(X, ignore)
    if isinstance(X, pd.DataFrame | Table):
        refuse_misspelt([str(c) for c in _names(X)], schema, ignore)
    values = Table.of(X, schema=schema, partial=True).values
    if ignore is not None:
        values = values.copy()
        values[:, schema.index(ignore)] = np.nan
    return values


def _names(X: pd.DataFrame | Table) -> list[object]:
    return list(X.names if isinstance(X, Table) else X.columns)


def _without(X: object, ignore: str) -> object:
    """X without one column, whose values may be categories unknown to the model."""
    if isinstance(X, pd.DataFrame):
        return X.loc[:, [str(c) != ignore for c in X.columns]]
    if isinstance(X, Table) and ignore in X.names:
        return X.select(n for n in X.names if n != ignore)
    return X


def _in_place(
    X: npt.NDArray[np.generic], schema: Schema, ignore: str | None, target: str | None
) -> npt.NDArray[np.generic]:
    """The array with NaN in the column to ignore, which is inserted if the array lacks it."""
    width, names = len(schema), ", ".join(schema.names[:8]) + (", …" if len(schema) > 8 else "")
    absent = target if ignore is None else ignore
    without = absent is not None and X.shape[1] == width - 1
    if X.shape[1] != width and not without:
        fewer = "" if absent is None else f", or {width - 1} without {absent!r}"
        raise TableError(
            f"expected an array of {width} columns ({names}){fewer}, got {X.shape[1]}; "
            "a DataFrame may have fewer, they are found by name"
        )
    if absent is None or (ignore is None and not without):
        return X
    at = schema.index(absent)
    X = X.astype(np.float64 if X.dtype.kind in "biuf" else object)
    if without:
        return np.insert(X, at, np.nan, axis=1)
    X[:, at] = np.nan
    return X


def refuse_misspelt(names: list[str], schema: Schema, ignore: str | None) -> None:
    """TableError for a column whose name nearly matches one that X lacks: it is likely misspelt."""
    absent = {n.strip().casefold(): n for n in schema.names if n not in names}
    absent.pop((ignore or "").strip().casefold(), None)
    if not any(n in schema for n in names):
        raise TableError(
            f"X has none of the model's columns{' beside the target' if ignore else ''}: "
            f"expected {', '.join(schema.names[:8])}, got {', '.join(names[:8]) or 'none'}"
        )
    for name in names if absent else ():
        if name in schema:
            continue
        if near := difflib.get_close_matches(name.strip().casefold(), absent, n=1, cutoff=0.85):
            raise TableError(
                f"X has a column {name!r}, the model has {absent[near[0]]!r}, which X lacks: "
                "rename it, or drop it to have it summed out"
            )


def event_of(event: str | Mapping[str, object] | Event, schema: Schema) -> Event:
    """An event from text, or from a mapping of names to values, (low, high) or sets."""
    if isinstance(event, str):
        return parse_event(event, schema)
    if isinstance(event, tuple) and all(isinstance(box, Mapping) for box in event):
        return event  # parsed already
    if not isinstance(event, Mapping):
        raise QueryError(
            "an event must be text such as 'age > 40' or a mapping of names to values, got "
            f"{type(event).__name__}"
        )
    known = parse_evidence(event, schema)
    parsed = known.event
    for name, value in known.values.items():
        if not schema[name].discrete:
            raise QueryError(
                f"{name!r} is real: an exact value has probability zero; "
                f"ask for an interval, such as {{{name!r}: ({value - 0.5:g}, {value + 0.5:g})}}"
            )
        parsed = conjunction(parsed, ({name: of_codes([int(value)])},))
    return parsed


def classes(target: str, schema: Schema) -> tuple[Scalar, ...]:
    variable = schema[target]
    if not variable.size:
        raise QueryError(
            f"{target!r} is a {variable.kind}: it has no classes; predict returns its mean. If "
            "its numbers are labels, declare it before fit: Table.of(…, "
            f"kinds={{{target!r}: 'category'}})"
        )
    return variable.categories


def require_numbers(names: Sequence[str], schema: Schema) -> None:
    for name in names:
        if schema[name].kind == "category":
            raise QueryError(
                f"{name!r} is a category: it has no mean; "
                f'use predict_proba(X, {name!r}) or probability("{name} = …")'
            )


def like(X: AnyRows, explained: Explanation, schema: Schema) -> AnyRows:
    """The completed rows in the type of X.

    A DataFrame keeps its index, its order and the columns unknown to the model, and columns it
    lacked are appended; frames of polars and pyarrow stay such frames. The array is numeric if all
    values of the model are numbers.
    """
    if isinstance(X, Table):
        return Table(schema, explained.values, X.row_ids)  # type: ignore[return-value]
    frame = Table(schema, explained.values).to_pandas()
    if isinstance(X, np.ndarray):
        return _array_like(X, frame, schema)
    if is_foreign(X):
        known = like(pd.DataFrame(columns_of(X)), explained, schema)
        return in_kind_of(known, X)
    if isinstance(X, pd.DataFrame):
        frame.index = X.index
        columns = {c: frame[str(c)] if str(c) in schema else X[c] for c in X.columns}
        absent = {n: frame[n] for n in schema.names if n not in map(str, X.columns)}
        frame = pd.DataFrame({**columns, **absent}, index=X.index)
        frame.attrs = dict(X.attrs)
    frame.attrs["exact"] = explained.exact
    return frame


def answered_like(given: object, frame: pd.DataFrame) -> pd.DataFrame:
    """Answers in the type of frame of the rows given; two-level column names are joined."""
    if not is_foreign(given):
        return frame
    if isinstance(frame.columns, pd.MultiIndex):
        frame = frame.set_axis([" ".join(names) for names in frame.columns], axis=1)
    return cast(pd.DataFrame, in_kind_of(frame, given))


def _array_like(
    X: npt.NDArray[np.generic], frame: pd.DataFrame, schema: Schema
) -> npt.NDArray[np.generic]:
    texts = any(isinstance(c, str) for v in schema for c in v.categories)
    values: npt.NDArray[np.generic] = frame.to_numpy(dtype=object)
    if texts:
        return values
    return values.astype(X.dtype if np.issubdtype(X.dtype, np.number) else np.float64)

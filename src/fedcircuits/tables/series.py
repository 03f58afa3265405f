"""Series columns: a series per row, as an array (rows, steps, channels), padded with NaN.

They are held beside the ordinary columns of a ``Table`` and are not part of its schema, as no
circuit is a distribution over them. Encoders (encoders.py) read them; other learners refuse them.
Series of different lengths may be given as a list of arrays, one per row: (steps,) or (steps,
channels).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from fedcircuits.errors import TableError
from fedcircuits.tables.schema import Schema

Series = npt.NDArray[np.float32]  # (rows, steps, channels)
NO_SERIES: Mapping[str, Series] = MappingProxyType({})


def rows_of(series: Mapping[str, npt.ArrayLike]) -> int:
    """The number of rows of the first series."""
    if not isinstance(series, Mapping):
        raise TableError(
            f"expected series by name, such as {{'speed': array}}, got {type(series).__name__}"
        )
    for name, given in series.items():
        array = _numbers(name, given)
        if not array.ndim:
            raise TableError(f"series {name!r}: expected an array (rows, steps), got {given!r}")
        return len(array)
    raise TableError("from_series: expected series by name, got none; Table.of needs none")


def checked(series: Mapping[str, npt.ArrayLike], rows: int, schema: Schema) -> dict[str, Series]:
    """The series of a table with this many rows, as float32; (rows, steps) is one channel."""
    columns: dict[str, Series] = {}
    for name, given in series.items():
        array = _numbers(name, given)
        if array.ndim not in (2, 3) or len(array) != rows or 0 in array.shape[1:]:
            raise TableError(
                f"series {name!r}: expected an array of the shape ({rows}, steps) or ({rows}, "
                f"steps, channels), got {array.shape}"
            )
        if name in schema:
            raise TableError(f"{name!r} is the name of a series and of a column: rename one")
        if np.isinf(array).any():
            raise TableError(f"series {name!r}: expected finite numbers or NaN, some are infinite")
        columns[name] = array if array.ndim == 3 else array[:, :, None]
    return columns


def _numbers(name: str, given: npt.ArrayLike) -> Series:
    if not isinstance(name, str) or not name:
        raise TableError(f"the name of a series must be text, got {name!r}")
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is found as infinite
            kind = getattr(getattr(given, "dtype", None), "kind", "")
            if kind == "c":
                raise TypeError("got complex ones")
            if kind == "O" or isinstance(given, list | tuple):
                given = _padded(given)
            return np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise TableError(
            f"series {name!r}: expected an array of numbers (rows, steps, channels), NaN where one "
            f"is shorter, or a list of arrays, one per row: {error}"
        ) from None


def _padded(given: npt.ArrayLike) -> npt.ArrayLike:
    """Rows of different lengths padded with NaN; anything else unchanged."""
    rows = [np.asarray(row, dtype=np.float32) for row in given]  # type: ignore[union-attr]
    if len({row.shape for row in rows}) < 2 or {row.ndim for row in rows} not in ({1}, {2}):
        return given
    steps = max(len(row) for row in rows)
    room = [((0, steps - len(row)), *((0, 0),) * (row.ndim - 1)) for row in rows]
    return np.stack(
        [np.pad(row, pad, constant_values=np.nan) for row, pad in zip(rows, room, strict=True)]
    )


def refuse_series(names: Iterable[str], learner: str, whose: str = "") -> NoReturn:
    """TableError for a learner that reads only ordinary columns."""
    listed = ", ".join(map(repr, names))
    raise TableError(
        f"{learner} cannot learn from series: {listed}{whose}; learn from them with FeatureFusion, "
        "or leave them out: table.select(table.names)"
    )


def described(array: Series) -> str:
    """A short text for the representation of a table."""
    _, steps, channels = array.shape
    missing = float(np.isnan(array).mean())
    gaps = f", {100 * missing:.1f} % missing" if missing else ""
    return f"{steps} steps × {channels} channel{'s' if channels > 1 else ''}{gaps}"

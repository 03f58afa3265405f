"""A party's rows from a file or a database query, in agreed names, codes and units.

columns   agreed name = name in the source; columns not named are left out, unless none is named
codes     per column: agreed value = value in the source; other values are missing
scale     per column: the factor that converts its numbers to the agreed unit
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from fedcircuits.errors import ExtraMissingError, TableError
from fedcircuits.tables.declared import DeclaredReading, contents
from fedcircuits.tables.numerals import Decimal, numbers
from fedcircuits.tables.readers import parquet_table, suffix_of
from fedcircuits.tables.schema import Scalar


def queried(database: str, query: str) -> pd.DataFrame:
    """The rows of a query, read in a transaction that cannot write."""
    scheme = urlsplit(database).scheme
    if scheme == "sqlite":
        path = Path(database.removeprefix("sqlite:///"))
        if not path.is_file():
            raise TableError(f"{path}: there is no such database")
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as line:
                return _rows(line.execute(query))
        except sqlite3.Error as error:
            raise TableError(f"{path}: the query failed: {error}") from None
    if scheme in ("postgres", "postgresql"):
        return _from_postgres(database, query)
    raise TableError(
        f"database: expected postgresql://… or sqlite:///…, got {scheme or database!r}"
    )


def _from_postgres(database: str, query: str) -> pd.DataFrame:
    try:
        import psycopg
    except ImportError as error:
        raise ExtraMissingError(
            "rows of a PostgreSQL database need fedcircuits[sites] (psycopg)"
        ) from error
    host = urlsplit(database).hostname
    try:
        with psycopg.connect(database) as line:
            line.read_only = True
            return _rows(line.execute(query))
    except psycopg.Error as error:
        raise TableError(f"the database at {host}: the query failed: {error}") from None


def _rows(cursor: object) -> pd.DataFrame:
    names = [column[0] for column in cursor.description or ()]  # type: ignore[attr-defined]
    if not names:
        raise TableError("the query gives no rows: expected a SELECT")
    return pd.DataFrame(cursor.fetchall(), columns=names)  # type: ignore[attr-defined]


def mapped(
    frame: pd.DataFrame,
    columns: Mapping[str, str],
    codes: Mapping[str, Mapping[str, Scalar]],
    scale: Mapping[str, float],
    row_id: str | None = None,
    decimal: Decimal = "auto",
) -> pd.DataFrame:
    """The same rows in agreed names, values and units; ``row_id`` is the name in the source."""
    if columns:
        if absent := [local for local in columns.values() if local not in frame]:
            raise TableError(
                f"there is no column {absent[0]!r}: the source has {', '.join(map(str, frame))}"
            )
        kept = {local: agreed for agreed, local in columns.items()}
        if row_id is not None:
            kept.setdefault(row_id, row_id)
        frame = frame[list(kept)].rename(columns=kept)
    for name in (*codes, *scale):
        if name not in frame:
            raise TableError(f"codes and scale name {name!r}, which is no column of this source")
    changed = frame.copy()
    for name, values in codes.items():
        agreed = {str(local): value for value, local in values.items()}
        changed[name] = [agreed.get(str(v), np.nan) for v in frame[name]]
    for name, factor in scale.items():
        changed[name] = _numbers(frame[name], decimal) * factor
    return changed


def _numbers(column: pd.Series, decimal: Decimal) -> pd.Series:
    """The numbers of a column that may be text, with a warning about other values."""
    plain = pd.to_numeric(column, errors="coerce")
    odd = plain.isna() & column.notna()
    if not odd.any():
        return plain
    texts = column.dropna().astype(str)
    levels = list(dict.fromkeys(texts))
    spelled = numbers(levels, decimal, enough=0)
    known = {} if spelled is None else dict(zip(levels, spelled.values, strict=True))
    read = column.astype(object).map(lambda v: known.get(str(v), np.nan)).astype(float)
    lost = int((read.isna() & column.notna()).sum())
    if lost:
        warnings.warn(
            f"column {column.name!r}: {lost:,} values that are no numbers are taken as missing",
            UserWarning,
            stacklevel=4,
        )
    return read


def read_rows(
    path: Path | None, database: str, query: str, reading: DeclaredReading | None = None
) -> pd.DataFrame:
    """The rows of a file or a database; ``reading`` says how a csv file is written."""
    if (path is None) == (not database):
        raise TableError("say where the rows are: either path, or database and query")
    if path is None:
        return queried(database, query)
    match suffix_of(path):
        case ".parquet":
            frame: pd.DataFrame = parquet_table(path).to_pandas()
            return frame
        case ".npz":
            raise TableError(f"{path}: expected a csv or parquet file with names of columns")
    frame = contents(path, reading or DeclaredReading())
    assert isinstance(frame, pd.DataFrame)
    return frame

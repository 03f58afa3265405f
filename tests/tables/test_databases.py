"""Rows of files and databases, in the names, codes and units that parties have agreed on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcircuits.errors import TableError
from fedcircuits.tables.sources import mapped, queried, read_rows
from fedcircuits.tables.table import Table
from tests.tables.postgres import needs_postgres, postgres

ROWS = pd.DataFrame(
    {"patient": [3, 1, 2], "alter": [31, 47, 52], "geschlecht": ["w", "m", "w"],
     "pfund": [150.0, 180.0, None]}
)  # fmt: skip
COLUMNS = {"age": "alter", "sex": "geschlecht", "weight": "pfund"}
CODES: dict[str, dict[str, object]] = {"sex": {"female": "w", "male": "m"}}
SCALE = {"weight": 0.45359237}
CREATE = "CREATE TABLE visits (patient integer, alter_ integer, geschlecht text, pfund float8)"
QUERY = 'SELECT patient, alter_ AS "alter", geschlecht, pfund FROM visits ORDER BY alter_'


def check(frame: pd.DataFrame) -> None:
    table = Table.of(mapped(frame, COLUMNS, CODES, SCALE, "patient"), row_id="patient")  # type: ignore[arg-type]
    assert table.row_ids is not None
    order = np.argsort(table.row_ids.astype(np.int64))
    assert table.schema.names == ("age", "sex", "weight")
    assert table.schema["sex"].categories == ("female", "male")
    pounds = np.array([180, np.nan, 150]) * 0.45359237
    expected = np.column_stack([[47, 52, 31], [1, 0, 0], pounds])
    np.testing.assert_allclose(table.values[order], expected)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        ROWS.to_csv(path, index=False)
    else:
        ROWS.to_parquet(path)
    check(read_rows(path, "", ""))


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "clinic.db"
    with sqlite3.connect(path) as line:
        line.execute(CREATE)
        rows = ROWS.astype(object).where(ROWS.notna(), None).itertuples(index=False)
        line.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", list(rows))
    line.close()
    check(read_rows(None, f"sqlite:///{path}", QUERY))
    with pytest.raises(TableError, match=r"the query failed: .*readonly"):
        queried(f"sqlite:///{path}", "DELETE FROM visits")
    with pytest.raises(TableError, match="no such table"):
        queried(f"sqlite:///{path}", "SELECT * FROM absent")


@needs_postgres
def test_postgres() -> None:
    psycopg = pytest.importorskip("psycopg", reason="needs the extra sites")
    with postgres() as address:
        with psycopg.connect(address) as line:
            line.execute(CREATE)
            for row in ROWS.astype(object).where(ROWS.notna(), None).itertuples(index=False):
                line.execute("INSERT INTO visits VALUES (%s, %s, %s, %s)", tuple(row))
        check(read_rows(None, address, QUERY))
        with pytest.raises(TableError, match=r"the query failed: .*read-only transaction"):
            queried(address, "DELETE FROM visits RETURNING patient")
        with pytest.raises(TableError, match="absent"):
            queried(address, "SELECT * FROM absent")
        with pytest.raises(TableError, match="expected a SELECT"):
            queried(address, "SET search_path TO public")


def test_what_the_mapping_lacks_is_named() -> None:
    with pytest.raises(TableError, match="there is no column 'gewicht': the source has patient"):
        mapped(ROWS, {"weight": "gewicht"}, {}, {})
    with pytest.raises(TableError, match="codes and scale name 'height'"):
        mapped(ROWS, {}, {}, {"height": 2.0})
    with pytest.raises(TableError, match="either path, or database and query"):
        read_rows(None, "", "")
    with pytest.raises(TableError, match=r"expected postgresql://… or sqlite:///…, got 'mysql'"):
        queried("mysql://host/db", "SELECT 1")

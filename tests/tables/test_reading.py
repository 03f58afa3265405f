"""What is made of the columns of a messy file, and that nothing of it is silent."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcircuits.errors import QueryError, TableError
from fedcircuits.tables.table import Table

ROWS = 60


def hospital(rng: np.random.Generator) -> dict[str, list[str]]:
    """Columns as a German hospital exports them."""
    days = [f"{d:02d}.{m:02d}.{y}" for d, m, y in zip(
        rng.integers(1, 29, ROWS), rng.integers(1, 13, ROWS), rng.integers(1930, 2000, ROWS),
        strict=True)]  # fmt: skip
    return {
        "Fall": [f"F{i:05d}" for i in range(ROWS)],
        "Geburtsdatum": days,
        "PLZ": [f"0{n}" for n in rng.integers(1000, 1006, ROWS)],
        "Kreatinin": [f"{x:.2f}".replace(".", ",") for x in rng.gamma(2, size=ROWS)],
        "CRP": ["<5" if i % 3 == 0 else str(5 + i % 37) for i in range(ROWS)],
        "Raucher": [("ja", "nein", "Ja ", "NEIN", "")[i % 5] for i in range(ROWS)],
        "Geschlecht": [("w", "m", "W ", "k.A.")[i % 4] for i in range(ROWS)],
        "Kosten": [f"€ {x:.2f}".replace(".", ",") for x in rng.gamma(2, 900, size=ROWS)],
        "Schmerz": [("3", "7", "-999", "4", "5", "6", "1")[i % 7] for i in range(ROWS)],
        "Bemerkung": [f"klagt über Müdigkeit seit {i} Tagen, keine Besserung" for i in range(ROWS)],
        "leer": [("", "NA", "n/a", "-", "?")[i % 5] for i in range(ROWS)],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    columns = hospital(np.random.default_rng(0))
    lines = [";".join(columns), *map(";".join, zip(*columns.values(), strict=True))]
    path = tmp_path / "hospital.csv"
    path.write_bytes("\r\n".join(lines).encode("cp1252"))
    return path


@pytest.fixture
def table(path: Path) -> Table:
    with pytest.warns(UserWarning, match=r"left out: 'Fall'.*'Bemerkung': free text.*'leer'"):
        return Table.read(path)


def test_every_column_is_read_as_what_it_spells(table: Table) -> None:
    kinds = {v.name: v.kind_in_words for v in table.schema}
    assert kinds == {
        "Geburtsdatum": "date", "PLZ": "category", "Kreatinin": "real", "CRP": "count",
        "Raucher": "boolean", "Geschlecht": "category", "Kosten": "real", "Schmerz": "count",
    }  # fmt: skip
    assert table.schema["PLZ"].categories[0] == "01000"
    assert table.schema["Kosten"].unit == "€"
    assert set(table.schema["Geschlecht"].categories) == {"w", "m"}
    assert np.nanmin(table.column("CRP").astype(float)) == 5
    assert np.isnan(table.values[2, table.schema.index("Schmerz")])


def test_describe_says_what_was_made_of_every_column(table: Table) -> None:
    told = table.describe().set_index("column")
    assert len(told) == 11
    assert told.loc["Geburtsdatum", "how"] == "dates, day first"
    assert told.loc["Kreatinin", "how"] == "with a decimal comma"
    assert told.loc["CRP", "how"] == "bounds such as <5 as the bound"
    assert told.loc["Schmerz", "how"] == "-999 taken as missing"
    assert told.loc["Geschlecht", "how"] == "1 other spellings merged"
    assert list(told[told["kind"] == "left out"].index) == ["Fall", "Bemerkung", "leer"]


def test_the_user_says_otherwise(path: Path) -> None:
    kinds = {"Fall": "category", "CRP": "category", "Geburtsdatum": "category"}
    table = Table.read(path, kinds=kinds, drop=["Bemerkung", "leer"])  # type: ignore[arg-type]
    assert table.schema["Fall"].size == ROWS
    assert "<5" in table.schema["CRP"].categories
    assert table.schema["Geburtsdatum"].kind == "category"


def test_questions_and_answers_are_in_dates(table: Table) -> None:
    born = table.schema["Geburtsdatum"]
    assert born.encode("1964-05-31") == born.encode("31.05.1964") == -2041
    assert born.decode(-2041) == "1964-05-31"
    assert str(table.column("Geburtsdatum").dtype) == "datetime64[s]"
    with pytest.raises(QueryError, match="'Geburtsdatum' is a date: expected one such as"):
        born.encode("yesterday")


def test_truths_are_asked_for_in_any_word(table: Table) -> None:
    smoker = table.schema["Raucher"]
    assert smoker.encode("ja") == smoker.encode("yes") == smoker.encode(True) == 1
    again = Table.of({"Raucher": ["yes", "no"]}, schema=table.schema, partial=True)
    assert again.values[:, table.schema.index("Raucher")].tolist() == [1, 0]


def test_rows_are_read_again_by_the_schema(path: Path, table: Table) -> None:
    with pytest.warns(UserWarning, match="column 'Schmerz': -999 taken as missing"):
        again = Table.read(path, schema=table.schema)
    np.testing.assert_array_equal(again.values, table.values)


def test_frames_keep_their_types() -> None:
    frame = pd.DataFrame({"code": ["1", "2"] * 5, "said": ["yes", "no"] * 5})
    frame["seen"] = pd.date_range("2024-01-01", periods=10)
    frame["born"] = ["31/05/1964", "01/06/1970"] * 5
    table = Table.of(frame)
    kinds = [v.kind_in_words for v in table.schema]
    assert kinds == ["category", "category", "date", "date"]
    np.testing.assert_array_equal(table.to_pandas()["seen"], frame["seen"])


def test_identifiers_of_numbers_are_left_out() -> None:
    frame = {"patient_id": list(range(1000, 1030)), "age": list(range(30, 60))}
    with pytest.warns(UserWarning, match="'patient_id': an identifier"):
        assert Table.of(frame).names == ("age",)
    assert Table.of(frame, drop=["patient_id"]).names == ("age",)


def test_codes_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("icd\n" + "\n".join(["250.8", "401.9", "V27", "410.1"] * 10))
    assert Table.read(path).schema["icd"].kind == "category"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_delimiter_and_encoding_are_found_out(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    path = tmp_path / "towns.csv"
    rows = [["town", "pop"], ["Köln", "7"], ["Ulm, Donau", "3"]]
    quoted = ("\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows)) + "\n"
    path.write_bytes(quoted.encode(encoding))
    assert Table.read(path).column("town").tolist() == ["Köln", "Ulm, Donau"]


def test_what_is_dropped_must_be_there() -> None:
    with pytest.raises(TableError, match="drop: there is no column 'agee'; did you mean 'age'"):
        Table.of({"age": [1, 2], "x": [1, 2]}, drop=["agee"])
    with pytest.raises(TableError, match="drop: expected a list"):
        Table.of({"age": [1, 2]}, drop="age")
    with pytest.raises(TableError, match="none is left"):
        Table.of({"age": [1, 2]}, drop=["age"])


def test_moments_come_back_as_they_were_read() -> None:
    """To the second, as they are given back: a table that is written and read again is the same."""
    moments = pd.to_datetime(["1970-01-01 00:00:00.000000002", "2026-11-17 05:04:18.4"], utc=True)
    table = Table.of({"seen": moments})
    again = Table.of(table.to_pandas(), schema=table.schema)
    assert np.array_equal(again.values, table.values)
    assert str(again.to_pandas()["seen"][1]) == "2026-11-17 05:04:18"


def test_images_of_no_row() -> None:
    with pytest.raises(TableError, match="a table with rows, got none"):
        Table.of(np.zeros((0, 4, 4), np.uint8))

"""Files as programs export them: the rows are found, and what is left out is told."""

from __future__ import annotations

import gzip
import io
import warnings
import zipfile
from pathlib import Path

import pytest

from fedcircuits.errors import TableError
from fedcircuits.tables.table import Table

HEADER = "Fall;Alter;Gewicht;Geschlecht;Geburt"
ROWS = [
    f"P{i:04d};{20 + 7 * i % 50};{60 + i // 7},{i % 7};{'mw'[i % 2]};{1 + i % 28:02d}.03.19{40 + i}"
    for i in range(30)
]  # fmt: skip
LINES = [HEADER, *ROWS]
KINDS = {"Alter": "count", "Gewicht": "real", "Geschlecht": "category", "Geburt": "date"}


def read(folder: Path, data: str | bytes, name: str = "rows.csv") -> tuple[Table, str]:
    """The table of a file, and all that was told of it."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = Table.read(path)
    return table, " ".join(str(w.message) for w in caught)


def zipped(members: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return packed.getvalue()


def text(*before: str, after: tuple[str, ...] = (), lines: list[str] = LINES) -> str:
    return "\n".join((*before, *lines, *after))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (text(), "left out: 'Fall'"),
        (text("Export Nord", "Stand 01.02.2024; Benutzer: x", ""), "2 lines above the header"),
        (text("Export Nord;;;;", "Stand;;;;", ";;;;"), "3 lines above the header"),
        (text("# by tool v3", "# units: kg, a"), "2 lines above the header"),
        (text("sep=;"), ""),
        (text(lines=[line + ";" for line in LINES]), "'column 6': it has no values"),
        (text(lines=[HEADER, *(row + ";;" for row in ROWS)]), ""),
        (text(lines=[HEADER, ";Jahre;kg;;", *ROWS]), "the line of units"),
        (text(lines=[HEADER, "[-];[a];[kg];[-];[-]", *ROWS]), "the line of units"),
        (text(after=("Summe;900;1961,0;;",)), "sums at the end left out"),
        (text(after=("", "Ende der Liste (30 Zeilen)")), "1 of the lines at the end"),
        (text(lines=[*LINES[:20], "P9;3;4", *LINES[20:]]), r"(lines 21)"),
        (text(lines=[*LINES[:20], HEADER, *LINES[20:]]), "headers among the rows"),
        (text().replace("\n", "\r"), ""),
        ("\ufeff" + text().replace("\n", "\r\n"), ""),
        ("\n\n" + text().replace("\n", "\n\n"), ""),
        (text().encode("utf-16"), ""),
        (text().encode("utf-16-le"), ""),
        (text().encode("utf-16-be"), ""),
        (text().encode("utf-32"), ""),
        (text().replace(";", "|"), ""),
        (text().replace(";", " ;  "), ""),
        ("\n".join(";".join(f'"{c}"' for c in line.split(";")) for line in LINES), ""),
    ],
)
def test_rows_are_found(tmp_path: Path, data: str | bytes, told: str) -> None:
    table, words = read(tmp_path, data)
    assert {v.name: v.kind_in_words for v in table.schema} == KINDS
    assert len(table) == 30
    assert told in words


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tsv", text().replace(";", "\t").encode()),
        ("a.txt", text().encode()),
        ("a.csv.gz", gzip.compress(text().encode())),
        ("a.zip", zipped({"rows": text(), "__MACOSX/rows": "x"})),
    ],
)
def test_suffixes_and_packings(tmp_path: Path, name: str, data: bytes) -> None:
    assert len(read(tmp_path, data, name)[0]) == 30


def test_names_are_given_and_made_different(tmp_path: Path) -> None:
    table, told = read(tmp_path, text(lines=['"Fall\n Nr";Wert;Wert;;"Geburt, Tag"', *ROWS]))
    assert table.names == ("Wert", "Wert (2)", "column 4", "Geburt, Tag")
    assert "without a name became 'column 4'" in told and "names became 'Wert (2)'" in told
    assert "'Fall Nr': an identifier" in told


def test_years_and_wavelengths_are_names(tmp_path: Path) -> None:
    table, _ = read(tmp_path, "400,401,402\n" + "\n".join(f"{i % 7},2,{i % 5}" for i in range(20)))
    assert table.names == ("400", "401", "402")


def test_text_of_two_encodings(tmp_path: Path) -> None:
    lines = [HEADER + ";Ort", *(row + ";Köln" for row in ROWS)]
    data = "\n".join(lines).encode() + "\nP9;44;5,0;m;01.01.1990;Köln".encode("latin-1")
    table, told = read(tmp_path, data)
    assert table.schema["Ort"].categories == ("Köln",)
    assert "partly in UTF-8, partly in Windows-1252" in told
    data = "id;Größe;Ort\n".encode() + "".join(f"{i};{150 + i},5;Köln\n" for i in range(50)).encode(
        "latin-1"
    )
    table, told = read(tmp_path, data)
    assert "Größe" in table.names and table.schema["Ort"].categories == ("Köln",)
    assert "partly in UTF-8, partly in Windows-1252" in told


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (text(lines=[HEADER, *(r + ";x" if i % 3 else r for i, r in enumerate(ROWS))]), "20 such"),
        (text(lines=ROWS), "seems to have no header"),
        ("\n".join(f"{i},{i * 2},{i % 7}" for i in range(5, 20)), "seems to have no header"),
        (text(lines=[*LINES[:9], 'P5;"33;5,5;m;01.01.1950', *LINES[9:]]), "opened and not closed"),
        ("a,b\n" + "\n".join(f"{i},{i},5" for i in range(9)), "more cells than the 2 names"),
        (HEADER + "\n", "a table with rows, got none"),
    ],
)
def test_what_cannot_be_meant_is_one_error(tmp_path: Path, data: str, problem: str) -> None:
    with pytest.raises(TableError, match=problem):
        read(tmp_path, data)


@pytest.mark.parametrize("members", [{"a": "x\n1", "b": "x\n1"}, {}])
def test_an_archive_holds_one_file(tmp_path: Path, members: dict[str, str]) -> None:
    with pytest.raises(TableError, match="expected an archive of one file"):
        read(tmp_path, zipped(members), "a.zip")


def test_a_thousand_columns(tmp_path: Path) -> None:
    lines = [",".join(f"v{i}" for i in range(1_000)), *[",".join("12345" * 200)] * 2]
    assert read(tmp_path, "\n".join(lines))[0].values.shape == (2, 1_000)


KEPT = [f"{i},{60 + i % 7}.{i % 10},{100 + 13 * i % 80},{'mf'[i % 2]}" for i in range(30)]
NAMES = "id,weight,sys,sex"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["Created:,2024-05-01,,", "By:,Dr. Who,,", NAMES, *KEPT], "2 lines above the header"),
        ([NAMES, "Patient,Body weight,Systolic pressure,Sex", *KEPT], "the line of units"),
        ([NAMES, *KEPT, ",,,", "Sum,1900,4000,"], "1 lines of empty cells left out; sums at"),
        ([NAMES, *KEPT, "Mean,63,140,", "SD,2,9,", "Min,1,2,", "Max,3,4,"], "(4 of the lines)"),
        ([NAMES, *KEPT, "* below 5 is estimated,,,", "Source: north,,,"], "remarks at the end"),
        ([NAMES, *KEPT, *(f"Note {k}: of interest" for k in range(6))], "6 of the lines at the"),
        ([NAMES, *KEPT[:9], "Subtotal,600,1400,", *KEPT[9:]], "sums among the rows"),
        ([NAMES[3:], *(f"{i + 1},{r.partition(',')[2]}" for i, r in enumerate(KEPT))], "row name"),
        (["~".join(line.split(",")) for line in (NAMES, *KEPT)], ""),
        ([",".join(f"'{c}'" for c in line.split(",")) for line in (NAMES, *KEPT)], ""),
        ([NAMES.replace("sex", "s\u200bex"), *KEPT], ""),
    ],
)  # fmt: skip
def test_what_is_no_row_is_told(tmp_path: Path, lines: list[str], told: str) -> None:
    table, words = read(tmp_path, "\n".join(lines))
    assert table.names == ("weight", "sys", "sex") and len(table) == 30
    assert table.schema["sex"].categories == ("f", "m")
    assert told in words


@pytest.mark.parametrize(
    ("above", "names"),
    [
        (",Lab,,", ("Lab weight", "Lab sys", "Lab sex")),
        (",,,Lab", ("weight", "sys", "Lab sex")),
        ("Visit 1,,Visit 2,", ("Visit 1 weight", "Visit 2 sys", "Visit 2 sex")),
    ],
)
def test_groups_above_the_names(tmp_path: Path, above: str, names: tuple[str, ...]) -> None:
    table, told = read(tmp_path, "\n".join([above, NAMES, *KEPT]))
    assert table.names == names and "two lines of names" in told


def test_a_last_row_without_a_name_that_adds_up(tmp_path: Path) -> None:
    rows = [f"{i},{i}.5,{2 * i}" for i in range(9)]
    assert len(read(tmp_path, "\n".join(["day,a,b", *rows, ",40.5,72"]))[0]) == 9
    assert len(read(tmp_path, "\n".join(["day,a,b", *rows, ",40.5,71"]))[0]) == 10


def test_a_person_called_max_is_a_row(tmp_path: Path) -> None:
    rows = [f"{('Max', 'Eva')[i % 2]},{i}.5" for i in range(10)]
    assert len(read(tmp_path, "\n".join(["who,a", *rows, "Max,3.5"]))[0]) == 11

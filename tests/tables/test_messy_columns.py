"""Columns as hospitals, banks and grids write them: read, or left out with a reason."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcircuits.tables.table import Table

ROWS = 60
Cell = Callable[[int], object]


def day(i: int) -> datetime.date:
    return datetime.date(1940, 1, 1) + datetime.timedelta(days=577 * i)


def number(i: int) -> int:
    return 50 + 37 * i % 61


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def choice(*cells: str) -> Cell:
    return lambda i: cells[i % len(cells)]


READ: dict[str, tuple[Cell, str, str]] = {  # by column: its cells, its kind, what is told
    "money": (lambda i: f"{german(1000 + 97.7 * i)} €", "real", "decimal comma, in €"),
    "thousands": (lambda i: f"{1 + i}.{100 + i}", "real", "1.100 as 1.1, else decimal=','"),
    "swiss": (lambda i: f"CHF {1000 + 97.7 * i:,.2f}".replace(",", "'"), "real", "in CHF"),
    "owed": (lambda i: f"{i}.50-" if i % 2 else f"({i}.50)", "real", ""),
    "flagged": (lambda i: f"{number(i)} H" if i % 6 else f"{number(i)}*", "count", "flags"),
    "limit": (lambda i: ("<0,5", ">100")[i % 2] if i % 5 == 0 else f"{i},25", "real", "bounds"),
    "casing": (lambda i: f"{number(i)} mg/d{'lL'[i % 2]}", "count", "in mg/d"),
    "gaps": (
        lambda i: (
            ("NA", "leer", "#NV", "nil", "NULL", "-999")[i // 3 % 6] if i % 3 == 0 else number(i)
        ),
        "count",
        "('nil'), -999 taken as missing",
    ),
    "survey": (lambda i: (-9, 88, 99, 1, 2, 3, 4, 5)[i % 8], "count", "-9 and 88 and 99 taken"),
    "remarks": (lambda i: "hämolytisch" if i % 25 == 0 else number(i), "count", "'hämolytisch'"),
    "compact": (lambda i: f"{day(i):%Y%m%d}", "date", "dates"),
    "reversed": (lambda i: f"{day(i):%d%m%Y}", "date", "dates"),
    "sas": (lambda i: f"{day(i):%d%b%Y}", "date", "dates"),
    "american": (lambda i: f"{day(i):%m/%d/%Y}", "date", "month first"),
    "mixed": (lambda i: day(i).strftime(("%Y-%m-%d", "%d.%m.%Y", "%d %b %Y")[i % 3]), "date", ""),
    "month": (lambda i: f"{day(i):%m/%Y}", "date", "months as their first day"),
    "never": (
        lambda i: "9999-12-31" if i % 5 == 0 else "1900-01-01" if i % 7 == 0 else day(i),
        "date",
        "1900-01-01 taken as missing",
    ),
    "zoned": (lambda i: f"2024-03-{1 + i % 28:02d}T08:00:00+02:00", "date and time", "in UTC"),
    "serial date": (lambda i: 20_000 + 577 * i, "date", "as spreadsheets count"),
    "unix time": (lambda i: 1_700_000_000 + 86_411 * i, "date and time", "seconds since 1970"),
    "clock": (lambda i: f"{i % 24:02d}:{i:02d}", "real", "hours after midnight"),
    "tick": (choice("X", ""), "boolean", "X as true, blank as false"),
    "maybe": (choice("ja", "nein", "unbekannt"), "boolean", "'unbekannt'"),
    "findings": (choice("+", "-", "++"), "category", ""),
    "PLZ": (lambda i: 80_331 + i % 5, "category", ""),
    "quoted": (lambda i: f"'{number(i)}", "count", "signs of text"),
    "forms": (choice("Café", "Cafe\u0301", "CAFÉ "), "category", "2 other spellings merged"),
}

LEFT_OUT: dict[str, tuple[Cell, str]] = {
    "units": (lambda i: f"{i} mg/dl" if i % 2 else f"{i / 38:.2f} mmol/l", "several units"),
    "pressure": (lambda i: f"{110 + i % 40}/{70 + i % 20}", "two numbers per cell"),
    "orders": (lambda i: day(i).strftime("%d/%m/%Y" if i % 2 else "%m/%d/%Y"), "month first"),
    "some dates": (choice("31.05.1964", "early", "late", "02.03.1970"), "2 dates among 2 other"),
    "mail": (lambda i: f"u{i % 3}@example.org", "e-mail"),
    "phone": (lambda i: f"0{170 + i % 9} {1234567 + i}", "telephone"),
    "iban": (lambda i: f"DE{10 + i % 80} 5001 0517 {54073249 + i:010d}", "accounts"),
    "machine": (lambda i: f"10.0.{i}.{i}", "machines"),
    "case_id": (lambda i: f"F{i // 2}", "an identifier"),
    "Kundennummer": (lambda i: 4_711_000 + 3 * i, "its name says so"),
    "subscriber": (lambda i: 491_700_000_000 + 7919 * i, "long numbers"),
    "line": (lambda i: i + 1, "a running number"),
    "Nachname": (choice("Maier", "Huber", "Schmidt"), "names or addresses of persons"),
    "details": (lambda i: json.dumps({"a": i % 3}), "nested values"),
    "remark": (lambda i: f'sagte "aua";\nging {i} mal', "free text"),
    "nothing": (choice("", "NA", "–", "k. A."), "it has no values"),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("messy") / "messy.csv"
    cells: dict[str, Cell] = {n: c[0] for n, c in READ.items()} | {
        n: c[0] for n, c in LEFT_OUT.items()
    }
    quoted = [[str(cell(i)).replace('"', '""') for cell in cells.values()] for i in range(ROWS)]
    lines = [";".join(cells), *(";".join(f'"{c}"' for c in row) for row in quoted)]
    path.write_text("\r\n".join(lines), encoding="utf-8-sig")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Table.read(path)
    assert len(caught) == 1 and "left out: 'units'" in str(caught[0].message)  # all at once
    return found


@pytest.mark.parametrize("name", READ)
def test_what_is_read(table: Table, name: str) -> None:
    _, kind, told = READ[name]
    reading = next(r for r in table.readings if r.column == name)
    assert reading.became == kind
    assert told in reading.how


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out(table: Table, name: str) -> None:
    reading = next(r for r in table.readings if r.column == name)
    assert reading.left_out
    assert LEFT_OUT[name][1] in reading.how


def test_values(table: Table) -> None:
    def column(name: str) -> np.ndarray:
        return table.values[:, table.schema.index(name)]

    epoch = datetime.date(1970, 1, 1)
    for name in ("compact", "reversed", "sas", "american", "mixed"):
        assert column(name).tolist() == [(day(i) - epoch).days for i in range(ROWS)]
    assert column("thousands")[3] == 4.103 and column("owed")[3] == -3.5
    assert np.isnan(column("survey")[:3]).all() and column("clock")[25] == 1 + 25 / 60
    assert column("tick").tolist() == [1.0, 0.0] * 30
    assert table.schema["unix time"].decode(column("unix time")[0]) == "2023-11-14T22:13"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a;b\n1.100;2,5\n1.200;3,5\n", 1100),  # as the column beside it
        ("a;b\n1.100;2\n1.200;3\n", 1100),  # as semicolons say
        ("a,b\n1.100,2\n1.200,3\n", 1.1),
        ('a,b\n"1,100",2.5\n"1,200",2\n', 1100),
        ('a,b\n"1,100","2,5"\n"1,200",2\n', 1.1),
    ],
)
def test_other_columns_say_what_a_number_is(tmp_path: Path, text: str, value: float) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text(text)
    table = Table.read(path)
    assert table.values[0, 0] == value
    assert ", else decimal=" in table.readings[0].how


def test_frames_are_trusted_with_their_types() -> None:
    """What was a column of numbers, or of a few texts, before is none that identifies."""
    plain = {"line": list(range(30)), "long": [10**9 + 7 * i for i in range(30)]}
    assert Table.of(plain).names == ("line", "long")
    assert Table.of({"said": ["x", None, "X"]}).schema["said"].kind == "category"


def test_rows_for_a_model_are_read_in_its_spelling(tmp_path: Path) -> None:
    schema = Table.of({"town": ["Köln", "Bonn"], "ill": [True, False]}).schema
    path = tmp_path / "rows.csv"
    path.write_text("town;ill\nKÖLN ;X\nbonn;\n")
    assert Table.read(path, schema=schema).values.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("texts", "kind", "how"),
    [
        (["Jan-19", "Feb-19", "Mar-20", "Dez-20"], "date", "months as their first day"),
        (["2019Q1", "Q2 2019", "2020-Q4"], "date", "quarters as their first day"),
        (["31.05.2020", "01.06.2020", "43831", "02.07.2021"], "date", "as spreadsheets count them"),
        (["3 days 04:10:00", "12 days 00:30:00"], "real", "durations as hours"),
        (["CHF 1'234.50", "CHF 99.00", "CHF 12.25"], "real", "in CHF"),
        (["12.3 ± 0.3", "11.9 ± 0.2", "10.0 +/- 1"], "real", "± 2 left out"),
        (["☑", "☐", "☑"], "boolean", "☑ and ☐"),
        (["a\u200b", "a", "b", "B\u00a0"], "category", "1 other spellings merged"),
        ([f"{10**25 + i}" for i in range(30)], "left out", "more digits than can be computed"),
        ([f"{1_000_000 + i}.0" for i in range(30)], "left out", "a running number"),
        (["1e308", "1.5", "2.5", "3.5"], "real", "1 beyond ±1e75 taken as missing"),
    ],
)
def test_cells_as_programs_write_them(
    tmp_path: Path, texts: list[str], kind: str, how: str
) -> None:
    path = tmp_path / "a.csv"
    lines = [f'"{text}",{i % 3}.5' for i, text in enumerate(texts)]
    path.write_text("\n".join(["value,other", *lines]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = Table.read(path).describe().set_index("column").loc["value"]
    assert told["kind"] == kind and how in told["how"]


def test_many_amounts_of_two_units_are_not_categories(tmp_path: Path) -> None:
    cells = [f"{60 + i % 25} kg" if i % 3 else f"{130 + i % 25} lb" for i in range(200)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["weight,other", *(f"{c},{i % 7}" for i, c in enumerate(cells))]))
    with pytest.warns(UserWarning, match=r"several units"):
        assert Table.read(path).names == ("other",)


def test_signs_of_text_are_read_alike_for_a_model(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("code,x\n" + "".join(f'"=""A{i % 3}""",{i}.5\n' for i in range(30)))
    table = Table.read(path)
    assert Table.read(path, schema=table.schema, unseen="error").values.tolist() == (
        table.values.tolist()
    )

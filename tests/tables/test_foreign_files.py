"""Files that are no csv whatever their names say, and headers of two lines."""

import gzip
import io
import warnings
import zipfile
from pathlib import Path

import pytest

import fedcircuits as fc
from fedcircuits.errors import TableError


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook"),
        (zipped("mimetype", "content.xml"), "LibreOffice"),
        (zipped("a.txt"), r"zip archive.*\.zip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "an Excel workbook"),
        (b"<!DOCTYPE html><html><title>Login</title>\n<p>a,b</p>", "a web page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<a/>", "a web page or XML"),
        (b"%PDF-1.4\nfoo,bar\n1,2\n", "a PDF"),
        (b"PAR1" + b"\0" * 99, r"\.parquet"),
        (gzip.compress(b"a,b\n1,2\n"), r"\.csv\.gz"),
        (b'[{"a": 1, "b": 2}]\n', "JSON"),
        (b'{"a": 1}\n{"a": 2}\n', "JSON"),
    ],
    ids=["xlsx", "ods", "zip", "xls", "html", "xml", "pdf", "parquet", "gz", "json", "json lines"],
)
def test_told_what_it_is(data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(data)
    with pytest.raises(TableError, match=f"rows.csv: expected a csv file, got .*{what}"):
        fc.Table.read(tmp_path / "rows.csv")


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"%PDF-1.4\n")
    (tmp_path / "b.csv").write_bytes(b'{"x": 1}\n')
    files = {name: str(tmp_path / f"{name}.csv") for name in "ab"}
    with pytest.raises(fc.errors.FederationError, match=r"'a': .*a PDF.*; party 'b': .*JSON"):
        fc.Federation(files)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Lab,Lab,Demo\nglucose,hba1c,sex\n", ("Lab glucose", "Lab hba1c", "Demo sex")),
        ("Lab,,Demo\nglucose,hba1c,Demo sex\n", ("Lab glucose", "Lab hba1c", "Demo sex")),
        (",Lab,Lab\nage,glucose,sex\n", ("age", "Lab glucose", "Lab sex")),
    ],
)
def test_two_lines_of_names(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"{9 + i}.5,{i % 4}.1,{'mf'[i % 2]}\n" for i in range(12))
    (tmp_path / "rows.csv").write_text(text + rows)
    with pytest.warns(UserWarning, match="two lines of names put together"):
        table = fc.Table.read(tmp_path / "rows.csv")
    assert table.names == names and len(table) == 12


def test_a_line_of_units_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nmg/l,kg\n1.5,2.5\n3.5,4.5\n5.5,2.5\n")
    with pytest.warns(UserWarning, match=r"line of units \('mg/l', 'kg' …\)"):
        assert len(fc.Table.read(tmp_path / "rows.csv")) == 3


def test_cells_parted_by_spaces(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("  a    b c\n1.5   2 x\n 3.5    4 y\n5.5 6   y\n7.5 3 x\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = fc.Table.read(tmp_path / "rows.txt")
    assert table.names == ("a", "b", "c") and table.column("a").tolist() == [1.5, 3.5, 5.5, 7.5]

"""Tables from files, and one clear error for everything that can be wrong with a file."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pandas as pd
import pytest

from fedcircuits.errors import TableError
from fedcircuits.tables.schema import Schema
from fedcircuits.tables.table import Table

TEXT = "age,weight,sex,smoker\n31,70.5,m,True\n47,?,f,NA\n\n,64.0,null,False\n"
VALUES = np.array([[31, 70.5, 1, 1], [47, np.nan, 0, np.nan], [np.nan, 64, np.nan, 0]])
KINDS = ["count", "real", "category", "boolean"]


def written(folder, text, name="data.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


def check(table):
    assert table.names == ("age", "weight", "sex", "smoker")
    assert [v.kind for v in table.schema] == KINDS
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv(tmp_path, ending, mark):
    check(Table.read(written(tmp_path, mark + TEXT.replace("\n", ending))))


def test_csv_gzipped(tmp_path):
    check(Table.read(written(tmp_path, gzip.compress(TEXT.encode()), "data.csv.gz")))
    check(Table.read(str(written(tmp_path, gzip.compress(TEXT.encode()), "DATA.CSV.GZ"))))


def test_csv_options(tmp_path):
    path = written(tmp_path, TEXT.replace(",", ";"))
    check(Table.read_csv(path, delimiter=";"))
    bare = written(tmp_path, TEXT.split("\n", 1)[1], "bare.csv")
    check(Table.read_csv(bare, names=["age", "weight", "sex", "smoker"]))
    latin = written(tmp_path, "town,n\nKöln,3\nBonn,2\n", "latin.csv", "latin-1")
    table = Table.read_csv(latin, encoding="latin-1", kinds={"n": "real"}, units={"n": "km"})
    assert table.schema["town"].categories == ("Bonn", "Köln")
    assert (table.schema["n"].kind, table.schema["n"].unit) == ("real", "km")
    odd = written(tmp_path, "x,y\n-9,a\n4,NA\n", "odd.csv")
    table = Table.read_csv(odd, missing=["-9"])
    np.testing.assert_array_equal(table.values, [[np.nan, 1], [4, 0]])
    assert table.schema["y"].categories == ("NA", "a")


def test_csv_cells_may_hold_delimiters_spaces_and_lines(tmp_path):
    path = written(tmp_path, 'a, b\n"x, y", 1\n"two\nlines", 2\n')
    table = Table.read(path)
    assert table.column("a").tolist() == ["x, y", "two\nlines"]
    assert table.names == ("a", "b")


def test_csv_of_a_frame_with_its_row_numbers(tmp_path):
    path = tmp_path / "saved.csv"
    pd.DataFrame({"x": [4, 5]}).to_csv(path)
    with pytest.warns(UserWarning, match="'': no name"):
        assert Table.read(path).names == ("x",)
    table = Table.read(path, row_id="")
    assert (table.names, table.row_ids.tolist()) == (("x",), [0, 1])


def test_csv_for_a_schema(tmp_path):
    path = written(tmp_path, "c,a\n1,2\n3,4\n")
    table = Table.read(path, schema=Schema.real(["a", "b"]), partial=True)
    np.testing.assert_array_equal(table.values, [[2, np.nan], [4, np.nan]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("a,b\n", "with rows, got none"),
        ("1,0,0\n1,1,0\n", r"no header: pass names=\[…\]"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells, expected 2"),
        ("a,b\n1,2,3\n3,4,5\n", "more cells than the 2 names"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells, expected 2"),
        ("a,b\n1,2\n,\n3\n", "line 4 has 1 cells, expected 2"),
        ('a,b\n1,"2\n3,4\n', "not a csv file"),
        (b"MAT1\0\0\0\1\2\3", "binary data"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "expected text in cp1252"),
    ],
)
def test_csv_is_refused(tmp_path, text, message):
    with pytest.raises(TableError, match=message) as caught:
        Table.read(written(tmp_path, text))
    assert caught.value.__cause__ is None


def test_csv_gzip_is_damaged(tmp_path):
    packed = gzip.compress(TEXT.encode() * 100)
    for data in (packed[:-20], b"a,b\n1,2\n", packed[:20] + b"\xff" * 40 + packed[60:]):
        with pytest.raises(TableError, match="damaged"):
            Table.read(written(tmp_path, data, "data.csv.gz"))


def test_csv_options_are_refused(tmp_path):
    path = written(tmp_path, TEXT)
    with pytest.raises(TableError, match="one character"):
        Table.read_csv(path, delimiter=", ")
    with pytest.raises(TableError, match="expected an encoding"):
        Table.read_csv(path, encoding="utf-88")
    with pytest.raises(TableError, match="names for 4 columns, got 1"):
        Table.read_csv(path, names=["a"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.npz"])
def test_file_is_absent_or_a_folder_or_empty(tmp_path, name):
    with pytest.raises(TableError, match="no such file"):
        Table.read(tmp_path / name)
    with pytest.raises(TableError, match="empty"):
        Table.read(written(tmp_path, b"", name))
    (tmp_path / "folder" / name).mkdir(parents=True)
    with pytest.raises(TableError, match="got a folder"):
        Table.read(tmp_path / "folder" / name)


def test_suffix_is_unknown(tmp_path):
    with pytest.raises(TableError, match=r"ending in \.csv, .*\.npz; save the sheet as csv"):
        Table.read(written(tmp_path, "x", "data.xlsx"))


def test_parquet(tmp_path):
    frame = Table.read(written(tmp_path, TEXT)).to_pandas()
    frame.index = [5, 6, 7]
    path = tmp_path / "data.parquet"
    frame.to_parquet(path)
    check(Table.read(path))
    check(Table.read_parquet(path))
    data = path.read_bytes()
    for wrong in (b"a,b\n1,2\n", data[: len(data) // 2], data[:-4] + b"PAR2"):
        with pytest.raises(TableError, match="not a readable parquet file"):
            Table.read(written(tmp_path, wrong, "wrong.parquet"))


def test_npz(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, np.array([[1.5, 0], [2.5, 1]]))
    assert Table.read(path).values.tolist() == [[1.5, 0], [2.5, 1]]
    np.savez_compressed(path, age=np.array([31, 47]), sex=np.array(["m", "f"]))
    table = Table.read(path)
    assert (table.names, table.column("sex").tolist()) == (("age", "sex"), ["m", "f"])
    np.savez(path, np.array([(1, 2.5)], [("n", "i4"), ("r", "f8")]))
    assert Table.read(path).names == ("n", "r")


def test_npz_is_refused(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.zeros((2, 2)), y=np.zeros(2))
    with pytest.raises(TableError, match=r"got x \(2, 2\), y \(2,\)"):
        Table.read(path)
    data = path.read_bytes()
    for wrong in (b"a,b\n1,2\n", data[: len(data) // 2], b"PK\3\4" + data[40:]):
        with pytest.raises(TableError, match="not a readable npz file"):
            Table.read(written(tmp_path, wrong, "wrong.npz"))
    np.savez(path, np.array([["a", 1]], dtype=object))
    with pytest.raises(TableError, match="without objects"):
        Table.read(path)
    with path.open("wb") as opened:
        np.save(opened, np.zeros((2, 2)))
    with pytest.raises(TableError, match="got one array"):
        Table.read(path)


# ---------------------------------------------------------------------- files larger than they look


def test_npz_that_claims_terabytes(tmp_path):
    """A header of 800 GB over 16 bytes: refused by what it claims, before room is made for it."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 1000000), }"
    header += b" " * (117 - len(header)) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16)
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(TableError, match=r"x\.npy claims the shape \(100000, 1000000\)"):
        Table.read(tmp_path / "large.npz")


def bombs(folder):
    rows = 400_000
    np.savez_compressed(folder / "a.npz", np.zeros((rows, 2)))
    with gzip.open(folder / "a.csv.gz", "wt") as file:
        file.write("a,b\n" + "0,0\n" * rows)
    pd.DataFrame({"a": np.zeros(rows), "b": np.zeros(rows)}).to_parquet(folder / "a.parquet")
    return [folder / name for name in ("a.npz", "a.csv.gz", "a.parquet")]


def test_files_that_unpack_to_more_than_allowed(tmp_path):
    for path in bombs(tmp_path):
        assert path.stat().st_size < 100_000
        with pytest.raises(TableError, match=r"unpack to more than 1,000,000; if you trust"):
            Table.read(path, most_bytes=1_000_000)
        assert len(Table.read(path, most_bytes=10_000_000)) == 400_000


def test_headers_of_absurd_length(tmp_path):
    many = ",".join(f"x{i}" for i in range(200_000))
    with pytest.raises(TableError, match="at most 100,000 columns"):
        Table.read(written(tmp_path, f"{many}\n{many}\n"))
    with pytest.raises(TableError, match="not a csv file"):
        Table.read(written(tmp_path, "x" * 10_000_000))
